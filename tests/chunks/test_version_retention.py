"""Versions of a source: what nodes are told of is there, stays as it is, and is the same for all of them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.errors import ChunkMissingError, EpochMissingError, InputError, LockedError, StoreError
from cumulus_ring.chunks.parquet_files import read_chunk
from cumulus_ring.chunks.store import ChunkStore
from cumulus_ring.chunks.version_retention import VersionRetention
from support.random_files import committed, scanned, write
from support.tiers import examples
from support.told_versions import Told

NUMBERS = pa.table({"n": [1, 2, 3]})


def numbers(ring: Path, epoch: int | None = None, table: str = "t") -> list[int]:
    """The rows of a table as a node without any store finds them."""
    chunks = Told(ring).catalogue(epoch).table(table).chunks()
    return [number for chunk in chunks for number in read_chunk(chunk).column("n").to_pylist()]


def links(ring: Path) -> set[str]:
    return {file.name for file in (ring / "files").iterdir()}


def listed(ring: Path) -> set[str]:
    """The links that the versions that are there list."""
    versions = Told(ring)
    tables = [table for epoch in versions.epochs for table in versions.catalogue(epoch).tables]
    return {file.link.name for table in tables for file in table.files if file.link is not None}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A source, and a ring."""
    return tmp_path / "in", tmp_path / "ring"


def test_epochs_that_the_output_folder_has_dropped_stay_with_the_ring(places: tuple[Path, Path]) -> None:
    out, ring = places
    committed(out, 1, {"t": NUMBERS, "same": NUMBERS})
    retention = VersionRetention(out, ring, keep=2)
    first = retention.refresh()
    assert retention.refresh() is first
    committed(out, 3, {"t": pa.table({"n": [4]})}, keep=1)
    assert not (out / "data" / "t" / "1-0-0.parquet").exists()
    assert retention.refresh().version == 3
    node = Told(ring)
    assert (retention.epochs, node.epochs) == ((1, 3), (1, 3))
    assert (numbers(ring, 1), numbers(ring, 3), numbers(ring)) == ([1, 2, 3], [4], [4])
    one, three = node.catalogue(1), node.catalogue(3)
    assert len(one.chunks.keys() & three.chunks.keys()) == len(one.table("same").chunks()), "these chunks stay hot"
    assert one.table("same").files[0].link == three.table("same").files[0].link
    committed(out, 4, {"t": pa.table({"n": [5]})}, keep=1)
    retention.refresh()
    assert node.epochs == (3, 4)
    assert links(ring) == listed(ring), "nothing is kept for epoch 1"
    with pytest.raises(EpochMissingError, match=r"no epoch 1, or not any more\n.*3 and 4") as caught:
        node.catalogue(1)
    assert caught.value.epochs == (3, 4)
    assert (one.version, node.catalogue().version) == (1, 4)


def test_a_node_finds_chunks_of_all_epochs(places: tuple[Path, Path]) -> None:
    out, ring = places
    committed(out, 1, {"t": NUMBERS})
    retention = VersionRetention(out, ring)
    node = Told(ring)
    with pytest.raises(EpochMissingError, match="the ring has no epoch of its source"):
        node.catalogue()
    old = retention.refresh()
    committed(out, 2, {"t": NUMBERS.slice(1)})
    new = retention.refresh()
    assert all(node.chunk(chunk) is not None for chunk in (*old.chunks, *new.chunks))
    assert node.chunks().keys() == old.chunks.keys() | new.chunks.keys()
    assert node.chunk(1) is None
    assert node.catalogue(2).chunks.keys() == new.chunks.keys()


def test_files_of_a_plain_folder_that_are_replaced_or_removed_stay_with_their_version(
    places: tuple[Path, Path],
) -> None:
    source, ring = places
    write(NUMBERS, source / "t.parquet", 2)
    write(NUMBERS, source / "u.parquet", 2)
    retention = VersionRetention(source, ring)
    assert (retention.refresh().version, retention.refresh().version) == (1, 1)
    write(pa.table({"n": [7, 8]}), source / ".t.parquet", 2)
    os.rename(source / ".t.parquet", source / "t.parquet")
    assert retention.refresh().version == 2
    (source / "u.parquet").unlink()
    assert retention.refresh().version == 3
    assert [numbers(ring, epoch) for epoch in (1, 2, 3)] == [[1, 2, 3], [7, 8], [7, 8]]
    assert numbers(ring, 2, "u") == [1, 2, 3]


def test_a_file_that_is_written_into_takes_its_versions_with_it(places: tuple[Path, Path]) -> None:
    source, ring = places
    write(NUMBERS, source / "t.parquet", 2)
    write(NUMBERS, source / "u.parquet", 2)
    retention = VersionRetention(source, ring)
    retention.refresh()
    with (source / "t.parquet").open("r+b") as file:  # the same file, with another content
        write(pa.table({"n": [7, 8]}), source / ".new", 2)
        file.truncate()
        file.write((source / ".new").read_bytes())
    with pytest.raises(InputError, match=r"t\.parquet was written anew since it was listed"):
        numbers(ring, 1)
    retention.refresh()
    assert Told(ring).epochs == (2,)
    assert (numbers(ring), numbers(ring, 2, "u")) == ([7, 8], [1, 2, 3])
    assert links(ring) == listed(ring)


def test_versions_outlive_their_keeper(places: tuple[Path, Path]) -> None:
    out, ring = places
    for epoch in (1, 2):
        committed(out, epoch, {"t": pa.table({"n": [epoch]})}, keep=1)
        retention = VersionRetention(out, ring)
        with pytest.raises(LockedError, match="the folder of a ring that runs"):
            VersionRetention(out, ring)
        retention.refresh()
        retention.close()
    assert (numbers(ring, 1), numbers(ring, 2)) == ([1], [2])
    shutil.rmtree(out)
    retention = VersionRetention(out, ring)
    with pytest.raises(InputError, match="in is not a folder"):
        retention.refresh()
    assert retention.epochs == (1, 2)
    newest = retention.newest
    assert newest is not None
    assert newest.version == 2


def test_another_run_in_the_same_folder_is_another_source(places: tuple[Path, Path]) -> None:
    out, ring = places
    committed(out, 1, {"t": NUMBERS})
    committed(out, 2, {"t": NUMBERS})
    retention = VersionRetention(out, ring)
    retention.refresh()
    node = Told(ring)
    assert node.catalogue(2).table("t").rows == 3
    shutil.rmtree(out)
    committed(out, 2, {"t": NUMBERS.slice(2)}, checkpoint="other")
    retention.refresh()
    assert node.epochs == (2,)
    assert node.catalogue(2).table("t").rows == 1
    assert links(ring) == listed(ring)


def test_a_source_that_cannot_be_read_now_leaves_the_versions_as_they_are(places: tuple[Path, Path]) -> None:
    source, ring = places
    write(NUMBERS, source / "t" / "a.parquet", 2)
    retention = VersionRetention(source, ring)
    retention.refresh()
    whole = (source / "t" / "a.parquet").read_bytes()
    (source / "t" / "b.parquet").write_bytes(whole[:-20])  # it is being written
    with pytest.raises(InputError, match=r"b\.parquet cannot be read as Parquet: .*\nIf it is being written, wait"):
        retention.refresh()
    assert numbers(ring) == [1, 2, 3]
    (source / "t" / "b.parquet").write_bytes(whole)
    assert retention.refresh().version == 2
    assert numbers(ring) == [1, 2, 3] * 2


def test_what_all_nodes_have_adopted_needs_no_source(places: tuple[Path, Path], tmp_path: Path) -> None:
    source, ring = places
    write(NUMBERS, source / "t.parquet", 2)
    retention = VersionRetention(source, ring)
    store = ChunkStore(tmp_path / "store", "a")
    store.adopt(retention.refresh().chunks.values())
    retention.let_go(1)
    assert links(ring) == set()
    assert retention.refresh().version == 1, "the same files are the same version"
    shutil.rmtree(source)
    retention.close()
    VersionRetention(source, ring).close()
    table = Told(ring).catalogue().table("t")
    assert scanned(table, store).column("n").to_pylist() == [1, 2, 3]
    (first, *_) = table.chunks()
    (store.folder / f"{first.id:016x}").unlink()
    with pytest.raises(ChunkMissingError, match=r"table t, column n, rows 0 to 1 of row group 0 of t.* gone at node a"):
        store.load(first)


# --- Where there are no links, and where there is no time -------------------------------------------------------------


def no_link(reason: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(reason, os.strerror(reason))

    return refuse


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM])
def test_without_hard_links_files_are_read_where_they_are(
    places: tuple[Path, Path], reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ring = places
    write(NUMBERS, source / "t.parquet", 2)
    monkeypatch.setattr(os, "link", no_link(reason))
    retention = VersionRetention(source, ring)
    retention.refresh()
    assert retention.unlinked == f"{source / 't.parquet'} is read where it is: {os.strerror(reason)}"
    assert numbers(ring) == [1, 2, 3]
    write(pa.table({"n": [7, 8]}), source / "t.parquet", 2)
    with pytest.raises(InputError, match="written anew since it was listed"):
        numbers(ring)
    retention.refresh()
    assert (numbers(ring), retention.epochs) == ([7, 8], (2,)), "the version went with its file"
    monkeypatch.undo()
    write(NUMBERS, source / "u.parquet", 2)
    retention.refresh()
    assert (retention.unlinked, len(links(ring))) == ("", 2)


def test_files_that_are_links_themselves_are_linked_as_what_they_lead_to(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    source, ring = places
    write(NUMBERS, tmp_path / "elsewhere", 2)
    source.mkdir()
    (source / "t.parquet").symlink_to(tmp_path / "elsewhere")
    retention = VersionRetention(source, ring)
    retention.refresh()
    (tmp_path / "elsewhere").unlink()
    assert numbers(ring) == [1, 2, 3]


def test_a_folder_that_takes_nothing_is_told_of(places: tuple[Path, Path]) -> None:
    source, ring = places
    write(NUMBERS, source / "t.parquet", 2)
    ring.touch()
    with pytest.raises(StoreError, match=r"the folder of the ring cannot be written: (Not a directory|File exists)"):
        VersionRetention(source, ring)
    ring.unlink()
    retention = VersionRetention(source, ring)
    shutil.rmtree(ring)
    with pytest.raises(StoreError, match="the folder of the ring cannot be written: No such file"):
        retention.refresh()


@pytest.mark.parametrize("change", ["replace", "remove", "write into", "commit"])
def test_what_changes_between_its_footer_and_its_link_is_read_again(
    places: tuple[Path, Path], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ring = places
    if change == "commit":
        committed(source, 1, {"t": NUMBERS})
    else:
        write(NUMBERS, source / "t" / "a.parquet", 2)
        write(NUMBERS, source / "t" / "b.parquet", 2)
    place = source / "t" / "b.parquet"
    real = os.link

    def link_late(*args: Any) -> None:
        monkeypatch.undo()
        if change == "remove":
            place.unlink()
        elif change == "commit":
            committed(source, 2, {"t": pa.table({"n": [7]})}, keep=1)
        else:
            write(pa.table({"n": [7]}), source / "new", 2)
            if change == "replace":
                os.rename(source / "new", place)
            else:
                place.write_bytes((source / "new").read_bytes())
        real(*args)

    retention = VersionRetention(source, ring)
    monkeypatch.setattr(os, "link", link_late)
    retention.refresh()
    wanted = {"replace": [1, 2, 3, 7], "remove": [1, 2, 3], "write into": [1, 2, 3, 7], "commit": [7]}
    assert numbers(ring) == wanted[change]
    assert links(ring) == listed(ring)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["replace", "write into", "remove"]), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["refresh", "restart"]), st.just("")),
)


@given(st.lists(STEPS, max_size=14), st.booleans())
@pytest.mark.law
@settings(max_examples=examples(200), deadline=None)
def test_each_version_has_the_rows_that_it_had(steps: list[tuple[str, str]], has_links: bool) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        source, ring = Path(name, "in"), Path(name, "ring")
        if not has_links:
            patch.setattr(os, "link", no_link(errno.EXDEV))
        there: dict[str, int] = {}
        rows: dict[int, list[int]] = {}
        retention, node = VersionRetention(source, ring, keep=2), Told(ring)
        for number, (step, file) in enumerate([("replace", "a"), *steps, ("refresh", "")]):
            place = source / "t" / f"{file}.parquet"
            if step == "remove" and len(there) > 1:
                place.unlink(missing_ok=True)
                there.pop(file, None)
            elif step in ("replace", "write into"):
                write(pa.table({"n": [number] * (number % 3 + 1)}), source / "new", 2)
                if step == "replace" or file not in there:
                    place.parent.mkdir(exist_ok=True)
                    os.rename(source / "new", place)
                else:
                    place.write_bytes((source / "new").read_bytes())
                there[file] = number
            elif step == "restart":
                retention.close()
                retention = VersionRetention(source, ring, keep=2)
                rows = {epoch: rows[epoch] for epoch in retention.epochs}
            elif step == "refresh":
                wanted = [each for _, each in sorted(there.items()) for _ in range(each % 3 + 1)]
                newest = retention.refresh().version
                assert rows.setdefault(newest, wanted) == wanted
                assert (numbers(ring), node.catalogue().version) == (wanted, newest)
                assert links(ring) == listed(ring)
                assert 1 <= len(node.epochs) <= 2
            for epoch in node.epochs:
                with contextlib.suppress(InputError, FileNotFoundError):  # written into, or without a link
                    assert numbers(ring, epoch) == rows[epoch]
        retention.close()


def counted(steps: Iterator[int], change: Callable[..., None], *args: Any, **named: Any) -> None:
    if next(steps, None) is None:
        os._exit(9)  # as if it were killed: nothing is tidied up
    change(*args, **named)


def crash_at(step: int, work: Callable[[], None]) -> bool:
    """Whether a child process that ends at its so manieth change of a folder has come to the end of its work before."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        steps = iter(range(step))
        for name in ("link", "rename", "unlink", "fsync"):
            setattr(os, name, partial(counted, steps, getattr(os, name)))
        work()
        os._exit(0)
    finally:
        os._exit(8)


def test_a_keeper_that_is_killed_anywhere_leaves_whole_versions_and_the_next_tidies_up(
    places: tuple[Path, Path],
) -> None:
    out, ring = places
    views = [{name: pa.table({"n": [epoch]}) for name in ("t", "u")} for epoch in range(5)]

    def work() -> None:
        retention = VersionRetention(out, ring, keep=2)
        retention.refresh()
        retention.close()

    finished, step = False, 0
    while not finished:
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(ring, ignore_errors=True)
        for epoch in (1, 2):
            committed(out, epoch, views[epoch])
            work()
        committed(out, 3, views[3], keep=1)
        finished = crash_at(step, work)
        there = Told(ring).epochs
        assert there in ((1, 2), (1, 2, 3), (2, 3))
        assert listed(ring) <= links(ring)
        assert all(numbers(ring, epoch, table) == [epoch] for epoch in there[-2:] for table in ("t", "u"))
        work()
        assert Told(ring).epochs == (2, 3)
        assert links(ring) == listed(ring)
        assert len(links(ring)) == 4
        step += 1
    assert step > 6
