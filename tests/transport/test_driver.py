"""Two or three machines over real sockets, in one process."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from cumulus.durable.log_files import RecordLog
from cumulus.errors import StoreError
from cumulus.machine import Lost, Received, Tick
from cumulus.transport.machine_spec import SUPERVISOR
from support.drivers import Listener, reconnect_all, until
from support.relay import machine_of, make


def relays(*names: str, **argument: object) -> dict[str, Listener]:
    return {name: Listener(name, make(name, dict(argument))) for name in names}


def test_a_token_goes_round() -> None:
    async def go() -> None:
        nodes = relays("a", "b", "c")
        nodes["b"].ask(["token", "c a b c"])  # before anybody has been met: it waits
        await reconnect_all(nodes)
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_nothing_is_sent_before_its_record_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is busy the machine reads on, and what comes meanwhile is one group."""
    disk, order, sync = threading.Event(), [], os.fsync

    def slow(file: int) -> None:
        assert disk.wait(10)
        order.append("synced")
        sync(file)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, slow)

    async def go() -> None:
        nodes = {**relays("a", log=str(tmp_path)), **relays("b")}
        told = {name: machine_of(each.spec).told for name, each in nodes.items()}
        await reconnect_all(nodes)
        nodes["a"].ask(["token", "b"])
        await until(lambda: len(told["a"]) == 2, nodes.values())  # what was recovered, and this
        for _ in range(5):
            nodes["a"].ask(["token", "b"])
        await until(lambda: len(told["a"]) == 7, nodes.values())
        nodes["b"].ask(["token", "a"])  # what a node sends without a record does not wait, and a takes it
        await until(lambda: len(told["a"]) == 8, nodes.values())
        assert told["b"] == [Received(SUPERVISOR, ["token", "a"])]
        assert nodes["a"].said == [], "its answer stands behind records"
        disk.set()
        await until(
            lambda: nodes["b"].said == [["home", "b"]] * 6 and nodes["a"].said == [["home", "a"]], nodes.values()
        )
        for each in nodes.values():
            await each.end()

    asyncio.run(go())
    assert order == ["synced"] * 4, "the folder, the first record, all others, and the end"
    log = RecordLog(tmp_path / "a")
    assert log.recover() == (1, [b"b"] * 6 + [b"end"])
    log.close()


def test_a_disk_that_fails_ends_the_machine_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", fail)

    async def go() -> None:
        nodes = {**relays("a", log=str(tmp_path)), **relays("b")}
        await reconnect_all(nodes)
        nodes["b"].ask(["flood", "a", 1, 1, 1])
        await until(lambda: bool(machine_of(nodes["a"].spec).items), nodes.values())
        nodes["a"].ask(["token", "b"])
        with pytest.raises(StoreError, match="the log cannot be read or written: No space left on device"):
            await until(lambda: False, nodes.values())
        await until(lambda: nodes["b"].links_lost == ["a"])
        await until(lambda: Lost("a") in machine_of(nodes["b"].spec).told)
        assert nodes["b"].said == []
        await nodes["b"].end()

    asyncio.run(go())


def test_what_is_answered_to_an_incarnation_that_is_over_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record may be durable in the new one, but who would get it has forgotten what it was about."""
    disk, sync = threading.Event(), os.fsync

    def slow(file: int) -> None:
        assert disk.wait(10)
        sync(file)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, slow)

    async def go() -> None:
        nodes = {**relays("a", log=str(tmp_path)), **relays("b")}
        told = {name: machine_of(each.spec).told for name, each in nodes.items()}
        addresses = await reconnect_all(nodes)
        nodes["a"].ask(["token", "b old"])
        await until(lambda: len(told["a"]) == 2, nodes.values())
        nodes["a"].ask(["token", "b waits"])  # it is in the inbox when the incarnation ends
        for each in nodes.values():
            each.driver.reconnect_all(2, addresses)
        nodes["a"].ask(["token", "b"])
        disk.set()
        await until(lambda: nodes["b"].said == [["home", "b"]], nodes.values())
        assert told["b"] == [Lost("a"), Received("a", ["token", ""])]
        assert told["a"][2:] == [
            Received(SUPERVISOR, ["token", "b waits"]),
            Lost("b"),
            Received(SUPERVISOR, ["token", "b"]),
        ]
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_tasks_are_done_one_after_the_other_and_ticks_come() -> None:
    async def go() -> None:
        nodes = relays("a", tick_ms=5)
        await reconnect_all(nodes)
        tasks = [["sleep", 0.02], ["give", 1], ["give", 2]]
        for task in tasks:
            nodes["a"].ask(["task", task])
        await until(lambda: len(nodes["a"].said) == 3, nodes.values())
        assert nodes["a"].said == [["done", task, task[1]] for task in tasks]
        told = machine_of(nodes["a"].spec).told
        ticks = [each.milliseconds for each in told if isinstance(each, Tick)]
        assert len(ticks) >= 3
        assert ticks == sorted(ticks)
        await nodes["a"].end()

    asyncio.run(go())
