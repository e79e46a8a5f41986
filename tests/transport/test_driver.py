"""Two or three machines over real sockets, in one process."""

from __future__ import annotations

import asyncio

from support.drivers import Listener, meet, until
from support.relay import Relay, make


def relays(*names: str, **argument: object) -> dict[str, Listener]:
    return {name: Listener(name, make(name, dict(argument))) for name in names}


def machine_of(listener: Listener) -> Relay:
    machine = listener.equipment.machine
    assert isinstance(machine, Relay)
    return machine


def test_a_token_goes_round() -> None:
    async def go() -> None:
        nodes = relays("a", "b", "c")
        nodes["b"].ask(["token", "c a b c"])  # before anybody has been met: it waits
        await meet(nodes)
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_each_pair_keeps_its_order_under_load() -> None:
    async def go() -> None:
        nodes = relays("a", "b", "c")
        for me in nodes:
            for to in nodes:
                if me != to:
                    for first in range(1, 4001, 1000):
                        nodes[me].ask(["flood", to, first, 1000, 200])
                    nodes[me].ask(["flood", to, 4001, 3, 300_000])
        await meet(nodes)
        await until(
            lambda: all(sorted(machine_of(each).items.values()) == [4003, 4003] for each in nodes.values()),
            nodes.values(),
        )
        for each in nodes.values():
            await each.end()

    asyncio.run(go())
