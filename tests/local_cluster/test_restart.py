"""A cluster that is ended, or finds what it has written damaged, missing, in use or of another run."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import equip
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.errors import LockedError, MismatchError, StoreError
from cumulus.machine import Recovered
from support.cluster_driver import run_through, start
from support.equal_outputs import difference
from support.sales_stream import SalesStream, cluster_program

pytestmark = [pytest.mark.xdist_group("restart"), pytest.mark.slow]  # one worker has what is made once


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an input, and the output of a cluster whose node and publisher have died once each."""
    folder = tmp_path_factory.mktemp("done")
    stream = SalesStream(folder / "in", 1)
    stream.write(6)
    told = run_through(stream, folder / "out", "node1.after-outputs:2,before-manifest:5")
    assert [line for line in told if line.startswith("epoch")] == [f"epoch {at}" for at in range(1, 7)]
    notes = [line for line in told if not line.startswith("epoch")]
    assert [note.split(";")[0] for note in notes] == [
        f"note: {name} was ended by signal 9, Killed" for name in ("node1", "publisher")
    ]
    assert all("; the cluster goes on after epoch " in note for note in notes)
    return folder


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    """A copy of it; its home says where it was made."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True, symlinks=True)
    card = tmp_path / "out" / "checkpoint" / "cluster.json"
    card.write_text(card.read_text().replace(str(done), str(tmp_path)))
    return tmp_path


def home_of(folder: Path, **settings: Any) -> Home:
    sources = SalesStream(folder / "in", 1).sources
    wanted: dict[str, Any] = {"mode": Mode.EVENTUAL, "nodes": 2, "switches": 2, **settings}
    return Home(cluster_program(), sources, folder / "out", None, **wanted)


def recover(folder: Path, name: str) -> None:
    """Make a machine of what its folder holds, as its process does."""
    spec = equip(name, {"home": str(folder / "out" / "checkpoint"), "last": 0})
    assert spec.log is not None
    try:
        spec.machine.step([Recovered(*spec.log.recover())])
        spec.machine.check()
    finally:
        spec.log.close()


def log_of(folder: Path, name: str) -> Path:
    (found,) = (folder / "out" / "checkpoint" / name / "log").glob("*.log")
    return found


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_epochs_are_those_of_the_embedded_host_after_machines_have_died(done: Path) -> None:
    SalesStream(done / "in", 1).run_embedded(done / "embedded")
    assert difference(done / "embedded", done / "out") == ""


@pytest.mark.kill
def test_a_run_goes_on_behind_a_torn_end_of_a_log(folder: Path) -> None:
    """The end of a group that was on its way to the disk when the machine was lost; here that of an unknown epoch."""
    for name in ("node0", "switch1", "publisher"):
        path = log_of(folder, name)
        path.write_bytes(path.read_bytes() + path.read_bytes()[:50])
    stream = SalesStream(folder / "in", 1)
    stream.write(6)
    assert committed_epochs(folder / "out") == [1, 2, 3, 4, 5, 6]
    stream.write(1)
    assert run_through(stream, folder / "out") == ["epoch 7"]
    stream.run_embedded(folder / "embedded")
    assert difference(folder / "embedded", folder / "out") == ""


@pytest.mark.parametrize("name", ["node0", "node1", "switch0", "switch1"])
def test_damage_is_one_error_that_names_what_is_damaged(folder: Path, name: str) -> None:
    place = folder / "out" / "checkpoint" / name
    path = log_of(folder, name)
    whole = path.read_bytes()
    recover(folder, name)
    states = sorted(place.glob("*.state"))
    assert states, "no snapshot was needed"
    damage(path)
    with pytest.raises(StoreError, match=f"{path}: damaged at byte .*\nBring the file back"):
        recover(folder, name)
    path.write_bytes(whole[: len(whole) // 3])  # as if its end had been torn: what was committed is missed
    for state in states:
        state.unlink()
    with pytest.raises(StoreError, match=f"{name}: epoch [0-9] is committed, and not in the log"):
        recover(folder, name)


@pytest.mark.parametrize("name", ["node1", "switch0"])
def test_a_damaged_snapshot_is_one_error_that_names_it(folder: Path, name: str) -> None:
    for state in (folder / "out" / "checkpoint" / name).glob("*.state"):
        damage(state)
    with pytest.raises(StoreError, match=rf"/{name}/[0-9].state is damaged.*\nBring the file back"):
        recover(folder, name)


@pytest.mark.kill
def test_a_run_says_what_a_machine_says(folder: Path) -> None:
    damage(log_of(folder, "node1"))
    stream = SalesStream(folder / "in", 1)
    process = start(stream, folder / "out")
    told, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert told.startswith(f"ProcessError: node1: {log_of(folder, 'node1')}: damaged at byte ")
    assert len(told.splitlines()) == 2, told


def test_only_one_run_at_a_time_has_a_home(folder: Path) -> None:
    with home_of(folder), pytest.raises(LockedError, match="another run is using this checkpoint"):
        home_of(folder)


@pytest.mark.parametrize("other", [{"nodes": 3}, {"switches": 1}, {"mode": Mode.GATED}])
def test_a_cluster_stays_what_it_was(folder: Path, other: dict[str, Any]) -> None:
    with pytest.raises(MismatchError, match="this cluster began with --nodes 2 --switches 2 --mode eventual, and now"):
        home_of(folder, **other)
    home_of(folder).close()


def test_hosts_do_not_go_on_with_what_is_not_theirs(folder: Path) -> None:
    stream = SalesStream(folder / "in", 1)
    embedded = partial(EmbeddedRun, cluster_program(), stream.sources, make_engine=partial(make_engine, "interpreter"))
    with pytest.raises(MismatchError, match="made by --host cluster\nRun with --host cluster, or"):
        embedded(folder / "out")
    shutil.rmtree(folder / "out")
    embedded(folder / "out").close()
    with pytest.raises(MismatchError, match="made by --host embedded\nRun with --host embedded, or"):
        home_of(folder)


@pytest.mark.kill
@pytest.mark.parametrize("size", [1_000, 3_000, 6_000, 15_000])
def test_a_full_disk_is_one_error_and_the_next_run_goes_on(tmp_path: Path, size: int) -> None:
    """No file may grow beyond a size, as on a disk without room."""
    stream, out = SalesStream(tmp_path / "in", 4), tmp_path / "out"
    stream.write(8)
    Home(cluster_program(), stream.sources, out, None, mode=Mode.EVENTUAL, nodes=2, switches=2).close()
    limit: Callable[[], None] = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    process = start(stream, out, before=limit)
    told, _ = process.communicate(timeout=100)
    assert process.returncode == 1, told
    (error,) = [line for line in told.splitlines() if "Error: " in line]
    assert "File too large" in error
    assert "Make room there" in told
    assert "Traceback" not in told
    run_through(stream, out)
    stream.run_embedded(tmp_path / "embedded")
    assert difference(tmp_path / "embedded", out) == ""
