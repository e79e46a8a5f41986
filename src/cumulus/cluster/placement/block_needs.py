"""Which nodes read, send and compute what for the rows of a block, where entries are fetched: by regions of maps.

References
----------
Cumulus architecture, "Trigger Dispatch".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, numbers_of
from cumulus.cluster.placement.correspondence import Place, corresponding, named_flows, place_of
from cumulus.cluster.placement.regions import AxisCut

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy.typing as npt
    import pyarrow as pa

    from cumulus.cluster.placement.layout import ClusterLayout

    SentSlices: TypeAlias = Mapping[tuple[int, int, int], npt.NDArray[np.bool_]]
    """Reader, target, slice → the rows for which the one sends the other entries of the slice."""


@dataclass(frozen=True, slots=True)
class NeedsOfRows:
    """What some rows need.

    Parameters
    ----------
    is_target
        Rows × nodes: whether a node has entries to which a row adds.
    sent
        What nodes send each other.
    """

    is_target: npt.NDArray[np.bool_]
    sent: SentSlices

    def readers(self) -> dict[int, list[int]]:
        """Return for each node that is sent something who sends it that, in order."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for reader, target, _ in self.sent:
            found[target][reader] = None
        return {target: sorted(of) for target, of in found.items()}


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """Of a read of a statement: its slice, where that lies, and which nodes correspond to which of what is written."""

    slice: int
    place: Place
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _FlowPlan:
    """Of a statement: where it writes, behind what its columns say, and what it reads."""

    writes: Place
    offsets: tuple[int, ...]
    reads: tuple[_ReadPlan, ...]


class BlockNeeds:
    """What rows of any relation need, by the regions of a layout.

    Parameters
    ----------
    slices
        What nodes ask each other for, by number.
    """

    def __init__(self, layout: ClusterLayout, slices: Sequence[FetchedSlice]) -> None:
        self._nodes, self._slices = layout.nodes, slices
        numbers = numbers_of(slices)
        self._flows: dict[str, list[_FlowPlan]] = defaultdict(list)
        program, regions = layout.program, layout.regions
        for flow in named_flows(program):
            writes = place_of(program, flow.relation, flow.writes, regions[flow.writes.map])
            reads = []
            for read in flow.reads:
                place = place_of(program, flow.relation, read, regions[read.map])
                number = numbers[flow.relation, read.map, read.columns]
                reads.append(_ReadPlan(number, place, tuple(sorted(corresponding(place, writes)))))
            offsets = {to for _, to in corresponding(Place((), ()), writes)}
            self._flows[flow.relation].append(_FlowPlan(writes, tuple(sorted(offsets)), tuple(reads)))

    def of(self, relation: str, rows: pa.Table) -> NeedsOfRows:
        """Return what rows of a relation need."""
        nodes = NodesOfRows(rows)
        is_target = np.zeros((rows.num_rows, self._nodes), np.bool_)
        for flow in self._flows[relation]:
            writers = nodes.of(flow.writes)
            for to in flow.offsets:
                is_target[np.arange(rows.num_rows), writers + to] = True
        return NeedsOfRows(is_target, self._sent(relation, nodes))

    def sent(self, relation: str, rows: pa.Table) -> SentSlices:
        """Return what nodes send each other for rows of a relation, of which these are `columns`, or more."""
        return self._sent(relation, NodesOfRows(rows))

    def _sent(self, relation: str, nodes: NodesOfRows) -> SentSlices:
        sent: dict[tuple[int, int, int], npt.NDArray[np.bool_]] = {}
        for flow in self._flows[relation]:
            for read in flow.reads:
                writers, readers = nodes.of(flow.writes), nodes.of(read.place)
                for at, to in read.offsets:
                    pairs = (readers + at) * self._nodes + writers + to
                    for pair in np.unique(pairs).tolist():
                        place, of = (*divmod(pair, self._nodes), read.slice), pairs == pair
                        sent[place] = sent[place] | of if place in sent else of
        return dict(sorted(sent.items()))

    def columns(self, relation: str) -> list[str]:
        """Return the columns of a relation that say what nodes send each other for a row."""
        found = {name for each in self._slices if each.relation == relation for name in each.bound}
        for flow in self._flows[relation]:
            places = (flow.writes, *(read.place for read in flow.reads)) if flow.reads else ()
            found |= {column for place in places for column, _ in place.columns}
        return sorted(found)


class NodesOfRows:
    """The nodes of places, for some rows; values of a column are looked at once for each cut.

    Parameters
    ----------
    rows
        Their columns, by name.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._parts: dict[tuple[str, AxisCut], npt.NDArray[np.int64]] = {}

    def of(self, place: Place) -> npt.NDArray[np.int64]:
        """Return for each row the node that its columns say, where all loop variables are in their first parts."""
        match place.columns:
            case ((column, AxisCut(stride=1) as cut),):
                return self._parts_of(column, cut)
        found = np.zeros(self._rows.num_rows, np.int64)
        for column, cut in place.columns:
            found += cut.stride * self._parts_of(column, cut)
        return found

    def _parts_of(self, column: str, cut: AxisCut) -> npt.NDArray[np.int64]:
        if (column, cut) not in self._parts:
            self._parts[column, cut] = cut.parts_of(self._rows.column(column))
        return self._parts[column, cut]
