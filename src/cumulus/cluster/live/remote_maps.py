"""The maps of spread views, as their owners have them at the moment: what a client reads to finish tentative rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cumulus.algebra.float_sums import read_stored
from cumulus.cluster.clients.reads import key_sent
from cumulus.cluster.messages import EntriesRead, ReadEntries, node_name, switch_name
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.engine.frames.entries import entries_of
from cumulus.engine.frames.unbounded import frame_of_bytes
from cumulus.m3.program import MapDef
from cumulus.machine import Name
from cumulus.views.entries import Key, Values, WholeMaps


class RemoteMaps:
    """Entries of the nodes, as one read of a view needs them; a map that is needed whole is asked for once.

    It is a `cumulus.views.entries.MapSource`.

    Parameters
    ----------
    ask
        Asks a machine; gives what it answers.
    given
        Map → place of a key → the value that entries must have there; others do not matter to the reader.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        ask: Callable[[Name, Callable[[int], ReadEntries]], list[EntriesRead]],
        given: Mapping[str, Mapping[int, Any]],
    ) -> None:
        self._plan, self._ask, self._given = plan, ask, given
        self._program = plan.division.spread
        self._numbers = {each.name: at for at, each in enumerate(self._program.maps)}
        self._whole = WholeMaps(self._entries)
        self.versions: dict[str, int] = {}
        """Switch → the last version that may be in what was read."""

    # --- as views ask -----------------------------------------------------------------------------------------------

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        node = self._plan.layout.owner_of(map, key)
        return next((values for _, values in self._asked(node, map, dict(enumerate(key)))), None)

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        return iter(self._whole.entries(map).items())

    def stored_count(self, map: str) -> int:
        """Return how many entries there are."""
        return len(self._whole.entries(map))

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries that have `values` at `positions`."""
        for key, numbers in self.items(map):
            if tuple(key[place] for place in positions) == values:
                yield key, numbers

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice; see `cumulus.views.entries.Entries.end`."""
        return self._whole.end(map, end, axis, others, column)

    def columns(self, map: str) -> None:
        """Return None: entries are tuples."""

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> None:
        """Return None: nothing is kept in order."""

    def in_order(self, map: str, axis: int, descending: bool) -> None:
        """Return None: nothing is kept in order."""

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _entries(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the entries of all owners."""
        given = self._given.get(map, {})
        nodes = self._plan.layout.regions[map].nodes_with({place: [value] for place, value in given.items()})
        for node in sorted(nodes):
            yield from self._asked(node, map, given)

    def _asked(self, node: int, map: str, given: Mapping[int, Any]) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries that a node owns and that have these values."""
        definition = self._plan.nodes_program.program.map(map)
        places = sorted(given)
        key = key_sent(definition, places, [given[place] for place in places])
        parts = self._ask(node_name(node), lambda number: ReadEntries(number, self._numbers[map], places, key))
        for part in parts:
            for switch, version in part.versions.items():
                name = switch_name(int(switch))
                self.versions[name] = max(self.versions.get(name, 0), version)
            frame = frame_of_bytes(definition, part.frame)
            for each, stored in entries_of(frame):
                values = read_stored(definition.values, stored)
                if _exists(definition, values):
                    yield each, values


def _exists(definition: MapDef, values: Values) -> bool:
    return bool(values[definition.column_index(definition.count)]) if definition.count else any(values)
