"""The output of a cluster, read over a link to its publisher by a client that does not see the home."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import Any, NoReturn

import pyarrow as pa

from cumulus.cluster.live.cluster_places import AgentPlace, HomePlace
from cumulus.cluster.live.known_layout import KnownLayout
from cumulus.cluster.live.links import ClientLinks
from cumulus.cluster.output_files import ListOutput, OutputListed, OutputRead, ReadOutput
from cumulus.cluster.publisher import PUBLISHER
from cumulus.durable.store import Place, Store, StoredFile
from cumulus.errors import CumulusError

_PART_BYTES = 8 << 20


def output_of(
    place: HomePlace | AgentPlace, layout: KnownLayout, new_links: Callable[[], ClientLinks], timeout_s: float
) -> Place:
    """Return where the output of a cluster is read: the home, or over links where that is not seen.

    Parameters
    ----------
    place, layout, timeout_s
        As `LinkStore` takes them, the place for its address.
    new_links
        Makes links.
    """
    return place.home if isinstance(place, HomePlace) else LinkStore(str(place), layout, new_links(), timeout_s)


class LinkStore(Store):
    """A store of which nothing but reading is possible.

    Parameters
    ----------
    address
        What errors call it.
    layout
        On which the links must agree with the publisher.
    links
        Its own: several threads may read.
    timeout_s
        How long one answer may take.
    """

    def __init__(self, address: str, layout: KnownLayout, links: ClientLinks, timeout_s: float) -> None:
        self.address, self._layout = address, layout
        self._links, self._timeout_s = links, timeout_s
        self._lock, self._number = Lock(), 0

    def close(self) -> None:
        """Close the links."""
        with self._lock:
            self._links.close()

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        parts: list[bytes] = []
        read = 0
        while True:
            found = self._read(name, read, _PART_BYTES)
            parts.append(found.data)
            read += len(found.data)
            if read >= found.size or not found.data:
                return b"".join(parts)

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has, None if it is not there."""
        try:
            return self._read(name, 0, 0).size
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "", after: str = "") -> list[StoredFile]:
        """Return the files in a folder and those below, in the order of their names."""
        listed: OutputListed = self._ask(lambda number: ListOutput(number, prefix, after))
        return [StoredFile(*each) for each in listed.files]

    def open(self, name: str) -> Any:
        """Return what Arrow reads a file from."""
        return pa.BufferReader(self.get(name))

    def _read(self, name: str, begin: int, most: int) -> OutputRead:
        found: OutputRead = self._ask(lambda number: ReadOutput(number, name, begin, most))
        if found.size < 0:
            raise FileNotFoundError(2, "no such file", self.place(name))
        return found

    def _ask(self, message_of: Callable[[int], Any]) -> Any:
        with self._lock:
            self._number += 1
            message, until = message_of(self._number), time.monotonic() + self._timeout_s
            try:
                ask = partial(self._links.ask, PUBLISHER, message, until)
                (answer,) = self._layout.agreed(ask, self._links, until)
            except CumulusError as problem:
                raise OSError(5, problem.message, self.address) from None
        return answer

    # --- what only the publisher does -------------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> bool:
        """Refuse it."""
        self._refuse()

    def put(self, name: str, data: bytes) -> None:
        """Refuse it."""
        self._refuse()

    def delete(self, name: str) -> None:
        """Refuse it."""
        self._refuse()

    def write_new(self, name: str, table: pa.Table) -> None:
        """Refuse it."""
        self._refuse()

    def write_new_bytes(self, name: str, data: bytes) -> None:
        """Refuse it."""
        self._refuse()

    def settle(self, names: Iterable[str]) -> None:
        """Refuse it."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PermissionError(1, "the output of a cluster is written by its publisher alone", self.address)
