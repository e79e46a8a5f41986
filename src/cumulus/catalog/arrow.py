"""Rows and Arrow: how values of the SQL types cross the border, in both directions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.arrow_messages import table_within
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.text_values import span_as_text
from cumulus.catalog.types import INTEGER_BITS, INTERVAL, Interval, Kind, SqlType, arrow_type

# Half the bytes of lz4 on columns of events, and quicker to write; what moves and what is stored costs more. A small
# stream takes twenty times as long with it as without: 0.1 ms.
_LARGE = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))
_SMALL = pa.ipc.IpcWriteOptions()
_SMALL_BYTES = 64 << 10
_FEW_PIECES = 100


def rows_equal(column: pa.Array | pa.ChunkedArray, value: Any) -> pa.Array | pa.ChunkedArray:
    """Return which rows of a column have a value; None stands for NULL, which equals itself here."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    if value is None:
        return column.is_null()
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)


def table_of(columns: Sequence[Column], rows: Iterable[Row]) -> pa.Table:
    """Return rows of plain values as an Arrow table; a column without a type gets the one that Arrow infers.

    Raises
    ------
    pyarrow.ArrowInvalid, OverflowError
        If a value does not fit its column's type.

    Examples
    --------
    >>> from cumulus.catalog.types import HUGEINT, VARCHAR
    >>> table_of([Column("n", HUGEINT), Column("s", VARCHAR)], [(7, "x"), (None, None)]).to_pylist()
    [{'n': Decimal('7'), 's': 'x'}, {'n': None, 's': None}]
    """
    values: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [array_of(part, column.type) for part, column in zip(values, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def array_of(values: Sequence[Any], sql_type: SqlType | None) -> pa.Array:
    """Return plain values of one type as an Arrow array; ArrowInvalid or OverflowError if it cannot hold one."""
    if sql_type is None:
        return pa.array(values)
    target = arrow_type(sql_type)
    match sql_type.kind:
        case Kind.HUGEINT | Kind.DECIMAL:
            # Arrow takes integers for decimals only where they are Decimals.
            given: Sequence[Any] = [Decimal(value) if type(value) is int else value for value in values]
        case Kind.INTERVAL:
            given = [None if value is None else (value.months, value.days, value.micros * 1000) for value in values]
        case _:
            given = values
    try:
        return pa.array(given, type=target)
    except (pa.ArrowInvalid, OverflowError):
        for value in values:
            if value is not None:
                check_arrow_holds(value, sql_type)
        raise


def check_arrow_holds(value: Any, sql_type: SqlType) -> None:
    """Raise ArrowInvalid, a ValueError, for a value of a type, not NULL, that the type's Arrow columns cannot hold.

    Examples
    --------
    >>> from cumulus.catalog.types import HUGEINT
    >>> check_arrow_holds(10**38, HUGEINT)
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: 100000000000000000000000000000000000000 has 39 digits; Arrow's columns hold 38
    """
    if sql_type.kind is Kind.HUGEINT and not -(10**38) < value < 10**38:
        raise pa.ArrowInvalid(f"{value} has 39 digits; Arrow's columns hold 38")
    if sql_type.kind is Kind.INTERVAL and not (
        -_MOST_NANOS <= value.micros * 1000 <= _MOST_NANOS
        and -(2**31) <= value.months < 2**31
        and -(2**31) <= value.days < 2**31
    ):
        raise pa.ArrowInvalid(f"{span_as_text(value)} is longer than Arrow's columns hold an INTERVAL")


_MOST_NANOS = 2**63 - 1


def values_of(array: pa.Array | pa.ChunkedArray, sql_type: SqlType | None) -> list[Any] | None:
    """Return the plain values of an Arrow array, or None if it is not of the type and each value must be looked at.

    Without a type the values are taken as they are.
    """
    if sql_type is None:
        return plain_list(decoded(array))
    found = typed(array, sql_type)
    if found is None:
        return None
    values = plain_list(found)
    if sql_type.kind is Kind.HUGEINT and pa.types.is_decimal(found.type):
        return [None if value is None else int(value) for value in values]
    return values


def typed(array: Any, sql_type: SqlType) -> Any:
    """Return an Arrow array as one of a SQL type, or None if that takes more than a cast without loss.

    The type of the result is `arrow_type`, but for whole numbers of up to 64 bits, whose width stays what it is, and
    DOUBLE, which may have 32 bits. An array without a type, of which all is NULL, is of any.
    """
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    array = decoded(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow_type(sql_type))
    if not _is_of(array, sql_type):
        return None
    if sql_type.kind is Kind.VARCHAR and not _is_sound(array):
        return None
    if sql_type.kind in _CAST and array.type != arrow_type(sql_type):
        try:
            array = _cast(array, arrow_type(sql_type))
        except pa.ArrowInvalid:
            return None
    if sql_type.kind is Kind.REAL and array.type != pa.float32():
        array = array.cast(pa.float32())
        if pc.any(pc.is_inf(array)).as_py():  # one is beyond 32 bits, or infinite
            return None
    if sql_type.kind in _SPANS and not _is_within(array, sql_type):
        return None
    if sql_type.kind is Kind.INTERVAL and any(
        each is not None and each.nanoseconds % 1000 for each in array.to_pylist()
    ):
        return None
    return array


def _cast(array: Any, wanted: pa.DataType) -> Any:
    """Return an array by Arrow's cast; ArrowInvalid where that is not exact.

    Arrow multiplies 128 bits without a look at what is lost: 7 as a DECIMAL(38,38) would be 0.194. So decimals with too
    many digits go by 256 bits.
    """
    source = array.type
    if pa.types.is_decimal(wanted):
        if pa.types.is_integer(source):
            array, source = array.cast(pa.decimal128(20, 0)), pa.decimal128(20, 0)
        digits = source.precision - source.scale + wanted.scale
        if digits > 76:
            raise pa.ArrowInvalid("more digits than a decimal has")
        if digits > 38:
            array = array.cast(pa.decimal256(76, wanted.scale))
    return array.cast(wanted)


MOST_DIGITS = 36
"""So many characters and the digits of any scale are less than the 76 digits of Arrow's widest decimals."""


def widest_decimal(scale: int) -> pa.DataType:
    """Return the type as which decimals are read.

    Arrow multiplies what it reads of a decimal by a power of ten, and does not look how far that goes: it says 0.242
    for 78955.96 as a DECIMAL(38,38). Whoever reads decimals so sees to it that they are short.
    """
    return pa.decimal256(76, scale)


def numbers_of_text(texts: Any, sql_type: SqlType) -> Any:
    """Return texts as numbers of a numeric type; None if each must be looked at, because Arrow may read one otherwise.

    Raises
    ------
    pyarrow.ArrowException
        If one is no such number for Arrow.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER
    >>> numbers_of_text(pa.array(["7", None]), INTEGER).to_pylist(), numbers_of_text(pa.array(["0x7"]), INTEGER)
    ([7, None], None)
    """
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    if sql_type.kind in (Kind.DECIMAL, Kind.HUGEINT):
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if longest > MOST_DIGITS or _has_letter(texts, "eE"):
            return None
        texts = texts.cast(widest_decimal(sql_type.scale))
    elif sql_type.is_integer and _has_letter(texts, "xX"):  # it takes 0xFFFFFFFF for -1
        return None
    found = texts.cast(arrow_type(sql_type.computed))
    if sql_type.is_float and pc.all(pc.is_finite(found)).as_py() is False:
        return None  # the word for it, or a number that is too large
    return found


def _has_letter(texts: Any, letters: str) -> bool:
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    return any(pc.any(pc.match_substring(texts, letter)).as_py() for letter in letters)


_CAST = (Kind.HUGEINT, Kind.DECIMAL, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.DATE)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAYS = (dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH)
_DAY = 86_400_000_000
_MICROS = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)
_SPANS = {Kind.DATE: _DAYS, Kind.TIMESTAMP: _MICROS, Kind.TIMESTAMPTZ: _MICROS}
"""The first and the last date and timestamp of Python, as Arrow numbers them."""


def _is_sound(array: Any) -> bool:
    """Whether an Arrow array is what its type says: its texts are UTF-8, and lie where it says."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_within(array: Any, sql_type: SqlType) -> bool:
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    first, last = _SPANS[sql_type.kind]
    bounds = pc.min_max(array.cast(pa.int32() if sql_type.kind is Kind.DATE else pa.int64())).as_py()
    return bounds["min"] is None or (first <= bounds["min"] and bounds["max"] <= last)


def interval_of(value: Any) -> Interval:
    """Return Arrow's interval as ours."""
    return Interval(value.months, value.days, value.nanoseconds // 1000)


def plain_list(array: Any) -> list[Any]:
    """Return the values of an Arrow array, of whatever type, as plain ones."""
    zone = array.type.tz if pa.types.is_timestamp(array.type) else None
    if zone is not None or array.type == pa.timestamp("ns"):
        array = array.cast(pa.timestamp("us"))
    values: list[Any] = array.to_pylist()
    if zone is not None:
        return [None if value is None else value.replace(tzinfo=dt.UTC) for value in values]
    if array.type == arrow_type(INTERVAL):
        return [None if value is None else interval_of(value) for value in values]
    return values


def _is_of(array: Any, sql_type: SqlType) -> bool:
    """Whether every value of `array` is a value of `sql_type`, or becomes one without loss by a cast."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    source = array.type
    kind = sql_type.kind
    if kind is Kind.HUGEINT:
        return bool(pa.types.is_integer(source) or (pa.types.is_decimal(source) and source.scale == 0))
    if kind in INTEGER_BITS:
        if not pa.types.is_integer(source):
            return False
        if source == arrow_type(sql_type):
            return True
        bounds = pc.min_max(array).as_py()
        limit = 1 << (INTEGER_BITS[kind] - 1)
        return bounds["min"] is None or (-limit <= bounds["min"] and bounds["max"] < limit)
    match kind:
        case Kind.DECIMAL:
            return bool(pa.types.is_decimal(source) or pa.types.is_integer(source))
        case Kind.REAL | Kind.DOUBLE:
            return bool(pa.types.is_floating(source)) and source != pa.float16()
        case Kind.VARCHAR:
            return bool(
                pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source)
            )
        case Kind.BOOLEAN:
            return bool(pa.types.is_boolean(source))
        case Kind.DATE:
            return bool(pa.types.is_date(source))
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:  # Arrow keeps moments of a time zone in UTC
            return bool(pa.types.is_timestamp(source))
        case Kind.INTERVAL:
            return bool(source == pa.month_day_nano_interval())
        case _:
            return False


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream, compressed unless it is small; small pieces of it are put together."""
    if table.num_columns and table.column(0).num_chunks > _FEW_PIECES:
        table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    options = _SMALL if table.nbytes < _SMALL_BYTES else _LARGE
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_ipc(data: bytes | memoryview) -> pa.Table:
    """Return the table that `to_ipc` has written."""
    return pa.ipc.open_stream(data).read_all()


def from_strange_ipc(data: bytes | memoryview, most_bytes: int) -> pa.Table:
    """Return the table of an Arrow stream that somebody else may have made; all its values are sound.

    Raises
    ------
    ValueError
        If it takes more bytes than that when it is unpacked, which is found out before; if it has columns of columns,
        or written in a way that lets few bytes stand for many rows.
    pyarrow.ArrowException
        If it is no such stream.
    """
    table = table_within(data, most_bytes)
    strange = [kind for kind in table.schema.types if kind.id not in _PLAIN]
    if any(pa.types.is_nested(kind) or pa.types.is_dictionary(kind) for kind in strange):
        raise ValueError("columns that no table has")
    if len(table) and len(strange) == table.num_columns:
        raise ValueError(f"{len(table):,} rows in which no value takes room")
    table.validate(full=True)
    return table


_PLAIN = frozenset(
    each.id
    for each in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
        *(pa.date32(), pa.timestamp("us"), pa.decimal128(38), pa.decimal256(76), pa.month_day_nano_interval()),
    )
)
"""Types of columns in which each row takes room."""


def net_rows(shape: pa.Schema, gone: Sequence[pa.Table], come: Sequence[pa.Table], change: str) -> pa.Table:
    """Return how often each row came (above 0) or left (below 0), in a last column.

    Parameters
    ----------
    shape
        Columns and types of the rows.
    gone, come
        The rows that were there, and those that are now.
    change
        What the last column is called.
    """
    signed = [(table, -1) for table in gone] + [(table, 1) for table in come]
    counted = [
        table.append_column(change, pa.repeat(pa.scalar(sign, pa.int64()), len(table))) for table, sign in signed
    ]
    together = pa.concat_tables([shape.empty_table().append_column(change, pa.array([], pa.int64())), *counted])
    summed = together.group_by(shape.names).aggregate([(change, "sum")]).rename_columns([*shape.names, change])
    return summed.filter(pa.array(summed[change].to_numpy() != 0))
