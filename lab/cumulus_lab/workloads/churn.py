"""Rows that come, leave and come again: any set of tables as a stream of events.

For tests and small benchmarks: groups fill and empty, and every row stands once before some leave for good.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa

from cumulus.catalog import DELETE, INSERT, Event, Relation, Row
from cumulus.errors import UsageError
from cumulus.workloads import checks

_MOST_DELETES = 0.4
_RETURNING = 0.1
"""Share of insertions while the tables empty."""

Placed: TypeAlias = tuple[str, Row]
"""A row with its table."""


def churn(
    tables: Mapping[str, pa.Table],
    *,
    relations: Mapping[str, Relation] | None = None,
    seed: int = 0,
    deletes: float = 0.2,
    leaving: float = 0.5,
) -> tuple[list[Event], int]:
    """Return a stream that fills the tables and then empties them in part.

    Parameters
    ----------
    tables
        Name → rows, all different within a table.
    relations
        If given, the stream keeps the promises of their foreign keys between these tables: a row comes after its
        parents and leaves before them. Otherwise all rows of all tables are shuffled together.
    deletes
        Share of deletions, 0 to 0.4, while the tables fill; a deleted row comes again later.
    leaving
        Share of the rows, 0 to 1, that are gone at the end.

    Returns
    -------
    tuple
        The events, and after how many of them every row stands.

    Raises
    ------
    UsageError
        A share out of its range.

    Examples
    --------
    >>> events, full = churn({"r": pa.table({"a": [1, 2, 3]})}, leaving=1)
    >>> sum(event.sign for event in events[:full]), sum(event.sign for event in events)
    (3, 0)
    """
    if not 0 <= deletes <= _MOST_DELETES:
        raise UsageError(f"deletes is {deletes}", hint=f"It can be 0 to {_MOST_DELETES}.")
    if not 0 <= leaving <= 1:
        raise UsageError(f"leaving is {leaving}", hint="It can be 0 to 1.")
    choose = random.Random(seed)
    absent = _Pool([(name, row) for name, table in tables.items() for row in checks.rows(table)])
    present = _Pool([])
    parents, children = _families(absent.rows, relations or {})
    count = len(absent.rows)
    events: list[Event] = []

    def move(sign: int) -> None:
        source, target, before = (absent, present, parents) if sign == INSERT else (present, absent, children)
        chosen = source.draw(choose)
        # Parents that are not there come first; children that are there leave first.
        while waiting := [row for row in before[chosen] if row in source.places]:
            chosen = choose.choice(waiting)
        source.remove(chosen)
        target.add(chosen)
        events.append(Event(sign, *chosen))

    while absent.rows:
        move(DELETE if present.rows and choose.random() < deletes else INSERT)
    full = len(events)
    while len(absent.rows) < round(count * leaving):
        move(INSERT if absent.rows and choose.random() < _RETURNING else DELETE)
    return events, full


class _Pool:
    """Rows from which any is drawn, and any removed, at once."""

    def __init__(self, rows: list[Placed]) -> None:
        self.rows = rows
        self.places = {row: place for place, row in enumerate(rows)}

    def draw(self, choose: random.Random) -> Placed:
        return choose.choice(self.rows)

    def add(self, row: Placed) -> None:
        self.places[row] = len(self.rows)
        self.rows.append(row)

    def remove(self, row: Placed) -> None:
        place, last = self.places.pop(row), self.rows.pop()
        if last != row:
            self.rows[place] = last
            self.places[last] = place


Families: TypeAlias = dict[Placed, list[Placed]]


def _families(rows: list[Placed], relations: Mapping[str, Relation]) -> tuple[Families, Families]:
    """Return row → its parents, and row → its children, among `rows`."""
    by_key: dict[tuple[object, ...], Placed] = {}
    for name, row in rows:
        if name in relations:
            by_key[name, *(row[place] for place in relations[name].key_positions)] = (name, row)
    parents: Families = defaultdict(list)
    children: Families = defaultdict(list)
    for name, row in rows:
        for wanted in _references(relations[name], row, relations) if name in relations else ():
            if wanted in by_key:
                parents[name, row].append(by_key[wanted])
                children[by_key[wanted]].append((name, row))
    return parents, children


def _references(relation: Relation, row: Row, relations: Mapping[str, Relation]) -> Iterator[tuple[object, ...]]:
    """Yield the table and the key, in the key's own order, of every row to which `row` refers."""
    for reference in relation.foreign_keys:
        if reference.parent in relations:
            values = dict(
                zip(reference.parent_columns, (row[relation.position(name)] for name in reference.columns), strict=True)
            )
            yield (reference.parent, *(values[name] for name in relations[reference.parent].key))
