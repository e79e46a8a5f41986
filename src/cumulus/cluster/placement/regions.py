"""Regions of maps: a key axis is cut into parts, by hash or at values; several axes make a grid over the nodes.

A node has one part of each *dimension* of the grid. A map that lies by all dimensions has a region on every node. One
that lies by some has them in the first part of each other one, or in all its parts: then there is a copy for each.

References
----------
Cumulus consistency paper, section 3.1: "a grid pattern, with 2 partitions in the B dimension and 5 in C".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, gcd, isfinite, lcm
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.catalog.partition import bucket_of, buckets_of
from cumulus.cluster.placement.slots import SLOTS, SlotTable

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cumulus.engine.frames.frame import MapFrame

    Parts: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class AxisCut:
    """How a key axis is cut into parts: one dimension of the grid.

    Parameters
    ----------
    parts
        Into how many it is cut.
    stride
        How far apart the nodes of two neighbouring parts are, by number.
    bounds
        Of parts by value, ascending: a value belongs to the part behind the last bound that is not greater. Empty where
        it is cut by hash. NULL and NaN belong to the first part.
    slots
        The part of each slot of the hash; None: the part is the hash modulo their number.
    """

    parts: int
    stride: int = 1
    bounds: tuple[Any, ...] = ()
    slots: SlotTable | None = None

    @property
    def text(self) -> str:
        """How it is cut, in words."""
        at = f" at {', '.join(map(str, self.bounds))}" if self.bounds else ""
        return f"{self.parts} parts{at}"

    def part_of(self, value: Any) -> int:
        """Return the part of a value.

        Examples
        --------
        >>> by_value = AxisCut(3, bounds=(10, 100))
        >>> [by_value.part_of(value) for value in (None, 9, 10, 1000)]
        [0, 0, 1, 2]
        """
        if self.slots is not None:
            return self.slots.nodes[bucket_of(value, SLOTS)]
        if not self.bounds:
            return bucket_of(value, self.parts)
        return sum(_is_at_least(value, bound) for bound in self.bounds)

    def parts_of(self, values: pa.Array | pa.ChunkedArray) -> Parts:
        """Return the parts of values."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.bounds:
            found = np.asarray(buckets_of(values, self._hashed).to_numpy(zero_copy_only=False), np.int64)
            return found if self.slots is None else self.slots.take(found)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        found = np.zeros(len(values), np.int64)
        for bound in self.bounds:
            alike = _alike(values.type, bound)
            if alike is None:
                found += np.array([_is_at_least(value, bound) for value in values.to_pylist()], np.bool_)
            else:
                found += pc.fill_null(pc.greater_equal(values, alike), False).to_numpy(zero_copy_only=False)
        return found

    def parts_of_key(self, entries: MapFrame, place: int) -> Parts:
        """Return the parts of a key of entries."""
        if self.bounds:
            return self.parts_of(entries.key(place))
        found = entries.buckets(place, self._hashed)
        return found if self.slots is None else self.slots.take(found)

    @property
    def _hashed(self) -> int:
        return self.parts if self.slots is None else SLOTS

    @property
    def is_modular(self) -> bool:
        """Whether a value's part is its hash modulo their number."""
        return not self.bounds and self.slots is None

    def facts(self, part: int) -> dict[str, int]:
        """Return how many slots a part has, if there are any."""
        return {} if self.slots is None else {"slots": self.slots.nodes.count(part)}

    def part_at(self, node: int) -> int:
        """Return the part that a node has."""
        return node // self.stride % self.parts


def _is_at_least(value: Any, bound: Any) -> bool:
    """Whether a value is at least a bound; numbers are compared exactly, and NULL and NaN are not."""
    return value is not None and value == value and value >= bound


def _alike(type_: pa.DataType, bound: Any) -> Any:
    """Return a bound as Arrow compares it with values of a type exactly; None if it cannot."""
    import pyarrow as pa

    if pa.types.is_boolean(type_):
        return bound if isinstance(bound, bool) else None
    if pa.types.is_integer(type_):
        least = ceil(bound) if isfinite(bound) else 2**63
        return least if -(2**63) <= least < 2**63 else None
    if pa.types.is_floating(type_):
        return float(bound) if float(bound) == bound else None
    if pa.types.is_decimal(type_):
        try:
            return pa.scalar(Decimal(bound), type_)
        except (pa.ArrowInvalid, OverflowError, ValueError):
            return None
    return bound


@dataclass(frozen=True, slots=True)
class Regions:
    """Where the entries of a map lie, or those of one of its copies.

    Parameters
    ----------
    axes
        Of the map's keys by whose parts they lie, each with its dimension.
    copied
        The dimensions for each part of which there is a copy. In all other ones entries lie in the first part: without
        any axes or copies they lie on node 0.

    Examples
    --------
    >>> Regions(((0, AxisCut(2, 5)),), (AxisCut(5),)).offsets
    (0, 1, 2, 3, 4)
    """

    axes: tuple[tuple[int, AxisCut], ...]
    copied: tuple[AxisCut, ...] = ()

    @property
    def offsets(self) -> tuple[int, ...]:
        """How far behind the first node of an entry those are that hold it."""
        return offsets(self.copied)

    def nodes_of(self, entries: MapFrame) -> Parts:
        """Return the first node of each entry."""
        import numpy as np

        match self.axes:
            case ((axis, AxisCut(stride=1) as dimension),):
                return dimension.parts_of_key(entries, axis)
        found = np.zeros(entries.rows, np.int64)
        for axis, dimension in self.axes:
            found += dimension.stride * dimension.parts_of_key(entries, axis)
        return found

    def nodes_with(self, values: Mapping[int, Iterable[Any]]) -> set[int]:
        """Return the first nodes of entries with some values at keys; a key that is not named may have any."""
        found = {0}
        for axis, cut in self.axes:
            parts = {cut.part_of(value) for value in values[axis]} if axis in values else range(cut.parts)
            found = {node + cut.stride * part for node in found for part in parts}
        return found

    def node_of(self, key: Sequence[Any]) -> int:
        """Return the first node of an entry."""
        return sum(dimension.stride * dimension.part_of(key[axis]) for axis, dimension in self.axes)

    def lies_within(self, other: Regions) -> bool:
        """Whether whatever lies here lies there, too.

        Examples
        --------
        >>> rows, columns = AxisCut(2, 5), AxisCut(5)
        >>> grid = Regions(((0, rows), (1, columns)))
        >>> grid.lies_within(Regions(((0, rows),), (columns,))), grid.lies_within(Regions(((0, rows),)))
        (True, False)
        """
        more = {cut for _, cut in {*self.axes} - {*other.axes}} | {*self.copied}
        return {*other.axes} <= {*self.axes} and all(cut in other.copied for cut in more if cut.parts > 1)


def offsets(dimensions: Iterable[AxisCut]) -> tuple[int, ...]:
    """Return how far behind the first nodes of dimensions all their nodes are."""
    found = [0]
    for cut in dimensions:
        found = [node + cut.stride * part for node in found for part in range(cut.parts)]
    return tuple(sorted(found))


def common_parts(dimensions: Sequence[AxisCut]) -> list[tuple[int, ...]]:
    """Return which parts of dimensions have values in common: their common refinement.

    Examples
    --------
    >>> common_parts([AxisCut(2), AxisCut(4)])
    [(0, 0), (1, 1), (0, 2), (1, 3)]
    >>> common_parts([AxisCut(2), AxisCut(2)])
    [(0, 0), (1, 1)]
    """
    by_hash = [each for each in dict.fromkeys(dimensions) if each.is_modular]
    by_value = [each for each in dict.fromkeys(dimensions) if not each.is_modular]
    cells: list[dict[AxisCut, int]] = [
        {each: at % each.parts for each in by_hash} for at in range(lcm(*(each.parts for each in by_hash)))
    ]
    for each in by_value:  # nothing is known of which hashes a part by value has; slots may be anywhere
        cells = [{**cell, each: part} for cell in cells for part in range(each.parts)]
    return list(dict.fromkeys(tuple(cell[each] for each in dimensions) for cell in cells))


def may_meet(one: AxisCut, part: int, other: AxisCut, other_part: int) -> bool:
    """Whether parts of two dimensions may have a value in common.

    Parameters
    ----------
    part, other_part
        By number, from 0.
    """
    if one == other:
        return part == other_part
    if not (one.is_modular and other.is_modular):
        return True
    return (part - other_part) % gcd(one.parts, other.parts) == 0
