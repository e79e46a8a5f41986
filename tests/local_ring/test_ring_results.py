"""Results that are kept for row groups, while files and published tables change."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus_ring.process.client import RingClient
from support.orders_stream import OrdersStream
from support.published_orders import QUERIES, SCRIPT
from support.ring_epochs import wait_for_epoch
from support.running_ring import expect_equal, running_ring

SUM = "SELECT g, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY g"
SELECTS = (
    "SELECT cid, COUNT(*) AS n, MAX(discount) AS d FROM orders GROUP BY cid",
    "SELECT oid, SUM(price) AS p, MIN(price) AS low FROM lineitem GROUP BY oid",
    "SELECT nation, COUNT(*) AS n FROM customers JOIN orders USING (cid) GROUP BY nation",
    "SELECT items, revenue FROM revenue WHERE items > 1",
)


def counted(ring: RingClient) -> tuple[int, int]:
    """Return how many row groups were computed, and how many were taken from kept results."""
    counts = [node["splits"] for node in ring.status()["nodes"].values()]
    names = "results computed", "results used again"
    computed, kept = (sum(each[name] for each in counts) for name in names)
    return computed, kept


def write(folder: Path, number: int, seed: int) -> None:
    draw = random.Random(seed)
    rows = pa.table({"g": [draw.randrange(5) for _ in range(1000)], "x": [draw.randrange(99) for _ in range(1000)]})
    pq.write_table(rows, folder / ".aside", row_group_size=250)
    os.replace(folder / ".aside", folder / f"{number}.parquet")


def test_one_changed_file_of_ten_is_computed_again_alone(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "t"
    folder.mkdir(parents=True)
    for number in range(10):
        write(folder, number, number)
    with running_ring(tmp_path / "in", tmp_path / "home", nodes=2) as ring:
        first = ring.query(SUM, node="node1").arrow()
        assert counted(ring) == (40, 0)
        expect_equal(ring.query(SUM, node="node1").arrow(), first)
        assert counted(ring) == (40, 40)
        write(folder, 3, 33)
        wait_for_epoch(ring, 2)
        after = ring.query(SUM, node="node1")
        assert after.epoch == 2
        assert counted(ring) == (44, 76), "a tenth of the row groups is computed again"
        expect_equal(after.arrow(), ring.query(SUM, split=False).arrow())
        expect_equal(ring.query(SUM, node="node1", epoch=1).arrow(), first)


@pytest.mark.slow
def test_a_kept_result_is_never_stale(tmp_path: Path) -> None:
    """A thousand random changes of tables, ten in an epoch."""
    stream, out = OrdersStream(tmp_path / "in", 17, QUERIES), tmp_path / "out"
    program = compile_sql(SCRIPT, rely=False)
    sources = sources_from([str(stream.folder)], program)
    draw = random.Random(17)
    stream.write(200)
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "auto"), publish=("all",), keep=5) as run:
        run.step()
        with running_ring(out, tmp_path / "home", nodes=2) as ring:
            for epoch in range(2, 102):
                stream.write(10)
                run.step()
                wait_for_epoch(ring, epoch)
                for sql in SELECTS:
                    asked = draw.choice([epoch, epoch, epoch, max(1, epoch - 1)])
                    answer = ring.query(sql, node=draw.choice(ring.nodes), epoch=asked, timeout=60)
                    assert answer.epoch == asked
                    expect_equal(answer.arrow(), query(out, sql, asked))
            computed, kept = counted(ring)
            assert kept > computed / 10 > 0
