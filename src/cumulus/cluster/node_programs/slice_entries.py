"""Entries that nodes ask each other for: how they are asked for, and where they are put to be read.

`SliceEntries` are for blocks that are computed one after the other; `LoggedSlices` and `KeptSlices` for blocks that are
computed at once and corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.node_programs.send_logs import AHEAD
from cumulus.engine.frames.frame import MapFrame, concat


class SliceEntries:
    """The slices of a node's program (`cumulus.cluster.node_programs.target_program`)."""

    def __init__(self, maps: NodeMaps) -> None:
        self._maps, self._slices = maps, maps.made.slices

    def ask(self, number: int, version: int, keys: pa.Table | None) -> MapFrame:
        """Return entries that somebody asks for, as rows of the map of what was got.

        Parameters
        ----------
        number, version
            Of the slice, and of the block that reads it.
        keys
            Its bound keys, each row once; None where none is bound.
        """
        asked = self._slices[number]
        self._maps.apply(asked.asked, _asked_rows(self._maps, asked.asked, keys, version))
        return self._maps.taken(asked.got)

    def give(self, number: int, entries: MapFrame) -> None:
        """Put entries of a slice where the statements of the next block read them."""
        self._maps.put(self._slices[number].got, entries)

    def clear(self, relation: str) -> None:
        """Forget what was got for a block of a base relation."""
        for each in self._slices:
            if each.relation == relation:
                self._maps.taken(each.got)

    def clear_all(self) -> None:
        """Forget what was got for any block."""
        for each in self._slices:
            self._maps.taken(each.got)


class SentSlices:
    """Slices of which it is noted who was sent them (`cumulus.cluster.node_programs.send_logs`).

    Frames of entries and of their deltas have the version as their last key: that of the block, or of the delta.
    """

    def __init__(self, maps: NodeMaps) -> None:
        self._maps, self._slices, self._logs = maps, maps.made.slices, maps.made.logs

    def together(self, number: int, frames: Sequence[MapFrame]) -> MapFrame:
        """Return the rows of some frames of a slice in one frame."""
        return concat(self._maps.in_one_form(self._logs[number].answered, frames))

    def _answer(self, number: int, relation: str, keys: pa.Table | None, *numbers: int) -> MapFrame:
        self._maps.apply(relation, _asked_rows(self._maps, relation, keys, *numbers))
        return self._maps.taken(self._logs[number].answered)

    def take_owed(self) -> Iterator[tuple[int, int, MapFrame]]:
        """Yield the deltas that nodes must be told: number of the slice, of the node, deltas; then forget them."""
        taken = self._maps.taken_all({logs.owed: number for number, logs in enumerate(self._logs)})
        for number, owed in sorted(taken.items()):
            place = len(owed.layout.keys) - 1
            nodes = owed.numbers(place)
            for node in np.unique(nodes).tolist():
                yield number, node, owed.filter(nodes == node).without_key(place)

    def clear_sent(self) -> None:
        """Forget what was sent."""
        for logs in self._logs:
            self._maps.taken(logs.sent)

    def _change_sent(self, change: Callable[[MapFrame], MapFrame]) -> None:
        for logs in self._logs:
            sent = self._maps.taken(logs.sent)
            if sent.rows:
                self._maps.put(logs.sent, change(sent))

    def renumber(self, less: int) -> None:
        """Take something away from the versions for which something was sent."""

        def earlier(sent: MapFrame) -> MapFrame:
            numbers = sent.value_numbers(0)
            return sent.with_value_numbers(0, np.where(numbers == AHEAD, AHEAD, np.maximum(numbers - less, 1)))

        self._change_sent(earlier)


class LoggedSlices(SentSlices):
    """The slices of a node's program with all four logs (`cumulus.cluster.node_programs.four_logs_program`)."""

    def ask(self, number: int, node: int, version: int, keys: pa.Table | None, *, is_late: bool) -> MapFrame:
        """Return entries as they are before a version, and note that a node gets them.

        Parameters
        ----------
        number
            Of the slice.
        keys
            Its bound keys, each row once; None where none is bound.
        is_late
            Whether the map may have deltas of this version or later ones.
        """
        relation = self._logs[number].asked_late if is_late else self._slices[number].asked
        return self._answer(number, relation, keys, node, version)

    def give(self, number: int, entries: MapFrame) -> None:
        """Take in what was sent for blocks that are not computed yet."""
        self._maps.put(self._slices[number].got, entries)

    def correct(self, number: int, deltas: MapFrame) -> None:
        """Correct what was got for blocks that were computed, and what these have added."""
        logs = self._logs[number]
        self._maps.tell(logs.corrected, logs.answered, deltas)

    def cut(self, end: int) -> None:
        """Forget what was sent for versions up to one: nothing will be late for them."""
        self._change_sent(lambda sent: sent.filter(sent.value_numbers(0) > end + 1))


class KeptSlices(SentSlices):
    """The slices of a node's program where what was got stays (`cumulus.cluster.node_programs.elided_program`)."""

    def ask(self, number: int, node: int, version: int, keys: pa.Table | None, oldest: int) -> MapFrame:
        """Return what a node has not been sent of entries before a version, as deltas; note that it is now.

        Parameters
        ----------
        number
            Of the slice.
        keys
            Its bound keys, each row once; None where none is bound.
        oldest
            A version below all that are there; what is older has this one.
        """
        return self._answer(number, self._slices[number].asked, keys, node, version, oldest)

    def forget_versions(self, end: int) -> None:
        """Note what is owed of the deltas up to a version to nodes that have asked for something before it."""
        for each, logs in zip(self._slices, self._logs, strict=True):
            deltas = self._maps.overlay(each.map)
            old = deltas.filter(self._maps.versions(each.map, deltas) <= end)
            if old.rows and self._maps.engine.size(logs.sent):
                self._maps.tell(logs.unsent, self._maps.made.overlays[each.map].since, old)
        self._change_sent(lambda sent: sent.with_value_numbers(0, np.maximum(sent.value_numbers(0), end + 2)))

    def look_no_further(self, seen: Mapping[str, int]) -> None:
        """Note of those who are told of all changes that they have been told so far, and must ask again.

        Parameters
        ----------
        seen
            Map → the version below which deltas will be late: what they have been sent is for that one.
        """
        for each, logs in zip(self._slices, self._logs, strict=True):
            sent = self._maps.taken(logs.sent)
            if sent.rows:
                numbers = sent.value_numbers(0)
                told = np.where(numbers == AHEAD, seen[each.map] + 1, numbers)
                self._maps.put(logs.sent, sent.with_value_numbers(0, told))

    def clear_got(self) -> None:
        """Forget what was got."""
        for each in self._slices:
            self._maps.taken(each.got)
            self._maps.taken(self._maps.made.overlays[each.got].since)


def _asked_rows(maps: NodeMaps, relation: str, keys: pa.Table | None, *numbers: int) -> pa.Table:
    """Return bound keys as rows of a relation by which a slice is asked for, with some numbers behind them."""
    rows = 1 if keys is None else keys.num_rows
    columns = [*([] if keys is None else keys.columns), *(pa.array(np.full(rows, each, np.int64)) for each in numbers)]
    return pa.table(columns, names=list(maps.made.program.relation(relation).column_names))
