"""Columns of every Arrow type, texts and JSON values at and beyond the extremes of the SQL types."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    INTEGER,
    INTERVAL,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    Interval,
    Kind,
    SqlType,
    decimal,
)
from cumulus.errors import CumulusError

DECLARED = [
    *(BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, HUGEINT, REAL, DOUBLE, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ),
    *(INTERVAL, decimal(1, 0), decimal(4, 4), decimal(12, 2), decimal(18, 3), decimal(38, 0), decimal(38, 10)),
    decimal(38, 38),
]


class Refused:
    """What no column takes, or what a value is that does not fit."""

    def __repr__(self) -> str:
        return "refused"


REFUSED = Refused()


@dataclass(frozen=True)
class Extremes:
    """A column of one Arrow type, and its cells as Python's values; REFUSED is a cell that Python does not have."""

    array: Any
    cells: list[Any]

    @property
    def name(self) -> str:
        return str(self.array.type)


def taken(cell: Any, sql_type: SqlType, *, by_arrow: bool) -> Any:
    """Return what becomes of one cell, by the check of a single row; `by_arrow`, if Arrow's columns carry it on."""
    if cell is REFUSED:
        return REFUSED
    try:
        [value] = Relation("r", (Column("x", sql_type),)).checked((cell,))
    except CumulusError:
        return REFUSED
    if value is None or not by_arrow:
        return shown(value)
    beyond = (sql_type.kind is Kind.HUGEINT and abs(value) >= 10**38) or (
        sql_type.kind is Kind.INTERVAL and abs(value.micros * 1000) >= 2**63
    )
    return REFUSED if beyond else shown(value)


def shown(value: Any) -> Any:
    """Return a value so that equal ones are the same value of the same type, with the sign of zero."""
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return ("number", str(int(value)))  # Arrow has HUGEINT as decimals
    if type(value) is int:
        return ("number", str(value))
    return (type(value).__name__, repr(value))


WHOLE = [
    *(0, 1, -1, 7, 127, 128, -128, -129, 2**15 - 1, 2**15, -(2**15), -(2**15) - 1, 2**31 - 1, 2**31, -(2**31)),
    *(-(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) + 1, 2**64 - 1),
]
FLOATS = [
    *(0.0, -0.0, 1.0, 1.5, 0.1, 0.1 + 0.2, 1.239, 1.24, 0.825, 19.99 * 3, 59.97, -59.97, 1e-7, 1e15, 1e16, 999999.995),
    *(2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**64, -(2.0**63) - 2048, 1e22, 1e37, 1e38, 1.7e38, -1.7e38),
    *(1e300, -1e300, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 3.4028234663852886e38, 3.5e38),
    *(127.0, 128.0, 2147483647.0, 2147483648.0, 0.99995, 9999999999.99, 1e10, 99999999999.99, 2251799813685249.5),
]
NUMBER_TEXTS = [
    *("7", "7.0", "-0", "+7", "1e2", "1e-2", "1E+2", "0x7", ".5", "5.", "1_000", "007", "nan", "NaN", "-nan", "inf"),
    *("Infinity", "-inf", "1e400", "-1e400", "1e999999999", "1e-999999999", "9" * 38, "9" * 39, "1" + "0" * 38),
    *("-" + "9" * 39, "9" * 5000, str(2**127 - 1), str(2**127), str(-(2**127)), str(-(2**127) - 1), "1.239", "1.230"),
    *("0." + "1" * 38, "0." + "1" * 39, "127", "128", "-129", "2147483648", str(2**63 - 1), str(2**63), "1,000", "$1"),
    *(
        str(-(2**63)),
        "-",
        "+",
        ".",
        "e",
        "1e",
        "--1",
        "0b1",
        "１２",
        "59.97",
        "78955.96",
        "1.0000000000000001",
        "5e-324",
    ),
]
TIME_TEXTS = [
    *("2024-01-31", "2024-1-5", "2024-01-05 00:00:00", "2024-01-05 00:00:01", "2024-01-05T00:00:00"),
    *("2024-01-05T00:00:00Z", "2024-01-05 12", "2024-01-05 12:30", "2024-01-05 12:30:15.5", "2024-1-5 1:2:3"),
    *("2024-01-05 12:30:15.123456", "2024-01-05 12:30:15.1234567", "2024-01-05 12:30:15.1234560", "20240105"),
    *("2024-01-05 12:30:15,5", "20240105T123015", "2024-W01-1", "2024-005", "0001-01-01", "0000-01-01", "9999-12-31"),
    *("10000-01-01", "9999-12-31 23:59:59.999999", "9999-12-31 24:00:00", "2024-01-05 24:00:00", "2024-02-30"),
    *("2024-13-01", "0001-01-01 00:00:00+14:00", "9999-12-31 23:59:59-14:00", "2024-01-05 10:00:00+02:30"),
    *("2024-01-05 10:00+0230", "2024-01-05 10:00+02", "2024-01-05 10:00:00 UTC", "2024-01-05 10:00:00 Europe/Oslo"),
    *("epoch", "infinity", "2024/01/05", "05.01.2024", "1 day", "1 month 2 days", "P1D", "1:30", "00:00:00.0000001"),
    *("2562047788:00:54.775807", "2147483647 months", "2147483648 months", "-2147483648 days", "1-1-1", "99999-1-1"),
    *("2024-01-05 00:00:00.000000", "2024-01-05 00:00:00+00", "2024-1-31 00:00", "2024- 1- 5", "2024-001-05"),
]
TEXTS = [
    *NUMBER_TEXTS,
    *TIME_TEXTS,
    *("", "a", " 7 ", " ", "true", "T", "f", "FALSE", "yes", "no", "on", "1", "0", "é", "\x00", "a\tb", "NULL", "null"),
    *("\ufeff", "\u2028", "𝄞", "a" * 5000),
]
_MOMENTS = [
    *(0, 1, -1, 1000, 86_400_000_000, -86_400_000_000, 10**15, -62135596800000000, 253402300799999999),
    *(-62135596800000001, 253402300800000000, 2**63 - 1, -(2**63) + 1, 2**62),
]
_DAYS = [0, 1, -1, 19723, -719162, 2932896, -719163, 2932897, 2**31 - 1, -(2**31)]
_EPOCH = dt.datetime(1970, 1, 1)


def columns() -> Iterator[Extremes]:
    """Yield a column of each type, with NULL at its end."""
    yield from map(_with_null, [*_numbers(), *_texts(), *_times()])
    yield Extremes(pa.nulls(3), [None] * 3)
    yield from map(_with_null, _odd())
    yield from _encoded()


def _with_null(given: Extremes) -> Extremes:
    return Extremes(pa.concat_arrays([given.array, pa.nulls(1, given.array.type)]), [*given.cells, None])


def _numbers() -> Iterator[Extremes]:
    yield Extremes(pa.array([True, False]), [True, False])
    for bits in (8, 16, 32, 64):
        for name, lowest in ((f"int{bits}", -(1 << (bits - 1))), (f"uint{bits}", 0)):
            fits = [each for each in WHOLE if lowest <= each < lowest + (1 << bits)]
            yield Extremes(pa.array(fits, getattr(pa, name)()), fits)
    for single in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):
            found = np.array(FLOATS).astype(single)
        yield Extremes(pa.array(found), found.astype(np.float64).tolist())
    for precision, scale in ((1, 0), (9, 2), (18, 18), (38, 0), (38, 38), (38, 10), (5, -3)):
        yield _decimals(pa.decimal128(precision, scale))
    for precision, scale in ((76, 0), (76, 38), (40, 1), (76, 76)):
        yield _decimals(pa.decimal256(precision, scale))


def _decimals(kind: Any) -> Extremes:
    most = 10**kind.precision - 1
    units = {0, 1, -1, 5, 10, 100, 12, 124, 123900, most, -most, 10**38 - 1, 10**38, *WHOLE, 2**127 - 1, 2**127}
    units |= {-(2**127), -(2**127) - 1, *(each * 10 ** max(kind.scale, 0) for each in (1, 7, 127, 128, 2**63, 2**127))}
    exact = Context(prec=100)
    cells = [Decimal(each).scaleb(-kind.scale, exact) for each in sorted(units) if abs(each) <= most]
    return Extremes(pa.array(cells, kind), cells)


def _texts() -> Iterator[Extremes]:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield Extremes(pa.array(TEXTS, kind), TEXTS)
    binary = pa.array([b"a", b"\xff", b"7"], pa.binary())
    yield Extremes(pa.Array.from_buffers(pa.string(), 3, binary.buffers()), ["a", REFUSED, "7"])
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield Extremes(pa.array([b"7", b""], kind), [REFUSED] * 2)
    yield Extremes(pa.array([b"abcd"], pa.binary(4)), [REFUSED])


def _moment(number: int, per_second: int) -> Any:
    micros, rest = divmod(number * 1_000_000, per_second)
    try:
        return REFUSED if rest else _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return REFUSED


def _times() -> Iterator[Extremes]:
    cells = [_moment(day * 86400, 1) for day in _DAYS]
    days = [cell if cell is REFUSED else cell.date() for cell in cells]
    yield Extremes(pa.array(_DAYS, pa.int32()).view(pa.date32()), days)
    millis = [day * 86_400_000 for day in _DAYS] + [1]
    yield Extremes(pa.array(millis, pa.int64()).view(pa.date64()), [*days, REFUSED])
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        numbers = sorted({each * per_second // 10**6 for each in _MOMENTS} | {1, -1, 1000})
        numbers = [each for each in numbers if abs(each) < 2**63]
        for zone in (None, "UTC", "Europe/Oslo", "+05:30"):
            moments = [_moment(each, per_second) for each in numbers]
            zoned = [m if m is REFUSED or zone is None else m.replace(tzinfo=dt.UTC) for m in moments]
            yield Extremes(pa.array(numbers, pa.int64()).view(pa.timestamp(unit, zone)), zoned)
        yield _durations(unit, per_second)
    for kind in (pa.time32("s"), pa.time64("us"), pa.time64("ns")):
        yield Extremes(pa.array([0, 1], kind), [REFUSED] * 2)
    spans = [(1, 2, 3000), (0, 0, 1), (2**31 - 1, -(2**31), 2**63 - 1), (-(2**31), 2**31 - 1, -(2**63) + 808)]
    yield Extremes(
        pa.array([pa.MonthDayNano(each) for each in spans]),
        [REFUSED if nanos % 1000 else Interval(months, days, nanos // 1000) for months, days, nanos in spans],
    )


def _durations(unit: str, per_second: int) -> Extremes:
    numbers = [0, 1, -1, 1000, 1001, 86400 * 10**6, 2**53, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1]
    cells: list[Any] = []
    for number in numbers:
        micros, rest = divmod(number * 1_000_000, per_second)
        try:
            cells.append(REFUSED if rest else dt.timedelta(microseconds=micros))
        except OverflowError:
            cells.append(REFUSED)
    return Extremes(pa.array(numbers, pa.duration(unit)), cells)


def _odd() -> Iterator[Extremes]:
    """Yield columns of types that no SQL type is."""
    for array in (
        pa.array([[1]]),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array([{"a": 1}]),
        pa.array([[2**62]], pa.list_(pa.timestamp("s"))),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    ):
        yield Extremes(array, [REFUSED] * len(array))


def _encoded() -> Iterator[Extremes]:
    """Yield the same values behind dictionaries, runs and extension types."""
    plain: list[tuple[Any, list[Any]]] = [
        (pa.array([1, None, 128]), [1, None, 128]),
        (pa.array([0.1, math.nan, None]), [0.1, math.nan, None]),
        (pa.array(["7", "x", None]), ["7", "x", None]),
        (pa.array(["7", "x", None], pa.string_view()), ["7", "x", None]),
        (pa.array([dt.date(9999, 12, 31), None, dt.date(1, 1, 1)]), [dt.date(9999, 12, 31), None, dt.date(1, 1, 1)]),
        (pa.nulls(3), [None] * 3),
    ]
    for values, cells in plain:
        places = [0, 0, 1, 2, 2]
        spread = [cells[place] for place in places]
        yield Extremes(pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), values), spread)
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int16()), values)
        yield Extremes(runs, spread)
        yield Extremes(runs.slice(1, 3), spread[1:4])
    inner = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, None]))
    yield Extremes(pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 4], pa.int32()), inner), [7, 7, 7, None])
    yield Extremes(pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.int8()), inner), [None, 7, None])
    both = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", "7"]))
    yield Extremes(pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), both), ["7", "a", "a"])
    yield Extremes(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())), [True, False, None])
    yield Extremes(pa.ExtensionArray.from_storage(pa.json_(), pa.array(['"a"', "7", None])), ['"a"', "7", None])
    yield Extremes(pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16], pa.binary(16))), [REFUSED])


def one_by_one(array: Any) -> Iterator[Any]:
    """Yield a column for each cell of one."""
    return (array.slice(place, 1) for place in range(len(array)))


def those(array: Any, keep: Sequence[bool]) -> Any:
    """Return some cells of a column; not every type has a filter."""
    parts = [array.slice(place, 1) for place, is_kept in enumerate(keep) if is_kept]
    return pa.chunked_array(parts, array.type)
