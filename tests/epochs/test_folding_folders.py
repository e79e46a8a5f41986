"""Folding cubes from the files of epochs: whatever the buckets, it is what DuckDB says of the rows so far."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import cumulus
from cumulus.catalog.arrow import table_of
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.sources import sources_from
from cumulus.errors import DelayError, StoreError, UnknownNameError, UsageError
from cumulus.m3.program import Program
from support.cubes_of_orders import CUBES, LEVELS, QUERIES, SCRIPT, SELECTIONS
from support.engines import engine_of
from support.oracle import same_bag
from support.orders_stream import OrdersStream


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_sql(SCRIPT, rely=False)


pytestmark = pytest.mark.usefixtures("each_engine")


def rows_of(partial: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in partial.finish().to_pylist()]


SPREAD = "one-round:orders=oid+lineitem=oid"


@pytest.mark.parametrize(
    ("layout", "buckets"),
    [(SPREAD, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in (("one-bucket", 1), (SPREAD, 8)))],
)
def test_a_fold_is_right_after_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program, layout: str, buckets: int
) -> None:
    stream = OrdersStream(tmp_path / "in", 5, QUERIES)
    for _ in range(3):
        stream.write(40)
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(
        program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=buckets, keep=2
    ) as run:
        assert run.identity.plan.buckets == buckets
        for _ in run.steps():
            pass
    folder = OutputFolder(tmp_path / "out")
    assert folder.epochs == [2, 3]
    for epoch, (at, (view, by, _, where)) in product(folder.epochs, enumerate(SELECTIONS)):
        for few in (0, 1 << 30):  # by columns, and entry by entry
            monkeypatch.setattr("cumulus.views.folding.reading.FEW_ENTRIES", few)
            found = folder.fold(view, list(by), where, epoch=epoch)
            assert found.at == epoch
            assert same_bag(rows_of(found), stream.answers[epoch][f"{at}"]), (epoch, view, by, where)
            level = min((each for each in LEVELS.get(view, ()) if set(each) >= {*by, *where}), key=len, default=None)
            assert found.choice.view == (view if level is None else f"{view} by {', '.join(level) or '()'}")
    assert read_manifest(tmp_path / "out", 3).views.keys() == {*CUBES, "revenue"}  # nobody asked for rows of levels
    listed = read_manifest(tmp_path / "out", 3).parts
    assert {len(files) for files in listed.values()} == {1, buckets}  # one of what all buckets have
    kept = [file for epoch in folder.epochs for file in parts_of(tmp_path / "out", epoch)]
    assert {f"data/parts/{file.name}" for file in (tmp_path / "out/data/parts").iterdir()} == set(kept)


def parts_of(out: Path, epoch: int) -> list[str]:
    return [path for files in read_manifest(out, epoch).parts.values() for path in files.values()]


KINDS = {
    "BIGINT": [1, -7, None, 2**62],
    "BOOLEAN": [True, False, None],
    "DATE": [date(1969, 12, 31), date(2024, 2, 29), None],
    "TIMESTAMP": [datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2024, 1, 1), None],
    "TIMESTAMPTZ": [datetime(2024, 1, 1, tzinfo=UTC), None],
    "VARCHAR": ["", "ä", "z", "zz", None],
    "DECIMAL(9,2)": [Decimal("-0.01"), Decimal("12.50"), None],
    "DECIMAL(30,4)": [Decimal("12345678901234567890.1234"), Decimal("-1.0000"), None],
    "HUGEINT": [10**20, -(10**20), 0, None],
    "DOUBLE": [0.5, -0.0, float("nan"), float("inf"), None],
}
MEANT = """COUNT(*) AS n, SUM(k0) AS whole, SUM(k6) AS exact, SUM(k7) AS wide, AVG(k8) AS huge, SUM(x) AS total,
 MIN(k5) AS low, MAX(k3) AS last, COUNT(DISTINCT k5) AS texts"""


def test_all_kinds_of_keys_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"k{place}" for place in range(len(KINDS))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, KINDS, strict=True))
    keys = ", ".join(names)
    sql = f"CREATE TABLE t ({columns}, x DOUBLE); "
    dimensions = " ".join(f"DIMENSION {name}" for name in names)
    sql += f"CREATE CUBE c {dimensions} AS SELECT {keys}, {MEANT} FROM t GROUP BY {keys}"
    draw = random.Random(1)
    rows = [(*map(draw.choice, KINDS.values()), draw.choice([0.1, 2.5, None])) for _ in range(60)]
    program, warehouse = compile_sql(sql, rely=False), cumulus.Warehouse(sql)
    warehouse.insert("t", rows)
    (tmp_path / "in" / "t").mkdir(parents=True)
    pq.write_table(table_of(program.relation("t").columns, rows), tmp_path / "in" / "t" / "1.parquet")
    with EmbeddedRun(
        program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", make_engine=engine_of
    ) as run:
        run.step()
    folder = OutputFolder(tmp_path / "out")
    for name, values in zip(names, KINDS.values(), strict=True):
        low, high = values[0], values[1] or values[0]
        bounds = (values[:2], None, cumulus.between(low), cumulus.between(None, high))
        for where in ({}, *({name: bound} for bound in bounds)):
            expected = rows_of(warehouse.view("c").fold([name], where))
            for few in (0, 1 << 30):
                monkeypatch.setattr("cumulus.views.folding.reading.FEW_ENTRIES", few)
                assert same_bag(rows_of(folder.fold("c", [name], where)), expected), (name, where, few)


def test_only_what_has_changed_is_written(tmp_path: Path, program: Program) -> None:
    stream = OrdersStream(tmp_path / "in", 6)
    stream.write()
    stream.write()
    for name in ("orders", "lineitem"):
        (tmp_path / "in" / name / "00002.parquet").unlink()
    out = tmp_path / "out"
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), out, make_engine=engine_of) as run:
        assert [epoch.number for epoch in run.steps()] == [1, 2]
    first, second = (read_manifest(out, epoch).parts for epoch in (1, 2))
    assert {name for name in first if first[name] != second[name]} >= set(program.view("people").reads)
    assert first["items"] == second["items"]


def after_one_epoch(folder: Path, program: Program, seed: int) -> Path:
    OrdersStream(folder / "in", seed).write()
    out = folder / "out"
    with EmbeddedRun(program, sources_from([str(folder / "in")], program), out, make_engine=engine_of) as run:
        run.step()
    return out


def test_columns_and_rows_that_are_not_needed_are_not_read(tmp_path: Path, program: Program) -> None:
    out = after_one_epoch(tmp_path, program, 7)
    folder = OutputFolder(out)
    whole = folder.fold("items", ["oid"], columns=["n"])
    some = folder.fold("items", ["oid"], {"oid": [3, 4, 5]}, ["n"])
    assert some.entries_read == len(rows_of(some)) < whole.entries_read


@pytest.mark.slow
def test_a_cube_of_a_folder_is_no_older_than_asked(tmp_path: Path, program: Program) -> None:
    out = after_one_epoch(tmp_path, program, 7)
    asked = cumulus.Cube(out, "sales").rollup("nation")
    expected = asked.rows()
    for read in ("committed", "tentative"):  # what is committed is good enough for both
        assert asked.reading(read=read, after=1, max_staleness=3600).rows() == expected
    with pytest.raises(DelayError, match=r"the last epoch was committed \d\.\d s ago, longer than 0 s"):
        asked.reading(max_staleness=0).rows()
    with pytest.raises(DelayError, match="epoch 2 is not committed yet"):
        asked.reading(after=2).rows()


def test_what_cannot_be_folded_says_why(tmp_path: Path, program: Program) -> None:
    out = after_one_epoch(tmp_path, program, 8)
    folder = OutputFolder(out)
    with pytest.raises(UsageError, match=r"view revenue of .* is no cube") as refused:
        folder.fold("revenue", [])
    assert "CREATE CUBE revenue" in refused.value.hint
    with pytest.raises(UnknownNameError, match="there is no grouping column of sales city"):
        folder.fold("sales", ["nation"], {"city": 1})
    with pytest.raises(UsageError, match="epoch 7 is not there"):
        folder.fold("sales", ["nation"], epoch=7)
    (out / "program.m3").unlink()
    with pytest.raises(StoreError, match=r"did not write its program, program\.m3"):
        OutputFolder(out).view("sales")
