"""What exact arithmetic beyond its type does: a column has DuckDB's range, sums and conditions take the number."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import duckdb
import pytest

import cumulus
from support.extremes import EXTREMES, INTEGERS

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NARROWER = {
    "TINYINT": "TINYINT",
    "SMALLINT": "TINYINT",
    "INTEGER": "SMALLINT",
    "BIGINT": "INTEGER",
    "HUGEINT": "BIGINT",
}


def in_duckdb(database: Any, one: str, other: str, op: str, left: int, right: int) -> int | None:
    """Return the value of an operation; None if it is out of range."""
    try:
        text = f"SELECT CAST('{left}' AS {one}) {op} CAST('{right}' AS {other})"
        (found,) = database.execute(text).fetchone()
    except duckdb.Error:
        return None
    return int(found)


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("name", INTEGERS)
def test_a_column_has_the_range_of_its_type(name: str, op: str, engine: str) -> None:
    database = duckdb.connect()
    for other in dict.fromkeys((name, NARROWER[name])):
        pairs = list(itertools.product(EXTREMES[name], EXTREMES[other]))
        rows = [(k, a, b) for k, (a, b) in enumerate(pairs)]
        exact = {k: OPERATIONS[op](a, b) for k, a, b in rows}
        is_small = sum(map(abs, exact.values())) < 1 << 127
        sums = f"""
            CREATE VIEW total AS SELECT COUNT(a {op} b) AS n, SUM(a {op} b) AS s FROM r;
            CREATE VIEW kept AS SELECT k, COUNT(*) AS n FROM r WHERE a {op} b > 7 GROUP BY k;
            """
        wh = cumulus.Warehouse(
            f"""
            CREATE TABLE r (k INTEGER NOT NULL, a {name}, b {other});
            CREATE VIEW plain AS SELECT k, a {op} b AS p FROM r;
            CREATE VIEW groups AS SELECT a {op} b AS p, COUNT(*) AS n FROM r GROUP BY a {op} b;
            CREATE VIEW ends AS SELECT k, MAX(CASE WHEN k >= 0 THEN a {op} b END) AS hi FROM r GROUP BY k;
            {sums if is_small else ""}
            """,
            engine=engine,
        )
        fitting = {k: in_duckdb(database, name, other, op, a, b) for k, a, b in rows}
        there = {k: value for k, value in fitting.items() if value is not None}
        assert all(exact[k] == value for k, value in there.items())
        wh.insert("r", rows)
        assert sorted(wh.view("plain").rows()) == sorted(there.items())
        assert {value for value, _ in wh.view("groups").rows()} == {*there.values()}
        assert {(k, hi) for k, hi in wh.view("ends").rows() if hi is not None} == {*there.items()}
        for view in ("plain", "groups", "ends"):
            assert wh.errors(view).count == len(rows) - len(there)
        if is_small:  # nothing is lost: 128 bits hold every number
            assert wh.view("total").rows() == [(len(rows), sum(exact.values()))]
            assert {k for k, _ in wh.view("kept").rows()} == {k for k, value in exact.items() if value > 7}
            assert not wh.errors("total")
            assert not wh.errors("kept")
        wh.delete("r", rows)
        for view in ("plain", "groups", "ends", *(["kept"] if is_small else [])):
            assert wh.view(view).rows() == []
        wh.close()
