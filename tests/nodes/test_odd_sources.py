"""Queries over files that nobody expects: the answer is DuckDB's over the same files, or one readable refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from cumulus.catalog.names import folded
from cumulus.errors import CumulusError
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.nodes import EngineLimits, NodeQueries, open_engine
from support.arriving_rows import ChunksOfFiles, ask
from support.random_files import connected, write

NAN, INF = float("nan"), float("inf")
MOST = Decimal("9" * 38)
NOTHING = pa.table({"n": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
TABLES: dict[str, list[pa.Table]] = {
    "empty": [NOTHING],
    "gaps": [NOTHING, pa.table({"n": [7, 8, None], "s": ["x", None, "y"]}), NOTHING],
    "nulls": [
        pa.table(
            {
                "i": pa.nulls(5, pa.int32()),
                "s": pa.nulls(5, pa.string()),
                "d": pa.nulls(5, pa.decimal128(38, 2)),
                "f": pa.nulls(5, pa.float64()),
                "l": pa.nulls(5, pa.list_(pa.int32())),
                "z": pa.nulls(5),
            }
        )
    ],
    "late": [pa.table({"s": [None] * 40 + ["a", "b", "c", None]})],
    "floats": [pa.table({"f": [1.0, NAN, None, INF, -INF, NAN, -0.0, 0.0, 2.5, NAN, NAN, None]})],
    "texts": [pa.table({"k": [1, 2, 3, 4], "t": ["é" * (1 << 19), "b" * (1 << 20), None, "b" * (1 << 20) + "c"]})],
    "numbers": [
        pa.table(
            {
                "a": pa.array([MOST, MOST.copy_negate(), None, Decimal(0)], pa.decimal128(38, 0)),
                "b": pa.array([Decimal("0.5"), Decimal("-0." + "9" * 37), None, Decimal(0)], pa.decimal128(38, 38)),
                "c": pa.array([Decimal("9" * 18), Decimal("-" + "9" * 18), Decimal(1), None], pa.decimal128(18, 0)),
            }
        )
    ],
    "Select": [pa.table({"From": [1], 'a "b".c': [3], "x.y": [5], "it's": [7], "é É": [9], "*": [2]})],
    'a "b" c': [pa.table({"From": [1]})],
    "it's; DROP": [pa.table({"Id": [5]})],
    "x.y": [pa.table({"Id": [1, 2, 3]})],
    "x": [pa.table({"Id": [7]})],
    "x__0": [pa.table({"Id": [6]})],
    " ": [pa.table({" ": [8], "Id": [9]})],
}
SAME = [
    "SELECT count(*), sum(n), max(s), count(s) FROM empty",
    "FROM empty",
    "FROM gaps LEFT JOIN empty USING (n)",
    "FROM empty RIGHT JOIN gaps USING (n)",
    "FROM gaps WHERE n NOT IN (SELECT n FROM empty)",
    "FROM empty UNION ALL FROM gaps",
    "SELECT s FROM empty GROUP BY s",
    "FROM nulls",
    "SELECT count(i), sum(d), min(s), avg(f), max(l) FROM nulls",
    "FROM nulls WHERE s IS NULL AND i IS NULL",
    "FROM nulls WHERE s = 'x' OR f > 1 OR i IS NOT NULL",
    "SELECT s, z, count(*) FROM nulls GROUP BY ALL",
    "FROM nulls a JOIN nulls b ON a.i IS NOT DISTINCT FROM b.i",
    "SELECT s, count(*) FROM late WHERE s IS NULL OR s = 'b' GROUP BY s",
    "FROM floats WHERE f > 2",
    "FROM floats WHERE f = 'nan'",
    "FROM floats WHERE f < 0",
    "FROM floats WHERE NOT f > 2",
    "FROM floats WHERE f IN ('nan', 1)",
    "SELECT max(f), min(f), count(DISTINCT f) FROM floats",
    "FROM floats a JOIN floats b USING (f)",
    "SELECT k, length(t), md5(t) FROM texts",
    "SELECT k FROM texts WHERE t > 'c' OR t = repeat('b', 1 << 20)",
    "SELECT sum(b), sum(c), min(a), max(b) FROM numbers",
    f"FROM numbers WHERE a >= {MOST} OR b < 0",
    "SELECT a.c FROM numbers a JOIN numbers b USING (a) WHERE a.c >= 999999999999999999",
    'SELECT "FROM", "A ""B"".C", "X.Y", "IT\'S", "é É", "*" FROM "select"',
    'SELECT s."from" FROM "select" s JOIN "A ""B"" C" t ON s."From" = t."from"',
    'FROM "it\'s; DROP", "X.Y" y WHERE y."Id" > 1',
    "FROM x, x__0",
    'SELECT " ", id FROM " "',
]
REFUSED = {
    "SELECT a + 1 FROM numbers": "Overflow in addition of DECIMAL",
    "SELECT sum(a) + sum(-a) + max(a) + max(a) FROM numbers": "Overflow",
    'FROM "x.z"': "there is no table x.z on the ring(.|\n)*Did you mean x.y",
    "FROM x.y": "there is no table x.y on the ring",
    'SELECT "É É" FROM "Select"': '"É É" not found',
}

Ask = Callable[[str], pa.Table]


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with connected() as connection:
        for name, parts in TABLES.items():
            connection.register("given", pa.concat_tables(parts))
            quoted = name.replace('"', '""')
            connection.execute(f'CREATE TABLE "{quoted}" AS FROM given')
            connection.unregister("given")
        yield connection


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    folder = tmp_path_factory.mktemp("odd")
    for name, parts in TABLES.items():
        for number, part in enumerate(parts):
            write(part, folder / name / f"{number}.parquet", 2)
    tables = {folded(table.name): table for table in read_source(folder).tables}
    limits = EngineLimits(tmp_path_factory.mktemp("spill"))
    with open_engine(limits) as engine, ChunksOfFiles(seed=1).turning() as files:
        yield lambda sql: ask(NodeQueries(engine), sql, tables, files.ask_for, timeout_s=60)


@pytest.mark.parametrize("sql", SAME)
def test_odd_tables_are_what_duckdb_reads(sql: str, asking: Ask, oracle: duckdb.DuckDBPyConnection) -> None:
    found, wanted = asking(sql), oracle.sql(sql).to_arrow_table()
    assert found.schema == wanted.schema
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


@pytest.mark.parametrize("sql", REFUSED)
def test_what_has_no_answer_is_one_paragraph(sql: str, asking: Ask, oracle: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error):
        oracle.sql(sql).to_arrow_table()
    with pytest.raises(CumulusError, match=REFUSED[sql]) as caught:
        asking(sql)
    assert "\n\n" not in str(caught.value)
