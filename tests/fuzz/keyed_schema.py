"""Random schemas whose tables refer to each other: chains, stars, diamonds, circles of one table."""

from __future__ import annotations

import random

from fuzz.schema import NAMES, TYPES, Column, Reference, Table

INTS = ("a", "b", "i", "k", "m", "h")
"""Names of columns that refer to others; the last three stand in no other table."""
OTHERS = {kind: tuple(name for name, each in NAMES.items() if each == kind) for kind in TYPES}


def keyed_tables(draw: random.Random) -> tuple[Table, ...]:
    """Return two to five tables, each after those that it refers to."""
    made: list[Table] = []
    count = draw.choice((2, 3, 3, 4, 4, 5))
    for index in range(count):
        made.append(_TableMaker(draw, f"t{index}", made, is_last=index == count - 1).table())
    return tuple(made)


class _TableMaker:
    """Makes one table.

    Parameters
    ----------
    others
        To which it may refer.
    """

    def __init__(self, draw: random.Random, name: str, others: list[Table], *, is_last: bool) -> None:
        self._draw, self._name, self._is_last = draw, name, is_last
        self._others = [table for table in others if table.key]
        self._columns: list[Column] = []

    def table(self) -> Table:
        draw = self._draw
        key: tuple[str, ...] = ()
        if not self._others or draw.random() < (0.7 if self._is_last else 0.9):
            key = (self._add("int", draw.choice(TYPES["int"])),)
        references = self._references(key)
        for _ in range(draw.choice((1, 1, 2, 2, 3))):
            kind = draw.choice(("int", "int", "decimal", "float", "text", "text", "date", "timestamp", "bool"))
            self._add(kind, draw.choice(TYPES[kind]), not_null=draw.random() < 0.25)
        if key and draw.random() < 0.2:
            key = self._wider(key, references)
        if len(key) == 1 and draw.random() < 0.06:
            columns = (self._add("int", draw.choice(TYPES["int"])),)
            references.append(Reference(columns, self._name, key))
        option = ""
        if key and draw.random() < 0.08:
            option = "changes = often"
        elif not key and draw.random() < 0.3:
            option = "keep = all"
        columns = tuple(
            Column(each.name, each.type, each.kind, each.not_null and each.name not in key) for each in self._columns
        )
        return Table(self._name, columns, key, tuple(dict.fromkeys(references)), option)

    def _references(self, key: tuple[str, ...]) -> list[Reference]:
        """Return references to other tables, mostly one or two; their columns are added."""
        draw = self._draw
        if not self._others or draw.random() < 0.08:
            return []
        found = []
        for number in range(draw.choice((1, 1, 1, 2, 2))):
            # The one before makes chains; any other one makes stars and diamonds, and the same one twice.
            parent = self._others[-1] if draw.random() < 0.5 else draw.choice(self._others)
            if number == 0 and len(key) == 1 == len(parent.key) and draw.random() < 0.08:
                found.append(Reference(key, parent.name, parent.key))
                continue
            theirs = [column for column in parent.columns if column.name in parent.key]
            # Each kind of other values has two names at most, and one may be taken.
            if any(self._free(column.kind, column.name) == "" for column in theirs):
                continue
            not_null = draw.random() < 0.5
            mine = []
            for column in theirs:
                own = draw.choice(TYPES["int"]) if column.kind == "int" else column.type
                mine.append(self._add(column.kind, own, column.name, not_null=not_null))
            found.append(Reference(tuple(mine), parent.name, tuple(column.name for column in theirs)))
        return found

    def _wider(self, key: tuple[str, ...], references: list[Reference]) -> tuple[str, ...]:
        """Return a key of two columns: one that refers may be among them."""
        referring = [name for each in references for name in each.columns]
        names = [column.name for column in self._columns if column.name not in key]
        chosen = [name for name in names if name in referring] if self._draw.random() < 0.5 else names
        return (*key, self._draw.choice(chosen)) if chosen else key

    def _free(self, kind: str, wanted: str = "") -> str:
        """Return a name for a column of a kind, "" if all are taken."""
        taken = {column.name for column in self._columns}
        names = [name for name in (INTS if kind == "int" else OTHERS[kind]) if name not in taken]
        if wanted in names and self._draw.random() < 0.6:
            return wanted
        return self._draw.choice(names) if names else ""

    def _add(self, kind: str, own: str, wanted: str = "", *, not_null: bool = False) -> str:
        """Add a column, if a name is left; return its name."""
        name = self._free(kind, wanted)
        if name:
            self._columns.append(Column(name, own, kind, not_null))
        return name
