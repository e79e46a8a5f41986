"""A plan of a cluster as text for people, and as plain data for programs; both say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cumulus.cluster.mode import RULES
from cumulus.cluster.placement.layout import FinishedBy
from cumulus.cluster.placement.regions import Regions
from cumulus.cluster.placement.statement_placement import CostOfHomes
from cumulus.cluster.planning.cluster_plan import ClusterPlan, Crossing
from cumulus.cluster.planning.directive_report import directive_data, directive_lines
from cumulus.cluster.planning.table_assignment import TableAssignment
from cumulus.engine.limits import format_bytes
from cumulus.explain.explanation import counted
from cumulus.m3.printer import print_statement

_FINISHERS = {FinishedBy.NODES: "nodes", FinishedBy.FIRST: "first", FinishedBy.MERGE: "merge"}


def plan_text(plan: ClusterPlan, cost: CostOfHomes | None = None) -> str:
    """Return a plan in words, with what its homes cost if that is given."""
    machines = f"{counted(plan.nodes, 'node')}, {_switches(plan.tables.switches)}, {plan.mode.value}"
    above = [[machines], _spread(plan), _gated(plan), _by_order(plan)]
    parts = [*above, *_spread_details(plan, cost), *_switch_lines(plan)]
    if plan.central.has_tree and plan.division.spread.maps:
        parts += directive_lines(plan)
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def plan_data(plan: ClusterPlan, cost: CostOfHomes | None = None) -> dict[str, Any]:
    """Return a plan as plain data, for `--json`; `cost` as in `plan_text`."""
    division, layout, program = plan.division, plan.layout, plan.program
    return {
        "nodes": plan.nodes,
        "switches": plan.tables.switches,
        "mode": plan.mode.value,
        "spread": {
            "views": [{"name": each.name, **_finished(plan, each.name)} for each in division.spread.shown_views],
            "maps": [each.name for each in division.spread.maps],
            "statements": _statement_count(plan),
        },
        "by_order": list(plan.maps_by_order),
        "gated": {
            "views": [{"name": name, "why": why} for name, why in _gated_views(plan).items()],
            "maps": [{"name": name, "why": why} for name, why in division.maps.items()],
            "statements": [
                {
                    "on": each.trigger.on.event(each.trigger.relation),
                    "statement": print_statement(each.statement, program),
                    "why": each.reason,
                }
                for each in division.statements
            ],
            "layout": None
            if plan.gate is None
            else {
                "buckets": plan.gate.buckets.buckets,
                "nodes": list(plan.gate.nodes),
                "partitioned": dict(plan.gate.buckets.partitioned),
                "why": plan.gate.buckets.why,
                "not_partitioned": [{"name": name, "why": why} for name, why in plan.gate.reasons.items()],
            },
        },
        "homes": [
            {"table": table, "column": home, "maps": list(maps)}
            for (table, home), maps in (plan.homes.items() if RULES[plan.mode].has_replicas else ())
        ],
        "cost": None if cost is None else asdict(cost),
        "slices": [
            {"table": table, "entries": entries, "maps": maps.split(", ")} for table, entries, maps in _slices(plan)
        ],
        "maps": [
            {
                "name": each.name,
                "keys": [key.name for key in each.keys],
                "replicas": [_replica_data(plan, each.name, one) for one in layout.sets[each.name]],
            }
            for each in division.spread.maps
        ],
        "network": [
            {
                "table": each.relation,
                "column": each.home,
                "map": each.map,
                "to": _destinations(plan, each),
            }
            for each in (plan.crossings if RULES[plan.mode].has_replicas else ())
        ],
        "tables": [{"name": each.name, **_switches_data(plan.tables, each.name)} for each in plan.program.relations],
        "checked": [{"what": what, "by": by} for what, by in plan.checks.checked.items()],
        "unchecked": [{"what": what, "why": why} for what, why in plan.checks.unchecked.items()],
        "directives": directive_data(plan) if plan.central.has_tree else [],
    }


# --- what is spread, what is gated ----------------------------------------------------------------------------------


def _spread(plan: ClusterPlan) -> list[str]:
    spread = plan.division.spread
    if not spread.maps:
        return ["spread: nothing"]
    sizes = [counted(len(spread.shown_views), "view"), counted(len(spread.maps), "map")]
    lines = [f"spread: {', '.join(sizes)}, {counted(_statement_count(plan), 'statement')}"]
    rows = [(each.name, _finisher_text(plan, each.name)) for each in spread.shown_views]
    return lines + _columns(rows)


def _gated(plan: ClusterPlan) -> list[str]:
    division = plan.division
    if plan.gate is None:
        return ["gated: nothing"]
    gated = division.gated
    sizes = [counted(len(gated.shown_views), "view"), counted(len(gated.maps), "map")]
    whys = _gated_views(plan) if gated.views else division.maps
    lines = [f"gated: {', '.join(sizes)}", *_columns(list(whys.items())), f"in {plan.gate.buckets.why}"]
    return lines + _columns(list(plan.gate.reasons.items()))


def _by_order(plan: ClusterPlan) -> list[str]:
    if not plan.maps_by_order:
        return []
    return ["in the order of events, as they have no definitions", f"  {', '.join(plan.maps_by_order)}"]


def _gated_views(plan: ClusterPlan) -> dict[str, str]:
    """Return the views that are gated, but for levels of cubes, and why."""
    shown = {each.name for each in plan.program.shown_views}
    return {name: why for name, why in plan.division.views.items() if name in shown}


def _statement_count(plan: ClusterPlan) -> int:
    return len(plan.layout.homes)


def _finished(plan: ClusterPlan, view: str) -> dict[str, str | None]:
    placement = plan.layout.placement_of_view(view)
    return {"finished": _FINISHERS[placement.by], "by": _key_of_view(plan, view, placement.axis)}


def _finisher_text(plan: ClusterPlan, view: str) -> str:
    placement = plan.layout.placement_of_view(view)
    match placement.by:
        case FinishedBy.NODES:
            return f"each node finishes its rows, by {_key_of_view(plan, view, placement.axis)}"
        case FinishedBy.FIRST:
            return "node 0 finishes it"
        case FinishedBy.MERGE:
            return "put together from all nodes, then finished"


def _key_of_view(plan: ClusterPlan, view: str, axis: int) -> str | None:
    spread = plan.division.spread
    return None if axis < 0 else spread.map(spread.view(view).maps[0]).keys[axis].name


# --- homes, maps, the network ---------------------------------------------------------------------------------------


def _spread_details(plan: ClusterPlan, cost: CostOfHomes | None) -> Iterator[list[str]]:
    spread = plan.division.spread
    if not spread.maps:
        return
    maps = [
        (f"{each.name}[{', '.join(k.name for k in each.keys)}]", plan.layout.text(each.name)) for each in spread.maps
    ]
    if not RULES[plan.mode].has_replicas:
        yield ["maps: where entries lie, and are computed", *_columns(maps)]
        if plan.nodes_program.slices:
            yield ["network: which entries nodes send for a row, to those that compute", *_columns(_slices(plan))]
        return
    homes = [(table, _home_text(home), ", ".join(maps)) for (table, home), maps in plan.homes.items()]
    yield ["homes: where statements are computed, and to which maps they add", *_columns(homes), *_cost_lines(cost)]
    yield ["maps: where entries lie; whoever is named first answers readers", *_columns(maps)]
    sent = [
        (f"{each.relation} {_home_text(each.home)}", each.map, ", ".join(to))
        for each in plan.crossings
        if (to := _destinations(plan, each))
    ]
    stays = sorted(set(plan.layout.sets) - {name for _, name, _ in sent})
    lines = ["network: which deltas go where", *_columns(sent)]
    yield [*lines, f"  nothing of {', '.join(stays)}"] if stays else lines


def _cost_lines(cost: CostOfHomes | None) -> list[str]:
    if cost is None:
        return []
    costs = f"  {format_bytes(round(cost.chosen))} are copies, or sent"
    if cost.cheapest is None:
        return [f"{costs}; there are too many other homes to look at all of them"]
    if cost.chosen <= cost.cheapest * (1 + 1e-9):
        return [f"{costs}: no other homes cost less"]
    return [f"{costs}: the cheapest homes cost {cost.cheapest / cost.chosen:.0%} of that"]


def _slices(plan: ClusterPlan) -> list[tuple[str, str, str]]:
    """Return what is fetched: the table, the entries by columns of its row, and for which maps."""
    return [
        (each.relation, f"{each.map}[{', '.join(column or '*' for column in each.columns)}]", ", ".join(each.writes))
        for each in plan.nodes_program.slices
    ]


def _home_text(home: str | None) -> str:
    return "on node 0" if home is None else f"by {home}"


def _destinations(plan: ClusterPlan, crossing: Crossing) -> list[str]:
    """Return where deltas go beyond the node on which they are made."""
    every = plan.layout.everywhere
    if every in crossing.sets:
        return [] if crossing.sets[every] else [plan.layout.set_text(crossing.map, every)]
    return [plan.layout.set_text(crossing.map, each) for each, is_local in crossing.sets.items() if not is_local]


def _replica_data(plan: ClusterPlan, name: str, each: Regions) -> dict[str, Any]:
    keys, grid = plan.layout.program.map(name).keys, plan.layout.grid
    reach = "every" if each == plan.layout.everywhere else "key" if each.axes else "first"
    if not grid.dimensions:
        return {"reach": reach, "key": keys[each.axes[0][0]].name if each.axes else None}
    names = {dimension.cut: dimension.name for dimension in grid.dimensions}
    return {
        "reach": "copies" if each.copied and reach != "every" else reach,
        "keys": [
            {"key": keys[axis].name, "parts": cut.parts, "at": list(map(str, cut.bounds))} for axis, cut in each.axes
        ],
        "for_every": [names[cut] for cut in each.copied if cut in names],
    }


# --- switches -------------------------------------------------------------------------------------------------------


def _switches_data(tables: TableAssignment, table: str) -> dict[str, object]:
    return {"switch": tables.switch_of.get(table), "split_by": tables.splits.get(table)}


def _switch_lines(plan: ClusterPlan) -> Iterator[list[str]]:
    tables = plan.tables

    def text(table: str) -> str:
        return f"{table} by {tables.splits[table]}" if table in tables.splits else table

    rows = [
        (f"switch {switch}", ", ".join(map(text, tables.tables_of(switch))) or "no table")
        for switch in range(tables.switches)
    ]
    yield ["switches: which tables they take", *_columns(rows)]
    if plan.checks.checked:
        yield ["checked", *_columns(list(plan.checks.checked.items()))]
    if plan.checks.unchecked:
        yield ["checked by nobody", *_columns(list(plan.checks.unchecked.items()))]


def _switches(count: int) -> str:
    return f"{count} switch{'es' * (count != 1)}"


def _columns(rows: Sequence[Iterable[str]]) -> list[str]:
    """Return rows as indented lines whose columns stand below each other."""
    cells = [list(row) for row in rows]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, wide, strict=True)).rstrip() for row in cells
    ]
