"""The owner's disk: nothing damaged is ever handed out, and what can be made again is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.errors import ChunkDamagedError, ChunkMissingError, ChunkTooLargeError, InputError, LockedError, StoreError
from cumulus_ring.chunks.catalogue import Chunk
from cumulus_ring.chunks.disk_rate import SAVED_S, DiskRate
from cumulus_ring.chunks.encoding import decode
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.chunks.ids import file_name
from cumulus_ring.chunks.parquet_files import read_chunk
from cumulus_ring.chunks.store import ChunkStore
from support.random_files import write

ROWS = 10


def chunks(folder: Path, count: int = 5) -> list[Chunk]:
    """A table of one column, with a chunk for each of its row groups."""
    write(pa.table({"n": range(ROWS * count)}), folder / "in" / "t.parquet", ROWS)
    return read_source(folder / "in").tables[0].chunks()


def numbers(store: ChunkStore, chunk: Chunk) -> list[int]:
    found: list[int] = decode(store.load(chunk)).column("n").to_pylist()
    return found


def kept(store: ChunkStore) -> set[str]:
    return {file.name for file in store.folder.iterdir() if file.name != ".lock"}


def place(store: ChunkStore, chunk: Chunk) -> Path:
    return store.folder / file_name(chunk.id)


def test_a_chunk_is_encoded_once(tmp_path: Path) -> None:
    first, second, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    for _ in range(3):
        assert numbers(store, first) == list(range(ROWS))
    assert numbers(store, second) == list(range(ROWS, 2 * ROWS))
    assert (store.counts.encoded, store.counts.read, store.counts.damaged) == (2, 2, 0)
    store.close()
    again = ChunkStore(tmp_path / "store", "a")
    assert (numbers(again, first), again.counts.encoded) == (list(range(ROWS)), 0)
    kept = [file for file in again.folder.iterdir() if file.name != ".lock"]
    assert again.bytes == store.bytes == sum(file.stat().st_size for file in kept)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChunkStore, Chunk]:
    folder = tmp_path_factory.mktemp("one")
    return ChunkStore(folder / "store", "a"), chunks(folder, 1)[0]


@given(at=st.integers(0, 10_000), change=st.integers(1, 255), cut=st.booleans())
@settings(max_examples=60, deadline=None)
def test_damage_anywhere_is_found(one: tuple[ChunkStore, Chunk], at: int, change: int, cut: bool) -> None:
    store, chunk = one
    good = bytes(store.load(chunk))
    data = bytearray(place(store, chunk).read_bytes())
    at %= len(data)
    data[at] ^= change
    place(store, chunk).write_bytes(data[:at] if cut else data)
    damaged = store.counts.damaged
    assert bytes(store.load(chunk)) == good
    assert store.counts.damaged == damaged + 1
    assert numbers(store, chunk) == list(range(ROWS)), "it is whole again"
    assert store.counts.damaged == damaged + 1


def test_a_chunk_of_another_number_is_damage(tmp_path: Path) -> None:
    first, second, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    store.load(first)
    shutil.copy(place(store, first), place(store, second))
    assert numbers(store, second) == list(range(ROWS, 2 * ROWS))
    assert store.counts.damaged == 1


def test_what_was_used_longest_ago_is_dropped(tmp_path: Path) -> None:
    each = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    store.load(each[0])
    size = store.bytes
    store.close()
    store = ChunkStore(tmp_path / "store", "a", limit=3 * size)
    for number in (1, 2, 0, 3):  # so 1 is the oldest
        store.load(each[number])
    assert kept(store) == {file_name(each[number].id) for number in (2, 0, 3)}
    assert (store.bytes, store.counts.dropped) == (3 * size, 1)
    for second, number in enumerate((0, 2, 3)):
        os.utime(place(store, each[number]), (second, second))
    store.load(each[0])
    store.close()
    store = ChunkStore(tmp_path / "store", "a", limit=2 * size)  # the order outlives the process
    assert kept(store) == {file_name(each[number].id) for number in (3, 0)}
    assert numbers(store, each[1]) == list(range(ROWS, 2 * ROWS))
    store.close()
    store = ChunkStore(tmp_path / "store", "a", limit=size - 1)
    assert numbers(store, each[1]) == list(range(ROWS, 2 * ROWS)), "what has no room is encoded each time"
    assert (kept(store), store.bytes) == (set(), 0)


def test_without_its_source_a_chunk_is_told_of(tmp_path: Path) -> None:
    first, second, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "north")
    store.load(first)
    shutil.rmtree(tmp_path / "in")
    assert numbers(store, first) == list(range(ROWS))
    with pytest.raises(ChunkMissingError, match=r"table t, column n, rows 0 to 9 of row group 1 .* gone at node north"):
        store.load(second)
    data = bytearray(place(store, first).read_bytes())
    data[-1] ^= 1
    place(store, first).write_bytes(data)
    with pytest.raises(ChunkDamagedError, match=r"table t, column n, .* is damaged at node north") as caught:
        store.load(first)
    assert (caught.value.chunk, caught.value.table, caught.value.node) == (first.id, "t", "north")


@pytest.mark.parametrize("kept", [0, 5, 1000, -10])
def test_a_file_that_is_cut_after_it_was_listed_is_told_of(tmp_path: Path, kept: int) -> None:
    first, *_ = chunks(tmp_path, 20)
    data = first.file.path.read_bytes()
    first.file.path.write_bytes(data[:kept])
    with pytest.raises(ChunkDamagedError, match=r"table t, column n, .*t\.parquet (cannot be read as|is empty)"):
        ChunkStore(tmp_path / "store", "a").load(first)


def test_damage_of_a_file_whose_pages_have_checksums_is_told_of(tmp_path: Path) -> None:
    place = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": range(ROWS)}), place, write_page_checksum=True, compression="none")
    (chunk,) = read_source(tmp_path).tables[0].chunks()
    data = place.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    told = 0
    for at in range(pages):
        for bit in range(8) if at < 40 else (at % 8,):  # headers of pages have no checksum
            place.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            try:
                found = read_chunk(chunk)
            except InputError:
                told += 1
            else:
                assert found.column("n").to_pylist() == list(range(ROWS)), "nobody needs those bytes"
    assert told > pages // 2


def test_a_source_that_is_not_what_it_was_is_told_of(tmp_path: Path) -> None:
    first, second, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    file = tmp_path / "in" / "t.parquet"
    data = bytearray(file.read_bytes())
    good = bytes(data)
    data[4:40] = b"\xff" * 36  # the first page
    file.write_bytes(data)
    with pytest.raises(ChunkDamagedError, match=r"cannot be made at node a: .*cannot be read as Parquet"):
        store.load(first)
    file.write_bytes(good)
    assert numbers(store, first) == list(range(ROWS))
    write(pa.table({"n": range(100, 150)}), file, ROWS)
    with pytest.raises(ChunkDamagedError, match="was written anew since it was listed"):
        store.load(second)


def test_what_is_adopted_stays(tmp_path: Path) -> None:
    each = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    store.load(each[4])
    size = store.bytes
    store.close()
    store = ChunkStore(tmp_path / "store", "a", limit=3 * size)
    store.adopt(each[:2])
    for chunk in each[2:]:
        store.load(chunk)
    assert kept(store) == {file_name(each[number].id) for number in (0, 1, 4)}
    with pytest.raises(StoreError, match=f"more than the {3 * size} bytes of its disk"):
        store.adopt(each)
    shutil.rmtree(tmp_path / "in")
    assert [numbers(store, chunk)[0] for chunk in each[:2]] == [0, ROWS]


def test_adopting_tells_how_far_it_is_and_begins_where_another_has_ended(tmp_path: Path) -> None:
    each = chunks(tmp_path)
    told: list[tuple[int, int]] = []
    store = ChunkStore(tmp_path / "store", "a")
    store.adopt(each[:3], lambda done, count: told.append((done, count)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    size = store.bytes // 3
    store.close()
    place(store, each[0]).unlink()
    store = ChunkStore(tmp_path / "store", "a", limit=4 * size)
    store.adopt(each[:4])  # the first is encoded anew; it may not take the place of those that are not looked at yet
    assert (store.counts.encoded, store.counts.read, store.counts.dropped) == (2, 2, 0)
    store.adopt(each[:4])
    assert store.counts.read == 2, "what this process has adopted is not read again"
    for wrong in (3, 1):
        place(store, each[wrong]).write_bytes(b"damaged")
    assert numbers(store, each[3])[0] == 3 * ROWS, "as long as there is a source"
    shutil.rmtree(tmp_path / "in")
    assert [numbers(store, chunk)[0] for chunk in (each[0], each[2], each[3])] == [0, 2 * ROWS, 3 * ROWS]
    with pytest.raises(ChunkDamagedError, match=r"table t, column n, rows 0 to 9 of row group 1 of t.* at node a"):
        store.load(each[1])


def test_chunks_that_no_version_has_are_removed(tmp_path: Path) -> None:
    each = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    store.adopt(each[:2])
    size = store.bytes
    store.load(each[2])
    store.retain({each[1].id, each[2].id, 7})
    assert (kept(store), store.bytes) == ({file_name(each[number].id) for number in (1, 2)}, size)
    store.limit = size // 2
    store.load(each[3])
    assert kept(store) == {file_name(each[1].id)}, "what was adopted still is"


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5000)), max_size=30))
def test_a_disk_gives_no_more_than_its_rate(reads: list[tuple[float, int]]) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    rate, taken, waited = DiskRate(1000, lambda: now, sleep), 0, 0.0
    begins: list[tuple[float, int]] = []
    for pause, size in reads:
        sleep(pause)
        began = now
        begins.append((began, taken))
        rate.take(size)
        taken += size
        waited += now - began
        assert all(taken - before <= 1000 * (now - since + SAVED_S) + 1e-6 for since, before in begins)
        assert waited <= taken / 1000 + 1e-6, "nobody waits longer than for what was read"


def test_a_chunk_that_no_node_takes_is_refused(tmp_path: Path) -> None:
    first, second, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    size = store.load(first).size
    store.largest = size
    store.load(first)
    store.largest = size - 1
    for chunk in (first, second):  # from the disk, and encoded
        with pytest.raises(ChunkTooLargeError, match=rf"table t, .* has {size} bytes, .* {size - 1}\n.*storage"):
            store.load(chunk)
    assert kept(store) == {file_name(first.id)}


def test_a_disk_makes_up_for_a_short_time_without_reads() -> None:
    now, slept = 0.0, []
    rate = DiskRate(1000, lambda: now, slept.append)
    now = 60.0
    rate.take(int(SAVED_S * 1000))
    rate.take(500)
    assert slept == pytest.approx([0.5])


def test_reads_of_a_store_take_the_time_of_its_disk(tmp_path: Path) -> None:
    slept: list[float] = []
    first, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a", rate=DiskRate(100, lambda: 0.0, slept.append))
    sizes = [store.load(first).size for _ in range(2)]  # encoded, then read
    assert slept == pytest.approx([sizes[0] / 100, sum(sizes) / 100])


def test_a_store_has_one_process(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path / "store", "a")
    with pytest.raises(LockedError, match="another node uses this store"):
        ChunkStore(tmp_path / "store", "b")
    store.close()
    ChunkStore(tmp_path / "store", "b").close()


def test_what_was_being_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".0000000000000001-half").write_bytes(b"x")
    store = ChunkStore(tmp_path / "store", "a")
    assert kept(store) == set()
    assert store.bytes == 0


def test_a_disk_that_takes_nothing_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="the store of node a cannot be written: Not a directory"):
        ChunkStore(tmp_path / "file" / "store", "a")
    first, *_ = chunks(tmp_path)
    store = ChunkStore(tmp_path / "store", "a")
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreError, match="the store of node a cannot be written: No such file"):
        store.load(first)
