"""A table of a ring as a stream of batches: the rows that a query gives, let go when nobody wants more of them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import BindError, CumulusError, EvaluationError, UsageError
from cumulus_ring.process.client import RingClient
from support.ring_faults import wait_until
from support.running_ring import expect_equal, running_ring

pytestmark = pytest.mark.xdist_group("test_ring_held")
ROWS = 200_000


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    source = tmp_path_factory.mktemp("tables")
    rows = pa.table({"n": range(ROWS), 'odd "name"': [f"text {n % 97}" * (n % 5) for n in range(ROWS)]})
    pq.write_table(rows, source / "numbers.parquet", row_group_size=10_000)
    pq.write_table(rows.slice(0, 0), source / "none.parquet")
    with running_ring(source, tmp_path_factory.mktemp("held") / "ring", nodes=3) as client:
        yield client


@pytest.mark.parametrize("columns", [(), ("n",), ('odd "name"', "n")])
@pytest.mark.parametrize("where", ["", "n % 3 = 0 OR n > 150000", "n < 0"])
def test_what_is_held_is_what_a_query_gives(ring: RingClient, columns: tuple[str, ...], where: str) -> None:
    chosen = ", ".join('"' + each.replace('"', '""') + '"' for each in columns) or "*"
    wanted = ring.query(f"SELECT {chosen} FROM numbers" + (f" WHERE {where}" if where else "")).arrow()
    with ring.hold("numbers", columns, where, node="node2") as held:
        expect_equal(held.reader().read_all(), wanted)
        assert held.node == "node2"


def test_a_table_without_rows_has_its_columns(ring: RingClient) -> None:
    with ring.hold("none") as held:
        assert held.schema.names == ["n", 'odd "name"']
        assert list(held) == []


def test_other_engines_take_the_stream(ring: RingClient) -> None:
    held = ring.hold("numbers", ["n"])
    with duckdb.connect() as other:
        other.register("there", held.reader())
        assert other.sql("SELECT count(*), sum(n) FROM there").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_what_is_closed_early_is_let_go(ring: RingClient, batches: int) -> None:
    with ring.hold("numbers", node="node1") as held:
        for _, _ in zip(range(batches), held, strict=False):
            pass
    wait_until(lambda: not ring.status()["nodes"]["node1"]["queries"], 20)
    wait_until(lambda: ring.status()["nodes"]["node1"]["leases"] == 0, 20)


def test_a_client_that_reads_nothing_holds_up_nobody(ring: RingClient) -> None:
    with ring.hold("numbers", node="node1"), ring.hold("numbers", node="node1"):
        assert ring.query("SELECT count(*) FROM numbers", node="node1", timeout=60).rows() == [(ROWS,)]


@pytest.mark.parametrize(
    ("table", "columns", "where", "kind"),
    [
        ("nowhere", (), "", BindError),
        ("numbers", ("x",), "", BindError),
        ("numbers", (), "x = 1", BindError),
        ("numbers", (), "1) UNION (SELECT 1", CumulusError),
        ("numbers", (), "n = ", CumulusError),
        ('numbers"; DROP', (), "", CumulusError),
        ("numbers", (), 'CAST("odd ""name""" AS INT) = 1', EvaluationError),
    ],
)
def test_what_cannot_be_held(
    ring: RingClient, table: str, columns: tuple[str, ...], where: str, kind: type[CumulusError]
) -> None:
    with pytest.raises(kind) as told:
        list(ring.hold(table, columns, where))
    assert told.value.message
    with pytest.raises(UsageError, match="there is no node 'x'"):
        ring.hold("numbers", node="x")
