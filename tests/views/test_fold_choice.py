"""Which map of a cube answers a fold, what is read of it, and what only kept levels show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import cumulus
from cumulus import errors
from cumulus.m3.program import CubeDef, DimensionDef, LevelDef
from cumulus.views.folding import Candidate, Folds, MeasureKind, choose_level, reading
from support.oracle import Oracle, same_bag
from support.read_maps import ReadMaps

TABLES = "CREATE TABLE sales (y INT, region VARCHAR, city VARCHAR, price DECIMAL(9,2), weight DOUBLE, buyer INT);"
MEASURES = """COUNT(*) AS n, SUM(price) AS revenue, AVG(weight) AS mean, MIN(price) AS least, MAX(weight) AS most,
    COUNT(DISTINCT buyer) AS buyers, SUM(price) FILTER (WHERE buyer > 2) AS later FROM sales"""
KEYS = ("y", "region", "city")
LEVELS: tuple[tuple[str, ...], ...] = (("y", "region"), ("region",), ())


def name_of(level: tuple[str, ...]) -> str:
    return "cube" if level == KEYS else f"cube by {', '.join(level) or '()'}"


def select(level: tuple[str, ...], measures: str = MEASURES, where: str = "TRUE") -> str:
    items = "".join(f"{key}, " for key in level)
    return f"SELECT {items}{measures} WHERE {where}" + (f" GROUP BY {', '.join(level)}" if level else "")


def cube_program(measures: str = MEASURES, levels: Any = LEVELS, order: int | None = None) -> Any:
    script = TABLES + "".join(
        f'CREATE VIEW "{name_of(level)}" AS {select(level, measures)};' for level in (KEYS, *levels)
    )
    program = cumulus.compile(script, keep="none", order=order)
    dimensions = (DimensionDef("y", ("y",)), DimensionDef("place", ("region", "city")))
    return replace(
        program, cubes=(CubeDef("cube", dimensions, tuple(LevelDef(each, name_of(each)) for each in levels)),)
    )


ROWS = [
    (1990 + n % 4, "RST"[n % 3], f"c{n % 7}", f"{n % 11}.25", None if n % 5 == 0 else n * 0.5, n % 6) for n in range(80)
]


@pytest.fixture(params=["interpreter", "native"])
def cube(request: pytest.FixtureRequest) -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(cube_program(), engine=request.param)
    warehouse.insert("sales", ROWS)
    warehouse.delete("sales", ROWS[::9])
    return warehouse


def rows(partial: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in partial.finish().to_pylist()]


@pytest.mark.parametrize(
    ("by", "where", "chosen"),
    [
        (["y", "region"], {}, "cube by y, region"),
        (["y"], {}, "cube by y, region"),
        (["y"], {"region": "R"}, "cube by y, region"),
        (["region"], {}, "cube by region"),
        (["REGION"], {"Region": ["S", "T"]}, "cube by region"),
        ([], {}, "cube by ()"),
        ([], {"region": "T"}, "cube by region"),
        ([], {"city": "c1"}, "cube"),
        (["city"], {"y": 1991}, "cube"),
    ],
)
def test_the_smallest_map_that_has_the_columns_answers(
    cube: cumulus.Warehouse, by: list[str], where: dict[str, Any], chosen: str
) -> None:
    oracle = Oracle(TABLES)
    for row in set(ROWS) - set(ROWS[::9]):
        oracle.apply(+1, "sales", row)
    found = cube.view("cube").fold(by, where)
    assert found.choice.view == chosen
    assert found.choice.chosen.map == found.map == chosen
    conditions = [
        f"{key} IN ({', '.join(repr(each) for each in (values if isinstance(values, list) else [values]))})"
        for key, values in where.items()
    ]
    level = tuple(each.lower() for each in by)
    assert same_bag(rows(found), oracle.rows(select(level, where=" AND ".join(conditions) or "TRUE")))


def test_candidates_say_why_they_do_not_answer(cube: cumulus.Warehouse) -> None:
    engine = cube._state.session.engine
    sizes = {name: engine.stored_count(name) for name in map(name_of, (KEYS, *LEVELS))}
    choice = cube.view("cube").fold(["y"], columns=["n"]).choice
    assert choice.candidates == (
        Candidate(
            "cube",
            KEYS,
            "cube",
            sizes["cube"],
            f"it has more entries: {sizes['cube']} instead of {sizes['cube by y, region']}",
        ),
        Candidate("cube by y, region", ("y", "region"), "cube by y, region", sizes["cube by y, region"], ""),
        Candidate("cube by region", ("region",), "cube by region", 3, "it lacks y"),
        Candidate("cube by ()", (), "cube by ()", 1, "it lacks y"),
    )


def test_among_equals_the_one_with_fewer_columns_answers_then_the_first() -> None:
    program = cube_program()
    assert choose_level(program, "cube", ["region"], lambda map: 5).view == "cube by region"
    assert choose_level(program, "cube", ["region"], len).view == "cube"
    twice = replace(program, cubes=(replace(program.cubes[0], levels=program.cubes[0].levels * 2),))
    reasons = [each.reason for each in choose_level(twice, "cube", [], lambda map: 1).candidates]
    assert reasons.count("") == 1
    assert reasons[-1] == "it has as many entries as cube by (), which comes before it"
    with pytest.raises(errors.UsageError, match="no map of cube has the grouping columns z"):
        choose_level(program, "cube", ["z"], lambda map: 1)


@pytest.mark.parametrize("least", [0, reading.FEW_ENTRIES])
@pytest.mark.parametrize(
    ("by", "where", "read"),
    [
        (["city"], {"y": 1991, "region": "S", "city": "c1"}, 1),
        ([], {"y": 1991, "region": ["S", "T"]}, 2),
        ([], {"y": 1991, "region": "nowhere"}, 0),
        ([], {"y": None, "region": "S"}, 0),
        ([], {}, 1),
        (["y"], {}, 12),
    ],
)
def test_entries_read_are_those_that_the_engine_handed_out(
    cube: cumulus.Warehouse, by: list[str], where: dict[str, Any], read: int, least: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(reading, "FEW_ENTRIES", least)
    state = cube._state
    folds = Folds(state.session.program, state.finishers)
    maps = ReadMaps(state.session.engine)
    bounds = cumulus.views.folding.bounds_of(where)
    found = folds.fold(maps, "cube", by, bounds, ["n", "revenue", "mean"])
    assert found.entries_read == maps.read == read
    whole = folds.fold(maps, "cube", by, bounds)
    assert maps.read == found.entries_read + whole.entries_read
    assert same_bag(rows(whole), rows(cube.view("cube").fold(by, where)))


def test_over_no_rows_every_candidate_says_what_the_kept_total_says() -> None:
    empty = [(0, None, None, None, None, 0, None)]
    for levels in (LEVELS, LEVELS[:2]):
        warehouse = cumulus.Warehouse(cube_program(levels=levels), engine="interpreter")
        wanted = empty if () in levels else []
        assert rows(warehouse.view("cube").fold([])) == wanted
        warehouse.insert("sales", ROWS)
        for where in ({"y": 7}, {"region": "nowhere"}, {"city": []}):
            assert rows(warehouse.view("cube").fold([], where)) == wanted, where
        assert rows(warehouse.view("cube").fold(["y"], {"y": 7})) == []
    assert rows(warehouse.view("cube").fold([], {"y": 7}, ["revenue", "n"])) == []


FIXED = "COUNT(*) AS n, COUNT(DISTINCT buyer) AS buyers FROM sales"


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_what_cannot_be_put_together_is_shown_where_it_is_kept(engine: str) -> None:
    warehouse = cumulus.Warehouse(cube_program(FIXED, order=0), engine=engine)
    warehouse.insert("sales", ROWS)
    oracle = Oracle(TABLES)
    for row in ROWS:
        oracle.apply(+1, "sales", row)
    view = warehouse.view("cube")
    for level in (KEYS, *LEVELS):
        found = view.fold(level)
        assert found.choice.view == name_of(level)
        assert found.kinds["buyers"] == {MeasureKind.FIXED}
        assert same_bag(rows(found), oracle.rows(select(level, FIXED)))
    assert same_bag(
        rows(view.fold(["y", "region"], {"region": "S"})), oracle.rows(select(KEYS[:2], FIXED, "region = 'S'"))
    )
    with pytest.raises(errors.UsageError, match=r"column buyers of view cube cannot be folded.*\n.*KEEP \(y\)"):
        view.fold(["y"])
    with pytest.raises(errors.UsageError, match=r"Name all columns of where in by.*KEEP \(y, region\)"):
        view.fold(["y"], {"region": "S"})
    assert same_bag(rows(view.fold(["y"], columns=["n"])), oracle.rows(select(("y",), "COUNT(*) AS n FROM sales")))
    half = view.fold(["region"], {"region": ["R", "S"]})
    assert same_bag(rows(half + view.fold(["region"], {"region": "T"})), rows(view.fold(["region"])))
    with pytest.raises(errors.UsageError, match="have the same groups, and buyers does not add up"):
        half + half
