"""Rows that are there from the start: maps computed by their definition SQL, or by replaying the rows.

Both give the same maps. Most programs take rows faster than DuckDB groups them, so replaying is the rule. SQL is for
programs whose triggers loop over whole maps, where many rows come: that is decided before the first row. What SQL finds
wrong, replaying tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.catalog.arrow import table_of
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.batches import Columns, Rows, rows_of
from cumulus.engine.integrity import references
from cumulus.engine.protocol import Changes
from cumulus.engine.session import Session
from cumulus.errors import CumulusError, UsageError
from cumulus.explain.cost import CostClass, Costs
from cumulus.garbage_collection import gc_paused
from cumulus.interrupts import Deferring, interruptible
from cumulus.m3.dataflow import bases_of, parents_first
from cumulus.m3.program import MapDef, On, Program
from cumulus.scalars.user import Given
from cumulus.warehouse.loading.sql_equivalence import compares_rows, difference_in_sql
from cumulus.warehouse.state import WarehouseState

if TYPE_CHECKING:
    from cumulus.warehouse.loading.sql_loads import Computer

WAYS = ("auto", "sql", "replay")
_VISITS = {"native": 10_000_000, "interpreter": 1_000_000}
"""From so many entries on that loops would visit, if all rows made entries of their own, SQL is quicker."""


@dataclass(frozen=True, slots=True)
class Filled:
    """How a warehouse was filled.

    Parameters
    ----------
    rows
        How many came.
    way
        "sql" or "replay".
    why
        Why it was not SQL; "" where it was, or where nobody had a reason to try.
    """

    rows: int
    way: str
    why: str = ""


def fill_tables(state: WarehouseState, tables: Mapping[str, Any], way: str) -> Filled:
    """Insert the rows of many tables into an empty warehouse, in one transaction: the quickest way to begin.

    It is as if the rows had been inserted, parents before their children, but they need not become events: maps
    can be computed by SQL, all rows at once.

    Parameters
    ----------
    tables
        Table → its rows, in any form that `insert` takes; a table that is not named stays empty.
    way
        "sql" computes every map by its definition, in DuckDB; "replay" fires the rows as events; "auto" takes SQL where
        triggers would loop over whole maps for many rows. SQL leaves to replaying what it would not do alike: rows that
        are refused, sums of DOUBLE, expressions that may fail.

    Raises
    ------
    UsageError
        If there were events before, or a transaction is open.
    UnknownNameError
        If there is no table of a name.
    DataError
        As for `insert`; nothing is applied.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a")
    >>> wh.fill({"r": [(1, 10), (1, 5), (2, 7)]}).rows
    3
    >>> wh.view("v").get(1)
    (1, 15)
    """
    if way not in WAYS:
        raise UsageError(f"way={way!r}", hint="way is 'auto', 'sql' or 'replay'.")
    if not isinstance(tables, Mapping):
        raise UsageError(
            f"fill takes the rows of tables by their names, not {type(tables).__name__}",
            hint='Write wh.fill({"orders": rows, …}); insert() takes the rows of one table.',
        )
    with state.turn:
        state.check_quiet()
        if state.buffer is not None:
            raise UsageError("a transaction is open", hint="Fill the warehouse before it.")
        bulks = bulks_of(state.session, tables)
        filled, changes = fill(state.session, bulks, state.functions, way, state.subscriptions.maps)
        state.tell(changes)
        return filled


def bulks_of(session: Session, tables: Mapping[str, Any]) -> list[Rows | Columns]:
    """Return the rows of tables, which are named in any case, as bulks: parents before their children.

    Raises
    ------
    UsageError
        If a table is named twice, or there were events before.
    UnknownNameError
        If there is no table of a name.
    """
    if session.counters.events:
        raise UsageError(
            f"only an empty warehouse is filled, and this one has had {session.counters.events:,} events",
            hint="Use insert(), or fill a new warehouse.",
        )
    given = {session.relation(name).name: rows for name, rows in tables.items()}
    if len(given) < len(tables):
        raise UsageError(f"one table is named twice: {', '.join(tables)}", hint="Names have no case.")
    return [
        rows_of(+1, relation, given[relation.name], session.checkers[relation.name])
        for relation in parents_first(session.program)
        if relation.name in given
    ]


def fill(
    session: Session, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given], way: str, watched: set[str]
) -> tuple[Filled, Changes]:
    """Fill empty maps with rows, parents first; return how, and what that has changed in some maps.

    Raises
    ------
    CumulusError
        As inserting the rows would; the maps are empty then.
    """
    before = {name: dict(session.engine.items(name)) for name in watched}
    with gc_paused():
        filled = _fill(session, bulks, functions, way)
    changes: Changes = {}
    for name, old in before.items():
        new = dict(session.engine.items(name))
        keys = (key for key in old | new if old.get(key) != new.get(key))
        changes[name] = {key: (old.get(key), new.get(key)) for key in keys}
    return filled, changes


def _fill(session: Session, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given], way: str) -> Filled:
    rows = sum(map(len, bulks))
    why = "" if way == "replay" else _why_not_by_sql(session.program)
    if way == "auto":
        if any(compares_rows(term) for each in session.program.maps for term in each.definitions):
            why = why or "SQL would compare all rows with all"
        way = "sql" if _loops_much(session, bulks) else "replay"
    if way == "sql" and not why:
        with Deferring():
            import duckdb  # takes a while, and most programs never need it
        try:
            with interruptible():
                computed = _compute_maps(session.program, bulks, functions)
            _load(session, bulks, computed)
        except (CumulusError, _UnfitError, duckdb.Error, pa.ArrowException) as problem:
            why = str(problem)
        else:
            return Filled(rows, "sql")
    session.fill(bulks)
    return Filled(rows, "replay", why)


def _loops_much(session: Session, bulks: Sequence[Rows | Columns]) -> bool:
    """Whether replaying would loop over whole maps for so many rows that SQL is quicker."""
    limit = _VISITS[session.engine.name]
    counts = {bulk.names[0]: len(bulk) for bulk in bulks if len(bulk)}
    if max(counts.values(), default=0) ** 2 < limit:
        return False
    program, costs = session.program, Costs(session.program)
    sizes = {each.name: max((counts.get(name, 0) for name in bases_of(each)), default=0) for each in program.maps}
    return any(
        read.cost is CostClass.SCAN and counts[trigger.relation] * sizes[read.map] >= limit
        for trigger in program.triggers
        if trigger.on is On.INSERT and trigger.relation in counts
        for statement in trigger.statements
        for read in costs.statement(trigger, statement).reads
    )


def _why_not_by_sql(program: Program) -> str:
    """Return why the maps of a program cannot be computed by SQL; "" if they can."""
    assigned = sources(program)
    tables = {relation.name: relation for relation in program.relations}
    for each in program.maps:
        if each.name in assigned:
            continue  # computed from the others anyway
        if not each.sql:
            return f"map {each.name} has no definition in SQL"
        difference = difference_in_sql(each, tables)
        if difference:
            return f"map {each.name} has {difference}"
    return ""


# --- computing ------------------------------------------------------------------------------------------------------


def _compute_maps(
    program: Program, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given]
) -> list[tuple[MapDef, pa.Table]]:
    """Return the maps of a program that have entries, by SQL."""
    with Deferring():
        from cumulus.warehouse.loading.sql_loads import Computer
    tables = {each.name: table_of(each.columns, []) for each in program.relations}
    tables |= {bulk.names[0]: _table(bulk) for bulk in bulks if len(bulk)}
    assigned = sources(program)
    with Computer(program, tables, functions) as computer:
        _check_keys(program, tables, computer)
        return [
            (definition, computer.compute(definition))
            for definition in program.maps
            if definition.name not in assigned and any(tables[name].num_rows for name in bases_of(definition))
        ]


def _load(session: Session, bulks: Sequence[Rows | Columns], computed: list[tuple[MapDef, pa.Table]]) -> None:
    """Make what was computed the contents of the maps."""
    from cumulus.warehouse.loading.sql_loads import put

    with session.filling() as filled:
        computed.reverse()
        while computed:
            put(session.engine, *computed.pop())  # one by one, so that none lies in memory twice for long
        with session.committed():  # which computes the := maps
            for bulk in bulks:
                filled.add(bulk.counts(0, len(bulk)))


def _table(bulk: Rows | Columns) -> pa.Table:
    """Return the rows of a bulk of one table as columns."""
    if isinstance(bulk, Columns):
        return bulk.tables[bulk.names[0]]
    return table_of(bulk.relation.columns, [event.row for event in bulk])


class _UnfitError(Exception):
    """Rows that only replaying treats right."""


def _check_keys(program: Program, tables: Mapping[str, pa.Table], computer: Computer) -> None:
    """Refuse rows that break a key or a reference, where rows are kept: see `cumulus.engine.integrity`."""
    names = dict(program.kept)
    kept = {relation.name: relation for relation in program.relations if relation.name in names}
    for relation in kept.values():
        if relation.key and not relation.key_rely:
            columns = ", ".join(map(quoted, relation.key))
            doubles = f"SELECT 1 FROM {quoted(relation.name)} GROUP BY {columns} HAVING COUNT(*) > 1 LIMIT 1"
            if tables[relation.name].num_rows and computer.ask(doubles).num_rows:
                raise _UnfitError(f"a key of {relation.name} comes twice")
    for reference in references(kept):
        pairs = list(zip(reference.key.columns, reference.key.parent_columns, strict=True))
        same = " AND ".join(f"child.{quoted(mine)} = parent.{quoted(other)}" for mine, other in pairs)
        named = " AND ".join(f"child.{quoted(mine)} IS NOT NULL" for mine, _ in pairs)
        child, parent = quoted(reference.child.name), quoted(reference.parent.name)
        orphans = f"SELECT 1 FROM {child} child ANTI JOIN {parent} parent ON {same} WHERE {named} LIMIT 1"
        if tables[reference.child.name].num_rows and computer.ask(orphans).num_rows:
            raise _UnfitError(f"a row of {reference.child.name} has no parent")
