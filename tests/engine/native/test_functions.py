"""Divisions are code, and what Python functions gave is remembered: both are what the interpreter says."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.native.build import code_of
from cumulus.engine.native.scalars import python_functions
from engine.native.test_engine import check

DIVISIONS = """
CREATE TABLE r (id INT NOT NULL, i BIGINT, j INTEGER, d DECIMAL(9, 2), x DOUBLE, h HUGEINT);
CREATE VIEW a AS SELECT id, SUM(i / j) AS v, SUM(i // j) AS w, SUM(i % j) AS m FROM r GROUP BY id;
CREATE VIEW b AS SELECT id, SUM(d / x) AS v, SUM(x // j) AS w, SUM(x % j) AS m FROM r GROUP BY id;
CREATE VIEW c AS SELECT id, SUM(h // j) AS v, SUM(h % i) AS w, SUM(i / h) AS m FROM r GROUP BY id;
CREATE VIEW e AS SELECT i // j AS q, COUNT(*) AS n FROM r GROUP BY i // j;
"""


def test_divisions_are_the_interpreters() -> None:
    integers = (7, -7, 0, None, -(1 << 63) + 1, 3)
    rows = [
        (at, i, j, Decimal(at - 2).scaleb(-2), x, h)
        for at, (i, j, x, h) in enumerate(
            (i, j, x, h)
            for i in integers
            for j in (2, -1, 0, None)
            for x, h in ((0.5, 10**20), (-0.0, -1), (None, 0), (1e300, None))
        )
    ]
    program = compile_sql(DIVISIONS)
    check(program, tuple(((1, "r", row),) for row in rows), "event")
    check(program, (tuple((1, "r", row) for row in rows), tuple((-1, "r", row) for row in rows)), "batch")


REMEMBERED = """
CREATE TABLE r (id INT NOT NULL, s VARCHAR, t VARCHAR, d DATE, n INT);
CREATE VIEW a AS SELECT UPPER(s) AS u, YEAR(d) AS y, COUNT(*) AS n FROM r
  WHERE s LIKE '%a%' OR t IN ('x', 'y') OR n IS NULL GROUP BY UPPER(s), YEAR(d);
CREATE VIEW b AS SELECT SUM(CAST(s AS INTEGER)) AS v, SUM(LENGTH(s || t)) AS w, MAX(SUBSTRING(t, n, 2)) AS m FROM r;
"""


@pytest.mark.parametrize("most", [3, 1 << 16])
def test_what_is_remembered_is_what_python_gives(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_functions, "_MOST", most)
    texts, days = ("a", "12", "é", None, "-3", ""), (dt.date(2026, 1, 1), None, dt.date(1, 12, 31))
    rows = [(at, texts[at % 6], texts[at % 5], days[at % 3], (at % 4) or None) for at in range(60)]
    transactions = tuple(((1, "r", row),) for row in rows) + tuple(((-1, "r", row),) for row in rows[::2])
    program = compile_sql(REMEMBERED)
    check(program, transactions, "event", lambda modules: code_of(modules, 0))  # no plan from the cache
