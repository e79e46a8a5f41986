"""Views with LIMIT in several buckets: each tells only what may be among the first rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import read_table
from cumulus.epochs.output.publish import merge_functions, write_outputs
from cumulus.epochs.output.shares import read_share
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from support.tiers import examples

TABLES = """
CREATE TABLE sales (shop INT NOT NULL, kind INT NOT NULL, x INT, f DOUBLE);
CREATE TABLE kinds (kind INT NOT NULL, name VARCHAR NOT NULL);
"""
VIEWS = {
    "by_sum": "SELECT shop, SUM(x) AS s, COUNT(*) AS n FROM sales GROUP BY shop ORDER BY n DESC, shop LIMIT 3",
    "by_key": "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop ORDER BY shop LIMIT 2 OFFSET 2",
    "many": "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop HAVING SUM(x) > 20 ORDER BY n, shop LIMIT 4",
    "named": "SELECT shop, name, COUNT(*) AS n FROM sales s JOIN kinds k ON s.kind = k.kind GROUP BY shop, name "
    "ORDER BY n DESC, shop, name LIMIT 3",
    "floats": "SELECT shop, SUM(f) AS s, COUNT(*) AS n FROM sales GROUP BY shop ORDER BY s DESC, shop LIMIT 3",
    "kinds_of_all": "SELECT kind, COUNT(*) AS n FROM sales GROUP BY kind ORDER BY n DESC, kind LIMIT 2",
}
PROGRAM = compile_sql(
    TABLES + "".join(f"CREATE VIEW {name} AS {select};" for name, select in VIEWS.items()), rely=False
)
SHARED = BucketPlan(3, {"sales": ("shop",)})
SCHEMA = pa.schema(
    [("op", pa.string()), ("shop", pa.int32()), ("kind", pa.int32()), ("x", pa.int32()), ("f", pa.float64())]
)


def rows_of_epoch(draw: random.Random, there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for _ in range(draw.randrange(1, 30)):
        if there and draw.random() < 0.4:
            rows.append({**there.pop(draw.randrange(len(there))), "op": "d"})
            continue
        x = draw.choice([None, *range(-5, 20)])
        f = draw.randrange(-40, 40) / 8
        there.append({"shop": draw.randrange(40), "kind": draw.randrange(3), "x": x, "f": f})
        rows.append({**there[-1], "op": "i"})
    return rows


def written(
    plan: BucketPlan, buckets: list[Bucket], epoch: int, payloads: list[bytes], out: Path
) -> list[dict[str, str]]:
    """Apply an epoch; return the files of each bucket."""
    found = []
    for bucket, payload in zip(buckets, payloads, strict=True):
        outcome = bucket.apply(epoch, [payload])
        done = write_outputs(bucket, outcome, epoch, f"{plan.buckets}", out, Snapshots(every=2, last=1))
        assert not outcome.quarantine
        assert not done.errors
        found.append(done.files)
    return found


def compare(seed: int, out: Path) -> None:
    draw, there = random.Random(seed), list[dict[str, Any]]()
    single = BucketPlan()
    whole = [Bucket(PROGRAM, single, 0, Interpreter)]
    parts = [Bucket(PROGRAM, SHARED, index, NativeEngine) for index in range(SHARED.buckets)]
    merge = merge_functions(SHARED, PROGRAM, out)
    assert merge.keys() == VIEWS.keys()
    kinds = pa.table({"op": ["i"] * 3, "kind": pa.array(range(3), pa.int32()), "name": ["a", "b", "a"]})
    for epoch in range(1, 7):
        readings = [
            read_table(
                FolderSource("sales", ""),
                PROGRAM.relation("sales"),
                pa.Table.from_pylist(rows_of_epoch(draw, there), SCHEMA),
                f"sales/{epoch}",
            )
        ]
        if epoch == 1:
            readings.append(read_table(FolderSource("kinds", ""), PROGRAM.relation("kinds"), kinds, "kinds/1"))
        (expected,) = written(single, whole, epoch, pack(readings, single), out)
        shares = written(SHARED, parts, epoch, pack(readings, SHARED), out)
        for view, file in expected.items():
            found = merge[view](epoch, [str(out / each[view]) for each in shares])
            assert pq.read_table(out / found).to_pylist() == pq.read_table(out / file).to_pylist(), (seed, epoch, view)


@pytest.mark.slow
@pytest.mark.law
def test_the_first_rows_of_all_are_among_the_first_of_each(tmp_path: Path) -> None:
    for seed in range(examples(12)):
        compare(seed, tmp_path / str(seed))


def test_no_more_is_told_than_needed(tmp_path: Path) -> None:
    rows = [{"op": "i", "shop": shop, "kind": shop % 3, "x": 1, "f": 0.5} for shop in range(300)]
    rows += [{**row, "x": 2} for row in rows[:150:5]]
    table = pa.Table.from_pylist(rows, SCHEMA)
    reading = read_table(FolderSource("sales", ""), PROGRAM.relation("sales"), table, "sales/1")
    buckets = [Bucket(PROGRAM, SHARED, index, NativeEngine) for index in range(SHARED.buckets)]
    files = written(SHARED, buckets, 1, pack([reading], SHARED), tmp_path)

    def told(view: str) -> int:
        shares = [read_share(PROGRAM, PROGRAM.view(view), (tmp_path / each[view]).read_bytes()) for each in files]
        return sum(len(entries) for share in shares for entries in share.values())

    assert told("by_sum") <= 30  # there are 30 groups of two rows, and who is equal may be next
    assert told("kinds_of_all") == 3 * 3  # of partial sums all are needed
