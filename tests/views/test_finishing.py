"""From entries to rows: order, limits, bags, HAVING and types, beside DuckDB on the same rows."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus import m3
from cumulus.errors import EvaluationError, ValidationError
from cumulus.views import Finisher, finish
from support.tiers import examples

TABLE = "CREATE TABLE r (a INT, b VARCHAR, x DOUBLE, d DECIMAL(9,2));"
ITEMS = ["a", "b", "x", "d", "a + 1", "d * 2"]


@st.composite
def ordered_bags(draw: st.DrawFn) -> str:
    """A plain SELECT with ORDER BY over all columns, so that the order is the only one, and LIMIT or OFFSET."""
    wanted = draw(st.permutations(["a", "b", "x", "d"]))
    directions, nulls = st.sampled_from(["", "ASC", "DESC"]), st.sampled_from(["", "NULLS FIRST", "NULLS LAST"])
    keys = [*draw(st.lists(st.sampled_from(ITEMS), max_size=1)), *wanted]
    order = ", ".join(f"{key} {draw(directions)} {draw(nulls)}" for key in keys)
    limit = draw(st.sampled_from(["", " LIMIT 2", " LIMIT 3 OFFSET 1", " OFFSET 2"]))
    columns = draw(st.sampled_from(["a, b, x, d", "d, x, a, b, a IS NULL AS missing"]))
    return f"SELECT {columns} FROM r ORDER BY {order}{limit}"


ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, "", "B", "a", "é"]),
        st.sampled_from([None, 0.5, -1.0, float("inf"), float("-inf"), float("nan")]),
        st.sampled_from([None, 1, 2]),
    ),
    max_size=6,
)


@settings(max_examples=examples(30), deadline=None)
@given(ordered_bags(), ROWS)
def test_order_by_limit_and_bags_are_duckdbs(select: str, rows) -> None:
    warehouse = cumulus.Warehouse(f"{TABLE} CREATE VIEW v AS {select}")
    warehouse.insert("r", rows)
    with duckdb.connect() as database:
        database.execute(TABLE)
        for row in rows:
            database.execute("INSERT INTO r VALUES (?, ?, ?, ?)", row)
        expected = database.sql(select).to_arrow_table()
    found = warehouse.view("v").arrow()
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


PROGRAM = """
MAP m[a INT](s DECIMAL(38,2), n BIGINT) COUNT n;
MAP other[a INT](k BIGINT);
MAP single[](s DOUBLE, n BIGINT) COUNT n;
"""


def rows(view: str, **entries) -> list:
    program = m3.parse(PROGRAM + view)
    return finish(program, program.views[0], lambda name: entries.get(name, [])).to_pylist()


def test_two_maps_are_joined_by_key_and_the_first_one_decides() -> None:
    view = "VIEW v(a INT, k BIGINT) FROM m, other SELECT a, n + other.k;"
    assert rows(view, m=[((1,), (0, 2)), ((2,), (0, 3))], other=[((2,), (10,)), ((9,), (1,))]) == [
        {"a": 1, "k": 2},
        {"a": 2, "k": 13},
    ]


def test_a_view_without_keys_has_one_row_whatever_the_map_holds() -> None:
    view = "VIEW v(s DOUBLE, n BIGINT) FROM single SELECT CASE WHEN n = 0 THEN NULL ELSE s END, n;"
    assert rows(view) == [{"s": None, "n": 0}]
    assert rows(view, single=[((), (2.5, 1))]) == [{"s": 2.5, "n": 1}]


def test_negative_multiplicities_are_not_shown() -> None:
    view = "VIEW v(a INT) FROM m SELECT a REPEAT n;"
    assert rows(view, m=[((1,), (0, 2)), ((2,), (0, -1))]) == [{"a": 1}, {"a": 1}]


def test_a_value_that_does_not_fit_its_column_is_an_error_of_the_view() -> None:
    with pytest.raises(EvaluationError, match="view v at") as caught:
        rows("VIEW v(a INT, s SMALLINT) FROM m SELECT a, n;", m=[((1,), (0, 70000))])
    assert caught.value.view == "v"


def test_an_expression_over_unknown_names_is_refused() -> None:
    program = m3.parse(PROGRAM + "VIEW v(a INT) FROM m SELECT a;")
    view = m3.parse(PROGRAM + "MAP z[q INT](w BIGINT); VIEW v(w BIGINT) FROM z SELECT w;").views[0]
    with pytest.raises((ValidationError, KeyError)):
        Finisher(program, view)
