"""The state of a bucket as a value: what a snapshot of it holds."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.epochs.bucket.net_changes import InputChange
from cumulus.epochs.bucket.positions import DumpedPositions
from cumulus.scalars.python_code import canonical


@dataclass(frozen=True, slots=True)
class BucketContents:
    """All that a bucket remembers from one epoch to the next.

    Parameters
    ----------
    maps
        Map → everything that is stored in it, as `cumulus.engine.snapshot.dump` has it.
    positions
        Table → the last position of each primary key, as `TablePositions.dump` has it.
    waiting
        The changes that wait, in their order.
    """

    maps: Mapping[str, pa.Table]
    positions: Mapping[str, DumpedPositions]
    waiting: Sequence[InputChange]

    def pack(self) -> bytes:
        """Return the state as bytes, compressed; `unpack` reads them back."""
        maps = {name: to_ipc(table) for name, table in self.maps.items()}
        rest = pickle.dumps((dict(self.positions), [tuple(change) for change in self.waiting]), protocol=5)
        return pickle.dumps((maps, len(rest), pa.compress(rest, codec="lz4", asbytes=True)), protocol=5)

    @classmethod
    def unpack(cls, data: bytes) -> BucketContents:
        """Return the state that `pack` has made bytes of."""
        packed, size, compressed = pickle.loads(data)
        positions, waiting = pickle.loads(pa.decompress(compressed, size, codec="lz4", asbytes=True))
        maps = {name: from_ipc(table) for name, table in packed.items()}
        return cls(maps, positions, [_restored(InputChange(*each)) for each in waiting])


def _restored(change: InputChange) -> InputChange:
    """Return a change whose row equals others with its values: pickle makes another NaN of each."""
    return change._replace(row=tuple(map(canonical, change.row)))
