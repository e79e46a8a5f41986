"""A node that joins a ring on another computer, or on the keeper's: the process in which it runs is the caller's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

from cumulus.durable.folders import check_output, lock_file_soon
from cumulus.errors import InputError, LockedError, ProcessError, StoreError
from cumulus.machine import Name
from cumulus.transport.secret_file import read_secret
from cumulus_ring.links.open_link import LinkClosedError, closing_reason
from cumulus_ring.process.membership.joined_process import this_machine
from cumulus_ring.process.membership.keeper_door import JOIN, releases
from cumulus_ring.process.process import NodeProcess, end_process
from cumulus_ring.process.ring_places import SCHEME, connect_to_keeper, keeper_address
from cumulus_ring.process.settings import NodePlace
from cumulus_ring.process.wire import error_of, receive_said, send_said

_LOCK = ".lock"
_OURS = frozenset((_LOCK, "store", "spill", "record.jsonl"))
_ANSWER_SECONDS = 30.0


def join(
    ring: str,
    secret: bytes | str | Path,
    place: NodePlace,
    *,
    name: Name = "",
    rack: str = "",
    on_ready: Callable[[Name], None] = lambda _: None,
    on_node: Callable[[NodeProcess], None] = lambda _: None,
) -> Name:
    """Be a node of a ring until it is stopped or removed, or `NodeProcess.leave` is called; return the node's name.

    The process ends if the keeper of the ring is gone.

    Parameters
    ----------
    ring
        Where its keeper is, such as ``ring://h1:7200``.
    secret
        That of the ring, or a file with a copy.
    place
        What is the node's own here; host and address may be empty: then it is the address by which this computer
        reaches the keeper.
    name
        What it wants to be called; empty for whatever is free.
    rack
        Nodes of one rack are neighbours.
    on_ready
        Called with the name when it is ready.
    on_node
        Is given the node as soon as there is one.

    Raises
    ------
    CumulusError
        If it cannot join: NotRunningError, UsageError, InputError; LockedError if another node uses its home.
    """
    address, known_secret = keeper_address(ring), secret if isinstance(secret, bytes) else read_secret(Path(secret))
    lock = _locked_home(Path(place.folder))
    try:
        if place.source and not Path(place.source).is_dir():
            raise InputError(
                f"--source {place.source} is not a folder",
                hint="Give where the files of the tables are on this computer, or leave it out: others bring them.",
            )
        link = connect_to_keeper(address, f"joining-{os.getpid()}", JOIN, known_secret)
        here, _ = link.ends()
        place = replace(place, host=place.host or here)
        wish = {"ask": "join", "name": name, "pid": os.getpid(), "address": place.address or place.host, "rack": rack}
        try:
            link.limit_waiting(_ANSWER_SECONDS)
            send_said(link, {**wish, "machine": this_machine(), "releases": releases()})
            answer, _ = receive_said(link)
        except (LinkClosedError, OSError) as problem:
            raise ProcessError(
                f"the keeper of the ring at {ring.removeprefix(SCHEME)} has gone before it has answered: "
                f"{closing_reason(problem)}",
                hint="Look whether it runs there.",
            ) from None
        if "error" in answer:
            raise error_of(answer["error"])
        connection = link.take_socket()
        connection.settimeout(None)
        known = str(answer["joined"])
        threading.excepthook = end_process
        node = NodeProcess(connection, place, on_ready, lambda: _gone(known, ring))
        on_node(node)
        node.run()
        return known
    finally:
        lock.close()


def _locked_home(folder: Path) -> IO[bytes]:
    """Return the lock of a node's home, which is made if it is not there."""
    check_output(folder, "--home")
    try:
        there = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
        if not there <= _OURS or (there and _LOCK not in there):
            raise InputError(
                f"--home {folder} is a folder with other things in it", hint="Give one that is empty, or new."
            )
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_file_soon(folder / _LOCK)
    except OSError as problem:
        raise StoreError(
            f"--home {folder} cannot be written: {problem.strerror}",
            hint="Give another folder, make room there, or give the right to write.",
        ) from None
    if lock is None:
        raise LockedError(f"{folder}: another node uses this home", hint="Give another --home.")
    return lock


def _gone(name: Name, ring: str) -> NoReturn:
    """End the process: nobody is left who knows the others."""
    with suppress(OSError):
        print(f"error: {name}: the keeper of the ring at {ring.removeprefix(SCHEME)} is gone", file=sys.stderr)
        print("Look whether it runs there; then join again.", file=sys.stderr, flush=True)
    os._exit(1)
