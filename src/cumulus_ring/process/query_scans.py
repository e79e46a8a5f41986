"""The scans of one query on the ring: what it asks for, and the feeds that take what comes.

Between a feed and the machine there is one rule: each pull of a feed is told, and takes one batch that is complete, or
will be. What the machine hands over is offered to the feed of its scan by whichever thread has stepped the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from cumulus.errors import EpochMissingError, RingError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Catalogue, ChunkedTable, ChunkGroup
from cumulus_ring.chunks.fitting import check_fits
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.chunks.versions import SourceVersions
from cumulus_ring.machine.messages import ChunkId, PullBlocked, ScanEnded
from cumulus_ring.nodes.feed import ArrivalFeed
from cumulus_ring.nodes.planning import QueryPlan, ScanNeed
from cumulus_ring.nodes.query_pace import QueryPace
from cumulus_ring.process.host import RingHost

RowGroupId: TypeAlias = tuple[bytes, int]
"""The digest of a file, and the number of a row group in it."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of a table that a query may read.

    Parameters
    ----------
    groups
        Those of its row groups that are to be read: digest of the file, and number.
    """

    table: str
    groups: frozenset[RowGroupId]

    def of(self, need: ScanNeed, groups: list[ChunkGroup]) -> list[ChunkGroup]:
        """Return those batches of a scan that are to be read: all, if it reads another table."""
        if need.occurrence.table.name != self.table:
            return groups
        return [each for each in groups if (each.file.digest, each.row_group.number) in self.groups]


def owned_groups(table: ChunkedTable, member: Name, members: Collection[Name]) -> frozenset[RowGroupId]:
    """Return the row groups of a table that a node owns if the ring has these members."""
    every = ((file.digest, group.number) for file in table.files for group in file.row_groups)
    return frozenset(each for each in every if owner(*each, members) == member)


class QueryScans:
    """What one query reads, from its plan to its end (`cumulus_ring.nodes.queries.QueryFeeds`).

    Parameters
    ----------
    catalogue
        The version of the tables that the query is about, one of `versions`.
    most
        Bytes of chunks that a batch may have.
    pace
        Is told how long the query took.
    own
        The rows to which a table is restricted; None for all rows of all tables.

    Raises
    ------
    RingError
        If a batch has more.
    """

    def __init__(
        self,
        host: RingHost,
        versions: SourceVersions,
        catalogue: Catalogue,
        plan: QueryPlan,
        most: int,
        pace: QueryPace,
        own: OwnRows | None = None,
    ) -> None:
        self._own = own
        self._host = host
        self._versions = versions
        self._most = most
        self._catalogue = catalogue
        self._state = threading.Lock()  # inside the host's, where both are held
        self._error: RingError | None = None
        self._feeds: dict[int, ArrivalFeed] = {}
        self._numbers: dict[ArrivalFeed, int] = {}
        asked = [self._groups(need) for need in plan.scans]
        self._unopened = [(number, *each) for number, each in enumerate(zip(plan.scans, asked, strict=True))]
        every = {chunk for groups in asked for group in groups for chunk in group}
        self._moved = sum(catalogue.chunks[chunk].size for chunk in host.lacking(every))
        self._pace, self._begin = pace, time.monotonic()
        self.id = host.ask(self, asked)

    # --- the engine's side ------------------------------------------------------------------------------------------

    def open(self, need: ScanNeed) -> ArrivalFeed:
        """Return the feed of a scan that starts; one that starts once more is asked for once more."""
        with self._state:
            known = next((each for each in self._unopened if each[1] == need), None)
            if known is not None:
                self._unopened.remove(known)
        if known is not None:
            number, _, groups = known
        else:
            groups = self._groups(need)
            number = self._host.ask_again(self.id, groups)
        table = need.occurrence.table.schema
        schema = pa.schema([table.field(column) for column in need.columns])
        feed = ArrivalFeed(dict(enumerate(groups)), schema, self)
        with self._state:
            self._numbers[feed] = number
            self._feeds[number] = feed
            error = self._error
        if error is not None:
            feed.fail(error)
        return feed

    def end(self) -> None:
        """The query is over."""
        self._host.end(self.id)
        self._pace.add(time.monotonic() - self._begin, self._moved)

    def waits(self, feed: ArrivalFeed) -> None:
        """A pull of a feed takes a batch."""
        self._host.tell(PullBlocked(self.id, self._numbers[feed]))

    def ended(self, feed: ArrivalFeed) -> None:
        """A feed wants no more."""
        self._host.tell(ScanEnded(self.id, self._numbers[feed]))

    # --- the machine's side, under the host's lock ------------------------------------------------------------------

    def take(self, scan: int, chunk: ChunkId, batch: pa.RecordBatch) -> bool:
        """Give a chunk to the feed of its scan."""
        return self._feeds[scan].offer(chunk, batch)

    def fail(self, reason: str) -> None:
        """Let all feeds raise, and those that are opened later."""
        epoch = self._catalogue.version
        error = RingError(reason)
        if epoch not in self._versions.epochs:
            error = EpochMissingError(
                f"the ring has let go of epoch {epoch} while the query read it",
                epochs=self._versions.epochs,
                hint="Ask again, about the last one; or start the ring with a larger --keep.",
            )
        with self._state:
            self._error = error
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.fail(error)

    def _groups(self, need: ScanNeed) -> list[tuple[ChunkId, ...]]:
        """Return the chunks of each batch of a scan."""
        groups = self._catalogue.table(need.occurrence.table.name).groups(need.columns, need.predicates)
        if self._own is not None:
            groups = self._own.of(need, groups)
        check_fits(groups, self._most)
        return [tuple(chunk.id for chunk in group.chunks) for group in groups]
