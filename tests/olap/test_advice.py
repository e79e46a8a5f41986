"""Which levels to keep: what is advised reads less, within its limits."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from cumulus import Cube, Warehouse
from cumulus.errors import UsageError

SCRIPT = """
CREATE TABLE t (a INT, b INT, c INT, x INT);
CREATE CUBE v DIMENSION ab (a, b) DIMENSION c {keep} AS SELECT a, b, c, SUM(x) AS s FROM t GROUP BY ALL;
"""
ROWS = [(number % 3, number % 12, number % 50, 1) for number in range(300)]


def cube(keep: str = "") -> Cube:
    made = Warehouse(SCRIPT.format(keep=keep), engine="interpreter")
    made.insert("t", ROWS)
    return Cube(made, "v")


def reads(asked: Cube, by: tuple[str, ...]) -> int:
    return asked.rollup(*by).explain().entries_read


def test_what_is_advised_is_what_selections_read_then() -> None:
    plain = cube()
    log = [plain.rollup(*by).to_json() for by in [("a",), ("a",), ("b",), ("c",)]]
    advice = plain.advise(log, most=2)
    kept = cube(advice.keep)
    asked = [("a",), ("a",), ("b",), ("c",)]
    assert advice.before == sum(reads(plain, by) for by in asked) / 4
    assert advice.after == sum(reads(kept, by) for by in asked) / 4
    assert advice.keep == "KEEP (a, b), (c)"
    # No two levels do better.
    levels = ["(a)", "(a, b)", "(c)", "(a, c)", "()"]
    best = min(
        sum(reads(other, by) for by in asked) / 4
        for other in (cube(f"KEEP {one}, {two}") for one, two in combinations(levels, 2))
    )
    assert advice.after == best


def test_limits_and_logs() -> None:
    made = cube()
    assert made.advise(most=0).keep == ""
    assert len(made.advise(budget_us=0.25).levels) == 2
    line = json.dumps({"selection": json.loads(made.rollup("a").to_json()), "count": 3})
    assert [each.columns for each in made.advise([line, ""]).levels] == [("a",)]
    with pytest.raises(UsageError, match="line 1 of the log is no selection"):
        made.advise(["x"])
    with pytest.raises(UsageError, match="there are no selections"):
        made.advise([])


def test_a_level_with_many_entries_costs_more_of_a_budget() -> None:
    script = """CREATE TABLE t (a INT, b INT, c INT);
        CREATE CUBE v AS SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY ALL;"""
    made = Warehouse(script, engine="interpreter", keep="none")
    made.insert("t", [(number, number % 3, number % 2) for number in range(2000)] * 2)
    asked = Cube(made, "v")
    log = [asked.rollup("a", "b").to_json()] + [asked.rollup("b").to_json()] * 3
    few, many = asked.advise(log, level_us=1, most=1), asked.advise([log[0]], level_us=1)
    assert few.cost_us == pytest.approx(1, abs=0.001)
    assert many.levels == ()  # it has as many entries as the finest one
    made.insert("t", [(number, number % 3, 7) for number in range(2000)])
    many = asked.advise([log[0]], level_us=1)
    assert [each.entries for each in many.levels] == [2000]
    assert many.cost_us > few.cost_us + 0.05
    # What is saved for a µs counts: the small level, though together they would be within no budget of 2.
    assert [each.columns for each in asked.advise(log, level_us=1, budget_us=2).levels] == [("b",)]
    assert len(asked.advise(log, level_us=1, budget_us=2.1).levels) == 2
