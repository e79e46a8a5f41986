"""Which nodes hold which entries of which maps, which of them answer readers, and where views are finished.

All nodes run one program; a layout is routing alone. It follows from the homes of the statements: every read asks for a
replica set of its map, and a delta goes once to each node of their union, so each node that has an entry has all of it.
The first replica set of a map is its *owner*: one node for every entry, which answers readers. In a grid that is the
region of the entry, if statements want it there, too.

Entries that a map starts with (START) stand on every node. Where nobody sends their deltas they are neither read, as no
home is there, nor owned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.algebra.terms import MapExtremum, MapRead, Range, Term, Var, children
from cumulus.catalog.schema import Column
from cumulus.cluster.node_programs.program import Group, Homes
from cumulus.cluster.placement.correspondence import NamedFlow, Place, named_flow, place_of
from cumulus.cluster.placement.cuts import MapGrid
from cumulus.cluster.placement.grid_homes import GridHomes, StatementHome, plain_home
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.placement.segments import (
    ON_FIRST,
    At,
    Flow,
    Slice,
    axis_of,
    by_key,
    everywhere,
    flow_of,
    hashed_alike,
    needed,
)
from cumulus.cluster.placement.slots import SlotTable
from cumulus.m3.program import Program, ViewDef

if TYPE_CHECKING:
    import numpy as np

    from cumulus.engine.frames.frame import MapFrame

    Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class FinishedBy(Enum):
    """Who makes the rows of a view from entries."""

    NODES = "each node, of its rows"
    FIRST = "node 0"
    MERGE = "whoever puts the entries of all nodes together"


@dataclass(frozen=True, slots=True)
class ViewPlacement:
    """Where a view is finished; by `NODES` each finishes the rows whose key at `axis` is its own."""

    by: FinishedBy
    axis: int = -1


@dataclass(frozen=True, slots=True)
class Addition:
    """What a statement adds: where that is computed, and where the entries lie to which it is added.

    Parameters
    ----------
    targets
        The replica sets of the map, each with the place of the entries.
    """

    flow: NamedFlow
    home: StatementHome
    targets: tuple[tuple[Regions, Place], ...]


class ClusterLayout:
    """The replica sets of all maps on a number of nodes.

    Parameters
    ----------
    program
        The spread program.
    homes
        Of all its statements of single events; in a grid, those of statements that know none of its dimensions.
    nodes
        At least one.
    has_replicas
        Whether maps lie where statements read them, too; else each entry lies with its owner alone.
    grid
        How maps are cut, where that is asked for.
    slots
        The node of each slot of keys; None: by their hash modulo the number of nodes.

    Attributes
    ----------
    whole
        How keys are cut into parts, one for each node.
    places
        The home of each statement, in the grid if there is one.
    sets
        Map → its replica sets, the owner first. One on every node contains all others.
    regions
        Map → its owner.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a, b) { q[] += m[b] } ON +s(b) { m[b] += 1 }")
    >>> layout = ClusterLayout(program, {(0, 0): "b", (1, 0): "b"}, 4)
    >>> layout.text("m"), layout.text("q"), layout.owner_of("m", (2,)), layout.nodes_of("m", (2,))
    ('by k1', 'on node 0', 2, (2,))
    """

    def __init__(
        self,
        program: Program,
        homes: Homes,
        nodes: int,
        *,
        has_replicas: bool = True,
        grid: MapGrid | None = None,
        slots: SlotTable | None = None,
    ) -> None:
        assert nodes > 0, "there is at least one node"
        self.program, self.homes, self.nodes = program, homes, nodes
        self.whole = AxisCut(nodes, slots=slots)
        self.everywhere = everywhere(self.whole)
        self.grid = grid or MapGrid({})
        self.places: Mapping[At, StatementHome] = {at: plain_home(home, self.whole) for at, home in homes.items()}
        wanted: dict[str, dict[Regions, None]] = {definition.name: {} for definition in program.maps}
        if has_replicas and self.grid.dimensions:
            placed = GridHomes(program, self.grid.dimensions, homes, self.whole)
            self.places, wanted = placed.homes(), dict(placed.wanted)
        else:
            for flow, home in self._flows():
                for name, each in needed(program, flow, home, self.whole):
                    wanted[name][each] = None
        owners: dict[str, Regions] = {
            name: by_key(axis, self.whole) if axis >= 0 else ON_FIRST for name, axis in self._own_axes(wanted).items()
        } | {**self.grid.regions}
        self.sets: Mapping[str, tuple[Regions, ...]] = {
            name: self._in_order(tuple(found), owners[name]) for name, found in wanted.items()
        }
        if not has_replicas:
            self.sets = {name: (self.grid.regions.get(name, sets[0]),) for name, sets in self.sets.items()}
        self.regions = {name: sets[0] for name, sets in self.sets.items()}

    def _flows(self) -> Iterator[tuple[Flow, str | None]]:
        for (index, place), home in self.homes.items():
            trigger = self.program.triggers[index]
            yield flow_of(self.program, trigger, trigger.statements[place]), home

    def _own_axes(self, wanted: Mapping[str, Mapping[Regions, None]]) -> dict[str, int]:
        """Return for each map the key by which its entries are owned, -1 where it has none.

        The maps of a view have a key in common if they can. A set that nobody reads lies where most is added to it, so
        that these deltas need not be sent.
        """
        local: dict[str, Counter[int]] = {name: Counter() for name in wanted}
        for flow, home in self._flows():
            axis = None if home is None else axis_of(self.program, flow.relation, flow.writes, home)
            if axis is not None:
                local[flow.writes.map][axis] += 1
        found: dict[str, int] = {}
        for together in (*(view.maps for view in self.program.views), *((name,) for name in wanted)):
            axes = range(len(self.program.map(together[0]).keys))
            free = [name for name in together if name not in found]
            if not free:
                continue
            best = max(
                axes,
                default=-1,
                key=lambda axis: (
                    sum(self._may_lie_by(axis, wanted[name], found.get(name)) for name in together),
                    sum(local[name][axis] for name in free),
                    -axis,
                ),
            )
            for name in free:
                read = [axis for each in wanted[name] for axis, cut in each.axes if cut == self.whole]
                found[name] = best if best in read or not read or self.everywhere in wanted[name] else read[0]
        return found

    def _may_lie_by(self, axis: int, wanted: Mapping[Regions, None], chosen: int | None) -> bool:
        """Whether a map lies by a key, or may without another copy."""
        if by_key(axis, self.whole) in wanted or self.everywhere in wanted:
            return True
        return not wanted and chosen in (None, axis)

    def _in_order(self, wanted: tuple[Regions, ...], own: Regions) -> tuple[Regions, ...]:
        """Return the replica sets of a map, the owner first: of entries with copies, too, one node is asked.

        Parameters
        ----------
        own
            The owner, if statements want entries there.
        """
        if not wanted:
            return (own,)
        owner = own if any(self._lies_within(own, each) for each in wanted) else Regions(wanted[0].axes)
        return (owner, *(each for each in self._outermost(wanted) if each != owner))

    def _outermost(self, sets: Sequence[Regions]) -> list[Regions]:
        """Return the replica sets that lie within no other."""
        return [each for each in sets if not any(self._lies_within(each, other) for other in sets if other != each)]

    def _lies_within(self, one: Regions, other: Regions) -> bool:
        return other == self.everywhere or one.lies_within(other)

    # --- statements -------------------------------------------------------------------------------------------------

    def additions(self) -> list[Addition]:
        """Return what the statements add, each once, in their order."""
        found: dict[Addition, None] = {}
        for (index, place), home in self.places.items():
            trigger = self.program.triggers[index]
            flow = named_flow(self.program, trigger, trigger.statements[place])
            sets = self.sets[flow.writes.map]
            targets = tuple((each, place_of(self.program, flow.relation, flow.writes, each)) for each in sets)
            found[Addition(flow, home, targets)] = None
        return list(found)

    def homes_of(self, groups: Sequence[Group]) -> list[Place]:
        """Return where the statements of groups are computed."""
        known = {
            (self.program.triggers[index].relation, home.label): home.place for (index, _), home in self.places.items()
        }
        return [known[group.relation, group.home] for group in groups]

    # --- entries ----------------------------------------------------------------------------------------------------

    def targets(self, name: str, deltas: MapFrame) -> list[Indices]:
        """Return for every node the rows, by index and in order, whose deltas of a map it must get."""
        import numpy as np

        sets = self.sets[name]
        if len(sets) == 1:
            return divided(self.owners(name, deltas), self.nodes)
        every = np.arange(deltas.rows)
        if self.everywhere in sets:
            return [every] * self.nodes
        holds = np.zeros((self.nodes, deltas.rows), np.bool_)
        for each in self._outermost(sets):
            first = each.nodes_of(deltas)
            for offset in each.offsets:
                holds[first + offset, every] = True
        return [np.flatnonzero(mine) for mine in holds]

    def owners(self, name: str, entries: MapFrame) -> Indices:
        """Return for every entry of a map the node that owns it."""
        return self.regions[name].nodes_of(entries)

    def owner_of(self, name: str, key: tuple[Any, ...]) -> int:
        """Return the node that owns an entry: the one to ask for it."""
        return self.regions[name].node_of(key)

    def nodes_of(self, name: str, key: tuple[Any, ...]) -> tuple[int, ...]:
        """Return the nodes that hold an entry, in order."""
        found = {each.node_of(key) + offset for each in self.sets[name] for offset in each.offsets}
        return tuple(sorted(found))

    # --- views ------------------------------------------------------------------------------------------------------

    def placement_of_view(self, view: str) -> ViewPlacement:
        """Return where a view is finished.

        By the nodes if some key of the view says where all is that makes a row; rows in an order, or the first of them,
        need all rows.
        """
        definition = self.program.view(view)
        if self.grid.regions:
            return ViewPlacement(FinishedBy.MERGE)
        if all(self._is_whole_on_first(name) for name in definition.reads):
            return ViewPlacement(FinishedBy.FIRST)
        if not (definition.order_by or definition.limit is not None or definition.offset):
            keys = self.program.map(definition.maps[0]).keys
            owner = self.regions[definition.maps[0]]
            for axis in sorted(range(len(keys)), key=lambda axis: by_key(axis, self.whole) != owner):
                if all(self._lies_by(slice_, keys[axis]) for slice_ in self._read_by(definition)):
                    return ViewPlacement(FinishedBy.NODES, axis)
        return ViewPlacement(FinishedBy.MERGE)

    def _is_whole_on_first(self, name: str) -> bool:
        return self.nodes == 1 or not {ON_FIRST, self.everywhere}.isdisjoint(self.sets[name])

    def _read_by(self, view: ViewDef) -> Iterator[Slice]:
        """Yield what makes a row of a view, with the view's keys where a statement has columns of an event."""
        keys = [key.name for key in self.program.map(view.maps[0]).keys]
        for name in view.maps:
            yield Slice(name, tuple(keys))
        for scalar in view.expressions:
            yield from _slices_of_row(scalar, frozenset(keys))

    def _lies_by(self, slice_: Slice, key: Column) -> bool:
        """Whether a slice is on the node of the view's key: there, or everywhere."""
        sets, own = self.sets[slice_.map], self.program.map(slice_.map).keys
        return self.everywhere in sets or any(
            named == key.name and hashed_alike(own[axis].type, key.type) and by_key(axis, self.whole) in sets
            for axis, named in enumerate(slice_.columns)
        )

    # --- in words ---------------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """Return the replica sets of a map in words, the owner first: ``by oid; by cid``."""
        return "; ".join(self.set_text(name, each) for each in self.sets[name])

    def set_text(self, name: str, each: Regions) -> str:
        """Return one replica set of a map in words."""
        if each == self.everywhere:
            return "on every node"
        if each == ON_FIRST:
            return "on node 0"
        keys = self.program.map(name).keys
        names = {dimension.cut: dimension.name for dimension in self.grid.dimensions}
        by = []
        for axis, cut in each.axes:
            is_whole = cut == self.whole and name not in self.grid.regions
            by.append(f"by {keys[axis].name}" if is_whole else f"{keys[axis].name} in {cut.text}")
        return ", ".join((*by, *(f"for every {names[cut]}" for cut in each.copied)))


def divided(nodes: Indices, count: int) -> list[Indices]:
    """Return for each of `count` nodes the indices of its rows, in order, from the node of every row.

    Examples
    --------
    >>> import numpy as np
    >>> [rows.tolist() for rows in divided(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    import numpy as np

    order = np.argsort(nodes, kind="stable")
    ends = np.searchsorted(nodes[order], np.arange(count + 1))
    return [order[start:end] for start, end in pairwise(ends)]


def _slices_of_row(scalar: Term | Range, keys: frozenset[str]) -> Iterator[Slice]:
    match scalar:
        case MapRead(name, _, read) | MapExtremum(_, name, read):
            yield Slice(name, tuple(key.name if isinstance(key, Var) and key.name in keys else None for key in read))
        case _:
            pass
    for child in children(scalar):
        yield from _slices_of_row(child, keys)
