"""The memory of chunks: written once, read in place, used again only when nobody reads it."""

from __future__ import annotations

import gc
import mmap
import os
import resource
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from cumulus.errors import RemoteProtocolError
from cumulus_ring.links.slots import BufferPool, DescriptorPool, SlotCounts, SlotPool, allow_descriptors
from support.tiers import sampled

POOLS = [BufferPool, DescriptorPool]


def test_buffers_are_used_again_and_only_so_many_wait() -> None:
    pool = BufferPool(idle_bytes=1 << 20)
    first, second = pool.fill(900_000, bytes(900_000)), pool.fill(900_000, bytes(900_000))
    address = pa.py_buffer(first.memory).address
    assert address % 64 == 0, "Arrow reads in place what begins at such an address"
    pool.free(first)
    pool.free(second)  # there is no room for it to wait
    assert pool.counts() == SlotCounts(slots=0, bytes=0, mapped_bytes=0, idle_bytes=917_504)
    again = pool.fill(850_000, b"x" * 850_000)
    assert pa.py_buffer(again.memory).address == address
    assert again.number > second.number
    assert pool.counts() == SlotCounts(slots=1, bytes=850_000, mapped_bytes=850_000, idle_bytes=0)
    pool.free(again)
    pool.close()
    assert pool.counts().idle_bytes == 0


def open_memory() -> int:
    """Return how many files in memory, or without any, this process has open; what else goes is of other tests."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of listing them
            found += os.readlink(f"/proc/self/fd/{name}").startswith(("/memfd:", "/dev/null"))
    return found


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 100_000, 2**20 + 1, 10_000_019])
def test_a_buffer_is_at_most_a_fourth_larger_than_its_chunk(size: int) -> None:
    pool = BufferPool()
    pool.free(pool.fill(size, bytes(size)))
    assert size <= pool.counts().idle_bytes <= max(4096, size * 1.25 + 4096)
    pool.close()


@pytest.mark.parametrize("make", POOLS)
def test_nobody_writes_into_a_chunk(make: Callable[[], SlotPool]) -> None:
    pool = make()
    slot = pool.fill(4, b"abcd")
    assert slot.memory.readonly
    if slot.descriptor is not None:
        with pytest.raises(PermissionError):
            mmap.mmap(slot.descriptor, 4)
        with pytest.raises(PermissionError):
            os.pwrite(slot.descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(slot.descriptor, 0)
    pool.free(slot)


@pytest.mark.parametrize("make", POOLS)
def test_a_slot_that_is_read_or_free_cannot_be_freed(make: Callable[[], SlotPool]) -> None:
    pool = make()
    slot = pool.fill(4, b"abcd")
    for reader in (pa.py_buffer(slot.memory), slot.memory[1:]):
        with pytest.raises(AssertionError, match=rf"Slot\({slot.number}, 4 bytes\) is freed while somebody reads it"):
            pool.free(slot)
        del reader
    pool.free(slot)
    with pytest.raises(AssertionError, match="is freed twice"):
        pool.free(slot)


@pytest.mark.parametrize("make", sampled(POOLS, of=2, first=1))
def test_what_fails_to_fill_a_slot_leaves_none(make: Callable[[], SlotPool]) -> None:
    def fail(room: memoryview) -> None:
        room[0] = 1
        raise ValueError("the disk is gone")

    pool, files = make(), open_memory()
    with pytest.raises(ValueError, match="the disk is gone"):
        pool.fill(100, fail)
    assert pool.counts().slots == 0
    assert open_memory() == files


@pytest.mark.parametrize("make", POOLS)
def test_a_link_that_ends_in_the_middle_of_a_chunk_says_so(make: Callable[[], SlotPool]) -> None:
    def ends(room: memoryview) -> None:
        rest = room[7:]  # what is still to come, as who receives it has it in its frame when it fails
        raise EOFError(f"{len(rest)} bytes have not come")

    pool, before = make(), open_memory()
    with pytest.raises(EOFError, match="93 bytes have not come") as told:
        pool.fill(100, ends)
    kept = told.value  # with its frames, and what they refer to
    again = pool.fill(100, bytes(100))
    pool.free(again)
    del kept, told
    pool.close()
    gc.collect()
    assert (pool.counts(), open_memory()) == (SlotCounts(0, 0, 0, 0), before)


def test_a_file_is_mapped_when_it_is_read_and_no_earlier() -> None:
    pool = DescriptorPool()
    slot = pool.fill(5000, lambda room: room.__setitem__(slice(None), b"y" * 5000))
    assert pool.counts() == SlotCounts(slots=1, bytes=5000, mapped_bytes=0, idle_bytes=0)
    assert slot.memory == b"y" * 5000
    assert pool.counts().mapped_bytes == 5000
    pool.free(slot)


@pytest.mark.slow
@pytest.mark.parametrize("make", POOLS)
def test_a_file_that_may_change_or_is_too_short_is_not_adopted(make: Callable[[], SlotPool]) -> None:
    pool, other = make(), DescriptorPool()
    files = open_memory()
    slot = other.fill(100, bytes(100))
    assert slot.descriptor is not None
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 100)
    for descriptor, size in ((unsealed, 100), (os.dup(slot.descriptor), 101), (os.open("/dev/null", os.O_RDONLY), 0)):
        with pytest.raises(RemoteProtocolError, match="is not a sealed file of that size"):
            pool.map_slot(descriptor, size)
    adopted = pool.map_slot(os.dup(slot.descriptor), 100)
    assert adopted.memory == bytes(100)
    pool.free(adopted)
    other.free(slot)
    assert open_memory() == files


def test_a_process_may_have_as_many_slots_as_the_system_lets_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        assert allow_descriptors() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
