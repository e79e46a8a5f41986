"""The rows of tables that a run publishes: at each epoch they are those that DuckDB has, in all layouts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cumulus.catalog.types import arrow_type
from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs, listed_files, newest_manifest, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3 import parse
from support.extremes import EXTREMES
from support.oracle import same_bag
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows
from support.published_orders import QUERIES, SCRIPT, check_tables
from support.reshaped_streams import Epoch, epochs
from support.scalar_types import parsed

LAYOUTS = [("one-bucket", 1), ("one-round:orders=oid+lineitem=oid", 3), ("judged", 2)]
LOOSE = """
    CREATE TABLE goods (g INT PRIMARY KEY, kind VARCHAR);
    CREATE TABLE orders (o INT PRIMARY KEY, g INT REFERENCES goods, place VARCHAR);
    CREATE TABLE items (o INT REFERENCES orders, price DECIMAL(6, 2), weight DOUBLE) WITH (keep = all);
    CREATE TABLE visits (place VARCHAR, n HUGEINT) WITH (keep = all);
    CREATE VIEW goods_rows AS SELECT g, kind, COUNT(*) AS n FROM goods GROUP BY g, kind;
    CREATE VIEW orders_rows AS SELECT o, g, place, COUNT(*) AS n FROM orders GROUP BY o, g, place;
    CREATE VIEW items_rows AS SELECT o, price, weight, COUNT(*) AS n FROM items GROUP BY o, price, weight;
    CREATE VIEW visits_rows AS SELECT place, n AS visits, COUNT(*) AS n FROM visits GROUP BY place, n;
"""
"""A view of each table counts its rows: what it has is compared with DuckDB in other tests."""
ORDERED = {"goods": "seq", "orders": "seq", "items": "", "visits": ""}
LOOSE_PROGRAM = compile_sql(LOOSE, rely=False)
SMALL = compile_sql("CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE TABLE free (x INT); CREATE VIEW v AS "
                    "SELECT b, COUNT(*) AS n FROM t GROUP BY b; CREATE VIEW w AS SELECT SUM(x) AS s FROM free",
                    rely=False)  # fmt: skip


def run_of(program: Any, folder: Path, out: Path, **how: Any) -> EmbeddedRun:
    return EmbeddedRun(
        program, sources_from([str(folder)], program), out, make_engine=partial(make_engine, "auto"), **how
    )


@pytest.mark.parametrize(("layout", "buckets"), LAYOUTS)
def test_each_epoch_has_the_rows_of_its_tables(tmp_path: Path, layout: str, buckets: int) -> None:
    stream, program = OrdersStream(tmp_path / "in", 5, QUERIES), compile_sql(SCRIPT, rely=False)
    for _ in range(16):
        stream.write(30)
    how: dict[str, Any] = {"layout": layout, "buckets": buckets, "keep": 12}
    with run_of(program, stream.folder, tmp_path / "out", publish=("all",), **how) as run:
        for _ in range(6):
            run.step()
    with run_of(program, stream.folder, tmp_path / "out", **how) as run:
        assert len([*run.steps()]) == 10
    assert committed_epochs(tmp_path / "out") == [*range(5, 17)]
    check_tables(stream, tmp_path / "out")
    manifest = newest_manifest(tmp_path / "out")
    assert manifest is not None
    assert {*manifest.tables} == {"customers", "orders", "lineitem"}
    assert any(bucket["gone"] for table in manifest.tables.values() for bucket in table["buckets"].values())
    listed = {path for epoch in range(5, 17) for path in listed_files(read_manifest(tmp_path / "out", epoch))}
    there = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out" / "data").rglob("*.parquet")}
    assert there <= listed, "what no epoch lists is removed"


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_a_program_of_batch_triggers_alone(tmp_path: Path, engine: str) -> None:
    """Triggers that count what is published do not take the place of those that are not there."""
    stream = OrdersStream(tmp_path / "in", 1, {name: QUERIES[name] for name in ("customers", "orders")})
    for _ in range(5):
        stream.write(40)
    program, out = parse(PROGRAM), tmp_path / "out"
    sources = sources_from([str(stream.folder)], program)
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, engine), publish=("all",)) as run:
        [*run.steps()]
    check_tables(stream, out)
    for epoch, rows in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == rows, epoch


@pytest.mark.law
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_epochs=epochs(most=9), how=st.sampled_from([("one-bucket", 1), ("one-round", 3), ("judged", 2)]))
def test_law(tmp_path: Path, given_epochs: list[Epoch], how: tuple[str, int]) -> None:
    shutil.rmtree(tmp_path)
    sources = []
    for name, order in ORDERED.items():
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        sources.append(FolderSource(name, str(folder), "json", order=order))
        for number, epoch in enumerate(given_epochs):
            rows = epoch.get(name, [])
            (folder / f"{number:05}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    layout, buckets = how
    out = tmp_path / "out"
    engine = partial(make_engine, "interpreter")
    publish = {"make_engine": engine, "layout": layout, "buckets": buckets, "publish": ("all",)}
    with EmbeddedRun(LOOSE_PROGRAM, sources, out, **publish) as run:  # type: ignore[arg-type]
        run.step()
    with EmbeddedRun(LOOSE_PROGRAM, sources, out, **publish) as run:  # type: ignore[arg-type]
        [*run.steps()]
    for epoch in committed_epochs(out):
        for name in ORDERED:
            rows = Counter(tuple(row.values()) for row in query(out, f"FROM {name}", epoch).to_pylist())
            counted = query(out, f"FROM {name}_rows", epoch).to_pylist()
            assert rows == {tuple(row.values())[:-1]: row["n"] for row in counted}, (epoch, name)


def write(folder: Path, number: int, *rows: dict[str, Any], table: str = "t") -> None:
    for name in ("free", table):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / table / f"{number:05}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def files_of(out: Path, table: str = "t") -> tuple[int, int]:
    """Return how many files of rows that came, and went, there are."""
    manifest = newest_manifest(out)
    assert manifest is not None
    buckets = manifest.tables[table]["buckets"].values()
    return sum(len(each["data"]) for each in buckets), sum(len(each["gone"]) for each in buckets)


def test_rows_are_written_anew_when_a_tenth_of_them_went(tmp_path: Path) -> None:
    write(tmp_path / "in", 1, *({"op": "i", "a": at, "b": at} for at in range(100)))
    for number, few in enumerate((range(5), range(5, 10), range(10, 12), range(12, 13)), 2):
        write(tmp_path / "in", number, *({"op": "d", "a": at, "b": at} for at in few))
    seen = []
    with run_of(SMALL, tmp_path / "in", tmp_path / "out", publish=["t"]) as run:
        while run.step() is not None:
            seen.append(files_of(tmp_path / "out"))
    assert seen == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 0)], "12 of 100 are more than a tenth"
    assert query(tmp_path / "out", "SELECT COUNT(*) AS n, MIN(a) AS a FROM t").to_pylist() == [{"n": 87, "a": 13}]


def test_what_is_published_may_change(tmp_path: Path) -> None:
    sizes = []
    for number, publish in enumerate([(), "t, T", (), ("none",), (), ("all",)], 1):
        write(tmp_path / "in", number, {"op": "i", "a": number, "b": 1})
        with run_of(SMALL, tmp_path / "in", tmp_path / "out", publish=publish) as run:
            assert len([*run.steps()]) == 1
        manifest = newest_manifest(tmp_path / "out")
        assert manifest is not None
        sizes.append(query(tmp_path / "out", "FROM t").num_rows if manifest.tables else -1)
    assert sizes == [-1, 2, 3, -1, -1, 6]


def test_a_run_without_published_tables_writes_nothing_of_them(tmp_path: Path) -> None:
    write(tmp_path / "in", 1, {"op": "i", "a": 1, "b": 1})
    with run_of(SMALL, tmp_path / "in", tmp_path / "out") as run:
        run.step()
    assert {path.parent.name for path in (tmp_path / "out" / "data").rglob("*.parquet")} <= {"v", "w", "parts"}
    with pytest.raises(UsageError, match="Views here"):
        query(tmp_path / "out", "FROM t")


def test_views_keep_several_epochs_and_tables_have_each(tmp_path: Path) -> None:
    """Views are shown at every third epoch only."""
    for number in range(1, 6):
        write(tmp_path / "in", number, {"op": "i", "a": number, "b": 1})
    with run_of(SMALL, tmp_path / "in", tmp_path / "out", publish=["T"], snapshot_every=3) as run:
        assert len([*run.steps()]) == 5
    assert [query(tmp_path / "out", "FROM t", epoch).num_rows for epoch in range(1, 6)] == [1, 2, 3, 4, 5]


REFUSED = {
    "nothing": (["nothing"], UnknownNameError, "nothing"),
    "not kept": (["free"], UsageError, "table free cannot be published: its rows are not kept\\nGive it a primary key"),
    "all and more": (["all", "t"], UnknownNameError, "all"),
    "an empty name": ([""], UnknownNameError, "table"),
}


@pytest.mark.parametrize(("publish", "kind", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_published_is_refused(tmp_path: Path, publish: list[str], kind: Any, told: str) -> None:
    write(tmp_path / "in", 1, {"op": "i", "a": 1, "b": 1})
    with pytest.raises(kind, match=told):
        run_of(SMALL, tmp_path / "in", tmp_path / "out", publish=publish)


def test_all_of_no_kept_tables_is_refused(tmp_path: Path) -> None:
    loose = compile_sql("CREATE TABLE free (x INT); CREATE VIEW w AS SELECT SUM(x) AS s FROM free", rely=False)
    (tmp_path / "in" / "free").mkdir(parents=True)
    with pytest.raises(UsageError, match="no table can be published: the rows of none are kept"):
        run_of(loose, tmp_path / "in", tmp_path / "out", publish=["all"])


def test_types_that_files_do_not_have_are_refused(tmp_path: Path) -> None:
    spans = compile_sql(
        "CREATE TABLE t (a INT PRIMARY KEY, i INTERVAL); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t", rely=False
    )
    write(tmp_path / "in", 1, {"op": "i", "a": 1, "i": "1 day"})
    with pytest.raises(UsageError, match="table t cannot be published: its column i is an INTERVAL, which Parquet"):
        run_of(spans, tmp_path / "in", tmp_path / "out", publish=["all"])


def test_by_the_command_line(tmp_path: Path) -> None:
    write(tmp_path / "in", 1, {"op": "i", "a": 1, "b": 1}, {"op": "i", "a": 2, "b": 1})
    (tmp_path / "v.sql").write_text("CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE VIEW v AS SELECT b, SUM(a) AS s "
                                    "FROM t GROUP BY b")  # fmt: skip
    run = ["run", str(tmp_path / "v.sql"), "--from", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, [*run, "--host", "cluster", "--publish", "t"])
    assert "--publish is not of --host cluster" in str(refused.exception)
    ran = CliRunner().invoke(app, [*run, "--host", "embedded", "--publish", "t, T"])
    assert ran.exit_code == 0, ran.output
    asked = ["query", str(tmp_path / "out"), "--json", "--explain"]
    by_tables = CliRunner().invoke(app, [*asked, "SELECT MIN(a) AS least FROM t"])
    assert json.loads(by_tables.stdout) == {"least": 1}
    assert "v has no column that gives min(t.a)" in by_tables.stderr
    assert "published rows" in by_tables.stderr
    by_views = CliRunner().invoke(app, [*asked, "SELECT SUM(a) AS s FROM t"])
    forced = CliRunner().invoke(app, [*asked, "--no-views", "SELECT SUM(a) AS s FROM t"])
    assert json.loads(by_views.stdout) == json.loads(forced.stdout) == {"s": "3"}


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_extremes_of_all_types(tmp_path: Path, key: str) -> None:
    values = {
        name: [value for value in found if name != "HUGEINT" or abs(value) < 10**38]  # Arrow has 38 digits
        for name, found in EXTREMES.items()
    }
    names = {name: f"t{at}" for at, name in enumerate(values)}
    kept = "" if key else " WITH (keep = all)"
    script = "".join(
        f'CREATE TABLE {table} (k INTEGER{key}, v {name}, epoch INTEGER, "Count" INTEGER){kept};'
        f"CREATE VIEW {table}_n AS SELECT COUNT(v) AS n FROM {table};"
        for name, table in names.items()
    )
    program = compile_sql(script, rely=False, enforced=False)
    for name, table in names.items():
        rows = [*enumerate(values[name]), (-1, None), (-2, values[name][0])]
        for number, (op, some) in enumerate((("i", rows), ("d", rows[::2]))):
            columns = {"k": pa.array([k for k, _ in some], pa.int32())}
            columns["v"] = pa.array([v for _, v in some], arrow_type(parsed(name)))
            columns["epoch"] = columns["Count"] = pa.array([7 for _ in some], pa.int32())
            columns["op"] = pa.array([op for _ in some])
            place = tmp_path / "in" / table
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), place / f"{number}.parquet")
    with run_of(program, tmp_path / "in", tmp_path / "out", publish=("all",)) as run:
        for epoch in run.steps():
            assert epoch.counts["quarantined"] == 0
    for name, table in names.items():
        rows = [*enumerate(values[name]), (-1, None), (-2, values[name][0])]
        for epoch, wanted in ((1, rows), (2, rows[1::2])):
            found = [tuple(row.values()) for row in query(tmp_path / "out", f"FROM {table}", epoch).to_pylist()]
            assert same_bag(found, [(*row, 7, 7) for row in wanted]), (name, epoch)
