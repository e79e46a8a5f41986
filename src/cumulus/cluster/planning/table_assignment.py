"""Which switch takes the rows of which table, and which keys and references are checked there.

A switch checks what it sees. All rows of a table go to one switch, and tables that are linked by checked references go
together, unless a table is split: then each switch takes the rows whose hash of a column is its number. A primary key
is checked all the same if the column is of the key. A reference is checked if both tables are split alike, by columns
that it compares; else nobody checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cumulus.catalog.names import folded
from cumulus.catalog.schema import Relation
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.table_columns import table_column
from cumulus.cluster.placement.table_shares import TableShare
from cumulus.engine.integrity import references
from cumulus.epochs.bucket.references import sees_both_sides
from cumulus.epochs.layouts import reference_text, without_references
from cumulus.errors import UsageError
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """The switches of the tables.

    Parameters
    ----------
    switches
        How many there are.
    switch_of
        Table → its switch; not of tables that are split.
    splits
        Table that all switches share → the column by whose hash.
    """

    switches: int
    switch_of: Mapping[str, int]
    splits: Mapping[str, str] = field(default_factory=dict)

    def tables_of(self, switch: int) -> tuple[str, ...]:
        """Return the tables of which a switch takes rows."""
        return (*(name for name, own in self.switch_of.items() if own == switch), *self.splits)

    def switches_of(self, table: str) -> tuple[int, ...]:
        """Return the switches that take rows of a table."""
        return tuple(range(self.switches)) if table in self.splits else (self.switch_of[table],)

    def share_of(self, table: str, switch: int) -> TableShare | None:
        """Return the share of a switch in a table; None if the table is not split."""
        return TableShare(self.splits[table], switch, self.switches) if table in self.splits else None

    def shares_of(self, switch: int) -> dict[str, TableShare]:
        """Return the shares of a switch in all tables that are split."""
        return {table: TableShare(column, switch, self.switches) for table, column in self.splits.items()}


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked, by whom; and what nobody checks, and why: each as a clause."""

    checked: Mapping[str, str]
    unchecked: Mapping[str, str]


# --- what is asked for ----------------------------------------------------------------------------------------------


def splits_asked_for(program: Program, texts: Iterable[str], switches: int, mode: Mode) -> dict[str, str]:
    """Return table → column of splits, in the order of the program's tables.

    Parameters
    ----------
    texts
        As the user has written them: ``orders.oid``.
    switches
        How many there are.

    Raises
    ------
    UsageError
        If there is no such column, one table is split twice, there is one switch, or a primary key could not be
        checked any more.
    """
    tables = {relation.name: relation for relation in program.relations}
    found: dict[str, str] = {}
    for text in texts:
        name, column = table_column(program, "--split", text)
        if found.setdefault(name, column) != column:
            raise UsageError(
                f"{name} is split by {found[name]} and by {column}", hint="Give --split once for each table."
            )
        _require_switches(text, switches, mode)
        _require_key(text, program, tables[name], column)
    return {name: found[name] for name in tables if name in found}


def _require_switches(text: str, switches: int, mode: Mode) -> None:
    if RULES[mode].needs_one_switch:
        raise UsageError(
            f"--split {text}: --mode {mode} has one switch, which gives all rows their order",
            hint=f"Leave out --split, or take --mode {Mode.EVENTUAL}.",
        )
    if switches < 2:
        raise UsageError(
            f"--split {text}: there is one switch, and it takes all rows",
            hint="Give --switches 2 or more; a table of a running cluster is not split any more with --join TABLE.",
        )


def _require_key(text: str, program: Program, table: Relation, column: str) -> None:
    if table.key and column not in table.key and table.name in dict(program.kept):
        raise UsageError(
            f"--split {text}: rows with one primary key ({', '.join(table.key)}) could come to different switches, "
            "so none could check it",
            hint=f"Split by a column of the key: {' or '.join(f'--split {table.name}.{each}' for each in table.key)}.",
        )


def with_splits(before: Sequence[str], added: Iterable[str], joined: Iterable[str]) -> tuple[str, ...]:
    """Return what is asked for after tables of a running cluster are split, otherwise than before, or joined.

    Raises
    ------
    UsageError
        If a table that is to be joined is not split.

    Examples
    --------
    >>> with_splits(("orders.oid", "clicks.page"), ("Clicks.cid",), ("orders",))
    ('Clicks.cid',)
    """
    found = {_table_of(text): text for text in before}
    for table in joined:
        if found.pop(folded(table), None) is None:
            split = ", ".join(before) or "none"
            raise UsageError(f"--join {table}: it is not split", hint=f"Tables that are split: {split}.")
    for text in added:
        found.pop(_table_of(text), None)
    return (*found.values(), *dict.fromkeys(added))


def _table_of(text: str) -> str:
    return folded(text.rpartition(".")[0])


# --- what follows ---------------------------------------------------------------------------------------------------


def lost_references(program: Program, splits: Mapping[str, str]) -> tuple[str, ...]:
    """Return the references that nobody checks since tables are split, as `cumulus.epochs.layouts.reference_text`."""
    partitioned = {table: (column,) for table, column in splits.items()}
    return tuple(
        reference_text(each, key)
        for each in program.relations
        for key in each.foreign_keys
        if not sees_both_sides(partitioned, each.name, key)
    )


def judged_program(program: Program, splits: Mapping[str, str]) -> Program:
    """Return a program without the references that nobody checks, as tables are split."""
    return without_references(program, lost_references(program, splits))


def assign_tables(
    program: Program, switches: int, rows: Mapping[str, int], splits: Mapping[str, str] | None = None
) -> TableAssignment:
    """Return which switch takes which tables.

    Tables that are linked by checked references stay together. The largest go first, each to the switch that has least
    so far.

    Parameters
    ----------
    rows
        Of all tables (`cumulus.cluster.placement.home_costs.estimated_rows`).
    splits
        Table that all switches share → the column by whose hash.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION r(a INT); RELATION s(a INT); RELATION big(a INT, b INT);"
    >>> dict(assign_tables(parse(text), 2, {"r": 1, "s": 2, "big": 9}).switch_of)
    {'r': 1, 's': 1, 'big': 0}
    >>> found = assign_tables(parse(text), 2, {"r": 1, "s": 2, "big": 9}, {"big": "b"})
    >>> found.tables_of(0), found.tables_of(1)
    (('s', 'big'), ('r', 'big'))
    """
    splits = splits or {}
    linked = _linked(judged_program(program, splits))
    whole = [relation.name for relation in program.relations if relation.name not in splits]
    together = {tuple(sorted(reachable(linked, [name]))) for name in whole}
    loads = [0] * switches
    found: dict[str, int] = {}
    for names in sorted(together, key=lambda names: (-sum(rows[name] for name in names), names)):
        least = loads.index(min(loads))
        loads[least] += sum(rows[name] for name in names)
        found |= dict.fromkeys(names, least)
    return TableAssignment(switches, {name: found[name] for name in whole}, splits)


def checks_of(program: Program, assignment: TableAssignment) -> Checks:
    """Return which keys, deletions and references the switches check, and which nobody does.

    A deletion is checked if its row must be there, a reference if its parent must.
    """
    kept = {relation.name for relation in program.relations if relation.name in dict(program.kept)}
    lost = lost_references(program, assignment.splits)
    checked: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    for table in program.relations:
        by = _checker(assignment, table.name)
        has_key = bool(table.key) and not table.key_rely
        rows = f"{'primary key and ' if has_key else ''}deletions of {table.name}"
        if table.name in kept:
            checked[rows] = by
        else:
            unchecked[rows] = "its rows are not kept"
        if table.key_rely:
            unchecked[f"primary key of {table.name}"] = "it is RELY"
        column = assignment.splits.get(table.name, "")
        if column and table.key and column not in table.key:
            unchecked[f"what comes again of {table.name}, by its key"] = f"it is split by {column}"
        for key in table.foreign_keys:
            what = f"{table.name}({', '.join(key.columns)}) references {key.parent}"
            absent = [name for name in dict.fromkeys((table.name, key.parent)) if name not in kept]
            if absent:
                unchecked[what] = f"rows of {' and '.join(absent)} are not kept"
            elif reference_text(table, key) in lost:
                places = (_split_text(assignment, name) for name in dict.fromkeys((table.name, key.parent)))
                unchecked[what] = ", ".join(places)
            else:
                checked[what] = by
    return Checks(checked, unchecked)


def _checker(assignment: TableAssignment, table: str) -> str:
    if table in assignment.splits:
        return f"all {assignment.switches} switches, each its rows by {assignment.splits[table]}"
    return f"switch {assignment.switch_of[table]}"


def _split_text(assignment: TableAssignment, table: str) -> str:
    if table in assignment.splits:
        return f"{table} is split by {assignment.splits[table]}"
    return f"{table} is at switch {assignment.switch_of[table]}"


def _linked(program: Program) -> dict[str, set[str]]:
    """Return for every table those that checked references link it with, itself if it refers to itself."""
    kept: dict[str, Relation] = {name: program.relation(name) for name, _ in program.kept}
    linked: dict[str, set[str]] = {relation.name: set() for relation in program.relations}
    for each in references(kept):
        linked[each.child.name].add(each.parent.name)
        linked[each.parent.name].add(each.child.name)
    return linked
