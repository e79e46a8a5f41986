"""Machines with real sockets in one event loop, for tests that look inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name, Received
from cumulus.transport.connections import Address
from cumulus.transport.driver import Driver
from cumulus.transport.greeting import Credentials
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec, Piece


class Listener:
    """Keeps what a driver says, and drives it."""

    def __init__(
        self, name: Name, spec: MachineSpec, secret: bytes | None = None, clients_secret: bytes | None = None
    ) -> None:
        self.said: list[Any] = []
        self.links_lost: list[Name] = []
        self.notes: list[str] = []
        self.spec = spec
        self.driver = Driver(Credentials(name, spec.program, secret, clients_secret), spec, self)
        self.task: asyncio.Task[None] | None = None

    def say(self, pieces: Sequence[Piece]) -> None:
        self.said.append(self.spec.codec.decode(b"".join(pieces)))

    def lost(self, peer: Name, reason: str) -> None:
        self.links_lost.append(peer)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ask(self, message: Any) -> None:
        self.driver.deliver(Received(SUPERVISOR, message))

    def cut(self, peer: Name) -> None:
        """Break the link to a peer, as a network that fails would."""
        connection = self.driver.links._links[peer].connection
        assert connection is not None
        connection.abort("cut")

    async def end(self) -> None:
        self.driver.stop()
        assert self.task is not None
        await self.task


async def reconnect_all(listeners: dict[Name, Listener], incarnation: int = 1) -> dict[Name, Address]:
    """Let all of them listen, run, and know of one another."""
    addresses = {name: await each.driver.links.listen() for name, each in listeners.items()}
    for each in listeners.values():
        each.task = asyncio.get_running_loop().create_task(each.driver.run())
    for each in listeners.values():
        each.driver.reconnect_all(incarnation, addresses)
    return addresses


async def until(is_so: Callable[[], bool], failing: Iterable[Listener] = (), seconds: float = 10.0) -> None:
    """Wait until something is so; a driver's error comes out at once."""
    async with asyncio.timeout(seconds):
        while not is_so():
            for each in failing:
                if each.task is not None and each.task.done():
                    each.task.result()
            await asyncio.sleep(0.001)


async def refusal_by(listener: Listener) -> RemoteProtocolError:
    """Wait for the driver's end, and return why it was."""
    assert listener.task is not None
    try:
        await asyncio.wait_for(listener.task, 10)
    except RemoteProtocolError as problem:
        return problem
    raise AssertionError("it has ended in peace")
