"""TPC-H: the queries say what the benchmark asks, and the streams come and go as promised."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import InputError, UnknownNameError, UsageError
from cumulus.workloads import changes, checks
from cumulus_lab.workloads import tpch
from support.tiers import sampled


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, pa.Table]:
    return {name: pq.read_table(folder / f"{name}.parquet") for name in tpch.TABLES}


def run(query: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    return list(checks.rows(checks.recompute(checks.views(tpch.sql(query))[query], tables)))


# --- the queries, against loops over rows written from the specification's questions -------------------------------


class Loops:
    """TPC-H's questions answered row by row; `rows` holds dictionaries."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.rows = {name: table.to_pylist() for name, table in tables.items()}
        self.by = {
            name: {row[tpch.TABLES[name].key[0]]: row for row in rows}
            for name, rows in self.rows.items()
            if name != "lineitem"
        }

    def lines(self) -> Any:
        for line in self.rows["lineitem"]:
            yield line, line["l_extendedprice"] * (100 - 100 * line["l_discount"]) / 100

    def q1(self) -> list[tuple[Any, ...]]:
        groups = defaultdict(list)
        for line, value in self.lines():
            if line["l_shipdate"] <= dt.date(1998, 12, 1) - dt.timedelta(days=90):
                groups[line["l_returnflag"], line["l_linestatus"]].append((line, value))
        found = []
        for key, members in sorted(groups.items()):
            count = len(members)
            quantity = sum(line["l_quantity"] for line, _ in members)
            price = sum(line["l_extendedprice"] for line, _ in members)
            discounts = sum(line["l_discount"] for line, _ in members)
            charge = sum(value + value * line["l_tax"] for line, value in members)
            means = tuple(float(total / count) for total in (quantity, price, discounts))
            found.append((*key, quantity, price, sum(value for _, value in members), charge, *means, count))
        return found

    def q3(self) -> list[tuple[Any, ...]]:
        day = dt.date(1995, 3, 15)
        revenue: Counter[int] = Counter()
        for line, value in self.lines():
            order = self.by["orders"][line["l_orderkey"]]
            segment = self.by["customer"][order["o_custkey"]]["c_mktsegment"]
            if line["l_shipdate"] > day > order["o_orderdate"] and segment == "BUILDING":
                revenue[order["o_orderkey"]] += value
        found = [
            (key, total, self.by["orders"][key]["o_orderdate"], self.by["orders"][key]["o_shippriority"])
            for key, total in revenue.items()
        ]
        return sorted(found, key=lambda row: (-row[1], row[2], row[0]))[:10]

    def q5(self) -> list[tuple[Any, ...]]:
        revenue: Counter[str] = Counter()
        for line, value in self.lines():
            order = self.by["orders"][line["l_orderkey"]]
            home = self.by["customer"][order["o_custkey"]]["c_nationkey"]
            nation = self.by["nation"][home]
            local = self.by["supplier"][line["l_suppkey"]]["s_nationkey"] == home
            asian = self.by["region"][nation["n_regionkey"]]["r_name"] == "ASIA"
            if local and asian and order["o_orderdate"].year == 1994:
                revenue[nation["n_name"]] += value
        return sorted(revenue.items(), key=lambda row: (-row[1], row[0]))

    def q6(self) -> list[tuple[Any, ...]]:
        low, high = Decimal("0.06") - Decimal("0.01"), Decimal("0.06") + Decimal("0.01")
        return [
            (
                sum(
                    line["l_extendedprice"] * line["l_discount"]
                    for line in self.rows["lineitem"]
                    if line["l_shipdate"].year == 1994 and low <= line["l_discount"] <= high and line["l_quantity"] < 24
                ),
            )
        ]

    def q10(self) -> list[tuple[Any, ...]]:
        revenue: Counter[int] = Counter()
        for line, value in self.lines():
            order = self.by["orders"][line["l_orderkey"]]
            date = order["o_orderdate"]
            if line["l_returnflag"] == "R" and date.year == 1993 and date.month >= 10:
                revenue[order["o_custkey"]] += value
        best = sorted(revenue.items(), key=lambda item: (-item[1], item[0]))[:20]
        found = []
        for key, total in best:
            row = self.by["customer"][key]
            nation = self.by["nation"][row["c_nationkey"]]["n_name"]
            more = (row["c_acctbal"], nation, row["c_address"], row["c_phone"], row["c_comment"])
            found.append((key, row["c_name"], total, *more))
        return found

    def q12(self) -> list[tuple[Any, ...]]:
        counts: dict[str, list[int]] = {"MAIL": [0, 0], "SHIP": [0, 0]}
        for line in self.rows["lineitem"]:
            late = line["l_shipdate"] < line["l_commitdate"] < line["l_receiptdate"]
            if late and line["l_receiptdate"].year == 1994 and line["l_shipmode"] in counts:
                priority = self.by["orders"][line["l_orderkey"]]["o_orderpriority"]
                counts[line["l_shipmode"]][int(priority[0] not in "12")] += 1
        return [(mode, *both) for mode, both in sorted(counts.items())]

    def q14(self) -> list[tuple[Any, ...]]:
        promoted = total = Decimal(0)
        for line, value in self.lines():
            if (line["l_shipdate"].year, line["l_shipdate"].month) == (1995, 9):
                total += value
                if self.by["part"][line["l_partkey"]]["p_type"].startswith("PROMO"):
                    promoted += value
        return [(float(100 * promoted / total),)]

    def q19(self) -> list[tuple[Any, ...]]:
        kinds = {
            "Brand#12": ("SM", {"CASE", "BOX", "PACK", "PKG"}, 1, 5),
            "Brand#23": ("MED", {"BAG", "BOX", "PKG", "PACK"}, 10, 10),
            "Brand#34": ("LG", {"CASE", "BOX", "PACK", "PKG"}, 20, 15),
        }
        total = None
        for line, value in self.lines():
            part = self.by["part"][line["l_partkey"]]
            if part["p_brand"] not in kinds or line["l_shipinstruct"] != "DELIVER IN PERSON":
                continue
            size, boxes, least, largest = kinds[part["p_brand"]]
            container = part["p_container"].split(" ")
            fits = container[0] == size and container[1] in boxes and 1 <= part["p_size"] <= largest
            if fits and least <= line["l_quantity"] <= least + 10 and line["l_shipmode"] in ("AIR", "AIR REG"):
                total = (total or Decimal(0)) + value
        return [(total,)]


@pytest.fixture(scope="module")
def loops(tables: dict[str, pa.Table]) -> Loops:
    return Loops(tables)


@pytest.mark.parametrize("query", sampled(["q1", "q3", "q5", "q6", "q10", "q12", "q14", "q19"], of=4))
def test_a_query_says_what_a_loop_says(query: str, tables: dict[str, pa.Table], loops: Loops) -> None:
    expected = getattr(loops, query)()
    got = run(query, tables)
    assert len(got) == len(expected) > 0
    for wanted, given in zip(expected, got, strict=True):
        for a, b in zip(wanted, given, strict=True):
            assert b is not None
            assert b == (pytest.approx(a, rel=1e-12) if isinstance(b, float) else a)


@pytest.mark.parametrize("query", sampled(tpch.QUERIES, of=3))
def test_every_query_finds_something_in_the_generated_tables(query: str, tables: dict[str, pa.Table]) -> None:
    found = run(query, tables)
    # At this scale no part that Q17 asks for was sold in such a small quantity: its one row is NULL.
    assert (found[0] == (None,)) == (query == "q17")


@pytest.mark.slow
def test_the_answers_at_scale_one_are_the_published_ones(tmp_path: Path) -> None:
    """The specification's answer set for query validation, SF 1 (two decimals there, more here)."""
    data = {
        name: pq.read_table(path) for name in tpch.TABLES for path in [tpch.generate(1, tmp_path) / f"{name}.parquet"]
    }
    answers = {query: run(query, data) for query in tpch.QUERIES}
    assert {query: len(rows) for query, rows in answers.items() if len(rows) > 7} == {
        "q2": 100,
        "q3": 10,
        "q9": 175,
        "q10": 20,
        "q11": 1048,
        "q13": 42,
        "q16": 18_314,
        "q18": 57,
        "q20": 186,
        "q21": 100,
    }
    assert answers["q1"][0][2:6] == tuple(
        map(Decimal, ("37734107.00", "56586554400.73", "53758257134.8700", "55909065222.827692"))
    )
    assert answers["q2"][0][:5] == (
        *(Decimal("9938.53"), "Supplier#000005359", "UNITED KINGDOM", 185_358),
        "Manufacturer#4",
    )
    assert answers["q3"][0] == (2456423, Decimal("406181.0111"), dt.date(1995, 3, 5), 0)
    assert [count for _, count in answers["q4"]] == [10594, 10476, 10410, 10556, 10487]
    assert answers["q5"][0] == ("INDONESIA", Decimal("55502041.1697"))
    assert answers["q6"] == [(Decimal("123141078.2283"),)]
    assert [round(row[3], 2) for row in answers["q7"]] == [
        Decimal(text) for text in ("54639732.73", "54633083.31", "52531746.67", "52520549.02")
    ]
    assert [(year, round(share, 2)) for year, share in answers["q8"]] == [(1995, 0.03), (1996, 0.04)]
    assert [(*row[:2], round(row[2], 2)) for row in answers["q9"][:1]] == [("ALGERIA", 1998, Decimal("27136900.18"))]
    assert answers["q10"][0][:3] == (57040, "Customer#000057040", Decimal("734235.2455"))
    assert answers["q11"][0] == (129_760, Decimal("17538456.86"))
    assert answers["q12"] == [("MAIL", 6202, 9324), ("SHIP", 6200, 9262)]
    assert answers["q13"][:2] == [(0, 50_005), (9, 6_641)]
    assert round(answers["q14"][0][0], 2) == 16.38
    assert [(row[0], round(row[4], 2)) for row in answers["q15"]] == [(8_449, Decimal("1772627.21"))]
    assert answers["q16"][0] == ("Brand#41", "MEDIUM BRUSHED TIN", 3, 28)
    assert round(answers["q17"][0][0], 2) == 348_406.05
    assert answers["q18"][0][1:] == (
        *(128_120, 4_722_021, dt.date(1994, 4, 7)),
        *(Decimal("544089.09"), Decimal("323.00")),
    )
    assert answers["q19"] == [(Decimal("3083843.0578"),)]
    assert answers["q20"][0][0] == "Supplier#000000020"
    assert answers["q21"][0] == ("Supplier#000002829", 20)
    assert answers["q22"][0] == ("13", 888, Decimal("6737713.99"))


# --- declarations ---------------------------------------------------------------------------------------------------


def test_the_declared_tables_are_the_generated_ones(tables: dict[str, pa.Table]) -> None:
    for query in tpch.QUERIES:
        for name, table in checks.declared(tpch.sql(query, keys="foreign")).items():
            assert table.schema.names == tables[name].schema.names
            plain = [pa.string() if t == pa.string_view() else t for t in tables[name].schema.types]
            assert table.schema.types == plain
            assert table.key == tpch.TABLES[name].key


def test_keys_columns_and_static_tables_can_be_chosen() -> None:
    none = tpch.sql("q3", keys="none", columns="used")
    assert "KEY" not in none.split("CREATE VIEW")[0]
    assert tpch.query_columns("q3", "used") == {
        "customer": ("c_custkey", "c_mktsegment"),
        "orders": ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"),
        "lineitem": ("l_orderkey", "l_linenumber", "l_extendedprice", "l_discount", "l_shipdate"),
    }
    rely = tpch.sql("q5", keys="rely", static=("nation", "region"))
    assert "FOREIGN KEY (o_custkey) REFERENCES customer (c_custkey) RELY" in rely
    assert rely.count("WITH (static = true)") == 2
    # A foreign key to a table that the query does not read is left out.
    assert "REFERENCES part" not in rely
    with pytest.raises(UnknownNameError, match="q23"):
        tpch.sql("q23")
    with pytest.raises(UsageError, match="keys"):
        tpch.sql("q1", keys="some")


# --- the streams ----------------------------------------------------------------------------------------------------


def live_by_hand(stream: tpch.Stream, upto: int) -> dict[str, Counter[tuple[Any, ...]]]:
    """Count rows event by event; a deletion of an absent row fails."""
    live: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in stream.tables}
    for number, events in enumerate(stream.events()):
        if number > upto:
            break
        for sign, name, row in events:
            live[name][row] += sign
            assert live[name][row] in (0, 1)
            if not live[name][row]:
                del live[name][row]
    return live


@pytest.mark.parametrize("arrival", sampled(["parents_first", "random"], of=2, first=1))
def test_tables_after_an_epoch_are_what_the_events_leave(folder: Path, arrival: str) -> None:
    stream = tpch.stream(folder, query="q3", batch=20_000, arrival=arrival, columns="used")
    for epoch in (1, 3):
        left = stream.final_tables(epoch)
        by_hand = live_by_hand(stream, epoch)
        assert {name: Counter(checks.rows(table)) for name, table in left.items()} == by_hand
    whole = stream.final_tables()
    assert whole["customer"].num_rows == 1500


@pytest.mark.parametrize("arrival", ["parents_first", "random"])
@pytest.mark.parametrize("deletes", [0.0, 0.1, 0.3])
def test_the_share_of_deletions_is_the_one_asked_for(folder: Path, arrival: str, deletes: float) -> None:
    stream = tpch.stream(folder, query="q12", batch=10_000, deletes=deletes, arrival=arrival, columns="used")
    ops = Counter(op for epoch in stream.epochs() for table in epoch.values() for op in table["op"].to_pylist())
    assert ops["i"] == 15_000 + 60_175
    assert abs(ops["d"] / ops.total() - deletes) < 0.002


@pytest.mark.slow
def test_whole_orders_leave_oldest_first(folder: Path) -> None:
    stream = tpch.stream(folder, query="q12", batch=5_000, window=1_000, columns="used", seed=7)
    came: list[int] = []
    went: list[int] = []
    lines: Counter[int] = Counter()
    most = 0
    for events in stream.events():
        for sign, name, row in events:
            if name == "lineitem":
                lines[row[0]] += sign
            elif sign > 0:
                assert not lines[row[0]], "a lineitem came before its order"
                came.append(row[0])
            else:
                assert not lines[row[0]], "an order left before its lineitems"
                went.append(row[0])
            most = max(most, len(came) - len(went))
    assert went == came[: len(went)]
    assert len(went) == 14_000
    assert 1_000 <= most <= 1_002


def test_random_arrival_is_random_and_still_deletes_last(folder: Path) -> None:
    stream = tpch.stream(folder, query="q3", batch=5_000, arrival="random", deletes=0.2, columns="used")
    customers = [epoch["customer"].num_rows if "customer" in epoch else 0 for epoch in stream.epochs()]
    assert min(customers[:-1]) > 20  # customers come all the time …
    seen: set[int] = set()
    orphans = 0
    for events in stream.events():
        for sign, name, row in events:
            if name == "customer":
                seen.add(row[0])
            elif name == "orders" and sign > 0:
                orphans += row[1] not in seen
    assert orphans > 3_000  # … and often after their orders


def test_epochs_are_cut_evenly_and_numbered_in_one_order(folder: Path) -> None:
    stream = tpch.stream(folder, query="q5", batch=7_000)
    epochs = list(stream.epochs())
    sizes = [sum(table.num_rows for table in epoch.values()) for epoch in epochs]
    assert set(sizes[:-1]) == {7_000}
    assert 0 < sizes[-1] <= 7_000
    seqs = [sorted(seq for table in epoch.values() for seq in table["seq"].to_pylist()) for epoch in epochs]
    assert [seq for epoch in seqs for seq in epoch] == list(range(sum(sizes)))
    assert all(table["seq"].to_pylist() == sorted(table["seq"].to_pylist()) for table in epochs[2].values())


def test_the_seed_decides_and_nothing_else_does(folder: Path) -> None:
    def first(seed: int) -> dict[str, pa.Table]:
        return next(tpch.stream(folder, query="q3", batch=30_000, seed=seed).epochs())

    assert first(1) == first(1)
    assert first(1)["orders"] != first(2)["orders"]


def test_a_written_stream_is_the_stream(folder: Path, tmp_path: Path) -> None:
    stream = tpch.stream(folder, query="q14", batch=1_500, deletes=0.2, columns="used")
    count = stream.write(tmp_path)
    read = changes.read(tmp_path)
    assert count == len(read)
    assert read == list(stream.epochs())
    # part is loaded in the first two epochs and has files for those alone: the i-th file is epoch i's.
    assert [path.name for path in sorted((tmp_path / "part").iterdir())] == ["000000.parquet", "000001.parquet"]
    assert read[0]["lineitem"].num_rows == 0


def test_partsupp_comes_and_goes_where_there_are_no_orders(folder: Path) -> None:
    stream = tpch.stream(folder, query="q11", batch=2_000, deletes=0.2, columns="used")
    ops = Counter(
        op for epoch in stream.epochs() for op in epoch.get("partsupp", {"op": pa.array([])})["op"].to_pylist()
    )
    assert ops["i"] == 8_000
    assert abs(ops["d"] / ops.total() - 0.2) < 0.01
    left = {name: Counter(checks.rows(table)) for name, table in stream.final_tables().items()}
    assert left == live_by_hand(stream, 100)
    assert left["supplier"].total() == 100


@pytest.mark.slow
def test_a_stream_across_blocks_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks stand in for a large scale: nothing is lost or doubled at the seams."""
    monkeypatch.setattr("cumulus_lab.workloads.tpch.streams.BLOCK", 1_000)
    stream = tpch.stream(folder, query="q12", batch=3_333, deletes=0.25, columns="used")
    ops = Counter(op for epoch in stream.epochs() for table in epoch.values() for op in table["op"].to_pylist())
    assert ops["i"] == 15_000 + 60_175
    live = live_by_hand(stream, 10_000)
    assert sum(map(len, live.values())) == ops["i"] - ops["d"]
    assert abs(ops["d"] / ops.total() - 0.25) < 0.01


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch"):
        tpch.stream(folder, query="q1", batch=0)
    with pytest.raises(UsageError, match="deletes"):
        tpch.stream(folder, query="q1", batch=1, deletes=0.5)
    with pytest.raises(UsageError, match="window"):
        tpch.stream(folder, query="q1", batch=1, window=0)
    with pytest.raises(UsageError, match="seed"):
        tpch.stream(folder, query="q1", batch=1, seed=-1)
    with pytest.raises(UsageError, match="arrival"):
        tpch.stream(folder, query="q1", batch=1, arrival="sorted")
    with pytest.raises(UsageError, match="scale"):
        tpch.generate(0, tmp_path)
    with pytest.raises(InputError, match=r"lineitem\.parquet is not there"):
        next(tpch.stream(tmp_path, query="q1", batch=1).epochs())


def test_a_scale_is_generated_once(folder: Path) -> None:
    stamp = (folder / "orders.parquet").stat().st_mtime_ns
    assert tpch.generate(0.01, folder.parent) == folder
    assert (folder / "orders.parquet").stat().st_mtime_ns == stamp
    assert [path.name for path in folder.parent.iterdir()] == ["sf0.01"]


@pytest.mark.slow
def test_a_table_that_is_missing_is_generated_again(folder: Path, tmp_path: Path) -> None:
    """A folder from before partsupp, or from an interrupted run."""
    half = tpch.generate(0.001, tmp_path)
    before = (half / "partsupp.parquet").read_bytes()
    (half / "partsupp.parquet").unlink()
    assert tpch.generate(0.001, tmp_path) == half
    assert (half / "partsupp.parquet").read_bytes() == before
