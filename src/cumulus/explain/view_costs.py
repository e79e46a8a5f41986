"""What a view costs: per kind of event, the statements that maintain it and how much of the maps they touch.

Read off the M3 program alone, so hand-written programs are explained too. `cumulus.explain.cost` says how the work of
an event grows, `cumulus.explain.sizes` how large the maps can be; here both are put together with who shares which
map, why something scans or is computed anew, and what a subscriber has to expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from cumulus.algebra.scope import maps_of, variables_of
from cumulus.algebra.terms import Apply, Cast, Lift, MapExtremum, MapRead, Var
from cumulus.catalog.names import known_name
from cumulus.explain.cost import CostClass, CostedRead, Costs, StatementCost
from cumulus.explain.explanation import (
    EventCost,
    Explanation,
    LevelCost,
    MapUse,
    ParentChange,
    Subscribed,
    shown_events,
)
from cumulus.explain.lineage import MapReasons
from cumulus.explain.moved_references import MovedReferences
from cumulus.explain.sizes import Size, Statistics, size_of
from cumulus.m3.infer import nodes
from cumulus.m3.program import LevelDef, On, Program, ViewDef


def explain(
    program: Program, view: str, statistics: Statistics | None = None, python: Set[str] = frozenset()
) -> Explanation:
    """Return what keeping `view` costs.

    Parameters
    ----------
    statistics
        Counts of the tables, from which sizes of maps are bounded; without them there are formulas only.
    python
        What the machine code of the program calls in Python: `cumulus.engine.engines.python_functions`.

    Raises
    ------
    UnknownNameError
        If the program has no such view.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> program = compile_sql("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    >>> print(explain(program, "v"))
    view v: 1 map, O(1) an event
    <BLANKLINE>
    event  insert  delete  batch, per row
    r      O(1)    O(1)    O(1)
    <BLANKLINE>
    maps
      v[a](n)  ≤ distinct(r.a) entries
        SELECT t0.a AS a, SUM(1) AS n FROM r t0 GROUP BY t0.a
        why: the rows of v
    <BLANKLINE>
    ON +r: O(1), 1 statement
      v[a].n += 1
    ON -r: O(1), 1 statement
      v[a].n += -1
    <BLANKLINE>
    subscribing
      an event of r touches 1 row
    """
    return explain_views(program, [view], statistics, python)[0]


def explain_views(
    program: Program,
    views: Iterable[str] | None = None,
    statistics: Statistics | None = None,
    python: Set[str] = frozenset(),
    often: Program | None = None,
) -> tuple[Explanation, ...]:
    """Return what keeping each of some views costs; all views if none are named. See `explain`.

    Parameters
    ----------
    often
        The same program with statements for all changes of tables that others refer to, to compare with.
    """
    costs = Costs(program)
    known = {view.name: view for view in program.views}
    wanted = (
        [view.name for view in program.shown_views]
        if views is None
        else [known_name(name, known, "view") for name in views]
    )
    needed = {name: costs.needed(view) for name, view in known.items()}
    sizes = _sizes(program, costs, statistics or Statistics())
    found = (_explained(program, known[name], costs, needed, sizes, often) for name in wanted)
    return tuple(replace(one, python=tuple(sorted(python & _functions_of(one)))) for one in found)


def _functions_of(found: Explanation) -> set[str]:
    """Return the functions and casts in the statements of a view, as `Explanation.python` names them."""
    terms = [
        node
        for event in found.events
        for cost in event.statements
        for node in nodes(cost.statement.term)
        if isinstance(node, (Apply, Cast))
    ]
    return {node.function if isinstance(node, Apply) else f"CAST(… AS {node.type})" for node in terms}


def _explained(
    program: Program,
    view: ViewDef,
    costs: Costs,
    needed: dict[str, frozenset[str]],
    sizes: dict[str, Size],
    often: Program | None,
) -> Explanation:
    own_maps = needed[view.name]
    statement_costs = costs.of_view(view)
    events = []
    for trigger in program.triggers:
        statements = tuple(cost for cost in statement_costs if cost.trigger is trigger)
        if statements:
            worst = max(cost.cost for cost in statements)
            events.append(EventCost(trigger.on, trigger.relation, worst, statements))
    readers: dict[str, dict[str, None]] = {}
    for _, statement in program.statements():
        for name in sorted(maps_of(statement.term)):
            readers.setdefault(name, {})[statement.map] = None
    reasons = MapReasons(program, needed)
    uses = tuple(
        MapUse(
            each,
            tuple(name for name, others in needed.items() if name != view.name and each.name in others),
            tuple(readers.get(each.name, ())),
            sizes[each.name],
            reasons.of(each),
        )
        for each in program.maps
        if each.name in own_maps
    )
    return Explanation(
        view.name,
        max((event.cost for event in events), default=CostClass.CONSTANT),
        uses,
        tuple(events),
        tuple(dict.fromkeys(reason for cost in statement_costs for reason in reasons_of(cost))),
        tuple(_subscribed(program, view, events)),
        tuple(_parent_changes(program, view, own_maps, often)),
        cube=(cube := next((each for each in program.cubes if each.name == view.name), None)),
        levels=() if cube is None else tuple(_level_cost(program, level, costs, needed) for level in cube.levels),
    )


def _level_cost(program: Program, level: LevelDef, costs: Costs, needed: Mapping[str, frozenset[str]]) -> LevelCost:
    """Return what the maps take that are there for a level alone."""
    others = frozenset[str]().union(*(maps for name, maps in needed.items() if name != level.view))
    own = needed[level.view] - others
    found = [
        costs.statement(trigger, statement)
        for trigger, statement in program.statements()
        if statement.map in own and not program.is_batch_form(trigger)
    ]
    return LevelCost(
        level,
        program.view(level.view).maps[0],
        max((each.cost for each in found), default=CostClass.CONSTANT),
        tuple(each.name for each in program.maps if each.name in own),
        len(found),
        len({id(each.trigger) for each in found}),
    )


def _parent_changes(
    program: Program, view: ViewDef, maps: frozenset[str], often: Program | None
) -> Iterator[ParentChange]:
    """Yield what changes of the tables cost that others refer to, where they move rows for the maps of a view."""
    moved = MovedReferences(program, maps)
    for relation in program.relations:
        if relation.name in moved.tables:
            places = moved.places(relation.name)
            columns = tuple(name for place, name in enumerate(relation.column_names) if place in places)
            columns = tuple(name for name in columns if name not in relation.key) or columns
            names = tuple(dict.fromkeys(each.child for each in moved.along(relation.name, None)))
            cost = None if often is None else _cost_often(often, view.name, relation.name)
            more = None if often is None else len(often.maps) - len(program.maps)
            yield ParentChange(relation.name, columns, names, cost, more)


def _cost_often(often: Program, view: str, table: str) -> CostClass:
    costs = Costs(often).of_view(often.view(view))
    return max((cost.cost for cost in costs if cost.trigger.relation == table), default=CostClass.CONSTANT)


def _sizes(program: Program, costs: Costs, statistics: Statistics) -> dict[str, Size]:
    """Return the size of every map, with the indexes that statements ask for."""
    tables = {relation.name: relation for relation in program.relations}
    indexes: dict[str, dict[tuple[str, ...], None]] = {}
    for trigger, statement in program.statements():
        for read in costs.statement(trigger, statement).reads:
            if read.free and read.bound:
                indexes.setdefault(read.map, {})[read.bound] = None
    return {each.name: size_of(each, tables, statistics, tuple(indexes.get(each.name, ()))) for each in program.maps}


def reasons_of(cost: StatementCost) -> tuple[str, ...]:
    """Return why a statement scans whole maps or computes one anew, a sentence each."""
    statement = cost.statement
    if statement.op == ":=":
        sources = ", ".join(sorted(maps_of(statement.term))) or "nothing"
        return (f"{statement.map} is computed anew after every change, from {sources}: {_short(statement.term)}",)
    return tuple(_reason(statement.map, read) for read in cost.reads if read.cost is CostClass.SCAN)


def _reason(target: str, read: CostedRead) -> str:
    head = f"{target} scans all of {read.map}"
    if read.nested:
        return f"{head}: the nested term {_short(read.nested)} says which entries count"
    if read.condition:
        return f"{head}: only {read.condition} ties it to the event"
    return f"{head}: nothing ties it to the event"


def _short(term: object) -> str:
    text = str(term)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _subscribed(program: Program, view: ViewDef, events: Iterable[EventCost]) -> list[Subscribed]:
    """Return what a subscriber has to expect of the events of each relation."""
    found: dict[str, list[str]] = {}
    for event in shown_events(events):
        told = _touched_rows(program, view, event)
        if told:
            found.setdefault(event.relation, []).append(told)
    return [Subscribed(name, max(told, key=_rank)) for name, told in found.items()]


def _rank(told: str) -> tuple[bool, bool, str]:
    return told.startswith("all"), told.startswith("a row"), told


def _touched_rows(program: Program, view: ViewDef, event: EventCost) -> str:
    """Return the rows that one event can touch, in words; "" if none."""
    places = _places_of_keys(program, view)
    groups: set[tuple[str, ...]] = set()
    loops: dict[str, None] = {}
    for cost in event.statements:
        statement = cost.statement
        if statement.map not in places:
            continue
        at = places[statement.map]
        if at is None:
            return "all rows: the view reads a map of other keys when it is read"
        if statement.op == ":=":
            return "all rows that change when it is computed anew"
        keys = [statement.keys[place] for place in at]
        values = _values(cost)
        outer = [str(read) for read in cost.reads if read.cost >= CostClass.SLICE and not read.is_inside]
        if event.on is not On.BATCH and outer and not values.keys() >= set(keys):
            loops.update(dict.fromkeys(outer))
        else:
            groups.add(tuple(values.get(key, key) for key in keys))
    if loops:
        return f"a row for each entry of {' and '.join(loops)}"
    if not groups:
        return ""
    number = f"{len(groups)} row{'' if len(groups) == 1 else 's'}"
    return f"{number} for each row of the batch" if event.on is On.BATCH else number


def _places_of_keys(program: Program, view: ViewDef) -> dict[str, tuple[int, ...] | None]:
    """Return for every map that the view reads when it is read where the view's keys stand in it; None if they do not.

    A change of an entry touches the one row of these keys, or, without them, any.
    """
    keys = [key.name for key in program.map(view.maps[0]).keys]
    found: dict[str, tuple[int, ...] | None] = dict.fromkeys(view.maps, tuple(range(len(keys))))
    for scalar in view.expressions:
        for node in nodes(scalar):
            if isinstance(node, (MapRead, MapExtremum)) and node.map not in view.maps:
                names = [key.name if isinstance(key, Var) else "" for key in node.keys]
                known = all(key in names for key in keys) and found.get(node.map, ()) is not None
                found[node.map] = tuple(names.index(key) for key in keys) if known else None
    return found


def _values(cost: StatementCost) -> dict[str, str]:
    """Return the variables of a statement that have one value for an event, with what that is, as text."""
    found = {name: name for name in cost.trigger.variables}
    for node in nodes(cost.statement.term):
        if isinstance(node, Lift) and variables_of(node.term) <= found.keys():
            found[node.variable] = " ".join(
                [str(node.term), *(found[name] for name in sorted(variables_of(node.term)))]
            )
    return found
