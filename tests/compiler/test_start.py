"""Views with rows over empty tables, beside DuckDB: before the first event, after each, and empty again."""

from __future__ import annotations

import random

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import UnsupportedError
from cumulus.scalars.user import function
from support.differential import run
from support.random_tables import SCHEMA, walk
from support.tiers import sampled

SELECTS = [
    "SELECT COUNT(*) AS n, SUM(x.m) AS y FROM (SELECT MAX(a) AS m FROM r) x",
    "SELECT x.lo, x.hi, COUNT(*) AS n FROM (SELECT MIN(d) AS lo, MAX(c) AS hi FROM r) x GROUP BY ALL",
    "SELECT m, COUNT(*) AS n FROM (SELECT x.m FROM (SELECT MAX(a) AS m FROM r) x) y GROUP BY m",
    "SELECT 1 AS k, COUNT(*) AS n FROM (SELECT SUM(a) AS s FROM r) x WHERE s IS NULL",
    "SELECT x.n FROM (SELECT COUNT(*) AS n FROM r HAVING COUNT(*) < 2) x",
    # Totals of grouping sets.
    "SELECT a, b, x.n FROM (SELECT a, b, COUNT(*) AS n FROM r GROUP BY ROLLUP(a, b)) x",
    "SELECT a, b, x.n FROM (SELECT a, b, COUNT(*) AS n FROM r GROUP BY CUBE(a, b)) x",
    """SELECT a, SUM(x.n) AS n FROM (
        SELECT a, b, COUNT(*) AS n, MIN(d) AS low FROM r GROUP BY GROUPING SETS ((a), (b), ())
    ) x WHERE low IS NULL GROUP BY a""",
    # Joins and set operations.
    "SELECT r.a, x.n FROM r RIGHT JOIN (SELECT COUNT(*) AS n FROM s) x ON r.a = x.n",
    "SELECT x.n, y.n AS k FROM (SELECT COUNT(*) AS n FROM r) x FULL JOIN (SELECT b, COUNT(*) AS n FROM t GROUP BY b) y "
    "ON x.n = y.b",
    "SELECT COUNT(*) AS n FROM (SELECT COUNT(*) AS n FROM r) x, (SELECT MAX(f) AS m FROM s) y",
    "SELECT COUNT(*) AS n FROM r UNION ALL SELECT COUNT(*) FROM s",
    "SELECT COUNT(*) AS n FROM r EXCEPT SELECT COUNT(*) FROM s",
    # Sub-queries over the row that is there.
    "SELECT COUNT(*) AS n FROM (SELECT COUNT(*) AS n FROM r) x WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = x.n)",
    "SELECT x.n, (SELECT COUNT(*) FROM t WHERE t.b = x.n) AS k FROM (SELECT COUNT(*) AS n FROM r) x",
    # Keys and values of other types.
    "SELECT x.n + 0.5 AS h, x.n * 1e0 AS f, 'k' AS k, x.n > 0 AS p FROM (SELECT COUNT(*) AS n FROM r) x",
    "SELECT DATE '2020-01-31' + CAST(x.n AS INT) AS day, COUNT(*) AS k FROM (SELECT COUNT(*) AS n FROM r) x GROUP BY 1",
    "SELECT SUM(x.n * 0.5e0) AS f, SUM(x.m) AS g, AVG(x.n + 0.25) AS q "
    "FROM (SELECT COUNT(*) + 1 AS n, SUM(f) AS m FROM s) x",
]


def there_and_back(seed: int, length: int):
    """A walk that ends with all tables empty, as they were."""
    events = walk(random.Random(seed), length)
    left = [(relation, row) for sign, relation, row in events if sign > 0]
    for sign, relation, row in events:
        if sign < 0:
            left.remove((relation, row))
    return [*events, *((-1, relation, row) for relation, row in left)]


@pytest.mark.parametrize("select", sampled(SELECTS, of=3))
def test_rows_over_empty_tables_are_there_from_the_start_and_stay_right(select):
    program = compile_sql(f"{SCHEMA}CREATE VIEW v AS {select}")
    assert any(definition.initial for definition in program.maps), "else this says nothing about them"
    for seed, batch in ((1, False), (2, True)):
        run(f"CREATE VIEW v AS {select}", there_and_back(seed, 8), batch=batch)


def test_views_over_views_start_with_what_these_have():
    script = """CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(d) AS s FROM r;
CREATE VIEW v AS SELECT n, COUNT(*) AS k FROM total WHERE s IS NULL GROUP BY n"""
    program = compile_sql(SCHEMA + script)
    assert program.map("v").initial == (((0,), (1,)),)
    assert "START (0: 1)" in str(program)


def test_maps_that_are_empty_over_empty_tables_start_empty():
    program = compile_sql(
        f"""{SCHEMA}CREATE VIEW v AS SELECT COUNT(*) AS n, MAX(a) AS m FROM r;
        CREATE VIEW w AS SELECT a, x.n FROM (SELECT a, COUNT(*) AS n FROM r GROUP BY a) x WHERE NOT n > 3;
        CREATE VIEW o AS SELECT s.a, x.n FROM s LEFT JOIN (SELECT COUNT(*) AS n FROM t) x ON s.a = x.n;"""
    )
    assert not any(definition.initial for definition in program.maps)


def test_static_tables_are_empty_until_their_rows_come():
    schema = "CREATE TABLE p (a INT) WITH (static = true); CREATE TABLE r (a INT, b INT);\n"
    plain = "CREATE TABLE p (a INT); CREATE TABLE r (a INT, b INT);"
    select = "SELECT x.n, y.m FROM (SELECT COUNT(*) AS n FROM p) x, (SELECT MAX(b) AS m FROM r) y"
    events = [(1, "p", (1,)), (1, "p", (2,)), (1, "r", (1, 5)), (1, "r", (2, 3)), (-1, "r", (1, 5)), (-1, "r", (2, 3))]
    run(f"CREATE VIEW v AS {select}", events, schema=schema, plain=plain)


def test_a_row_that_cannot_be_computed_is_not_there():
    # As for events: what fails counts as nothing, when it comes and when it goes.
    text = "SELECT CAST('x' || x.n AS INT) AS bad, COUNT(*) AS k FROM (SELECT COUNT(*) AS n FROM r) x GROUP BY 1"
    assert not compile_sql(f"{SCHEMA}CREATE VIEW v AS {text}").map("v").initial


def test_a_function_of_the_user_has_no_value_before_it_is_given():
    @function
    def twice(a: int) -> int:
        return 2 * a

    over_total = "SELECT twice(x.n) AS k FROM (SELECT COUNT(*) AS n FROM r) x"
    with pytest.raises(UnsupportedError, match="they depend on twice, a function of yours"):
        compile_sql(f"{SCHEMA}CREATE VIEW v AS {over_total}", functions=[twice])
    compile_sql(f"{SCHEMA}CREATE VIEW v AS SELECT twice(COUNT(*)) AS k FROM r", functions=[twice])
    compile_sql(
        f"{SCHEMA}CREATE VIEW v AS SELECT twice(x.n) AS k FROM (SELECT COUNT(*) AS n FROM r GROUP BY a) x",
        functions=[twice],
    )
