"""CREATE CUBE and DROP CUBE: what they declare, and what they refuse, with the place and a way out."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import BindError, SqlError, SqlSyntaxError, UnsupportedError
from cumulus.m3.program import DimensionDef

TABLE = "CREATE TABLE o (y INT, m INT, region VARCHAR, rev BIGINT);\n"
AS = "AS SELECT y, m, region, COUNT(*) AS n, MIN(rev) AS low FROM o GROUP BY ALL"

REFUSED = [
    # text behind CREATE CUBE, error, line:column, words of the message, words of the way out
    (f"c {AS} HAVING n > 1", UnsupportedError, "2:97", "HAVING at the top of a cube", "in a view over it"),
    (f"c {AS} LIMIT 3", UnsupportedError, "2:96", "LIMIT at the top of a cube", "in a view over it"),
    (f"c {AS} ORDER BY y", UnsupportedError, "2:99", "ORDER BY at the top of a cube", "in a view over it"),
    (f"c {AS} ORDER BY ALL", UnsupportedError, "2:25", "ORDER BY at the top of a cube", "in a view over it"),
    (
        "c AS SELECT DISTINCT y, COUNT(*) AS n FROM o GROUP BY y",
        UnsupportedError,
        "2:34",
        "SELECT DISTINCT at the top of a cube",
        "Leave DISTINCT out",
    ),
    (f"c {AS} UNION ALL SELECT 1, 1, 'a', 1, 1", UnsupportedError, "2:25", "UNION at the top", "make the cube of that"),
    (
        "c AS SELECT y, COUNT(*) AS n FROM o GROUP BY ROLLUP (y)",
        UnsupportedError,
        "2:66",
        "GROUPING SETS at the top of a cube",
        "KEEP (…), (…)",
    ),
    ("c AS SELECT COUNT(*) AS n FROM o", BindError, "2:25", "no grouping columns", "GROUP BY"),
    ("c AS SELECT 1 AS k, COUNT(*) AS n FROM o GROUP BY k", BindError, "2:", "no grouping columns", "GROUP BY"),
    ("c AS SELECT y, m FROM o GROUP BY ALL", BindError, "2:25", "no measures", "COUNT(*) AS n"),
    ("c AS SELECT y, COUNT(*) AS n FROM o GROUP BY y, m", BindError, "2:58", "groups by m", "as it is"),
    (f"c DIMENSION d (y, q) {AS}", BindError, "2:31", "no column q", "y, m, region"),
    (f"c DIMENSION d (y, n) {AS}", BindError, "2:31", "n is no grouping column", "y, m, region"),
    (f"c DIMENSION d (y, Y) {AS}", BindError, "2:25", "the level y twice", "once"),
    (f"c DIMENSION d () {AS}", SqlSyntaxError, "2:25", "dimension d has no levels", "DIMENSION d (column"),
    (f"c DIMENSION d (y) DIMENSION D (m) {AS}", BindError, "2:41", "two dimensions are called D", "another name"),
    (f"c DIMENSION m (y) {AS}", BindError, "2:13", "m is a dimension, and a grouping column", "DIMENSION other (m)"),
    (f"c KEEP (z) {AS}", BindError, "2:21", "no column z", "y, m, region"),
    (f"c DIMENSION d (y) KEEP (e.y) {AS}", BindError, "2:37", "no dimension e", "It has d"),
    (f"c DIMENSION d (y) KEEP (d.m) {AS}", BindError, "2:37", "dimension d has no level m", "levels are y"),
    (f"c KEEP (y) KEEP () {AS}", SqlSyntaxError, "2:24", "KEEP stands here a second time", "behind one KEEP"),
    (f"c KEEP y {AS}", SqlSyntaxError, "2:20", "no list of levels in brackets", "KEEP (column, …)"),
    (f"c KEEP (y m) {AS}", SqlSyntaxError, "2:23", "neither a comma nor a closing bracket", "KEEP (column, …)"),
    (f"c KEEP (1) {AS}", SqlSyntaxError, "2:21", "where a level is wanted", "KEEP (column, …)"),
    (f"c DIMENSION d (y) {AS[3:]}", SqlSyntaxError, "2:31", "'SELECT' cannot stand here", "AS SELECT"),
    ("c DIMENSION", SqlSyntaxError, "2:15", "something is missing behind DIMENSION", "AS SELECT"),
    (f"c KEEP (y) WITH (order = 7) {AS}", BindError, "2:30", "unknown view option order = 7", "order = 0"),
    (
        "c KEEP (y) AS SELECT y, m, SUM(rev) / m AS q FROM o GROUP BY ALL",
        BindError,
        "2:20",
        "q needs m, which level (y) of cube c does not have",
        "Keep levels that have it",
    ),
    (
        f'c KEEP (y) {AS}; CREATE VIEW "c by y" AS SELECT y FROM o',
        BindError,
        "2:20",
        "c by y is there already",
        "another name",
    ),
    (
        f"c KEEP ALL AS SELECT {', '.join(f'rev + {n} AS k{n}' for n in range(9))}, COUNT(*) AS n FROM o GROUP BY ALL",
        UnsupportedError,
        "2:15",
        "512 combinations of levels; 256 is the most",
        "KEEP (a, b), (c)",
    ),
    (f'c KEEP (y) {AS}; CREATE VIEW v AS SELECT y FROM "c by y"', BindError, "2:", "no table c by y", "o, c"),
    (f"c {AS}; DROP VIEW c", BindError, "2:", "c is a cube", "DROP CUBE c"),
    (f"c {AS}; CREATE VIEW v AS SELECT y FROM c; DROP CUBE v", BindError, "2:", "v is a view", "DROP VIEW v"),
    (
        f"c {AS}; CREATE VIEW v AS SELECT y FROM c; DROP CUBE c",
        BindError,
        "2:",
        "view v reads c",
        "DROP CUBE c CASCADE",
    ),
    (f"c {AS}; DROP CUBE d", BindError, "2:", "no cube d to drop", "Cubes: c"),
    (f"c {AS}; CREATE CUBE c {AS}", BindError, "2:", "c is there already", "CREATE OR REPLACE CUBE"),
    (f"c {AS}; CREATE TABLE c (a INT)", BindError, "2:", "c is a cube", "another name"),
    ("", SqlSyntaxError, "2:8", "the name of the cube is missing", "CREATE CUBE name"),
]


@pytest.mark.parametrize(("text", "error", "place", "message", "hint"), REFUSED, ids=[each[3] for each in REFUSED])
def test_what_is_refused_is_told_with_its_place_and_a_way_out(
    text: str, error: type[SqlError], place: str, message: str, hint: str
) -> None:
    with pytest.raises(error) as caught:
        compile_sql(f"{TABLE}CREATE CUBE {text}", name="shop.sql")
    told = str(caught.value)
    assert f"shop.sql:{place}" in told
    assert message in told
    assert hint in caught.value.hint


def test_a_cube_has_its_dimensions_and_the_levels_that_it_keeps() -> None:
    program = compile_sql(
        f'{TABLE}CREATE CUBE c DIMENSION "Date" (Y, m) DIMENSION region '
        f"KEEP (date.m, Y), (region, y), (y, region), (), (m, region, y) {AS}"
    )
    (cube,) = program.cubes
    assert cube.dimensions == (DimensionDef("Date", ("y", "m")), DimensionDef("region", ("region",)))
    assert [(level.columns, level.view, level.kept) for level in cube.levels] == [
        (("y", "m"), "c by y, m", True),
        (("y", "region"), "c by y, region", True),
        ((), "c by ()", True),
    ]
    assert [[column.name for column in program.view(level.view).columns] for level in cube.levels] == [
        ["y", "m", "n", "low"],
        ["y", "region", "n", "low"],
        ["n", "low"],
    ]
    assert [view.name for view in program.shown_views] == ["c"]


def test_keep_all_keeps_every_combination_of_prefixes_once() -> None:
    program = compile_sql(f"{TABLE}CREATE CUBE c DIMENSION d (y, m) DIMENSION e (y, region) KEEP ALL {AS}")
    kept = [level.columns for level in program.cubes[0].levels]
    assert sorted(kept) == [(), ("y",), ("y", "m"), ("y", "region")]


def test_a_column_without_a_dimension_is_one_of_its_own() -> None:
    program = compile_sql(f"{TABLE}CREATE CUBE c DIMENSION d (m) {AS}")
    assert program.cubes[0].dimensions == (
        DimensionDef("d", ("m",)),
        DimensionDef("y", ("y",)),
        DimensionDef("region", ("region",)),
    )


def test_names_of_columns_that_a_level_lacks_are_known_in_other_clauses() -> None:
    """WHERE, and a measure, may use the alias of a column by which the level does not group."""
    program = compile_sql(
        f"{TABLE}CREATE CUBE c KEEP (region) AS SELECT y + 1 AS next, region,"
        " SUM(CASE WHEN next = 2 THEN rev END) AS s, UPPER(region) AS shown, next * 2 AS twice FROM o WHERE next > 0"
        " GROUP BY 1, region, next"
    )
    assert [column.name for column in program.view("c by region").columns] == ["region", "s", "shown"]
