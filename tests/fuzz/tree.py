"""The trees of random queries: how they are written, what they contain, and how they become smaller.

A node is a frozen dataclass and writes itself with `sql()`. Aliases are unique in a view, so that a table can be taken
out of a tree by its alias. `fuzz.constructs` counts what a tree contains; `fuzz.shrink` makes it smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Expr:
    """An expression: a template over its parts.

    Parameters
    ----------
    kind
        "int", "big" (sums of integers and decimals), "decimal", "float", "mean" (AVG of integers), "rough" (rounded
        floats: only shown), "text", "date", "timestamp" or "bool".
    marks
        The constructs that the template itself uses.
    alias
        For a column, the alias of its table; "" for a column merged by USING, and for everything else.
    """

    template: str
    parts: tuple[Expr | Query, ...] = ()
    kind: str = "bool"
    marks: tuple[str, ...] = ()
    alias: str = ""

    def sql(self) -> str:
        return self.template.format(*(part.sql() for part in self.parts))


@dataclass(frozen=True)
class TableRef:
    """A table, a view or a common table expression by name."""

    name: str
    alias: str
    origin: str = "table"

    def sql(self) -> str:
        return self.name if self.name == self.alias else f"{self.name} {self.alias}"


@dataclass(frozen=True)
class Derived:
    """A query in FROM."""

    query: Query
    alias: str

    def sql(self) -> str:
        return f"({self.query.sql()}) {self.alias}"


@dataclass(frozen=True)
class Join:
    """Two sources joined; `kind` is JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, CROSS JOIN."""

    kind: str
    left: Source
    right: Source
    on: tuple[Expr, ...] = ()
    using: tuple[str, ...] = ()
    natural: bool = False

    def sql(self) -> str:
        right = f"({self.right.sql()})" if isinstance(self.right, Join) else self.right.sql()
        text = f"{self.left.sql()} {'NATURAL ' if self.natural else ''}{self.kind} {right}"
        if self.using:
            return f"{text} USING ({', '.join(self.using)})"
        return f"{text} ON {conjunction(self.on)}" if self.on else text


@dataclass(frozen=True)
class Item:
    """One item of a select list; `name` is "" if it has no alias."""

    expr: Expr
    name: str

    def sql(self) -> str:
        return f"{self.expr.sql()} AS {self.name}" if self.name else self.expr.sql()


@dataclass(frozen=True)
class Key:
    """A group key: an "expression", or the "alias" or "position" of the item `name` while that is there."""

    expr: Expr
    way: str
    name: str


@dataclass(frozen=True)
class Select:
    """One block. `grouping` is "" for none, else "keys", "all", "cube", "rollup" or "sets" (of the keys' places)."""

    items: tuple[Item, ...]
    sources: tuple[Source, ...]
    where: tuple[Expr, ...] = ()
    grouping: str = ""
    keys: tuple[Key, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    having: tuple[Expr, ...] = ()
    distinct: bool = False

    def sql(self) -> str:
        text = f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(item.sql() for item in self.items)}"
        text += f" FROM {', '.join(source.sql() for source in self.sources)}"
        if self.where:
            text += f" WHERE {conjunction(self.where)}"
        text += self._grouping()
        return f"{text} HAVING {conjunction(self.having)}" if self.having else text

    def ways(self) -> list[str]:
        """Return the way in which each key is written."""
        names = [item.name for item in self.items]
        return [key.way if key.name in names else "expression" for key in self.keys]

    def _grouping(self) -> str:
        names = [item.name for item in self.items]
        written = [
            {"expression": key.expr.sql(), "alias": key.name}.get(way) or str(names.index(key.name) + 1)
            for key, way in zip(self.keys, self.ways(), strict=True)
        ]
        match self.grouping:
            case "":
                return ""
            case "all":
                return " GROUP BY ALL"
            case "keys":
                return f" GROUP BY {', '.join(written)}"
            case "sets":
                sets = ", ".join(f"({', '.join(written[place] for place in each)})" for each in self.sets)
                return f" GROUP BY GROUPING SETS ({sets})"
            case kind:
                return f" GROUP BY {kind.upper()} ({', '.join(written)})"


@dataclass(frozen=True)
class SetQuery:
    """UNION, INTERSECT or EXCEPT, with or without ALL."""

    op: str
    left: Query
    right: Query

    def sql(self) -> str:
        left, right = (
            f"({side.sql()})" if isinstance(side, (SetQuery, With)) else side.sql() for side in (self.left, self.right)
        )
        return f"{left} {self.op} {right}"


@dataclass(frozen=True)
class Cte:
    """A common table expression."""

    name: str
    query: Query


@dataclass(frozen=True)
class With:
    """A query with common table expressions before it."""

    ctes: tuple[Cte, ...]
    body: Query

    def sql(self) -> str:
        return f"WITH {', '.join(f'{cte.name} AS ({cte.query.sql()})' for cte in self.ctes)} {self.body.sql()}"


@dataclass(frozen=True)
class Order:
    """One item of ORDER BY: the name of an output column, and its flags."""

    name: str
    flags: str = ""


@dataclass(frozen=True)
class View:
    """A named query with its ORDER BY and LIMIT; "total" says whether the order leaves nothing open."""

    name: str
    query: Query
    order: tuple[Order, ...] = ()
    limit: str = ""
    is_total: bool = False

    def select(self) -> str:
        text = self.query.sql()
        if self.order:
            text += f" ORDER BY {', '.join(f'{each.name}{each.flags}' for each in self.order)}"
        return text + self.limit

    def sql(self) -> str:
        return f"CREATE VIEW {self.name} AS {self.select()}"


Source: TypeAlias = "TableRef | Derived | Join"
Query: TypeAlias = "Select | SetQuery | With"
Node: TypeAlias = "Expr | TableRef | Derived | Join | Item | Key | Select | SetQuery | Cte | With | View"


def conjunction(conditions: tuple[Expr, ...]) -> str:
    return " AND ".join(condition.sql() for condition in conditions)


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes right below a node."""
    for each in fields(node):
        value = getattr(node, each.name)
        for child in value if isinstance(value, tuple) else (value,):
            if is_dataclass(child) and not isinstance(child, Order):
                yield child


def walk(node: Any) -> Iterator[Node]:
    """Yield a node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)
