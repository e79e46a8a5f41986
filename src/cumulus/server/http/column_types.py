"""What SQL calls the Arrow types of answers."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.string_view(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.month_day_nano_interval(): "INTERVAL",
    pa.null(): "NULL",
    pa.decimal128(38, 0): "HUGEINT",
}


def sql_type_name(kind: pa.DataType) -> str:
    """Return the SQL name of an Arrow type; Arrow's own for one that SQL has no word for.

    Examples
    --------
    >>> sql_type_name(pa.decimal128(15, 2)), sql_type_name(pa.timestamp("us", "UTC"))
    ('DECIMAL(15,2)', 'TIMESTAMPTZ')
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    if pa.types.is_dictionary(kind):
        return sql_type_name(kind.value_type)
    return str(kind)
