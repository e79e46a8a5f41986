"""Where a running cluster is found: `address.json` in its home, there from its start to its stop."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cumulus.cluster.processes.cluster_settings import SETTINGS_FILE
from cumulus.durable.files import write_durably
from cumulus.durable.folders import lock_file, refuse_remote
from cumulus.errors import CumulusError, InputError, NotRunningError, StoreError
from cumulus.machine import Name
from cumulus.transport.secret_file import read_secret

ADDRESS, STATE, LOG = "address.json", "checkpoint", "cluster.log"
_ENDED, _ENDED_BYTES = "ended.json", 8192
"""In the state of a cluster: the error with which it has ended, and a way out; blanks, if there was none. Its room is
taken when the cluster starts, since the error may be that there is none.
"""
_HAS_ENDED = (b"Z", b"X")
"""States of processes that have ended, and whose parents have not asked for it yet."""
_ENDED_CHARACTERS = 600
"""Of either text, at most: as JSON a character may have six bytes."""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where the machines of a cluster listen.

    Parameters
    ----------
    pid
        Of the process that has started them, and ends them.
    begun
        When that process has begun, by `begun_at`: its number may become another's.
    secret
        The file with the secret.
    machines
        Machine → host, port.
    pids
        Machine → the number of its process, where it runs.
    tls_ca
        The file with the certificates to trust; "": links are not encrypted.
    driver
        The engine whose driver the process is, which does other things, too; "" for none.
    inode
        Of the folder of the state: a copy of the home has another one. 0: unknown.
    """

    pid: int
    begun: str | None
    incarnation: int
    secret: str
    machines: Mapping[Name, tuple[str, int]]
    pids: Mapping[Name, int]
    tls_ca: str = ""
    driver: str = ""
    inode: int = 0

    def write(self, home: Path) -> None:
        """Put it into a home."""
        write_durably(home / ADDRESS, json.dumps(asdict(self), indent=1).encode())

    def read_secret(self) -> bytes:
        """Return the secret."""
        return read_secret(Path(self.secret))


def is_cluster_home(home: Path) -> bool:
    """Whether a cluster was started with a folder, ever."""
    return (home / STATE / SETTINGS_FILE).exists()


def is_running(home: Path) -> bool:
    """Whether the cluster of a home runs; a folder that is no home has none."""
    if not (home / ADDRESS).exists():
        return False
    try:
        read_address(home)
    except (InputError, NotRunningError):
        return False
    return True


def read_address(home: Path) -> ClusterAddress:
    """Return where the cluster of a home is.

    Raises
    ------
    InputError
        If it is no home of a cluster.
    NotRunningError
        If the cluster does not run.
    """
    refuse_remote(home, "")
    if not is_cluster_home(home):
        raise InputError(
            f"{home}: not the home of a cluster", hint="Give the folder that `cumulus cluster start --home` has made."
        )
    try:
        found: dict[str, Any] = json.loads((home / ADDRESS).read_text(encoding="utf-8"))
        machines = {name: (host, port) for name, (host, port) in found.pop("machines").items()}
        address = ClusterAddress(**found, machines=machines)
    except FileNotFoundError:
        raise _not_running(home) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StoreError(f"{home / ADDRESS} cannot be read: {problem}", hint=_start_hint(home)) from None
    if not is_alive(address.pid, address.begun):
        raise NotRunningError(
            f"{home}: the cluster has ended without being stopped",
            hint=f"{home / STATE / LOG} says why, unless it was killed. {_start_hint(home)}",
        )
    if address.inode not in (0, (home / STATE).stat().st_ino):
        raise NotRunningError(
            f"{home}: this is a copy of the home of a cluster that runs, and no cluster runs here",
            hint="Give the home that was copied.",
        )
    return address


def begin_without_error(home: Path) -> None:
    """Forget the error with which a cluster has ended, and make room for the next one.

    Raises
    ------
    StoreError
        If there is none.
    """
    write_durably(home / STATE / _ENDED, b" " * _ENDED_BYTES)


def note_error(home: Path, problem: CumulusError) -> None:
    """Note with which error a cluster ends, for those who want to connect."""
    said = [problem.message[:_ENDED_CHARACTERS], problem.hint[:_ENDED_CHARACTERS]]
    with suppress(OSError), (home / STATE / _ENDED).open("r+b") as file:
        file.write(json.dumps(said).encode().ljust(_ENDED_BYTES))


def _not_running(home: Path) -> NotRunningError:
    """Return that the cluster of a home does not run, and why, if that is known."""
    try:
        message, hint = map(str, json.loads((home / STATE / _ENDED).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        hint = f"{_start_hint(home)} {home / STATE / LOG} has what its processes have said."
        return NotRunningError(f"{home}: the cluster is not running", hint=hint)
    return NotRunningError(f"{home}: the cluster has ended: {message}", hint=f"{hint} {_start_hint(home)}".lstrip())


def _start_hint(home: Path) -> str:
    return f"Start it: cumulus cluster start FILE --home {home}; it goes on where it was."


def begun_at(pid: int) -> str | None:
    """Return when a process has begun, such that no other process of its number has this text.

    It is the boot of the machine and the clock tick since then. None if the process has ended, or if this system does
    not tell it.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The name of the program, in parentheses, may have blanks and parentheses itself.
        facts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, tick = facts[0], facts[19]
    return None if state in _HAS_ENDED else f"{boot} {tick.decode()}"


def is_alive(pid: int, begun: str | None) -> bool:
    """Whether the process of this number is there that has begun then; any of this number if `begun` is None."""
    is_hidden = False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's, of which this system may tell nothing more
        is_hidden = not Path(f"/proc/{pid}").exists()
    return begun is None or is_hidden or begun_at(pid) == begun


def lock_of(home: Path) -> Path:
    """Return the file that who holds the state of a home has locked."""
    return home / STATE / ".lock"


def is_in_use(home: Path) -> bool:
    """Whether a process holds the state of a home."""
    held = lock_file(lock_of(home))
    if held is None:
        return True
    held.close()
    return False
