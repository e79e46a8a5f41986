"""Slots: 4,096 parts of all values by their hash, each on one node; so some can move to another node, and not all.

Without a table of slots a value lies on the node of its hash modulo the number of nodes, as in homes from before there
were slots: nearly all values lie elsewhere as soon as there is one node more.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from cumulus.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SLOTS = 4096
_BALANCE = 1.05
"""No node is to have more than this times its share, if slots allow it."""


class SlotTable:
    """The node of each slot.

    Parameters
    ----------
    nodes
        `SLOTS` of them, by number.

    Examples
    --------
    >>> table = SlotTable.of_runs([(0, 1), (1024, 0)])
    >>> table.nodes[1023], table.nodes[1024], table.runs()
    (1, 0, ((0, 1), (1024, 0)))
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        assert len(nodes) == SLOTS, len(nodes)
        self.nodes = tuple(nodes)
        self._hash = hash(self.nodes)
        self._array: npt.NDArray[np.int64] | None = None

    @classmethod
    def of_runs(cls, runs: Iterable[Sequence[int]]) -> SlotTable:
        """Return the table that `runs` has given."""
        starts = [*runs, (SLOTS, 0)]
        return cls([node for (at, node), (end, _) in pairwise(starts) for _ in range(at, end)])

    def runs(self) -> tuple[tuple[int, int], ...]:
        """Return the table in short: the first slot of each run of slots on one node, and the node."""
        return tuple((next(run)[0], node) for node, run in groupby(enumerate(self.nodes), key=lambda each: each[1]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotTable) and self._hash == other._hash and self.nodes == other.nodes

    def __hash__(self) -> int:
        return self._hash

    def take(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the node of each of some slots."""
        import numpy as np

        if self._array is None:
            self._array = np.asarray(self.nodes, np.int64)
        return self._array[slots]


def balanced_slots(weights: Sequence[float], nodes: int, before: SlotTable | None) -> SlotTable:
    """Return a table in which nodes have equal weights, as far as slots allow it, and few slots move.

    Parameters
    ----------
    weights
        Of each slot: what is to be equal. A slot without entries counts for a little, as some will come.
    nodes
        How many there are to be.
    before
        Where slots are; None where they are nowhere yet.

    Examples
    --------
    >>> table = balanced_slots([1.0] * SLOTS, 4, None)
    >>> [table.nodes.count(node) for node in range(4)]
    [1024, 1024, 1024, 1024]
    >>> more = balanced_slots([1.0] * SLOTS, 5, table)
    >>> sum(one != other for one, other in zip(table.nodes, more.nodes)) <= SLOTS // 5 + 5
    True
    """
    least = max(sum(weights), 1.0) / SLOTS / 100
    sizes = [max(weight, least) for weight in weights]
    found = [each if each < nodes else -1 for each in (before.nodes if before is not None else [-1] * SLOTS)]
    loads = [0.0] * nodes
    for node, size in zip(found, sizes, strict=True):
        if node >= 0:
            loads[node] += size
    _place_others(found, sizes, loads)
    most = _BALANCE * sum(sizes) / nodes
    lightest_first: list[list[int]] = [[] for _ in range(nodes)]
    for slot in sorted(range(SLOTS), key=lambda each: sizes[each]):
        lightest_first[found[slot]].append(slot)
    while loads[giver := max(range(nodes), key=loads.__getitem__)] > most:
        taker = min(range(nodes), key=loads.__getitem__)
        more = loads[giver] - loads[taker]
        given = next((each for each in reversed(lightest_first[giver]) if sizes[each] <= more / 2), None)
        if given is None:
            given = lightest_first[giver][0]
            if sizes[given] >= more:  # whoever has it has most
                break
        lightest_first[giver].remove(given)
        insort(lightest_first[taker], given, key=sizes.__getitem__)
        loads[giver] -= sizes[given]
        loads[taker] += sizes[given]
        found[given] = taker
    return SlotTable(found)


def _place_others(found: list[int], sizes: Sequence[float], loads: list[float]) -> None:
    """Put the slots that are nowhere, the heaviest first, each on the node that has least."""
    free = [slot for slot, node in enumerate(found) if node < 0]
    least = [(load, node) for node, load in enumerate(loads)]
    heapq.heapify(least)
    for slot in sorted(free, key=lambda each: (-sizes[each], each)):
        load, node = heapq.heappop(least)
        found[slot] = node
        loads[node] = load + sizes[slot]
        heapq.heappush(least, (loads[node], node))


def moved_slots(before: SlotTable, texts: Sequence[str], nodes: int) -> SlotTable:
    """Return a table after moves as a user writes them, ``0-99=node1`` or ``7=node0``, one after the other.

    Raises
    ------
    UsageError
        If one is no move, or of slots or to a node that there are not.

    Examples
    --------
    >>> moved_slots(SlotTable([0] * SLOTS), ["0-1023=node1", "0=node2"], 3).runs()
    ((0, 2), (1, 1), (1024, 0))
    """
    found = list(before.nodes)
    for text in texts:
        slots, _, node = text.partition("=")
        first, dash, last = slots.partition("-")
        numbers = [first, last if dash else first, node.removeprefix("node")]
        if not node.startswith("node") or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise UsageError(f"--move {text} is none", hint="Write SLOTS=NODE, such as --move 0-99=node1.")
        begin, end, to = (int(each[:9]) for each in numbers)
        if not begin <= end < SLOTS:
            raise UsageError(f"--move {text}: no such slots", hint=f"They are 0 to {SLOTS - 1}; write the least first.")
        if to >= nodes:
            raise UsageError(f"--move {text}: there is no {node}", hint=f"There are node0 to node{nodes - 1}.")
        found[begin : end + 1] = [to] * (end + 1 - begin)
    return SlotTable(found)


def table_of_hash(nodes: int) -> SlotTable | None:
    """Return where slots are without a table; None where nodes have parts of slots."""
    return SlotTable([slot % nodes for slot in range(SLOTS)]) if SLOTS % nodes == 0 else None
