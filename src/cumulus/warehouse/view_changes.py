"""CREATE VIEW and DROP VIEW on a live warehouse: compile all again, carry over what is the same, load what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cumulus.algebra.scope import rename
from cumulus.algebra.terms import Atom, Lift, Range, Term, Var, children
from cumulus.catalog.arrow import table_of
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.engine.batches import rows_of
from cumulus.engine.failures import ErrorLog
from cumulus.engine.protocol import Engine
from cumulus.engine.session import Session
from cumulus.errors import EvaluationError, SubscribedError, UsageError
from cumulus.interrupts import Deferring, interruptible
from cumulus.m3.dataflow import bases_of, maps_of_view, parents_first
from cumulus.m3.program import MapDef
from cumulus.scalars.python_code import may_raise
from cumulus.scalars.user import Given
from cumulus.warehouse.loading.sql_equivalence import difference_in_sql
from cumulus.warehouse.program_sources import changed_views, extended, make_function, with_function
from cumulus.warehouse.state import WarehouseState

Form: TypeAlias = tuple[Any, ...]


def execute(state: WarehouseState, sql: str | Path) -> None:
    """Create or drop views and cubes on the live warehouse, or add tables, by SQL or the path of a file with it.

    All views are compiled again, together. Maps that stay what they were keep their contents; new ones are computed
    from kept rows.

    Raises
    ------
    SqlError
        As for a new warehouse, with the place in `sql`; for statements about tables.
    UsageError
        If rows that a new view needs were not kept; for a warehouse made from M3.
    """
    with state.turn:
        if state.script is None:
            raise UsageError("this warehouse was made from M3, not SQL", hint="Write the view in M3 and start anew.")
        if state.buffer is not None or state.subscriptions.is_telling:
            raise UsageError("views are not changed inside a transaction", hint="Do it before or after.")
        script, program = extended(state.script, sql, state.options.keep, state.functions, state.options.size)
        session = state.session_of(program)
        told = state.subscriptions.views
        for view in changed_views(told, state.script, script, state.session.program, program):
            raise SubscribedError(
                f"{view} has subscribers", view=view, hint="Cancel them, and close streams of changes, first."
            )
        with interruptible():
            carry_over(state.session, session, state.functions)
        state.use(session)
        state.script = script


def register(
    state: WarehouseState,
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[str | SqlType] | None,
    returns: str | SqlType | None,
    null: str,
) -> None:
    """Add a scalar function of your own, for views that `execute` creates from now on, and for `query`.

    Views that are there from the start get theirs by ``Warehouse(…, functions=[…])``. A function that no view calls
    may be replaced.

    Parameters
    ----------
    name
        The name that SQL calls the function by.
    function
        A Python function of scalar values.
    arguments, returns
        SQL types of the arguments and of the result; None takes them from the annotations.
    null
        "skip": a NULL argument gives NULL without a call. "pass": the function is called with None.

    Raises
    ------
    UsageError
        If a view calls a function of this name, it is built in, or its types are not known.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a DOUBLE NOT NULL)")
    >>> wh.register("near", lambda a: abs(a) < 0.1, arguments=["DOUBLE"], returns="BOOLEAN")
    >>> wh.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE near(a)")
    """
    made = make_function(name, function, arguments, returns, null)
    with state.turn:
        state.functions, state.desk = with_function(state.functions, made, state.session.program), None
        state.locked_desks.clear()


def carry_over(old: Session, new: Session, functions: Mapping[str, Given]) -> None:
    """Fill the maps of `new` with what they stand for, from the state of `old`.

    A map with an equal definition takes the entries as they are. Any other is computed by its SQL from kept rows.

    Raises
    ------
    UsageError
        If a new map needs rows that were not kept; `old` is unchanged.
    EvaluationError
        If a new map cannot be computed.
    """
    same = {canonical_form(each): each.name for each in old.program.maps if each.definitions}
    missing: list[MapDef] = []
    for definition in new.program.maps:
        name = same.get(canonical_form(definition)) if definition.definitions else None
        if name is not None:
            _take_over(old.engine, name, new.engine, definition.name)
        else:
            missing.append(definition)
    needed = {name for each in missing for name in bases_of(each)}
    errors = compute(new, missing, {name: _rows(old, new.relations[name]) for name in sorted(needed)}, functions)
    new.counters.continue_from(old.counters)
    new.compute_assigned()
    computed = {each.name for each in missing}
    views = {view.name for view in new.program.views}
    carried = {view for view in views if computed.isdisjoint(maps_of_view(new.program, view))}
    new.errors = old.errors.only(carried)
    new.errors.extend(errors.only(views - carried), new.counters.transactions)


def _take_over(old: Engine, name: str, new: Engine, new_name: str) -> None:
    """Give a map the contents of one in another engine."""
    columns = old.stored_columns(name)
    if columns is None or not new.restore_columns(new_name, [pa.chunked_array([column]) for column in columns]):
        new.restore(new_name, old.stored(name))


def compute(
    new: Session, maps: Iterable[MapDef], tables: Mapping[str, pa.Table], functions: Mapping[str, Given]
) -> ErrorLog:
    """Fill maps of `new` with what they are by definition; return what views could not take in.

    Parameters
    ----------
    tables
        The rows of all tables that the definitions name.

    Raises
    ------
    UsageError, EvaluationError
        A map that cannot be computed.
    """
    with Deferring():
        from cumulus.warehouse.loading.sql_loads import Computer, put  # DuckDB, when it loads
    wanted = [each for each in maps if any(tables[name].num_rows for name in bases_of(each))]
    fallible: list[str] = []
    with Computer(new.program, tables, functions) as computer:
        for definition in wanted:
            may_fail = any(map(may_raise, definition.definitions))
            if may_fail and difference_in_sql(definition, new.relations):
                fallible.append(definition.name)
                continue
            try:
                found = computer.compute(definition)
            except EvaluationError:
                if not may_fail:
                    raise
                fallible.append(definition.name)
            else:
                put(new.engine, definition, found)
    return _replay(new, fallible, tables) if fallible else ErrorLog()


def _replay(new: Session, names: list[str], tables: Mapping[str, pa.Table]) -> ErrorLog:
    """Compute maps that DuckDB and we would not fail in alike, by inserting the rows once more; return what failed."""
    trusted = Session(new.program, new.functions, new.engine.name, is_trusting=True)
    with trusted.transaction() as opened:
        for relation in parents_first(new.program):
            if relation.name in tables:
                bulk = rows_of(1, relation, tables[relation.name], new.checkers[relation.name])
                if not opened.take_by_code(bulk):
                    opened.apply_batch(relation.name, Counter(row for _, _, row in bulk))
    for name in names:
        _take_over(trusted.engine, name, new.engine, name)
    return opened.errors


def _rows(old: Session, table: Table) -> pa.Table:
    """Return the rows of a table as they are now; none of a new one."""
    name = table.name
    kept = dict(old.program.kept).get(name)
    if name not in old.relations or (kept is None and name not in old.counters.touched):
        return table_of(table.columns, [])
    if kept is None:
        raise UsageError(
            f"the view needs the rows that {name} has now, and they were not kept",
            hint=f"Create the warehouse with keep='all' or {name} WITH (keep = all), or with the view in it.",
        )
    columns = old.engine.stored_columns(kept)
    if columns is None or len(columns) != len(table.columns) + 1:
        rows = [row for row, (count,) in old.engine.items(kept) for _ in range(int(count))]
        return table_of(table.columns, rows)
    counts = columns[-1].to_numpy().clip(0)
    places = pa.array(np.repeat(np.arange(len(counts)), counts))
    schema = table_of(table.columns, []).schema
    return pa.table([column.take(places) for column in columns[:-1]], names=schema.names).cast(schema)


def canonical_form(definition: MapDef) -> Form:
    """Return what two maps share if they are the same but for names: equal forms, equal contents.

    Examples
    --------
    >>> from cumulus.algebra.terms import AggSum
    >>> from cumulus.catalog.schema import Column
    >>> def made(name, key, hidden):
    ...     term = AggSum((key,), Atom("r", (key, hidden)))
    ...     return MapDef(name, (Column(key),), (Column("v"),), definitions=(term,))
    >>> canonical_form(made("m", "a", "b")) == canonical_form(made("n", "x", "y"))
    True
    """
    keys = {key.name: f"key {place}" for place, key in enumerate(definition.keys)}
    terms = []
    for term in definition.definitions:
        names = dict(keys)
        for name in _in_order(term):
            names.setdefault(name, f"variable {len(names)}")
        terms.append(rename(term, names))
    count = definition.column_index(definition.count) if definition.count else None
    types = tuple(str(column.type) for column in (*definition.keys, *definition.values))
    return (count, types, *terms)


def _in_order(term: Term | Range) -> list[str]:
    """Return the variables of a term in the order of their first appearance."""
    match term:
        case Var(name):
            return [name]
        case Atom(_, variables):
            return list(variables)
        case Lift(variable, inner):
            return [*_in_order(inner), variable]
        case _:
            return [name for child in children(term) for name in _in_order(child)]
