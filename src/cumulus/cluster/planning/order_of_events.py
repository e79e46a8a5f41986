"""Which plans give maps without definitions what they need: the events of all tables, in one order.

A map without a definition is no function of the base tables: what it holds depends on which event came first. Spread
statements run in the order of versions, whatever the order in which messages arrive, so they may keep such maps. A gate
takes the net change of an epoch, so it may not.
"""

from __future__ import annotations

from collections.abc import Callable

from cumulus.cluster.intake import Intake, OrderedIntake
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.layouts import undefined_maps
from cumulus.errors import LayoutError

_WAY_OUT = "or give the program to `cumulus.Warehouse`, which goes event by event."


def require_order(plan: ClusterPlan) -> ClusterPlan:
    """Return `plan` if its maps without definitions, if there are any, follow the order of events.

    Raises
    ------
    LayoutError
        Naming such a map, and what in the program keeps events from being taken in their order.
    """
    gated = plan.division.gated
    undefined = [*undefined_maps(gated), *plan.maps_by_order]
    if not undefined:
        return plan
    first = undefined[0]
    if not RULES[plan.mode].keeps_order:
        raise LayoutError(
            f"map {first} has no definition, so it must follow the order of events, and --mode {plan.mode} has another",
            hint=f"Take --mode {Mode.EVENTUAL}, or give {first} a definition (`= term`).",
        )
    told = f"map {first} has no definition, so it must follow the order of events"
    for table in plan.tables.splits:
        raise LayoutError(
            f"{told}, and rows of {table} would come from several switches, in no order among them",
            hint=f"Leave out --split {table}.…, or give {first} a definition (`= term`).",
        )
    if gated.maps:
        named = first if first in plan.division.maps else gated.maps[0].name
        whys = {**plan.division.maps, **plan.division.views}
        which = [(name, whys[name]) for name in (named, *(view.name for view in gated.views)) if name in whys]
        name, why = which[0]
        raise LayoutError(
            f"{told}, and what is gated takes the net change of an epoch: {name} is gated. {why}",
            hint=f"Give {first} a definition (`= term`), {_WAY_OUT}",
        )
    kept = dict(plan.program.kept)
    for relation in plan.program.relations:
        if relation.key or relation.name in kept:
            what = "has a primary key" if relation.key else "keeps its rows"
            raise LayoutError(
                f"{told}, and table {relation.name} {what}: its rows are taken in by what they change in an epoch",
                hint=f"Give {first} a definition (`= term`), or leave out the key and KEEP, {_WAY_OUT}",
            )
    return plan


def intake_of_switch(
    plan: ClusterPlan, switch: int, make_engine: Callable[..., Engine], late_epochs: int = LATE_EPOCHS
) -> Intake | OrderedIntake:
    """Return the intake of a switch: of events if a map depends on their order, else of net changes.

    Parameters
    ----------
    plan
        The plan of the cluster.
    switch
        Number of the switch, 0-based.
    make_engine
        Makes the engine that checks the rows.
    late_epochs
        How many epochs a row waits for its parent.
    """
    tables = frozenset(plan.tables.tables_of(switch))
    if plan.maps_by_order:
        return OrderedIntake(plan.program, plan.division.spread, tables)
    shares = plan.tables.shares_of(switch)
    return Intake(plan.judged, tables, make_engine, late_epochs=late_epochs, shares=shares)
