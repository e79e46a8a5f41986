"""The embedded host on folders: what it commits is what DuckDB says of the rows so far."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError, UsageError
from cumulus.m3 import Program, parse
from support.engines import engine_of
from support.orders_stream import PROGRAM, OrdersStream, json_lines, sorted_rows
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")


def run_to_end(folder: Path, out: Path, program: Program | None = None, **options: Any) -> EmbeddedRun:
    program = program or parse(PROGRAM)
    with EmbeddedRun(program, sources_from([str(folder)], program), out, make_engine=engine_of, **options) as run:
        for _ in run.steps():
            pass
    return run


@pytest.mark.parametrize("seed", sampled(range(4), of=4))
def test_every_epoch_is_what_the_tables_say(tmp_path: Path, seed: int) -> None:
    stream = OrdersStream(tmp_path / "in", seed)
    for _ in range(6):
        stream.write()
    run_to_end(tmp_path / "in", tmp_path / "out")
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(tmp_path / "out", "FROM revenue", epoch).to_pylist()) == expected
        refused = query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine", epoch).to_pylist()
        assert refused == [{"n": stream.bad_until[epoch]}]


def test_a_run_resumes_where_the_last_one_ended(tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 7)
    for _ in range(5):
        stream.write()
        assert run_to_end(tmp_path / "in", tmp_path / "out").epoch == stream.epoch
        assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.oracle()


def test_a_snapshot_takes_the_place_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.epochs.epoch_log.LEAST_LOG_BYTES", 1000)
    stream = OrdersStream(tmp_path / "in", 8)
    for _ in range(12):
        stream.write()
        run_to_end(tmp_path / "in", tmp_path / "out")
        assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.oracle()
    kept = list((tmp_path / "out" / "checkpoint" / "embedded").iterdir())
    assert any(path.is_dir() for path in kept)
    assert len([path for path in kept if path.suffix == ".log"]) < 12


def test_old_epochs_go_and_the_newest_stay(tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 9)
    for _ in range(8):
        stream.write()
    run_to_end(tmp_path / "in", tmp_path / "out", keep=3)
    assert sorted(path.name for path in (tmp_path / "out" / "epochs").iterdir()) == ["6.json", "7.json", "8.json"]
    for epoch in (6, 7, 8):
        assert sorted_rows(query(tmp_path / "out", "FROM revenue", epoch).to_pylist()) == stream.expected[epoch]
    refused = query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine").to_pylist()
    assert refused == [{"n": stream.bad}]
    latest = tmp_path / "out" / "latest" / "revenue"
    assert [file.suffix for file in latest.iterdir()] == [".parquet"]


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:orders=oid+lineitem=oid"])
def test_changes_lead_from_epoch_to_epoch(tmp_path: Path, layout: str) -> None:
    stream = OrdersStream(tmp_path / "in", 12)
    for _ in range(5):
        stream.write()
    program = parse(PROGRAM)
    shown: Counter[tuple[Any, ...]] = Counter()
    left = 0
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=2) as run:
        for epoch in run.steps():
            for *row, change in map(dict.values, epoch.changes("revenue").to_pylist()):
                shown[tuple(row)] += change
                left += change < 0
            assert sorted(shown.elements(), key=repr) == stream.expected[epoch.number]
    assert left > 0


def test_changes_of_a_bag_count_its_rows(tmp_path: Path) -> None:
    sql = (
        "CREATE TABLE r (a INT, b TEXT); CREATE VIEW v AS SELECT a, b FROM r; "
        "CREATE VIEW w AS SELECT b AS change FROM r;"
    )
    one, null = {"a": 1, "b": "x"}, {"a": None, "b": None}
    json_lines(tmp_path / "in" / "r" / "1.json", [one, one, null])
    json_lines(tmp_path / "in" / "r" / "2.json", [one, {**null, "op": "d"}])
    json_lines(tmp_path / "in" / "r" / "3.json", [{**one, "op": "d"}, one])
    program = compile_sql(sql, rely=False)
    with EmbeddedRun(
        program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", make_engine=engine_of, keep=2
    ) as run:
        first, second, third = run.steps()
    with pytest.raises(UsageError, match="need epoch 1, which is gone"):
        second.changes("v")
    assert third.changes("v").num_rows == 0
    assert third.changes("v").schema.names == ["a", "b", "change"]
    with pytest.raises(UsageError, match="epoch 1 is not there"):
        first.changes("v")
    with pytest.raises(UsageError, match="there are no rows of a view 'x'"):
        third.changes("x")
    with pytest.raises(UsageError, match="a column 'change' of its own"):
        third.changes("w")
    again = tmp_path / "again"
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), again, make_engine=engine_of) as run:
        found = [sorted_rows(epoch.changes("v").to_pylist()) for epoch in run.steps()]
    assert found == [[(1, "x", 2), (None, None, 1)], [(1, "x", 1), (None, None, -1)], []]


@pytest.mark.parametrize("buckets", sampled([1, 2, 3, 4], of=3, first=2))
@pytest.mark.parametrize("hint", ["orders=oid+lineitem=oid", "orders=cid+customers=cid"])
def test_buckets_make_no_difference(tmp_path: Path, buckets: int, hint: str) -> None:
    stream = OrdersStream(tmp_path / "in", 10)
    for _ in range(4):
        stream.write()
    run = run_to_end(tmp_path / "in", tmp_path / "out", buckets=buckets, layout=f"one-round:{hint}")
    assert run.identity.plan.partitioned == {
        table: (column,) for table, column in (part.split("=") for part in hint.split("+"))
    }
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(tmp_path / "out", "FROM revenue", epoch).to_pylist()) == expected
        refused = query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine", epoch).to_pylist()
        assert refused == [{"n": stream.bad_until[epoch]}]
        assert read_manifest(tmp_path / "out", epoch).totals["events"] == stream.events_until[epoch]


def test_auto_takes_what_leaves_every_key_checked() -> None:
    plan = choose_plan(parse(PROGRAM), "auto", 4)
    assert plan.partitioned == {"orders": ("oid",), "lineitem": ("oid",)}
    assert plan.why.endswith(
        "a deletion from customers counts an epoch later, when no bucket has rows that refer to it"
    )


def test_auto_judges_rows_first_where_no_round_checks_every_key() -> None:
    script = """
    CREATE TABLE stays (k INT PRIMARY KEY, room INT);
    CREATE VIEW shared AS SELECT room, COUNT(*) AS n FROM stays JOIN stays other USING (room) GROUP BY room;
    """
    plan = choose_plan(compile_sql(script, rely=False), "auto", 4)
    assert plan.why.startswith("judged in 4 buckets, stays by k; then shared in 4, stays by room; the heaviest has ")
    why = choose_plan(compile_sql(script.replace(" PRIMARY KEY", ""), rely=False), "auto", 4).why
    assert why.startswith("4 buckets, stays by room; ")


TABLES_SQL = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT REFERENCES customers (cid), discount DECIMAL(4,2));
CREATE TABLE lineitem (oid INT NOT NULL, price DECIMAL(15,2));
"""
VIEWS = {
    "revenue": "SELECT nation, SUM(discount * price) AS r, COUNT(*) AS n FROM customers JOIN orders USING (cid) "
    "JOIN lineitem USING (oid) GROUP BY nation",
    "totals": "SELECT COUNT(*) AS n, SUM(price) AS s, AVG(price) AS a FROM lineitem",
    "busy": "SELECT oid, COUNT(*) AS n FROM lineitem GROUP BY oid HAVING COUNT(*) > 2",
    "dear": "SELECT oid, discount FROM orders JOIN customers USING (cid) WHERE discount > 5",
}


def test_a_layout_that_parts_an_enforced_reference_is_refused(tmp_path: Path) -> None:
    script = """
    CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
    CREATE TABLE orders (oid INT PRIMARY KEY, cid INT REFERENCES customers (cid));
    CREATE VIEW nations AS SELECT nation, COUNT(*) AS n FROM customers GROUP BY nation;
    CREATE VIEW sold AS SELECT oid, COUNT(*) AS n FROM orders GROUP BY oid;
    """
    layout = "one-round:orders=oid+customers=cid"
    with pytest.raises(LayoutError, match=r"nobody would check orders\(cid\) references customers, and the program"):
        choose_plan(compile_sql(script, rely=False), layout, 2)
    plan = choose_plan(compile_sql(script, rely=False, enforced=False), layout, 2)
    assert plan.why.endswith("not checked: orders(cid) references customers")


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:orders=oid+lineitem=oid"])
def test_compiled_views_are_what_duckdb_says(tmp_path: Path, layout: str) -> None:
    stream = OrdersStream(tmp_path / "in", 11, VIEWS)
    for _ in range(4):
        stream.write()
    program = compile_sql(
        TABLES_SQL + "".join(f"CREATE VIEW {name} AS {sql};\n" for name, sql in VIEWS.items()), rely=False
    )
    run_to_end(tmp_path / "in", tmp_path / "out", program, layout=layout, buckets=2)
    for epoch, answers in stream.answers.items():
        for name, expected in answers.items():
            found = sorted_rows(query(tmp_path / "out", f"FROM {name}", epoch).to_pylist())
            assert rounded(found) == rounded(expected), (epoch, name)


def test_a_child_of_a_table_on_a_circle_comes_after_it(tmp_path: Path) -> None:
    program = compile_sql(
        """
        CREATE TABLE z (k INTEGER PRIMARY KEY, y INTEGER REFERENCES y, name VARCHAR);
        CREATE TABLE y (k INTEGER PRIMARY KEY, z INTEGER REFERENCES z);
        CREATE TABLE a (k INTEGER PRIMARY KEY, z INTEGER REFERENCES z);
        CREATE VIEW v AS SELECT name, COUNT(*) AS n FROM a JOIN z ON a.z = z.k GROUP BY name;
        """,
        rely=False,
    )
    assert [key.enforced for name in "zya" for key in program.relation(name).foreign_keys] == [False, False, True]
    json_lines(tmp_path / "in" / "z" / "1.json", [{"k": 1, "y": 2, "name": "one"}])
    json_lines(tmp_path / "in" / "y" / "1.json", [{"k": 2, "z": 1}])
    json_lines(tmp_path / "in" / "a" / "1.json", [{"k": 3, "z": 1}, {"k": 4, "z": 1}])
    run_to_end(tmp_path / "in", tmp_path / "out", program)
    assert sorted_rows(query(tmp_path / "out", "FROM v").to_pylist()) == [("one", 2)]


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows]
