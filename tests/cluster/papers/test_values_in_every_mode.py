"""The papers' examples with their values, in every mode that takes them: whatever the order in which messages come.

Values that a paper leaves open are ours, those of START; letters of the paper are numbers here. `ticks` and `gated`
have an order of their own, so they refuse maps without definitions, and take the examples that are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cumulus import m3
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions, central_options
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.order_of_events import require_order
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from support.cluster_world import run_cluster
from support.orders_stream import json_lines
from support.spread_cases import Block
from support.tiers import examples
from support.told_in_order import CentralNodes


@dataclass(frozen=True)
class Way:
    """A mode, and what it may do otherwise."""

    mode: Mode
    options: tuple[str, ...] = ()
    central: CentralOptions = DEFAULT_CENTRAL

    @property
    def is_plain(self) -> bool:
        """Whether it is the mode without options."""
        return not self.options

    def __str__(self) -> str:
        has_tree = ("directives",) if self.central.has_tree else ()
        return " ".join((self.mode, *self.options, *has_tree))


WAYS = (
    *(Way(Mode.EVENTUAL, options) for options in ((), ("buffer=20",), ("patience=20",))),
    Way(Mode.CENTRAL_SOURCE),
    Way(Mode.CENTRAL_TARGET),
    Way(Mode.CENTRAL_TARGET, central=central_options("directives", gc="poll=1")),
    *(
        Way(Mode.FOUR_LOGS, options)
        for options in ((), ("bypass",), ("elide-put", "elide-fetch"), ("elide-push=correct",), ("elide-push=wait:20",))
    ),
)

Event = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Example:
    """A program, events in their order of versions, and what maps have then; `is_cyclic` if they feed each other."""

    text: str
    events: Sequence[Event]
    values: dict[str, dict[tuple[Any, ...], Any]]
    is_cyclic: bool = False


CUSTOMERS = """RELATION Customer(cid INT); RELATION Orders(oid INT, cid INT); RELATION LineItem(oid INT);
    MAP q[cid INT](n BIGINT); MAP qO1[cid INT](n BIGINT); MAP qL[cid INT, oid INT](n BIGINT);
    ON +Customer(cid) { qO1[cid] += 1; } ON +Orders(oid, cid) { qL[cid, oid] += qO1[cid]; }
    ON +LineItem(oid) { q[cid] += qL[cid, oid]; }"""
SUPPLIERS = """RELATION Customer(cid INT, nation INT); RELATION Supplier(sid INT, nation INT);
    MAP q[sid INT](n BIGINT); MAP qS[nation INT](n BIGINT); MAP qC[sid INT, nation INT](n BIGINT);
    ON +Customer(cid, nation) { q[sid] += qC[sid, nation]; qS[nation] += 1; }
    ON +Supplier(sid, nation) { q[sid] += qS[nation]; qC[sid, nation] += 1; }"""
STAR = """RELATION Date(datekey INT, year INT); RELATION Part(partkey INT, partcat INT);
    RELATION LineOrder(datekey INT, partkey INT, revenue INT); MAP m[partcat INT, year INT](v BIGINT);
    MAP mDL[partkey INT, partcat INT](n BIGINT); MAP mPL[datekey INT, year INT](n BIGINT);
    ON +Date(datekey, year) { mPL[datekey, year] += 1; } ON +Part(partkey, partcat) { mDL[partkey, partcat] += 1; }
    ON +LineOrder(datekey, partkey, revenue) {
      m[partcat, year] += revenue * mDL[partkey, partcat] * mPL[datekey, year]; }"""
SOURCES = "RELATION R(A INT); RELATION S(B INT, X INT); RELATION T(C INT, X INT);"

EXAMPLES = {
    "architecture, an item counts for its customer": Example(
        """RELATION lineitems(oid INT); RELATION joined(cid INT, oid INT);
        MAP m1[cid INT](n BIGINT); MAP m5[cid INT, oid INT](n BIGINT);
        ON +lineitems(oid) { m1[cid] += m5[cid, oid]; } ON +joined(cid, oid) { m5[cid, oid] += 1; }""",
        [
            ("joined", (1, 10)),
            ("lineitems", (10,)),
            ("joined", (1, 11)),
            ("joined", (2, 12)),
            *(("lineitems", (oid,)) for oid in (12, 12, 99, 11)),
        ],
        {"m1": {(1,): 2, (2,): 2}},
    ),
    "introduction, example 1": Example(
        CUSTOMERS,
        [
            *(("Customer", (1,)), ("Customer", (2,)), ("Orders", (10, 1)), ("Orders", (20, 2)), ("Orders", (30, 9))),
            *(("LineItem", (oid,)) for oid in (10, 10, 20, 30)),
        ],
        {"q": {(1,): 2, (2,): 1}, "qO1": {(1,): 1, (2,): 1}, "qL": {(1, 10): 1, (2, 20): 1}},
    ),
    "introduction, example 2": Example(
        SUPPLIERS,
        [("Customer", (1, 7)), ("Supplier", (5, 7)), ("Customer", (2, 7)), ("Customer", (3, 8)), ("Supplier", (6, 8))],
        {"q": {(5,): 2, (6,): 1}, "qS": {(7,): 2, (8,): 1}, "qC": {(5, 7): 1, (6, 8): 1}},
    ),
    "introduction, example 3": Example(
        STAR,
        [
            *(("Date", (7, 1996)), ("Date", (8, 1998)), ("Part", (4, 1)), ("Part", (5, 2))),
            *(("LineOrder", row) for row in ((7, 4, 100), (8, 5, 30), (7, 5, 1), (9, 4, 1000), (7, 9, 1000))),
        ],
        {"m": {(1, 1996): 100, (2, 1998): 30, (2, 1996): 1}},
    ),
    "consistency paper, the slice m2[A, B]": Example(
        """RELATION R(A INT); RELATION S(A INT, B INT, X INT); MAP m1[B INT](v BIGINT);
        MAP m2[A INT, B INT](v BIGINT); ON +R(A) { m1[B] += m2[A, B]; } ON +S(A, B, X) { m2[A, B] += X; }""",
        [("S", (4, 1, 10)), ("S", (4, 2, 20)), ("S", (5, 1, 99)), ("R", (4,))],
        {"m1": {(1,): 10, (2,): 20}},
    ),
    "consistency paper, figure 3a": Example(
        f"""{SOURCES} MAP m1[A INT, B INT](v BIGINT); MAP m2[B INT](v BIGINT);
        ON +R(A) {{ m1[A, B] += m2[B]; }} ON +S(B, X) {{ m2[B] += X; }}""",
        [("S", (1, 5)), ("S", (2, 6)), ("R", (7,)), ("S", (3, 9)), ("R", (8,))],
        {"m1": {(7, 1): 5, (7, 2): 6, (8, 1): 5, (8, 2): 6, (8, 3): 9}, "m2": {(1,): 5, (2,): 6, (3,): 9}},
    ),
    "consistency paper, figure 3b": Example(
        f"""{SOURCES} MAP m1[A INT, B INT, C INT](v BIGINT); MAP m2[B INT](v BIGINT); MAP m3[C INT](v BIGINT);
        ON +R(A) {{ m1[A, B, C] += m2[B] * m3[C]; }} ON +S(B, X) {{ m2[B] += X; }} ON +T(C, X) {{ m3[C] += X; }}""",
        [("S", (1, 2)), ("S", (2, 3)), ("T", (1, 10)), ("T", (2, 20)), ("R", (7,)), ("T", (3, 30))],
        {"m1": {(7, 1, 1): 20, (7, 1, 2): 40, (7, 2, 1): 30, (7, 2, 2): 60}, "m3": {(1,): 10, (2,): 20, (3,): 30}},
    ),
    "consistency paper, §4.1: 2c, and then m3[b] more": Example(
        """RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (2: 5);
        MAP m3[B INT](v BIGINT) START (1: 100); ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
        [("R", (2, 1)), ("R", (2, 1))],
        {"m1": {(): 2 * 5 + 100}, "m2": {(2,): 5 + 2 * 100}},
    ),
    "semester paper, example 2.1": Example(
        """RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (10: 3);
        MAP m3[B INT](v BIGINT) START (20: 7); ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
        [("R", (10, 20))],
        {"m1": {(): 3}, "m2": {(10,): 10}, "m3": {(20,): 7}},
    ),
    "semester paper, figure 1": Example(
        """RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (1: 2);
        MAP m3[B INT](v BIGINT) START (4: 10), (5: 20); ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
        [("R", (1, 4)), ("R", (1, 5))],
        {"m1": {(): 2 + 12}, "m2": {(1,): 2 + 10 + 20}},
    ),
    "semester paper, example 3.1": Example(
        """RELATION R(A INT); RELATION S(B INT); MAP m1[A INT](v BIGINT) START (1: 7);
        MAP m2[B INT](v BIGINT) START (2: 3), (4: 6); MAP m3[C INT](v BIGINT);
        ON +R(A) { m3[C] += m1[A] * m2[C]; } ON +S(B) { m2[B] += 1; }""",
        [("R", (1,)), ("S", (2,))],
        {"m3": {(2,): 7 * 3, (4,): 7 * 6}, "m2": {(2,): 4, (4,): 6}},
    ),
    "semester paper, example 3.2 and figure 6: x + y, x + 2y": Example(
        """RELATION S(A INT); RELATION T(B INT); MAP m1[A INT](v HUGEINT) START (1: 5);
        MAP m2[B INT](v HUGEINT) START (1: 100); ON +S(A) { m1[A] += m2[A]; } ON +T(B) { m2[B] += m1[B]; }""",
        [("S", (1,)), ("T", (1,))],
        {"m1": {(1,): 5 + 100}, "m2": {(1,): 5 + 2 * 100}},
        is_cyclic=True,
    ),
    "the same, and m1 on a node of its own": Example(
        """RELATION S(A INT); RELATION T(B INT); MAP m1[](v HUGEINT) START (: 5);
        MAP m2[B INT](v HUGEINT) START (1: 100); ON +S(A) { m1[] += m2[A]; } ON +T(B) { m2[B] += m1[]; }""",
        [("S", (1,)), ("T", (1,))],
        {"m1": {(): 105}, "m2": {(1,): 205}},
        is_cyclic=True,
    ),
    "semester paper, example 3.3": Example(
        """RELATION S(A INT); RELATION T(A INT, B INT); RELATION U(A INT, X INT); MAP m1[A INT](v BIGINT);
        MAP m2[A INT](v BIGINT) START (1: 2); MAP m3[A INT](v BIGINT) START (1: 3);
        MAP m4[B INT](v BIGINT) START (2: 5);
        ON +S(A) { m1[A] += m2[A] * m3[A]; } ON +T(A, B) { m2[A] += m4[B]; } ON +U(A, X) { m3[A] += X; }""",
        [("T", (1, 2)), ("S", (1,)), ("U", (1, 1)), ("S", (1,))],
        {"m1": {(1,): 7 * 3 + 7 * 4}, "m2": {(1,): 7}, "m3": {(1,): 4}},
    ),
    "semester paper, figure 5: 2, 4 and 7 in the end": Example(
        """RELATION P(A INT); RELATION L(A INT, B INT); RELATION Q(A INT);
        MAP mw[](v BIGINT); MAP mr[A INT](v BIGINT); MAP one[B INT](v BIGINT) START (2: 1);
        ON +P(A) { mr[A] += 1; } ON +L(A, B) { mr[A] += one[B]; } ON +Q(A) { mw[] += mr[A]; }""",
        [("P", (1,)), ("L", (1, 2)), ("Q", (1,)), ("Q", (1,)), ("P", (1,)), ("Q", (1,))],
        {"mw": {(): 2 + 2 + 3}, "mr": {(1,): 3}},
    ),
}


@pytest.mark.parametrize(
    "way", [way if way.is_plain else pytest.param(way, marks=pytest.mark.slow) for way in WAYS], ids=str
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_maps_have_the_values_of_the_paper(name: str, way: Way) -> None:
    example = EXAMPLES[name]
    if example.is_cyclic and any(each.startswith("elide-push") for each in way.options):
        with pytest.raises(LayoutError, match="cannot do in rounds"):
            plan_cluster(m3.read(example.text), 2, 1, way.mode, options=way.options)
        return
    program = divide(m3.read(example.text), circles=True).spread
    blocks = [Block(at, table, ((1, row),)) for at, (table, row) in enumerate(example.events)]
    for seed in range(examples(20)):
        switches = 1 if RULES[way.mode].needs_one_switch else 1 + seed % 3
        world = CentralNodes(
            program, way.mode, 1 + seed % 4, seed, switches=switches, options=way.options, central=way.central
        )
        world.run(blocks)
        found = {key: dict(entries) for key, entries in world.entries().items() if key in example.values}
        assert found == {
            name: {key: (value,) for key, value in entries.items()} for name, entries in example.values.items()
        }, seed


@pytest.mark.parametrize("mode", [Mode.TICKS, Mode.GATED])
@pytest.mark.parametrize("name", EXAMPLES)
def test_modes_with_an_order_of_their_own_refuse_them(name: str, mode: Mode) -> None:
    with pytest.raises(LayoutError) as told:
        require_order(plan_cluster(m3.read(EXAMPLES[name].text), 2, 2, mode))
    assert f"--mode {mode}" in str(told.value) or "has no definition" in str(told.value)
    assert told.value.hint


# --- the same from SQL: these maps have definitions, and all modes take them ------------------------------------------


@dataclass(frozen=True)
class FromSql:
    """A script, rows of its tables by epoch, and the rows of its view after each epoch."""

    script: str
    rows: dict[str, list[list[dict[str, Any]]]]
    values: list[list[tuple[Any, ...]]]


def _rows(columns: str, *rows: tuple[Any, ...], op: str = "i") -> list[dict[str, Any]]:
    return [{**dict(zip(columns.split(), row, strict=True)), "op": op} for row in rows]


FROM_SQL = {
    "introduction, example 1": FromSql(
        """CREATE TABLE Customer (cid INT); CREATE TABLE Orders (oid INT, cid INT); CREATE TABLE LineItem (oid INT);
        CREATE VIEW q AS SELECT c.cid, SUM(1) AS n FROM Customer c, Orders o, LineItem l
        WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY c.cid;""",
        {
            "Customer": [_rows("cid", (1,), (2,)), []],
            "Orders": [_rows("oid cid", (10, 1), (20, 2)), []],
            "LineItem": [_rows("oid", (10,), (10,), (20,), (30,)), _rows("oid", (10,), op="d")],
        },
        [[(1, 2), (2, 1)], [(1, 1), (2, 1)]],
    ),
    "introduction, example 2": FromSql(
        """CREATE TABLE Customer (cid INT, nation INT); CREATE TABLE Supplier (sid INT, nation INT);
        CREATE VIEW q AS SELECT s.sid, SUM(1) AS n FROM Customer c, Supplier s WHERE c.nation = s.nation
        GROUP BY s.sid;""",
        {
            "Customer": [_rows("cid nation", (1, 7), (2, 7)), _rows("cid nation", (3, 8))],
            "Supplier": [_rows("sid nation", (5, 7)), _rows("sid nation", (6, 8))],
        },
        [[(5, 2)], [(5, 2), (6, 1)]],
    ),
    "introduction, example 3": FromSql(
        """CREATE TABLE Dates (datekey INT, year INT); CREATE TABLE Part (partkey INT, partcat INT);
        CREATE TABLE LineOrder (datekey INT, partkey INT, revenue INT);
        CREATE VIEW m AS SELECT p.partcat, d.year, SUM(revenue) AS revenue FROM Dates d, Part p, LineOrder l
        WHERE d.datekey = l.datekey AND p.partkey = l.partkey GROUP BY p.partcat, d.year;""",
        {
            "Dates": [_rows("datekey year", (7, 1996)), _rows("datekey year", (8, 1998))],
            "Part": [_rows("partkey partcat", (4, 1), (5, 2)), []],
            "LineOrder": [
                _rows("datekey partkey revenue", (7, 4, 100), (8, 5, 30), (7, 5, 1), (9, 4, 1000)),
                _rows("datekey partkey revenue", (7, 4, 100), op="d"),
            ],
        },
        [[(1, 1996, 100), (2, 1996, 1)], [(2, 1996, 1), (2, 1998, 30)]],
    ),
    "consistency paper, example 2.1": FromSql(
        """CREATE TABLE customers (cid INT, nation INT); CREATE TABLE orders (cid INT, oid INT, discount DECIMAL(4,2));
        CREATE TABLE lineitem (oid INT, price DECIMAL(15,2));
        CREATE VIEW q AS SELECT c.nation, SUM(o.discount * l.price) AS s FROM customers c, orders o, lineitem l
        WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY c.nation;""",
        {
            "customers": [_rows("cid nation", (1, 7)), []],
            "orders": [_rows("cid oid discount", (1, 10, "0.90")), []],
            "lineitem": [_rows("oid price", (10, "100.00"), (10, "40.00")), _rows("oid price", (10, "40.00"), op="d")],
        },
        [[(7, Decimal("126.0000"))], [(7, Decimal("90.0000"))]],
    ),
}
ALL_MODES = (*(Way(mode) for mode in Mode), Way(Mode.CENTRAL_TARGET, central=central_options("directives")))


@pytest.mark.parametrize("way", ALL_MODES, ids=str)
@pytest.mark.parametrize("name", FROM_SQL)
def test_views_have_the_values_of_the_paper_epoch_for_epoch(name: str, way: Way, tmp_path: Path) -> None:
    example = FROM_SQL[name]
    for table, epochs in example.rows.items():
        (tmp_path / "in" / table).mkdir(parents=True)
        for number, lines in enumerate(epochs, 1):
            json_lines(tmp_path / "in" / table / f"{number}.json", lines)
    program = compile_sql(example.script, rely=False, enforced=False)
    given: dict[str, Any] = {"nodes": 3, "switches": 1 if RULES[way.mode].needs_one_switch else 2, "mode": way.mode}
    given["engine"] = "interpreter"
    if way.central.has_tree:
        given["dispatch"] = "directives"
    run_cluster(program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", **given)
    (view,) = (each.name for each in program.views)
    for epoch, expected in enumerate(example.values, 1):
        rows = query(tmp_path / "out", f"SELECT * FROM {view} ORDER BY ALL", epoch).to_pylist()
        assert [tuple(row.values()) for row in rows] == expected, epoch
