"""The SQL types, and how their values look in Python and in Arrow.

A value of a type is one plain Python object everywhere above the native engine: `bool`, `int`, `float`,
`Decimal`, `str`, `date`, `datetime` (without a time zone for TIMESTAMP, in UTC for TIMESTAMPTZ), `Interval`, and `None`
for NULL. Names and meanings are DuckDB's, with `SET TimeZone = 'UTC'`.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cumulus.catalog.shown_values import shown
from cumulus.catalog.time_texts import date_of_text, moment_of_text
from cumulus.catalog.utf8 import half_character

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StrEnum):
    """The family of a type; integers and floats are told apart by width."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    HUGEINT = "HUGEINT"
    DECIMAL = "DECIMAL"
    BIGDECIMAL = "BIGDECIMAL"
    REAL = "REAL"
    DOUBLE = "DOUBLE"
    VARCHAR = "VARCHAR"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMPTZ = "TIMESTAMPTZ"
    INTERVAL = "INTERVAL"
    NULL = "NULL"


class Interval(NamedTuple):
    """A span of time; months and days have no fixed length, so they stay apart."""

    months: int
    days: int
    micros: int


INTEGER_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INTEGER: 32, Kind.BIGINT: 64, Kind.HUGEINT: 128}
MAX_PRECISION = 38
# Digits that an integer of the kind needs when it meets a decimal: DuckDB's own table.
INTEGER_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INTEGER: 10, Kind.BIGINT: 19, Kind.HUGEINT: 38}

NEAR_DIGITS = 15
"""A decimal of so many digits is the only one that is near its DOUBLE."""

EXACT = Context(prec=4000, traps=[Inexact, InvalidOperation, Overflow])
"""The context of all decimal arithmetic: it never rounds, it raises. The square of any DOUBLE has fewer digits."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type.

    Parameters
    ----------
    kind
        The family.
    precision, scale
        Digits in all and after the point, of DECIMAL only (1–38, 0–precision).

    Examples
    --------
    >>> str(decimal(15, 2)), str(BIGINT)
    ('DECIMAL(15,2)', 'BIGINT')
    """

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return self.kind.value

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers of a fixed width."""
        return self.kind in INTEGER_BITS

    @property
    def fills_words(self) -> bool:
        """Whether each pattern of a value's 64 or 128 bits is a value, so that none of them is left for NULL."""
        return self.kind in (Kind.BIGINT, Kind.HUGEINT)

    @property
    def is_exact(self) -> bool:
        """Whether values are numbers that add without rounding."""
        return self.is_integer or self.kind in (Kind.DECIMAL, Kind.BIGDECIMAL)

    @property
    def is_float(self) -> bool:
        """Whether values are binary floating point."""
        return self.kind in (Kind.REAL, Kind.DOUBLE)

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers at all."""
        return self.is_exact or self.is_float

    @property
    def is_temporal(self) -> bool:
        """Whether values are points in time."""
        return self.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)

    @property
    def computed(self) -> SqlType:
        """The type of what is computed and kept in maps: DOUBLE for REAL, which only columns and casts round to."""
        return DOUBLE if self.is_float else self


BIGDECIMAL = SqlType(Kind.BIGDECIMAL)
"""Decimals of any length, in maps only: sums of what a DOUBLE is exactly. No column of a table has it."""

BOOLEAN = SqlType(Kind.BOOLEAN)
TINYINT = SqlType(Kind.TINYINT)
SMALLINT = SqlType(Kind.SMALLINT)
INTEGER = SqlType(Kind.INTEGER)
BIGINT = SqlType(Kind.BIGINT)
HUGEINT = SqlType(Kind.HUGEINT)
REAL = SqlType(Kind.REAL)
DOUBLE = SqlType(Kind.DOUBLE)
VARCHAR = SqlType(Kind.VARCHAR)
DATE = SqlType(Kind.DATE)
TIMESTAMP = SqlType(Kind.TIMESTAMP)
TIMESTAMPTZ = SqlType(Kind.TIMESTAMPTZ)
"""TIMESTAMP WITH TIME ZONE: a moment, which is told in UTC."""
INTERVAL = SqlType(Kind.INTERVAL)
NULL = SqlType(Kind.NULL)


def decimal(precision: int, scale: int) -> SqlType:
    """Return DECIMAL(precision, scale); precision is cut to 38."""
    return SqlType(Kind.DECIMAL, min(precision, MAX_PRECISION), scale)


_ALIASES = {
    "BOOL": BOOLEAN,
    "INT1": TINYINT,
    "INT2": SMALLINT,
    "INT": INTEGER,
    "INT4": INTEGER,
    "INT8": BIGINT,
    "LONG": BIGINT,
    "INT128": HUGEINT,
    "FLOAT": REAL,
    "FLOAT4": REAL,
    "FLOAT8": DOUBLE,
    "TEXT": VARCHAR,
    "STRING": VARCHAR,
    "CHAR": VARCHAR,
    "BPCHAR": VARCHAR,
    "DATETIME": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "TIMESTAMP WITHOUT TIME ZONE": TIMESTAMP,
}


def type_named(name: str, parameters: tuple[int, ...] = ()) -> SqlType | None:
    """Return the type that SQL calls `name`, or None.

    Parameters
    ----------
    name
        In any case, without parameters.
    parameters
        Precision and scale of DECIMAL (18 and 3 when missing, as in DuckDB); the length of VARCHAR, ignored.

    Examples
    --------
    >>> str(type_named("int")), str(type_named("numeric", (15, 2)))
    ('INTEGER', 'DECIMAL(15,2)')
    """
    word = name.upper()
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        precision = parameters[0] if parameters else 18
        scale = parameters[1] if len(parameters) > 1 else (0 if parameters else 3)
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            return None
        return decimal(precision, scale)
    if word in _ALIASES:
        return _ALIASES[word]
    return SqlType(Kind(word)) if word in Kind.__members__ else None


_ARROW_TYPES: dict[Kind, tuple[Any, ...]] = {
    Kind.BOOLEAN: ("bool_",),
    Kind.TINYINT: ("int8",),
    Kind.SMALLINT: ("int16",),
    Kind.INTEGER: ("int32",),
    Kind.BIGINT: ("int64",),
    Kind.HUGEINT: ("decimal128", 38, 0),
    Kind.BIGDECIMAL: ("float64",),
    Kind.REAL: ("float32",),
    Kind.DOUBLE: ("float64",),
    Kind.VARCHAR: ("string",),
    Kind.DATE: ("date32",),
    Kind.TIMESTAMP: ("timestamp", "us"),
    Kind.TIMESTAMPTZ: ("timestamp", "us", "UTC"),
    Kind.INTERVAL: ("month_day_nano_interval",),
    Kind.NULL: ("null",),
}
"""The function of pyarrow that makes the type, and what it takes."""


def arrow_type(sql_type: SqlType) -> pa.DataType:
    """Return the Arrow type in which values of `sql_type` are handed out."""
    import pyarrow as pa

    if sql_type.kind is Kind.DECIMAL:
        return pa.decimal128(sql_type.precision, sql_type.scale)
    name, *parameters = _ARROW_TYPES[sql_type.kind]
    return getattr(pa, name)(*parameters)


_SINGLE = struct.Struct("<f")  # unlike the native format, it refuses what is out of range


def as_real(number: float) -> float:
    """Return the REAL, a float of 32 bits, that is nearest to a float; ValueError beyond 3.4e38.

    Examples
    --------
    >>> as_real(0.1), as_real(as_real(0.1)) == as_real(0.1)
    (0.10000000149011612, True)
    """
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        raise ValueError(f"{number} does not fit REAL") from None
    return single


def coerce(value: Any, sql_type: SqlType) -> Any:
    """Return `value` as the plain Python object of `sql_type`, changing nothing but its representation.

    Floats are rounded to the nearest: to 32 bits for REAL, and whole numbers and decimals to 64 for DOUBLE. Times with
    a time zone, and texts with an offset or `Z`, become UTC for TIMESTAMP; what has none is UTC for TIMESTAMPTZ.

    Users hand in scalars of Python, numpy and pandas.

    Raises
    ------
    TypeError, ValueError
        If the value is not of the type, or out of its range, or, being exact, would have to be rounded.

    Examples
    --------
    >>> coerce(7, decimal(15, 2)), coerce("1995-03-15", DATE)
    (Decimal('7.00'), datetime.date(1995, 3, 15))
    """
    if value is None:
        return None
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = _of_numpy(value)
    kind = sql_type.kind
    if kind in INTEGER_BITS:
        return _coerce_integer(value, INTEGER_BITS[kind])
    match kind:
        case Kind.VARCHAR:
            if isinstance(value, str):
                return sound_text(value)
        case Kind.DECIMAL:
            return _coerce_decimal(value, sql_type)
        case Kind.DOUBLE | Kind.REAL:
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                return _coerce_float(value, sql_type)
        case Kind.DATE:
            return _coerce_date(value)
        case Kind.TIMESTAMP:
            return _coerce_timestamp(value, sql_type)
        case Kind.TIMESTAMPTZ:
            return _coerce_timestamp(value, sql_type).replace(tzinfo=dt.UTC)
        case Kind.BOOLEAN:
            if isinstance(value, bool):
                return value
        case Kind.INTERVAL:
            if isinstance(value, Interval):
                return _checked_interval(value)
            if isinstance(value, dt.timedelta):
                _refuse_nanoseconds(getattr(value, "nanoseconds", 0), value)
                return Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds)
            raise TypeError(f"{shown(value)} is not an INTERVAL")
        case _:
            pass
    raise TypeError(f"{shown(value)} is not a {sql_type}")


def _checked_interval(value: Interval) -> Interval:
    """Return an interval; ValueError if its parts do not fit 32, 32 and 64 bits."""
    bits = (32, 32, 64)
    if not all(-(1 << (most - 1)) <= part < 1 << (most - 1) for part, most in zip(value, bits, strict=True)):
        raise ValueError(f"{value} does not fit INTERVAL")
    return value


def coercer(sql_type: SqlType) -> Callable[[Any], Any]:
    """Return the function that does what `coerce` does for one type, quicker where many values are as they should be.

    Examples
    --------
    >>> coercer(decimal(15, 2))(7), coercer(DATE)("1995-03-15")
    (Decimal('7.00'), datetime.date(1995, 3, 15))
    """
    if sql_type.kind is not Kind.DECIMAL:
        return partial(coerce, sql_type=sql_type)
    unit, below = Decimal(1).scaleb(-sql_type.scale), sql_type.precision - sql_type.scale

    def coerced(value: Any) -> Any:
        if type(value) is Decimal and value.is_finite():
            try:
                scaled = value.quantize(unit, context=EXACT)
            except (Inexact, InvalidOperation):
                return coerce(value, sql_type)
            if scaled and scaled.adjusted() < below:
                return scaled
        return coerce(value, sql_type)

    return coerced


def sound_text(text: str) -> str:
    """Return a text that UTF-8 can say; ValueError if it has half a character, as `json.loads` may make."""
    at = half_character(text)
    if at >= 0:
        raise ValueError(f"{text[at]!r} at character {at + 1} is half a character (a lone surrogate): no UTF-8 says it")
    return str(text)


def _of_numpy(scalar: Any) -> Any:
    """Return a numpy scalar as Python's; times, which numpy would make integers, too."""
    kind = getattr(getattr(scalar, "dtype", None), "kind", None)
    if kind in ("m", "M"):
        times = scalar.astype(f"{kind}8[us]")
        _refuse_nanoseconds(times != scalar, scalar)
        scalar = times
    return scalar.item()


def _refuse_nanoseconds(has_some: Any, value: Any) -> None:
    if has_some:
        raise ValueError(f"{shown(value)} is more precise than a microsecond")


def _coerce_integer(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
            value = int(value)  # pandas turns integers with NULLs into floats
        else:
            raise TypeError(f"{shown(value)} is not an integer")
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{shown(value)} does not fit {bits} bits")
    return int(value)


def _coerce_float(value: float | Decimal, sql_type: SqlType) -> float:
    try:
        number = float(value)
        if math.isinf(number) and not isinstance(value, float) and value.is_finite():  # no error of Decimal
            raise OverflowError
    except OverflowError:
        raise ValueError(f"{shown(value)} does not fit {sql_type}") from None
    return as_real(number) if sql_type.kind is Kind.REAL else number


def _coerce_decimal(value: Any, sql_type: SqlType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"{shown(value)} is not a {sql_type}")
    if isinstance(value, Decimal):
        number = value
    else:  # an enumeration's member is a number, too, with a `repr` of its own
        number = Decimal(int(value)) if isinstance(value, int) else Decimal(repr(float(value)))
    if not number.is_finite():
        raise ValueError(f"{shown(value)} is not a {sql_type}")
    try:
        scaled = number.quantize(Decimal(1).scaleb(-sql_type.scale), context=EXACT)
    except (Inexact, InvalidOperation):
        near = _near_decimal(float(value), sql_type.scale) if isinstance(value, float) else None
        if near is None:
            raise ValueError(f"{shown(value)} has more than {sql_type.scale} digits after the point") from None
        scaled = near
    if scaled.adjusted() + 1 > sql_type.precision - sql_type.scale and scaled:
        raise ValueError(f"{shown(value)} does not fit {sql_type}")
    return scaled if scaled else scaled.copy_abs()


def _near_decimal(number: float, scale: int) -> Decimal | None:
    """Return the decimal of at most 15 digits from which a float is one unit in its last place away; None if none.

    Sums and products of prices are such: 0.1 + 0.2 is 0.30000000000000004.
    """
    nearest = Decimal(repr(number)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN, _ROUNDING)
    if not nearest or nearest.adjusted() + scale >= NEAR_DIGITS:
        return None
    ends = math.nextafter(float(nearest), -math.inf), math.nextafter(float(nearest), math.inf)
    return nearest if number in ends else None


_ROUNDING = Context(prec=4000)


def _coerce_date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            raise TypeError(
                f"{shown(value)} has a time zone, a DATE has none: give the day that you mean, value.date() or that "
                "of UTC, value.astimezone(datetime.UTC).date()"
            )
        if value.time() == dt.time() and not getattr(value, "nanosecond", 0):
            return value.date()
    elif isinstance(value, dt.date):
        return value
    elif isinstance(value, str):
        return date_of_text(value)
    raise TypeError(f"{shown(value)} is not a DATE")


def _coerce_timestamp(value: Any, sql_type: SqlType) -> dt.datetime:
    """Return a time without its zone, in UTC."""
    if hasattr(value, "to_pydatetime"):  # of pandas
        _refuse_nanoseconds(getattr(value, "nanosecond", 0), value)
        value = value.to_pydatetime()
    if isinstance(value, str):
        value = moment_of_text(value, str(sql_type))
    if isinstance(value, dt.datetime):
        try:
            return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueError(f"{shown(value)} is beyond the years 1 to 9999 in UTC") from None
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    raise TypeError(f"{shown(value)} is not a {sql_type}")
