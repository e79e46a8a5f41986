"""The log: what was written is there again, a torn end is cut, and what was damaged is an error."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.durable.log_files import RecordLog
from cumulus.errors import LockedError, StoreError
from support.tiers import examples

groups = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=8)
sizes = st.sampled_from([1, 100, 10_000])


SEAL_BYTES = 24
"""What closing a log writes."""


def write(folder: Path, content: list[list[bytes]], segment_bytes: int) -> None:
    log = RecordLog(folder, sync="never", segment_bytes=segment_bytes)
    assert log.recover() == (1, [])
    for group in content:
        log.write(group)
    log.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@contextmanager
def opened(folder: Path, segment_bytes: int = 10_000) -> Iterator[RecordLog]:
    log = RecordLog(folder, sync="never", segment_bytes=segment_bytes)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def folder_of(content: list[list[bytes]], segment_bytes: int) -> Iterator[Path]:
    with TemporaryDirectory() as name:
        write(Path(name), content, segment_bytes)
        yield Path(name)


def flat(content: list[list[bytes]]) -> list[bytes]:
    return [record for group in content for record in group]


@settings(max_examples=examples(200), deadline=None)
@given(groups, groups, sizes)
def test_a_second_life_goes_on_where_the_first_one_ended(
    first: list[list[bytes]], second: list[list[bytes]], size: int
) -> None:
    with folder_of(first, size) as folder:
        with opened(folder, size) as log:
            assert log.recover() == (1, flat(first))
            last = len(flat(first))
            for group in second:
                last += len(group)
                assert log.write(group) == last
        with opened(folder, size) as log:
            assert log.recover() == (1, flat(first + second))


@settings(max_examples=examples(400), deadline=None)
@given(groups.filter(bool), sizes, st.data())
def test_a_torn_end_is_cut(content: list[list[bytes]], size: int, data: st.DataObject) -> None:
    """Of the last group any part may be there, and of what is there any byte may be wrong; all others are whole."""
    with folder_of(content[:-1], size) as folder:
        before = {path: path.stat().st_size for path in files(folder)}
        with opened(folder, size) as log:
            log.recover()
            log.write(content[-1])
            newest = files(folder)[-1]
            torn = newest.read_bytes()  # as the end of the process leaves it
        whole = before.get(newest, 0)
        keep = data.draw(st.integers(whole, len(torn) - 1), "bytes kept")
        tail = data.draw(st.sampled_from(["cut", "zeros", "noise"]), "what stands behind them")
        rest = {"cut": b"", "zeros": bytes(len(torn) - keep), "noise": data.draw(st.binary(max_size=60))}[tail]
        if rest.startswith(torn[keep:]):  # nothing of the group is torn
            rest = b""
        newest.write_bytes(torn[:keep] + rest)
        with opened(folder, size) as log:
            assert log.recover() == (1, flat(content[:-1]))
            log.write([b"later"])
        with opened(folder, size) as log:
            assert log.recover() == (1, [*flat(content[:-1]), b"later"])


@settings(max_examples=examples(400), deadline=None)
@given(groups.filter(bool), sizes, st.booleans(), st.data())
def test_a_flipped_bit_inside_is_an_error(
    content: list[list[bytes]], size: int, is_closed: bool, data: st.DataObject
) -> None:
    """Inside is what another group follows; who has closed the log has written one more."""
    with folder_of(content, size) as folder:
        ends = {path: path.stat().st_size - SEAL_BYTES * (path == files(folder)[-1]) for path in files(folder)}
        if not is_closed:
            with opened(folder, size) as log:
                log.recover()
                log.write([b"more"])
                last = files(folder)[-1]
                kept = last.read_bytes()
            last.write_bytes(kept)
        path, place = data.draw(st.sampled_from([(path, place) for path, end in ends.items() for place in range(end)]))
        damaged = bytearray(path.read_bytes())
        damaged[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
        path.write_bytes(damaged)
        with opened(folder, size) as log, pytest.raises(StoreError, match=f"{path}: damaged at byte") as raised:
            log.recover()
        told = int(raised.value.message.split("damaged at byte ")[1].split(":")[0])
        assert 0 <= told <= place


@settings(max_examples=examples(200), deadline=None)
@given(groups.filter(bool), st.integers(0, 40))
def test_what_is_forgotten_goes_by_whole_files(content: list[list[bytes]], number: int) -> None:
    records = flat(content)
    number = min(number, len(records))
    with folder_of(content, 60) as folder:
        count = len(files(folder))
        with opened(folder, 60) as log:
            log.recover()
            log.forget(number)
        with opened(folder, 60) as log:
            first, kept = log.recover()
            assert (first, kept) == (first, records[first - 1 :])
            assert first <= number + 1
            assert number < len(records) or len(files(folder)) == min(count, 1)
            assert log.write([b"next"]) == len(records) + 1


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [[b"a"], [b"b", b"c"], [b"d"]], 1)
    files(tmp_path)[1].unlink()
    with opened(tmp_path) as log, pytest.raises(StoreError, match="records 2 to 3 should stand before this file"):
        log.recover()


def test_a_group_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [[b"a"], [b"b"]], 1000)
    path = files(tmp_path)[0]
    data = path.read_bytes()
    size = (len(data) - SEAL_BYTES) // 2
    path.write_bytes(data[:size] + data)
    with opened(tmp_path) as log, pytest.raises(StoreError, match=f"damaged at byte {size}"):
        log.recover()


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(LockedError, match="another process writes this log"):
        RecordLog(tmp_path)
    RecordLog(tmp_path).close()


def test_a_full_disk_takes_nothing_of_a_group(tmp_path: Path) -> None:
    """The system's limit of a file's size stands for a disk that is full; with room the log goes on."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with opened(tmp_path) as log:
            log.recover()
            log.write([b"here"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
            for _ in range(2):
                with pytest.raises(StoreError, match="the log cannot be read or written: File too large"):
                    log.write([bytes(1500), bytes(1500)])
            assert log.write([b"small"]) == 2
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert log.write([bytes(3000)]) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert len(files(tmp_path)) == 1
    with opened(tmp_path) as log:
        assert log.recover() == (1, [b"here", b"small", bytes(3000)])


def test_a_group_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)
        monkeypatch.setattr(os, name, lambda file, sync=sync: (synced.append(file), sync(file))[1])
    for policy, count in (("always", 3), ("never", 0)):  # the first file's entry, and two groups
        log = RecordLog(tmp_path / policy, sync=policy)  # type: ignore[arg-type]
        log.recover()
        synced.clear()
        log.write([b"1", b"2", b"3"])
        log.write([b"4"])
        assert len(synced) == count
        log.close()


def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="the log cannot be read or written: Not a directory"):
        RecordLog(tmp_path / "file" / "log")
