"""The process that keeps a cluster running: it is started, says when all machines run, and is stopped by SIGTERM."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.cluster.mode import Mode
from cumulus.durable.folders import check_output
from cumulus.epochs.output.identity import program_of
from cumulus.epochs.output.origin import Origin, write_origin
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import FolderSource
from cumulus.errors import CumulusError, LockedError, NotRunningError, ProcessError, StoreError
from cumulus.interrupts import Interrupt
from cumulus.local_cluster.home import Home
from cumulus.local_cluster.live.address import (
    ADDRESS,
    LOG,
    STATE,
    ClusterAddress,
    begin_without_error,
    is_in_use,
    note_error,
    read_address,
    read_secret,
)
from cumulus.local_cluster.run import ClusterRun
from cumulus.transport.supervisor import Supervisor

_STOP_SECONDS, _LOOK_SECONDS = 60.0, 0.05


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a cluster is started with.

    Parameters
    ----------
    program
        Its text, compiled without RELY and without enforced keys.
    home
        The folder for its views, with its state inside.
    every_s
        How often to look for files, and whether clients have sent rows.
    secret
        A file; one is made in the home if not given.
    settings
        Others of `Home`.
    origin
        Of the program, for who asks the home for it; None if it was made by hand.
    """

    program: str
    sources: tuple[FolderSource, ...]
    home: str
    mode: str
    nodes: int
    switches: int
    every_s: float
    secret: str
    functions: tuple[str, ...]
    settings: dict[str, Any]
    origin: Origin | None = None


def serve(
    live: LiveSettings,
    is_stopped: Callable[[], bool],
    on_up: Callable[[], None],
    on_epoch: Callable[[Epoch], None],
    note: Callable[[str], None],
) -> None:
    """Run a cluster until it is stopped.

    Parameters
    ----------
    on_up
        Called whenever all machines run.
    note
        Takes a line to tell when all start anew.

    Raises
    ------
    CumulusError
        If it cannot start, or not go on.
    """
    place = Path(live.home).absolute()
    with Home(
        program_of(live.program),
        live.sources,
        place,
        None,
        mode=Mode(live.mode),
        nodes=live.nodes,
        switches=live.switches,
        functions=live.functions,
        **live.settings,
    ) as home:
        secret_file = Path(live.secret).absolute() if live.secret else _own_secret(place / STATE / "secret")
        secret = read_secret(secret_file)
        if live.origin is not None:
            write_origin(place, live.origin)

        def up(supervisor: Supervisor) -> None:
            machines, pids = supervisor.addresses(), supervisor.pids()
            ClusterAddress(os.getpid(), supervisor.incarnation, str(secret_file), machines, pids).write(place)
            on_up()

        running = ClusterRun(home, live.every_s, note=note, secret=secret, on_up=up)
        begin_without_error(place)
        try:
            for epoch in running.epochs(is_stopped):
                on_epoch(epoch)
        except CumulusError as problem:
            note_error(place, problem)
            raise
        finally:
            with suppress(FileNotFoundError):
                (place / ADDRESS).unlink()


def _own_secret(path: Path) -> Path:
    with suppress(FileExistsError), open(path, "x", opener=partial(os.open, mode=0o600)) as file:
        file.write(secrets.token_hex(32))
    return path


def start(live: LiveSettings) -> None:
    """Start a process that runs a cluster, and wait until all machines do.

    Raises
    ------
    CumulusError
        What the process has against it.
    """
    place = Path(live.home).absolute()
    check_output(place, "--home")
    if (place / STATE).is_dir() and is_in_use(place):
        raise LockedError(
            f"{place}: the cluster of this home runs already",
            hint=f"Use it, stop it (cumulus cluster stop {place}), or give another --home.",
        )
    log = place / STATE / LOG
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        lines = log.open("ab")
    except OSError as problem:
        raise StoreError(
            f"--home {place} cannot be written: {problem.strerror}",
            hint="Give another folder, make room there, or give the right to write.",
        ) from None
    with lines:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "cumulus.local_cluster.live.daemon"],
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
            daemon.stdin.write(json.dumps(asdict(live)).encode())
            daemon.stdin.close()
            answer = daemon.stdout.read()
        except BaseException:
            daemon.terminate()  # Ctrl-C: what has begun ends in order
            raise
    said = json.loads(answer) if answer else {"error": ["the process that keeps it running has ended", f"See {log}."]}
    if "error" in said:
        daemon.wait()
        message, hint = said["error"]
        raise ProcessError(f"the cluster cannot start: {message}", hint=hint)


def stop(home: Path) -> None:
    """Stop the cluster of a home, and wait until all its processes have ended.

    Raises
    ------
    InputError
        If it is no home of a cluster.
    NotRunningError
        If the cluster does not run.
    ProcessError
        If it does not end.
    """
    address = read_address(home)
    if not is_in_use(home):  # the number of the process is another's now
        (home / ADDRESS).unlink(missing_ok=True)
        raise NotRunningError(f"{home}: the cluster is not running", hint="It has ended without being stopped.")
    os.kill(address.pid, signal.SIGTERM)
    until = time.monotonic() + _STOP_SECONDS
    while is_in_use(home):
        if time.monotonic() > until:
            raise ProcessError(
                f"{home}: process {address.pid} has not ended within {_STOP_SECONDS:g} s",
                hint=f"kill -9 {address.pid} loses nothing that was accepted; its machines end by themselves.",
            )
        time.sleep(_LOOK_SECONDS)


def main() -> None:
    """Run the cluster that is given on standard input; say on standard output, once, whether it runs."""
    given = json.load(sys.stdin)
    sources = tuple(FolderSource(**{**each, "key": tuple(each["key"])}) for each in given.pop("sources"))
    origin = given.pop("origin")
    live = LiveSettings(
        **{**given, "functions": tuple(given["functions"])},
        sources=sources,
        origin=None if origin is None else Origin(**{**origin, "sources": tuple(origin["sources"])}),
    )

    is_waited_for = True

    def say(**what: object) -> None:
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
            serve(live, lambda: wish.wished, say, lambda _: None, note)
        except CumulusError as problem:
            note(str(problem))
            say(error=[problem.message, problem.hint])
            sys.exit(1)
        except Exception as problem:  # noqa: BLE001  # whatever it is, who waits is told, and the log has all of it
            note(traceback.format_exc())
            say(error=[f"{type(problem).__name__}: {problem}", f"See {STATE}/{LOG} in the home."])
            sys.exit(1)


if __name__ == "__main__":
    main()
