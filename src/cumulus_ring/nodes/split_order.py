"""ORDER BY and LIMIT of a query in parts: by which columns of the partial rows they are said again."""

from __future__ import annotations

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree
from cumulus_ring.nodes.split_text import NotSplitError, path, position


class SplitOrder:
    """The order of a SELECT's rows and how many of them are wanted, over numbered columns.

    What is ordered by stands in the select list as it is, or is added to it (`extra`), as DuckDB's own binder does.

    Parameters
    ----------
    top
        The outermost SELECT.
    names
        Of its columns.

    Raises
    ------
    NotSplitError
        If the order cannot be said over columns, or the limit is not a number.
    """

    def __init__(self, top: Tree, names: list[str]) -> None:
        self.extra: list[Tree] = []
        self._names = [folded(name) for name in names]
        self._aliases = {folded(item["alias"]) for item in top["select_list"] if item["alias"]}
        self._keys: list[tuple[int, str]] = []
        self._limit = ""
        self._most: int | None = None
        for modifier in top["modifiers"]:
            if modifier["type"] == "ORDER_MODIFIER":
                for each in modifier["orders"]:
                    self._add_key(each)
            elif modifier["type"] == "LIMIT_MODIFIER":
                self._set_limit(modifier)
            else:
                raise NotSplitError(f"{modifier['type']} is computed whole")

    def merged(self, rows: str, columns: list[str]) -> str:
        """Return ORDER BY and LIMIT over a relation with columns of these names."""
        return self._ordered(rows, columns) + self._limit

    def pushed(self, rows: str, columns: list[str]) -> str:
        """Return ORDER BY and LIMIT of each part, of which no more rows are needed; empty if all are."""
        return "" if self._most is None else f"{self._ordered(rows, columns)} LIMIT {self._most}"

    def _ordered(self, rows: str, columns: list[str]) -> str:
        keys = (f"{rows}.{columns[at]}{how}" for at, how in self._keys)
        return f" ORDER BY {', '.join(keys)}" if self._keys else ""

    def _add_key(self, order: Tree) -> None:
        expression, how = order["expression"], ""
        while expression["class"] == "COLLATE":
            how = f" COLLATE {_collation(expression['collation'])}{how}"
            expression = expression["child"]
        how += _DIRECTIONS[order["type"]] + _NULLS[order["null_order"]]
        if expression["class"] == "STAR":
            if not expression["columns"] or expression["expr"] is not None or expression["exclude_list"]:
                raise NotSplitError("it is ordered by a choice of columns")
            self._keys += [(at, how) for at in range(len(self._names))]
            return
        self._keys.append((self._place(expression), how))

    def _place(self, expression: Tree) -> int:
        """Return the column that an expression is, or the one that it becomes."""
        at = position(expression)
        if at is not None:
            return at - 1
        if len(of := path(expression)) == 1 and of[0] in self._aliases:
            if self._names.count(of[0]) != 1:
                raise NotSplitError(f"{of[0]}, by which it is ordered, is the name of two columns")
            return self._names.index(of[0])
        self.extra.append({**expression, "alias": ""})
        return len(self._names) + len(self.extra) - 1

    def _set_limit(self, modifier: Tree) -> None:
        limit, offset = (_literal(modifier[each]) for each in ("limit", "offset"))
        is_share = modifier["limit_type"] != "ROW_COUNT"
        if limit is not None:
            self._limit += f" LIMIT {limit}{'%' if is_share else ''}"
        if offset is not None:
            self._limit += f" OFFSET {offset}"
        if limit is not None and not is_share:
            self._most = int(limit) + int(offset or "0")


_DIRECTIONS = {"ORDER_DEFAULT": "", "ASCENDING": " ASC", "DESCENDING": " DESC"}
_NULLS = {"ORDER_DEFAULT": "", "NULLS FIRST": " NULLS FIRST", "NULLS LAST": " NULLS LAST"}


def _collation(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))


def _literal(expression: Tree | None) -> str | None:
    """Return a number that is written in the query; None for none."""
    if expression is None:
        return None
    literal = expression.get("literal") or {}
    if expression["class"] != "CONSTANT" or not str(literal.get("text", "")).replace(".", "", 1).isdigit():
        raise NotSplitError("its LIMIT is not a number")
    if literal["kind"] != "INTEGER" and "." not in literal["text"]:
        raise NotSplitError("its LIMIT is not a number")
    return str(literal["text"])
