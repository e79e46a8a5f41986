"""The tables that a run publishes, on a ring: rows that come and go, at each epoch as `cumulus query` reads them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import BindError
from cumulus_ring.process.client import RingClient
from support.orders_stream import OrdersStream
from support.published_orders import QUERIES, SCRIPT, check_tables
from support.ring_epochs import wait_for_epoch
from support.running_ring import expect_equal, running_ring

SELECTS = (
    "FROM customers",
    "SELECT * FROM orders",
    "SELECT * FROM lineitem",
    "SELECT nation, SUM(price) AS s FROM customers JOIN orders USING (cid) JOIN lineitem AS l USING (oid) GROUP BY ALL",
    "SELECT o.c, COUNT(*) AS n FROM orders AS o(a, c) JOIN orders p ON o.a = p.oid WHERE o.c > 1 GROUP BY o.c",
    "WITH customers AS (SELECT oid AS cid FROM orders) SELECT MAX(cid) AS m, COUNT(*) AS n FROM customers",
    'WITH "data of orders" AS (SELECT 7 AS seven) SELECT COUNT(*) AS n FROM orders, "data of orders"',
    "SELECT (SELECT COUNT(*) FROM lineitem WHERE lineitem.oid = orders.oid) AS n, oid FROM orders",
    "SELECT revenue, items FROM revenue",
)


def test_tables_of_a_run_are_on_the_ring(tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 8, QUERIES), tmp_path / "out"
    program = compile_sql(SCRIPT, rely=False)
    sources = sources_from([str(stream.folder)], program)
    how = {"layout": "one-round:orders=oid+lineitem=oid", "buckets": 2, "publish": ("all",)}
    for _ in range(9):
        stream.write(40)
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "auto"), **how) as run:  # type: ignore[arg-type]
        for _ in range(6):
            run.step()
        with running_ring(out, tmp_path / "home", nodes=2) as ring:
            expect_tables(ring, out, 6)
            before = query(out, "FROM lineitem", 6)
            for epoch in (7, 8, 9):
                run.step()
                wait_for_epoch(ring, epoch)
                expect_tables(ring, out, epoch)
            expect_equal(ring.query("FROM lineitem", epoch=7).arrow(), query(out, "FROM lineitem", 7))
            expect_equal(query(out, "FROM lineitem", 6), before)
            explained = ring.explain(SELECTS[3])[0]
            assert "data of lineitem" in explained
            with pytest.raises(BindError, match="no table data of orders"):
                ring.query('FROM "data of orders"')
            with pytest.raises(BindError):
                ring.query("SELECT epoch FROM orders")
    check_tables(stream, out)
    manifest = newest_manifest(out)
    assert manifest is not None
    assert any(bucket["gone"] for table in manifest.tables.values() for bucket in table["buckets"].values())


def expect_tables(ring: RingClient, out: Path, epoch: int) -> None:
    for sql in SELECTS:
        answer = ring.query(sql, timeout=60)
        assert answer.epoch == epoch
        expect_equal(answer.arrow(), query(out, sql, epoch))
        expect_equal(ring.query(sql, timeout=60, split=False).arrow(), query(out, sql, epoch))
    counted = {name: query(out, f"FROM {name}", epoch).num_rows for name in (*QUERIES, "revenue")}
    assert {name: told["rows"] for name, told in ring.tables().items()} == counted
    assert ring.query("SHOW TABLES").rows() == [(name,) for name in sorted(counted)]
    described = ring.query("SELECT column_name, column_type FROM (DESCRIBE orders)").rows()
    assert described == [("oid", "INTEGER"), ("cid", "INTEGER"), ("discount", "DECIMAL(4,2)")]
