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

    Mask: TypeAlias = npt.NDArray[np.bool_]
    SentSlices: TypeAlias = Mapping[tuple[int, int, int], Mask]
    """Reader, target, slice → the rows for which the one sends the other entries of the slice; in order."""
    SlicesOfReader: TypeAlias = Mapping[tuple[int, int], Mask]
    """The same of one reader: target, slice → the rows."""


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

    is_target: Mask
    sent: SentSlices

    @property
    def by_reader(self) -> dict[int, dict[tuple[int, int], Mask]]:
        """Reader → target and slice → the rows for which it sends that; readers in order."""
        found: dict[int, dict[tuple[int, int], Mask]] = {}
        for (reader, target, number), of in self.sent.items():
            found.setdefault(reader, {})[target, number] = of
        return found

    @property
    def readers(self) -> dict[int, list[int]]:
        """Target → who sends it something, in order."""
        found: dict[int, dict[int, None]] = {}
        for reader, target, _ in self.sent:
            found.setdefault(target, {})[reader] = None
        return {target: list(readers) for target, readers in found.items()}


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
        is_target = np.zeros((rows.num_rows, self._nodes), np.bool_)
        places = _PlacedRows(rows)
        for flow in self._flows[relation]:
            writers = places.nodes(flow.writes)
            for to in flow.offsets:
                is_target[np.arange(rows.num_rows), writers + to] = True
        return NeedsOfRows(is_target, self._sent(relation, places))

    def sent(self, relation: str, rows: pa.Table) -> SentSlices:
        """Return what nodes send each other for rows of a relation, of which these are `columns`, or more."""
        return self._sent(relation, _PlacedRows(rows))

    def _sent(self, relation: str, places: _PlacedRows) -> SentSlices:
        sent: dict[tuple[int, int, int], Mask] = {}
        for flow in self._flows[relation]:
            for read in flow.reads:
                writers, readers = places.nodes(flow.writes), places.nodes(read.place)
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


class _PlacedRows:
    """The nodes that columns of rows say; a column is looked at once for each cut."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._by_column: dict[tuple[str, AxisCut], npt.NDArray[np.int64]] = {}

    def nodes(self, place: Place) -> npt.NDArray[np.int64]:
        """Return for each row the node that its columns say, where all loop variables are in their first parts."""
        found = np.zeros(self._rows.num_rows, np.int64)
        for column, dimension in place.columns:
            found += self._of_column(column, dimension)
        return found

    def _of_column(self, column: str, dimension: AxisCut) -> npt.NDArray[np.int64]:
        if (column, dimension) not in self._by_column:
            parts = dimension.parts_of(self._rows.column(column))
            self._by_column[column, dimension] = dimension.stride * parts
        return self._by_column[column, dimension]
