"""The process that holds a bucket: every worker finds it as the last one left it, or knows that it did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.durable.store import NO_STORAGE
from cumulus.engine.engines import make_engine
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import read_table
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import StoreError
from cumulus.spark import bucket_server, bucket_template
from cumulus.spark.bucket_client import BucketClient, BucketServerError
from cumulus.spark.errors import carried_error
from cumulus.spark.functions import pack_functions
from cumulus.spark.messages import BucketWork
from cumulus.version import VERSION

PROGRAM = compile_sql(
    "CREATE TABLE r (a INT NOT NULL, x INT NOT NULL); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a",
    rely=False,
)
PLAN = BucketPlan()
ALWAYS = Snapshots()


def work(out: Path) -> bytes:
    maker, functions = partial(make_engine, "auto"), pack_functions({})
    return BucketWork(str(PROGRAM), PLAN, maker, functions, str(out), NO_STORAGE, 10).pickled()


def payload(*rows: tuple[int, int]) -> bytes:
    table = pa.table({"a": [row[0] for row in rows], "x": [row[1] for row in rows]})
    return pack([read_table(FolderSource("r", ""), PROGRAM.relation("r"), table, "r/1")], PLAN)[0]


def rows_of(out: Path, epoch: int, bucket: BucketClient, *rows: tuple[int, int]) -> list[tuple[int, int]]:
    report = bucket.call("apply", payload(*rows), epoch, f"n{epoch}", ALWAYS, False)
    return sorted(tuple(row.values()) for row in pq.read_table(out / report["written"][0]["files"]["v"]).to_pylist())


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that servers live as long as; sockets are in a folder of the test's own."""
    with tempfile.TemporaryDirectory(prefix="cu") as short:  # a socket's path has a hundred bytes at most
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.delenv(bucket_template.PLACE, raising=False)  # of a session that another test has started
        monkeypatch.setattr(tempfile, "tempdir", None)
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        yield process.pid
        process.kill()
        process.wait()
        for each in servers():
            each.wait(timeout=10)


def servers() -> list[psutil.Process]:
    alive = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in alive if "cumulus.spark.bucket_server" in each.cmdline()]


def test_the_next_worker_finds_what_the_last_one_left(owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as first:
        assert first.stamp is None
        first.call("start", work(tmp_path), 0, b"", 0, "")
        assert rows_of(tmp_path, 1, first, (1, 10), (2, 5)) == [(1, 10), (2, 5)]
    with BucketClient("c/0", "bucket 0", owner) as second:
        assert second.stamp == (1, "n1")
        assert rows_of(tmp_path, 2, second, (1, -3)) == [(1, 7), (2, 5)]
    with BucketClient("c/1", "bucket 1", owner) as other:
        assert other.stamp is None
    assert len(servers()) == 2


def test_a_bucket_is_made_from_a_snapshot_and_a_log(owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        bucket.call("start", work(tmp_path), 0, b"", 0, "")
        rows_of(tmp_path, 1, bucket, (1, 10))
        assert bucket.call("pending") is None
        bucket.call("dump")
        assert bucket.call("pending") is None
    with BucketClient("c/0", "bucket 0", owner) as bucket:  # it was made meanwhile
        assert bucket.stamp == (1, "n1")
        epoch, size, pages, first = bucket.call("pending")
        assert (epoch, pages, first) == (1, 1, 0)
        snapshot = bucket.call("page", 0)
        assert len(snapshot) == size
        assert bucket.call("pending") is None
    with BucketClient("other", "bucket 0", owner) as bucket:
        bucket.call("start", work(tmp_path), 0, snapshot, 1, "n1")
        bucket.call("replay", payload((1, 5)), 2)
        bucket.call("restamp", 2, "n2")
        assert rows_of(tmp_path, 3, bucket, (2, 1)) == [(1, 15), (2, 1)]


@pytest.mark.slow
def test_a_bucket_that_failed_has_no_stamp(owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        with pytest.raises(BucketServerError, match="the bucket was not started"):
            bucket.call("replay", payload((1, 1)), 1)
        bucket.call("start", work(tmp_path), 0, b"", 0, "")
        with pytest.raises(BucketServerError):
            bucket.call("apply", b"no payload", 1, "n1", ALWAYS, False)
        (tmp_path / "file").touch()
        bucket.call("start", work(tmp_path / "file"), 0, b"", 0, "")
        with pytest.raises(BucketServerError) as caught:
            bucket.call("apply", payload((1, 1)), 1, "n1", ALWAYS, False)
        assert isinstance(carried_error(caught.value), StoreError)
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp is None


def test_a_server_that_was_killed_is_started_anew(owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        bucket.call("start", work(tmp_path), 0, b"", 0, "")
        [process] = servers()
        process.kill()
        with pytest.raises((EOFError, ConnectionError)):
            rows_of(tmp_path, 1, bucket, (1, 1))
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp is None


@pytest.mark.slow
def test_workers_that_come_at_once_meet_one_server(owner: int) -> None:
    found: list[int] = []

    def come() -> None:
        with BucketClient("c/0", "bucket 0", owner):
            found.append(len(servers()))

    threads = [Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 6


def test_a_worker_that_dies_leaves_the_server_to_others(owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        bucket.call("start", work(tmp_path), 0, b"", 0, "")
        assert bucket._connection is not None
        os.write(bucket._connection.fileno(), b"\0\0\1\0half a request")
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp == (0, "")


def test_servers_end_with_their_owner(owner: int) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        [process] = servers()
        os.kill(owner, signal.SIGKILL)
        psutil.Process(owner).wait(timeout=5)
        process.wait(timeout=5)
        with pytest.raises((EOFError, ConnectionError)):
            bucket.call("stamp")


def test_servers_end_when_nobody_asks(owner: int) -> None:
    path = Path(tempfile.mkdtemp()) / "socket"
    started = time.monotonic()
    bucket_server.serve(path, owner, idle_s=0.5)
    assert time.monotonic() - started < 5
    assert not path.exists()


def test_a_folder_of_sockets_that_others_can_open_is_refused(owner: int) -> None:
    folder = Path(tempfile.gettempdir()) / f"cumulus-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(StoreError, match="is not a folder of yours alone"):
        BucketClient("c/0", "bucket 0", owner)


@pytest.mark.slow
def test_a_folder_too_long_for_sockets_is_left_for_a_shorter_one(
    owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp is None


def test_a_folder_without_room_for_sockets_is_told(owner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")
    with pytest.raises(StoreError, match="set TMPDIR"):
        BucketClient("c/0", "bucket 0", owner)


@pytest.fixture
def template(owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setattr(bucket_template, "_started", None)
    bucket_template.start_template(tmp_path / "log")
    started = bucket_template._started
    assert started is not None
    place = Path(os.environ[bucket_template.PLACE])
    while not place.exists():
        assert started.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    yield started
    started.kill()
    started.wait()
    os.environ.pop(bucket_template.PLACE, None)


def serving(template: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [each for each in psutil.Process(template.pid).children() if each.status() != psutil.STATUS_ZOMBIE]


def test_a_bucket_is_forked_from_a_template(template: subprocess.Popen[bytes], owner: int, tmp_path: Path) -> None:
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        bucket.call("start", work(tmp_path), 0, b"", 0, "")
        assert rows_of(tmp_path, 1, bucket, (1, 10)) == [(1, 10)]
    (server,) = serving(template)
    template.kill()  # buckets outlive it
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp == (1, "n1")
    with BucketClient("c/1", "bucket 1", owner) as other:  # and others start without it
        assert other.stamp is None
    assert len(servers()) == 1
    server.kill()


def test_a_template_of_another_release_or_that_hangs_is_not_used(
    template: subprocess.Popen[bytes], owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_template, "_WHAT_RUNS", (sys.executable, "0.0.1"))
    with BucketClient("c/0", "bucket 0", owner) as bucket:
        assert bucket.stamp is None
    assert serving(template) == []
    monkeypatch.setattr(bucket_template, "_WHAT_RUNS", (sys.executable, VERSION))
    monkeypatch.setattr(bucket_template, "_PATIENCE_S", 0.2)
    template.send_signal(signal.SIGSTOP)
    with BucketClient("c/1", "bucket 1", owner) as bucket:
        assert bucket.stamp is None
