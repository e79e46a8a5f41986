"""Examples of the Cumulus consistency paper on a cluster, message by message, with the values that it tells.

Each message in golden/*.txt has below it what the paper says of it, quoted, or what is ours. Who delivers is the test,
in the paper's order. ``CUMULUS_GOLDEN=write pytest tests/cluster/papers`` writes the files anew.

The paper gives maps letters and no contents; those of START below are ours.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from cumulus import m3
from cumulus.cluster.planning.cluster_plan import plan_cluster
from support.told_deliveries import LOOK_MS, ToldDeliveries

GOLDEN = Path(__file__).parent / "golden"
EXAMPLE_2_1 = Path(__file__).parents[1] / "golden" / "example_2_1.txt"
ASSIGNED = (
    '§4.1: "Each event is sent to a coordinator, where it is assigned a version identifier consisting of the '
    'three-tuple"'
)
LOGGED = '§3: "A coordinator then appends the event to a persistent, local log". Ours: it tells when that is done.'
WANTED = "Ours: the publisher begins and commits epochs, and hears that there is something for the first one."
NOTIFIED = '§4.1: "When an event occurs, only these nodes are notified."'


def test_section_4_1_two_nodes():
    """Cumulus consistency paper, §4.1: m1 is first twice the old m2[A]; then the first event's m3[B] is added."""
    program = m3.read("""
        RELATION R(A INT, B INT);
        MAP m1[](v BIGINT);
        MAP m2[A INT](v BIGINT) START (2: 5);
        MAP m3[B INT](v BIGINT) START (1: 100);
        ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""")
    plan = plan_cluster(program, nodes=2)
    entries = (("m1", ()), ("m2", (2,)), ("m3", (1,)))
    places = {name: (plan.layout.text(name), plan.layout.owner_of(name, key)) for name, key in entries}
    assert places == {"m1": ("on node 0", 0), "m2": ("by A", 0), "m3": ("by B", 1)}
    world = ToldDeliveries(plan)
    world.note(
        'Cumulus consistency paper, §4.1. "Node 1 stores m2 and processes updates to m1, while Node 2 stores m3 and '
        'processes updates to m2." They are node0 and node1 here. m2[2] is 5 and m3[1] is 100.'
    )
    world.note('"two subsequent R events with identical A parameters are dispatched by the same coordinator"')
    world.event("E1", "R", 2, 1, stands_for=ASSIGNED)
    world.event("E2", "R", 2, 1, stands_for=ASSIGNED)
    world.deliver("switch0", "client", LOGGED)
    world.deliver("switch0", "client", LOGGED)
    world.deliver("switch0", "publisher", WANTED)

    world.note('"nearly simultaneously": node0 has both events before node1 has the first one.')
    world.deliver("switch0", "node0", f"{NOTIFIED} It reads m2, 5, and adds it to m1.")
    assert world.newest(0, "m1") == {(): 5}
    world.deliver(
        "switch0",
        "node0",
        '§4.1: "while node 1 is processing the second event, it does not have the value of m2 updated by the first '
        'event. The result is a value of m1 that is incorrect."',
    )
    c, m3_b = 5, 100
    assert world.newest(0, "m1") == {(): 10} == {(): 2 * c}
    assert world.waiting == [("switch0", "node1")], "m1 is where it is computed: nothing is sent"
    world.deliver("switch0", "node1", f"{NOTIFIED} It reads m3, 100, which is for m2.")
    world.deliver(
        "node1",
        "node0",
        '§4.1: "The resultant delta is sent immediately." And: "when the updated value of m2 is received, Node 1 can '
        'overwrite the corresponding version of m1." What E1 has read stays, what E2 has read was less by 100.',
    )
    assert world.newest(0, "m1") == {(): 110} == {(): 2 * c + m3_b}
    assert world.newest(0, "m2") == {2: 105}
    assert (world.as_of(0, "m1", "E1"), world.as_of(0, "m1", "E2")) == ({(): 5}, {(): 110})
    assert world.facts(0)["deltas_late"] == 1
    world.deliver("switch0", "node1", f"{NOTIFIED} It reads m3 again.")
    world.deliver("node1", "node0", '§4.1: "The resultant delta is sent immediately." Nothing behind E2 has read m2.')
    assert world.newest(0, "m1") == {(): 110}
    assert world.newest(0, "m2") == {2: 205}
    assert world.facts(0)["deltas_late"] == 1
    assert world.waiting == [], "if the system quiesces, maps will return to consistency"

    _collect_garbage(world)
    world.compare(GOLDEN / "section_4_1.txt")


def _collect_garbage(world: ToldDeliveries) -> None:
    """End the epoch as the Cumulus consistency paper, §4.3, does, and commit it."""
    facts = [world.facts(node) for node in range(len(world.nodes))]
    assert [(each["history_rows"], each["overlay_rows"]) for each in facts] == [(2, 4), (2, 0)]
    world.note(
        'Garbage collection, §4.3, "in two phases: coordinator synchronization, and node synchronization". Ours: a '
        "switch needs no answers to end an epoch, since links keep the order of what is sent, and it tells all nodes "
        "that may get rows of its tables, by the plan; so nobody broadcasts that an epoch is complete."
    )
    world.tick(LOOK_MS)
    world.deliver(
        "publisher",
        "switch0",
        '§4.1: "Coordinators maintain a loosely synchronized clock between themselves, and use it to define epoch '
        'boundaries." Ours: the publisher has it.',
    )
    for node in ("node0", "node1"):
        world.deliver(
            "switch0",
            node,
            '§4.3: "When garbage collecting, each coordinator sends a commit message to all nodes on the list."',
        )
    world.deliver("switch0", "publisher", "Ours: the switch has written what it has refused, which is nothing.")
    world.note(
        '"If the graph is a DAG, delta propagation may be bounded bottom-up". Ours: a mark for each depth of the '
        "graph, along its edges between nodes. m3 has depth 0, and is added to where it lies; m2 has 1, and R may be "
        "at home by B on one node and by A on the other; m1 has 2, and lies on node 0."
    )
    checkpoint = (
        '§4.3: "each node sends a map checkpoint message along all of its out edges once it has received an '
        'epoch complete message"'
    )
    upward = '§4.3: "and once it has received a map checkpoint from all of its in edges"'
    for source, target in (("node0", "node1"), ("node1", "node0")):
        world.deliver(source, target, checkpoint)
    world.deliver("node1", "node0", upward)
    assert world.waiting == [("node0", "publisher"), ("node1", "publisher")]
    for node in ("node0", "node1"):
        world.deliver(
            node,
            "publisher",
            '§4.3: "it responds, confirming that it has received, processed, and inserted '
            'into its history all prior events". Ours: when its deltas are in, too, and on the disk.',
        )
    snapshot = (
        '§4.3: "aggregating all deltas prior to a particular version creates a version of the map segment that '
        'is consistent with other map segments with the same version across the entire cluster"'
    )
    world.deliver("publisher", "switch0", "Ours: what the switch has logged for the epoch may go.")
    for node in ("node0", "node1"):
        world.deliver("publisher", node, snapshot)
    world.deliver("publisher", "supervisor", "Ours: whoever has started the cluster is told.")
    facts = [world.facts(node) for node in range(len(world.nodes))]
    assert [each["history_rows"] for each in facts] == [0, 0], "Cleanup: history without what is not later"
    assert world.newest(0, "m1") == world.as_of(0, "m1", "E2") == {(): 110}


class Shop(ToldDeliveries):
    """Example 2.1 on two nodes, beside a database that has the rows that have come."""

    def __init__(self, switches: int, tables: duckdb.DuckDBPyConnection) -> None:
        super().__init__(plan_cluster(m3.read(EXAMPLE_2_1.read_text().partition("\n---\n")[0]), 2, switches))
        self._tables = tables
        tables.execute("""
            CREATE OR REPLACE TABLE customers (cid INT, nation INT);
            CREATE OR REPLACE TABLE orders (cid INT, oid INT, discount DECIMAL(4,2));
            CREATE OR REPLACE TABLE lineitem (oid INT, price DECIMAL(15,2))""")

    def tell(self, label: str, table: str, *row: object, sign: int = 1) -> None:
        """Let the client send a row; nodes hear of it later."""
        self.event(label, table, *row, stands_for=ASSIGNED, sign=sign)
        switch = f"switch{self.plan.tables.switch_of[table]}"
        self.deliver(switch, "client", LOGGED)
        if (switch, "publisher") in self.waiting:
            self.deliver(switch, "publisher", WANTED)

    def arrive(self, change: str) -> None:
        """Bring what nodes have heard of to the database."""
        self._tables.execute(change)

    def q(self) -> dict[int, Decimal]:
        """Return q, which node 1 has of nation 7: what the database says of the rows that have come."""
        found = self.newest(1, "q")
        query = """SELECT c.nation, SUM(o.discount * l.price) FROM customers c, orders o, lineitem l
                   WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY c.nation"""
        assert found == dict(self._tables.execute(query).fetchall())
        return found


@pytest.fixture(scope="module")
def tables():
    with duckdb.connect() as connection:
        yield connection


def test_example_2_1_when_the_order_comes_first(tables):
    """Cumulus consistency paper, §4.2: "lower priority coordinators" have "unfulfilled dependencies"."""
    shop = Shop(3, tables)
    assert shop.plan.tables.switch_of == {"customers": 0, "lineitem": 1, "orders": 2}
    shop.note(
        "Cumulus consistency paper, example 2.1, by figure 5. Three coordinators, one for each table; "
        '"a total ordering over all version identifiers by sorting by epoch, coordinator, and then version" '
        "(§4.1): the "
        "customer, then its items, then its order. They come in another one. Ours: compute takes earlier "
        "versions only, "
        "where line 4 has V' <= V, and line 6 takes away what was sent before, where it has the delta that has come."
    )
    shop.tell("O1", "orders", 1, 10, "0.90")
    shop.tell("L1", "lineitem", 10, "100.00")
    shop.tell("L2", "lineitem", 10, "40.00")
    shop.tell("C1", "customers", 1, 7)
    shop.tell("L3", "lineitem", 10, "40.00", sign=-1)

    _order_and_items_arrive(shop)

    shop.note("The customer, before all others in the order of versions: m2[1] and m3[1, 10] are of O1, so not seen.")
    shop.deliver(
        "switch0",
        "node1",
        "Figure 5, ON Event: m5[CID, NATION] += 1, which lies here. ON Push, line 6: O1 reads m5, so q[7] += "
        "0.90 * 140 "
        "* 1 and m1[10, 7] += 0.90 * 1.",
    )
    shop.arrive("INSERT INTO customers VALUES (1, 7)")
    assert shop.q() == {7: Decimal("126.00")}
    shop.deliver(
        "node1",
        "node0",
        "Figure 5, ON Push, line 8: send_push, under the version of O1. The items are before it: nothing follows.",
    )
    assert shop.newest(0, "m1") == {(10, 7): Decimal("0.90")}

    shop.note('An item is deleted: "deletion triggers that are identical except for a multiplier of -1" (§2.1).')
    shop.deliver("switch1", "node0", "Figure 5, ON Event: m4[OID] += -PRICE.")
    shop.deliver("node0", "node1", "Figure 5, ON Push: O1 has given 0.90 * 40 too much, to q[7] and to m2[1].")
    shop.arrive("DELETE FROM lineitem WHERE price = 40")
    assert shop.q() == {7: Decimal("90.00")}
    assert shop.newest(1, "m2") == {1: Decimal("90.00")}
    assert [shop.as_of(1, "q", each) for each in ("C1", "L1", "L2", "L3")] == [{}] * 4
    assert shop.as_of(1, "q", "O1") == {7: Decimal("90.00")}, "all of it was added under the version of the order"
    shop.compare(GOLDEN / "example_2_1_order_first.txt")


def _order_and_items_arrive(shop: Shop) -> None:
    """Deliver an order, then its items; nobody knows the customer."""
    shop.note(
        "The order. m4 and m5 are empty: only m3 has a delta. It lies by customer and by order; m4 is on all nodes."
    )
    shop.deliver("switch2", "node1", "Figure 5, ON Event, line 3: compute; line 7: O1 goes to the history.")
    shop.arrive("INSERT INTO orders VALUES (1, 10, 0.90)")
    shop.deliver("node1", "node0", "Figure 5, ON Event, line 5: send_push of m3[CID, OID] += DISCOUNT.")
    assert shop.newest(0, "m3") == {(1, 10): Decimal("0.90")}
    assert shop.q() == {}

    shop.note('Its items. They do not see m3[1, 10]: computed is "excluding deltas tagged with later versions" (§4.1).')
    shop.deliver("switch1", "node0", "Figure 5, compute, line 4: m3 before L1 is 0. m4[OID] += PRICE.")
    assert shop.facts(0)["rows_late"] == 1
    shop.deliver(
        "node0",
        "node1",
        "Figure 5, ON Push, line 4: O1 is in the history behind L1, and reads m4. Line 6: m2[1] and q are "
        "computed anew, "
        "less what O1 has given: 0.90 * 100 for m2[1], which lies here, and nothing for q, as m5 is empty.",
    )
    shop.arrive("INSERT INTO lineitem VALUES (10, 100)")
    assert shop.newest(1, "m2") == {1: Decimal("90.00")}
    assert shop.q() == {}
    shop.deliver("switch1", "node0", "Figure 5, ON Event: m4[OID] += PRICE.")
    shop.deliver("node0", "node1", "Figure 5, ON Push: 0.90 * 40 more for m2[1].")
    shop.arrive("INSERT INTO lineitem VALUES (10, 40)")
    assert shop.newest(1, "m2") == {1: Decimal("126.00")}
    assert shop.q() == {}


def test_example_2_1_when_the_items_come_first(tables):
    """Cumulus consistency paper, §4.1: the order's deltas find both items in the history."""
    shop = Shop(2, tables)
    assert shop.plan.tables.switch_of == {"customers": 0, "orders": 0, "lineitem": 1}
    shop.note(
        "Cumulus consistency paper, example 2.1, by figure 5. Two coordinators: the one of line items comes behind the "
        "other in the order of versions, and before it in time."
    )
    shop.tell("L1", "lineitem", 10, "100.00")
    shop.tell("L2", "lineitem", 10, "40.00")
    shop.tell("C1", "customers", 1, 7)
    shop.tell("O1", "orders", 1, 10, "0.90")

    for amount, sum_ in (("100", "100.00"), ("40", "140.00")):
        shop.deliver("switch1", "node0", "Figure 5, ON Event: m1 and m3 are empty. m4[OID] += PRICE. Into the history.")
        shop.deliver("node0", "node1", "Figure 5, ON Event, line 5: send_push of m4.")
        shop.arrive(f"INSERT INTO lineitem VALUES (10, {amount})")
        assert shop.newest(1, "m4") == {10: Decimal(sum_)}
    shop.deliver("switch0", "node1", "Figure 5, ON Event: m5[CID, NATION] += 1, which lies here.")
    shop.arrive("INSERT INTO customers VALUES (1, 7)")
    assert shop.q() == {}
    shop.deliver(
        "switch0", "node1", "Figure 5, compute, line 4: m4[10] before O1 is 0, m5[1, 7] is 1. m1 and m3 have deltas."
    )
    assert shop.facts(1)["rows_late"] == 1
    shop.deliver(
        "node1",
        "node0",
        "Figure 5, ON Push, line 4: L1 and L2 are in the history behind O1. Line 6: q[7] += 0.90 * 100 and "
        "m2[1] as much, "
        "under the version of L1; 0.90 * 40 under that of L2.",
    )
    assert (shop.newest(0, "m1"), shop.newest(0, "m3")) == ({(10, 7): Decimal("0.90")}, {(1, 10): Decimal("0.90")})
    shop.deliver("node0", "node1", "Figure 5, ON Push, line 8: send_push of both maps, for both versions.")
    shop.arrive("INSERT INTO orders VALUES (1, 10, 0.90)")
    assert shop.q() == {7: Decimal("126.00")}
    assert shop.newest(1, "m2") == {1: Decimal("126.00")}
    assert [shop.as_of(1, "q", each) for each in ("C1", "O1")] == [{}, {}]
    assert [shop.as_of(1, "q", each)[7] for each in ("L1", "L2")] == [Decimal("90.00"), Decimal("126.00")]
    shop.compare(GOLDEN / "example_2_1_items_first.txt")
