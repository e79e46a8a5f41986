"""Feeds: what is offered comes once, whole, and only when it is pulled."""

from __future__ import annotations

import queue
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulus.errors import RingError
from cumulus_ring.nodes import ArrivalFeed, lend
from cumulus_ring.nodes.feed import copied


class Notes:
    """A source that notes what it is told."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.ends = 0

    def waits(self, feed: ArrivalFeed) -> None:
        self.waiting.set()

    def ended(self, feed: ArrivalFeed) -> None:
        self.ends += 1


def column(name: str, value: int) -> pa.RecordBatch:
    return pa.record_batch({name: [value]})


PARTS = {1: ("a", 10), 2: ("b", 20), 3: ("a", 11), 4: ("b", 21), 5: ("a", 12), 6: ("b", 22)}
GROUPS = {0: (1, 2), 1: (3, 4), 2: (5, 6)}


def feed_of(source: Notes) -> ArrivalFeed:
    return ArrivalFeed(GROUPS, pa.schema({"b": pa.int64(), "a": pa.int64()}), source)


@given(st.lists(st.tuples(st.sampled_from(["offer", "pull"]), st.integers(1, 6)), max_size=60))
def test_row_groups_come_once_and_whole_in_the_order_in_which_they_were_completed(steps: list[tuple[str, int]]) -> None:
    feed, wanted, offered, whole, given_out = feed_of(Notes()), set(PARTS), set(), [], []
    for step, part in [*steps, *(("offer", part) for part in PARTS), *[("pull", 0)] * 3]:
        group = next((number for number, parts in GROUPS.items() if part in parts), -1)
        if step == "offer":
            assert feed.offer(part, column(*PARTS[part])) == (part in wanted - offered)
            offered |= {part} & wanted
            if set(GROUPS[group]) <= offered and group not in whole:
                whole.append(group)
        elif whole:
            group = whole.pop(0)
            wanted -= set(GROUPS[group])
            offered -= set(GROUPS[group])
            pulled = feed.pull()
            assert pulled is not None
            given_out.append(pulled.to_pylist())
            assert given_out[-1] == [{"b": 20 + group, "a": 10 + group}]
        assert feed.missing == wanted - offered
    assert len(given_out) == 3
    assert feed.pull() is None


def test_a_pull_waits_for_the_last_part_and_says_so() -> None:
    source, pulled = Notes(), queue.SimpleQueue[pa.RecordBatch]()
    feed = feed_of(source)
    thread = threading.Thread(target=lambda: pulled.put(feed.pull()))
    thread.start()
    assert source.waiting.wait(10)
    assert feed.is_waiting
    feed.offer(3, column("a", 11))
    assert feed.is_waiting
    feed.offer(4, column("b", 21))
    thread.join(10)
    assert pulled.get().to_pylist() == [{"b": 21, "a": 11}]
    assert not feed.is_waiting


def test_a_failure_wakes_a_pull_and_drops_offers() -> None:
    source, caught = Notes(), queue.SimpleQueue[BaseException]()
    feed, released = feed_of(source), queue.SimpleQueue[None]()
    lent = pa.array([11], pa.int64()).buffers()[1]  # who lends keeps it
    memory = lend(lent, lambda: released.put(None))
    feed.offer(3, pa.record_batch({"a": pa.Array.from_buffers(pa.int64(), 1, [None, memory])}))
    del memory

    def pull() -> None:
        with pytest.raises(RingError) as problem:
            feed.pull()
        caught.put(problem.value)

    thread = threading.Thread(target=pull)
    thread.start()
    assert source.waiting.wait(10)
    assert released.empty()
    feed.fail(RingError("gone"))
    feed.fail(RingError("again"))
    thread.join(10)
    assert str(caught.get()) == "gone"
    assert released.qsize() == 1
    assert not feed.offer(4, column("b", 21))
    feed.close()
    feed.close()
    assert source.ends == 1


def test_lent_memory_is_released_once_with_its_last_view_and_a_copy_keeps_none() -> None:
    released = queue.SimpleQueue[None]()
    lent = pa.array([1, 2, 3], pa.int64()).buffers()[1]  # who lends keeps it
    memory = lend(lent, lambda: released.put(None))
    batch = pa.record_batch({"a": pa.Array.from_buffers(pa.int64(), 3, [None, memory])})
    sliced, copy = batch.slice(1, 1), copied(batch)
    del memory, batch
    assert released.empty()
    assert sliced.to_pylist() == [{"a": 2}]
    del sliced
    assert released.qsize() == 1
    assert copy.to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert copied(copy.slice(2)).to_pylist() == [{"a": 3}]
