"""A bank of queries: which go in parts and which as a whole, and that both have the same rows, names and types."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from itertools import pairwise

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulus.errors import BindError, SqlSyntaxError, UnsupportedError
from cumulus.workloads import checks, tpch
from cumulus_ring.nodes import EngineLimits, open_engine, plan_query
from cumulus_ring.nodes.splitting import SplitQuery, WholeQuery, split_query
from support.arriving_rows import tables_in_memory
from support.split_in_parts import answered_in_parts, database, even_parts

_COUNT = 60


def _sales() -> pa.Table:
    numbers = range(_COUNT)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "customer": pa.array([None if at % 11 == 5 else at * 7 % 13 for at in numbers], pa.int32()),
            "product": [None if at % 17 == 3 else ("pear", "Apple", "fig", "apple")[at * 5 % 4] for at in numbers],
            "price": pa.array([decimal.Decimal(at * 31 % 500) / 100 for at in numbers], pa.decimal128(12, 2)),
            "amount": pa.array([None if at % 6 == 1 else at % 9 - 3 for at in numbers], pa.int64()),
            "weight": [None if at % 10 == 9 else float("nan") if at == 33 else at / 7 - 2 for at in numbers],
            "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=at % 5) for at in numbers],
            "moment": pa.array([at * 1_000_003 for at in numbers], pa.timestamp("us")),
            "paid": [None if at % 8 == 2 else at % 3 > 0 for at in numbers],
            "tags": [None if at % 9 == 8 else [at % 2, None] for at in numbers],
            "wide": pa.array([decimal.Decimal(8 * 10**37)] * _COUNT, pa.decimal128(38, 0)),
        }
    )


ROWS = {
    "sales": _sales(),
    "customers": pa.table(
        {
            "id": pa.array(range(10), pa.int32()),
            "name": ["ann", "Bob", "cid", "Dora", "eve", "fay", "Gil", "hal", "ida", "jon"],
            "nation": pa.array([at % 4 if at else None for at in range(10)], pa.int32()),
        }
    ),
    "nations": pa.table({"id": pa.array(range(3), pa.int32()), "name": ["Kenya", "Peru", "Laos"]}),
    "returns": pa.table(
        {"sale": pa.array([3, 7, 7, 41, 99], pa.int32()), "reason": ["late", "bad", None, "late", "x"]}
    ),
    "nothing": pa.table({"id": pa.array([], pa.int32()), "text": pa.array([], pa.string())}),
}
TABLES = tables_in_memory(ROWS)

BANK = [
    # Aggregates of all rows.
    ("SELECT count(*) FROM sales", "split sales"),
    ("SELECT count(*), count(amount), sum(amount), min(day), max(product) FROM sales WHERE id > 1000", "split sales"),
    ("SELECT sum(price), sum(price) / count(*), 1 + sum(amount) * 2 AS twice FROM sales", "split sales"),
    ("SELECT avg(amount), avg(price), avg(weight) FROM sales WHERE id <> 33", "split sales"),
    ("SELECT avg(amount) FROM sales WHERE amount IS NULL", "split sales"),
    (
        "SELECT stddev(amount), var_pop(price), var_samp(weight), stddev_pop(id), variance(id) FROM sales WHERE id < 9",
        "split sales",
    ),
    ("SELECT stddev(amount), var_pop(amount), var_samp(amount) FROM sales WHERE id = 4", "split sales"),
    ("SELECT bool_and(paid), bool_or(paid), bool_and(id >= 0), bool_or(NULL::BOOLEAN) FROM sales", "split sales"),
    ("SELECT count(DISTINCT product), count(DISTINCT amount), count(DISTINCT weight) FROM sales", "split sales"),
    ("SELECT count(DISTINCT amount) FROM sales WHERE id < 0", "split sales"),
    ("SELECT count(DISTINCT tags), count(DISTINCT wide), count(DISTINCT day) FROM sales", "split sales"),
    ("SELECT count(DISTINCT id::HUGEINT) FROM sales", "whole: values of type HUGEINT[]"),
    ("SELECT count(DISTINCT product COLLATE NOCASE) FROM sales", "whole: "),
    ("SELECT sum(amount) FILTER (WHERE paid), count(*) FILTER (WHERE paid IS NULL) FROM sales", "split sales"),
    ("SELECT count(DISTINCT customer) FILTER (WHERE paid) FROM sales", "split sales"),
    ("SELECT sum(amount) AS total FROM sales HAVING total > 1000", "split sales"),
    ("SELECT min(DISTINCT amount), max(tags) FROM sales", "split sales"),
    ("SELECT sum(amount ORDER BY id) FROM sales", "split sales"),
    ("SELECT 5 AS five FROM sales HAVING count(*) > 3", "split sales"),
    ("SELECT max(id::HUGEINT * 100000000000000000000000000000000000), sum(id::HUGEINT) FROM sales", "split sales"),
    ("SELECT sum(wide) FROM sales WHERE id < 1", "split sales"),
    ("SELECT sum(weight) FROM sales", "split sales"),
    ("SELECT min(moment), max(moment), max(moment)::DATE FROM sales", "split sales"),
    ("SELECT sum(DISTINCT amount) FROM sales", "whole: sum(DISTINCT …) does not merge"),
    ("SELECT list(id) FROM sales", "whole: list() does not merge"),
    ("SELECT string_agg(product, ',') FROM sales", "whole: string_agg() does not merge"),
    ("SELECT median(price) FROM sales", "whole: median() does not merge"),
    ("SELECT first(id) FROM sales", "whole: first() does not merge"),
    ("SELECT arg_max(product, price) FROM sales", "whole: arg_max() does not merge"),
    ("SELECT max(id, 3) FROM sales", "whole: max() does not merge"),
    ("SELECT avg(moment) FROM sales", "whole: DuckDB refuses its parts"),
    ("SELECT min(product COLLATE NOCASE) FROM sales", "whole: min() does not merge"),
    ("SELECT count(COLUMNS(*)) FROM sales", "whole: "),
    # Groups.
    ("SELECT product, count(*), sum(price) FROM sales GROUP BY product", "split sales"),
    ("SELECT customer, amount, count(*) FROM sales GROUP BY ALL", "split sales"),
    ("SELECT product FROM sales GROUP BY product", "split sales"),
    ("SELECT id % 3 AS rest, id % 3 + 1, sum(id) FROM sales GROUP BY rest ORDER BY rest DESC", "ordered sales"),
    ("SELECT day, paid, max(price) FROM sales GROUP BY 2, 1 ORDER BY 1, 2 NULLS FIRST", "ordered sales"),
    ("SELECT s.product, count(*) FROM sales AS s GROUP BY product HAVING count(*) > 13", "split sales"),
    (
        "SELECT product, sum(price) AS revenue FROM sales GROUP BY S.product ORDER BY revenue DESC, 1 LIMIT 2",
        "whole: DuckDB refuses its parts",
    ),
    (
        "SELECT product, sum(price) AS revenue FROM sales GROUP BY Sales.product ORDER BY revenue DESC, 1 LIMIT 2",
        "ordered sales",
    ),
    ("SELECT product FROM sales GROUP BY product ORDER BY sum(amount) DESC, product LIMIT 3 OFFSET 1", "ordered sales"),
    ("SELECT -id AS id, count(*) FROM sales GROUP BY id HAVING id > 55 ORDER BY id", "ordered sales"),
    ("SELECT id % 2 AS id, count(*) FROM sales GROUP BY id", "split sales"),
    ("SELECT [sum(id), count(*)] AS l, {'a': min(id), 'b': product} FROM sales GROUP BY product", "split sales"),
    ("SELECT id, unnest(tags) FROM sales", "whole: unnest() makes several rows of one"),
    ("SELECT paid, product, grouping(paid), sum(id) FROM sales GROUP BY ROLLUP (paid, product)", "split sales"),
    ("SELECT paid, day, count(*), grouping(paid, day) FROM sales GROUP BY CUBE (paid, day)", "split sales"),
    ("SELECT paid, day, count(*) FROM sales WHERE id < 0 GROUP BY GROUPING SETS ((paid), (day), ())", "split sales"),
    ("SELECT count(*) FROM sales GROUP BY ()", "split sales"),
    ("SELECT 'all' AS label, count(*) FROM sales GROUP BY 1", "split sales"),
    ("SELECT weight, count(*) FROM sales WHERE id > 30 GROUP BY weight", "split sales"),
    ("SELECT tags, count(*) FROM sales GROUP BY tags", "split sales"),
    ("SELECT id::HUGEINT * 3 AS h, md5(product)::UUID AS u, count(*) FROM sales GROUP BY ALL", "split sales"),
    (
        "SELECT day + INTERVAL 1 MONTH AS later, year(day), count(*) FROM sales GROUP BY ALL ORDER BY ALL",
        "ordered sales",
    ),
    (
        "SELECT CASE WHEN sum(amount) > 10 THEN 'much' ELSE 'little' END, product FROM sales GROUP BY product",
        "split sales",
    ),
    (
        "SELECT product, count(*) FROM sales GROUP BY product ORDER BY product COLLATE NOCASE, 2, 1 LIMIT 50%",
        "ordered sales",
    ),
    ("SELECT product COLLATE NOCASE, count(*) FROM sales GROUP BY 1", "whole: it groups by texts under a collation"),
    ("SELECT DISTINCT product FROM sales", "whole: DISTINCT looks at other rows"),
    ("SELECT DISTINCT ON (product) product, id FROM sales ORDER BY product, id", "whole: DISTINCT"),
    ("SELECT product, row_number() OVER (ORDER BY id) FROM sales", "whole: a window"),
    ("SELECT product, sum(sum(price)) OVER () FROM sales GROUP BY product", "whole: a window"),
    ("SELECT id FROM sales QUALIFY rank() OVER (ORDER BY price) = 1", "whole: QUALIFY"),
    ("SELECT id * 2 AS twice, count(*) FROM sales WHERE twice > 9 GROUP BY ALL", "whole: DuckDB refuses its parts"),
    ("SELECT id % 3 AS a, max(price) AS b, b + 1 AS c FROM sales GROUP BY a ORDER BY a + 1", "ordered sales"),
    ("SELECT list_transform(list_value(id % 2), lambda x: x + 1) AS l, count(*) FROM sales GROUP BY l", "split sales"),
    ("SELECT (paid, 'x'::ENUM ('x', 'y')) AS pair, count(*) FROM sales GROUP BY 1", "whole: values of type TUPLE"),
    # Joins.
    (
        "SELECT n.name, sum(price) FROM sales s JOIN customers c ON s.customer = c.id JOIN nations n ON nation = n.id "
        "GROUP BY n.name ORDER BY 2 DESC",
        "ordered sales",
    ),
    (
        "SELECT c.name, count(*) FROM sales, customers c WHERE customer = c.id AND c.name LIKE '%a%' GROUP BY c.name",
        "split sales",
    ),
    ("SELECT c.name, count(*) FROM sales s LEFT JOIN customers c ON s.customer = c.id GROUP BY ALL", "split sales"),
    (
        "SELECT c.name, count(s.id) FROM customers c LEFT JOIN sales s ON s.customer = c.id GROUP BY c.name",
        "split customers",
    ),
    (
        "SELECT c.name, count(s.id) FROM customers c RIGHT JOIN sales s ON s.customer = c.id GROUP BY c.name",
        "split sales",
    ),
    (
        "SELECT count(*), count(c.id), count(s.id) FROM sales s FULL JOIN customers c ON s.customer = c.id",
        "whole: sales is on the side of a FULL JOIN",
    ),
    ("SELECT count(*) FROM sales SEMI JOIN returns ON sale = id", "split sales"),
    ("SELECT count(*) FROM sales ANTI JOIN returns ON sale = id", "split sales"),
    ("SELECT count(*) FROM returns SEMI JOIN sales ON sale = id", "split returns"),
    ("SELECT reason FROM returns ANTI JOIN sales ON sale = id", "split returns"),
    ("SELECT a.id FROM sales a JOIN sales b ON a.id = b.id + 1", "whole: sales is mentioned 2 times"),
    (
        "SELECT count(*) FROM sales a JOIN sales b ON a.id = b.id + 1 JOIN customers c ON c.id = a.customer",
        "split customers",
    ),
    ("SELECT count(*) FROM sales POSITIONAL JOIN customers", "whole: sales is joined by position"),
    ("SELECT s.id, r.sale FROM sales s ASOF JOIN returns r ON s.id >= r.sale", "split sales"),
    ("SELECT r.sale, s.id FROM returns r ASOF LEFT JOIN sales s ON r.sale >= s.id", "split returns"),
    ("SELECT count(*) FROM nothing, sales", "split sales"),
    ("SELECT id, text FROM nothing", "split nothing"),
    ("SELECT s.id, t FROM sales s, unnest(s.tags) AS u(t)", "split sales"),
    ("SELECT id, name FROM customers NATURAL JOIN (SELECT id FROM sales WHERE price > 1)", "split sales"),
    # Sub-queries.
    (
        "SELECT nation, sum(total) FROM (SELECT c.nation, s.price * 2 AS total FROM sales s, customers c WHERE "
        "s.customer = c.id) AS q GROUP BY nation",
        "split sales",
    ),
    (
        "SELECT max(n) FROM (SELECT customer, count(*) AS n FROM sales GROUP BY customer)",
        "whole: sales is grouped in a sub-query",
    ),
    ("SELECT count(*) FROM (SELECT * FROM sales LIMIT 10)", "whole: a LIMIT or DISTINCT ON in a sub-query"),
    ("SELECT count(*) FROM (SELECT DISTINCT product FROM sales)", "whole: sales is in a sub-query with ORDER BY"),
    ("SELECT sum(id) FROM (SELECT id FROM sales UNION ALL SELECT id FROM customers)", "whole: "),
    ("SELECT id FROM sales UNION ALL SELECT id FROM customers", "whole: it is not one SELECT"),
    ("WITH s AS (SELECT id, price FROM sales WHERE id > 7) SELECT count(*), sum(price) FROM s", "split sales"),
    (
        "WITH s AS (SELECT id FROM sales) SELECT count(*) FROM s a, s b WHERE a.id = b.id",
        "whole: sales is in a WITH that is read 2 times",
    ),
    (
        "WITH most AS (SELECT max(id) AS m FROM customers) SELECT count(*) FROM sales, most WHERE customer < m",
        "split sales",
    ),
    ("WITH sales AS (SELECT * FROM sales WHERE id < 9) SELECT count(*) FROM sales", "whole: a WITH has the name"),
    ("SELECT count(*) FROM sales WHERE customer IN (SELECT id FROM customers WHERE nation = 1)", "split sales"),
    ("SELECT sum(id) FROM sales WHERE customer NOT IN (SELECT nation FROM customers)", "split sales"),
    ("SELECT sum(id) FROM sales s WHERE EXISTS (FROM returns WHERE sale = s.id AND reason = 'late')", "split sales"),
    ("SELECT name FROM customers c WHERE EXISTS (FROM sales WHERE customer = c.id)", "split customers"),
    ("SELECT sum(price) FROM sales WHERE price > (SELECT avg(price) FROM sales)", "whole: sales is mentioned 2 times"),
    (
        "SELECT id, (SELECT count(*) FROM returns r WHERE r.sale = s.id) AS back FROM sales s ORDER BY back DESC, id",
        "ordered sales",
    ),
    ("SELECT name, (SELECT sum(nation + n.id) FROM customers c WHERE c.nation = n.id) FROM nations n", "split nations"),
    ("SELECT (SELECT sum(s.id)) FROM sales s", "whole: an aggregate in a sub-query may be one of the outer query"),
    (
        "SELECT product, sum(price) FROM sales GROUP BY product HAVING sum(price) > (SELECT max(id) FROM customers)",
        "split sales",
    ),
    (
        "SELECT customer, (SELECT name FROM customers c WHERE c.id = s.customer) AS name, count(*) FROM sales s "
        "GROUP BY customer",
        "split sales",
    ),
    ("SELECT sum(price), (SELECT max(name) FROM nations) AS last FROM sales", "split sales"),
    (
        "SELECT product, sum(id) IN (SELECT id FROM customers) FROM sales GROUP BY product",
        "whole: a sub-query is compared with an aggregate",
    ),
    ("SELECT count(*) FROM sales WHERE customer = (SELECT id FROM customers LIMIT 1)", "whole: a LIMIT"),
    ("SELECT count(*) FROM sales WHERE product = (SELECT first(name) FROM nations)", "whole: first() in a sub-query"),
    # Filters.
    ("SELECT * FROM sales", "split sales"),
    ("SELECT * EXCLUDE (tags) FROM sales WHERE paid ORDER BY price DESC, id LIMIT 7", "ordered sales"),
    (
        "SELECT id, price, price * 2 AS price2 FROM sales ORDER BY weight NULLS FIRST, id DESC OFFSET 50",
        "ordered sales",
    ),
    ("SELECT -id AS id FROM sales ORDER BY id LIMIT 3", "ordered sales"),
    ("SELECT -id AS id FROM sales ORDER BY id + 0 LIMIT 3", "ordered sales"),
    (
        "SELECT product FROM sales WHERE id < 20 ORDER BY product COLLATE NOCASE DESC NULLS LAST, product, id",
        "ordered sales",
    ),
    (
        "SELECT s.*, c.name FROM sales s JOIN customers c ON c.id = s.customer WHERE amount > 2 ORDER BY ALL",
        "ordered sales",
    ),
    ("SELECT id, id AS id FROM sales WHERE id BETWEEN 5 AND 9", "split sales"),
    ("SELECT id::HUGEINT + 1 AS h FROM sales ORDER BY h DESC LIMIT 4", "ordered sales"),
    ("SELECT id FROM sales LIMIT 5", "some sales"),
    ("SELECT id FROM sales ORDER BY id LIMIT 0", "ordered sales"),
    ("SELECT id FROM sales ORDER BY id LIMIT 10%", "ordered sales"),
    ("SELECT NULL AS nothing, id FROM sales WHERE id < 3", "split sales"),
    ("SELECT id FROM sales ORDER BY id LIMIT (SELECT 3)", "whole: "),
    ("SELECT random() < 2 FROM sales", "whole: random() is not the same at all nodes"),
    ("SELECT count(*) FROM sales WHERE moment < now()", "whole: now() is not the same at all nodes"),
    ("SELECT count(*) FROM sales WHERE day < current_date", "whole: current_date is not the same at all nodes"),
    ("SELECT uuid() IS NULL, product FROM sales", "whole: uuid() is not the same at all nodes"),
    ("SELECT nullif(id, 3), split_part(product, 'p', 1) FROM sales", "split sales"),
    ("SELECT count(*) FROM sales TABLESAMPLE 100%", "whole: a sample"),
    ("SELECT 1 + 1 AS two", "whole: it reads no table"),
    ("FROM sales PIVOT (count(*) FOR paid IN (true, false) GROUP BY product)", "whole: "),
    ("SELECT * FROM (DESCRIBE sales)", "whole: "),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(EngineLimits(tmp_path_factory.mktemp("spill"))) as connection:
        yield connection


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    with database(ROWS) as connection:
        yield connection


def expect_equal(found: pa.Table, wanted: pa.Table, goes: str) -> None:
    assert found.schema.names == wanted.schema.names
    assert found.schema.types == wanted.schema.types
    got, expected = _texts(found), _texts(wanted)
    if goes.startswith("some"):
        assert len(got) == len(expected)
    elif goes.startswith("ordered"):
        assert got == expected
    else:
        assert sorted(got) == sorted(expected)


def _texts(table: pa.Table) -> list[str]:
    columns = [map(_rounded, column.to_pylist()) for column in table.columns]
    return list(map(repr, zip(*columns, strict=True)))


def _rounded(value: object) -> object:
    return float(f"{value:.10e}") if isinstance(value, float) else value


def test_the_bank_has_no_query_twice() -> None:
    assert len({sql for sql, _ in BANK}) == len(BANK) >= 100


@pytest.mark.parametrize(("sql", "goes"), BANK)
def test_a_query_goes_as_it_must(
    sql: str, goes: str, engine: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyConnection
) -> None:
    with engine.cursor() as cursor:
        split = split_query(cursor, sql, TABLES)
    if goes.startswith("whole: "):
        assert isinstance(split, WholeQuery), split
        assert goes.removeprefix("whole: ") in split.reason
        return
    assert isinstance(split, SplitQuery), split.reason
    assert split.table.name == goes.split()[1]
    wanted = rows.sql(sql).to_arrow_table()
    for count in (1, 2, 5):
        found = answered_in_parts(rows, split, even_parts(split.table.rows, count))
        expect_equal(found, wanted, goes)
    with engine.cursor() as cursor:
        plan_query(cursor, split.partial, TABLES)  # nodes take it


_LAWS = [sql for sql, goes in BANK if goes.startswith(("split", "ordered"))]


@given(sql=st.sampled_from(_LAWS), cuts=st.lists(st.integers(0, _COUNT), max_size=6))
def test_parts_can_be_any(
    sql: str, cuts: list[int], engine: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyConnection
) -> None:
    with engine.cursor() as cursor:
        split = split_query(cursor, sql, TABLES)
    assert isinstance(split, SplitQuery)
    places = [0, *sorted(cuts), _COUNT]
    found = answered_in_parts(rows, split, list(pairwise(places)))
    expect_equal(found, rows.sql(sql).to_arrow_table(), "split")


OVERFLOWS = [
    "SELECT sum(wide) FROM sales",
    "SELECT sum(id::HUGEINT * 17014118346046923173168730371588410572) FROM sales",
    "SELECT max(wide * 100) FROM sales",
    "SELECT sum(amount)::TINYINT + 127::TINYINT FROM sales",
]


@pytest.mark.parametrize("sql", OVERFLOWS)
def test_what_overflows_as_a_whole_overflows_in_parts(
    sql: str, engine: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyConnection
) -> None:
    with engine.cursor() as cursor:
        split = split_query(cursor, sql, TABLES)
    assert isinstance(split, SplitQuery)
    with pytest.raises(duckdb.Error):
        rows.sql(sql).to_arrow_table()
    with pytest.raises(duckdb.Error):
        answered_in_parts(rows, split, even_parts(_COUNT, 3))


REFUSED = [
    ("SELEC 1", SqlSyntaxError),
    ("SELECT count(*) FROM nowhere", BindError),
    ("SELECT count(*) FROM read_csv('x')", UnsupportedError),
    ("DROP TABLE sales", UnsupportedError),
]


@pytest.mark.parametrize(("sql", "kind"), REFUSED)
def test_what_is_no_query_is_refused_as_ever(sql: str, kind: type, engine: duckdb.DuckDBPyConnection) -> None:
    with engine.cursor() as cursor, pytest.raises(kind):
        split_query(cursor, sql, TABLES)


def test_an_unknown_column_is_left_to_the_planner(engine: duckdb.DuckDBPyConnection) -> None:
    with engine.cursor() as cursor:
        assert isinstance(split_query(cursor, "SELECT sum(nowhere) FROM sales", TABLES), WholeQuery)


# --- TPC-H ----------------------------------------------------------------------------------------------------------

SPLIT_BY = {
    **{f"q{number}": "lineitem" for number in (1, 3, 5, 6, 7, 8, 9, 10, 12, 14, 19)},
    **dict.fromkeys(("q4", "q18", "q21"), "orders"),
    **dict.fromkeys(("q2", "q17"), "part"),
    **dict.fromkeys(("q15", "q20"), "supplier"),
    **dict.fromkeys(("q11", "q13", "q22"), ""),
    "q16": "partsupp",
}


@pytest.fixture(scope="module")
def tpch_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    folder = tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))
    return {name: pq.read_table(folder / f"{name}.parquet").cast(tpch.BENCHMARK.schema(name)) for name in tpch.TABLES}


def test_nineteen_of_tpch_are_split_and_equal_duckdb(
    tpch_rows: dict[str, pa.Table], engine: duckdb.DuckDBPyConnection
) -> None:
    tables = tables_in_memory(tpch_rows)
    assert set(SPLIT_BY) == set(tpch.QUERIES)
    with database(tpch_rows) as connection:
        for query, name in SPLIT_BY.items():
            sql = checks.views(tpch.sql(query))[query]
            with engine.cursor() as cursor:
                split = split_query(cursor, sql, tables)
            if not name:
                assert isinstance(split, WholeQuery)
                continue
            assert isinstance(split, SplitQuery), (query, split.reason)
            assert split.table.name == name
            found = answered_in_parts(connection, split, even_parts(split.table.rows, 3))
            expect_equal(found, connection.sql(sql).to_arrow_table(), "split")
