"""Lists of one row, taken by builtins of machine code: as few steps as Python allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.engine.protocol import FastPath

_LOOK = 256  # one of so many single rows goes the long way, where better code is looked for


class SingleRows:
    """The builtins of tables that have been given single rows."""

    def __init__(self, relations: Mapping[str, Relation], fast: FastPath | None) -> None:
        self._relations, self._fast = relations, fast
        self.builtins: dict[str, Callable[..., Any]] = {}
        self._count = 0

    def take(self, sign: int, name: str, rows: Any) -> bool:
        """Apply the only row of a list as a transaction, by a builtin; False if that cannot be, and nothing is done."""
        if type(rows) is not list or len(rows) != 1 or type(name) is not str:
            return False
        take = self.builtins.get(name)
        row = rows[0]
        if take is None:
            return False
        if isinstance(row, dict):
            names = self._relations[name].column_names
            row = [row.get(column) for column in names] if row.keys() <= set(names) else None
        if not isinstance(row, (tuple, list)):
            return False
        self._count += 1
        return self._count % _LOOK != 0 and take(sign, *row) is None

    def open(self, name: str) -> None:
        """Take rows of a table from now on."""
        if self._fast is not None and name not in self.builtins:
            self.builtins[name] = self._fast.builtin(name, _leave)


def single_row(relation: Relation, rows: Any) -> Any:
    """Return the only row of a list, values in the order of the columns; None if it is no such list."""
    if type(rows) is not list or len(rows) != 1:
        return None
    row = rows[0]
    if isinstance(row, dict):
        names = relation.column_names
        return [row.get(column) for column in names] if row.keys() <= set(names) else None
    return row if isinstance(row, (tuple, list)) else None


def _leave(*_: object) -> bool:
    return False
