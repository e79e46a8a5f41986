"""Nodes of a cluster without protocol: each computes what is at home there, and what it adds is carried at once.

Written from the definition of homes and replica sets and not from the node program, as the judge of layouts. A node
sees its own entries only, so what a statement reads must be there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cumulus.algebra.terms import Var, number, product_of
from cumulus.catalog.events import Event
from cumulus.catalog.schema import Column, Relation
from cumulus.cluster.placement.correspondence import Place
from cumulus.cluster.placement.layout import ClusterLayout, FinishedBy
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger
from cumulus.views import finish


class RoutedNodes:
    """The nodes of a layout; events go one by one, and each has been carried everywhere before the next comes."""

    def __init__(self, layout: ClusterLayout) -> None:
        self.layout = layout
        self._program, self._at_homes = _node_program(layout)
        self.engines = [Interpreter(self._program) for _ in range(layout.nodes)]
        for node, engine in enumerate(self.engines):
            self._forget_others(node, engine)
        self._places = {
            (layout.program.triggers[index].relation, home.label): home.place
            for (index, _), home in layout.places.items()
        }
        self.sent = Counter[str]()
        self.links: set[tuple[str, int, int]] = set()
        """Maps, each with a node that has sent deltas of it, and one that has got some."""

    def on_event(self, event: Event) -> None:
        sign, relation, row = event
        table = self.layout.program.relation(relation)
        for home in self._at_homes[relation]:
            for node in range(self.layout.nodes):
                if _is_at(self.layout, node, self._places[relation, home], table, row):
                    self._fire(node, sign, _at(relation, home), row)
        made = [(node, name, entry) for node in range(self.layout.nodes) for name, entry in self._taken(node)]
        for node, name, (key, values) in made:
            for target in self.layout.nodes_of(name, key):
                self.sent[name] += target != node
                self.links |= {(name, node, target)} if target != node else set()
                self._fire(target, 1, f"add {name}", (*key, *values))

    def _forget_others(self, node: int, engine: Interpreter) -> None:
        """Let a node forget what maps start with and that lies elsewhere."""
        for definition in self.layout.program.maps:
            for key, values in [*engine.items(definition.name)]:
                if node not in self.layout.nodes_of(definition.name, key):
                    self._fire(node, 1, f"add {definition.name}", (*key, *(-each for each in values)))

    def _fire(self, node: int, sign: int, relation: str, row: tuple) -> None:
        engine = self.engines[node]
        engine.begin()
        engine.on_event(sign, relation, row)
        engine.commit()

    def _taken(self, node: int):
        """Yield what a node has to send, and forget it there."""
        for definition in self.layout.program.maps:
            for key, values in [*self.engines[node].items(f"out {definition.name}")]:
                yield definition.name, (key, values)
                self._fire(node, -1, f"add {definition.name}", (*key, *values))

    def owned(self, name: str) -> dict:
        """The entries of a map, each from the node that owns it."""
        found = {}
        for node, engine in enumerate(self.engines):
            mine = {key: values for key, values in engine.items(name) if self.layout.owner_of(name, key) == node}
            assert not found.keys() & mine.keys(), "an entry has one owner"
            found |= mine
        return found

    def view_rows(self, view: str) -> Counter:
        """The rows of a view, made where the layout says."""
        program, placement = self.layout.program, self.layout.placement_of_view(view)
        definition = program.view(view)
        if placement.by is FinishedBy.MERGE:
            return rows_of(program, definition, self.owned)
        if placement.by is FinishedBy.FIRST:
            return rows_of(program, definition, self.engines[0].items)
        rows = Counter()
        for node in range(self.layout.nodes):

            def mine(name, node=node):
                entries = dict(self.engines[node].items(name))
                if name != definition.maps[0]:
                    return entries
                return {k: v for k, v in entries.items() if self.layout.whole.part_of(k[placement.axis]) == node}

            rows += rows_of(program, definition, mine)
        return rows


def rows_of(program: Program, view, entries) -> Counter:
    """The rows of a view, from a function from the name of a map to its entries."""
    table = finish(program, view, lambda name: dict(entries(name)).items())
    return Counter(repr(row) for row in table.to_pylist())


def assert_nodes_are_embedded(layout: ClusterLayout, events) -> RoutedNodes:
    """Let nodes and one engine do events, and compare after each."""
    program = layout.program
    embedded, nodes = Interpreter(program), RoutedNodes(layout)
    for event in events:
        embedded.begin()
        embedded.on_event(*event)
        embedded.commit()
        nodes.on_event(event)
        for definition in program.maps:
            whole = {repr(key): values for key, values in embedded.items(definition.name)}
            assert {repr(key): values for key, values in nodes.owned(definition.name).items()} == whole, definition.name
    for view in program.views:
        assert nodes.view_rows(view.name) == rows_of(program, view, embedded.items), view.name
    return nodes


def _is_at(layout: ClusterLayout, node: int, place: Place, table: Relation, row: tuple) -> bool:
    """Whether a row is at home on a node: its columns say the parts, a loop any, and all else the first."""
    named = [cut for _, cut in (*place.columns, *place.loops)]
    by_columns = (cut.part_of(row[table.position(name)]) == cut.part_at(node) for name, cut in place.columns)
    return node == sum(cut.stride * cut.part_at(node) for cut in named) and all(by_columns)


def _at(relation: str, home: str | None) -> str:
    return f"{relation} at {home}"


def _node_program(layout: ClusterLayout) -> tuple[Program, dict[str, list[str | None]]]:
    """Return what a node runs, and relation → homes.

    An event of "r at h" writes what the statements of r at home h add to "out m"; an insertion into "add m" adds it to
    m, a deletion takes it away from "out m".
    """
    program = layout.program
    groups: dict[tuple[int, str | None], list[Statement]] = {}
    for (index, place), home in ((at, home.label) for at, home in layout.places.items()):
        statement = program.triggers[index].statements[place]
        groups.setdefault((index, home), []).append(replace(statement, map=f"out {statement.map}"))
    homes: dict[str, list[str | None]] = {relation.name: [] for relation in program.relations}
    triggers = []
    for (index, home), statements in groups.items():
        trigger = program.triggers[index]
        if home not in homes[trigger.relation]:
            homes[trigger.relation].append(home)
        triggers.append(replace(trigger, relation=_at(trigger.relation, home), statements=tuple(statements)))
    relations = [
        Relation(_at(each.name, home), each.columns) for each in program.relations for home in homes[each.name]
    ]
    maps = [*program.maps]
    for each in program.maps:
        maps.append(MapDef(f"out {each.name}", each.keys, each.values))
        keys = tuple(f"key {place}" for place in range(len(each.keys)))
        values = tuple(f"value {place}" for place in range(len(each.values)))
        columns = [Column(name, key.type) for name, key in zip(keys, each.keys, strict=True)]
        columns += [Column(name, value.type) for name, value in zip(values, each.values, strict=True)]
        relations.append(Relation(f"add {each.name}", tuple(columns)))
        for on, name, factor in ((On.INSERT, each.name, 1), (On.DELETE, f"out {each.name}", -1)):
            statements = tuple(
                Statement(name, value.name, keys, "+=", product_of([number(factor), Var(variable)]))
                for value, variable in zip(each.values, values, strict=True)
            )
            triggers.append(Trigger(on, f"add {each.name}", keys + values, statements))
    return Program(tuple(relations), tuple(maps), (), tuple(triggers)), homes
