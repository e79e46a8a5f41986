"""Who may send what, and what becomes of what clients make up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, get_args

import pytest

from cumulus.cluster import messages
from cumulus.cluster.messages import (
    ClientRows,
    EntriesRead,
    PartsRead,
    ReadEntries,
    ReadParts,
    RequestRefused,
    StatusAsked,
)
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import equip
from cumulus.cluster.protocols.table import takes_of
from cumulus.cluster.senders import Senders
from cumulus.compiler import compile_sql
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Machine, Received, Send

RECEIVERS = {
    "publisher": {StatusAsked},
    "switch1": {StatusAsked, ClientRows},
    "node1": {StatusAsked, ReadEntries, ReadParts},
}
SCRIPT = """
CREATE TABLE sales (p INT NOT NULL, town VARCHAR, amount DOUBLE);
CREATE VIEW by_town AS SELECT town, SUM(amount) AS a, COUNT(*) AS n FROM sales GROUP BY town;
CREATE VIEW by_person AS SELECT p, SUM(amount) AS a, COUNT(*) AS n FROM sales GROUP BY p;
"""


@pytest.mark.parametrize("me", RECEIVERS)
def test_clients_ask_and_do_nothing_that_machines_do(me: str) -> None:
    senders = Senders(me, nodes=2, switches=2, takes=takes_of(Mode.EVENTUAL))
    taken: dict[str, set[Any]] = {}
    for sender in ("publisher", "switch0", "node0", "client-1", "node2", "switch02", "supervisor"):
        empty = [(kind, object.__new__(kind)) for kind in get_args(messages.Message)]
        taken[sender] = {kind for kind, message in empty if senders.may_send(sender, message)}
    assert taken["client-1"] == taken["node2"] == taken["switch02"] == taken["supervisor"] == RECEIVERS[me]
    asked = {ClientRows, ReadEntries, ReadParts, StatusAsked}
    assert not asked & (taken["publisher"] | taken["switch0"] | taken["node0"])
    assert ({messages.EpochCommit} == taken["publisher"] - {messages.EpochTurn}) == (me != "publisher")
    assert (messages.EpochReady in taken["node0"]) == (messages.EpochReady in taken["switch0"]) == (me != "node1")
    assert (messages.Deltas in taken["node0"]) == (messages.Events in taken["switch0"]) == (me == "node1")


def machine_of(name: str, home: Path) -> Machine:
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    with Home(program, (), home, None, mode=Mode.EVENTUAL, nodes=1, switches=1, engine="interpreter") as made:
        spec = equip(name, {"home": made.settings.home})
        assert spec.log is not None
        spec.log.close()
        return spec.machine


@pytest.mark.parametrize("name", ["switch0", "node0"])
def test_what_a_client_makes_up_is_refused_and_the_machine_lives(name: str, tmp_path: Path) -> None:
    machine, draw = machine_of(name, tmp_path), random.Random(1)
    kinds: set[type] = set()
    for number in range(-1, 300):
        junk = draw.choice((b"", b"x", draw.randbytes(50)))
        places = draw.choice(([], [0], [0, 0], [1, 0], [-1], [99], [1 << 70]))
        rows = ClientRows(draw.choice((number, 1 << 70)), draw.choice(("sales", "\ud800", "")), junk)
        asked = rows if name == "switch0" else ReadEntries(number, draw.choice((0, 1, -1, 1 << 70)), places, junk)
        for effect in machine.step([Received("client", asked)]):
            assert isinstance(effect, Send)
            kinds.add(type(effect.message))
    assert kinds == ({RequestRefused} if name == "switch0" else {RequestRefused, EntriesRead})
    machine.check()


def test_folds_that_a_client_makes_up_are_refused(tmp_path: Path) -> None:
    machine, draw = machine_of("node0", tmp_path), random.Random(2)
    kinds: set[type] = set()
    texts = ("sx", "nNaN", "fnan", "finf", "i7", "v1", "t2024", "d", "b1", "?", "", None, 5, [], {})
    for number in range(800):
        heads = ([draw.choice(("town", "p", 1, None)), draw.choice(("in", "between", 0))] for _ in range(3))
        bounds = [[*head, *draw.choices(texts, k=draw.randrange(4))] for head in heads]
        told = json.dumps(bounds[: draw.randrange(3)]).encode()
        where = draw.choice((told, told, told, b"", b"[", b"5", b'{"a":1}', draw.randbytes(9)))
        by = draw.choice(([], ["town"], ["P"], ["town", "town"], ["\ud800"]))
        columns = draw.choice((["n"], [], ["a", "n"], ["town"]))
        asked = ReadParts(number, draw.choice(("by_town", "by_person", "x")), by, where, columns)
        for effect in machine.step([Received("client", asked)]):
            assert isinstance(effect, Send)
            kinds.add(type(effect.message))
    assert kinds == {RequestRefused, PartsRead}
    machine.check()


@pytest.mark.parametrize("message", [messages.EpochCommit(1), messages.EpochTurn(1, {}, False)])
def test_a_machine_believes_nobody_but_the_publisher(message: Any, tmp_path: Path) -> None:
    with pytest.raises(RemoteProtocolError, match=r"from node0 is not for|is no answer"):
        machine_of("switch0", tmp_path).step([Received("node0", message)])
