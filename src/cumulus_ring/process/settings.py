"""What a ring of processes is started with, and what each of its nodes is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from cumulus.transport.connections import Address
from cumulus_ring.machine.settings import SECOND_US, RingMode, RingSettings

Transport: TypeAlias = Literal["auto", "tcp", "local"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)

BATCHES_AHEAD = 4
"""How many batches a scan asks for, and may have begun. With all of them at once most went by in vain: the 22 queries
of TPC-H at scale factor 1 took 58 s at a node, and take 10.
"""


@dataclass(frozen=True, slots=True)
class RingOptions:
    """How a ring runs; the same for all nodes.

    Parameters
    ----------
    source
        The folder with the tables.
    home
        The ring's own folder.
    nodes
        How many are started with it, beside the home; others may join.
    transport
        What chunks travel by: ``local`` hands memory on from process to process, ``tcp`` sends bytes; ``auto`` is
        ``local``, as all processes are on one computer.
    mode
        How chunks reach nodes that ask: round the ring, straight from their owners (``pull``), or straight while one
        node wants a chunk and round the ring from the second node on (``auto``).
    storage
        Bytes of chunks that a node may hold: a quarter each for its queue, for what comes in, for queries, and for
        whatever needs more.
    query_storage
        Bytes of it that queries may hold in place, all others being copied for them; None for what there is.
    memory
        Of each node's DuckDB, as DuckDB takes it, such as ``1GB``.
    threads
        Of the DuckDB of each node beside the home.
    queries
        How many a node runs at once.
    disk
        Bytes of the disk that a node's store may take; None for as many as there are.
    adopt
        Whether each node keeps all of its share, so that the source is not needed after the start.
    replicas
        How many nodes keep each chunk, if they adopt.
    disk_mb_s
        How fast a node reads from its store; 0 for as fast as it can.
    keep
        How many epochs of the tables can be asked for.
    faults
        What happens to chunks on their way, such as ``drop=0.01,delay-ms=5``.
    record
        Whether each node writes down what its machine was told, and what it said.
    failure_s
        A node that does not answer for so long is taken for lost.
    results
        Bytes of partial results that each node keeps for queries that come again; 0 for none.
    listen
        Where nodes of other computers join it, and clients ask, as HOST:PORT; empty for nowhere.
    address
        By which other computers reach this one; empty for that of `listen`.
    secret_file
        A file with what they must know; empty for one of the home.
    """

    source: str
    home: str
    nodes: int = 4
    transport: Transport = "auto"
    storage: int = 256_000_000
    query_storage: int | None = None
    memory: str = "1GB"
    threads: int = 1
    queries: int = 4
    disk: int | None = None
    adopt: bool = False
    replicas: int = 1
    disk_mb_s: float = 0.0
    keep: int = 3
    faults: str = ""
    record: bool = False
    failure_s: float = 10.0
    results: int = 64_000_000
    listen: str = ""
    address: str = ""
    secret_file: str = ""
    mode: RingMode = "ring"

    def names(self) -> tuple[str, ...]:
        """Return the names of the nodes that are started with the ring."""
        return tuple(f"node{number}" for number in range(1, self.nodes + 1))

    @property
    def door(self) -> Address | None:
        """Where the keeper of the ring listens; None if nowhere."""
        host, _, port = self.listen.rpartition(":")
        return (host.removeprefix("[").removesuffix("]"), int(port)) if self.listen else None

    @property
    def largest_batch(self) -> int:
        """How many bytes of chunks a scan may need for one batch."""
        return self.storage // 2

    def machine(self) -> RingSettings:
        """Return the settings of the nodes' machines.

        Own chunks are sent while there is credit for one more of the largest (E42), so that is an eighth of the memory.
        """
        quarter = self.storage // 4
        return RingSettings(
            queue_bytes=quarter,
            credit_bytes=quarter,
            dbms_bytes=quarter if self.query_storage is None else self.query_storage,
            neutral_bytes=quarter if self.query_storage is None else 0,
            largest_chunk=quarter // 2,
            reserve_after_us=SECOND_US,  # else smaller chunks may take the room of a large one for ever
            ask_ahead=BATCHES_AHEAD,
            asks_again=True,
            open_groups=BATCHES_AHEAD,
            mode=self.mode,
        )

    def to_json(self) -> str:
        """Return the options as `from_json` takes them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, said: str) -> RingOptions:
        """Return the options that `to_json` has written."""
        given: dict[str, Any] = json.loads(said)
        return cls(**given)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """What is a node's own, on its computer.

    Parameters
    ----------
    folder
        Where its store and what DuckDB spills are.
    source
        Where the files of the tables are; empty if they are on other computers alone.
    links
        Where links to them are that stay when the source lets them go; empty if there are none here.
    host
        The address at which it listens.
    address
        The one that others are told; empty for the same.
    threads
        Of its DuckDB.
    """

    folder: str
    source: str
    links: str = ""
    host: str = "127.0.0.1"
    address: str = ""
    threads: int = 1
