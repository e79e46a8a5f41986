"""A process that runs one machine: ``python -m cumulus.transport.process FD``, as `cumulus.transport.supervisor` does.

`FD` is one end of a pair of sockets, over which the supervisor says what is to run, and hears what becomes of it. When
the other end is closed, the supervisor has ended, and so does the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from cumulus.errors import CumulusError, UsageError
from cumulus.machine import Name, Received
from cumulus.transport.connections import Address
from cumulus.transport.driver import Driver
from cumulus.transport.framing import FrameKind, FrameReader, Piece, framed
from cumulus.transport.greeting import Credentials
from cumulus.transport.links import LOOPBACK
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec
from cumulus.transport.tls import TlsFiles


class _Control(asyncio.BufferedProtocol):
    """The process's end of the pair."""

    def __init__(self) -> None:
        self.start: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        """What to run; None if the supervisor has ended before it said so."""
        self._driver: Driver | None = None
        self._spec: MachineSpec | None = None
        self._reader = FrameReader()
        self._reader.trust()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        for kind, incarnation, payload in self._reader.filled(nbytes):
            if kind == FrameKind.START:
                self.start.set_result(json.loads(payload))
                continue
            if self._driver is None or self._spec is None:
                self._transport.close()  # nothing but STOP comes before READY is sent; `ready` sees it
            elif kind == FrameKind.MESSAGE:
                self._hear(payload)
            elif kind == FrameKind.MEET:
                listening, message = json.loads(payload)
                addresses = {name: (host, port) for name, (host, port) in listening.items()}
                self._driver.reconnect_all(incarnation, addresses)
                if message is not None:  # before anything of the new incarnation can come
                    self._hear(bytes.fromhex(message))
            elif kind == FrameKind.ASK:
                self.tell(FrameKind.HEALTH, self._driver.health())
            else:
                assert kind == FrameKind.STOP, kind
                self._driver.stop()

    def _hear(self, payload: bytes) -> None:
        assert self._driver is not None
        assert self._spec is not None
        self._driver.deliver(Received(SUPERVISOR, self._spec.codec.decode(payload)))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.start.done():
            self.start.set_result(None)
        if self._driver is not None:
            self._driver.stop()

    def ready(self, driver: Driver, spec: MachineSpec, address: Address) -> None:
        """Say where the machine listens; from now on it hears the supervisor."""
        self._driver, self._spec = driver, spec
        if self._transport.is_closing():
            driver.stop()
        self.tell(FrameKind.READY, address)

    def tell(self, kind: FrameKind, what: Any) -> None:
        self._transport.writelines(framed(kind, [json.dumps(what).encode()]))

    # --- what the driver tells ---

    def say(self, pieces: Sequence[Piece]) -> None:
        self._transport.writelines(framed(FrameKind.MESSAGE, pieces))

    def lost(self, peer: Name, reason: str) -> None:
        assert self._driver is not None
        self.tell(FrameKind.LOST, [peer, self._driver.links.incarnation, reason])

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _equip(name: Name, factory: str, argument: Any) -> MachineSpec:
    """Call the function that makes a machine, given as ``package.module:function``.

    Raises
    ------
    UsageError
        If there is none.
    """
    module, _, function = factory.partition(":")
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as problem:
        raise UsageError(
            f"{name}: there is no {factory}: {problem}",
            hint="Give the function that makes the machine as package.module:function.",
        ) from None
    spec = make(name, argument)
    assert isinstance(spec, MachineSpec), f"{factory} gave {spec!r}"
    return spec


async def _run(pair: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    _, control = await loop.create_unix_connection(_Control, sock=pair)
    start = await control.start
    if start is None:
        return 0
    try:
        argument = {**start["argument"], "data": start["data"]} if "data" in start else start["argument"]
        spec = _equip(start["name"], start["factory"], argument)
        clients_secret = None if start["clients_secret"] is None else bytes.fromhex(start["clients_secret"])
        tls = TlsFiles(**start["tls"]) if start.get("tls") else None
        me = Credentials(start["name"], spec.program, bytes.fromhex(start["secret"]), clients_secret, tls)
        driver = Driver(me, spec, control)

        def fail(_: object, context: Mapping[str, Any]) -> None:
            driver.failed(context.get("exception") or AssertionError(context["message"]))

        loop.set_exception_handler(fail)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, driver.stop)
        listening = await driver.links.listen(start.get("host", LOOPBACK), start["port"])
        control.ready(driver, spec, listening)
        await driver.run()
    except CumulusError as problem:
        control.tell(FrameKind.FAILED, [problem.message, problem.hint])
        return 1
    except MemoryError:
        traceback.print_exc()
        control.tell(FrameKind.FAILED, ["there is no memory left", "Make room on this computer, then start again."])
        return 1
    return 0


def main(arguments: Sequence[str]) -> None:
    """Run a machine until the supervisor stops it or ends; the exit code is 0 then."""
    pair = socket.socket(fileno=int(arguments[0]))
    pair.set_inheritable(False)  # or a process that a task starts would keep it open
    code = 1
    try:
        code = asyncio.run(_run(pair))
    except Exception:  # noqa: BLE001  # a machine or a task may raise anything; the supervisor shows these lines
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a task that has not ended is not waited for


if __name__ == "__main__":
    main(sys.argv[1:])
