"""Single writer thread of a served warehouse. A request is acknowledged only after its log record is durable."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from cumulus.durable.faults import crash_point
from cumulus.errors import ClosedError, CumulusError, ProcessError, StoreError, StoreLostError, ThreadError
from cumulus.hosts import Answer, WriteReceipt, WriteRequest
from cumulus.m3.program import Program
from cumulus.olap import CubeSource, FoldedSource
from cumulus.server.journal import Journal
from cumulus.server.kept_folder import KeptFolder
from cumulus.server.packing import PackedRequest, Packer
from cumulus.server.records import LogRecord, RecordKind, ViewChange, apply_rows, apply_views
from cumulus.server.request_ids import now_ms
from cumulus.server.settings import ServerSettings
from cumulus.warehouse import Stats, Warehouse
from cumulus.warehouse.host import WarehouseHost, status_of

_QUARANTINE = pa.schema([("at", pa.int64()), ("table", pa.string()), ("reason", pa.string())])
_PATIENCE_S = 0.05
_MOST_REFUSED = 1_000
"""Requests that were refused are remembered, the last ones, until the server ends."""
_MOST_REQUESTS, _MOST_BYTES, _MOST_ROWS = 4096, 32 << 20, 50_000
"""A group is no larger: nobody waits for much more than his own request."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change, and who waits for it."""

    change: PackedRequest | ViewChange
    future: Future[Any]

    @property
    def id(self) -> str:
        return self.change.id if isinstance(self.change, PackedRequest) else ""

    @property
    def about(self) -> str:
        """The tables that it would change."""
        if isinstance(self.change, ViewChange):
            return ""
        return ", ".join(dict.fromkeys(part.table for part in self.change.parts))

    def answer(self, done: WriteReceipt) -> None:
        """Tell who waits."""
        self.future.set_result(done if isinstance(self.change, PackedRequest) else done.at)

    def record(self, at: int) -> LogRecord:
        """Return what the log says of it."""
        if isinstance(self.change, ViewChange):
            return LogRecord(RecordKind.DDL, self.change.payload(), written_ms=now_ms(), at=at)
        change = self.change
        return LogRecord(RecordKind.EVENTS, change.payload, change.id, now_ms(), at, change.digest)


@dataclass(frozen=True, slots=True)
class _Wish:
    """A snapshot that somebody waits for."""

    future: Future[int]


_Item: TypeAlias = _Waiting | _Wish | None


class SingleWriter:
    """A `ServedSource` of a warehouse of its own: requests wait in a queue, and are applied in the order they came.

    What has come meanwhile is a group: it goes to the log and to the disk together, then each request is applied as a
    transaction, then the answers go out.

    Parameters
    ----------
    warehouse
        Nobody else changes it.
    kept
        Where it is kept; without one, in a folder that goes with the process.
    """

    kind = "warehouse"

    def __init__(
        self, warehouse: Warehouse, kept: KeptFolder | None = None, settings: ServerSettings | None = None
    ) -> None:
        self._warehouse, self._kept = warehouse, kept or KeptFolder.passing()
        self._settings = settings or ServerSettings(self._kept.data)
        self.host, self._packer = WarehouseHost(warehouse, is_shared=True), Packer(warehouse.program)
        self.errors = self.host.errors
        self._queue: queue.Queue[_Item] = queue.Queue()
        self._at = warehouse.transaction_number
        self._sizes = warehouse.stats(kept=True)
        self._listeners: list[Callable[[int], None]] = []
        self._closing = threading.Lock()
        self._is_closed = False
        self._broken = ""
        self._group: list[_Waiting] = []
        self._wishes: list[_Wish] = []
        self._refused: deque[dict[str, Any]] = deque(maxlen=_MOST_REFUSED)
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    # --- what it says -----------------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self._warehouse.program

    @property
    def at(self) -> int:
        """The last transaction that readers see."""
        return self._at

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function in the keeper's thread each time that `at` has moved."""
        self._listeners.append(moved)

    def status(self) -> dict[str, Any]:
        """Return the numbers of the warehouse, the log and the snapshot."""
        numbers = status_of(self._kept_sizes())
        waiting = {"queue": self._queue.qsize() + len(self._group)}
        return {"at": self._at, **numbers, **self._kept.status(), **waiting, "problem": self.problem()}

    def problem(self) -> str:
        """Return why nothing can be written at this moment; "" if it can."""
        return self._broken or self._kept.look() or self._kept.full()

    def _kept_sizes(self) -> Stats:
        """Return the numbers of the warehouse; those before, where a transaction takes longer than one waits for it."""
        try:
            with self._warehouse.waiting(_PATIENCE_S):
                self._sizes = self._warehouse.stats(kept=True)
        except ThreadError:
            pass
        return self._sizes

    # --- reading ----------------------------------------------------------------------------------------------------

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes, and of the other views that can be folded."""
        return FoldedSource(self.host, holds_still=False)

    def quarantine(self) -> Answer:
        """Return the last requests that were refused when they were applied; whoever sent them was told."""
        return Answer(pa.Table.from_pylist(list(self._refused), _QUARANTINE), self._at)

    def epochs(self) -> Answer:
        """Return the last transaction."""
        return Answer(pa.table({"at": pa.array([self._at], pa.int64())}), self._at)

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Apply rows in one transaction, after those of all requests that came before.

        Raises
        ------
        UsageError, DataError
            If it is wrong whatever the state is; the future tells what else may be.
        """
        return self._put(_Waiting(self._packer.pack(request), Future()))

    def execute(self, sql: str) -> Future[int]:
        """Create or drop views and cubes, or add tables, after all requests that came before."""
        return self._put(_Waiting(ViewChange(sql), Future()))

    def snapshot(self) -> Future[int]:
        """Write a snapshot, after all requests that came before; return the last transaction that it has."""
        return self._put(_Wish(Future()))

    def _put(self, item: _Waiting | _Wish) -> Future[Any]:
        with self._closing:
            if self._broken:
                raise ProcessError(f"the server cannot write any more: {self._broken}", hint="Start it again.")
            if self._is_closed:
                raise ClosedError("the server is going down", hint="Send it again when it is back.")
            self._queue.put(item)
        return item.future

    def close(self) -> None:
        """Take nothing any more, apply what has come, write a snapshot, and end.

        Raises
        ------
        ProcessError
            If the keeper had failed.
        StoreLostError
            If the folder was not whole any more.
        """
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        try:
            if self._broken:
                raise ProcessError(f"the server had failed: {self._broken}", hint="Start it again.")
            lost = self._kept.look()
            self._snapshot()
            left = self._kept.look()
            if left:
                raise StoreLostError(
                    f"the server has ended, and its folder is not whole: {left}",
                    hint="What was acknowledged last is nowhere else: do not write there before it is back.",
                )
            if lost:
                raise StoreLostError(
                    f"the folder of the server was not whole, and was written anew: {lost}",
                    hint="All that was acknowledged is there again. Start the server.",
                )
        finally:
            self._kept.journal.close()
            self._warehouse.close()

    # --- in the keeper's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:  # a mistake of ours: what the log has is known, but not what memory has
            with self._closing:
                self._broken = repr(problem)
            left: list[_Waiting | _Wish] = [*self._group, *self._wishes]
            while not self._queue.empty():
                item = self._queue.get()
                if item is not None:
                    left.append(item)
            failed = ProcessError(f"the server has failed: {problem!r}", hint="Start it again, and send it again.")
            for each in left:
                if not each.future.done():
                    each.future.set_exception(failed)
            raise

    def _work(self) -> None:
        is_over = False
        while not is_over:
            group, self._wishes, is_over = self._gather()
            while group:
                self._group = group
                group = self._take(group)
            self._group = []
            self._kept.journal.sync_if_due()
            if self._wishes or (self._kept.is_due(self._settings) and not is_over):
                self._snapshot(self._wishes)

    def _gather(self) -> tuple[list[_Waiting], list[_Wish], bool]:
        """Wait for something; return all that has come: changes, wishes for snapshots behind them, whether it is over.

        A snapshot is taken behind all changes of its group, which is not before any that it is wished after.
        """
        group: list[_Waiting] = []
        wishes: list[_Wish] = []
        size = rows = 0
        try:
            item = self._queue.get(timeout=self._kept.journal.patience_s)
            while True:
                if item is None:
                    return group, wishes, True
                if isinstance(item, _Wish):
                    wishes.append(item)
                elif item.future.set_running_or_notify_cancel():
                    group.append(item)
                    if isinstance(item.change, PackedRequest):
                        size, rows = size + len(item.change.payload), rows + item.change.rows
                if len(group) >= _MOST_REQUESTS or size >= _MOST_BYTES or rows >= _MOST_ROWS:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            pass
        return group, wishes, False

    def _take(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        """Log and apply a group, and answer; return those whose ids others of the group have, for another group."""
        fresh: dict[str | int, _Waiting] = {}
        again: list[_Waiting] = []
        for place, waiting in enumerate(group):
            if (waiting.id or place) in fresh:
                again.append(waiting)
            elif not self._answer_again(waiting):
                fresh[waiting.id or place] = waiting
        if fresh:
            self._log_and_apply(list(fresh.values()))
        return again

    def _answer_again(self, waiting: _Waiting) -> bool:
        """Answer a request that was acknowledged before, or whose id another one had."""
        if not isinstance(waiting.change, PackedRequest):
            return False
        try:
            known = self._kept.ids.find(waiting.id, waiting.change.digest)
        except CumulusError as problem:
            waiting.future.set_exception(problem)
            return True
        if known is not None:
            waiting.future.set_result(known)
        return known is not None

    def _log_and_apply(self, fresh: Sequence[_Waiting]) -> None:
        records = [waiting.record(self._at) for waiting in fresh]
        crash_point("before-append")
        try:
            self._kept.check()
            numbers = self._kept.journal.append(records)
        except StoreError as problem:
            for waiting in fresh:
                waiting.future.set_exception(problem)
            return
        crash_point("after-append")
        done: list[tuple[_Waiting, WriteReceipt]] = []
        refused: list[tuple[int, _Waiting, Exception]] = []
        for number, record, waiting in zip(numbers, records, fresh, strict=True):
            answer = self._apply(waiting.change)
            if isinstance(answer, Exception):
                refused.append((number, waiting, answer))
                continue
            done.append((waiting, answer))
            self._kept.ids.add(record.id, record.digest, answer, record.written_ms)
        crash_point("after-apply")
        if done:
            self._tell(done)
        if refused:
            self._refuse(refused)

    def _refuse(self, refused: Sequence[tuple[int, _Waiting, Exception]]) -> None:
        """Tell that requests were not applied, once that is on the disk."""
        unknown = _refused_in(self._kept.journal, [number for number, _, _ in refused])
        for _, waiting, why in refused:
            self._refused.append({"at": self._at, "table": waiting.about, "reason": str(why)})
            waiting.future.set_exception(unknown or why)

    def _apply(self, change: PackedRequest | ViewChange) -> WriteReceipt | Exception:
        """Apply a change as a transaction; return the answer, or why it is refused."""
        before = self._at
        try:
            if isinstance(change, ViewChange):
                apply_views(self._warehouse, change)
                self._packer = Packer(self._warehouse.program)
            else:
                apply_rows(self._warehouse, change.parts)
        except Exception as problem:  # noqa: BLE001  # whatever it is, the others of the group go on
            if not isinstance(problem, CumulusError):
                traceback.print_exc(file=sys.stderr)
            if self._warehouse.transaction_number == before:
                return problem  # else it is committed, and somebody who was told of it has failed
        self._at = self._warehouse.transaction_number
        return WriteReceipt(self._at, change.rows if isinstance(change, PackedRequest) else 0)

    def _tell(self, done: Sequence[tuple[_Waiting, WriteReceipt]]) -> None:
        for moved in self._listeners:
            moved(self._at)
        for waiting, answer in done:
            waiting.answer(answer)

    def _snapshot(self, wishes: Sequence[_Wish] = ()) -> None:
        """Write a snapshot; if that fails the log goes on growing."""
        try:
            self._kept.snapshot(self._warehouse)
        except StoreError as problem:
            for wish in wishes:
                wish.future.set_exception(problem)
            return
        for wish in wishes:
            wish.future.set_result(self._kept.manifest.at)


def _refused_in(journal: Journal, numbers: Sequence[int]) -> StoreError | None:
    """Bring to the disk that records were refused; return what is told in place of why, if it does not take that."""
    try:
        journal.refuse(numbers)
    except StoreError as problem:
        return StoreError(
            f"the request was not applied, but that cannot be noted: {problem.message}",
            hint="Send it again, with the same id, when the disk has room: it counts once, or is refused.",
        )
    return None
