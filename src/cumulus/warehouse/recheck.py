"""Recheck of a warehouse: its views against kept rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.engine.session import Session
from cumulus.errors import UsageError
from cumulus.interrupts import Deferring, interruptible
from cumulus.m3.dataflow import bases_of
from cumulus.warehouse.state import WarehouseState

if TYPE_CHECKING:
    from cumulus.recheck import Report


def recheck(state: WarehouseState, views: Iterable[str], maps: bool, limit: int) -> Report:
    """Recompute views, all if none are named, from the kept rows of the tables; return what differs.

    By DuckDB, in the words of your SQL; a warehouse made from M3 by the definitions of its maps.

    Parameters
    ----------
    maps
        Compare every map with its definition, too.
    limit
        Witnesses per view, at most.

    Raises
    ------
    UsageError
        Naming the tables whose rows are not kept, or a map without a definition.
    """
    with Deferring():  # DuckDB and what compares: imported when it is asked for
        from cumulus.recheck import Report, check_maps, check_views
        from cumulus.recheck.checking import tables_behind
        from cumulus.recheck.oracle import Oracle
    with state.turn, interruptible():
        session, finishers = state.session, state.finishers
        program, engine = session.program, session.engine
        wanted = [known_name(name, finishers, "view") for name in views] or list(finishers)
        needed = set(tables_behind(program, [program.view(name) for name in wanted]))
        if maps:
            needed |= {name for each in program.maps for name in bases_of(each)}
        rows = _kept_rows(session, sorted(needed))
        shown = {name: partial(finishers[name].rows, engine.items, engine) for name in wanted}
        with Oracle(program.relations, rows, state.script) as oracle:
            found = check_views(program, shown, oracle, limit=limit, functions=state.functions)
            others = check_maps(program, engine.items, oracle, limit=limit) if maps else ()
        return Report(found, others)


def _kept_rows(session: Session, names: Iterable[str]) -> dict[str, dict[Row, int]]:
    """Return the rows of tables; a table that never had an event is empty."""
    kept = dict(session.program.kept)
    rows_of: dict[str, dict[Row, int]] = {}
    missing = []
    for name in names:
        if name in kept:
            rows_of[name] = {row: int(count) for row, (count,) in session.engine.items(kept[name])}
        elif name in session.counters.touched:
            missing.append(name)
    if missing:
        raise UsageError(
            f"the rows of {', '.join(missing)} are not kept, so the views cannot be recomputed",
            hint="Create the warehouse with keep='all', or the tables WITH (keep = all).",
        )
    return rows_of
