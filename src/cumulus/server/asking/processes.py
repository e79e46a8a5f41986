"""Processes that answer queries, which nothing that DuckDB does can end but their own: started when they are needed.

One thread watches over those that are at work. What takes too long, or together with the others too much memory, is
ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import duckdb
import pyarrow as pa

from cumulus import errors
from cumulus.errors import (
    BusyError,
    ClosedError,
    CumulusError,
    LimitError,
    QueryCancelledError,
    QueryTimeoutError,
    ServerError,
)
from cumulus.server.asking.protocol import READY, receive, receive_table, send, send_table
from cumulus.views.duckdb_sql.limits import ApartQuery

_LOOK_S = 0.02
_GRACE_S = 1.0
"""A process that has not stopped by itself so long after its time is ended."""
_KEPT, _KEPT_BYTES = 2, 300 << 20
"""So many processes wait for the next query, and none that has grown larger."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process:
    """A process, and the query that it answers."""

    def __init__(self, memory: int) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "cumulus.server.asking.answering", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.due: float | None = None
        self.is_ready = False
        self.ended = ""
        """Why the server has ended it: "time", "memory" or "stop"."""

    def ask(self, asked: ApartQuery) -> pa.Table:
        """Return the answer.

        Raises
        ------
        OSError, EOFError
            If the process ends meanwhile.
        """
        questions, answers = self._running.stdin, self._running.stdout
        assert questions is not None
        assert answers is not None
        limits = replace(asked.limits, apart=None, stop=None)
        send(questions, replace(asked, tables={}, limits=limits))
        send(questions, list(asked.tables))
        for table in asked.tables.values():
            send_table(questions, table)
        told = receive(answers)
        if told is not None:
            raise _error_of(*told)
        return receive_table(answers)

    def wait_until_ready(self) -> None:
        """Wait until it takes questions; EOFError if it ends before."""
        assert self._running.stdout is not None
        if not self.is_ready:
            self.is_ready = receive(self._running.stdout) == READY

    @property
    def bytes(self) -> int:
        """How much memory it takes now."""
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self._running.pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
        return 0

    def end(self, why: str = "") -> None:
        """End it."""
        self.ended = self.ended or why
        self._running.kill()

    def close(self) -> None:
        """End it, and wait until it has."""
        self.end()
        self._running.wait()
        for pipe in (self._running.stdin, self._running.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class QueryProcesses:
    """Answers queries in processes of their own; any thread may ask.

    Parameters
    ----------
    most_bytes
        Of memory that all of them take together.
    most
        How many are at work at once; others wait.
    """

    def __init__(self, most_bytes: int, most: int = 4) -> None:
        self._most_bytes = most_bytes
        self._places = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._working: set[_Process] = set()
        self._watching: threading.Thread | None = None
        self._is_closed = False

    def ask(self, asked: ApartQuery) -> pa.Table:
        """Return the result of a query over tables.

        Raises
        ------
        UsageError
            For anything but one SELECT.
        duckdb.Error
            If DuckDB refuses it.
        LimitError, QueryTimeoutError
            If it takes more than it may.
        """
        if not self._places.acquire(timeout=asked.limits.time_s):
            raise BusyError("too many others ask long queries", hint="Ask again a little later.")
        try:
            return self._ask(asked)
        finally:
            self._places.release()

    def _ask(self, asked: ApartQuery) -> pa.Table:
        process = self._taken()
        is_good = False
        try:
            process.wait_until_ready()
            if asked.limits.time_s is not None:
                process.due = monotonic() + asked.limits.time_s + _GRACE_S
            stop = asked.limits.stop
            with stop.during(lambda: process.end("stop")) if stop is not None else nullcontext():
                found = process.ask(asked)
            is_good = True
            return found
        except (CumulusError, duckdb.Error):
            is_good = True
            raise
        except (OSError, EOFError, pa.ArrowException, ValueError):
            raise self._reason(process, asked) from None
        finally:
            self._give(process, is_good)

    def _reason(self, process: _Process, asked: ApartQuery) -> CumulusError:
        if process.ended == "time":
            return QueryTimeoutError(
                f"the query has taken longer than {asked.limits.time_s:g} s", hint="Ask for less of it."
            )
        if process.ended == "stop":
            return QueryCancelledError("the query was ended", hint="Ask again.")
        if self._is_closed:
            return ClosedError("the server is going down", hint="Ask again when it is back.")
        return LimitError(
            f"the query takes more memory than the {self._most_bytes:,} bytes of all queries under way",
            hint="Ask for less of it, or start the server with a higher --limit query_bytes.",
        )

    def _taken(self) -> _Process:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the server is going down", hint="Ask again when it is back.")
            process = self._idle.pop() if self._idle else None
        process = process or _Process(self._most_bytes)
        with self._lock:
            process.due = None
            self._working.add(process)
            if self._watching is None:
                self._watching = threading.Thread(target=self._watch, name="queries", daemon=True)
                self._watching.start()
        return process

    def _give(self, process: _Process, is_good: bool) -> None:
        with self._lock:
            self._working.discard(process)
            is_kept = is_good and not (process.ended or self._is_closed) and len(self._idle) < _KEPT
            if is_kept and process.bytes <= _KEPT_BYTES:
                self._idle.append(process)
                return
        process.close()

    def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._working:
                    self._watching = None
                    return
                working = [(each.bytes, each) for each in self._working]
                now = monotonic()
                for _, each in working:
                    if each.due is not None and now > each.due:
                        each.end("time")
                if sum(size for size, _ in working) > self._most_bytes:
                    max(working, key=lambda pair: pair[0])[1].end("memory")
            threading.Event().wait(_LOOK_S)

    def close(self) -> None:
        """End all of them; who waits for an answer gets a ClosedError."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for each in self._working:
                each.end("closed")
        for each in idle:
            each.close()


def _error_of(name: str, message: str, hint: str) -> Exception:
    """Return an error that a process has told."""
    kind = getattr(errors, name, None)
    if kind is not None:
        made: Exception = kind(message, hint=hint)
        return made
    kind = getattr(duckdb, name, None)
    return kind(message) if kind is not None else ServerError(message, id="query")
