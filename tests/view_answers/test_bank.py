"""The bank: each query is answered as it must be, and every answer has the rows that the tables give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import Warehouse
from cumulus.algebra.printing import quoted
from cumulus.compiler import compile_sql
from cumulus.durable.parquet_writing import write_parquet_table
from cumulus.m3 import parse
from cumulus.m3.program import Program
from cumulus.view_answers import NoAnswer, ViewAnswer, view_answer
from support.answered_queries import EQUAL, NOT_ANSWERED, ROLLED_UP, SCRIPT

Rows = dict[str, list[tuple[Any, ...]]]

ANSWERED = [*EQUAL, *ROLLED_UP]


@cache
def program() -> Program:
    """As an output folder has it: from the text."""
    return parse(str(compile_sql(SCRIPT)))


@cache
def answer(sql: str) -> ViewAnswer | NoAnswer:
    return view_answer(program(), sql)


@pytest.mark.parametrize(("sql", "view"), ANSWERED)
def test_which_view_answers(sql: str, view: str) -> None:
    found = answer(sql)
    assert isinstance(found, ViewAnswer), found.why
    assert found.view == view
    is_equal = "each of its rows is a group" in found.why
    assert is_equal == ((sql, view) in EQUAL)


@pytest.mark.parametrize(("sql", "reason"), NOT_ANSWERED)
def test_no_view_answers(sql: str, reason: str) -> None:
    found = answer(sql)
    assert isinstance(found, NoAnswer), found
    assert reason in found.why
    assert found.why.strip()
    assert "\n" not in found.why


def test_views_with_errors_do_not_answer() -> None:
    sql = "SELECT SUM(n), COUNT(*) FROM o"
    found = view_answer(program(), sql, failed={"everything"})
    assert isinstance(found, NoAnswer)
    assert "everything lacks what rows with errors should have added" in found.why
    assert isinstance(view_answer(program(), sql, views={"v"}), NoAnswer)


def databases(rows: Rows, gone: Rows, folder: Path) -> tuple[Any, Any]:
    """Return DuckDB over base rows, and DuckDB over the views' rows in Parquet files."""
    warehouse = Warehouse(SCRIPT)
    tables, views = duckdb.connect(), duckdb.connect()
    for table in program().relations:
        warehouse.insert(table.name, [*rows[table.name], *gone[table.name]])
        if gone[table.name]:
            warehouse.delete(table.name, gone[table.name])
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
        tables.execute(f"CREATE TABLE {table.name} ({columns})")
        for row in rows[table.name]:
            tables.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(row))})", list(row))
    for number, view in enumerate(program().shown_views):
        path = folder / f"{number}.parquet"
        write_parquet_table(warehouse.view(view.name).arrow(), path)
        views.execute(f"CREATE VIEW {quoted(view.name)} AS SELECT * FROM '{path}'")
    warehouse.close()
    return tables, views


def check(tables: Any, views: Any, sql: str) -> None:
    found = answer(sql)
    assert isinstance(found, ViewAnswer), found.why
    wanted, given_rows = tables.sql(sql), views.sql(found.sql)
    assert given_rows.columns == wanted.columns
    assert list(map(str, given_rows.types)) == list(map(str, wanted.types))
    left, right = given_rows.fetchall(), wanted.fetchall()
    if "ORDER BY" not in sql:
        left, right = sorted(left, key=order), sorted(right, key=order)
    assert len(left) == len(right), (found.sql, left, right)
    for one, other in zip(left, right, strict=True):
        assert all(map(is_same, one, other)), (found.sql, one, other)


def order(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        (value is None, isinstance(value, float), str(value) if not is_number(value) else "") for value in row
    ) + tuple(str(round(float(value), 6)) for value in row if is_number(value))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal))


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


HUGE = Decimal("9" * 30 + ".99")
FIRST: Rows = {
    "o": [
        (1, "a", 1, 5, Decimal("1.50"), 2.5, date(2024, 1, 1)),
        (2, "a", 1, -(2**63), HUGE, math.inf, None),
        (2, "a", 1, -(2**63), HUGE, math.inf, None),
        (3, None, 4, 2**63 - 1, -HUGE, math.nan, date(2023, 5, 5)),
        (4, "", None, None, None, None, None),
        (5, "b", -4, 1, Decimal("-2.25"), 1e15, date(1, 1, 1)),
        (6, "b", 7, 2, Decimal("7.00"), 3.0, date(2024, 1, 2)),
        (7, "", 2, 3, Decimal("8.00"), 1.5, None),
        (8, "c", 2**31 - 1, 3, Decimal("0.01"), -0.0, None),
        (9, "c", -(2**31), 3, Decimal("0.01"), 0.0, None),
    ],
    "r": [
        ("a", "west", 1),
        ("a", "west", 1),
        ("a", "east", None),
        ("b", None, -3),
        ("b", "east", 2**31 - 1),
        (None, "west", 5),
        ("", "", 0),
        ("zz", "north", 8),
    ],
}
NOTHING: Rows = {"o": [], "r": []}
MORE: Rows = {"o": [(10, "a", 50, 9, Decimal("99.00"), -math.inf, None)], "r": [("a", "south", 1), ("b", "east", 5)]}


@pytest.fixture(scope="module", params=["rows", "deleted", "empty"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("views")
    rows, gone = {"rows": (FIRST, NOTHING), "deleted": (FIRST, MORE), "empty": (NOTHING, FIRST)}[request.param]
    return databases(rows, gone, folder)


@pytest.mark.parametrize(("sql", "view"), ANSWERED)
def test_answers_are_what_the_tables_give(both: tuple[Any, Any], sql: str, view: str) -> None:
    check(*both, sql)


TEXTS = st.sampled_from([None, "", "a", "b", "west", "é"])
SMALL = st.none() | st.integers(-6, 9)
PRICES = st.none() | st.sampled_from([Decimal(7), Decimal("0.01"), HUGE, -HUGE]) | st.decimals(-9, 9, places=2)
FLOATS = st.none() | st.sampled_from([0.0, 1.5, 2.0, math.inf, math.nan]) | st.integers(-40, 40).map(lambda n: n / 8)
BIGS = st.none() | st.sampled_from([-(2**63), 2**63 - 1, 0, 1])
ORDERS = st.tuples(st.integers(0, 9), TEXTS, SMALL, BIGS, PRICES, FLOATS, st.none() | st.dates())
REGIONS = st.tuples(TEXTS, TEXTS, SMALL)
BASES = st.fixed_dictionaries({"o": st.lists(ORDERS, max_size=12), "r": st.lists(REGIONS, max_size=8)})


@pytest.mark.law
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=BASES, gone=BASES)
def test_law(tmp_path: Path, rows: Rows, gone: Rows) -> None:
    tables, views = databases(rows, gone, tmp_path)
    for sql, _ in ANSWERED:
        check(tables, views, sql)
