"""A view with the sums of a cube's level is found, and only where all of them are there."""

from __future__ import annotations

import pytest

from cumulus import m3
from cumulus.compiler import compile_sql

TABLES = """
CREATE TABLE c (cust INT PRIMARY KEY RELY, region VARCHAR, nation VARCHAR);
CREATE TABLE o (k INT PRIMARY KEY RELY, y INT NOT NULL, d DATE, cust INT NOT NULL, rev BIGINT, delay DOUBLE,
                FOREIGN KEY (cust) REFERENCES c RELY);
"""
JOIN = "FROM o JOIN c USING (cust)"
CUBE = (
    f"SELECT y, MONTH(d) AS m, region, nation, COUNT(*) AS n, AVG(delay) AS mean, MAX(rev) AS top {JOIN} GROUP BY ALL"
)
ALL = "COUNT(*) AS n, AVG(delay), MAX(rev)"

FOUND = [
    (f"SELECT y, {ALL} {JOIN} GROUP BY y", ("y",)),
    (f"SELECT region, y, {ALL} FROM c JOIN o USING (cust) GROUP BY ALL", ("y", "region")),
    (f"SELECT {ALL} {JOIN}", ()),
    (f"SELECT y AS year, SUM(rev) AS more, {ALL} {JOIN} GROUP BY y HAVING SUM(rev) > 3 ORDER BY year LIMIT 2", ("y",)),
    (f"SELECT MONTH(d), nation, {ALL} {JOIN} GROUP BY ALL", ("m", "nation")),
    # The reference is trusted, so that each order has one customer: the join is the table.
    (f"SELECT y, {ALL} FROM o GROUP BY y", ("y",)),
    # A view over the cube's rows keeps sums of its own.
    ("SELECT y, SUM(n) AS n FROM sales GROUP BY y", None),
    (f"SELECT y, COUNT(*) AS n, AVG(delay) {JOIN} GROUP BY y", None),  # lacks MAX
    (f"SELECT y, COUNT(*) AS n, SUM(delay), MAX(rev) {JOIN} WHERE rev > 0 GROUP BY y", None),
    (f"SELECT DAY(d), {ALL} {JOIN} GROUP BY ALL", None),
    (f"SELECT cust, {ALL} {JOIN} GROUP BY ALL", None),
    (f"SELECT y, {ALL} FROM o JOIN c USING (cust) JOIN c AS c2 ON c2.nation = c.nation GROUP BY y", None),
]


@pytest.mark.parametrize(("select", "columns"), FOUND, ids=[select for select, _ in FOUND])
def test_a_level_is_found_where_all_its_sums_are(select: str, columns: tuple[str, ...] | None) -> None:
    program = compile_sql(f"{TABLES}CREATE CUBE sales AS {CUBE}; CREATE VIEW other AS {select}")
    levels = program.cubes[0].levels
    assert [(level.columns, level.kept) for level in levels] == ([] if columns is None else [(columns, False)])
    assert all(program.view(level.view).maps == ("other",) for level in levels)
    assert [view.name for view in program.shown_views] == ["sales", "other"]
    assert m3.parse(str(program)) == program
    m3.validate(program)


def test_a_level_that_is_kept_shares_the_maps_of_an_equal_view_and_is_named_once() -> None:
    view = f"CREATE VIEW other AS SELECT y, {ALL} {JOIN} GROUP BY y;"
    program = compile_sql(f"{TABLES}{view} CREATE CUBE sales KEEP (y) AS {CUBE}")
    (level,) = program.cubes[0].levels
    assert (level.columns, level.kept, program.view(level.view).maps) == (("y",), True, ("other",))
    without = compile_sql(f"{TABLES}{view} CREATE CUBE sales AS {CUBE}")
    assert len(program.maps) == len(without.maps)


def test_counted_values_are_found_by_the_map_that_holds_them() -> None:
    text = "SELECT {} COUNT(*) AS n, COUNT(DISTINCT rev) AS revs FROM o JOIN c USING (cust) GROUP BY ALL"
    program = compile_sql(
        f"{TABLES}CREATE CUBE sales AS {text.format('y, region, nation,')};"
        f"CREATE VIEW other AS {text.format('region, y,')}"
    )
    assert [(level.columns, level.kept) for level in program.cubes[0].levels] == [(("y", "region"), False)]
