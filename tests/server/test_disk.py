"""What a server's disk does, and does not: order of syncs and answers, a full one, torn and damaged logs."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cumulus.errors import StoreError
from cumulus.hosts import RowRequest, TableRows, WriteRequest
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from support import server_driver

SCRIPT = "CREATE TABLE r (a INTEGER, t VARCHAR); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.sql"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def write(keeper: SingleWriter, number: int, size: int = 0, id: str = "") -> int:
    rows = [(number, "x" * size)]
    return keeper.write(WriteRequest((TableRows("insert", "r", rows),), id)).result(10).at


def numbers(keeper: SingleWriter) -> list[int]:
    return sorted(keeper.host.read(RowRequest("v")).table["a"].to_pylist())


def test_a_full_disk_refuses_and_the_server_goes_on(script: Path, small_disk: Path) -> None:
    settings = ServerSettings(small_disk / "data", engine="interpreter")
    keeper = open_keeper(script, settings)
    assert write(keeper, 1) == 1
    filling = small_disk / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left on device"):
            write(keeper, 2, 30_000, "large")
        assert numbers(keeper) == [1]
        assert "No space left on device" in keeper.status()["problem"], "a full disk is not ready"
    with pytest.raises(StoreError, match="no snapshot can be written"):
        keeper.snapshot().result(10)
    filling.unlink()
    assert not keeper.status()["problem"], "it is ready again, though nothing was written meanwhile"
    assert write(keeper, 2, 30_000, "large") == 2
    assert write(keeper, 3) == 3
    assert keeper.snapshot().result(10) == 3
    keeper.close()
    keeper = open_keeper(script, settings)
    assert (keeper.at, numbers(keeper)) == (3, [1, 2, 3])
    keeper.close()


def test_a_torn_log_is_cut_and_a_damaged_one_stops_the_start(script: Path) -> None:
    data = script.parent / "data"
    settings = ServerSettings(data, engine="interpreter", sync="off")
    keeper = open_keeper(script, settings)
    for number in range(5):
        write(keeper, number)
    copy = script.parent / "copy"
    shutil.copytree(data, copy)  # as a crash would leave it
    keeper.close()
    (log,) = (copy / "log").glob("*.log")
    whole = log.read_bytes()
    settings = ServerSettings(copy, engine="interpreter", sync="off")
    log.write_bytes(whole[:-3])
    keeper = open_keeper(script, settings)
    assert (keeper.at, numbers(keeper)) == (4, [0, 1, 2, 3])
    keeper.close()
    shutil.rmtree(copy)
    shutil.copytree(data, copy)
    shutil.rmtree(copy / "log")
    (copy / "log").mkdir()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 4
    log.write_bytes(damaged)
    with pytest.raises(StoreError, match="damaged at byte"):
        open_keeper(script, settings)


@pytest.mark.slow
def test_nothing_is_answered_before_its_record_is_on_the_disk(script: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    trace, data = script.parent / "trace", script.parent / "data"
    calls = "trace=fdatasync,write,writev,send,sendto,sendmsg"
    command = ["strace", "-f", "-y", "-s", "60", "-e", calls, "-o", str(trace), sys.executable]
    life = subprocess.Popen(
        [*command, server_driver.__file__, str(script), str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert life.stdout is not None
    assert life.stderr is not None
    address = life.stdout.readline().strip()
    if not address:
        pytest.skip(f"strace may not look on: {life.stderr.read()[:200]}")
    port, count = int(address.rsplit(":", 1)[1]), 20
    for number in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/tables/r/rows", f'[[{number}, "x"]]', {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()
    (child,) = Path(f"/proc/{life.pid}/task/{life.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert life.wait(20) == 0
    written = synced = answered = 0
    waiting: set[str] = set()
    for line in trace.read_text(errors="replace").splitlines():
        thread, call = line.split(None, 1)
        if ".log>" in call and call.startswith("write("):
            written += 1
        elif call.startswith("fdatasync(") and ".log>" in call:
            if call.endswith("= 0"):
                synced = written
            else:
                waiting.add(thread)
        elif re.match(r"<\.\.\. fdatasync resumed>\) += 0", call) and thread in waiting:
            waiting.remove(thread)
            synced = written
        elif '"HTTP/1.1 200' in call:
            answered += 1
            assert synced >= answered, line
    assert answered == count


def test_answers_do_not_wait_for_a_sync_that_is_not_asked_for(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100ms the log is synced a little later, with off at the end alone."""
    synced: list[float] = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (synced.append(time.monotonic()), sync(file))[1])
    for policy, count in (("100ms", 1), ("off", 0)):
        settings = ServerSettings(script.parent / policy, engine="interpreter", sync=policy)  # type: ignore[arg-type]
        keeper = open_keeper(script, settings)
        synced.clear()
        begun = time.monotonic()
        assert [write(keeper, number) for number in range(3)] == [1, 2, 3]
        while time.monotonic() < begun + 0.25 and len(synced) < count:
            time.sleep(0.01)
        assert len(synced) == count
        assert all(at >= begun + 0.09 for at in synced)
        keeper.close()
