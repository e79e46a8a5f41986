"""What the planner takes, what it refuses and how it says so, and that it means what DuckDB means."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from cumulus.errors import BindError, SqlError, SqlSyntaxError, UnsupportedError
from cumulus_ring.nodes import EngineLimits, NodeQueries, QueryPlan, open_engine, plan_query
from support.arriving_rows import Carousel, ask, tables_in_memory

ROWS = {
    "orders": pa.table(
        {
            "id": pa.array(range(1, 9), pa.int32()),
            "customer": ["ann", "bob", "ann", None, "eve", "bob", "ann", "eve"],
            "price": [1.5, 2.0, float("nan"), 4.0, None, 6.5, 7.0, 8.25],
            "lines": [[1], [], [1, 2], None, [3], [4], [5, 6], []],
            "place": [{"town": "Ulm", "zip": at} for at in range(8)],
        }
    ),
    "Customers": pa.table({"Name": ["ann", "bob", "zoe"], "since year": pa.array([1, 2, 3], pa.int16())}),
    "orders__0": pa.table({"id": [100, 200]}),
    "nothing": pa.table({"id": pa.array([], pa.int32()), "text": pa.array([], pa.string())}),
    'of "quotes" and.dots': pa.table({'a "b".c': [1, 2, 3], "é": [None, "x", "y"]}),
}
TABLES = tables_in_memory(ROWS)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(EngineLimits(tmp_path_factory.mktemp("spill"), threads=2)) as connection:
        yield connection


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, rows in ROWS.items():
            connection.register("given", rows)
            quoted = name.replace('"', '""')
            connection.execute(f'CREATE TABLE "{quoted}" AS FROM given')
            connection.unregister("given")
        yield connection


def plan(engine: duckdb.DuckDBPyConnection, sql: str) -> QueryPlan:
    return plan_query(engine, sql, TABLES)


SAME = [
    # Names, in every case of letters and with a schema.
    "SELECT ID, o.Customer FROM ORDERS o",
    "SELECT orders.id FROM main.orders",
    "FROM memory.main.orders SELECT id + 1",
    'SELECT "since year" FROM CUSTOMERS',
    'SELECT "a ""b"".c" + 1, "é" FROM "OF ""quotes"" and.dots"',
    "SELECT * FROM orders__0, orders WHERE orders__0.id > orders.id",
    "SELECT k, customer FROM orders AS t(k)",
    "SELECT orders FROM orders",
    "SELECT * EXCLUDE (lines) REPLACE (id * 2 AS id) FROM orders",
    "SELECT COLUMNS('^(id|price)$') FROM orders",
    "SELECT o.place.town, place.zip FROM orders o",
    # What hides a table.
    "WITH orders AS (SELECT * FROM orders WHERE id > 3) SELECT count(*) FROM orders",
    "WITH orders AS (SELECT 1 AS id), o AS (FROM orders) SELECT * FROM o, main.orders",
    "WITH orders__1 AS (SELECT 7 AS id) SELECT orders.id, orders__1.id FROM nothing, orders__1, orders",
    "WITH orders__1 AS (SELECT 7 AS id) SELECT count(*) FROM orders__1, orders, orders b",
    "WITH o AS (FROM orders) SELECT (WITH o AS (SELECT 5 AS id) SELECT max(id) FROM o), max(id) FROM o",
    "SELECT * FROM (WITH q AS (FROM nothing) FROM q UNION ALL SELECT 3, 'x')",
    "WITH t AS (SELECT * FROM orders) SELECT a.id FROM t a WHERE a.id > 5 UNION ALL SELECT id FROM t WHERE t.id < 2",
    "WITH t AS (FROM orders) FROM t WHERE id > 5 UNION ALL FROM t WHERE id < 3 AND false",
    "WITH t AS NOT MATERIALIZED (FROM orders), u AS (FROM t WHERE id > 6) FROM u UNION ALL FROM u WHERE id = 8",
    "WITH t AS MATERIALIZED (FROM orders) SELECT x.id FROM t x JOIN t y ON x.id = y.id + 1",
    "WITH RECURSIVE r(n) AS (SELECT min(id) FROM orders UNION ALL SELECT n + 1 FROM r, orders WHERE id = n) FROM r",
    "WITH RECURSIVE orders(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM orders WHERE n < 3) FROM orders",
    # Where tables are mentioned.
    "SELECT (SELECT max(id) FROM orders), EXISTS (FROM nothing), 3 IN (SELECT id FROM orders) FROM customers",
    "SELECT name, (SELECT count(*) FROM orders o WHERE o.customer = c.name) FROM customers c ORDER BY 1",
    "SELECT name FROM customers c WHERE NOT EXISTS (FROM orders WHERE customer = name)",
    "SELECT c.name, x.id FROM customers c, LATERAL (SELECT id FROM orders WHERE customer = c.name LIMIT 9) x",
    "SELECT * FROM orders a ASOF JOIN orders b ON a.customer = b.customer AND a.id > b.id",
    "SELECT id, text FROM orders NATURAL LEFT JOIN nothing",
    "SELECT a.id FROM orders a JOIN orders b USING (id) SEMI JOIN orders c ON c.id = a.id + 1",
    "SELECT id FROM orders INTERSECT SELECT id + 2 FROM orders EXCEPT SELECT 4",
    "SELECT id, unnest(lines) FROM orders",
    "SELECT * FROM orders, unnest(lines) AS u(line), range(2) r(i)",
    "FROM orders PIVOT (count(*) FOR customer IN ('ann', 'bob') GROUP BY id)",
    "PIVOT orders ON customer IN ('ann', 'bob') USING max(id)",
    "UNPIVOT (SELECT id, price FROM orders) ON id, price INTO NAME which VALUE what",
    # What DuckDB writes again.
    "SELECT customer, count(*), sum(id) FILTER (id > 2), avg(price) FROM orders GROUP BY ALL ORDER BY ALL",
    "SELECT DISTINCT ON (customer) customer, id FROM orders ORDER BY customer NULLS FIRST, id DESC",
    "SELECT id, row_number() OVER w > 0, lag(id) OVER (ORDER BY id) FROM orders WINDOW w AS (PARTITION BY customer)",
    "SELECT id FROM orders QUALIFY rank() OVER (PARTITION BY customer ORDER BY id) = 1",
    "SELECT customer, grouping(customer), count(*) FROM orders GROUP BY ROLLUP (customer)",
    "SELECT list_transform([1], lambda x: x + id), [y * 2 FOR y IN [1, 2]], {'a': id}, id::VARCHAR || '''' FROM orders",
    "SELECT 1e3, 0.10, DATE '2020-02-29' + INTERVAL 1 MONTH, 'a''b', $$dollars$$, NULL, 1_000 FROM nothing RIGHT JOIN "
    "(SELECT 1) ON true",
    "SELECT price > 5, price = 'nan'::DOUBLE, price FROM orders WHERE price >= 4 OR price IS NULL",
    "SELECT CASE WHEN id % 2 = 0 THEN 'even' END AS parity, min(customer COLLATE NOCASE) FROM orders GROUP BY 1",
    "SELECT count(*) FROM nothing",
    "SELECT sum(id), min(text) FROM nothing",
    "SELECT 1 + 1; -- no table at all",
    "VALUES (1, 'x'), (2, 'y')",
    "TABLE nothing",
    "SELECT * FROM (VALUES (1), (2)) v(a) WHERE a IN (VALUES (2))",
    "SELECT id FROM orders ORDER BY id LIMIT 50% OFFSET 1",
]


@pytest.mark.parametrize("sql", SAME)
def test_a_query_means_what_it_means_to_duckdb(
    sql: str, engine: duckdb.DuckDBPyConnection, oracle: duckdb.DuckDBPyConnection
) -> None:
    with Carousel(3, seed=len(sql)).turning() as carousel:
        found = ask(NodeQueries(engine), sql, TABLES, carousel.ask_for, timeout_s=20)
    wanted = oracle.sql(sql).to_arrow_table()
    assert found.schema.names == wanted.schema.names
    assert found.schema.types == wanted.schema.types
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def test_each_mention_of_a_table_has_needs_of_its_own(engine: duckdb.DuckDBPyConnection) -> None:
    made = plan(engine, "SELECT a.customer FROM orders a JOIN orders b ON a.id = b.id WHERE b.price > 2 AND a.id < 7")
    needs = {each.occurrence.alias: each for each in made.scans}
    assert {alias: set(each.columns) for alias, each in needs.items()} == {
        "a": {"id", "customer"},
        "b": {"id", "price"},
    }
    assert [str(each) for each in needs["a"].predicates] == ["id < 7"]
    assert "price > 2.0::DOUBLE" in map(str, needs["b"].predicates)


def test_a_with_that_is_read_twice_promises_nothing(engine: duckdb.DuckDBPyConnection) -> None:
    made = plan(
        engine,
        "WITH t AS NOT MATERIALIZED (FROM orders) FROM t WHERE id > 5 UNION ALL FROM t WHERE id < 2",
    )
    assert [each.predicates for each in made.scans] == [()] * len(made.scans)
    alone = plan(engine, "WITH t AS (FROM orders) SELECT id FROM t WHERE id > 5")
    assert [str(each) for scan in alone.scans for each in scan.predicates] == ["id > 5"]


REFUSED = [
    ("SELEC 1", SqlSyntaxError, "syntax error"),
    ("", UnsupportedError, "there is no statement"),
    ("SELECT 1; SELECT 2", UnsupportedError, "these are 2 statements"),
    ("COPY orders TO '/tmp/x'", UnsupportedError, "this is COPY"),
    ("COPY (SELECT 1) TO '/tmp/x'", UnsupportedError, "this is COPY"),
    ("ATTACH '/tmp/x' AS x", UnsupportedError, "this is ATTACH"),
    ("SET threads = 8", UnsupportedError, "this is SET"),
    ("PRAGMA version", UnsupportedError, "this is "),
    ("INSERT INTO orders VALUES (1)", UnsupportedError, "this is INSERT"),
    ("UPDATE orders SET id = 1", UnsupportedError, "this is UPDATE"),
    ("CREATE TABLE x AS SELECT 1", UnsupportedError, "this is CREATE"),
    ("EXPLAIN SELECT 1", UnsupportedError, "this is EXPLAIN"),
    ("CALL pragma_version()", UnsupportedError, "this is "),
    ("INSTALL httpfs", UnsupportedError, "this is "),
    ("SHOW ALL TABLES", UnsupportedError, "SHOW ALL TABLES and SHOW DATABASES tell nothing of a ring"),
    ("SHOW DATABASES", UnsupportedError, "SHOW ALL TABLES and SHOW DATABASES tell nothing of a ring"),
    ("DESCRIBE nope", BindError, "there is no table nope on the ring"),
    ("DESCRIBE '/etc/passwd'", BindError, "there is no table /etc/passwd on the ring"),
    ("SUMMARIZE FROM read_csv('/etc/passwd')", UnsupportedError, "read_csv(…)"),
    ("SELECT $1", UnsupportedError, "parameters"),
    ("PIVOT orders ON customer USING max(id)", UnsupportedError, "PIVOT without a list of values"),
    ("FROM read_parquet('/etc/*')", UnsupportedError, "read_parquet(…)"),
    ("FROM READ_CSV('/etc/passwd')", UnsupportedError, "read_csv(…)"),
    ("SELECT (SELECT count(*) FROM glob('/*'))", UnsupportedError, "glob(…)"),
    ("WITH x AS (FROM query('SELECT 1')) FROM x", UnsupportedError, "query(…)"),
    ("FROM query_table('orders')", UnsupportedError, "query_table(…)"),
    ("FROM python_arrow_scan(1, 2, 3)", UnsupportedError, "python_arrow_scan(…)"),
    ("FROM json_execute_serialized_sql('{}')", UnsupportedError, "json_execute_serialized_sql(…)"),
    ("FROM duckdb_settings()", UnsupportedError, "duckdb_settings(…)"),
    ("FROM '/etc/passwd.csv'", BindError, "no table /etc/passwd.csv"),
    ("FROM information_schema.tables", BindError, "no table information_schema.tables"),
    ("FROM other.orders", BindError, "no table other.orders"),
    ("FROM orders AT (VERSION => 1)", UnsupportedError, "another version"),
    ("SELECT 'half \ud800'", SqlSyntaxError, "half a character"),
    ("(SELECT id FROM orders ORDER BY id DESC LIMIT 3) ORDER BY id", UnsupportedError, "same meaning"),
    ("SELECT nosuch(id) FROM orders", UnsupportedError, "nosuch"),
    ("SELECT id FROM orders GROUP BY customer", BindError, "GROUP BY"),
]


@pytest.mark.parametrize(("sql", "kind", "told"), REFUSED)
def test_what_is_refused_is_named(sql: str, kind: type[SqlError], told: str, engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(SqlError) as caught:
        plan(engine, sql)
    assert type(caught.value) is kind
    assert told in str(caught.value)
    assert "__" not in str(caught.value).replace("orders__0", "")


def test_an_unknown_table_is_told_with_those_like_it(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(BindError) as caught:
        plan(engine, "SELECT *\nFROM customers, ordes")
    assert (caught.value.line, caught.value.column) == (2, 17)
    assert "Did you mean orders or orders__0?" in str(caught.value)
    assert "Tables: Customers, " in str(caught.value)


def test_an_unknown_column_is_told_with_those_like_it(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(BindError) as caught:
        plan(engine, "SELECT o.id\nFROM orders o WHERE é = 1 AND o.prize > 3")
    assert 'column "é" not found' in str(caught.value)
    with pytest.raises(BindError) as caught:
        plan(engine, "SELECT o.id,\n  o.prize FROM orders o")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "price" in str(caught.value)


def test_names_may_be_wider_than_a_byte(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(BindError) as caught:
        plan(engine, "SELECT 'ééé' FROM ordres")
    assert (caught.value.line, caught.value.column) == (1, 19)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/written-by-a-ring'",
        "ATTACH '/tmp/attached-by-a-ring'",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
    ],
)
def test_the_sandbox_is_closed_even_to_what_is_not_refused_before(sql: str, engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error), engine.cursor() as cursor:
        cursor.execute(sql)
