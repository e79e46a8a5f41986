"""Random rows of a program's tables, as files have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.catalog.schema import Relation
from cumulus.engine.rows_in import is_not_null
from cumulus.m3.program import Program
from cumulus_lab.simulation import ChoiceStream

Line: TypeAlias = dict[str, Any]
"""A line of a file: an operation and values, by name."""

DELETED, UPSERTED = 0.25, 0.3
"""The share of lines that take away what came before; and, of a table with a key, of those that replace it."""
ODD = 1 / 40
"""The share of lines that empty a table, or are no rows of it."""
EXTREME = 1 / 12
"""The share of values that are at the ends of their types."""
EXTREMES: Mapping[str, Sequence[object]] = {
    "INTEGER": (-(2**31), 2**31 - 1, 0),
    "BIGINT": (-(2**63), 2**63 - 1, -(2**63) + 1),
    "DOUBLE": ("NaN", "Infinity", "-Infinity", -0.0, 5e-324, 1e150, -1e-300),
    "DATE": ("0001-01-01", "9999-12-31", "1969-12-31"),
    "VARCHAR": ("", "\x00", "NULL", "\U0001f600", "t" * 300),
    "DECIMAL(6,2)": ("9999.99", "-9999.99"),
    "DECIMAL(8,2)": ("999999.99", "-999999.99"),
    "DECIMAL(30,4)": (f"{'9' * 26}.9999", f"-{'9' * 26}.9999"),
    "DECIMAL(38,2)": (f"{'9' * 36}.99", f"-{'9' * 36}.99"),
    "HUGEINT": (10**38 - 1, -(10**38) + 1, 2**126, -(2**63), 2**64),
}
"""Type → such values, as files have them."""


def write_random_files(
    program: Program, stream: ChoiceStream, extremes: ChoiceStream, folder: Path, most_epochs: int, most_rows: int
) -> None:
    """Write files of rows that come and go, one per table and epoch, for as many epochs as chance says."""
    epochs = 1 + stream.below(most_epochs)
    rows = {relation.name: RandomRows(relation, stream, extremes) for relation in program.relations}
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
    extremes
        Decides where a value is one of `EXTREMES`: apart, so that rows stay as they were if these change.
    is_odd
        Whether a line may be one that clients do not send: it empties the table, or is no row of it.
    """

    def __init__(
        self, relation: Relation, stream: ChoiceStream, extremes: ChoiceStream, *, is_odd: bool = True
    ) -> None:
        self._relation, self._stream, self._extremes, self._is_odd = relation, stream, extremes, is_odd
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
        row: Line = {}
        for column in relation.columns:
            kind = str(column.type)
            row[column.name] = _random_value(kind, stream, may_be_null=not is_not_null(relation, column))
            if self._extremes.chance(EXTREME):
                row[column.name] = self._extremes.one(EXTREMES[kind])
        return row


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
