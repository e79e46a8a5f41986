"""A worker's way to the process that holds a bucket; it starts the process if there is none."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

from cumulus.durable.folders import lock_file
from cumulus.errors import StoreError
from cumulus.spark.bucket_template import forked_server
from cumulus.spark.private_folder import private_folder

_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers that this worker started and that have not ended: nobody else can reap them."""
_TRIES = 3


class BucketServerError(Exception):
    """A request failed; in the words of the server."""


class BucketClient:
    """A bucket in its own process, as a context: `call` while it is open.

    Errors call it by its `name`. Its process lives as long as `owner`: the parent of all workers of the machine, if not
    given.

    Raises
    ------
    StoreError
        If no process can be started.
    """

    def __init__(self, identity: str, name: str, owner: int = 0) -> None:
        self._owner = owner or os.getppid()
        self._name = name
        self._path = private_folder() / hashlib.sha256(f"{identity}/{self._owner}".encode()).hexdigest()[:16]
        self._connection: Connection | None = None
        self.stamp: tuple[int, str] | None = None

    def __enter__(self) -> BucketClient:
        for _ in range(_TRIES):
            try:
                self._connection = self._connect() or self._start()
            except OSError as problem:
                raise StoreError(
                    f"{self._name}: no process for it: {problem.strerror or problem}",
                    hint=f"Make room in {self._path.parent}, or set TMPDIR on the workers.",
                ) from None
            try:
                self.stamp = self.call("stamp")
            except (EOFError, ConnectionError):
                self._connection.close()  # it was just ending
                continue
            return self
        raise StoreError(f"{self._name}: its process ends as soon as it is asked", hint="Look at Spark's log.")

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None
        self._connection.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """Ask for a method of `cumulus.spark.bucket_server.HeldBucket`; return what it returned.

        Raises
        ------
        BucketServerError
            With what it raised.
        EOFError, ConnectionError
            If the process has ended.
        """
        assert self._connection is not None
        self._connection.send((method, *arguments))
        is_done, answer = self._connection.recv()
        if not is_done:
            raise BucketServerError(answer)
        return answer

    def _connect(self) -> Connection | None:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(self._path))
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            return None
        return Connection(client.detach())

    def _start(self) -> Connection:
        """Start the process, unless another worker has done so meanwhile."""
        lock = lock_file(self._path.with_suffix(".lock"), wait=True)
        assert lock is not None
        with lock:
            found = self._connect()
            if found is not None:
                return found
            self._path.unlink(missing_ok=True)
            self._launch()
            found = self._connect()
        if found is None:
            raise StoreError(f"{self._name}: its process ended at once", hint="Look at Spark's log.")
        return found

    def _launch(self) -> None:
        if forked_server(self._path, self._owner):
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-m", "cumulus.spark.bucket_server", str(self._path), str(self._owner)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a Ctrl-C is for the driver
        )
        _STARTED[:] = [process, *(each for each in _STARTED if each.poll() is None)]
        assert process.stdout is not None
        process.stdout.readline()  # it listens, or it has ended
        process.stdout.close()
