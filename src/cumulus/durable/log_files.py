"""A log: records with numbers, appended in groups, in files of a folder. Machines of a cluster and servers keep one.

A group is what was written, and synced, together: a header (magic, checksum, bytes of the body, number of records,
number of the first), the records' lengths, the records. Lengths have 32 bits, or 64 where the body needs them: another
magic tells. A group is written only after the one before it is on the disk.
So a group that cannot be read was torn by the end of the process or of the machine if none comes behind it, and nobody
was ever told that it is there: it is cut. If one comes behind it, or another file, it was on the disk once, and has
been damaged since: that is an error, since what it held is gone. Whoever ends in peace writes an empty group last, so
that only after a crash damage of the very last group cannot be told from a torn end.

A file is named by the number of its first record. Files whose records are all forgotten are removed, but for the
newest.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias

from cumulus.durable.folders import HeldFolder, identity_of, lock_file_soon, sync_folder
from cumulus.errors import LockedError, StoreError, StoreLostError

SyncPolicy: TypeAlias = Literal["always", "never"]
"""Whether a group is synced, or left to the system: then it survives the process, but not the machine."""

_MAGIC, _WIDE_MAGIC, _ANY_MAGIC = b"CLG1", b"CLG2", b"CLG"
_HEADER, _WIDE_HEADER = struct.Struct("<4sIIIQ"), struct.Struct("<4sIQQQ")
_NARROW_BYTES = (1 << 32) - 1
"""The most bytes in the body of a group whose header has 32 bits for them; longer ones have the wide header."""
_SYNCS: Final = 32
"""Over so many the time that a sync takes is averaged."""
_SEGMENT_BYTES: Final = 1 << 24
"""From this size on a file gets no more groups."""
_LOOK_S: Final = 1.0
"""All files of a log are looked at so often."""
_TICK_NS: Final = 100_000_000
"""A folder that was changed less than so long ago may change again without another time of change."""
_RESTORE: Final = "Bring the file back as it was, or restore the folder from a copy, and start again."


class RecordLog:
    """A log in a folder, for one process at a time: `recover` or `groups` first, then `write` and `forget`.

    Raises
    ------
    LockedError
        If another process has the folder.
    StoreError
        If there can be no folder.
    """

    def __init__(self, folder: Path, *, sync: SyncPolicy = "always", segment_bytes: int = _SEGMENT_BYTES) -> None:
        self.folder = folder
        self.last = 0
        self._is_synced = sync == "always"
        self._segment_bytes = segment_bytes
        self._segments: list[int] = []  # numbers of the files' first records
        self._states: dict[int, tuple[int, int, int]] = {}  # device, inode and bytes of all but the newest
        self._file: FileIO | None = None
        self._bytes = 0  # of the newest file
        self._written = (0, 0)  # records and bytes of the group that was written last, in the newest file
        self._is_torn = False  # whether behind these bytes may stand what a failed write has left
        self._sync_ms: deque[float] = deque(maxlen=_SYNCS)
        self.facts: dict[str, object] = {"sync_ms": 0.0}
        """For who asks how it is: how long a sync takes, the mean of the last ones."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = lock_file_soon(folder / "lock")
        except OSError as problem:
            raise self._error(problem) from None
        if lock is None:
            raise LockedError(f"{folder}: another process writes this log", hint="Wait for it, or stop it.")
        self._lock, self._held = lock, HeldFolder(folder)
        self._entries_ns = 0  # when entries of the folder last changed, as far as that is known to be in order
        self._look_at = 0.0  # when all files are looked at again

    def recover(self) -> tuple[int, list[bytes]]:
        """Return the number of the first record that is kept, and all records from it on; cut a torn end.

        Raises
        ------
        StoreError
            If a file has been damaged, or is missing.
        """
        records = [record for _, group in self.groups() for record in group]
        return self.last - len(records) + 1, records

    def groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """Iterate over the groups that are kept, with the numbers of their first records; at the end cut a torn one.

        Nothing is written before all were read.

        Raises
        ------
        StoreError
            If a file has been damaged, or is missing.
        """
        try:
            self._segments = sorted(int(path.stem) for path in self.folder.glob("*.log"))
            self.last = self._segments[0] - 1 if self._segments else 0
            for number in self._segments:
                path = self._path(number)
                if number != self.last + 1:
                    raise StoreError(
                        f"{path}: records {self.last + 1} to {number - 1} should stand before this file",
                        hint="Bring the missing file back, or start from another copy.",
                    )
                data = path.read_bytes()
                stop = yield from self._read(path, data)
                if stop < len(data) and number != self._segments[-1]:
                    raise _damaged(path, stop)
                if number != self._segments[-1]:
                    self._states[number] = _state_of(path.stat())
            if self._segments:
                self._go_on(self._path(number), stop)
        except OSError as problem:
            raise self._error(problem) from None

    def _read(self, path: Path, data: bytes) -> Generator[tuple[int, list[bytes]], None, int]:
        """Yield the groups of a file; return where what can be read ends."""
        place = 0
        while (found := _group_at(data, place, self.last + 1)) is not None:
            group, place = found
            first, self.last = self.last + 1, self.last + len(group)
            yield first, group
        behind = data.find(_ANY_MAGIC, place + 1)
        while behind >= 0:
            if _group_at(data, behind) is not None:
                raise _damaged(path, place)
            behind = data.find(_ANY_MAGIC, behind + 1)
        return place

    def _go_on(self, path: Path, size: int) -> None:
        """Write behind the first `size` bytes of a file. What was read of it may not have been on the disk yet."""
        self._file, self._bytes = FileIO(path, "ab"), size
        self._file.truncate(size)
        self._sync()

    def write(self, records: Sequence[bytes]) -> int:
        """Bring records to the disk, as one group; return the number of the last one.

        Raises
        ------
        StoreError
            If the disk does not take them: none of them will be read again, unless what was written of them cannot be
            cut either, which the next write tries once more.
        StoreLostError
            If the folder or a file of the log is not where it was, or not as it was left; see `check`.
        """
        self.check()
        try:
            if self._is_torn:
                self._cut()
            if self._file is None or self._bytes >= self._segment_bytes:
                self._begin_file()
            self._put(records)
        except StoreLostError:
            self._is_torn = True
            with suppress(OSError):  # wherever the file is now, it may be brought back
                if self._file is not None and os.fstat(self._file.fileno()).st_size >= self._bytes:
                    self._cut()
            raise
        except OSError as problem:
            self._is_torn = True
            with suppress(OSError):
                self._cut()
            raise self._error(problem) from None
        return self.last

    def take_back(self) -> int:
        """Cut the group that was written last, which takes no room; return how many records it had.

        0 if it was cut before, or a new file begun since. Raises StoreError if the disk does not take it.
        """
        self.check()
        records, size = self._written
        try:
            self._bytes -= size
            self._cut()
        except OSError as problem:
            self._bytes += size
            raise self._error(problem) from None
        self.last -= records
        self._written = 0, 0
        return records

    def check(self) -> None:
        """Look whether the folder and the files of the log are where they were, and as they were left.

        The folder, and the bytes of the newest file, are looked at each time; where all files are, and the bytes of the
        others, when entries of the folder have changed, and each second. The thread that writes calls it.

        Raises
        ------
        StoreLostError
            If not: what a write brings to the disk would not be found by the next process.
        """
        folder = self._held.check()
        if self._file is not None:
            size = os.fstat(self._file.fileno()).st_size
            if size < self._bytes or (size > self._bytes and not self._is_torn):
                raise self._lost(self._segments[-1], f"it has {size:,} bytes in place of {self._bytes:,}")
        if folder.st_mtime_ns == self._entries_ns and time.monotonic() < self._look_at:
            return
        if self._file is not None:
            here = self._found(self._segments[-1])
            if identity_of(here) != identity_of(os.fstat(self._file.fileno())):
                raise self._lost(self._segments[-1], "another file has taken its place")
        for number, state in self._states.items():
            if _state_of(self._found(number)) != state:
                raise self._lost(number, "it was changed")
        # A change within the clock's tick after this one would have the same time: look once more then.
        is_settled = time.time_ns() - folder.st_mtime_ns > _TICK_NS
        self._entries_ns, self._look_at = folder.st_mtime_ns if is_settled else 0, time.monotonic() + _LOOK_S

    def _found(self, number: int) -> os.stat_result:
        try:
            return os.stat(self._path(number))
        except OSError as problem:
            raise self._lost(number, f"it has gone: {problem.strerror}") from None

    def _lost(self, number: int, why: str) -> StoreLostError:
        return StoreLostError(f"{self._path(number)}: this file of the log is not as it was left: {why}", hint=_RESTORE)

    def begin_anew(self) -> None:
        """Begin a new file behind the last record, and remove all others: whatever they hold is kept elsewhere.

        Raises
        ------
        StoreError
            If the disk does not take it.
        """
        self._held.check()
        before, self._states = self._segments, {}
        try:
            self._path(self.last + 1).unlink(missing_ok=True)
            self._segments = []
            self._begin_file()
            self._is_torn = False
            for number in before:
                if number != self.last + 1:
                    self._path(number).unlink(missing_ok=True)
            sync_folder(self.folder)
        except OSError as problem:
            raise self._error(problem) from None

    def _cut(self) -> None:
        """Take back what a failed write has left."""
        if self._file is not None:
            self._file.truncate(self._bytes)
            self._file.seek(self._bytes)
            self._sync()
        if self._is_synced:
            sync_folder(self.folder)
        self._is_torn = False

    def _put(self, records: Sequence[bytes]) -> None:
        assert self._file is not None
        group = _group_of(records, self.last + 1)
        left = memoryview(group)
        while left:
            left = left[self._file.write(left) :]
        self._sync()
        here = self._found(self._segments[-1])
        if identity_of(here) != identity_of(os.fstat(self._file.fileno())) or here.st_size != self._bytes + len(group):
            raise self._lost(self._segments[-1], "it was changed while it was written")
        self._bytes += len(group)
        self.last += len(records)
        self._written = len(records), len(group)

    def _begin_file(self) -> None:
        number = self.last + 1
        file = FileIO(self._path(number), "xb")
        if self._file is not None:
            if self._segments:
                self._states[self._segments[-1]] = _state_of(os.fstat(self._file.fileno()))
            self._file.close()
        self._file, self._bytes, self._written = file, 0, (0, 0)
        self._segments.append(number)
        if self._is_synced:
            sync_folder(self.folder)

    def sync(self) -> None:
        """Bring everything to the disk that was written, whatever the policy is.

        Raises
        ------
        StoreError
            If the disk does not take it.
        """
        try:
            if self._file is not None:
                _sync_data(self._file)
            sync_folder(self.folder)
        except OSError as problem:
            raise self._error(problem) from None

    def _sync(self) -> None:
        assert self._file is not None
        if self._is_synced:
            begun = time.monotonic()
            _sync_data(self._file)
            self._sync_ms.append((time.monotonic() - begun) * 1000)
            self.facts["sync_ms"] = round(sum(self._sync_ms) / len(self._sync_ms), 3)

    def forget(self, number: int) -> None:
        """Remove the files that hold no record behind the one with this number, but for the newest file.

        Raises
        ------
        StoreError
            If they cannot be removed.
        """
        try:
            while len(self._segments) > 1 and self._segments[1] <= number + 1:
                self._path(self._segments[0]).unlink(missing_ok=True)
                self._states.pop(self._segments.pop(0), None)
        except OSError as problem:
            raise self._error(problem) from None

    def close(self) -> None:
        """Let another process have the folder; an empty group says that the last one was on the disk."""
        if self._file is not None:
            with suppress(OSError, StoreLostError):
                if os.fstat(self._file.fileno()).st_size == self._bytes:
                    self._put([])
            self._file.close()
            self._file = None
        self._lock.close()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:020d}.log"

    def _error(self, problem: OSError) -> StoreError:
        return StoreError(
            f"{self.folder}: the log cannot be read or written: {problem.strerror or problem}",
            hint="Make room there, or give the right to write, and start again: what was acknowledged is there.",
        )


def read_records(folder: Path, first: int, last: int) -> tuple[int, list[bytes]]:
    """Return records of a log that is written, and forgotten, meanwhile; and the number of the first one.

    Parameters
    ----------
    first, last
        Their numbers. Those that are forgotten are left out; the last one must be on the disk.

    Raises
    ------
    StoreError
        If they cannot be read, or have been damaged.
    """
    while True:
        starts = sorted(int(path.stem) for path in folder.glob("*.log"))
        found: dict[int, bytes] = {}
        try:
            for start, behind in pairwise([*starts, last + 1]):
                if behind > first and start <= last:
                    path = folder / f"{start:020d}.log"
                    for number, record in _records_of(path, start):
                        if first <= number <= last:
                            found[number] = record
        except FileNotFoundError:
            continue  # it was forgotten since
        except OSError as problem:
            raise StoreError(f"{folder}: the log cannot be read: {problem.strerror}", hint=_RESTORE) from None
        begin = min(found, default=last + 1)
        if list(found) != list(range(begin, last + 1)):
            raise _damaged(folder / f"{max(found, default=first):020d}.log", 0)
        return begin, list(found.values())


def _records_of(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a file, with their numbers, up to where it is being written."""
    data, place, number = path.read_bytes(), 0, start
    while (group := _group_at(data, place, number)) is not None:
        records, place = group
        yield from enumerate(records, number)
        number += len(records)


def _state_of(found: os.stat_result) -> tuple[int, int, int]:
    return (*identity_of(found), found.st_size)


def _group_of(records: Sequence[bytes], first: int) -> bytes:
    """Return records as a group; `first` is the number of the first one."""
    is_wide = sum(map(len, records)) + 4 * len(records) > _NARROW_BYTES
    magic, header, form = (_WIDE_MAGIC, _WIDE_HEADER, "Q") if is_wide else (_MAGIC, _HEADER, "I")
    lengths = struct.pack(f"<{len(records)}{form}", *map(len, records))
    body = b"".join([lengths, *records])
    known = header.pack(magic, 0, len(body), len(records), first)[8:]
    return b"".join([magic, struct.pack("<I", zlib.crc32(body, zlib.crc32(known))), known, body])


def _group_at(data: bytes, place: int, expected: int | None = None) -> tuple[list[bytes], int] | None:
    """Return the records of the group at a place, and where it ends; None if there is none, whole and unchanged."""
    is_wide = data.startswith(_WIDE_MAGIC, place)
    header, form, width = (_WIDE_HEADER, "Q", 8) if is_wide else (_HEADER, "I", 4)
    begin = place + header.size
    if len(data) < begin or not (is_wide or data.startswith(_MAGIC, place)):
        return None
    _, checksum, length, count, first = header.unpack_from(data, place)
    stop = begin + length
    if len(data) < stop or width * count > length or expected not in (None, first):
        return None
    view = memoryview(data)
    if zlib.crc32(view[begin:stop], zlib.crc32(view[place + 8 : begin])) != checksum:
        return None
    records = []
    at = begin + width * count
    for size in struct.unpack_from(f"<{count}{form}", data, begin):
        records.append(data[at : at + size])
        at += size
    return records, stop


def _damaged(path: Path, place: int) -> StoreError:
    return StoreError(
        f"{path}: damaged at byte {place}: records that were on the disk cannot be read",
        hint="Bring the file back from a copy; the disk may be failing.",
    )


def _sync_data(file: FileIO) -> None:
    """Bring the bytes of a file to the disk, and how many they are; its times may come later."""
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(file.fileno())
