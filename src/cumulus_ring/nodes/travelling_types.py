"""How values of DuckDB's types come from one DuckDB to another by Arrow without a change."""

from __future__ import annotations

from collections.abc import Sequence

from duckdb.sqltypes import DuckDBPyType

_PLAIN = frozenset(
    (
        *("boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"),
        *("float", "double", "decimal", "varchar", "blob", "date", "time", "interval"),
        *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone", "null"),
    )
)
_AS_TEXT = frozenset(("hugeint", "uhugeint", "uuid"))
"""Arrow has no such numbers: of a HUGEINT it would make a decimal of 38 digits."""


def travels(kind: DuckDBPyType) -> bool:
    """Whether values of a type arrive as they were, some of them as texts."""
    return travels_as_text(kind) or _is_plain(kind)


def travels_as_text(kind: DuckDBPyType) -> bool:
    """Whether values of a type are sent as texts."""
    return kind.id in _AS_TEXT


def sent(column: str, kind: DuckDBPyType) -> str:
    """Return the SQL of a column as it is sent."""
    return f"CAST({column} AS VARCHAR)" if travels_as_text(kind) else column


def received(column: str, kind: DuckDBPyType) -> str:
    """Return the SQL of a column that was sent, with its own type."""
    return f"CAST({column} AS {kind})" if travels_as_text(kind) else column


def _is_plain(kind: DuckDBPyType) -> bool:
    if kind.id in ("list", "array", "struct", "map"):
        children: Sequence[tuple[str, object]] = kind.children
        return all(_is_plain(child) for _, child in children if isinstance(child, DuckDBPyType))
    return kind.id in _PLAIN and str(kind) not in ("JSON", "GEOMETRY")
