"""The home of a ring: a folder that says where its nodes listen while it runs, with a folder for each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from cumulus.durable.files import write_durably
from cumulus.durable.folders import check_output, lock_file, lock_file_soon
from cumulus.errors import CumulusError, InputError, LockedError, NotRunningError, StoreError
from cumulus.machine import Name
from cumulus.transport.secret_file import read_secret, write_secret
from cumulus_ring.process.settings import RingOptions

ADDRESS, LOG, SECRET = "ring.json", "ring.log", "secret"
_LOCK, _ENDED, _VERSIONS = ".lock", "ended.json", "versions"
_BEGUN = frozenset((_LOCK, _ENDED, ADDRESS, LOG, f"{LOG}.1", SECRET))
"""What is there before a ring has read its source; others have a `.lock`, too."""
_TOLD = ("pid", "ring_epoch", "nodes", "pids", "lost")


@dataclass(frozen=True, slots=True)
class RingAddress:
    """Where a ring is.

    Parameters
    ----------
    pid
        Of the process that keeps it.
    ring_epoch
        How often its nodes have met.
    secret
        What nodes and clients know, as hexadecimal digits.
    nodes
        Node → host, port; in the order in which chunks go round.
    pids
        Node → the number of its process.
    lost
        Nodes that the ring has lost → why.
    options
        With what it was started.
    door
        Where its keeper listens, as HOST:PORT; empty for nowhere.
    """

    pid: int
    ring_epoch: int
    secret: str
    nodes: Mapping[Name, tuple[str, int]]
    pids: Mapping[Name, int]
    lost: Mapping[Name, str]
    options: RingOptions
    door: str = ""

    def to_tell(self) -> dict[str, Any]:
        """Return what clients on other computers are told, for JSON: nothing of the home."""
        return {name: value for name, value in asdict(self).items() if name in _TOLD}

    def write(self, home: Path) -> None:
        """Put it into a home, readable for its owner alone."""
        place = home / ADDRESS
        aside = home / f".{ADDRESS}"
        with open(aside, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(json.dumps(asdict(self), indent=1).encode())
        os.replace(aside, place)


class RingHome:
    """The folder, held by one process.

    Parameters
    ----------
    secret_file
        What clients must know, in a file; empty for a new secret, which the home has while the ring runs.

    Raises
    ------
    LockedError
        If another process has it.
    StoreError
        If it cannot be written.
    """

    def __init__(self, place: Path, secret_file: str = "") -> None:
        self.place = place
        secret = read_secret(Path(secret_file)) if secret_file else None
        check_output(place, "--home")
        try:
            there = {each.name for each in place.iterdir()} if place.is_dir() else set()
            # Who has just begun has links, and no version yet.
            is_ring = {_LOCK, _VERSIONS} <= there or (_LOCK in there and there <= _BEGUN | {"files"})
            if not there <= _BEGUN and not is_ring:
                raise InputError(
                    f"--home {place} is a folder with other things in it", hint="Give one that is empty, or new."
                )
            place.mkdir(parents=True, exist_ok=True)
            lock: IO[bytes] | None = lock_file_soon(place / _LOCK)
            if lock is None:
                raise LockedError(
                    f"{place}: the ring of this home runs already",
                    hint=f"Use it, stop it (cumulus ring stop --home {place}), or give another --home.",
                )
            self._lock = lock
            (place / _ENDED).unlink(missing_ok=True)
            (place / ADDRESS).unlink(missing_ok=True)
            self.secret = secret if secret is not None else self._own_secret()
        except OSError as problem:
            raise StoreError(
                f"--home {place} cannot be written: {problem.strerror}",
                hint="Give another folder, make room there, or give the right to write.",
            ) from None

    def _own_secret(self) -> bytes:
        """Return a secret that is written into the home, new with each start."""
        (self.place / SECRET).unlink(missing_ok=True)
        write_secret(self.place / SECRET)
        return read_secret(self.place / SECRET)

    def close(self, problem: CumulusError | None = None) -> None:
        """Give the folder free; a problem is kept for who wants to connect."""
        with suppress(OSError):
            (self.place / ADDRESS).unlink(missing_ok=True)
            if problem is not None:
                write_durably(self.place / _ENDED, json.dumps([problem.message, problem.hint]).encode())
        self._lock.close()


def is_home(home: Path) -> bool:
    """Whether a ring was started with a folder, ever."""
    return (home / _LOCK).exists() and (home / _VERSIONS).is_dir()


def read_address(home: Path) -> RingAddress:
    """Return where the ring of a home is.

    Raises
    ------
    InputError
        If it is no home of a ring.
    NotRunningError
        If the ring does not run.
    """
    if not is_home(home):
        raise InputError(
            f"{home}: not the home of a ring", hint="Start one: cumulus ring start --from FOLDER --home HOME."
        )
    try:
        said: dict[str, Any] = json.loads((home / ADDRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        said = {}
    except PermissionError:
        raise NotRunningError(f"{home}: the ring is somebody else's", hint="Ask who has started it.") from None
    if not said or not is_running(home):
        raise _not_running(home)
    said["options"] = RingOptions(**said["options"])
    said["nodes"] = {name: (host, port) for name, (host, port) in said["nodes"].items()}
    return RingAddress(**said)


def lock_of(home: Path) -> Path:
    """Return the file that the supervisor of a ring has locked."""
    return home / _LOCK


def is_running(home: Path) -> bool:
    """Whether a process keeps the ring of a home."""
    held = lock_file(home / _LOCK)
    if held is None:
        return True
    held.close()
    return False


def _not_running(home: Path) -> NotRunningError:
    start = f"Start it: cumulus ring start --from FOLDER --home {home}."
    try:
        message, hint = json.loads((home / _ENDED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return NotRunningError(
            f"{home}: the ring is not running", hint=f"{start} {home / LOG} has what its processes have said."
        )
    return NotRunningError(f"{home}: the ring has ended: {message}", hint=f"{hint} {start}".lstrip())
