"""The process that holds a bucket, and serves it to the workers of its machine.

Spark gives a bucket to whichever worker is free, and a worker cannot see another's memory. So the bucket lives in a
process of its own, next to the workers: each asks it for what an epoch needs, over a socket, one after the other
(decision 17). The process ends with the workers' parent, or when nobody has asked for a while.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cumulus.durable.store import Store, store_of
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.stages.parts import Part, PartMaker, Writing
from cumulus.machine_facts import host_name
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.spark.functions import unpack_functions
from cumulus.spark.messages import BucketWork, Pending

PAGE_BYTES = 4 << 20

IDLE_S = 600.0
"""After so many seconds without a request the process ends; the next epoch rebuilds the bucket."""
_LOOK_S = 1.0
"""How often it looks whether the workers' parent still lives."""


class HeldBucket:
    """A bucket or another part in memory, stamped, and the pages of a snapshot of it that is not all stored yet.

    The stamp (epoch, nonce) says which attempt at which epoch was its last; it is None while there is no whole bucket.
    The public methods but `make_due_snapshot` are the requests.
    """

    def __init__(self) -> None:
        self._bucket: Part | None = None
        self._out: Store
        self._stamp: tuple[int, str] | None = None
        self._snapshot = b""
        self._pending: Pending | None = None
        self._is_due = False
        self._problem: Exception | None = None
        self._is_seen = False
        """Whether the driver has been told of files that this process has written, and of its host."""

    def stamp(self) -> tuple[int, str] | None:
        """Return the stamp."""
        return self._stamp

    def start(self, work: bytes, index: int, snapshot: bytes, epoch: int, nonce: str) -> None:
        """Make the bucket anew, from a snapshot if that is not empty."""
        self._stamp, self._bucket, self._pending, self._is_seen = None, None, None, False
        given: BucketWork = pickle.loads(work)
        self._out = store_of(given.out, given.storage)
        self._bucket = fresh_bucket(given, index)
        if snapshot:
            self._bucket.load(snapshot)
        self._stamp = (epoch, nonce)

    def replay(self, payload: bytes, epoch: int) -> None:
        """Apply an epoch that the log has; `restamp` says when there are no more."""
        self._stamp, self._pending = None, None
        self._whole().apply(epoch, [payload])

    def restamp(self, epoch: int, nonce: str) -> None:
        """Say which attempt the replayed epochs make it the equal of."""
        self._stamp = (epoch, nonce)

    def apply(self, payload: bytes, epoch: int, nonce: str, snapshots: Snapshots, final: bool) -> dict[str, Any]:
        """Apply an epoch and write its outputs; return what was `written`, as `epochs.output.manifest.Written` has it,
        what is `handed` to the next stage, the seconds, and the process.
        """
        self._stamp = None  # an exception must not leave half an epoch behind
        bucket = self._whole()
        started = time.perf_counter()
        handed = bucket.apply(epoch, [payload])
        applied = time.perf_counter()
        written = bucket.write(Writing(epoch, nonce, self._out, snapshots, final))
        seconds = {"engine": applied - started, "sink": time.perf_counter() - applied}
        self._stamp = (epoch, nonce)
        told = list(map(asdict, written))
        report = {"written": told, "handed": handed, "process": os.getpid(), "seconds": seconds}
        paths = [path for each in written for path in (*each.files.values(), *each.parts.values())]
        if paths and not self._is_seen:
            report |= {"host": host_name(), "sizes": {path: self._out.size(path) for path in paths}}
            self._is_seen = True
        return report

    def dump(self) -> None:
        """Begin a snapshot of the bucket as it is now: it is made when the worker has hung up, between two epochs."""
        self._is_due = True

    def make_due_snapshot(self) -> None:
        """Do what need not be done while a worker waits."""
        if self._is_due and self._stamp is not None:
            try:
                self._snapshot = self._whole().dump()
            except Exception as problem:  # noqa: BLE001  # the next worker raises it
                self._problem = problem
            else:
                pages = -(-len(self._snapshot) // PAGE_BYTES)
                self._pending = Pending(self._stamp[0], len(self._snapshot), pages, 0)
        self._is_due = False

    def pending(self) -> tuple[int, ...] | None:
        """Return the fields of the snapshot that was made; None without one, and when all its pages are stored."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        pending = self._pending  # its class has another name here, where this module is the main one
        return None if pending is None or pending.next == pending.pages else astuple(pending)

    def page(self, number: int) -> bytes:
        """Return a page of the snapshot that was made."""
        assert self._pending is not None
        self._pending = replace(self._pending, next=number + 1)
        page = self._snapshot[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]
        if self._pending.next == self._pending.pages:
            self._snapshot = b""
        return page

    def _whole(self) -> Part:
        assert self._bucket is not None, "the bucket was not started"
        return self._bucket


def fresh_bucket(work: BucketWork, index: int) -> Part:
    """Return the bucket, or what its stage has instead, before its first epoch."""
    functions = unpack_functions(work.functions)
    given = work.plan, work.make_engine, work.late_epochs, functions, work.published
    maker = PartMaker(program_of(work.program), *given)
    return maker.make(work.stage, index)


def _print_ready() -> None:
    print("serving", flush=True)


def serve(path: Path, owner: int, idle_s: float = IDLE_S, tell: Callable[[], None] = _print_ready) -> None:
    """Answer requests at a socket.

    A request is the name of a method of `HeldBucket` and its arguments; the answer is whether that went well, and what
    it returned, or the words of what it raised.

    Parameters
    ----------
    path
        Of the socket.
    owner, idle_s
        Until this process is gone, or nobody has asked for so many seconds.
    tell
        Called once, when it listens.
    """
    held = HeldBucket()
    with socket.socket(socket.AF_UNIX) as listener:
        aside = path.with_suffix(f".{os.getpid()}")
        listener.bind(str(aside))
        listener.listen()
        aside.rename(path)  # who finds it can connect
        tell()
        asked = time.monotonic()
        while _lives(owner) and time.monotonic() - asked < idle_s:
            if select.select([listener], [], [], _LOOK_S)[0]:
                accepted, _ = listener.accept()
                with suppress(OSError, EOFError), Connection(accepted.detach()) as client:
                    _answer(held, client, owner)
                held.make_due_snapshot()
                asked = time.monotonic()
        for each in (path, path.with_suffix(".lock")):
            each.unlink(missing_ok=True)


def _answer(held: HeldBucket, client: Connection, owner: int) -> None:
    """Answer one worker until it hangs up."""
    while True:
        while not client.poll(_LOOK_S):
            if not _lives(owner):
                return
        method, *arguments = client.recv()
        try:
            with carry_errors_through_spark():
                answer = (True, getattr(held, method)(*arguments))
        except Exception as problem:  # noqa: BLE001  # the worker raises it: Spark must see it there
            answer = (False, "".join(traceback.format_exception(problem)))
        client.send(answer)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: Sequence[str]) -> None:
    """Serve at the path given, for the process given."""
    serve(Path(arguments[0]), int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
