"""Random rows of a program's tables, as files have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.catalog.schema import Relation
from cumulus.engine.rows_in import is_required
from cumulus.m3.program import Program
from cumulus.simulation import ChoiceStream

Line: TypeAlias = dict[str, Any]
"""A line of a file: an operation and values, by name."""

DELETED, UPSERTED = 0.25, 0.3
"""The share of lines that take away what came before; and, of a table with a key, of those that replace it."""
ODD = 1 / 40
"""The share of lines that empty a table, or are no rows of it."""


def write_random_files(program: Program, stream: ChoiceStream, folder: Path, most_epochs: int, most_rows: int) -> None:
    """Write files of rows that come and go, one per table and epoch, for as many epochs as chance says."""
    epochs = 1 + stream.below(most_epochs)
    rows = {relation.name: RandomRows(relation, stream) for relation in program.relations}
    for name in rows:
        (folder / name).mkdir(parents=True)
    for epoch in range(1, epochs + 1):
        for name, random in rows.items():
            lines = [random.line() for _ in range(stream.below(most_rows + 1))]
            if lines or epoch == 1:
                write_lines(folder / name / f"{epoch:04}.jsonl", lines)


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    """Write a file of rows."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(path: Path) -> list[Line]:
    """Return what a file of rows has."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class RandomRows:
    """Rows of one table that come and go.

    Parameters
    ----------
    is_odd
        Whether a line may be one that clients do not send: it empties the table, or is no row of it.
    """

    def __init__(self, relation: Relation, stream: ChoiceStream, *, is_odd: bool = True) -> None:
        self._relation, self._stream, self._is_odd = relation, stream, is_odd
        self._here: list[Line] = []

    def line(self) -> Line:
        """Return the next one."""
        stream, here = self._stream, self._here
        if here and stream.chance(DELETED):
            return {"op": "delete", **here.pop(stream.below(len(here)))}
        if self._is_odd and stream.chance(ODD):
            return stream.one([{"op": "truncate"}, {"op": "insert", **self._row(), self._first: {"no": "value"}}])
        row = self._row()
        here.append(row)
        is_upsert = bool(self._relation.key) and stream.chance(UPSERTED)
        return {"op": "upsert" if is_upsert else "insert", **row}

    def alike(self, most: int) -> list[Line]:
        """Return at least one and at most so many lines of one operation."""
        first = self.line()
        lines = [first]
        for _ in range(most - 1):
            if first["op"] != "delete":
                row = self._row()
                self._here.append(row)
                lines.append({"op": first["op"], **row})
            elif self._here:
                lines.append({"op": "delete", **self._here.pop(self._stream.below(len(self._here)))})
        return lines

    @property
    def _first(self) -> str:
        return self._relation.column_names[0]

    def _row(self) -> Line:
        relation, stream = self._relation, self._stream
        return {
            column.name: _random_value(str(column.type), stream, may_be_null=not is_required(relation, column))
            for column in relation.columns
        }


def _random_value(kind: str, stream: ChoiceStream, *, may_be_null: bool) -> object:
    number = stream.below(6)
    if may_be_null and stream.chance(1 / 16):
        return None
    if kind.startswith("VARCHAR"):
        return f"t{number}"
    if kind.startswith("DATE"):
        return f"2024-01-0{number + 1}"
    if kind.startswith("DECIMAL(30"):
        return f"{number}{'0' * 20}.25"
    if kind.startswith(("DOUBLE", "DECIMAL")):
        return number / 4
    return number
