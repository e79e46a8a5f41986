"""What homes of statements cost: the bytes of copies that they make necessary, and of what is sent.

They are counted with the bounds of `cumulus.explain.sizes`, from counts of the user's or from guesses by references.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.placement.segments import ON_FIRST, Flow, axis_of, by_key, everywhere, needed
from cumulus.explain.layout.shared_keys import partition_choices, references
from cumulus.explain.sizes import Statistics, bytes_per_entry, distinct, size_of
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import MapDef, Program

NODES = 8
"""For so many nodes the planner counts."""
_WHOLE = AxisCut(NODES)
_EVERYWHERE = everywhere(_WHOLE)
BLOCK = 1_000
"""So many events go together: what they add to one entry on one node travels as one delta."""
GUESSED_ROWS = 1_000
"""Of a table that refers to no other, if nothing is known; one that does is larger."""
FEW = 3
"""Values of a column that is no key and joined with no other table, if nothing is known."""


def estimated_rows(program: Program, statistics: Statistics) -> dict[str, int]:
    """Return the rows of every table: as given, else guessed, in proportion to what is given.

    A table has four times as many rows as what it refers to.
    """
    parents = references(program)
    guessed = {name: GUESSED_ROWS * 4 ** len(reachable(parents, [name]) - {name}) for name in parents}
    scale = max((rows / guessed[name] for name, rows in statistics.rows.items() if name in guessed), default=1.0)
    return {name: statistics.rows.get(name, max(round(guess * scale), 1)) for name, guess in guessed.items()}


class HomeCosts:
    """The costs of homes of flows.

    Parameters
    ----------
    every
        All flows of the program (`cumulus.cluster.placement.segments.flows`).

    Attributes
    ----------
    homes
        Those of the flows that have one so far; only these cost anything.
    """

    def __init__(self, program: Program, every: Sequence[Flow], statistics: Statistics) -> None:
        self.homes: dict[Flow, str | None] = {}
        self.program, self.every = program, every
        self.known = Statistics(estimated_rows(program, statistics), statistics.distinct)
        self._tables = {relation.name: relation for relation in program.relations}
        self._entries = {each.name: self._entries_of(each) for each in program.maps}
        self._bytes = {each.name: bytes_per_entry(each) for each in program.maps}
        self._row_bytes = {
            each.name: bytes_per_entry(MapDef(each.name, each.columns, ())) for each in program.relations
        }
        self._various = set(various_columns(program))
        self._readers: dict[str, list[Flow]] = {each.name: [] for each in program.maps}
        self._writers: dict[str, list[Flow]] = {each.name: [] for each in program.maps}
        self.of_relation: dict[str, list[Flow]] = {}
        for flow in every:
            self._writers[flow.writes.map].append(flow)
            self.of_relation.setdefault(flow.relation, []).append(flow)
            for name in {read.map for read in flow.reads}:
                self._readers[name].append(flow)

    def total(self) -> float:
        """Return what all maps and events cost with the homes that there are so far, in bytes."""
        return sum(map(self._map_cost, self._readers)) + sum(map(self._work_cost, self.of_relation))

    def cost_of(self, maps: Iterable[str], relation: str) -> float:
        """Return what some maps, and the events of a relation, cost with the homes that there are so far."""
        return sum(map(self._map_cost, maps)) + self._work_cost(relation)

    def _work_cost(self, relation: str) -> float:
        """Return the bytes of events that are sent, and what crowding adds to them and to the deltas made of them."""
        rows = self.known.rows[relation] * self._row_bytes[relation]
        placed = [flow for flow in self.of_relation[relation] if flow in self.homes]
        events = sum(rows * self._crowding(relation, home) for home in {self.homes[flow] for flow in placed})
        made = ((flow, self._deltas(flow) * self._bytes[flow.writes.map]) for flow in placed)
        return events + sum(size * (self._crowding(relation, self.homes[flow]) - 1) for flow, size in made)

    def _crowding(self, relation: str, home: str | None) -> float:
        """Return how many times as much the busiest node has to do as it would if all had the same."""
        if home is None:
            return NODES
        table = self._tables[relation]
        found = distinct(table, table.columns[table.position(home)], self._tables, self.known)
        if (relation, home) not in self._various and (relation, home) not in self.known.distinct:
            found = FEW if found is None else min(found, FEW)
        return 1 if found is None else NODES / min(NODES, max(found, 1))

    def _map_cost(self, name: str) -> float:
        """Return the bytes of the copies of a map beyond the first, and of the deltas that are sent to all of them."""
        sets = {
            wanted: None
            for flow in self._readers[name]
            if flow in self.homes
            for map_, wanted in needed(self.program, flow, self.homes[flow], _WHOLE)
            if map_ == name
        }
        kept = [_EVERYWHERE] if _EVERYWHERE in sets else list(sets)
        copies = NODES if _EVERYWHERE in sets else max(len(kept), 1)
        writers = [flow for flow in self._writers[name] if flow in self.homes]
        if kept:
            sent = sum(self._deltas(flow) * self._receivers(flow, each) for flow in writers for each in kept)
        else:
            axes = range(len(self.program.map(name).keys))
            sent = min(
                (
                    sum(self._deltas(flow) * self._receivers(flow, by_key(axis, _WHOLE)) for flow in writers)
                    for axis in axes
                ),
                default=0.0,
            )
        return self._bytes[name] * (self._entries[name] * (copies - 1) + sent)

    def _receivers(self, flow: Flow, wanted: Regions) -> int:
        """Return to how many other nodes a delta of a flow goes for a replica set of its target."""
        home = self.homes[flow]
        if wanted == _EVERYWHERE:
            return NODES - 1
        axis = None if home is None else axis_of(self.program, flow.relation, flow.writes, home)
        is_local = home is None if wanted == ON_FIRST else axis is not None and wanted == by_key(axis, _WHOLE)
        return 0 if is_local else 1

    def _deltas(self, flow: Flow) -> float:
        """Return how many deltas a flow makes in all: for each event or entry, but what a block adds up is one."""
        rows, entries = self.known.rows[flow.relation], self._entries[flow.writes.map]
        made = rows if None not in flow.writes.columns else max(rows, entries)
        return min(made, max(rows / BLOCK, 1) * NODES * entries)

    def _entries_of(self, definition: MapDef) -> int:
        """Return how many entries a map is taken to have: its bound, but no more than the largest table has rows."""
        found = size_of(definition, self._tables, self.known).entries
        largest = max(self.known.rows.values(), default=1)
        return largest if found is None else max(min(found, largest), 1)


def various_columns(program: Program) -> Iterator[tuple[str, str]]:
    """Yield relations and columns that ought to have many values: keys of one column, and what tables are joined by."""
    for choice in partition_choices(program):
        if len(choice) > 1:
            yield from choice.items()
    for table in program.relations:
        keys = [table.key, *(key.columns for key in table.foreign_keys)]
        yield from ((table.name, columns[0]) for columns in keys if len(columns) == 1)
