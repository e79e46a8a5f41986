"""A table that several switches share: who takes and checks which rows of files and of clients."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cumulus.catalog.arrow import to_ipc
from cumulus.catalog.events import INSERT, OP_COLUMN, POSITION_COLUMN, TRUNCATE
from cumulus.cli.main import app
from cumulus.cluster.clients.client_sessions import ClientSessions, dealt_sessions
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.messages import ClientRows
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.table_shares import TableShare, shares_of_reading
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.order_of_events import require_order
from cumulus.cluster.planning.table_assignment import with_splits
from cumulus.compiler import compile_sql
from cumulus.epochs.formats.parsed_rows import Rejected
from cumulus.epochs.intake.packing import pack, unpack
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import LayoutError, RemoteProtocolError, UsageError
from cumulus.m3 import parse

SHOP = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation VARCHAR NOT NULL, boss INT REFERENCES customers);
CREATE TABLE orders (oid INT, part INT, cid INT REFERENCES customers, PRIMARY KEY (oid, part));
CREATE TABLE items (oid INT, part INT, price INT, FOREIGN KEY (oid, part) REFERENCES orders (oid, part))
  WITH (keep = all);
CREATE TABLE clicks (cid INT, page VARCHAR);
CREATE VIEW v AS SELECT nation, COUNT(*) AS n FROM customers JOIN orders USING (cid) GROUP BY nation;
CREATE VIEW c AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE VIEW i AS SELECT oid, SUM(price) AS s FROM items GROUP BY oid;
"""


def compiled(script: str):
    return compile_sql(script, rely=False, enforced=False)


def plan_of(*splits: str, switches: int = 2, mode: Mode = Mode.EVENTUAL):
    return plan_cluster(compiled(SHOP), 2, switches, mode, splits=splits)


# --- the plan -------------------------------------------------------------------------------------------------------


def test_tables_stay_together_unless_they_are_split() -> None:
    assert {plan_of().tables.switch_of[name] for name in ("customers", "orders", "items")} == {0}
    found = plan_of("orders.oid", "ITEMS.oid", "clicks.page", switches=3).tables
    assert found.switch_of == {"customers": 0}
    assert found.tables_of(1) == ("orders", "items", "clicks")
    assert found.switches_of("items") == (0, 1, 2)
    assert found.shares_of(2)["clicks"] == TableShare("page", 2, 3)


def test_a_reference_is_checked_where_both_tables_are_split_by_columns_that_it_compares() -> None:
    reference, up = "items(oid, part) references orders", "orders(cid) references customers"
    for splits in (("orders.oid", "items.oid"), ("orders.part", "items.part")):
        checks = plan_of(*splits).checks
        assert checks.checked[reference] == f"all 2 switches, each its rows by {splits[0].partition('.')[2]}"
        assert checks.unchecked[up].startswith(
            f"orders is split by {splits[0].partition('.')[2]}, customers is at switch "
        )
    for splits in (("orders.oid", "items.part"), ("orders.oid", "items.price"), ("orders.oid",), ("items.oid",)):
        assert reference in plan_of(*splits).checks.unchecked
    assert plan_of("items.oid").checks.checked[up] == "switch 0"


def test_a_table_that_refers_to_itself_loses_the_check_unless_both_columns_are_one() -> None:
    checks = plan_of("customers.cid").checks
    assert checks.unchecked["customers(boss) references customers"] == "customers is split by cid"
    assert checks.checked["primary key and deletions of customers"] == "all 2 switches, each its rows by cid"


def test_what_is_lost_is_not_checked_by_a_gate_either() -> None:
    plan = plan_of("orders.oid", mode=Mode.GATED)
    assert plan.gated == plan.judged
    kept = {each.name: [key.parent for key in each.foreign_keys] for each in plan.judged.relations}
    assert kept == {"customers": ["customers"], "orders": [], "items": [], "clicks": []}
    assert plan_of(mode=Mode.GATED).gated == compiled(SHOP)


@pytest.mark.parametrize(
    ("splits", "switches", "mode", "told"),
    [
        (("nothing.x",), 2, Mode.EVENTUAL, "there is no table 'nothing'"),
        (("orders",), 2, Mode.EVENTUAL, "it names no column of a table"),
        (("orders.x",), 2, Mode.EVENTUAL, "orders has no column 'x'"),
        (("orders.cid",), 2, Mode.EVENTUAL, "rows with one primary key (oid, part) could come to different switches"),
        (("orders.oid", "orders.part"), 2, Mode.EVENTUAL, "orders is split by oid and by part"),
        (("orders.oid",), 1, Mode.TICKS, "there is one switch"),
        (("orders.oid",), 1, Mode.CENTRAL_TARGET, "--mode central-target has one switch"),
        (("orders.oid",), 1, Mode.CENTRAL_SOURCE, "--mode central-source has one switch"),
    ],
)
def test_what_cannot_be_split_is_refused(splits: tuple[str, ...], switches: int, mode: Mode, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan_of(*splits, switches=switches, mode=mode)
    assert told in refused.value.message
    assert refused.value.hint


def test_maps_that_follow_the_order_of_events_refuse_it() -> None:
    program = parse("RELATION R(A INT); MAP m[](v BIGINT) START (: 7); ON +R(A) { m[].v += m[].v * A; }")
    require_order(plan_cluster(program, 2, 2))
    with pytest.raises(LayoutError, match="in no order among them"):
        require_order(plan_cluster(program, 2, 2, splits=("R.A",)))


def test_a_table_whose_rows_are_not_kept_may_be_split_by_any_column() -> None:
    script = "CREATE TABLE p (k INT PRIMARY KEY, a INT) WITH (keep = none); CREATE VIEW v AS SELECT SUM(a) AS s FROM p;"
    checks = plan_cluster(compiled(script), 2, 2, splits=("p.a",)).checks
    assert checks.unchecked == {
        "primary key and deletions of p": "its rows are not kept",
        "what comes again of p, by its key": "it is split by a",
    }


def test_the_plan_says_who_takes_and_checks_what(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(SHOP)
    words = ["cluster", "plan", str(tmp_path / "shop.sql"), "--nodes", "2", "--switches", "2", "--split", "orders.oid"]
    told = CliRunner().invoke(app, words).output
    assert "  switch 0  items, orders by oid\n  switch 1  customers, clicks, orders by oid\n" in told
    assert "  orders(cid) references customers    orders is split by oid, customers is at switch 1\n" in told
    tables = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["tables"]
    assert tables[:2] == [
        {"name": "customers", "switch": 1, "split_by": None},
        {"name": "orders", "switch": None, "split_by": "oid"},
    ]
    counted = CliRunner().invoke(app, [*words, "--messages"])
    assert counted.exit_code == 0, counted.output


def test_tables_are_split_otherwise_and_joined() -> None:
    assert with_splits((), ("a.x", "a.x"), ()) == ("a.x",)
    assert with_splits(("a.x", "b.y"), ("B.z",), ("A",)) == ("B.z",)
    with pytest.raises(UsageError, match="--join c: it is not split"):
        with_splits(("a.x",), (), ("c",))


# --- rows of files --------------------------------------------------------------------------------------------------

VALUES = {
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.none() | st.floats() | st.sampled_from([-0.0, 0.0, 1.0, float("nan")]),
    pa.string(): st.none() | st.text(max_size=3),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data(), of=st.integers(2, 5))
def test_each_row_of_a_file_is_of_one_switch(kind: pa.DataType, data: st.DataObject, of: int) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=12))
    ops = data.draw(st.lists(st.sampled_from([INSERT, TRUNCATE]), min_size=len(values), max_size=len(values)))
    rows = pa.table({"a": pa.array(values, kind), OP_COLUMN: pa.array(ops, pa.int8())})
    rows = rows.append_column(POSITION_COLUMN, pa.array(range(1, len(values) + 1), pa.int64()))
    reading = Reading("r", rows, "r/1", (Rejected("bad", "r", "r/1", 9, "x"),), {"tombstones": 2})
    shares = [shares_of_reading(reading, TableShare("a", number, of)) for number in range(of)]
    assert [(len(gate.rejected), dict(gate.ignored)) for gate, _ in shares] == [(1, {"tombstones": 2})] + [(0, {})] * (
        of - 1
    )
    passed = pa.concat_tables([gate.rows for gate, _ in shares])
    assert sorted(passed[POSITION_COLUMN].to_pylist()) == list(range(1, len(values) + 1))
    for gate, intake in shares:
        at = set(gate.rows[POSITION_COLUMN].to_pylist())
        mine = intake.rows[POSITION_COLUMN].to_pylist()
        assert mine == sorted(at | {place for place, op in enumerate(ops, 1) if op == TRUNCATE})
        assert intake.uncounted == len(mine) - len(at)
    payloads = unpack(
        [b"".join(part) for part in zip(*(pack([gate], BucketPlan()) for gate, _ in shares), strict=True)]
    )
    with_rows = [each for each in payloads if each.rows.num_rows]
    assert [place for each in with_rows for place in each.rows[POSITION_COLUMN].to_pylist()] == (
        list(range(1, len(values) + 1))
    ), "a gate has the rows of a file in their order"
    assert sum(each.count for each in payloads) == len(values)


# --- what clients send ----------------------------------------------------------------------------------------------

SALES = compiled(
    "CREATE TABLE sales (p INT NOT NULL, amount INT); CREATE VIEW v AS SELECT SUM(amount) AS s FROM sales;"
)
ROWS = rows_to_send(SALES.relation("sales"), INSERT, [(p, 10 * p) for p in range(12)])


def sessions_of(share: TableShare | None) -> ClientSessions:
    shares = {} if share is None else {"sales": share}
    return ClientSessions(SALES, frozenset(("sales",)), None, is_spread=True, shares=shares)


def message(number: int, share: TableShare | None, rows: pa.Table = ROWS, writer: str = "") -> ClientRows:
    mine = rows if share is None else rows.filter(share.has(rows))
    return ClientRows(number, "sales", to_ipc(mine), writer=writer, writing=number if writer else 0)


class Switches:
    """The sessions of switches that share a table, or of one, from layout to layout."""

    def __init__(self, column: str, of: int, before: Switches | None = None) -> None:
        self.shares = [None] if of == 1 else [TableShare(column, number, of) for number in range(of)]
        self.sessions = [sessions_of(share) for share in self.shares]
        if before is not None:
            saved = dealt_sessions(each.save() for each in before.sessions)
            for each in self.sessions:
                each.load(saved, 0)

    def take(self, number: int, at: int, epoch: int, writer: str = "") -> list[int]:
        """Take rows at one switch; return the persons of those that are new."""
        sent, sessions = message(number, self.shares[at], writer=writer), self.sessions[at]
        if sessions.epoch_of("client", sent) is not None:
            return []
        found: list[int] = sessions.reading("client", sent, 1, 0).rows["p"].to_pylist()
        assert found, "what is in is told before it is read"
        sessions.note(*sessions.sender_of("client", sent), epoch)
        return found


@pytest.mark.parametrize("writer", ["", "sales/loader", "sales/with\x1fsep 0/2\nlines"])
@given(data=st.data())
def test_rows_count_once_however_the_table_is_split_meanwhile(writer: str, data: st.DataObject) -> None:
    """A client sends what has no answer again, to whatever switches there are: some have it, and some never got it."""
    taken: list[int] = []
    switches: Switches | None = None
    for epoch in range(1, data.draw(st.integers(1, 6)) + 1):
        column, of = data.draw(st.sampled_from([("p", 1), ("p", 2), ("p", 3), ("amount", 2), ("amount", 3)]))
        switches = Switches(column, of, switches)
        reached = data.draw(st.lists(st.integers(0, of - 1), max_size=4))
        for at in reached:
            taken += switches.take(1, at, epoch, writer)
    for at in range(len(switches.shares)) if switches is not None else ():
        taken += switches.take(1, at, 9, writer)
    assert sorted(taken) == list(range(12))
    assert switches is not None
    last = [each for at in range(len(switches.shares)) for each in switches.take(2, at, 10, writer)]
    assert sorted(last) == list(range(12)), "the next call is new everywhere"


def test_numbers_that_all_shares_have_reached_are_those_of_the_table() -> None:
    switches = Switches("p", 2)
    assert switches.take(4, 0, 1)
    assert switches.take(3, 1, 2)
    joined = dealt_sessions(each.save() for each in switches.sessions)
    assert joined == {"client\nsales": (3, 2), "client\nsales\x1fp 0/2": (4, 1)}
    one = Switches("p", 1, switches)
    assert one.sessions[0].save() == joined
    assert one.sessions[0].epoch_of("client", message(3, None)) == 2
    assert one.take(5, 0, 3)
    assert list(dealt_sessions([one.sessions[0].save()])) == ["client\nsales"], "older shares are forgotten"


def test_a_row_of_another_switch_is_refused() -> None:
    share = TableShare("p", 0, 2)
    sessions = sessions_of(share)
    with pytest.raises(RemoteProtocolError, match="not of this switch, since it is split by p") as refused:
        sessions.reading("client", message(1, None), 1, 0)
    assert "which rows go where" in (refused.value.hint or "")
    assert sessions.reading("client", message(1, share), 1, 0).rows.num_rows
