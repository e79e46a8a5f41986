"""The map graph of a program: which map is made from which, how deep it lies, and pictures of it.

An edge goes from a map to every map that a statement reading it writes (Cumulus consistency paper, §4.2). Depth is what
pipeline scheduling waits for (Cumulus architecture, "Pipeline Scheduling"), and what bounds a cascade of corrections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from cumulus.algebra.printing import print_scalar, print_term
from cumulus.algebra.scope import maps_of, relations_of
from cumulus.algebra.terms import Const, Extremum, MapExtremum, Node, Range
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import SqlType
from cumulus.errors import LayoutError
from cumulus.m3.printer import print_statement
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger

_NODE_WORDS: dict[type[Node], str] = {MapExtremum: "MapEnd", Extremum: "End"}
"""The JSON names nodes by their classes; these two keep the words of earlier releases."""

Vertex = TypeVar("Vertex")


def reads(program: Program) -> dict[str, frozenset[str]]:
    """Return for every map of `program` the maps that its statements read, `:=` included.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> sorted(reads(parse("ON +R(a) { q[] += m[a] }"))["q"])
    ['m']
    """
    found: dict[str, set[str]] = {definition.name: set() for definition in program.maps}
    for _, statement in program.statements():
        found.setdefault(statement.map, set()).update(maps_of(statement.term))
    return {name: frozenset(sources) for name, sources in found.items()}


def reachable(graph: Mapping[Vertex, Iterable[Vertex]], starts: Iterable[Vertex]) -> set[Vertex]:
    """Return `starts` and everything that a graph leads to from there.

    Examples
    --------
    >>> sorted(reachable({"a": ["b"], "b": ["c"], "d": ["a"]}, ["a"]))
    ['a', 'b', 'c']
    """
    found: set[Vertex] = set()
    waiting = [*starts]
    while waiting:
        vertex = waiting.pop()
        if vertex not in found:
            found.add(vertex)
            waiting.extend(graph.get(vertex, ()))
    return found


def cycles(program: Program) -> tuple[tuple[str, ...], ...]:
    """Return the cycles of the map graph, one for each knot of maps that feed each other; none if it is acyclic.

    Every map of a cycle feeds the next, the last feeds the first.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> cycles(parse("ON +S(A) { m1[A] += m2[A] } ON +T(B) { m2[B] += m1[B] }"))
    (('m1', 'm2'),)
    """
    graph = reads(program)
    circles: list[tuple[str, ...]] = []
    knotted: set[str] = set()
    for name in graph:
        if name in knotted:
            continue
        path = _way_back(graph, name)
        if path is None:
            continue
        circles.append(path)
        knotted |= {other for other in graph if name in _sources(graph, other) and other in _sources(graph, name)}
    return tuple(circles)


def _way_back(graph: Mapping[str, frozenset[str]], start: str) -> tuple[str, ...] | None:
    """Return the shortest cycle through `start`, in the direction of the data."""
    before: dict[str, str] = {}
    layer = [start]
    while layer:
        following: list[str] = []
        for name in layer:
            for source in sorted(graph.get(name, frozenset())):
                if source == start:
                    # `before` leads from the source back to the start along reads: that is the way of the data.
                    path, at = [start], name
                    while at != start:
                        path.append(at)
                        at = before[at]
                    return tuple(path)
                if source not in before:
                    before[source] = name
                    following.append(source)
        layer = following
    return None


def _sources(graph: Mapping[str, frozenset[str]], name: str) -> set[str]:
    """Return all maps that `name` is made from, directly or not; itself only if it lies on a cycle."""
    return reachable(graph, graph.get(name, ()))


def depths(program: Program) -> dict[str, int]:
    """Return the depth of every map: 0 if its statements read no map, else one more than the deepest that they read.

    Raises
    ------
    LayoutError
        If the program is cyclic, naming a cycle: then there are no depths.

    References
    ----------
    Cumulus architecture, "Pipeline Scheduling".

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> depths(parse("ON +R(A,B) { m1[] += m2[A]; m2[A] += m3[B] }"))
    {'m3': 0, 'm2': 1, 'm1': 2}
    """
    graph = reads(program)
    found: dict[str, int] = {}
    for name in topological(program):
        found[name] = 1 + max((found[source] for source in graph.get(name, frozenset())), default=-1)
    return found


def topological(program: Program) -> tuple[str, ...]:
    """Return the maps, each after all that it is made from; else in the order of the program.

    Raises
    ------
    LayoutError
        If the program is cyclic, naming a cycle.
    """
    graph = reads(program)
    circles = cycles(program)
    if circles:
        path = " → ".join([*circles[0], circles[0][0]])
        raise LayoutError(
            f"the maps of the program form a cycle: {path}",
            hint="A cyclic program runs in the embedded host and on the cluster, but it has no depths and no rounds.",
        )
    placed: dict[str, None] = {}

    def place(name: str) -> None:
        if name not in placed:
            for source in sorted(graph.get(name, frozenset())):
                place(source)
            placed[name] = None

    for name in graph:
        place(name)
    return tuple(placed)


def parents_first(program: Program) -> tuple[Relation, ...]:
    """Return the relations so that a foreign key's parent comes before its children, by name where free.

    Static ones come before all others. Foreign keys on a circle, such as a table's to itself, do not count.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION {}(K INT, F INT) KEY (K) FOREIGN KEY (F) REFERENCES B (K);"
    >>> [relation.name for relation in parents_first(parse(text.format("A") + text.format("B")))]
    ['B', 'A']
    """
    tables = {relation.name: relation for relation in program.relations}
    graph = {name: {key.parent for key in each.foreign_keys if key.parent in tables} for name, each in tables.items()}
    waiting = {
        name: {parent for parent in graph[name] if name not in reachable(graph, [parent])} for name in sorted(tables)
    }
    placed: list[Relation] = []
    while waiting:
        ready = [name for name, parents in waiting.items() if not parents & waiting.keys()]
        placed += (tables[name] for name in ready)
        waiting = {name: parents for name, parents in waiting.items() if name not in ready}
    return tuple(sorted(placed, key=lambda relation: not relation.static))


def bases_of(definition: MapDef) -> frozenset[str]:
    """Return the names of the tables that a map is made from by its definitions."""
    return frozenset().union(*map(relations_of, definition.definitions))


def maps_of_view(program: Program, view: str) -> tuple[str, ...]:
    """Return all maps that keep `view`, its own first, then those that it reads, then what these are made from.

    Raises
    ------
    KeyError
        If there is no such view.
    """
    graph = reads(program)
    own = program.view(view).reads
    needed = reachable(graph, own)
    return (*own, *(item.name for item in program.maps if item.name in needed and item.name not in own))


def loading_maps(program: Program) -> tuple[str, ...]:
    """Return the maps that only the triggers of static tables read: nothing needs them once these tables are loaded.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION s(a INT) STATIC; RELATION r(a INT); MAP q[](n BIGINT); VIEW w(n BIGINT) FROM q SELECT n;"
    >>> loading_maps(parse(text + "ON +s(a) { m2[] += m1[a]; m1[a] += 1 } ON +r(a) { q[] += m2[] }"))
    ('m1',)
    """
    static = {relation.name for relation in program.relations if relation.static}
    needed = {name for view in program.views for name in view.reads} | {name for _, name in program.kept}
    for trigger, statement in program.statements():
        if trigger.relation not in static:
            needed |= maps_of(statement.term)
    return tuple(definition.name for definition in program.maps if definition.name not in needed)


# -------------------------------------------------------------------- pictures


def _event(trigger: Trigger) -> str:
    return f"{'Δ' if trigger.on is On.BATCH else trigger.on.value}{trigger.relation}"


def picture_edges(program: Program) -> dict[tuple[str, str], list[str]]:
    """Return the edges of the picture, with the events that they stand for; a relation feeds what reads no map."""
    edges: dict[tuple[str, str], dict[str, None]] = {}
    for trigger, statement in program.statements():
        if program.is_batch_form(trigger):
            continue  # it has the same edges
        sources = [f"map {name}" for name in sorted(maps_of(statement.term))] or [f"relation {trigger.relation}"]
        for source in sources:
            edges.setdefault((source, f"map {statement.map}"), {})[_event(trigger)] = None
    for view in program.views:
        for name in view.reads:
            edges.setdefault((f"map {name}", f"view {view.name}"), {})
    return {edge: _both(list(events)) for edge, events in edges.items()}


def _both(events: list[str]) -> list[str]:
    """Write ±r for +r and -r."""
    joined = [f"±{event[1:]}" if f"-{event[1:]}" in events and event[0] == "+" else event for event in events]
    return [event for event in joined if not (event[0] == "-" and f"±{event[1:]}" in joined)]


def picture_nodes(program: Program) -> list[tuple[str, str]]:
    """Return the nodes of the picture and what to write into them."""
    try:
        deep: dict[str, int] = depths(program)
    except LayoutError:
        deep = {}
    used = {node for edge in picture_edges(program) for node in edge}
    return [
        *((f"relation {item.name}", item.name) for item in program.relations if f"relation {item.name}" in used),
        *(
            (f"map {item.name}", _map_label(item) + (f" · depth {deep[item.name]}" if item.name in deep else ""))
            for item in program.maps
        ),
        *((f"view {item.name}", item.name) for item in program.views),
    ]


def _map_label(definition: MapDef) -> str:
    return f"{definition.name}[{', '.join(column.name for column in definition.keys)}]"


def to_mermaid(program: Program) -> str:
    """Return the map graph as a Mermaid flowchart: relations, maps with depth, views; edges named by their events."""
    numbers = {node: f"n{index}" for index, (node, _) in enumerate(picture_nodes(program))}
    lines = ["flowchart LR"]
    for node, told in picture_nodes(program):
        opening, closing = {"relation": ("[/", "/]"), "map": ("[", "]"), "view": ("([", "])")}[node.split(" ")[0]]
        label = told.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        lines.append(f'  {numbers[node]}{opening}"{label}"{closing}')
    for (source, target), events in picture_edges(program).items():
        label = ", ".join(events).replace("&", "&amp;").replace('"', "&quot;")
        arrow = f'-- "{label}" -->' if events else "-.->"
        lines.append(f"  {numbers[source]} {arrow} {numbers[target]}")
    return "\n".join(lines) + "\n"


def to_dot(program: Program) -> str:
    """Return the map graph in Graphviz' language."""

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    lines = ["digraph program {", "  rankdir=LR;", "  node [fontname=Helvetica];", "  edge [fontname=Helvetica];"]
    for node, told in picture_nodes(program):
        shape = {"relation": "parallelogram", "map": "box", "view": "oval"}[node.split(" ")[0]]
        lines.append(f"  {quoted(node)} [shape={shape}, label={quoted(told)}];")
    for (source, target), events in picture_edges(program).items():
        style = f"label={quoted(', '.join(events))}" if events else "style=dashed"
        lines.append(f"  {quoted(source)} -> {quoted(target)} [{style}];")
    return "\n".join([*lines, "}"]) + "\n"


# -------------------------------------------------------------------- for other programs


def to_json(program: Program) -> dict[str, Any]:
    """Return the whole program as plain dicts, lists, strings and numbers, ready for `json.dumps`.

    Terms are given as text and as trees (``{"node": "Product", "parts": […]}``); a literal's value is a string where
    JSON has no such type. `depths` is null and `cycles` not empty if the program is cyclic.
    """
    circles, kept = cycles(program), dict(program.kept)
    return {
        "relations": [{**_data(item), "kept": kept.get(item.name)} for item in program.relations],
        "maps": [_map(definition) for definition in program.maps],
        "views": [_data(view) for view in program.views],
        "triggers": [
            {
                "on": trigger.on.name.lower(),
                "relation": trigger.relation,
                "variables": list(trigger.variables),
                "statements": [_statement(statement, program) for statement in trigger.statements],
            }
            for trigger in program.triggers
        ],
        "depths": None if circles else depths(program),
        "cycles": [list(circle) for circle in circles],
    }


def _data(part: Any) -> Any:
    """Return a part of a program as plain data: its fields under their own names, scalars as text and as trees."""
    match part:
        case None | bool() | int() | str():
            return part
        case SqlType():
            return str(part)
        case Node():
            return {"text": print_scalar(part), "term": _tree(part)}  # type: ignore[arg-type]  # every node is a term
        case tuple():
            return [_data(item) for item in part]
        case _:
            return {field.name: _data(getattr(part, field.name)) for field in fields(part)}


def _map(definition: MapDef) -> dict[str, Any]:
    return {
        "name": definition.name,
        "keys": _data(definition.keys),
        "values": _data(definition.values),
        "count": definition.count or None,
        "ordered": definition.ordered or None,
        "definitions": [{"text": print_term(term), "term": _tree(term)} for term in definition.definitions],
        "sql": definition.sql or None,
        "declared": definition.declared,
    }


def _statement(statement: Statement, program: Program) -> dict[str, Any]:
    return {
        "text": print_statement(statement, program),
        "map": statement.map,
        "column": statement.column,
        "keys": list(statement.keys),
        "op": statement.op,
        "reads": sorted(maps_of(statement.term)),
        "term": _tree(statement.term),
    }


def _tree(part: Any) -> Any:
    """Return a term as nested dicts: a node's fields under their own names."""
    match part:
        case Const(value, own):
            plain = value is None or isinstance(value, (bool, int, str))
            return {"node": "Const", "value": value if plain else str(value), "type": str(own)}
        case Range(low, high):
            ends = [None if end is None else {"at": _tree(end[0]), "inclusive": end[1]} for end in (low, high)]
            return {"node": "Range", "low": ends[0], "high": ends[1]}
        case Node():
            names = [field.name for field in fields(part)]  # type: ignore[arg-type]  # every node is a dataclass
            return {
                "node": _NODE_WORDS.get(type(part), type(part).__name__),
                **{name: _tree(getattr(part, name)) for name in names},
            }
        case tuple():
            return [_tree(item) for item in part]
        case None | str():
            return part
        case _:
            return str(part)
