"""What another user of the same computer can do to a cluster: nothing."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.home import Home
from cumulus.errors import InputError, RemoteProtocolError, UsageError
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.greeting import Credentials
from support.cluster_driver import machines, start
from support.live_load import begin, settings_of
from support.sales_stream import SalesStream, cluster_program

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can look into, as a home in /srv may be."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], Any]) -> Any:
    """Return what a function returns, or the text of what it raises, when user nobody calls it."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                found = work()
            except Exception as problem:  # noqa: BLE001  # the parent looks at it
                found = f"{type(problem).__name__}: {problem}"
            os.write(there, pickle.dumps(found))
            code = 0
        finally:
            os._exit(code)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        told = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return pickle.loads(told)


def ports_of(process: psutil.Process) -> list[int]:
    return [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_nobody_can_do_nothing_to_a_run_of_root(open_folder: Path) -> None:
    stream, out = SalesStream(open_folder / "in", 1), open_folder / "out"
    stream.write(400)
    running = start(stream, out)
    try:
        until = time.monotonic() + 120
        ports: dict[str, list[int]] = {}
        while len([name for name, found in ports.items() if found]) < 5:
            assert time.monotonic() < until
            assert running.poll() is None
            time.sleep(0.05)
            alive = machines(running)
            ports = {name: ports_of(process) for name, process in alive.items()}
        settings = read_settings(out / "checkpoint")
        assert settings is not None

        def connect() -> list[str]:
            """Greet each machine, as a client and as another machine, with all that could be known but the secret."""
            told = []
            for machine, (port, *_) in ports.items():
                for name, secret in (("client", None), ("client", b""), ("node0", None), ("publisher", b"")):
                    try:
                        me = Credentials(name, settings.program.encode(), secret)
                        ClientConnection(me, machine, ("127.0.0.1", port), 1, time.monotonic() + 30)
                        told.append(f"{machine} has let {name} in")
                    except RemoteProtocolError as problem:
                        told.append(problem.message)
            return told

        told = as_nobody(connect)
        assert len(told) == 20
        assert all(each.endswith("does not know the secret") for each in told), told
        assert "PermissionError" in as_nobody(lambda: os.listdir(out / "checkpoint"))
        assert "PermissionError" in as_nobody(lambda: (out / "checkpoint" / "cluster.json").read_text())
        assert "PermissionError" in as_nobody(lambda: (out / "x").write_text(""))
        assert running.poll() is None
        assert {name: each.pid for name, each in machines(running).items()} == {
            name: each.pid for name, each in alive.items()
        }
    finally:
        running.terminate()  # it ends its machines
        running.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_nobody_is_no_client_of_a_cluster_of_root(open_folder: Path) -> None:
    home = open_folder / "home"
    daemon.start(settings_of(home))
    try:
        begin(home)
        assert "Error" in as_nobody(lambda: cumulus.connect(home).insert("people", [(77, "x")]))
        assert "PermissionError" in as_nobody(lambda: (home / "checkpoint" / "secret").read_bytes())
    finally:
        daemon.stop(home)


def test_the_state_of_a_run_is_for_its_user_alone(tmp_path: Path) -> None:
    """Also where the folder was there before."""
    out = tmp_path / "out"
    (out / "checkpoint").mkdir(mode=0o755, parents=True)
    stream = SalesStream(tmp_path / "in", 1)
    stream.write(1)
    Home(cluster_program(), stream.sources, out, None, mode=Mode.EVENTUAL, nodes=2, switches=2).close()
    assert stat.S_IMODE((out / "checkpoint").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    place = tmp_path / "out" / "checkpoint"
    place.mkdir(parents=True)
    os.chown(place, NOBODY, NOBODY)
    stream = SalesStream(tmp_path / "in", 1)
    stream.write(1)
    with pytest.raises(UsageError, match=f"{place} belongs to another user\nGive another folder"):
        Home(cluster_program(), stream.sources, place.parent, None, mode=Mode.EVENTUAL, nodes=2, switches=2)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_secret_that_others_can_read_or_write_is_none(tmp_path: Path, mode: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text("known to all")
    secret.chmod(mode)
    live = settings_of(tmp_path / "home")
    with pytest.raises(InputError, match=f"{secret}: the secret is not yours alone\n.*chmod 600"):
        daemon.serve(
            replace(live, secret=str(secret)),
            lambda: True,
            lambda: None,
            lambda _: None,
            print,
            None,
        )


def test_a_port_that_says_nothing_is_given_up_in_time() -> None:
    """A client waits as long as it was told, also for the greeting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            ClientConnection(Credentials("client"), "node0", silent.getsockname()[:2], 1, begun + 0.2)
        assert time.monotonic() - begun >= 0.2
