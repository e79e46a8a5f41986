"""What people ask a real ring: each answer is DuckDB's own over the same files, or one paragraph that says why not."""

from __future__ import annotations

import base64
import json
import os
import signal
import time as clock
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import (
    BindError,
    CumulusError,
    EpochMissingError,
    RingError,
    SqlSyntaxError,
    UnsupportedError,
    UsageError,
)
from cumulus.views.duckdb_sql.functions import set_utc
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from support.command_line import cumulus
from support.running_ring import duckdb_over, expect_equal, running_ring

pytestmark = pytest.mark.xdist_group("test_ring_questions")  # one ring for all of them

ROWS = 5_000
MB = 1 << 20


def write_tables(folder: Path) -> Path:
    """Tables as people have them: of all types, with odd names, empty, all NULL, with texts of 1 MB."""
    folder.mkdir()
    numbers = range(ROWS)
    texts = [None if number % 7 == 0 else f"text {number % 50}" for number in numbers]
    sales = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "shop": pa.array([number % 20 for number in numbers], pa.int32()),
            "price": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(12, 2)),
            "ratio": pa.array(
                [
                    (None, float("nan"), float("inf"), -0.0)[number % 4] if number < 8 else number / 3
                    for number in numbers
                ]
            ),
            "note": pa.array(texts, pa.string()),
        }
    )
    pq.write_table(sales, folder / "Sales.parquet", row_group_size=600)
    shops = {"id": pa.array(range(25), pa.int32()), "name": [f"Shop {number}" for number in range(25)]}
    pq.write_table(pa.table(shops), folder / "shops.parquet")
    pq.write_table(sales.slice(0, 0), folder / "nothing.parquet")
    nulls = {name: pa.nulls(100, kind) for name, kind in (("a", pa.int64()), ("b", pa.string()), ("c", pa.date32()))}
    pq.write_table(pa.table(nulls), folder / "nulls.parquet", row_group_size=30)
    odd = {'a "quoted" name': [1, 2], "Ünï cödé": ["x", "y"], "select": [True, False], "a.b": [0.5, None]}
    pq.write_table(pa.table(odd), folder / "odd names.parquet")
    pq.write_table(pa.table({"n": range(6), "long": [chr(97 + n) * MB for n in range(6)]}), folder / "longs.parquet", 2)
    pq.write_table(every_type(), folder / "types.parquet")
    return folder


def every_type() -> pa.Table:
    moment = datetime(2024, 2, 29, 12, 30, 15, 123456)
    wide = Decimal("12345678901234567890123456789012345.678")
    columns: dict[str, tuple[pa.DataType, list[object]]] = {
        "bool": (pa.bool_(), [True, False, None]),
        "tiny": (pa.int8(), [-128, 127, None]),
        "unsigned": (pa.uint64(), [0, 2**64 - 1, None]),
        "float": (pa.float32(), [0.5, float("nan"), None]),
        "double": (pa.float64(), [float("inf"), -0.0, None]),
        "wide": (pa.decimal128(38, 3), [wide, -wide, None]),
        "narrow": (pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-1), None]),
        "text": (pa.string(), ["", "ÄÖ 🚲\n\"'", None]),
        "bytes": (pa.binary(), [b"", b"\x00\xff", None]),
        "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
        "clock": (pa.time64("us"), [time(0), time(23, 59, 59, 999999), None]),
        "moment": (pa.timestamp("us"), [moment, datetime(1900, 1, 1), None]),
        "zoned": (
            pa.timestamp("us", "UTC"),
            [moment.replace(tzinfo=UTC), moment.replace(tzinfo=UTC) + timedelta(1), None],
        ),
        "list": (pa.list_(pa.int32()), [[1, None], [], None]),
        "struct": (pa.struct({"x": pa.int32(), "y": pa.string()}), [{"x": 1, "y": "a"}, {"x": None, "y": None}, None]),
        "map": (pa.map_(pa.string(), pa.int32()), [[("k", 1)], [], None]),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("files") / "tables")


@pytest.fixture(scope="module")
def ring(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    with running_ring(source, tmp_path_factory.mktemp("ring") / "home", nodes=2) as client:
        yield client


@pytest.fixture(scope="module")
def alone(source: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_over(source) as connection:
        set_utc(connection)
        yield connection


ANSWERED = [
    "SHOW TABLES",
    "DESCRIBE Sales",
    'DESC "odd names"',
    "SHOW types",
    "DESCRIBE SELECT price * 2 AS twice FROM sales",
    "SELECT column_name, column_type, min, max, count, null_percentage FROM (SUMMARIZE sales)",
    "SUMMARIZE SELECT * FROM nothing",
    "SELECT column_name FROM (DESCRIBE shops) WHERE column_type = 'VARCHAR'",
    "SELECT * FROM types",
    "SELECT wide + 1, wide * 2, narrow + narrow, sum(wide) OVER () FROM types",
    "SELECT struct.x, list[1], map['k'], \"bytes\" FROM types",
    "SELECT * FROM nothing",
    "SELECT count(*), sum(price), max(note) FROM nothing",
    "SELECT shop, count(*) FROM nothing GROUP BY shop",
    "SELECT * FROM sales s LEFT JOIN nothing n ON s.id = n.id WHERE s.id < 10",
    "SELECT * FROM nulls",
    "SELECT count(*), count(a), count(b), min(c) FROM nulls WHERE b IS NULL",
    "SELECT * FROM nulls WHERE a = 1",
    "SELECT id, ratio FROM sales WHERE ratio = 'nan'::DOUBLE OR ratio > 1e300",
    "SELECT max(ratio), min(ratio), count(ratio) FROM sales",
    "SELECT ratio, count(*) FROM sales WHERE id < 8 GROUP BY ratio",
    'SELECT "a ""quoted"" name" AS a, "Ünï cödé", "select", "a.b" FROM "odd names"',
    'SELECT "A ""QUOTED"" NAME" FROM "ODD NAMES" WHERE "SELECT"',
    "SELECT ID, PRICE FROM SALES WHERE Shop = 3 AND NOTE LIKE '%3'",
    'SELECT "s"."Id" FROM "sAlEs" AS "s" WHERE s.ID < 3',
    "SELECT n, length(long), left(long, 3) FROM longs",
    "SELECT long FROM longs WHERE n = 5",
    "WITH RECURSIVE t(n, total) AS (SELECT 0, 0::HUGEINT UNION ALL SELECT n + 1, total + (SELECT sum(shop) FROM sales "
    "WHERE id % 30 = n) FROM t WHERE n < 20) SELECT * FROM t",
    "WITH RECURSIVE up(id) AS (SELECT id FROM shops WHERE id = 24 UNION SELECT s.id FROM shops s JOIN up ON s.id = "
    "up.id - 1) SELECT count(*), sum(id) FROM up",
    " UNION ALL ".join(
        f"SELECT {place} AS branch, sum(price) AS p FROM sales WHERE shop = {place}" for place in range(10)
    ),
    "SELECT * FROM (SELECT * FROM shops LIMIT 30)",
    "SELECT count(*) FROM (SELECT id FROM sales LIMIT 700)",
    "SELECT id, name FROM shops WHERE EXISTS (SELECT 1 FROM sales WHERE sales.shop = shops.id AND price > 49.5)",
    "SELECT name FROM shops WHERE id NOT IN (SELECT shop FROM sales)",
    "SELECT name, (SELECT max(price) FROM sales WHERE shop = shops.id) AS best FROM shops",
    "SELECT id, row_number() OVER (PARTITION BY shop ORDER BY price DESC) AS place FROM sales QUALIFY place <= 2",
    "SELECT id, avg(price) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM sales WHERE id < 200",
    "SELECT count(*), sum(e.price) FROM sales a JOIN sales b ON a.id = b.id - 1 JOIN sales c ON b.id = c.id - 1 JOIN "
    "sales d ON c.id = d.id - 1 JOIN sales e ON d.id = e.id - 1 WHERE a.shop < 5",
    "SELECT 1 AS one, NULL AS nothing, [1, 2] AS list, {'a': 1} AS struct",
    "FROM shops SELECT name ORDER BY id DESC",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT DISTINCT shop FROM sales ORDER BY ALL",
    "SELECT shop, note, count(*) FROM sales GROUP BY CUBE (shop, note)",
    "SELECT id FROM sales EXCEPT SELECT id FROM sales WHERE id >= 10",
    "SELECT approx_count_distinct(id) > 0, list(id ORDER BY id)[:3], histogram(shop) FROM sales",
    "SELECT * FROM sales ASOF JOIN shops ON sales.shop >= shops.id WHERE sales.id < 50",
]


@pytest.mark.parametrize("sql", ANSWERED)
def test_an_answer_is_what_duckdb_says_of_the_same_files(
    ring: RingClient, alone: duckdb.DuckDBPyConnection, sql: str
) -> None:
    expect_equal(ring.query(sql, timeout=60).arrow(), alone.sql(sql).to_arrow_table())


def test_a_limit_without_order_gives_some_of_the_rows(ring: RingClient, alone: duckdb.DuckDBPyConnection) -> None:
    found = ring.query("SELECT id, note FROM sales LIMIT 10 OFFSET 3").arrow().to_pylist()
    every = alone.sql("SELECT id, note FROM sales").to_arrow_table().to_pylist()
    assert len({row["id"] for row in found}) == 10
    assert all(row in every for row in found)


def test_rows_as_json_are_those_of_query(ring: RingClient, source: Path) -> None:
    """`cumulus ring query --json` says what `json` and `str` make of each value that JSON has."""
    said = cumulus("ring", "query", "SELECT * FROM types", "--home", ring.home, "--json")
    assert said.returncode == 0
    wanted = pq.read_table(source / "types.parquet").to_pylist()
    for row in wanted:
        row["bytes"] = None if row["bytes"] is None else base64.b64encode(row["bytes"]).decode()
        for name in ("float", "double"):
            row[name] = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(row[name]), row[name])
    found = [json.loads(line, parse_constant=pytest.fail) for line in said.stdout.splitlines()]
    assert len(found) == 3
    for row, original in zip(found, wanted, strict=True):
        assert list(row) == list(original)
        assert repr(row) == repr(json.loads(json.dumps(original, default=str)))


def test_rows_in_a_table_say_the_epoch_and_the_node_beside_them(ring: RingClient) -> None:
    said = cumulus("ring", "query", "select NAME from Shops where id = 3", "--home", ring.home, "--node", "node2")
    assert (said.returncode, said.stderr) == (0, "epoch 1, by node2\n")
    assert "Shop 3" in said.stdout


REFUSED = [
    ("SELECT * FROM sale", BindError, "1:15: there is no table sale on the ring", "Did you mean Sales"),
    ("SELECT * FROM a.b.c", CumulusError, "", ""),
    ("SELECT prise FROM sales", BindError, "1:8: .*prise", "Columns: sales"),
    ("SELECT s.nope FROM sales s", BindError, "nope", ""),
    ("SELECT nope(1)", CumulusError, "nope", ""),
    ("SELEC 1", SqlSyntaxError, "SELEC", "one SELECT"),
    ("SELECT 1 FROM", SqlSyntaxError, "", "one SELECT"),
    ("", UnsupportedError, "there is no statement", ""),
    (" ; -- nothing", UnsupportedError, "there is no statement", ""),
    ("SELECT 1; SELECT 2", UnsupportedError, "these are 2 statements", "one by one"),
    ("INSERT INTO sales SELECT * FROM sales", UnsupportedError, "this is INSERT", ""),
    ("CREATE TABLE t AS SELECT 1", UnsupportedError, "this is CREATE", ""),
    ("DROP TABLE sales", UnsupportedError, "this is DROP", ""),
    ("COPY sales TO '/tmp/x.csv'", UnsupportedError, "this is COPY", ""),
    ("ATTACH '/tmp/x.db'", UnsupportedError, "this is ATTACH", ""),
    ("SET threads = 7", UnsupportedError, "this is SET", ""),
    ("PRAGMA database_list", UnsupportedError, "this is PRAGMA", ""),
    ("INSTALL httpfs", UnsupportedError, "this is LOAD", ""),
    ("EXPLAIN SELECT 1", UnsupportedError, "this is EXPLAIN", ""),
    ("SELECT * FROM read_parquet('/etc/passwd')", UnsupportedError, "read_parquet", ""),
    ("SELECT * FROM read_csv('/etc/passwd')", UnsupportedError, "read_csv", ""),
    ("SELECT * FROM '/etc/passwd'", BindError, "there is no table /etc/passwd", ""),
    ("SELECT content FROM read_text('/etc/passwd')", UnsupportedError, "read_text", ""),
    ("SELECT * FROM glob('/*')", UnsupportedError, "glob", ""),
    ("SELECT * FROM query('SELECT 1')", UnsupportedError, "query", ""),
    ("SELECT getenv('HOME')", CumulusError, "getenv", ""),
    ("SELECT * FROM shops WHERE id = ?", UnsupportedError, "parameters", "Write the values"),
    ("SELECT * FROM shops WHERE id = $id", UnsupportedError, "parameters", "Write the values"),
    ("SELECT CAST(name AS INTEGER) FROM shops", CumulusError, "Shop", "TRY_CAST"),
    ("SELECT error('as I say')", CumulusError, "as I say", ""),
    ("SELECT \ud800", SqlSyntaxError, "half a character", ""),
    (
        "SELECT 1 FROM shops s0" + "".join(f" JOIN shops s{n} ON s{n}.id = s0.id" for n in range(1, 600)),
        UnsupportedError,
        "nested too deeply",
        "WITH",
    ),
    ("SELECT " + "(" * 3_000 + "1" + ")" * 3_000, CumulusError, "", ""),
    ("SELECT " + "+".join(["id"] * 3_000) + " FROM sales", CumulusError, "", ""),
]


@pytest.mark.parametrize(("sql", "kind", "message", "hint"), REFUSED, ids=[repr(each[0][:40]) for each in REFUSED])
def test_what_cannot_be_asked_is_refused_in_a_paragraph(
    ring: RingClient, sql: str, kind: type[CumulusError], message: str, hint: str
) -> None:
    with pytest.raises(kind, match=message or None) as problem:
        ring.query(sql, node="node1", timeout=30)
    said = str(problem.value)
    assert hint in said
    assert "\n\n" not in said
    assert "Traceback" not in said
    assert "RecursionError" not in said
    assert ring.query("SELECT count(*) AS c FROM shops", node="node1").arrow().to_pylist() == [{"c": 25}]


def test_the_command_line_says_one_paragraph_and_ends_with_1_or_2(ring: RingClient, tmp_path: Path) -> None:
    def refusal(*arguments: str | Path) -> tuple[int, str]:
        said = cumulus("ring", "query", *arguments)
        assert said.stdout == ""
        assert said.stderr.startswith("error: ")
        assert "\n\n" not in said.stderr
        return said.returncode, said.stderr

    home = ("--home", ring.home)
    code, said = refusal("SELECT * FROM sale", *home)
    assert code == 1
    assert "Did you mean Sales?" in said
    code, said = refusal("SELECT 1", *home, "--node", "node7")
    assert code == 2
    assert "The ring has: node1, node2." in said
    code, said = refusal("SELECT 1", *home, "--epoch", "7")
    assert code == 1
    assert "no epoch 7" in said
    code, said = refusal("SELECT 1", "--home", tmp_path)
    assert code in (1, 2)
    assert "not the home of a ring" in said
    code, said = refusal("SELECT 1", "--home", tmp_path / "missing")
    assert code in (1, 2)
    assert "not the home of a ring" in said


def test_python_says_the_same(ring: RingClient) -> None:
    with pytest.raises(UsageError, match="there is no node 'node7'"):
        ring.query("SELECT 1", node="node7")
    with pytest.raises(EpochMissingError, match="no epoch 7") as problem:
        ring.query("SELECT 1", epoch=7)
    assert problem.value.epochs == (1,)
    with pytest.raises(CumulusError):
        ring.query("SELECT 1", epoch=-1)
    with pytest.raises(BindError) as unknown:
        ring.query("SELECT *\nFROM shop")
    assert (unknown.value.line, unknown.value.column) == (2, 6)


def test_a_lost_node_and_a_ring_that_has_stopped(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "home", nodes=2) as ring:
        os.kill(read_address(ring.home).pids["node2"], signal.SIGKILL)
        until = clock.monotonic() + 10
        while "node2" in ring.nodes and clock.monotonic() < until:
            clock.sleep(0.02)
        said = cumulus("ring", "query", "SELECT 1", "--home", ring.home, "--node", "node2")
        assert said.returncode == 1
        assert said.stderr.startswith("error: node2 is lost: ")
        assert ring.query("SELECT count(*) AS c FROM sales", node="any").arrow().to_pylist() == [{"c": ROWS}]
    said = cumulus("ring", "query", "SELECT 1", "--home", ring.home)
    assert said.returncode == 1
    assert "the ring is not running" in said.stderr


def test_two_tables_of_one_name_are_refused_at_the_start(source: Path, tmp_path: Path) -> None:
    twice = tmp_path / "twice"
    twice.mkdir()
    pq.write_table(pa.table({"a": [1]}), twice / "T.parquet")
    pq.write_table(pa.table({"a": [1]}), twice / "t.parquet")
    said = cumulus("ring", "start", "--from", twice, "--home", tmp_path / "home")
    assert said.returncode in (1, 2)
    assert said.stderr.startswith("error: ")
    assert "T.parquet" in said.stderr
    assert "t.parquet" in said.stderr
    assert "\n\n" not in said.stderr


@pytest.mark.slow
def test_texts_that_do_not_fit_are_refused_in_a_paragraph(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "home", nodes=2, storage=2_000_000) as ring:
        for node in ring.nodes:
            with pytest.raises(RingError, match="bytes") as problem:
                ring.query("SELECT length(long) FROM longs", node=node, timeout=30)
            assert "--storage" in str(problem.value)
            assert "\n\n" not in str(problem.value)
            assert ring.query("SELECT count(*) AS c FROM sales", node=node).arrow().to_pylist() == [{"c": ROWS}]
            assert ring.query("SELECT sum(n) AS s FROM longs", node=node).arrow().to_pylist() == [{"s": 15}]


def test_tables_and_columns_are_listed(ring: RingClient) -> None:
    assert list(ring.tables()) == ["Sales", "longs", "nothing", "nulls", "odd names", "shops", "types"]
    assert ring.tables()["Sales"] == {"rows": ROWS, "columns": 5}
    told = cumulus("ring", "tables", "--home", ring.home)
    assert [line.replace("│", "").split() for line in told.stdout.splitlines()[2:4]] == [
        ["Sales", f"{ROWS}", "5"],
        ["longs", "6", "2"],
    ]
    told = cumulus("ring", "tables", "odd names", "--json", "--home", ring.home)
    columns = [tuple(json.loads(line).values()) for line in told.stdout.splitlines()]
    assert columns[:2] == [('a "quoted" name', "BIGINT"), ("Ünï cödé", "VARCHAR")]
    told = cumulus("ring", "tables", 'x"; DROP', "--home", ring.home)
    assert (told.returncode, told.stdout) == (1, "")
    assert 'there is no table x"; DROP on the ring' in told.stderr


def test_rows_are_printed_within_bounds_and_written_whole(ring: RingClient, tmp_path: Path) -> None:
    def query(sql: str, *options: object) -> str:
        told = cumulus("ring", "query", sql, "--home", ring.home, *options)
        assert told.returncode == 0, told.stderr
        return told.stdout

    wanted = ring.query("SELECT * FROM sales ORDER BY id").arrow()
    lines = query("SELECT * FROM sales ORDER BY id").splitlines()
    assert len(lines) == 1_004
    assert lines[-2:] == [
        "the first 1,000 of 5,000 rows",
        "All of them: --json, --csv, --parquet FILE or --arrow FILE.",
    ]
    assert len(query("SELECT * FROM sales", "--json").splitlines()) == ROWS
    assert query("SELECT id, note FROM sales ORDER BY id LIMIT 2", "--csv") == '"id","note"\n0,\n1,"text 1"\n'
    assert query("SELECT * FROM sales ORDER BY id", "--parquet", tmp_path / "a.parquet").endswith("5,000 rows\n")
    assert pq.read_table(tmp_path / "a.parquet").drop_columns("ratio") == wanted.drop_columns("ratio")
    query("SELECT * FROM sales ORDER BY id", "--arrow", tmp_path / "a.arrow")
    with pa.ipc.open_stream(tmp_path / "a.arrow") as reader:
        assert reader.read_all().drop_columns("ratio") == wanted.drop_columns("ratio")
