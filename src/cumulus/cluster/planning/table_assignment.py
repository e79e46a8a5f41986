"""Which switch takes which tables, and so who checks which keys and references.

A switch checks what it sees: tables that are linked by checked references go to one switch together. A large table that
nothing is checked against may be split: each row always goes to one switch, so that an update finds what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cumulus.catalog.partition import buckets_of
from cumulus.catalog.schema import Relation
from cumulus.engine.integrity import references
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import Program

if TYPE_CHECKING:
    import pyarrow as pa

    from cumulus.cluster.layout import Indices

_HASHES = (1 << 31) - 1
_FACTOR = 1_000_003


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """The switches of the tables.

    Parameters
    ----------
    switches
        How many there are.
    whole
        Table → its switch.
    split
        Table → the columns by whose values its rows go to the switches; all other tables are in `whole`.
    """

    switches: int
    whole: Mapping[str, int]
    split: Mapping[str, tuple[str, ...]]

    def tables_of(self, switch: int) -> tuple[str, ...]:
        """Return the tables of which a switch takes all or some rows."""
        return (*(name for name, own in self.whole.items() if own == switch), *self.split)

    def switches_of(self, table: str, rows: pa.Table) -> Indices:
        """Return the switch of every row, given by columns; of a split table only those of `split` are looked at."""
        import numpy as np

        if table in self.whole:
            return np.full(rows.num_rows, self.whole[table], np.int64)
        mixed = np.zeros(rows.num_rows, np.uint64)
        for name in self.split[table]:
            hashes = buckets_of(rows.column(name), _HASHES).to_numpy(zero_copy_only=False)
            mixed = mixed * np.uint64(_FACTOR) + hashes.astype(np.uint64)
        return (mixed % np.uint64(self.switches)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked, by whom; and what nobody checks, and why: each as a clause."""

    checked: Mapping[str, str]
    unchecked: Mapping[str, str]


def assign_tables(program: Program, switches: int, rows: Mapping[str, int]) -> TableAssignment:
    """Return which switch takes which tables.

    Tables that are linked by checked references stay together. The largest go first, each to the switch that has least
    so far; a table alone that is more than a switch's share is split, by its primary key or else by all columns.

    Parameters
    ----------
    rows
        Of all tables (`cumulus.cluster.homes.estimated_rows`).

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION r(a INT); RELATION s(a INT); RELATION big(a INT, b INT);"
    >>> found = assign_tables(parse(text), 2, {"r": 1, "s": 1, "big": 9})
    >>> dict(found.whole), dict(found.split)
    ({'r': 0, 's': 1}, {'big': ('a', 'b')})
    """
    tables = {relation.name: relation for relation in program.relations}
    linked = _linked(program)
    share = sum(rows[name] for name in tables) / switches
    split = {
        name: table.key or table.column_names
        for name, table in tables.items()
        if rows[name] > share and not linked[name] and not table.static and table.columns
    }
    loads = [sum(rows[name] for name in split) / switches] * switches
    together = {tuple(sorted(reachable(linked, [name]))) for name in tables if name not in split}
    whole: dict[str, int] = {}
    for names in sorted(together, key=lambda names: (-sum(rows[name] for name in names), names)):
        least = loads.index(min(loads))
        loads[least] += sum(rows[name] for name in names)
        whole |= dict.fromkeys(names, least)
    return TableAssignment(switches, {name: whole[name] for name in tables if name in whole}, split)


def checks_of(program: Program, assignment: TableAssignment) -> Checks:
    """Return which keys, deletions and references the switches check, and which nobody does.

    A deletion is checked if its row must be there, a reference if its parent must.
    """
    kept = {relation.name for relation in program.relations if relation.name in dict(program.kept)}
    checked: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    for table in program.relations:
        by = f"switch {assignment.whole[table.name]}" if table.name in assignment.whole else "each switch, of its rows"
        has_key = bool(table.key) and not table.key_rely
        rows = f"{'primary key and ' if has_key else ''}deletions of {table.name}"
        if table.name in kept:
            checked[rows] = by
        else:
            unchecked[rows] = "its rows are not kept"
        if table.key_rely:
            unchecked[f"primary key of {table.name}"] = "it is RELY"
        for key in table.foreign_keys:
            what = f"{table.name}({', '.join(key.columns)}) references {key.parent}"
            absent = [name for name in dict.fromkeys((table.name, key.parent)) if name not in kept]
            if absent:
                unchecked[what] = f"rows of {' and '.join(absent)} are not kept"
            else:
                checked[what] = by
    return Checks(checked, unchecked)


def _linked(program: Program) -> dict[str, set[str]]:
    """Return for every table those that checked references link it with, itself if it refers to itself."""
    kept: dict[str, Relation] = {name: program.relation(name) for name, _ in program.kept}
    linked: dict[str, set[str]] = {relation.name: set() for relation in program.relations}
    for each in references(kept):
        linked[each.child.name].add(each.parent.name)
        linked[each.parent.name].add(each.child.name)
    return linked
