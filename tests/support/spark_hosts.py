"""A standalone Spark on this machine whose workers see no folder that the driver writes but those that they share."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from cumulus.spark.java import find_java

HOME = Path(pyspark.__file__).parent


def can_hide_folders() -> bool:
    """Whether this user may give a process mounts of its own."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": find_java().home,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


def _start(log: Path, arguments: Sequence[str], hidden: Sequence[Path], more: Mapping[str, str]) -> subprocess.Popen:
    command = shlex.join([str(HOME / "bin" / "spark-class"), *arguments])
    if hidden:
        mounts = [f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}" for folder in hidden]
        arguments = ["unshare", "-m", "sh", "-c", " && ".join([*mounts, f"exec {command}"])]
    else:
        arguments = ["sh", "-c", f"exec {command}"]
    with log.open("wb") as file:
        return subprocess.Popen(
            arguments, stdout=file, stderr=file, env=_environment(more), cwd=log.parent, start_new_session=True
        )


@contextmanager
def standalone(
    folder: Path, hidden: Sequence[Path] = (), workers: int = 2, more: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a master and workers of one core each; yield the URL of the master.

    Parameters
    ----------
    folder
        Where the logs and the working folders of the workers are.
    hidden
        In place of these folders each worker has an empty one of its own, in memory.
    more
        Variables of the workers' environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started: list[subprocess.Popen] = []
    log = folder / "master.log"
    try:
        arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        started.append(_start(log, [*arguments, "--webui-port", "0"], (), {}))
        url = _found(log, "Starting Spark master at ")
        for number in range(workers):
            arguments = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
            arguments += ["--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"work{number}"), url]
            started.append(_start(folder / f"worker{number}.log", arguments, hidden, more or {}))
        for number in range(workers):
            _found(folder / f"worker{number}.log", "Successfully registered with master")
        yield url
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _found(log: Path, words: str, seconds: float = 120.0) -> str:
    """Return what comes behind some words in a log, once they are there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for line in log.read_text(errors="replace").splitlines():
            if words in line:
                return line.split(words)[1].strip()
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))


@contextmanager
def connect_server(folder: Path, hidden: Sequence[Path] = ()) -> Iterator[str]:
    """Run a server of Spark Connect, with `hidden` as in `standalone`; yield its address."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "connect.log"
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    arguments = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    arguments += ["--conf", f"spark.connect.grpc.binding.port={port}"]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    process = _start(log, arguments, hidden, {})
    try:
        _found(log, "Spark Connect server started at: ")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
