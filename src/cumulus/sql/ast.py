"""SQL as a tree of our own: what `parse` makes of sqlglot's, and what `bind` reads.

Operators and functions are one node, `SqlCall`, under the names of `cumulus.scalars.registry`. `at` is the 0-based
offset of the node in the script, from which errors are told; -1 if unknown. What is written twice is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

from cumulus.catalog.schema import Relation
from cumulus.catalog.types import SqlType
from cumulus.errors import SqlError
from cumulus.sql.source import SqlText

AGGREGATES = frozenset((
    "sum", "count", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "bool_and", "bool_or",
    "count_if",
))  # fmt: skip
"""The `SqlCall`s that are aggregates, by name."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` is None for NULL."""

    value: Any
    type: SqlType
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """`table.name`, or just `name`."""

    name: str
    table: str = ""
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `table.*` in a select list."""

    table: str = ""
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A function or operator. `distinct` and `where` (FILTER) belong to aggregates; COUNT(*) has no args.

    `shown` is the function (with a bracket: "mod(") or operator as it was written, with its arguments, where that is
    something else: unnamed columns are called after it.
    """

    name: str
    args: tuple[Expr, ...]
    at: int = field(default=-1, compare=False)
    distinct: bool = False
    where: Expr | None = None
    shown: tuple[str, tuple[Expr, ...]] | None = None


@dataclass(frozen=True, slots=True)
class CastTo:
    """CAST(arg AS type)."""

    arg: Expr
    type: SqlType
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query used as a value or condition.

    `kind` is "scalar", "exists", "in", "any" or "all"; `left` and `op` are what the last three compare with.
    """

    query: Query
    kind: str = "scalar"
    left: Expr | None = None
    op: str = ""
    at: int = field(default=-1, compare=False)


Expr: TypeAlias = Literal | ColumnRef | Star | SqlCall | CastTo | Subquery


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table, view or CTE in FROM."""

    name: str
    alias: str
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Derived:
    """A query in FROM."""

    query: Query
    alias: str
    columns: tuple[str, ...] = ()
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Join:
    """`left kind JOIN right`; `kind` is "inner", "left", "right", "full" or "cross"."""

    left: FromItem
    right: FromItem
    kind: str = "inner"
    on: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
    at: int = field(default=-1, compare=False)


FromItem: TypeAlias = TableRef | Derived | Join


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One item of a select list; `name` is its alias, or what DuckDB calls the expression."""

    expr: Expr
    name: str
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One item of ORDER BY."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query of WITH."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT. `group_by` is None where there is no GROUP BY.

    `grouping_sets` are the sets that CUBE, ROLLUP or GROUPING SETS spell out, each a part of `group_by`. `group_all`
    and `order_all` are DuckDB's GROUP BY ALL and ORDER BY ALL. `shown` are the places of the items, stars spelled out,
    that the result has, where some others only have names for other clauses; None is all of them.
    """

    items: tuple[SelectItem, ...]
    sources: tuple[FromItem, ...] = ()
    where: Expr | None = None
    group_by: tuple[Expr, ...] | None = None
    grouping_sets: tuple[tuple[Expr, ...], ...] | None = None
    having: Expr | None = None
    order_by: tuple[OrderBy, ...] = ()
    limit: int | None = None
    offset: int = 0
    distinct: bool = False
    ctes: tuple[NamedQuery, ...] = ()
    group_all: bool = False
    order_all: bool = False
    shown: tuple[int, ...] | None = None
    limit_at: int = field(default=-1, compare=False)
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`left op right`; `op` is "union", "intersect" or "except"."""

    op: str
    all: bool
    left: Query
    right: Query
    order_by: tuple[OrderBy, ...] = ()
    limit: int | None = None
    offset: int = 0
    ctes: tuple[NamedQuery, ...] = ()
    limit_at: int = field(default=-1, compare=False)
    at: int = field(default=-1, compare=False)


Query: TypeAlias = Select | SetOperation


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS], already a catalog relation."""

    relation: Relation
    replace: bool = False
    unless_there: bool = False
    at: int = -1


@dataclass(frozen=True, slots=True)
class DimensionClause:
    """DIMENSION name (level, …), coarse to fine; DIMENSION name alone is one level of that name."""

    name: str
    levels: tuple[ColumnRef, ...]
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class KeepEntry:
    """Levels in brackets behind KEEP: columns, or `dimension.column`; none for the total."""

    levels: tuple[ColumnRef, ...]
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class CubeClauses:
    """What CREATE CUBE has more than CREATE VIEW; `keep_all` is KEEP ALL, and `keep_at` where KEEP stands."""

    dimensions: tuple[DimensionClause, ...] = ()
    keep: tuple[KeepEntry, ...] = ()
    keep_all: bool = False
    keep_at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] [STRICT] VIEW [IF NOT EXISTS] name [(columns)] [WITH (order = …)] AS query.

    `text` is the query as written. `cube` is None but for CREATE CUBE, whose finest rows are those of a view.

    `order` is "0", "1" or "full" (`cumulus.compiler.CompilerOptions.order`), "" where nothing is said.
    """

    name: str
    query: Query
    text: str
    columns: tuple[str, ...] = ()
    strict: bool = False
    replace: bool = False
    unless_there: bool = False
    order: str = ""
    cube: CubeClauses | None = None
    at: int = -1

    @property
    def kind(self) -> str:
        """What it is called: a view or a cube."""
        return "view" if self.cube is None else "cube"


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW [IF EXISTS] name [CASCADE], or DROP CUBE; `kind` is "view" or "cube"."""

    name: str
    if_exists: bool = False
    cascade: bool = False
    kind: str = "view"
    at: int = -1


Statement: TypeAlias = CreateTable | CreateView | DropView


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed script: its statements, and the text they came from.

    Parameters
    ----------
    errors
        Of the statements that could not be read.
    broken
        What those may have been meant to declare, in lower case: that it is missing is not told.
    """

    statements: tuple[Statement, ...]
    source: SqlText
    errors: tuple[SqlError, ...] = ()
    broken: frozenset[str] = frozenset()

    def check(self) -> Script:
        """Return the script itself; raise its errors, if there are any."""
        if self.errors:
            raise SqlError.together(self.errors)
        return self


def tables_read(query: Query) -> dict[str, int]:
    """Return the tables and views that a query reads, each with a place where; names of its WITH are left out."""
    places: dict[str, int] = {}
    _find_tables(query, frozenset(), places)
    return places


def _find_tables(node: Any, hidden: frozenset[str], places: dict[str, int]) -> None:
    if isinstance(node, (Select, SetOperation)):
        for named in node.ctes:
            _find_tables(named.query, hidden, places)
            hidden |= {named.name}
    if isinstance(node, TableRef):
        if node.name not in hidden:
            places.setdefault(node.name, node.at)
    elif isinstance(node, tuple):
        for each in node:
            _find_tables(each, hidden, places)
    elif is_dataclass(node):
        for part in fields(node):
            if part.name != "ctes":
                _find_tables(getattr(node, part.name), hidden, places)
