"""Files of the epochs of a random script: with updates, and with rows that are refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind
from cumulus.m3.program import Program
from cumulus.workloads.changes import write_epoch
from fuzz.schema import Event

Line: TypeAlias = tuple[str, tuple[Any, ...]]
"""An operation, and a row."""
WRONG = 0.08
"""How often something wrong stands behind a row."""
NOWHERE = 99
"""A number that no parent has."""


def write_files(draw: random.Random, program: Program, epochs: list[list[Event]], folder: Path) -> Counter[str]:
    """Write the files of all epochs, of static tables one; return how many lines of each kind there are."""
    counts: Counter[str] = Counter()
    parents = {key.parent for relation in program.relations for key in relation.foreign_keys}
    for number, events in enumerate(epochs):
        tables = {}
        for relation in program.relations:
            if number and relation.static:
                continue
            lines = _lines(draw, relation, [(sign, row) for sign, name, row in events if name == relation.name])
            counts.update(operation for operation, _ in lines)
            if relation.name in parents:
                counts["u of a parent"] += sum(operation == "u" for operation, _ in lines)
            table = table_of(relation.columns, [row for _, row in lines])
            operations = pa.array([operation for operation, _ in lines], pa.string())
            tables[relation.name] = table.append_column("op", operations)
        write_epoch(folder, number, tables)
    return counts


def _lines(draw: random.Random, relation: Relation, events: list[tuple[int, tuple[Any, ...]]]) -> list[Line]:
    """Return what a file says: a row that takes the place of one with its key is an update."""
    found: list[Line] = []
    for sign, row in events:
        replaced = found[-1] if found and sign > 0 and relation.key else None
        if replaced and replaced[0] == "d" and _key(relation, replaced[1]) == _key(relation, row):
            found[-1] = ("u", row)
            continue
        found.append(("i" if sign > 0 else "d", row))
        if draw.random() < WRONG:
            found += _wrong(draw, relation, row)
    return found


def _key(relation: Relation, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(row[place] for place in relation.key_positions)


def _wrong(draw: random.Random, relation: Relation, row: tuple[Any, ...]) -> list[Line]:
    """Return a line that is refused, or waits, or happens to be right."""
    lines: list[Line] = [("?", row)]
    for place, column in enumerate(relation.columns):
        if column.not_null or column.name in relation.key:
            lines.append(("i", _with(row, place, None)))
    if relation.key:
        lines += [("i", row), ("d", row)]
        number = next((place for place in relation.key_positions if _is_whole(relation, place)), None)
        for key in relation.foreign_keys:
            places = [relation.position(name) for name in key.columns]
            if number is not None and _is_whole(relation, places[0]):
                lines.append(("u", _with(_with(row, number, draw.randrange(5)), places[0], NOWHERE)))
    return [draw.choice(lines)]


def _is_whole(relation: Relation, place: int) -> bool:
    kind = relation.columns[place].type
    return kind is not None and kind.kind in (Kind.INTEGER, Kind.BIGINT)


def _with(row: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*row[:place], value, *row[place + 1 :])
