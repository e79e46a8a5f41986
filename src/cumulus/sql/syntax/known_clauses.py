"""What of sqlglot's nodes has a meaning here: anything else that is set is refused, never passed over.

sqlglot hangs what it knows onto its nodes as flags (`negate` of LIKE, `sample` of a table, `except_` of a star). A flag
that nobody reads would change the meaning of a query without a word, so every node is checked before it is taken apart.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cumulus.sql.source import SqlText, offset_of
from cumulus.sql.syntax.words import RESERVED, reserved_word_error

_USUAL = frozenset(("this", "expression", "expressions"))
# Flags that say how another dialect would write the same thing, or what DuckDB does anyway.
_HARMLESS = frozenset((
    "typed", "safe", "big_int", "is_string", "ignore_nulls", "coalesce", "date_part_boundary", "nested", "prefix",
    "input_type_preserved", "is_nvl", "zero_start", "fraction_in_string", "limit_options", "is_left", "quoted",
))  # fmt: skip
_READ: dict[Any, frozenset[str]] = {
    node: frozenset(names.split())
    for node, names in {
        exp.Like: "negate", exp.ILike: "negate", exp.Between: "low high", exp.In: "query unnest field",
        exp.Case: "ifs default", exp.If: "true false", exp.Cast: "to", exp.TryCast: "to", exp.Interval: "unit",
        exp.Column: "table db", exp.Substring: "start length", exp.Trim: "position", exp.StrPosition: "substr",
        exp.Overlay: "from_ for_", exp.AtTimeZone: "zone",
        exp.Table: "db catalog alias joins", exp.Join: "on side kind using method",
        exp.Subquery: "alias order limit offset joins", exp.Group: "cube rollup grouping_sets all",
        exp.Ordered: "desc nulls_first", exp.Fetch: "count direction", exp.ForeignKey: "reference options",
        exp.Reference: "options", exp.PrimaryKey: "options include", exp.PrimaryKeyColumnConstraint: "options",
        exp.SetOperation: "with_ distinct order limit offset", exp.ColumnDef: "kind constraints",
    }.items()
}  # fmt: skip


def check_taken(source: SqlText, tree: exp.Expression, *, whole: bool = False) -> None:
    """Refuse a node with something set that is not read.

    Parameters
    ----------
    whole
        Every sub-expression is read, whatever it is called: a function whose arguments stand in order.

    Raises
    ------
    UnsupportedError
        Naming what is set, and where.
    """
    read = next((names for node, names in _READ.items() if isinstance(tree, node)), frozenset[str]())
    for name, value in tree.args.items():
        if not value or name in _HARMLESS or (whole and isinstance(value, exp.Expression)):
            continue
        if whole or name not in _USUAL | read:
            what = name.strip("_").replace("_", " ").upper()
            raise source.unsupported(
                f"{what} in {tree.sql(dialect='duckdb')!r} is not supported",
                offset_of(tree),
                feature=what,
                hint="Write it another way, or leave it to query().",
            )


def check_name(source: SqlText, node: Any) -> None:
    """Refuse a reserved word as a name: sqlglot takes some of them, DuckDB takes them in double quotes only."""
    name = node.this if isinstance(node, exp.Identifier) and not node.args.get("quoted") else ""
    if str(name).lower() in RESERVED:
        raise reserved_word_error(source, str(name), offset_of(node))
