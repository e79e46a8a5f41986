"""Slots: the memory of chunks, one for each chunk that is at a node, filled once and then only read.

Over TCP a slot is a buffer that is used again and again: fresh memory costs as much as what is copied into it. On one
machine it is an anonymous file without a name (memfd), sealed when it is filled: its descriptor goes from process to
process, so all of them read the same pages, nobody can change them, and the kernel gives them back when the last one
has let go, also if that one was killed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Protocol, TypeAlias

from cumulus.errors import RemoteProtocolError, RingError
from cumulus.transport.framing import Piece

Filling: TypeAlias = Piece | Callable[[memoryview], object]
"""What comes into a slot: bytes, or what writes all of them into the memory that it is given."""

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_SMALLEST_BUFFER = 1 << 12
IDLE_BYTES = 64 << 20
"""So much memory is kept for chunks to come, if no other number is given."""


def allow_descriptors() -> int:
    """Let this process have as many open files as the system lets it: each slot of a local link is one; return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


class Slot:
    """The memory of one chunk, as a handle that can be a key; made and freed by its pool alone.

    Attributes
    ----------
    number
        Of this slot in its pool; never used again.
    size
        Bytes of the chunk.
    """

    __slots__ = ("_view", "descriptor", "mapping", "number", "size")

    def __init__(self, number: int, size: int, mapping: mmap.mmap | None, descriptor: int | None) -> None:
        self.number = number
        self.size = size
        self.mapping = mapping
        self.descriptor = descriptor
        self._view: memoryview | None = None

    def __repr__(self) -> str:
        return f"Slot({self.number}, {self.size:,} bytes)"

    @property
    def memory(self) -> memoryview:
        """The chunk, to be read until the slot is freed; no view of it may be left then."""
        view = self._view
        if view is None:
            if self.mapping is None:
                assert self.descriptor is not None, f"{self} is free"
                if not self.size:
                    return memoryview(b"")
                # Two threads at once make two mappings; one of them goes with its view.
                self.mapping = mmap.mmap(self.descriptor, self.size, mmap.MAP_SHARED, mmap.PROT_READ)
            view = self._view = memoryview(self.mapping)[: self.size].toreadonly()
        return view

    def forget(self) -> None:
        """Let go of the view that `memory` gives.

        Raises
        ------
        BufferError
            If somebody has a buffer of it.
        """
        if self._view is not None:
            self._view.release()
            self._view = None


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """What a pool has given out.

    Attributes
    ----------
    slots, bytes
        In use, with the bytes of their chunks.
    mapped_bytes
        What of these is mapped into this process: over local links only what somebody here reads.
    idle_bytes
        Memory that waits for the next chunks.
    """

    slots: int
    bytes: int
    mapped_bytes: int
    idle_bytes: int


class SlotPool(Protocol):
    """Where slots come from; every method may be called from any thread."""

    def fill(self, size: int, content: Filling) -> Slot:
        """Return a slot with this content; what writes it must write `size` bytes, and may raise.

        Raises
        ------
        RingError
            If there is no memory or no descriptor for it.
        """

    def map_slot(self, descriptor: int, size: int) -> Slot:
        """Map a chunk in a file that another process has sealed, and return its slot, which owns the descriptor.

        Raises
        ------
        RemoteProtocolError
            If it is not such a file, or smaller.
        """

    def free(self, slot: Slot) -> None:
        """Take a slot back that nobody reads any more."""

    def counts(self) -> SlotCounts:
        """Return what is in use now."""

    def close(self) -> None:
        """Let go of the memory that waits; slots in use stay what they are until they are freed."""


class BufferPool:
    """Slots in this process's own memory, which is used again: for TCP.

    Parameters
    ----------
    idle_bytes
        What is kept for chunks to come, at most.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self._most_idle = idle_bytes
        self._idle: dict[int, list[mmap.mmap]] = {}
        self._idle_bytes = 0
        self._slots: dict[Slot, None] = {}
        self._bytes = 0
        self._numbers = count(1)
        self._lock = Lock()

    def fill(self, size: int, content: Filling) -> Slot:
        """Return a slot with this content."""
        buffer = self._take(_capacity(size))
        try:
            _write(memoryview(buffer)[:size], content)
        except BaseException:
            _let_go(buffer)  # and never use it again: see there
            raise
        with self._lock:
            slot = Slot(next(self._numbers), size, buffer, None)
            self._slots[slot] = None
            self._bytes += size
        return slot

    def map_slot(self, descriptor: int, size: int) -> Slot:
        """Return a slot with a copy of what another process has sealed."""
        try:
            _check_sealed(descriptor, size)

            def read(room: memoryview) -> None:
                done = 0
                while done < size:
                    done += os.preadv(descriptor, [room[done:]], done)

            return self.fill(size, read)
        finally:
            os.close(descriptor)

    def free(self, slot: Slot) -> None:
        """Take a slot back."""
        buffer = slot.mapping
        assert buffer is not None, f"{slot} is freed twice"
        try:
            slot.forget()
            buffer.resize(len(buffer))  # does nothing, but refuses while somebody has a view
        except BufferError:
            raise AssertionError(f"{slot} is freed while somebody reads it") from None
        with self._lock:
            del self._slots[slot]
            self._bytes -= slot.size
            slot.mapping = None
            self._put(buffer)

    def counts(self) -> SlotCounts:
        """Return what is in use now."""
        with self._lock:
            return SlotCounts(len(self._slots), self._bytes, self._bytes, self._idle_bytes)

    def close(self) -> None:
        """Let go of the memory that waits."""
        with self._lock:
            self._most_idle = self._idle_bytes = 0
            for buffers in self._idle.values():
                for each in buffers:
                    each.close()
            self._idle.clear()

    def _take(self, capacity: int) -> mmap.mmap:
        with self._lock:
            if waiting := self._idle.get(capacity):
                self._idle_bytes -= capacity
                return waiting.pop()
        try:
            return mmap.mmap(-1, capacity, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as problem:
            raise _no_memory(capacity, problem) from None

    def _put(self, buffer: mmap.mmap) -> None:
        if self._idle_bytes + len(buffer) <= self._most_idle:
            self._idle.setdefault(len(buffer), []).append(buffer)
            self._idle_bytes += len(buffer)
        else:
            buffer.close()


class DescriptorPool:
    """Slots in sealed anonymous files: for links on one machine."""

    def __init__(self) -> None:
        self._slots: dict[Slot, None] = {}
        self._bytes = 0
        self._numbers = count(1)
        self._lock = Lock()

    def fill(self, size: int, content: Filling) -> Slot:
        """Return a slot with this content, sealed."""
        try:
            descriptor = os.memfd_create("cumulus-chunk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as problem:
            raise _no_memory(size, problem) from None
        try:
            if callable(content):
                mapping = _writable(descriptor, size)
                try:
                    _write(memoryview(mapping)[:size], content)
                finally:
                    _let_go(mapping)
            else:
                _write_file(descriptor, content)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(descriptor)
            raise
        return self._keep(descriptor, size)

    def map_slot(self, descriptor: int, size: int) -> Slot:
        """Return a slot of what another process has sealed."""
        try:
            _check_sealed(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        return self._keep(descriptor, size)

    def free(self, slot: Slot) -> None:
        """Take a slot back: this process lets go of the file."""
        descriptor = slot.descriptor
        assert descriptor is not None, f"{slot} is freed twice"
        try:
            slot.forget()
            if slot.mapping is not None:
                slot.mapping.close()
        except BufferError:
            raise AssertionError(f"{slot} is freed while somebody reads it") from None
        with self._lock:
            del self._slots[slot]
            self._bytes -= slot.size
        slot.mapping = slot.descriptor = None
        os.close(descriptor)

    def counts(self) -> SlotCounts:
        """Return what is in use now."""
        with self._lock:
            mapped = sum(each.size for each in self._slots if each.mapping is not None)
            return SlotCounts(len(self._slots), self._bytes, mapped, 0)

    def close(self) -> None:
        """Nothing waits here."""

    def _keep(self, descriptor: int, size: int) -> Slot:
        with self._lock:
            slot = Slot(next(self._numbers), size, None, descriptor)
            self._slots[slot] = None
            self._bytes += size
        return slot


def _capacity(size: int) -> int:
    """Return how large a buffer for so many bytes is: a fourth more at most, so that few sizes are in use."""
    step = max(_SMALLEST_BUFFER, 1 << max(0, (size - 1).bit_length() - 3))
    return max(1, -(-size // step)) * step


def _write(room: memoryview, content: Filling) -> None:
    """Write into memory, and let go of it."""
    with room:
        if callable(content):
            content(room)
        else:
            room[:] = content


def _let_go(mapping: mmap.mmap) -> None:
    """Close memory; a writer that failed may still have a view in its error, and then it is closed with that."""
    with suppress(BufferError):
        mapping.close()


def _write_file(descriptor: int, content: Piece) -> None:
    try:
        with memoryview(content) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], done)
    except OSError as problem:
        raise _no_memory(len(content), problem) from None


def _writable(descriptor: int, size: int) -> mmap.mmap:
    try:
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size) if size else mmap.mmap(-1, 1)
    except OSError as problem:
        raise _no_memory(size, problem) from None


def _no_memory(size: int, problem: OSError) -> RingError:
    return RingError(
        f"there is no memory for a chunk of {size:,} bytes: {problem.strerror}",
        hint="Give the ring less storage, or its processes more memory and open files (ulimit -n).",
    )


def _check_sealed(descriptor: int, size: int) -> None:
    """Refuse what may be changed, or cut short, by whoever else has it: reading it would end this process."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & _SEALS != _SEALS or os.fstat(descriptor).st_size < size:
        raise RemoteProtocolError(f"what came as a chunk of {size:,} bytes is not a sealed file of that size")
