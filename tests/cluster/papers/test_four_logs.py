"""The semester paper's examples by its own messages, PUT, FETCH, PUSH and corrective updates, with the values it tells.

Who delivers is the test, in the paper's order. Each table has a switch of its own, as in the paper, so that what a
link keeps in order is no more than there. The paper gives maps no contents; those of START are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cumulus import m3
from cumulus.catalog.arrow import from_ipc
from cumulus.cluster.messages import OFFSET, SIGN, Message
from cumulus.cluster.mode import Mode
from cumulus.cluster.protocols.central_messages import Correct, Fetch, Push, Put
from cumulus.engine.interpreter.engine import Interpreter
from support.spread_cases import Block
from support.told_in_order import MOST_TICKS, CentralNodes

OPTIONS = (
    (),
    ("bypass",),
    ("compress",),
    ("elide-push=correct",),
    ("elide-put",),
    ("elide-fetch",),
    ("elide-push=wait:20",),
    ("patience=20",),
    ("elide-push=correct", "look-ahead"),
)


class FourLogs:
    """Two nodes, and a switch for each table; versions are the paper's timestamps."""

    def __init__(self, text: str, options: Sequence[str] = ()) -> None:
        program = m3.read(text)
        tables = [relation.name for relation in program.relations]
        self._world = CentralNodes(program, Mode.FOUR_LOGS, 2, 0, switches=len(tables), options=options)
        self._switch_of = {name: -1 - self._world.plan.tables.switch_of[name] for name in tables}
        assert len({*self._switch_of.values()}) == len(tables)

    def tell(self, stamp: int, table: str, *row: int) -> None:
        """Let the switch of a table send a row; nodes hear of it later."""
        self._world.send(Block(0, table, ((1, row),)), version=stamp)

    def take(self, source: str | int, node: int, kind: type[Message] | type[Any], stamp: int | None = None) -> Any:
        """Let a node take the next message of a table's switch, or of another node: of a kind, and of a timestamp."""
        message = self._world.deliver_on(self._switch_of[source] if isinstance(source, str) else source, node)
        assert isinstance(message, kind), message
        if stamp is not None:
            assert getattr(message, "version", getattr(getattr(message, "block", None), "version", None)) == stamp
        return message

    def pass_time(self) -> None:
        """Let nodes wait for what has not come until they go on."""
        for _ in range(MOST_TICKS):
            self._world.drain(is_time=True)

    def newest(self, node: int, name: str) -> Mapping[Any, int]:
        """Return what a node has of a map."""
        return {key: value for key, (value,) in self._world.nodes[node].maps.maps.engine.items(name)}

    def before(self, node: int, name: str, stamp: int) -> int:
        """Return the only entry of a map as it is in the WriteLog before a timestamp."""
        maps = self._world.nodes[node].maps.maps
        engine = maps.engine
        assert isinstance(engine, Interpreter)
        later = sum(value for key, (value,) in engine.items(maps.made.overlays[name].since) if key[-1] >= stamp)
        return sum(self.newest(node, name).values()) - later

    def waiting(self) -> list[tuple[int, int]]:
        """Return the links on which something waits."""
        return sorted(self._world.links)


@pytest.mark.parametrize("options", OPTIONS)
def test_figure_5(options: tuple[str, ...]) -> None:
    """m_w is 1, 2, 4; then one corrective update, of TS6, is for all that were sent m_r behind it: 2, 4, 7."""
    four = FourLogs(
        """RELATION P(A INT); RELATION L(A INT); RELATION Q(A INT);
        MAP mw[](v BIGINT); MAP mr[A INT](v BIGINT);
        ON +P(A) { mr[A] += 1; } ON +L(A) { mr[A] += 1; } ON +Q(A) { mw[] += mr[A]; }""",
        options,
    )
    write = Fetch if "elide-put" in options else Put  # of what is not read for anybody a FETCH tells the node itself
    elided = 0
    if any(each.startswith("elide-push") for each in options):  # TS7 was sent what TS9 needs; or TS9, ahead, TS10, too
        elided = 11 if "look-ahead" in options else 9
    for stamp, table in ((2, "P"), (10, "P"), (6, "L"), (7, "Q"), (9, "Q"), (11, "Q")):
        four.tell(stamp, table, 1)
    four.take("P", 1, write, 2)
    four.take("P", 1, write, 10)
    for stamp in (7, 9, 11):
        four.take("Q", 1, Fetch, stamp)
        if "elide-put" not in options:
            four.take("Q", 0, Put, stamp)
        if "patience=20" in options:
            four.pass_time()
        if stamp != elided:
            four.take(1, 0, Push, stamp)
        four.pass_time()
    assert [four.before(0, "mw", stamp + 1) for stamp in (7, 9, 11)] == [1, 2, 4]
    four.take("L", 1, write, 6)
    assert four.waiting() == [(1, 0)]
    [(_, frame)] = four.take(1, 0, Correct).frames
    assert len(frame)
    assert four.waiting() == [], "one corrective update, and none follows"
    assert [four.before(0, "mw", stamp + 1) for stamp in (7, 9, 11)] == [2, 4, 7]


@pytest.mark.parametrize("changes", [False, True], ids=["as it is", "m3 changes between TS2 and TS3"])
def test_example_3_3(*, changes: bool) -> None:
    """The delta of TS1 is multiplied with {m3[1], TS2} and {m3[1], TS3} of the ReceiveLog, and added in both."""
    four = FourLogs("""RELATION S(A INT); RELATION T(A INT); RELATION U(A INT);
        MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (1: 2); MAP m3[A INT](v BIGINT) START (1: 3);
        ON +S(A) { m1[] += m2[A] * m3[A]; } ON +T(A) { m2[A] += 5; } ON +U(A) { m3[A] += 1; }""")
    four.tell(20, "S", 1)
    if changes:
        four.tell(25, "U", 1)
        four.take("U", 1, Put, 25)
    four.tell(30, "S", 1)
    for stamp in (20, 30):
        four.take("S", 1, Fetch, stamp)
        four.take("S", 0, Put, stamp)
        four.take(1, 0, Push, stamp)
    in_ts3 = 4 if changes else 3
    assert [four.before(0, "m1", stamp + 1) for stamp in (20, 30)] == [6, 6 + 2 * in_ts3]
    four.tell(10, "T", 1)
    four.take("T", 1, Put, 10)
    four.take(1, 0, Correct)
    assert [four.before(0, "m1", stamp + 1) for stamp in (20, 30)] == [
        6 + 5 * 3,
        6 + 2 * in_ts3 + 5 * 3 + 5 * in_ts3,
    ]


def test_example_3_1() -> None:
    """A Read-Write dependency: the FETCH of TS1 comes when TS2 has been written, and gets what was before."""
    four = FourLogs("""RELATION R(A INT); RELATION S(B INT); MAP m2[B INT](v BIGINT) START (1: 3), (3: 6);
        MAP m3[](v BIGINT); ON +R(A) { m3[] += m2[A]; } ON +S(B) { m2[B] += 1; }""")
    four.tell(1, "R", 1)
    four.tell(2, "S", 1)
    four.take("S", 1, Put, 2)
    assert four.newest(1, "m2") == {(1,): 4, (3,): 6}
    four.take("R", 0, Put, 1)
    four.take("R", 1, Fetch, 1)
    four.take(1, 0, Push, 1)
    assert four.newest(0, "m3") == {(): 3}
    assert four.waiting() == [], "nothing had to be corrected"


def test_nothing_overtakes_a_put_that_waits() -> None:
    """Section 3.2: "Until completing PUT message processing, no messages with higher TS is processed"."""
    four = FourLogs("""RELATION P(A INT); RELATION Q(A INT); MAP mw[](v BIGINT); MAP mr[A INT](v BIGINT) START (1: 1);
        MAP other[](v BIGINT); ON +P(A) { other[] += 1; } ON +Q(A) { mw[] += mr[A]; }""")
    four.tell(1, "Q", 1)
    four.tell(2, "P", 1)
    four.take("Q", 0, Put, 1)
    four.take("P", 0, Put, 2)
    assert four.newest(0, "other") == {}
    four.take("Q", 1, Fetch, 1)
    four.take(1, 0, Push, 1)
    assert (four.newest(0, "mw"), four.newest(0, "other")) == ({(): 1}, {(): 1})


SYMMETRIC = """RELATION S(A INT); RELATION T(B INT);
    MAP m1[](v BIGINT) START (: 5); MAP m2[B INT](v BIGINT) START (1: 100);
    ON +S(A) { m1[] += m2[A]; } ON +T(B) { m2[B] += m1[]; }"""
"""Example 3.2: m1 on node 0 is x, 5, and m2[1] on node 1 is y, 100."""
WITH_PUTS = ((), ("bypass",), ("compress",), ("elide-fetch",))


def two_updates(options: Sequence[str]) -> FourLogs:
    """Return two nodes, and the updates S(1) and T(1), in this order, on their way."""
    four = FourLogs(SYMMETRIC, options)
    four.tell(1, "S", 1)
    four.tell(2, "T", 1)
    return four


@pytest.mark.parametrize("options", WITH_PUTS)
def test_figure_6_a(options: tuple[str, ...]) -> None:
    """Both read before one of them writes: m1 is x + y; m2 is y + x, and then x + 2y by one corrective update."""
    four = two_updates(options)
    four.take("T", 0, Fetch, 2)
    four.take("S", 1, Fetch, 1)
    four.take("S", 0, Put, 1)
    four.take("T", 1, Put, 2)
    four.take(0, 1, Push, 2)
    assert four.newest(1, "m2") == {(1,): 100 + 5}, "m1 as it was last updated at TS0"
    four.take(1, 0, Push, 1)
    assert four.newest(0, "m1") == {(): 5 + 100}
    assert four.waiting() == [(0, 1)], (
        '"DW Node 1 will realize m1 is changed at TS1, but version from TS0 was previously sent"'
    )
    four.take(0, 1, Correct)
    assert four.newest(1, "m2") == {(1,): 5 + 2 * 100}
    assert (four.before(1, "m2", 2), four.newest(0, "m1")) == (100, {(): 105})
    assert four.waiting() == []


@pytest.mark.parametrize("options", WITH_PUTS)
def test_figure_6_b(options: tuple[str, ...]) -> None:
    """T(1) is done, then S(1), which is before it: the same maps, by one corrective update from the same node."""
    four = two_updates(options)
    four.take("T", 0, Fetch, 2)
    four.take("T", 1, Put, 2)
    four.take(0, 1, Push, 2)
    assert four.newest(1, "m2") == {(1,): 105}
    four.take("S", 1, Fetch, 1)
    four.take("S", 0, Put, 1)
    four.take(1, 0, Push, 1)
    assert four.newest(0, "m1") == {(): 105}, '"The most recent m2 with TS less than 1 is from TS0": 100, and not 105'
    four.take(0, 1, Correct)
    assert four.newest(1, "m2") == {(1,): 205}
    assert four.waiting() == []


@pytest.mark.parametrize("mode", [Mode.CENTRAL_TARGET, Mode.FOUR_LOGS])
def test_figure_4_has_what_the_paper_says_is_in_each_message(mode: Mode) -> None:
    """Of the first statement of example 2.1, for +R(10, 20): a FETCH of m2[10], a PUSH of it, and a PUT of m1."""
    program = m3.read("""RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (13: 3);
        MAP m3[B INT](v BIGINT) START (20: 7); ON +R(A, B) { m1[] += m2[A]; }""")
    world = CentralNodes(program, mode, 2, 0)
    assert [world.plan.layout.owner_of(name, key) for name, key in (("m1", ()), ("m2", (13,)))] == [0, 1]
    world.send(Block(0, "R", ((1, (13, 20)),)), version=7)
    assert world.sent == {"Fetch": 1, "Put": 1}, (
        '"there is exactly one PUT message … and one or more FETCH/PUSH messages"'
    )
    fetch, put = (world.deliver_on(-1, node) for node in (1, 0))
    push = world.deliver_on(1, 0)
    assert (fetch.version, put.version, push.version) == (7, 7, 7), '"TS of the OLAP update", in each of them'
    assert fetch.targets == [0], '"A reference to a DW Write Node"'
    (asked,) = fetch.asked
    assert (asked.target, from_ipc(asked.keys).to_pylist()) == (0, [{"k0": 13}]), "arguments relevant to it"
    assert world.plan.nodes_program.slices[asked.slice].map == "m2", "the statement is known by its number"
    group = world.plan.nodes_program.groups[put.block.group]
    assert (group.relation, put.block.table().column_names) == ("R", ["A", SIGN, OFFSET]), "Trigger ID, and arguments"
    assert put.block.table().column("A").to_pylist() == [13]
    assert put.pushes == 1, "how many DW Read Nodes it has to hear from"
    ((number, data),) = push.frames
    assert number == asked.slice
    assert len(data) > 0, '"A list of the right-hand side maps from the DW Read Node"'
    assert world.entries()["m1"] == {(): (3,)}
    world.send(Block(0, "R", ((1, (15, 20)),)), version=8)
    world.deliver_on(-1, 1)
    assert world.deliver_on(1, 0).frames == [], '"even non-existing maps must be initialized to zero and sent"'
