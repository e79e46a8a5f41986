"""Views finished by columns are what they are row by row: values, types, NULLs, order, and errors."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cumulus import Warehouse
from cumulus.catalog.types import Interval
from cumulus.errors import EvaluationError
from cumulus.views.column_finishing import Columnar
from cumulus.views.vectors import NotColumnarError

TABLE = """CREATE TABLE t (g BIGINT, k VARCHAR, x BIGINT, h HUGEINT, d DECIMAL(12,2), f DOUBLE, r REAL,
    i INTEGER NOT NULL, day DATE, at TIMESTAMP, b BOOLEAN, span INTERVAL);
CREATE TABLE u (g BIGINT, y BIGINT);
"""

VECTORS = [
    "SELECT g, COUNT(*) AS n, SUM(x) AS s, SUM(i) AS si FROM t GROUP BY g",
    "SELECT k, SUM(d) AS s, AVG(d) AS a, AVG(x) AS ax, AVG(i) AS ai FROM t GROUP BY k",
    "SELECT k, SUM(f) AS s, AVG(f) AS a, SUM(r) AS sr FROM t GROUP BY k",
    "SELECT day, at, b, r, span, COUNT(*) AS n FROM t GROUP BY ALL",
    "SELECT h, d, f, COUNT(x) AS n FROM t GROUP BY ALL",
    "SELECT g, x, k FROM t WHERE x > 1",
    "SELECT DISTINCT k, b FROM t",
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING COUNT(*) > 1 AND SUM(x) > 3",
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > 3 OR COUNT(*) > 2",
    "SELECT g, COUNT(*) * 2 - COUNT(x) AS n, -SUM(x) AS m, ROUND(AVG(x), 1) AS a FROM t GROUP BY g",
    "SELECT g, CASE WHEN SUM(x) > 5 THEN 1 WHEN SUM(x) > 2 THEN 2 ELSE 3 END AS c FROM t GROUP BY g",
    "SELECT g, COALESCE(SUM(x), 0) AS s, SUM(x) IS NULL AS empty, NOT (COUNT(*) > 1) AS one FROM t GROUP BY g",
    "SELECT g, SUM(x) / COUNT(*) AS q, SUM(d) / NULLIF(COUNT(x), 0) AS q2 FROM t GROUP BY g",
    "SELECT g, MIN(x) AS lo, MAX(d) AS hi, MIN(f) AS mf, MAX(day) AS last FROM t GROUP BY g",
    "SELECT g, MIN(k) AS lo, MAX(k) AS hi FROM t GROUP BY g",
    "SELECT g, COUNT(DISTINCT x) AS n FROM t GROUP BY g",
    "SELECT t.g, COUNT(*) AS n, SUM(y) AS s FROM t JOIN u ON t.g = u.g GROUP BY t.g",
    "SELECT k, SUM(x) AS s FROM t GROUP BY k ORDER BY s DESC, k",
    "SELECT k, f, COUNT(*) AS n FROM t GROUP BY k, f ORDER BY f NULLS FIRST, k DESC",
    "SELECT k, f, x FROM t ORDER BY f DESC NULLS LAST, x",
    "SELECT k, AVG(x) AS a FROM t GROUP BY k ORDER BY a, k LIMIT 2 OFFSET 1",
    "SELECT x, k FROM t LIMIT 3",
    "SELECT x FROM t LIMIT 3 OFFSET 2",
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT AVG(x) FROM t)",
]
BY_VALUE = [
    "SELECT g, CASE WHEN SUM(x) > 5 THEN 'many' ELSE 'few' END AS c, SUM(x) AS s FROM t GROUP BY g",
    "SELECT upper(k) || '!' AS u, COUNT(*) AS n, STDDEV(x) AS sd FROM t GROUP BY k",
    "SELECT g, CAST(SUM(x) AS INTEGER) AS s, CAST(SUM(d) AS DECIMAL(9,1)) AS d FROM t GROUP BY g",
    "SELECT g, SUM(d) * 1.5 AS m, SUM(x) // 2 AS w, SUM(x) % 2 AS rest FROM t GROUP BY g",
]

small = st.none() | st.integers(-3, 6)
ROWS = st.lists(
    st.tuples(
        small,
        st.none() | st.sampled_from(["", "a", "B", "ä", "\U0001f600", "\uffff"]),
        small | st.sampled_from([1 << 62, -(1 << 62)]),
        small | st.sampled_from([1 << 90, -(1 << 100)]),
        st.none() | st.sampled_from([Decimal("0.00"), Decimal("1.25"), Decimal("-9999999999.99")]),
        st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, math.inf, -math.inf, math.nan]),
        st.none() | st.sampled_from([0.5, -1.25]),
        st.integers(-2, 2),
        st.none() | st.sampled_from([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
        st.none() | st.sampled_from([dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)]),
        st.none() | st.booleans(),
        st.none() | st.sampled_from([Interval(1, 2, 3), Interval(0, 0, -5)]),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def warehouse() -> Warehouse:
    views = "".join(f"CREATE VIEW v{place} AS {sql};" for place, sql in enumerate(VECTORS + BY_VALUE))
    return Warehouse(TABLE + views, engine="native")


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and (left is right or left == right or (left != left and right != right))


@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(rows=ROWS, gone=st.lists(st.integers(0, 11), max_size=4), others=st.lists(st.tuples(small, small), max_size=4))
def test_columns_and_rows_agree(warehouse: Warehouse, rows: Any, gone: Any, others: Any) -> None:
    deleted = [rows[place] for place in dict.fromkeys(gone) if place < len(rows)]
    warehouse.insert("t", rows)
    warehouse.insert("u", others)
    warehouse.delete("t", deleted)
    engine, finishers = warehouse._applier.engine, warehouse._finishers
    try:
        for place, sql in enumerate(VECTORS + BY_VALUE):
            finisher = finishers[f"v{place}"]
            made = Columnar(finisher, engine)
            try:
                slow = finisher.rows(engine.items, engine)
            except EvaluationError:
                with pytest.raises(NotColumnarError):
                    made.rows()
                continue
            found = made.rows()
            assert all(_same(a, b) for x, y in zip(found, slow, strict=True) for a, b in zip(x, y, strict=True)), (
                sql,
                found,
                slow,
            )
            try:
                expected = finisher.to_arrow(slow)
            except EvaluationError:  # a number of 39 digits
                with pytest.raises(NotColumnarError):
                    made.table()
                continue
            table = made.table()
            assert table.schema == expected.schema, sql
            table.validate(full=True)
            assert str(table.to_pylist()) == str(expected.to_pylist()), sql
            assert made.count() == len(slow), sql
            assert str(made.table(limit=2).to_pylist()) == str(expected.slice(0, 2).to_pylist()), sql
    finally:
        left = list(rows)
        for row in deleted:
            left.remove(row)
        warehouse.delete("t", left)
        warehouse.delete("u", others)


def test_what_vectors_know_is_not_computed_value_by_value(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = (
        1,
        "a",
        5,
        7,
        Decimal("1.25"),
        0.5,
        0.5,
        1,
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1),
        True,
        Interval(1, 2, 3),
    )
    warehouse.insert("t", [row])
    warehouse.insert("u", [(1, 2)])

    def refuse(*_: Any) -> None:
        raise AssertionError("one by one")

    monkeypatch.setattr(Columnar, "_one_by_one", refuse)
    for place, sql in enumerate(VECTORS):
        made = Columnar(warehouse._finishers[f"v{place}"], warehouse._applier.engine)
        assert made.table().num_rows == made.count(), sql
    warehouse.delete("t", [row])
    warehouse.delete("u", [(1, 2)])


def test_groups_that_do_not_exist_are_not_there() -> None:
    wh = Warehouse("CREATE TABLE t (g INT, x INT); CREATE VIEW v AS SELECT g, SUM(x) AS s FROM t GROUP BY g")
    wh.insert("t", [(1, 5), (2, 7), (3, -7), (3, 7)])
    wh.delete("t", [(2, 7), (9, 1)])  # of 9 there is less than nothing
    assert wh.view("v").arrow().to_pydict() == {"g": [1, 3], "s": [Decimal(5), Decimal(0)]}
    assert wh.view("v").rows() == [(1, 5), (3, 0)]
    assert repr(wh.view("v")).endswith("v: 2 rows")


def test_errors_of_reading_stay_what_they_are() -> None:
    wh = Warehouse(
        "CREATE TABLE t (g INT, x INT, h HUGEINT); "
        "CREATE VIEW q AS SELECT g, COUNT(*) / SUM(x) AS q FROM t GROUP BY g; "
        "CREATE VIEW h AS SELECT g, SUM(h) AS s FROM t GROUP BY g"
    )
    wh.insert("t", [(1, 2, 1), (7, 0, 2)])
    with pytest.raises(EvaluationError, match=r"view q at \(7,\): div\(.*division by zero"):
        wh.view("q").arrow()
    with pytest.raises(EvaluationError, match=r"view q at \(7,\)"):
        wh.view("q").rows()
    wh.insert("t", [(1, 1, 10**38 - 1)])
    assert wh.view("h").rows() == [(1, 10**38), (7, 2)]
    with pytest.raises(EvaluationError, match="view h"):
        wh.view("h").arrow()  # 39 digits


def test_sums_beyond_64_bits_are_exact() -> None:
    wh = Warehouse(
        "CREATE TABLE t (g INT, x BIGINT, d DECIMAL(18,2));"
        "CREATE VIEW v AS SELECT g, SUM(x) AS s, AVG(x) AS a, SUM(d) AS d FROM t GROUP BY g"
    )
    wh.insert("t", [(1, (1 << 63) - 1, Decimal("9999999999999999.99"))] * 50 + [(2, None, None)])
    whole, decimals = 50 * ((1 << 63) - 1), 50 * Decimal("9999999999999999.99")
    assert wh.view("v").rows() == [(1, whole, float(whole) / 50, decimals), (2, None, None, None)]
    assert wh.view("v").arrow()["s"].to_pylist() == [Decimal(whole), None]
    assert wh.view("v").arrow()["d"].to_pylist() == [decimals, None]


@pytest.mark.parametrize("kind", ["VARCHAR", "INTERVAL", "DOUBLE", "DECIMAL(5,2)", "TIMESTAMPTZ"])
def test_nothing_of_any_type_is_null(kind: str) -> None:
    wh = Warehouse(
        f"CREATE TABLE t (k INT, a {kind}, b {kind});"
        "CREATE VIEW v AS SELECT k, COALESCE(a, b) AS c, COUNT(*) AS n FROM t GROUP BY k, a, b ORDER BY c, k"
    )
    wh.insert("t", [(1, None, None), (2, None, None)])
    assert wh.view("v").rows() == [(1, None, 1), (2, None, 1)]
    assert wh.view("v").arrow()["c"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("types", "row", "expression"),
    [
        ("a TINYINT", (-128,), "-a"),
        ("a SMALLINT", (-(1 << 15),), "abs(a)"),
        ("a SMALLINT, b INTEGER", (2, -(1 << 31)), "a * b"),
        ("a INTEGER, b INTEGER", ((1 << 31) - 1, 1), "a + b"),
        ("a INTEGER, b INTEGER", (-2, (1 << 31) - 1), "a - b"),
    ],
)
def test_numbers_beyond_their_type_are_errors(types: str, row: Any, expression: str) -> None:
    groups = ", ".join("ab"[: len(row)])
    wh = Warehouse(f"CREATE TABLE t ({types}); CREATE VIEW v AS SELECT {expression} AS x FROM t GROUP BY {groups}")
    wh.insert("t", [(0,) * len(row), (None,) * len(row)])
    assert sorted(wh.view("v").rows(), key=str) == [(0,), (None,)]
    wh.insert("t", [row])
    for read in (wh.view("v").rows, wh.view("v").arrow, lambda: wh.query("SELECT x FROM v")):
        with pytest.raises(EvaluationError, match="does not fit"):
            read()
    wh.delete("t", [row])
    assert wh.view("v").arrow()["x"].null_count == 1


def test_maps_without_columns_are_read_by_rows() -> None:
    wh = Warehouse(
        "CREATE TABLE t (g INT, x INT); CREATE VIEW v AS SELECT g, SUM(x) AS s FROM t GROUP BY g", engine="interpreter"
    )
    wh.insert("t", [(1, 5)])
    with pytest.raises(NotColumnarError):
        Columnar(wh._finishers["v"], wh._applier.engine)
    assert wh.view("v").arrow().to_pydict() == {"g": [1], "s": [Decimal(5)]}
