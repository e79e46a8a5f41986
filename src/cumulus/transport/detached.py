"""A process that goes on when the one that has started it ends.

It is told on standard input what to do, says on standard output, once, whether it does it, and is stopped by SIGTERM.
What it prints goes to its log, of which one older part is kept when it has grown large.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.durable.folders import lock_file
from cumulus.errors import CumulusError, ProcessError
from cumulus.interrupts import Interrupt

Work: TypeAlias = Callable[[Callable[[], bool], Callable[[], None], Callable[[str], None]], None]
"""What such a process does: it is given how to find out whether it is to stop, what to call when all runs, and what
takes a line to tell.
"""

_LOOK_SECONDS = 0.02
_LOG_BYTES = 10 << 20
"""A log that is larger becomes `NAME.1`, in place of the one before, and a new one begins."""


def start_detached(module: str, said: str, log: Path, what: str) -> None:
    """Start a process, and wait until it says that it runs.

    Parameters
    ----------
    module
        What it runs; it calls `run_detached`.
    said
        What it is told.
    log
        Gets what it writes, behind what is there.
    what
        Of what it is to run, for errors.

    Raises
    ------
    ProcessError
        What the process has against it.
    OSError
        If the log cannot be written.
    """
    with log.open("ab") as lines:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(log.absolute())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=lines,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        except OSError as problem:
            raise ProcessError(
                f"the {what} cannot start: {problem.strerror}", hint="Make room for more processes and files."
            ) from None
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            process.stdin.write(said.encode())
            process.stdin.close()
            answer = process.stdout.read()
        except BaseException:
            process.terminate()  # Ctrl-C: what has begun ends in order
            raise
    found = json.loads(answer) if answer else {"error": ["the process that keeps it running has ended", f"See {log}."]}
    if "error" in found:
        process.wait()
        message, hint = found["error"]
        raise ProcessError(f"the {what} cannot start: {message}", hint=hint)


def detached_holder(lock: Path, module: str) -> int | None:
    """Return the number of the process that runs a module and has locked a file (`cumulus.durable.folders.lock_file`).

    None if there is none, or another program has locked it.
    """
    try:
        held = lock_file(lock)
        if held is not None:
            held.close()
            return None
        pid = int(lock.read_bytes() or 0)
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if module.encode() in words else None


def stop_detached(pid: int, is_running: Callable[[], bool], seconds: float, hint: str) -> None:
    """Stop a process, and wait until it has ended.

    Parameters
    ----------
    is_running
        Whether what it keeps is still held.
    hint
        What to do if it does not end in these seconds.

    Raises
    ------
    ProcessError
        If it does not.
    """
    until = time.monotonic() + seconds
    with suppress(ProcessLookupError):
        if hasattr(os, "pidfd_open"):
            with open(os.pidfd_open(pid), "rb") as process:  # what it keeps is free before it has quite ended
                os.kill(pid, signal.SIGTERM)
                select.select([process], [], [], seconds)
        else:
            os.kill(pid, signal.SIGTERM)
    while is_running():
        if time.monotonic() > until:
            raise ProcessError(f"process {pid} has not ended within {seconds:g} s", hint=hint)
        time.sleep(_LOOK_SECONDS)


class _Log:
    """The file to which a process writes all that it prints.

    Parameters
    ----------
    most_bytes
        With more, it is replaced by a new one, and becomes the older part.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._next = time.monotonic()

    def look(self) -> None:
        """Begin a new file if this one is large; it is looked up once a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1.0
        with suppress(OSError):  # a disk that is full; the next look may find it otherwise
            if os.fstat(2).st_size <= self._most_bytes:
                return
            with suppress(FileNotFoundError):  # somebody has removed it
                os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
            new = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            has_both = os.path.sameopenfile(1, 2)  # output goes there, too, since it was said that all runs
            os.dup2(new, 2)
            if has_both:
                os.dup2(new, 1)
            os.close(new)


def run_detached(work: Work, log: str, log_bytes: int = _LOG_BYTES) -> None:
    """Do what `start_detached` has started this process for; the exit code is 1 if it fails.

    Parameters
    ----------
    log
        Where its lines are, to be told.
    log_bytes
        How large its log may be; one older part of it is kept.
    """
    is_waited_for, file = True, _Log(Path(sys.argv[1]), log_bytes)

    def say(**what: Any) -> None:
        """Say this to who waits, the first time; then what is printed goes to the log."""
        nonlocal is_waited_for
        if is_waited_for:
            is_waited_for = False
            try:
                print(json.dumps(what), flush=True)
            except OSError:
                raise ProcessError("who has started it did not wait until all ran", hint="Start it again.") from None
            finally:
                os.dup2(2, 1)

    def note(line: str) -> None:
        """Say this in the log, unless it is on a disk that is full."""
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)

    with Interrupt() as wish:

        def is_stopped() -> bool:
            file.look()
            return wish.wished

        try:
            work(is_stopped, say, note)
        except CumulusError as problem:
            note(str(problem))
            say(error=[problem.message, problem.hint])
            sys.exit(1)
        except Exception as problem:  # noqa: BLE001  # whatever it is, who waits is told, and the log has all of it
            note(traceback.format_exc())
            say(error=[f"{type(problem).__name__}: {problem}", f"See {log}."])
            sys.exit(1)
