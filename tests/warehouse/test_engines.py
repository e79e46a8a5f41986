"""A warehouse does the same whichever engine it runs on."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.engine.engines import ENGINES
from cumulus.errors import EngineWarning, EvaluationWarning, UsageError
from cumulus.m3 import parse

SQL = """
CREATE TABLE orders (id INT, customer VARCHAR NOT NULL, amount DECIMAL(10, 2), day DATE, PRIMARY KEY (id))
  WITH (keep = all);
CREATE VIEW totals AS SELECT customer, SUM(amount) AS total, COUNT(*) AS n, MAX(day) AS last FROM orders
  GROUP BY customer;
CREATE VIEW big AS SELECT customer FROM totals WHERE total > 100;
CREATE VIEW shares AS SELECT id, amount / (id - 3) AS share FROM orders;
"""
ROWS = [
    (1, "ada", "80.50", "2026-01-02"),
    (2, "ada", "20.00", "2026-01-05"),
    (3, "bob", "1.25", None),
    (4, "é", None, "2026-02-01"),
]


def typed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (row[0], row[1], None if row[2] is None else Decimal(row[2]), row[3])


def views(wh: Warehouse) -> dict[str, Any]:
    return {name: sorted(wh.view(name).rows(), key=repr) for name in ("totals", "big", "shares")}


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
def test_a_story_is_told_alike(tmp_path: Path) -> None:
    told = {engine: story(engine, tmp_path) for engine in ENGINES[1:]}
    assert told["native"] == told["interpreter"]


def story(engine: str, folder: Path) -> list[Any]:
    """Do a little of everything; return what was seen."""
    seen: list[Any] = []
    wh = Warehouse(SQL, engine=engine)
    wh.subscribe("totals", lambda rows: seen.append(sorted(rows, key=repr)))
    for row in ROWS:
        wh.insert("orders", [typed(row)])
    with pytest.warns(EvaluationWarning):
        wh.view("shares").rows()
    seen.append(views(wh))
    seen.append([(error.view, error.event, error.message) for error in wh.errors("shares")])
    with pytest.raises(Exception, match="orders") as refused:
        wh.insert("orders", [typed((9, "eve", "1.00", None)), typed(ROWS[0])])
    seen += [type(refused.value).__name__, views(wh)]
    on = wh.trigger("orders")
    on(1, 7, "bob", typed(ROWS[0])[2], None)
    on(-1, 7, "bob", typed(ROWS[0])[2], None)
    with wh.transaction():
        wh.delete("orders", [typed(ROWS[1])])
        wh.upsert("orders", [typed((1, "bob", "200.00", "2026-03-03"))])
    seen.append(views(wh))
    wh.execute("CREATE VIEW days AS SELECT day, COUNT(DISTINCT customer) AS n FROM orders GROUP BY day")
    wh.delete("orders", [typed(ROWS[3])])
    seen.append(sorted(wh.view("days").rows(), key=repr))
    wh.save(folder / engine)
    back = Warehouse.load(folder / engine, engine=engine)
    back.insert("orders", [typed((8, "zoe", "5.00", "2026-01-02"))])
    seen += [views(back), sorted(back.view("days").rows(), key=repr), wh.stats().rows, wh.stats().entries]
    return seen


def test_what_the_native_engine_cannot_run_is_refused_with_the_way_out() -> None:
    untyped = parse("RELATION r(a); MAP m[a](n BIGINT); ON +r(a) { m[a].n += 1 }")
    with pytest.raises(UsageError, match="map m: a column without a declared type") as refused:
        Warehouse(untyped, engine="native")
    assert "engine='interpreter'" in str(refused.value)
    with pytest.warns(EngineWarning, match="map m: a column without a declared type"):
        wh = Warehouse(untyped)
    assert wh.insert("r", [("x",)]) == 1
    assert wh.stats().engine == "interpreter"
    assert Warehouse(SQL).stats().engine == "native"
    with pytest.raises(UsageError, match="no engine 'fast'"):
        Warehouse(SQL, engine="fast")


def test_every_bigint_is_a_key_and_nothing_beyond() -> None:
    """-2**63 is a group of its own; -2**63 - 1 does not fit the key, which is an error of the view."""
    wh = Warehouse(
        """
        CREATE TABLE t (a BIGINT NOT NULL, b BIGINT NOT NULL);
        CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a;
        CREATE VIEW w AS SELECT a - 1 AS k, SUM(b) AS s FROM t GROUP BY a - 1;
        """,
        engine="native",
    )
    wh.insert("t", [(-(2**63), 1), (5, 2), (-(2**63) + 1, 4)])
    assert sorted(wh.view("v").rows()) == [(-(2**63), 1), (-(2**63) + 1, 1), (5, 1)]
    with pytest.warns(EvaluationWarning, match="beyond what the native engine keeps"):
        assert sorted(wh.view("w").rows()) == [(-(2**63), 4), (4, 2)]
    wh.delete("t", [(-(2**63), 1)])
    assert wh.stats().errors == {"w": 2}
    assert sorted(wh.view("v").rows()) == [(-(2**63) + 1, 1), (5, 1)]
