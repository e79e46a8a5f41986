"""The planner of the cluster: on the node of which column each statement is computed.

A home makes replica sets necessary (`cumulus.cluster.placement.segments`), and a replica set costs memory and messages.
The planner looks for homes by whose replica sets the least bytes lie and travel: first one home for all statements of a
table, then others for some of them. What it counts with are the bounds of `cumulus.explain.sizes`, from counts of the
user's or from guesses by references. Homes do not depend on how many nodes there are, so the node program is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cumulus.catalog.names import find_name
from cumulus.cluster.node_programs.program import Homes
from cumulus.cluster.placement.segments import At, Flow, Reach, ReplicaSet, axis_of, flows, needed
from cumulus.errors import UsageError
from cumulus.explain.layout.shared_keys import partition_choices, references
from cumulus.explain.sizes import Statistics, bytes_per_entry, distinct, size_of
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import MapDef, Program

NODES = 8
"""For so many nodes the planner counts."""
BLOCK = 1_000
"""So many events go together: what they add to one entry on one node travels as one delta."""
GUESSED_ROWS = 1_000
"""Of a table that refers to no other, if nothing is known; one that does is larger."""
FEW = 3
"""Values of a column that is no key and joined with no other table, if nothing is known."""
PASSES = 4
"""How often the planner goes over all tables at most."""


def choose_homes(spread: Program, statistics: Statistics, hints: Mapping[str, str] | None = None) -> Homes:
    """Return the home of every statement of single events; those of ``+r`` and ``-r`` that do the same have the same.

    Parameters
    ----------
    spread
        A program whose statements nodes can compute alone (`cumulus.cluster.spread`).
    statistics
        What is known of the tables.
    hints
        Relation → the home of all its statements, as `homes_asked_for` reads them.

    Returns
    -------
    Homes
        Columns of the relations and not variables, as ``ON +r`` and ``ON -r`` may call them differently.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a, b) { q[] += m[b] } ON +s(b) { m[b] += 1 }")
    >>> choose_homes(program, Statistics())
    {(0, 0): 'b', (1, 0): 'b'}
    """
    found = flows(spread)
    search = _Search(spread, list(found), statistics)
    search.run(hints or {})
    chosen: dict[At, str | None] = {at: search.homes[flow] for flow, places in found.items() for at in places}
    return dict(sorted(chosen.items()))


def homes_asked_for(program: Program, texts: Iterable[str]) -> dict[str, str]:
    """Return relation → column of hints such as ``orders.oid``.

    Raises
    ------
    UsageError
        If there is no such column, or two are named for one table.
    """
    tables = {relation.name: relation for relation in program.relations}
    found: dict[str, str] = {}
    for text in texts:
        before, _, behind = text.rpartition(".")
        name = find_name(before, tables)
        if name is None:
            raise UsageError(
                f"--home {text}: there is no table {before!r}",
                hint=f"Write --home TABLE.COLUMN; tables: {', '.join(tables)}.",
            )
        column = find_name(behind, tables[name].column_names)
        if column is None:
            raise UsageError(
                f"--home {text}: {name} has no column {behind!r}",
                hint=f"Its columns are {', '.join(tables[name].column_names)}.",
            )
        if found.setdefault(name, column) != column:
            raise UsageError(f"two homes for {name}: {found[name]} and {column}", hint="Give --home once for a table.")
    return found


def estimated_rows(program: Program, statistics: Statistics) -> dict[str, int]:
    """Return the rows of every table: as given, else guessed, in proportion to what is given.

    A table has four times as many rows as what it refers to.
    """
    parents = references(program)
    guessed = {name: GUESSED_ROWS * 4 ** len(reachable(parents, [name]) - {name}) for name in parents}
    scale = max((rows / guessed[name] for name, rows in statistics.rows.items() if name in guessed), default=1.0)
    return {name: statistics.rows.get(name, max(round(guess * scale), 1)) for name, guess in guessed.items()}


class _Search:
    """Looks for homes that cost little; `homes` are those of the flows that have one so far."""

    def __init__(self, program: Program, every: Sequence[Flow], statistics: Statistics) -> None:
        self.homes: dict[Flow, str | None] = {}
        self._program, self._every = program, every
        self._known = Statistics(estimated_rows(program, statistics), statistics.distinct)
        self._tables = {relation.name: relation for relation in program.relations}
        self._entries = {each.name: self._entries_of(each) for each in program.maps}
        self._bytes = {each.name: bytes_per_entry(each) for each in program.maps}
        self._row_bytes = {
            each.name: bytes_per_entry(MapDef(each.name, each.columns, ())) for each in program.relations
        }
        self._various = set(_various(program))
        self._readers: dict[str, list[Flow]] = {each.name: [] for each in program.maps}
        self._writers: dict[str, list[Flow]] = {each.name: [] for each in program.maps}
        self._of_relation: dict[str, list[Flow]] = {}
        for flow in every:
            self._writers[flow.writes.map].append(flow)
            self._of_relation.setdefault(flow.relation, []).append(flow)
            for name in {read.map for read in flow.reads}:
                self._readers[name].append(flow)

    def run(self, hints: Mapping[str, str]) -> None:
        """Choose: one home for each table, the largest first; then others for single flows, while it gets cheaper."""
        rows = self._known.rows
        relations = sorted(self._of_relation, key=lambda name: (-rows[name], name))

        def choices(together: Sequence[Flow]) -> Sequence[str | None]:
            relation = together[0].relation
            return [hints[relation]] if relation in hints else candidates[relation] + _no_home(together)

        candidates = {name: _candidates(self._program, name, self._of_relation[name]) for name in relations}
        for turn in range(PASSES):
            changed = [self._place(each, choices(each)) for each in map(self._of_relation.__getitem__, relations)]
            if turn:
                changed += [self._place([flow], choices([flow])) for flow in self._every]
            if not any(changed):
                break

    def _place(self, together: Sequence[Flow], choices: Sequence[str | None]) -> bool:
        """Give some flows of a relation the home that costs least, the one that they have before others; say if new."""
        before = {flow: self.homes[flow] for flow in together if flow in self.homes}
        maps = sorted({flow.writes.map for flow in together} | {read.map for flow in together for read in flow.reads})
        best, least = before, self._cost(maps, together[0].relation) if before else float("inf")
        for choice in choices:
            tried: dict[Flow, str | None] = dict.fromkeys(together, choice)
            self.homes.update(tried)
            cost = self._cost(maps, together[0].relation)
            if cost < least * (1 - 1e-9):
                best, least = tried, cost
        self.homes.update(best)
        return best != before

    def _cost(self, maps: Iterable[str], relation: str) -> float:
        return sum(map(self._map_cost, maps)) + self._work_cost(relation)

    def _work_cost(self, relation: str) -> float:
        """Return the bytes of events that are sent, and what crowding adds to them and to the deltas made of them."""
        rows = self._known.rows[relation] * self._row_bytes[relation]
        placed = [flow for flow in self._of_relation[relation] if flow in self.homes]
        events = sum(rows * self._crowding(relation, home) for home in {self.homes[flow] for flow in placed})
        made = ((flow, self._deltas(flow) * self._bytes[flow.writes.map]) for flow in placed)
        return events + sum(size * (self._crowding(relation, self.homes[flow]) - 1) for flow, size in made)

    def _crowding(self, relation: str, home: str | None) -> float:
        """Return how many times as much the busiest node has to do as it would if all had the same."""
        if home is None:
            return NODES
        table = self._tables[relation]
        found = distinct(table, table.columns[table.position(home)], self._tables, self._known)
        if (relation, home) not in self._various and (relation, home) not in self._known.distinct:
            found = FEW if found is None else min(found, FEW)
        return 1 if found is None else NODES / min(NODES, max(found, 1))

    def _map_cost(self, name: str) -> float:
        """Return the bytes of the copies of a map beyond the first, and of the deltas that are sent to all of them."""
        sets = {
            wanted: None
            for flow in self._readers[name]
            if flow in self.homes
            for map_, wanted in needed(self._program, flow, self.homes[flow])
            if map_ == name
        }
        every = next((each for each in sets if each.reach is Reach.EVERY), None)
        kept = [every] if every is not None else list(sets)
        copies = NODES if every is not None else max(len(kept), 1)
        writers = [flow for flow in self._writers[name] if flow in self.homes]
        if kept:
            sent = sum(self._deltas(flow) * self._receivers(flow, each) for flow in writers for each in kept)
        else:
            axes = range(len(self._program.map(name).keys))
            sent = min(
                (
                    sum(self._deltas(flow) * self._receivers(flow, ReplicaSet(Reach.KEY, axis)) for flow in writers)
                    for axis in axes
                ),
                default=0.0,
            )
        return self._bytes[name] * (self._entries[name] * (copies - 1) + sent)

    def _receivers(self, flow: Flow, wanted: ReplicaSet) -> int:
        """Return to how many other nodes a delta of a flow goes for a replica set of its target."""
        home = self.homes[flow]
        match wanted.reach:
            case Reach.EVERY:
                return NODES - 1
            case Reach.FIRST:
                return 0 if home is None else 1
            case Reach.KEY:
                local = home is not None and axis_of(self._program, flow.relation, flow.writes, home) == wanted.axis
                return 0 if local else 1

    def _deltas(self, flow: Flow) -> float:
        """Return how many deltas a flow makes in all: for each event or entry, but what a block adds up is one."""
        rows, entries = self._known.rows[flow.relation], self._entries[flow.writes.map]
        made = rows if None not in flow.writes.columns else max(rows, entries)
        return min(made, max(rows / BLOCK, 1) * NODES * entries)

    def _entries_of(self, definition: MapDef) -> int:
        """Return how many entries a map is taken to have: its bound, but no more than the largest table has rows."""
        found = size_of(definition, self._tables, self._known).entries
        largest = max(self._known.rows.values(), default=1)
        return largest if found is None else max(min(found, largest), 1)


def _no_home(together: Sequence[Flow]) -> list[str | None]:
    """Return None as a choice where a column of the event would save nothing of what is read.

    Elsewhere node 0 would be the cheapest of all, for nobody sends anything where one node does all.
    """
    keyed = any(column is not None for flow in together for read in flow.reads for column in read.columns)
    return [] if keyed or not any(flow.reads for flow in together) else [None]


def _candidates(program: Program, relation: str, every: Sequence[Flow]) -> list[str | None]:
    """Return what may be a home: columns by which maps are read or tables joined, else those of the key, else all."""
    used = {column for flow in every for read in flow.reads for column in read.columns if column is not None}
    used |= {column for name, column in _various(program) if name == relation}
    table = program.relation(relation)
    found = used or set(table.key)
    return [column for column in table.column_names if column in found or not found] or [None]


def _various(program: Program) -> Iterator[tuple[str, str]]:
    """Yield relations and columns that ought to have many values: keys of one column, and what tables are joined by."""
    for choice in partition_choices(program):
        if len(choice) > 1:
            yield from choice.items()
    for table in program.relations:
        keys = [table.key, *(key.columns for key in table.foreign_keys)]
        yield from ((table.name, columns[0]) for columns in keys if len(columns) == 1)
