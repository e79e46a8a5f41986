"""The keeper of a ring: the process that starts its nodes, finds out which are lost, and closes the ring around them.

A node whose process has ended is lost at once; one that does not answer for some seconds is ended, and lost. The others
meet anew, in the next ring epoch: links are new, and what the lost one owned belongs to them. If the link of two nodes
that live breaks, all meet anew, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cumulus.errors import CumulusError, ProcessError, RingError
from cumulus.interrupts import Interrupt
from cumulus.local_ring.home import LOG, RingAddress, RingHome, is_running, read_address
from cumulus.local_ring.settings import RingOptions
from cumulus.machine import Name
from cumulus.transport.supervisor import LinkLost, Process, ProcessEnded, Supervisor

_LOOK_SECONDS, _ASK_SECONDS = 0.2, 1.0
_STOP_SECONDS = 30.0


class Keeper:
    """Keeps a ring running, in the process of who makes it.

    Parameters
    ----------
    note
        Takes a line to tell when something has happened.
    """

    def __init__(self, options: RingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._home = Path(options.home)
        self._lost: dict[Name, str] = {}
        self._unanswered: dict[Name, float] = {}
        """Node → since when it does not answer."""

    def keep(self, is_stopped: Callable[[], bool], on_up: Callable[[], None]) -> None:
        """Run the ring until it is stopped.

        Raises
        ------
        CumulusError
            If it cannot start, or has no node left.
        """
        home = RingHome(self._home)
        problem: CumulusError | None = None
        argument = self._options.to_json()
        processes = [
            Process(name, module="cumulus.local_ring.process", argument=argument) for name in self._options.names()
        ]
        try:
            with Supervisor(processes, secret=home.secret, on_line=self._say) as supervisor:
                self._tell_where(supervisor, home)
                on_up()
                asked = time.monotonic()
                while not is_stopped():
                    occurrence = supervisor.wait(_LOOK_SECONDS)
                    if isinstance(occurrence, ProcessEnded):
                        self._lose(supervisor, home, occurrence.name, occurrence.reason)
                    elif isinstance(occurrence, LinkLost) and occurrence.name not in self._lost:
                        self._note(f"{occurrence.name}: the link with {occurrence.peer} is gone: {occurrence.reason}")
                        self._meet(supervisor, home)
                    if time.monotonic() - asked >= _ASK_SECONDS:
                        self._find_hung(supervisor, home)
                        asked = time.monotonic()
        except CumulusError as error:
            problem = error
            raise
        finally:
            home.close(problem)

    def _find_hung(self, supervisor: Supervisor, home: RingHome) -> None:
        now = time.monotonic()
        for name, health in supervisor.health(_ASK_SECONDS).items():
            if health is not None:
                self._unanswered.pop(name, None)
            elif now - self._unanswered.setdefault(name, now) >= self._options.failure_s:
                self._lose(supervisor, home, name, f"it has not answered for {self._options.failure_s:g} s")

    def _lose(self, supervisor: Supervisor, home: RingHome, name: Name, reason: str) -> None:
        if name in self._lost:
            return
        self._lost[name] = reason
        self._unanswered.pop(name, None)
        self._note(f"{name} is lost: {reason}")
        supervisor.give_up(name)
        if len(self._lost) == self._options.nodes:
            raise RingError(f"all nodes are lost; the last one, {name}: {reason}", hint=f"See {self._home / LOG}.")
        self._meet(supervisor, home)

    def _meet(self, supervisor: Supervisor, home: RingHome) -> None:
        supervisor.meet(supervisor.incarnation + 1)
        self._tell_where(supervisor, home)

    def _tell_where(self, supervisor: Supervisor, home: RingHome) -> None:
        RingAddress(
            os.getpid(),
            supervisor.incarnation,
            home.secret.hex(),
            supervisor.addresses(),
            supervisor.pids(),
            self._lost,
            self._options,
        ).write(self._home)

    def _say(self, name: Name, line: str) -> None:
        self._note(f"{name}: {line}")


# --- the process --------------------------------------------------------------------------------------------------


def start(options: RingOptions) -> None:
    """Start a process that keeps a ring, and wait until all nodes are ready.

    Raises
    ------
    CumulusError
        What the process has against it.
    """
    home = Path(options.home)
    RingHome(home).close()  # what is wrong with the folder is told by whoever asks for it
    log = home / LOG
    with log.open("ab") as lines:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "cumulus.local_ring.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=lines,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    with daemon.stdin, daemon.stdout:
        try:
            daemon.stdin.write(options.to_json().encode())
            daemon.stdin.close()
            answer = daemon.stdout.read()
        except BaseException:
            daemon.terminate()  # Ctrl-C: what has begun ends in order
            raise
    said = json.loads(answer) if answer else {"error": ["the process that keeps it has ended", f"See {log}."]}
    if "error" in said:
        daemon.wait()
        message, hint = said["error"]
        raise ProcessError(f"the ring cannot start: {message}", hint=hint)


def stop(home: Path) -> None:
    """Stop the ring of a home, and wait until all its processes have ended.

    Raises
    ------
    InputError
        If it is no home of a ring.
    NotRunningError
        If the ring does not run.
    ProcessError
        If it does not end.
    """
    address = read_address(home)
    with suppress(ProcessLookupError):
        os.kill(address.pid, signal.SIGTERM)
    until = time.monotonic() + _STOP_SECONDS
    while is_running(home):
        if time.monotonic() > until:
            raise ProcessError(
                f"{home}: process {address.pid} has not ended within {_STOP_SECONDS:g} s",
                hint=f"kill -9 {address.pid} ends it; its nodes end by themselves.",
            )
        time.sleep(0.02)


def main() -> None:
    """Keep the ring that is given on standard input; say on standard output, once, whether it runs."""
    options = RingOptions.from_json(sys.stdin.read())
    is_waited_for = True

    def say(**what: Any) -> None:
        """Say this to who waits, the first time; then what is printed goes to the log."""
        nonlocal is_waited_for
        if is_waited_for:
            is_waited_for = False
            print(json.dumps(what), flush=True)
            os.dup2(2, 1)

    def note(line: str) -> None:
        """Say this in the log, unless it is on a disk that is full."""
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)

    with Interrupt() as wish:
        try:
            Keeper(options, note).keep(lambda: wish.wished, say)
        except CumulusError as problem:
            note(str(problem))
            say(error=[problem.message, problem.hint])
            sys.exit(1)
        except Exception as problem:  # noqa: BLE001  # whatever it is, who waits is told, and the log has all of it
            note(traceback.format_exc())
            say(error=[f"{type(problem).__name__}: {problem}", f"See {LOG} in the home."])
            sys.exit(1)


if __name__ == "__main__":
    main()
