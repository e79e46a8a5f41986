"""Servers in processes of their own, and connections to them."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cumulus.errors import ProcessError
from cumulus.machine_facts import cpu_seconds

START_S = 60.0
"""A server that does not answer after so long has failed."""
ARROW = "application/vnd.apache.arrow.stream"


class RunningServer:
    """A server that runs: its port, and how much of a core it takes."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that is kept open, without Nagle's delay."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_s(self) -> float:
        """Return the CPU time that it has taken."""
        return cpu_seconds([self.pid])


def ask(
    connection: http.client.HTTPConnection, path: str, *, body: Any = None, accept: str = "", form: str = ""
) -> bytes:
    """Return the body of an answer; a body that is given is posted, as JSON unless it is bytes of a `form`.

    Raises
    ------
    ProcessError
        If the answer is an error.
    """
    headers = {"Accept": accept} if accept else {}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = form or "application/json"
    connection.request("GET" if data is None else "POST", path, data, headers)
    answer = connection.getresponse()
    found = answer.read()
    if answer.status != 200:
        raise ProcessError(f"{path}: {answer.status} {found[:300]!r}", hint="This is a fault of the bench.")
    return found


@contextmanager
def cumulus_server(script: str, folder: Path, *options: str) -> Iterator[RunningServer]:
    """Run `cumulus serve` with a script over a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.sql").write_text(script)
    command = ["-m", "cumulus.cli.main", "serve", str(folder / "script.sql"), "--data", str(folder / "data"), *options]
    with _running([sys.executable, "-c", "from cumulus.cli.main import main; main()", *command[2:]]) as server:
        yield server


@contextmanager
def idle_server(folder: Path, rows: int) -> Iterator[RunningServer]:
    """Run a server that does nothing but give bytes that it has, of so many rows (`floor_server`)."""
    folder.mkdir(parents=True, exist_ok=True)
    with _running([sys.executable, "-m", "cumulus_lab.bench.serve.floor_server", str(rows)]) as server:
        yield server


@contextmanager
def _running(command: Sequence[str]) -> Iterator[RunningServer]:
    port = _free_port()
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        server, until = RunningServer(port, process.pid), time.monotonic() + START_S
        while not _answers(server):
            if process.poll() is not None or time.monotonic() > until:
                raise ProcessError("the server did not start", hint="What it said stands above.")
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _answers(server: RunningServer) -> bool:
    try:
        connection = server.connect()
    except OSError:
        return False
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
