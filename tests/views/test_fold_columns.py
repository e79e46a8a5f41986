"""Folding by columns gives what folding entry by entry gives, and forgets what it has read when an event comes."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

import cumulus
from cumulus.views.folding import column_reading, group_columns, reading
from support.oracle import same_bag

SCRIPT = """
CREATE TABLE r (a BIGINT, t VARCHAR, d DATE, b BOOLEAN, f DOUBLE, p DECIMAL(30,4), h HUGEINT, x INT, w DOUBLE);
CREATE VIEW v AS SELECT a, t, d, b, f, p, COUNT(*) AS n, SUM(x) AS s, SUM(h) AS wide, AVG(w) AS mean, SUM(p) AS money,
    MIN(x) AS least, MAX(p) AS most, MIN(t) AS first, COUNT(DISTINCT x) AS different FROM r GROUP BY a, t, d, b, f, p;
"""
SOME = ["n", "s", "wide", "mean", "money"]


def rows_of(draw: random.Random, count: int) -> list[tuple[Any, ...]]:
    pick = draw.choice
    return [
        (
            pick([None, 1, 2, -5, 2**62]),
            pick([None, "", "ä", "zebra", "Zebra", "猫"]),
            pick([None, "1960-02-03", "2024-12-31"]),
            pick([None, True, False]),
            pick([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]),
            pick([None, Decimal("99999999999999999999.0001"), Decimal("-3.5")]),
            pick([None, 2**100, -(2**100), 3]),
            draw.randrange(-3, 4),
            pick([None, 1e16, -1e16, 0.1, 3.25]),
        )
        for _ in range(count)
    ]


def finished(partial: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in partial.finish().to_pylist()]


@pytest.fixture
def warehouses() -> list[cumulus.Warehouse]:
    """The same rows, some of them gone, in machine code and in the interpreter."""
    given = rows_of(random.Random(5), 800)
    made = [cumulus.Warehouse(SCRIPT, engine=engine) for engine in ("native", "interpreter")]
    for warehouse in made:
        warehouse.insert("r", given)
        warehouse.delete("r", given[::7])
    return made


@pytest.mark.parametrize(
    ("by", "where"),
    [
        ([], {}),
        ([], {"a": 1}),
        ([], {"a": 77}),
        (["a"], {"t": "zebra"}),
        (["t"], {"t": cumulus.between("Z", "z")}),
        (["b", "d"], {"d": cumulus.between("1999-01-01")}),
        (["f"], {"f": [float("nan"), 0.0, None]}),
        (["f"], {"f": cumulus.between(1.0)}),
        (["p"], {"p": [Decimal("-3.5"), 7]}),
        (["t"], {"p": cumulus.between(high=0), "a": list(range(-20, 20))}),
        (["a", "t", "d", "b", "f", "p"], {}),
        (["a", "t", "d", "b", "f"], {"b": [True, None]}),
    ],
)
def test_columns_say_what_entries_say(
    warehouses: list[cumulus.Warehouse], by: list[str], where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    native, interpreted = (warehouse.view("v") for warehouse in warehouses)
    for many in (0, 10**9):
        monkeypatch.setattr(column_reading, "MANY_GROUPS", many)
        for columns in (None, SOME):
            wanted = finished(interpreted.fold(by, where, columns))
            assert same_bag(finished(native.fold(by, where, columns)), wanted)
            share = native.fold(by, {**where, "b": True}, columns) if "b" not in where else None
            if share is not None:
                assert isinstance(share.groups, group_columns.GroupColumns) == (not many and len(share.groups) > 0)
                share += native.fold(by, {**where, "b": [False, None]}, columns)
                assert same_bag(finished(share), wanted)


def test_an_event_is_seen_by_the_next_fold(warehouses: list[cumulus.Warehouse]) -> None:
    warehouse, maps = warehouses[0], warehouses[0]._state.columns
    view = warehouse.view("v")
    ((before,),) = finished(view.fold([], columns=["n"]))
    kept = maps.at(maps._stamp).fold_columns("v")
    assert kept is not None
    assert kept.held_bytes
    assert finished(view.fold([], columns=["n"])) == [(before,)]
    assert maps.at(maps._stamp).fold_columns("v") is kept
    warehouse.insert("r", rows_of(random.Random(1), 3))
    assert finished(view.fold([], columns=["n"])) == [(before + 3,)]
    fire = warehouse.trigger("r")
    for row in rows_of(random.Random(2), 2):
        fire(1, *row)
    assert finished(view.fold([], columns=["n"])) == [(before + 5,)]


def test_a_sum_beyond_128_bits_on_the_way_is_added_one_by_one() -> None:
    script = "CREATE TABLE r (a INT, x HUGEINT); CREATE VIEW v AS SELECT a, SUM(x) AS total FROM r GROUP BY a"
    warehouse = cumulus.Warehouse(script, engine="native")
    count = reading.FEW_ENTRIES * 2
    warehouse.insert("r", [(n, 2**126 if n < count // 2 else -(2**126)) for n in range(count)])
    view = warehouse.view("v")
    assert finished(view.fold([])) == [(0,)]
    with pytest.raises(cumulus.errors.EvaluationError, match=r"view v folded by \(\), total at \(\): .* 128 bits"):
        view.fold([], {"a": cumulus.between(0, count // 2)}).finish()
