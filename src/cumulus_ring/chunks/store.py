"""The owner's disk: encoded chunks in files, which are checked at every read.

A chunk is encoded from its Parquet file when it is first loaded, and kept: a file of 64 bytes that say what it is, and
the stream. Beyond the limit, what was used longest ago is dropped; it can be encoded again. So can what is damaged or
gone, as long as the source is there; else there is one error that says which chunk of which table it was, and where.

`adopt` encodes a node's whole share, after which the source may go: what is adopted is on the disk as safely as any
file, and never dropped for room. `retain` removes what no version of the source has any more. A store belongs to one
process, and to one thread of it at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from cumulus.durable.files import open_synced, written_aside
from cumulus.durable.folders import lock_file_soon, sync_folder
from cumulus.errors import ChunkDamagedError, ChunkMissingError, ChunkTooLargeError, InputError, LockedError, StoreError
from cumulus_ring.chunks.catalogue import Chunk
from cumulus_ring.chunks.disk_rate import DiskRate
from cumulus_ring.chunks.encoding import encode
from cumulus_ring.chunks.ids import file_name
from cumulus_ring.chunks.parquet_files import read_chunk

_HEAD = struct.Struct("<8sQQI")
_HEAD_BYTES = 64
_MAGIC = b"cumulus1"
_NAME = re.compile("[0-9a-f]{16}")


@dataclass
class StoreCounts:
    """What a store has done: chunks read, encoded, dropped, and found damaged; bytes of chunks that it has given."""

    read: int = 0
    encoded: int = 0
    dropped: int = 0
    damaged: int = 0
    loaded_bytes: int = 0


class ChunkStore:
    """Encoded chunks in a folder.

    Parameters
    ----------
    folder
        Made if it is not there; what is in it from before is used.
    node
        Whose it is, to be told in errors.
    limit
        Bytes of the disk that it may take; None for as many as there are.
    rate
        How fast chunks may be read; None for as fast as the disk is. A chunk counts with its bytes on the wire, also
        when it is encoded.
    largest
        Bytes that a chunk may have when it is loaded; None for any number. The catalogue estimates what texts take,
        and a node has no room for more than it was started with.

    Raises
    ------
    LockedError
        If another process uses the folder.
    StoreError
        If the folder cannot be written.
    """

    def __init__(
        self,
        folder: str | Path,
        node: str,
        limit: int | None = None,
        rate: DiskRate | None = None,
        largest: int | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.node = node
        self.limit = limit
        self.rate = rate
        self.largest = largest
        self.counts = StoreCounts()
        self._sizes: OrderedDict[int, int] = OrderedDict()  # what was used longest ago comes first
        self._adopted: set[int] = set()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock: IO[bytes] | None = lock_file_soon(self.folder / ".lock")
            if lock is None:
                raise LockedError(
                    f"{self.folder}: another node uses this store", hint="Stop it, or use another folder."
                )
            self._lock = lock
            self._find()
        except OSError as problem:
            raise self._unwritable(problem) from None
        self._make_room(0)

    def close(self) -> None:
        """Give the folder free."""
        self._lock.close()

    @property
    def bytes(self) -> int:
        """How many bytes of the disk it takes; any thread may ask."""
        return sum(list(self._sizes.values()))

    def load(self, chunk: Chunk) -> pa.Buffer:
        """Return a chunk as `cumulus_ring.chunks.encoding.decode` takes it.

        Raises
        ------
        ChunkMissingError
            If neither the store nor the source has it.
        ChunkDamagedError
            If it is damaged here, or its file is, and cannot be encoded again.
        ChunkTooLargeError
            If no node takes it.
        StoreError
            If the disk takes nothing more.
        """
        return self._load(chunk, self.largest)[0]

    def adopt(
        self,
        chunks: Collection[Chunk],
        told: Callable[[int, int], None] | None = None,
        lacking: list[Chunk] | None = None,
    ) -> None:
        """Keep chunks, whatever becomes of their source, until `retain` says otherwise; those that are kept stay so.

        Parameters
        ----------
        told
            Called after each chunk with how many are done, and how many there are.
        lacking
            Gets the chunks that neither the store nor the source has; without it that is an error.

        Raises
        ------
        StoreError
            If the limit has no room for them, or the disk has none.
        ChunkMissingError, ChunkDamagedError
            As `load`. What could be adopted before stays in the store, but may be dropped.
        """
        # All of them first, so that none makes room for another.
        new = {chunk.id for chunk in chunks} - self._adopted
        self._adopted |= new
        try:
            for done, chunk in enumerate(chunks, 1):
                if chunk.id in new:
                    try:
                        _, is_new = self._load(chunk, None)
                    except (ChunkMissingError, ChunkDamagedError):
                        if lacking is None:
                            raise
                        lacking.append(chunk)
                        self._adopted.discard(chunk.id)
                        continue
                    if not is_new:
                        self._sync(chunk.id)
                    self._check_room()
                if told is not None:
                    told(done, len(chunks))
        except BaseException:
            self._adopted -= new
            raise

    def take(self, chunk: Chunk, stream: pa.Buffer, *, is_adopted: bool) -> None:
        """Keep a chunk that another node has encoded.

        Raises
        ------
        StoreError
            If the disk does not take it; or the limit, and it is to be adopted.
        """
        if is_adopted:
            self._adopted.add(chunk.id)
        self._keep(chunk, stream, durably=is_adopted)
        if is_adopted:
            self._check_room()

    def retain(self, known: Collection[int]) -> None:
        """Remove all chunks but some, adopted or not: those that a version of the source has.

        Raises
        ------
        StoreError
            If the disk does not do it.
        """
        gone = [chunk for chunk in self._sizes if chunk not in known]
        self._adopted.intersection_update(known)
        try:
            for chunk in gone:
                del self._sizes[chunk]
                self._path(chunk).unlink(missing_ok=True)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _load(self, chunk: Chunk, largest: int | None) -> tuple[pa.Buffer, bool]:
        """Return a chunk, and whether it had to be encoded."""
        stream, problem = self._read(chunk)
        is_new = stream is None
        if stream is None:
            stream = self._encode(chunk, problem)
        if largest is not None and stream.size > largest:
            raise ChunkTooLargeError(
                f"{chunk} has {stream.size:,} bytes, and nodes take {largest:,}",
                chunk=chunk.id,
                table=chunk.table,
                node=self.node,
                hint=f"Write {chunk.file.path} with smaller row groups, or give nodes more with --storage.",
            )
        if is_new:
            self._keep(chunk, stream, durably=chunk.id in self._adopted)
        self._use(chunk.id)
        self.counts.loaded_bytes += stream.size
        if self.rate is not None:
            self.rate.take(stream.size)
        return stream, is_new

    # --- Files --------------------------------------------------------------------------------------------------------

    def _path(self, chunk: int) -> Path:
        return self.folder / file_name(chunk)

    def _find(self) -> None:
        found: list[tuple[int, int, int]] = []
        for file in self.folder.iterdir():
            if file.name.startswith(".") and file.name != ".lock":
                file.unlink()  # what was being written when a process ended
            elif _NAME.fullmatch(file.name):
                facts = file.stat()
                found.append((facts.st_mtime_ns, int(file.name, 16), facts.st_size))
        for _, chunk, size in sorted(found):
            self._sizes[chunk] = size

    def _use(self, chunk: int) -> None:
        if chunk in self._sizes:
            self._sizes.move_to_end(chunk)
            with contextlib.suppress(OSError):  # only the order of the next process is lost
                os.utime(self._path(chunk))

    def _read(self, chunk: Chunk) -> tuple[pa.Buffer | None, str]:
        """Return what the store has of a chunk, or what is wrong with it: "missing" or "damaged"."""
        try:
            with self._path(chunk.id).open("rb") as file:
                head = file.read(_HEAD_BYTES)
                size = os.fstat(file.fileno()).st_size - _HEAD_BYTES
                stream = pa.allocate_buffer(max(size, 0))
                count = file.readinto(memoryview(stream).cast("B")) if size > 0 else 0
        except FileNotFoundError:
            self._sizes.pop(chunk.id, None)
            return None, "missing"
        except OSError:  # a disk that cannot read what it has
            head, count, size = b"", 0, -1
        if size > 0 and count == size and head == _head(chunk.id, stream):
            self.counts.read += 1
            return stream, ""
        self.counts.damaged += 1
        return None, "damaged"

    def _encode(self, chunk: Chunk, problem: str) -> pa.Buffer:
        try:
            stream = encode(read_chunk(chunk))
        except FileNotFoundError:
            error = ChunkDamagedError if problem == "damaged" else ChunkMissingError
            raise error(
                f"{chunk} is {'damaged' if problem == 'damaged' else 'gone'} at node {self.node}, and so is its file",
                chunk=chunk.id,
                table=chunk.table,
                node=self.node,
                hint=f"Bring {chunk.file.path} back, or ask about a later epoch.",
            ) from None
        except InputError as reason:
            raise ChunkDamagedError(
                f"{chunk} cannot be made at node {self.node}: {reason.message}",
                chunk=chunk.id,
                table=chunk.table,
                node=self.node,
                hint=reason.hint,
            ) from None
        self.counts.encoded += 1
        return stream

    def _keep(self, chunk: Chunk, stream: pa.Buffer, *, durably: bool) -> None:
        size = _HEAD_BYTES + stream.size
        self._sizes.pop(chunk.id, None)
        self._make_room(size)
        place = self._path(chunk.id)
        head = _head(chunk.id, stream)
        try:
            if not durably and self.limit is not None and self.bytes + size > self.limit:
                place.unlink(missing_ok=True)
                return
            with written_aside(place) as aside, open_synced(aside) if durably else aside.open("wb") as file:
                file.write(head)
                file.write(memoryview(stream))
            if durably:
                sync_folder(self.folder)
        except OSError as problem:
            raise self._unwritable(problem) from None
        self._sizes[chunk.id] = size

    def _make_room(self, size: int) -> None:
        """Drop what was used longest ago until there is room for some bytes, or nothing is left to drop."""
        if self.limit is None:
            return
        used = self.bytes
        for chunk in [each for each in self._sizes if each not in self._adopted]:
            if used + size <= self.limit:
                return
            used -= self._sizes.pop(chunk)
            self._path(chunk).unlink(missing_ok=True)
            self.counts.dropped += 1

    def _check_room(self) -> None:
        if self.limit is not None and self.bytes > self.limit:
            raise StoreError(
                f"node {self.node}: its share of the tables takes more than the {self.limit} bytes of its disk",
                hint="Give it more with --disk, or start more nodes.",
            )

    def _sync(self, chunk: int) -> None:
        try:
            with self._path(chunk).open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(self.folder)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> StoreError:
        return StoreError(
            f"{self.folder}: the store of node {self.node} cannot be written: {problem.strerror}",
            hint="Make room or allow it, or give less of the disk with --disk.",
        )


def _head(chunk: int, stream: pa.Buffer) -> bytes:
    return _HEAD.pack(_MAGIC, chunk, stream.size, zlib.crc32(stream)).ljust(_HEAD_BYTES, b"\0")
