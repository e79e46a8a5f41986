"""The folder of a server that goes, or changes, under it: seen before the next answer, told, mended where that can be.

Nothing is acknowledged that a restart would not find: after each harm and its mend the rows are those acknowledged.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cumulus.errors import StoreError, StoreLostError
from cumulus.hosts import RowRequest, TableRows, WriteRequest
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from support import server_driver
from support.http_server import running

SCRIPT = "CREATE TABLE r (a INTEGER, t VARCHAR); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;"


def write(keeper: SingleWriter, number: int) -> None:
    keeper.write(WriteRequest((TableRows("insert", "r", [(number, "x")]),))).result(10)


def numbers(keeper: SingleWriter) -> list[int]:
    return sorted(keeper.host.read(RowRequest("v")).table["a"].to_pylist())


def newest(data: Path) -> Path:
    return max((data / "log").glob("*.log"))


def snapshot_of(data: Path) -> Path:
    (found,) = data.glob("snapshot-*")
    return found


def away(path: Path) -> Path:
    return path.with_name(f"{path.name}-away")


def swapped(path: Path) -> None:
    path.rename(away(path))
    if away(path).is_dir():
        shutil.copytree(away(path), path)
    else:
        shutil.copy(away(path), path)


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 10)


def in_place_of_it_a_file(path: Path) -> None:
    path.rename(away(path))
    path.touch()


def back_in_place_of_a_file(path: Path) -> None:
    path.unlink()
    away(path).rename(path)


@dataclass(frozen=True)
class Harm:
    """What happens to a folder; what brings it back, if anything does; whether a snapshot from memory mends it."""

    do: Callable[[Path], Any]
    undo: Callable[[Path], Any] | None = None
    is_mended: bool = True


def moved(place: Callable[[Path], Path], is_mended: bool = True) -> Harm:
    where: dict[Path, Path] = {}

    def do(data: Path) -> None:
        where[data] = place(data)
        where[data].rename(away(where[data]))

    return Harm(do, lambda data: away(where[data]).rename(where[data]), is_mended)


def replaced(place: Callable[[Path], Path], is_mended: bool = True) -> Harm:
    where: dict[Path, Path] = {}

    def do(data: Path) -> None:
        where[data] = place(data)
        swapped(where[data])

    def undo(data: Path) -> None:
        path = where[data]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        away(path).rename(path)

    return Harm(do, undo, is_mended)


HARMS = {
    "the folder is removed": Harm(shutil.rmtree, None, False),
    "the folder is moved": moved(lambda data: data, False),
    "the folder is replaced by a copy": replaced(lambda data: data, False),
    "the folder is replaced by a file": Harm(in_place_of_it_a_file, back_in_place_of_a_file, False),
    "the log's folder is removed": Harm(lambda data: shutil.rmtree(data / "log"), None, False),
    "the log's folder is moved": moved(lambda data: data / "log", False),
    "the log's file is removed": Harm(lambda data: newest(data).unlink()),
    "the log's file is moved": moved(newest),
    "the log's file is replaced by a copy": replaced(newest),
    "the log's file is emptied": Harm(lambda data: os.truncate(newest(data), 0)),
    "the log's file is cut": Harm(lambda data: os.truncate(newest(data), 20)),
    "the log's file is longer": Harm(lambda data: appended(newest(data))),
}
SNAPSHOT_HARMS = {
    "the snapshot is removed": Harm(lambda data: shutil.rmtree(snapshot_of(data))),
    "the snapshot is moved": moved(snapshot_of),
    "the manifest is removed": Harm(lambda data: (data / "server.json").unlink()),
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., SingleWriter]]:
    (tmp_path / "script.sql").write_text(SCRIPT)
    made: list[SingleWriter] = []

    def make(**settings: Any) -> SingleWriter:
        made.append(open_keeper(tmp_path / "script.sql", ServerSettings(tmp_path / "data", **settings)))
        return made[-1]

    yield make
    for keeper in made:
        with suppress(StoreError):
            keeper.close()


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("sync", ["always", "off"])
def test_nothing_is_acknowledged_where_a_restart_would_not_find_it(
    harm: str, sync: str, tmp_path: Path, opened: Callable[..., SingleWriter]
) -> None:
    data, what = tmp_path / "data", HARMS[harm]
    keeper = opened(engine="interpreter", sync=sync)
    write(keeper, 1)
    write(keeper, 2)
    assert keeper.status()["problem"] == ""
    what.do(data)
    with pytest.raises(StoreLostError):
        write(keeper, 3)
    assert str(tmp_path) in keeper.status()["problem"]
    with pytest.raises(StoreLostError):
        write(keeper, 4)
    assert numbers(keeper) == [1, 2], "rows are read on"
    if what.undo is not None:
        what.undo(data)
        assert keeper.status()["problem"] == ""
        write(keeper, 5)
        keeper.close()
        keeper = opened(engine="interpreter")
        assert numbers(keeper) == [1, 2, 5]
        keeper.close()


@pytest.mark.parametrize("harm", [name for name, each in {**HARMS, **SNAPSHOT_HARMS}.items() if each.is_mended])
@pytest.mark.parametrize("at_the_end", [False, True], ids=["by an admin", "at the end"])
def test_a_snapshot_brings_back_what_the_log_had(
    harm: str, at_the_end: bool, tmp_path: Path, opened: Callable[..., SingleWriter]
) -> None:
    keeper = opened(engine="interpreter")
    write(keeper, 1)
    {**HARMS, **SNAPSHOT_HARMS}[harm].do(tmp_path / "data")
    assert keeper.status()["problem"]
    if at_the_end:
        with pytest.raises(StoreLostError, match="was written anew"):
            keeper.close()
        expected = [1]
    else:
        keeper.snapshot().result(10)
        assert keeper.status()["problem"] == ""
        write(keeper, 2)
        write(keeper, 3)
        kept = tmp_path / "killed"
        shutil.copytree(tmp_path / "data", kept)  # as a kill would leave it
        keeper.close()
        shutil.rmtree(tmp_path / "data")
        kept.rename(tmp_path / "data")
        expected = [1, 2, 3]
    keeper = opened(engine="interpreter")
    assert (numbers(keeper), keeper.status()["problem"]) == (expected, "")


@pytest.mark.parametrize("harm", ["the folder is removed", "the folder is moved", "the folder is replaced by a copy"])
def test_a_folder_of_others_is_left_alone(harm: str, tmp_path: Path, opened: Callable[..., SingleWriter]) -> None:
    data = tmp_path / "data"
    keeper = opened(engine="interpreter")
    write(keeper, 1)
    HARMS[harm].do(data)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")} if data.exists() else None
    with pytest.raises(StoreError):
        keeper.snapshot().result(10)
    with pytest.raises(StoreLostError, match="is not whole"):
        keeper.close()
    assert before == ({path: path.stat().st_mtime_ns for path in data.rglob("*")} if data.exists() else None)


def test_older_files_of_a_log_are_seen_to(tmp_path: Path) -> None:
    from cumulus.durable.log_files import RecordLog

    log = RecordLog(tmp_path / "log", sync="never", segment_bytes=100)
    assert log.recover() == (1, [])
    for number in range(10):
        log.write([b"%090d" % number])
    first, second, *_ = sorted((tmp_path / "log").glob("*.log"))
    log.forget(log.last - 8)
    assert not first.exists()
    log.write([b"x"])
    whole = max((tmp_path / "log").glob("*.log"))
    assert whole != second
    min((tmp_path / "log").glob("*.log")).unlink()
    with pytest.raises(StoreLostError, match="it has gone"):
        log.write([b"y"])
    log.close()


@pytest.mark.slow
def test_it_is_told_over_http_and_by_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    data = tmp_path / "data"
    for harm, is_kept in (("the folder is removed", False), ("the log's file is removed", True)):
        life = subprocess.Popen(
            [sys.executable, server_driver.__file__, str(tmp_path / "script.sql"), str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert life.stdout is not None
            with httpx.Client(base_url=life.stdout.readline().strip(), timeout=20, trust_env=False) as http:
                assert http.post("/v1/tables/r/rows", json=[[1, "x"]]).status_code == 200
                HARMS[harm].do(data)
                ready = http.get("/readyz")  # before any write
                assert (ready.status_code, str(data) in ready.json()["problem"]) == (503, True)
                told = http.post("/v1/tables/r/rows", json=[[2, "x"]])
                assert (told.status_code, told.json()["error"]) == (503, "StoreLostError")
                assert [row["a"] for row in http.get("/v1/views/v/rows").json()["rows"]] == [1]
            life.send_signal(signal.SIGTERM)
            _, errors = life.communicate(timeout=30)
            assert life.returncode == 1, errors
            assert ("was written anew" if is_kept else "is not whole") in errors
            assert data.exists() == is_kept
        finally:
            life.kill()
            life.wait()


def test_a_folder_that_others_mount_over_is_seen(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with running(tmp_path, SCRIPT) as server, server.http() as http:
        assert http.post("/v1/tables/r/rows", json=[[1, "x"]]).status_code == 200
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path / "data")]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        try:
            assert http.post("/v1/tables/r/rows", json=[[2, "x"]]).status_code == 503
            assert http.get("/readyz").status_code == 503
        finally:
            subprocess.run(["umount", "--lazy", str(tmp_path / "data")], check=True)
        assert http.post("/v1/tables/r/rows", json=[[3, "x"]]).status_code == 200
        assert http.get("/readyz").status_code == 200
