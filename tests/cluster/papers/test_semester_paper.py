"""Examples of the Cumulus semester paper in the eventual mode, message by message, with the values that it tells.

Each message in golden/*.txt has below it what the paper says of it, quoted, or what is ours. Who delivers is the test,
in the paper's order. ``CUMULUS_GOLDEN=write pytest tests/cluster/papers`` writes the files anew.

The paper fetches what a statement reads and computes where the result lies; the eventual mode has what is read where it
computes and sends the result. Its FETCH and PUT are one message here, EVENTS, and its PUSH and corrective update are
another, PUSH. The paper gives maps no contents; those of START below are ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus import m3
from cumulus.cluster.planning.cluster_plan import plan_cluster
from support.told_deliveries import ToldDeliveries

GOLDEN = Path(__file__).parent / "golden"
STAMPED = '§3.1: "Timestamp (TS) is a implicitly defined unique serial number of a OLAP update in that update stream."'
LOGGED = '§2: "our system is also able to log update streams". Ours: it tells when that is done.'
WANTED = "Ours: the publisher begins and commits epochs, and hears that there is something for the first one."
PUT = '§3.2: "A switch will send a PUT message to the DW Write Node"'
R_OF_A_AND_B = "RELATION R(A INT, B INT); MAP m1[](v BIGINT); {maps} ON +R(A, B) {{ m1[] += m2[A]; m2[A] += m3[B]; }}"


def started(text: str, nodes: int, note: str) -> ToldDeliveries:
    """Return a cluster with a program, and a note at the head of its text."""
    world = ToldDeliveries(plan_cluster(m3.read(text), nodes))
    world.note(note)
    return world


def tell(world: ToldDeliveries, label: str, table: str, *row: int) -> None:
    """Let the client send a row; nodes hear of it later."""
    world.event(label, table, *row, stands_for=STAMPED)
    world.deliver("switch0", "client", LOGGED)
    if ("switch0", "publisher") in world.waiting:
        world.deliver("switch0", "publisher", WANTED)


def test_example_2_1():
    """Both statements read the state before the update, even where what one writes comes before the other runs."""
    maps = "MAP m2[A INT](v BIGINT) START (10: 3); MAP m3[B INT](v BIGINT) START (20: 7);"
    world = started(
        R_OF_A_AND_B.format(maps=maps),
        3,
        "Cumulus semester paper, example 2.1: ON +R(10,20) { m1+=m2[10]; m2[10]+=m3[20]; }. m2[10] is 3, on node1; "
        "m3[20] is 7, on node0, where m1 is, too.",
    )
    tell(world, "TS1", "R", 10, 20)
    world.note("The second statement first.")
    world.deliver("switch0", "node0", f'{PUT} with "Trigger arguments relevant to the DW Write Node". It reads m3[20].')
    world.deliver(
        "node0",
        "node1",
        'Ours: the result for m2[10] is sent. The paper: "A DW Read Node sends a PUSH '
        'message to the DW Write Node" with m3[20] (§3.2).',
    )
    assert world.newest(1, "m2") == {10: 10}
    world.deliver(
        "switch0",
        "node1",
        '§2: "Statements within same OLAP update use right-hand side maps from the state of '
        'the system right before current OLAP update start executing." So it reads 3, not 10.',
    )
    world.deliver("node1", "node0", "Ours: the result for m1 is sent, and not m2[10].")
    assert world.newest(0, "m1") == {(): 3}
    assert world.facts(1)["rows_late"] == 1
    world.compare(GOLDEN / "semester_example_2_1.txt")


FIGURE_1 = R_OF_A_AND_B.format(
    maps="MAP m2[A INT](v BIGINT) START (1: 2); MAP m3[B INT](v BIGINT) START (4: 10), (5: 20);"
)


@pytest.mark.parametrize("is_violated", [False, True], ids=["kept", "violated"])
def test_figure_1(is_violated):
    """A Write-Read dependency on m2[1]: m1 is 2, then 14; if the dependency is violated, 4 first."""
    case = "violated" if is_violated else "kept"
    world = started(
        FIGURE_1,
        2,
        "Cumulus semester paper, figure 1: a Write-Read dependency on m2[1] between the second statement of "
        "TS1 and the "
        f"first one of TS2. Here it is {case}. m2[1] is 2, on node1; m3[4] is 10 and m3[5] is 20, on node0, "
        f"where m1 is, "
        "too.",
    )
    tell(world, "TS1", "R", 1, 4)
    tell(world, "TS2", "R", 1, 5)

    def read_m2(value: int) -> None:
        world.deliver("switch0", "node1", f"{PUT}: m1 += m2[1], which is {value} there.")

    def add_to_m1(added: int, becomes: int) -> None:
        world.deliver("node1", "node0", f"Ours: the result for m1, {added}, is sent.")
        assert world.newest(0, "m1") == {(): becomes}

    def write_m2(read: str, stands_for: str, becomes: int) -> None:
        world.deliver("switch0", "node0", f"{PUT}: m2[1] += {read}.")
        world.deliver("node0", "node1", stands_for)
        assert world.newest(1, "m2") == {1: becomes}

    read_m2(2)
    add_to_m1(2, 2)
    if is_violated:
        read_m2(2)
        add_to_m1(2, 4)
        write_m2(
            "m3[4]",
            '§3.3: "when the PUT message with TSz arrives, the DW Read Node has to send the delta applied to mr '
            "in TSz. "
            'The message containing the delta is denoted as the corrective update message." Here it is any PUSH that '
            "comes late.",
            12,
        )
        world.deliver(
            "node1",
            "node0",
            '§3.3: "Corrective updates could be recursive": the difference of what TS2 has given, under the version of '
            "TS2.",
        )
        assert world.newest(0, "m1") == {(): 14}
    else:
        write_m2("m3[4]", "Ours: the result for m2[1] is sent; it is here before TS2 reads it.", 12)
        read_m2(12)
        add_to_m1(12, 14)
    write_m2("m3[5]", "Ours: the result for m2[1] is sent. Nothing behind TS2 has read it.", 32)
    assert world.newest(0, "m1") == {(): 14}
    assert (world.as_of(0, "m1", "TS1"), world.as_of(0, "m1", "TS2")) == ({(): 2}, {(): 14})
    assert world.facts(1)["deltas_late"] == is_violated
    world.compare(GOLDEN / f"semester_figure_1_{case}.txt")


def test_example_3_1():
    """A Read-Write dependency: R(1) reads m2[2] as it was before S(2), which has been processed."""
    world = started(
        """RELATION R(A INT); RELATION S(B INT);
        MAP m1[A INT](v BIGINT) START (1: 7); MAP m2[B INT](v BIGINT) START (2: 3), (4: 6); MAP m3[C INT](v BIGINT);
        ON +R(A) { m3[C] += m1[A] * m2[C]; } ON +S(B) { m2[B] += 1; }""",
        2,
        "Cumulus semester paper, example 3.1. m1[1] is 7, m2[2] is 3 and m2[4] is 6. R(1) is computed on "
        "node1, where m1[1] "
        'is; m2 is on all nodes, since C is not bound: "loop over whole m3 domain is implied". m3[2] and m3[4] are on '
        "node0.",
    )
    assert world.plan.layout.text("m2") == "by B; on every node"
    tell(world, "TS1", "R", 1)
    tell(world, "TS2", "S", 2)
    world.note('"the OLAP update from TS2 may complete before the OLAP update from TS1 read m2[2] value"')
    world.deliver("switch0", "node0", f"{PUT}: m2[2] += 1.")
    assert world.newest(0, "m2") == {2: 4, 4: 6}
    world.deliver("node0", "node1", "Ours: the result for m2[2] is sent to the nodes that have m2.")
    assert world.newest(1, "m2") == {2: 4, 4: 6}
    world.deliver(
        "switch0",
        "node1",
        '§3.3: "violating Read-Write dependencies is avoided by reading the most recent version of the map '
        'prior to the Read TS": '
        "m2[2] is 3 before TS1. 7 * 3 is for m3[2], 7 * 6 for m3[4].",
    )
    world.deliver("node1", "node0", "Ours: the results for m3 are sent.")
    assert world.newest(0, "m3") == {2: 21, 4: 42}
    assert world.as_of(1, "m2", "TS1") == {2: 3, 4: 6}
    facts = [world.facts(node) for node in range(2)]
    assert [(each["rows_late"], each["deltas_late"]) for each in facts] == [(0, 0), (1, 0)], (
        "nothing had to be corrected"
    )
    world.compare(GOLDEN / "semester_example_3_1.txt")


@pytest.mark.parametrize("changes", [False, True], ids=["as_it_is", "m3_changes"])
def test_example_3_3(changes):
    """A delta of TS1 comes when TS2 and TS3 have been computed; m1[1] becomes right in both."""
    text = """RELATION S(A INT); RELATION T(A INT, B INT); RELATION U(A INT, X INT);
        MAP m1[A INT](v BIGINT); MAP m2[A INT](v BIGINT) START (1: 2);
        MAP m3[A INT](v BIGINT) START (1: 3); MAP m4[B INT](v BIGINT) START (2: 5);
        ON +S(A) { m1[A] += m2[A] * m3[A]; } ON +T(A, B) { m2[A] += m4[B]; } ON +U(A, X) { m3[A] += X; }"""
    world = started(
        text,
        2,
        "Cumulus semester paper, example 3.3. m2[1] is 2 and m3[1] is 3, on node1 with m1[1]. What TS1 is "
        "the paper leaves "
        "open; here it adds m4[2], 5, to m2[1], and is computed on node0."
        + (" Ours: between TS2 and TS3 m3[1] becomes 4." if changes else ""),
    )
    tell(world, "TS1", "T", 1, 2)
    tell(world, "TS2", "S", 1)
    if changes:
        tell(world, "TS2+", "U", 1, 1)
    tell(world, "TS3", "S", 1)
    world.note('"as seen by DW Node containing m1[1] map: TS2: S(1) TS3: S(1) TS1: CorrectiveMessage(m2[1])"')
    world.deliver("switch0", "node1", f"{PUT}: m1[1] += 2 * 3.")
    assert world.newest(1, "m1") == {1: 6}
    m3_in_ts3 = 3
    if changes:
        world.deliver("switch0", "node1", "Ours: m3[1] += 1.")
        m3_in_ts3 = 4
    world.deliver("switch0", "node1", f"{PUT}: m1[1] += 2 * {m3_in_ts3}.")
    assert world.newest(1, "m1") == {1: 14 if changes else 12}
    world.deliver("switch0", "node0", f"{PUT}: m2[1] += m4[2].")
    world.deliver(
        "node0",
        "node1",
        '§3.3: "The delta is extracted from the corrective update message." "The result of multiplication of '
        "the delta and "
        "the pair {m3[1], TS2} from the ReceiveLog is added to m1[1] in TS2, and TS3 as well due to implicit "
        "Write-Read "
        f'dependency on m1[1]": 5 * 3. Then "the pair {{m3[1], TS3}}": 5 * {m3_in_ts3}, "added to m1[1] in TS3".',
    )
    assert world.as_of(1, "m1", "TS1") == {}
    assert world.as_of(1, "m1", "TS2") == {1: 21} == {1: 6 + 5 * 3}
    assert world.as_of(1, "m1", "TS3") == world.newest(1, "m1") == {1: 49 if changes else 42}
    assert world.newest(1, "m2") == {1: 7}
    assert world.facts(1)["deltas_late"] == 1
    world.compare(GOLDEN / f"semester_example_3_3{'_m3_changes' if changes else ''}.txt")


def test_a_node_short_of_memory_asks_for_the_end_of_the_epoch():
    """Cumulus semester paper, section 3.4, EPOCH END REQUEST. It asks once, whatever comes of the same epoch."""
    maps = "MAP m2[A INT](v BIGINT) START (1: 3), (2: 4); MAP m3[B INT](v BIGINT) START (1: 7);"
    world = ToldDeliveries(plan_cluster(m3.read(R_OF_A_AND_B.format(maps=maps)), 1), most_open_rows=5)
    asked = []
    for label, row in (("TS1", (1, 1)), ("TS2", (2, 1)), ("TS3", (1, 1)), ("TS4", (2, 1))):
        tell(world, label, "R", *row)
        world.deliver("switch0", "node0", PUT)
        asked.append(("node0", "publisher") in world.waiting)
    assert asked == [False, True, True, True]
    world.deliver("node0", "publisher", "Ours: it ends the epoch at once, and does not wait for its time.")
    assert ("node0", "publisher") not in world.waiting, "it has asked once"
    while world.waiting:
        world.deliver(*world.waiting[0], "Ours.")
    assert world.facts(0)["overlay_rows"] == 0, "the epoch is committed"


def test_figure_5():
    """One correction, of TS6, is for all that has read mr behind it: mw is 1, 2, 4, and then 2, 4, 7."""
    world = started(
        """RELATION P(A INT); RELATION L(A INT, B INT); RELATION Q(A INT);
        MAP mw[](v BIGINT); MAP mr[A INT](v BIGINT); MAP one[B INT](v BIGINT) START (2: 1);
        ON +P(A) { mr[A] += 1; } ON +L(A, B) { mr[A] += one[B]; } ON +Q(A) { mw[] += mr[A]; }""",
        2,
        "Cumulus semester paper, figure 5. node1 has mr and is the DW Read Node, node0 has mw and is the DW Write "
        "Node. Ours: what TS6 adds is computed on node0, so that it comes late although a link keeps its order; TS10 "
        "does not come before TS7 for the same reason.",
    )
    for label, table, row in (
        ("TS2", "P", (1,)),
        ("TS6", "L", (1, 2)),
        ("TS7", "Q", (1,)),
        ("TS9", "Q", (1,)),
        ("TS10", "P", (1,)),
        ("TS11", "Q", (1,)),
    ):
        tell(world, label, table, *row)
    world.deliver("switch0", "node1", "PUT(TS2): mr += 1.")
    world.deliver("switch0", "node1", 'FETCH(TS7): "the most recent mr with TS less than 7 is sent", that of TS2.')
    world.deliver("switch0", "node1", 'FETCH(TS9): "The same value will be sent".')
    world.deliver("switch0", "node1", "PUT(TS10): mr += 1.")
    world.deliver("switch0", "node1", 'FETCH(TS11): "mr value from TS10 will be sent".')
    assert world.as_of(1, "mr", "TS9") == {1: 1}
    assert world.newest(1, "mr") == {1: 2}
    for label in ("TS7", "TS9", "TS11"):
        world.deliver("node1", "node0", f"PUT({label}): mw += mr.")
    assert [world.as_of(0, "mw", label)[()] for label in ("TS7", "TS9", "TS11")] == [1, 2, 4]
    world.note("PUT(TS6).")
    world.deliver("switch0", "node0", "Ours: 1 is for mr.")
    world.deliver(
        "node0",
        "node1",
        'PUT(TS6) "may arrive later". "Corrective update will be sent to all DW Nodes which demanded mr with TS '
        'greater than 6".',
    )
    world.deliver("node1", "node0", "One message, with the delta for TS7, TS9 and TS11.")
    assert [world.as_of(0, "mw", label)[()] for label in ("TS7", "TS9", "TS11")] == [2, 4, 7]
    assert world.facts(1)["deltas_late"] == 1
    world.compare(GOLDEN / "semester_figure_5.txt")


SYMMETRIC = """RELATION S(A INT, B INT); RELATION T(A INT, B INT); MAP m1[A INT](v BIGINT) START (2: 5);
    MAP m2[B INT](v BIGINT) START (1: 100); ON +S(A, B) { m1[A] += m2[B]; } ON +T(A, B) { m2[B] += m1[A]; }"""


def symmetric(case: str, says: str) -> ToldDeliveries:
    """Return a cluster with the program of example 3.2, and its two updates on their way."""
    world = started(
        SYMMETRIC,
        2,
        f"Cumulus semester paper, example 3.2 and figure 6({case}): S(1), T(1). m1 is x, 5, on node0, and m2 is y, "
        "100, on node1. Ours: an event has the key of both maps, 2 and 1, since equal keys lie on one node. S is "
        "computed on node1, where m2 is, and T on node0.",
    )
    tell(world, "TS1", "S", 2, 1)
    tell(world, "TS2", "T", 2, 1)
    world.note(says)
    return world


def corrected_in_the_end(world: ToldDeliveries) -> None:
    """Deliver the corrective update of the figure; then m1 is x + y and m2 is x + 2y."""
    assert world.waiting == [("node0", "node1")]
    world.deliver(
        "node0",
        "node1",
        '§3.3: "Corrective updates are always sent from DW Node which contains maps that should be written earlier in '
        'introduced Total Order." T has read m1, which was less by y.',
    )
    x, y = 5, 100
    assert world.newest(0, "m1") == {2: 105} == {2: x + y}
    assert world.newest(1, "m2") == {1: 205} == {1: x + 2 * y}
    assert [world.facts(node)["deltas_late"] for node in range(2)] == [1, 0], "one corrective update"


def test_figure_6_a():
    """Atomicity: both updates read before one of them has written."""
    world = symmetric(
        "a", '"OLAP updates which should go one after another are actually executed at approximately same time."'
    )
    world.deliver("switch0", "node1", f"{PUT}: m1 += m2, which is y.")
    world.deliver("switch0", "node0", f'{PUT}: m2 += m1, "last updated at TS0", which is x.')
    world.deliver("node0", "node1", "Ours: the result for m2 is sent. S is before it, so nothing follows.")
    assert world.newest(1, "m2") == {1: 105}
    world.deliver(
        "node1", "node0", '§3.3: "DW Node 1 will realize m1 is changed at TS1, but version from TS0 was sent"'
    )
    corrected_in_the_end(world)
    world.compare(GOLDEN / "semester_figure_6_a.txt")


def test_figure_6_b():
    """Order: T(1) is done before S(1), which comes before it."""
    world = symmetric("b", '"Actual OLAP update execution order is T(1), S(1)."')
    world.deliver("switch0", "node0", f'{PUT}: m2 += m1. "The most recent m1 is from TS0."')
    world.deliver("node0", "node1", "Ours: the result for m2 is sent.")
    assert world.newest(1, "m2") == {1: 105}
    world.deliver("switch0", "node1", f'{PUT}: m1 += m2. "The most recent m2 with TS less than 1 is from TS0": y.')
    assert world.as_of(1, "m2", "TS1") == {1: 100}
    world.deliver("node1", "node0", '§3.3: "DW Node 1 realizes it has to send corrective update to DW Node 2"')
    corrected_in_the_end(world)
    world.compare(GOLDEN / "semester_figure_6_b.txt")
