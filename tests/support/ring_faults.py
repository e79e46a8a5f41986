"""What may befall a ring of processes: nodes that are stopped and killed, under a load that counts what comes of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa

from cumulus.errors import CumulusError
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from support.running_ring import expect_equal, select

MOST_SECONDS = 10.0
"""A query has ended by then."""


def pid_of(client: RingClient, node: str) -> int:
    return read_address(client.home).pids[node]


def is_alive(pid: int) -> bool:
    """Whether a process runs: not ended, and not waiting to be collected."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return facts.rpartition(")")[2].split()[0] != "Z"


def processes_of(home: Path) -> list[int]:
    """The processes that have a file of a ring's home open: its supervisor, and its nodes, which hold their stores."""
    found = []
    for files in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(Path(os.readlink(file)).is_relative_to(home) for file in files.iterdir()):
                found.append(int(files.parent.name))
    return found


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def listening_ports(pid: int) -> list[int]:
    """The TCP ports of IPv4 at which a process listens."""
    sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if os.path.islink(file)}
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024


def wait_until(is_so: Callable[[], bool], seconds: float) -> float:
    """Wait for something; return how long it took."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < seconds, f"not so after {seconds:g} s"
        time.sleep(0.02)
    return time.monotonic() - begun


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process does nothing meanwhile; it may be ended."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def expect_quiet(client: RingClient) -> None:
    """Nothing of any query is left at any node, as soon as the engines have let go."""

    def held() -> list[object]:
        states = client.status()["nodes"]
        names = ("used_bytes", "transit_bytes", "leases", "blocked", "outstanding")
        return [
            (node, state and {name: state[name] for name in names if state[name]})
            for node, state in states.items()
            if state is None or state["queries"] or any(state[name] for name in names)
        ]

    until = time.monotonic() + 10
    while left := held():
        assert time.monotonic() < until, left
        time.sleep(0.1)
    for node, state in client.status()["nodes"].items():
        told = sum(state[name] for name in ("queued_bytes", "transit_bytes", "used_bytes", "kept_bytes"))
        assert state["memory"]["bytes"] == told, (node, state)


class RingLoad:
    """Threads that ask the nodes of a ring at random, as a context; `check` says what has become of it.

    Parameters
    ----------
    wanted
        The queries of TPC-H that are asked → their rows.
    rate
        How many each thread asks in a second, at most.
    """

    def __init__(self, client: RingClient, wanted: Mapping[str, pa.Table], threads: int = 4, rate: float = 10) -> None:
        self._client, self._wanted, self._rate = client, wanted, rate
        self.right = 0
        self.failed: Counter[str] = Counter()
        self._wrong: list[str] = []
        self.slowest = 0.0
        self._is_over = Event()
        self._threads = [Thread(target=self._ask, args=[seed], daemon=True) for seed in range(threads)]

    def __enter__(self) -> RingLoad:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join(3 * MOST_SECONDS)
            assert not each.is_alive(), "a query does not end"

    def check(self) -> None:
        assert not self._wrong, self._wrong[:5]
        assert self.right, "nothing was answered"

    def _ask(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._is_over.wait(rng.random() * 2 / self._rate):
            query, begun, outcome = rng.choice(list(self._wanted)), time.monotonic(), ""
            try:
                node = rng.choice((*self._client.nodes, "any"))
                answer = self._client.query(select(query), node=node).arrow()
                expect_equal(answer, self._wanted[query])
                self.right += 1
            except CumulusError as problem:
                outcome = str(problem)
                self.failed[f"{type(problem).__name__}: {outcome}"] += 1
                if not outcome.strip() or "Traceback" in outcome:
                    self._wrong.append(f"{query}: no reason: {outcome!r}")
            except BaseException as problem:  # noqa: BLE001  # told by `check`
                self._wrong.append(f"{query}: {type(problem).__name__}: {problem}")
            seconds = time.monotonic() - begun
            self.slowest = max(self.slowest, seconds)
            if seconds > MOST_SECONDS:
                self._wrong.append(f"{query} took {seconds:.1f} s: {outcome or 'right'}")
