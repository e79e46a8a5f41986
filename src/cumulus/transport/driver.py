"""The loop that drives one machine: what has come goes in, at once; what is to be done is done, in order.

While records of the log are on their way to the disk the loop goes on: more is read, and what the machine answers waits
behind its own records, which go to the disk as one group when the former group is there.

While a peer does not read, or the disk does not keep up, nothing is read from those that feed the machine, and no task
is begun: tasks read files, too. All others are read on, so that two machines never wait for each other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, assert_never

from cumulus.durable.faults import crash_point
from cumulus.errors import RemoteProtocolError
from cumulus.machine import (
    Append,
    Completed,
    Effect,
    Forget,
    Input,
    Lost,
    Name,
    Perform,
    Received,
    Recovered,
    Send,
    Tick,
)
from cumulus.machine_facts import resident_bytes
from cumulus.transport.connections import Address
from cumulus.transport.framing import Piece
from cumulus.transport.greeting import Credentials, RefusalNotes
from cumulus.transport.links import Links
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec

UNWRITTEN_BYTES = 1 << 23
"""From so many bytes of records on that are not on the disk yet, the disk counts as a peer that does not read."""
_FAREWELL_SECONDS = 1.0
"""How long what was sent may take to leave when the machine ends."""


class Supervision(Protocol):
    """Whom a driver tells what concerns no machine; each call returns soon."""

    def say(self, pieces: Sequence[Piece]) -> None:
        """Take a message from the machine to its supervisor."""

    def lost(self, peer: Name, reason: str) -> None:
        """Take notice that the link to a peer is gone."""

    def note(self, text: str) -> None:
        """Take notice of something odd that the machine lives on with."""


class Driver:
    """One machine, its links, its log and its tasks: `run` until `stop`, in one event loop.

    Raises
    ------
    StoreError
        If its log cannot be read.
    """

    def __init__(self, me: Credentials, spec: MachineSpec, supervision: Supervision) -> None:
        self.links = Links(me, self, spec.sources)
        self.steps = 0
        self._sent_kinds: Counter[str] = Counter()
        """How many messages of each class were sent to other machines."""
        self._name, self._spec = me.name, spec
        self._supervision = supervision
        self._refusals = RefusalNotes(supervision.note)
        self._inbox: list[Input] = []
        self._overtaken: list[tuple[int, list[Input]]] = []  # what had come when an incarnation ended, and which
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._problem: BaseException | None = None
        # the log: what is appended, what of it is on the disk, and what waits for it
        self._group: list[bytes] = []
        self._group_bytes = 0
        self._bytes_on_the_way = 0
        self._appended = 0
        self._durable = 0
        self._held: deque[tuple[int, int, Effect]] = deque()  # the record it waits for, the incarnation, the effect
        self._disk = ThreadPoolExecutor(1, "log")
        # tasks
        self._tasks: deque[Any] = deque()
        self._is_performing = False
        self._worker = ThreadPoolExecutor(1, "tasks")
        self._started = time.monotonic()
        self._recover()

    async def run(self) -> None:
        """Drive the machine until `stop`; then bring to the disk and to the peers what is under way.

        Raises
        ------
        CumulusError
            With what the machine, a task, the log or a peer has against going on.
        """
        try:
            while not self._is_stopped:
                await self._wake.wait()
                self._wake.clear()
                self._turn()
            while self._bytes_on_the_way or self._group:
                self._turn()
                await self._wake.wait()
                self._wake.clear()
            self._turn()
            await self.links.close(_FAREWELL_SECONDS)
        finally:
            await self.links.close()
            self._refusals.close()
            self._disk.shutdown(wait=True)
            self._worker.shutdown(wait=False, cancel_futures=True)
            if self._spec.log is not None:
                self._spec.log.close()

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._is_stopped = True
        self._wake.set()

    def deliver(self, what: Input) -> None:
        """Let the machine be told something."""
        self._inbox.append(what)
        self._wake.set()

    def reconnect_all(self, incarnation: int, addresses: Mapping[Name, Address]) -> None:
        """Begin an incarnation: what came before belongs to the old one, and so does what the machine answers to it."""
        if self.links.incarnation:
            self._overtaken.append((self.links.incarnation, self._inbox))
            self._inbox = []
        elif self._spec.tick_ms:
            self._tick()
        self.links.reconnect_all(incarnation, addresses)
        self._wake.set()

    def health(self) -> dict[str, Any]:
        """Return how busy the machine is."""
        return {
            "steps": self.steps,
            "is_holding": self.links.is_holding,
            "bytes_unwritten": self._group_bytes + self._bytes_on_the_way,
            "tasks": len(self._tasks) + self._is_performing,
            "queued": self.links.queued(),
            "sent_messages": self.links.sent_messages,
            "sent_bytes": self.links.sent_bytes,
            "sent_kinds": dict(self._sent_kinds),
            "resident_bytes": resident_bytes(os.getpid()),
        }

    # --- what the links tell ---

    def received(self, peer: Name, payload: bytes) -> None:
        """Take a message; RemoteProtocolError if it is none."""
        message = self._spec.codec.decode(payload)
        if not self._spec.may_send(peer, message):
            raise RemoteProtocolError(f"{self._name}: {type(message).__name__} from {peer} is not for this machine")
        self.deliver(Received(peer, message))

    def lost(self, peer: Name, is_client: bool, reason: str) -> None:
        """Tell the machine that a link is gone, and the supervisor, unless it was a client's: they come and go."""
        self.deliver(Lost(peer))
        if not is_client:
            self._supervision.lost(peer, reason)

    def resumed(self) -> None:
        """Look again whether the machine may be fed."""
        self._wake.set()

    def refused(self, other_side: str, problem: RemoteProtocolError) -> None:
        """Say that a connection was closed for what it has sent."""
        self._refusals.add(other_side, str(problem))

    def unreached(self, peer: Name, why: str) -> None:
        """Say that a peer cannot be reached."""
        self._supervision.note(f"{peer} at {why}")

    def failed(self, problem: BaseException) -> None:
        """End: nothing can go on."""
        self._problem = self._problem or problem
        self._wake.set()

    # --- the loop ---

    def _turn(self) -> None:
        if self._problem is not None:
            raise self._problem
        if not self.links.incarnation:
            return  # whom to send to is not known yet
        self._release()
        batches = [*self._overtaken, (self.links.incarnation, self._inbox)]
        self._overtaken, self._inbox = [], []
        for incarnation, inputs in batches:
            if inputs:
                self.steps += 1
                effects = self._spec.machine.step(inputs)
                if self.steps == 1:
                    crash_point("in-recovery", self._name)
                for effect in effects:
                    self._take(effect, incarnation)
        self._write_group()
        self.links.flush()
        is_choking = self.links.is_congested or self._group_bytes + self._bytes_on_the_way >= UNWRITTEN_BYTES
        if is_choking != self.links.is_holding:
            self.links.pause_reading(is_choking)
        self._begin_task()

    def _take(self, effect: Effect, incarnation: int) -> None:
        """Do an effect now, or behind the last record that was appended before it."""
        if isinstance(effect, Append):
            assert self._spec.log is not None, "a machine that appends records needs a log"
            assert effect.number == self._appended + 1, f"record {effect.number} after {self._appended}"
            self._appended = effect.number
            self._group.append(effect.record)
            self._group_bytes += len(effect.record)
        elif self._durable < self._appended:
            self._held.append((self._appended, incarnation, effect))
        else:
            self._do(effect, incarnation)

    def _release(self) -> None:
        while self._held and self._held[0][0] <= self._durable:
            _, incarnation, effect = self._held.popleft()
            self._do(effect, incarnation)

    def _do(self, effect: Effect, incarnation: int) -> None:
        match effect:
            case Send(to, message):
                pieces = self._spec.codec.encode(message)
                if to == SUPERVISOR:
                    self._supervision.say(pieces)
                else:
                    self._sent_kinds[type(message).__name__] += self.links.send(to, pieces, incarnation)
            case Perform(task):
                self._tasks.append(task)
            case Forget(number):
                assert self._spec.log is not None, "a machine that forgets records needs a log"
                self._in_thread(self._disk, partial(self._spec.log.forget, number), lambda _: None)
            case Append():
                raise AssertionError("records are not held back")
            case _:
                assert_never(effect)

    # --- the log ---

    def _recover(self) -> None:
        if self._spec.log is None:
            return
        first, records = self._spec.log.recover()
        crash_point("in-start", self._name)
        self._appended = self._durable = self._spec.log.last
        self.deliver(Recovered(first, records))

    def _write_group(self) -> None:
        """Bring the records to the disk that have come meanwhile, unless some are still on their way."""
        if not self._group or self._bytes_on_the_way:
            return
        assert self._spec.log is not None
        group, self._group = self._group, []
        self._bytes_on_the_way, self._group_bytes = self._group_bytes + 1, 0  # at least 1: there may be empty records
        self._in_thread(self._disk, partial(self._spec.log.write, group), self._written)

    def _written(self, last: int) -> None:
        crash_point("after-append", self._name)
        self._durable = last
        self._bytes_on_the_way = 0

    # --- threads and time ---

    def _begin_task(self) -> None:
        if self._is_performing or not self._tasks or self.links.is_holding:
            return
        task = self._tasks.popleft()
        self._is_performing = True
        self._in_thread(self._worker, partial(self._spec.perform, task), partial(self._performed, task))

    def _performed(self, task: Any, result: Any) -> None:
        self._is_performing = False
        self._inbox.append(Completed(task, result))

    def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do some work in a thread; then, in the loop, take its result, or end."""

        def settled(future: asyncio.Future[Any]) -> None:
            problem = future.exception()
            if problem is not None:
                self.failed(problem)
            else:
                done(future.result())
                self._wake.set()

        asyncio.get_running_loop().run_in_executor(pool, work).add_done_callback(settled)

    def _tick(self) -> None:
        self.deliver(Tick(int((time.monotonic() - self._started) * 1000)))
        asyncio.get_running_loop().call_later(self._spec.tick_ms / 1000, self._tick)
