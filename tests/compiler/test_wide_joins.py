"""Joins of many tables: how many maps they need, and what happens where these are too many."""

import time
import warnings
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import LowerOrderWarning, UnsupportedError
from cumulus_lab.workloads.listing import benchmark
from support.command_line import cumulus
from support.tiers import sampled

COLUMNS = "k INTEGER, a INTEGER, b INTEGER, nx INTEGER"


def star(tables: int, *, view: str = "VIEW", options: str = "", keys: bool = False) -> str:
    """A fact table with a number of others around it."""
    key = " PRIMARY KEY" if keys else ""
    refers = (lambda at: f"d{at} INTEGER REFERENCES t{at}") if keys else (lambda at: f"d{at} INTEGER")
    made = [f"CREATE TABLE t{at} (k INTEGER{key}, a INTEGER)" for at in range(tables)]
    made.append(f"CREATE TABLE f (i INTEGER{key}, x INTEGER, {', '.join(map(refers, range(tables)))})")
    joins = " ".join(f"JOIN t{at} ON f.d{at} = t{at}.k" for at in range(tables))
    made.append(f"CREATE {view} v{options} AS SELECT t0.a, SUM(x + t1.a) AS s FROM f {joins} GROUP BY t0.a")
    return "; ".join(made)


@pytest.mark.slow
def test_a_star_without_keys_is_kept_in_a_lower_order_and_said() -> None:
    with pytest.warns(LowerOrderWarning, match=r"view v joins so many tables .* more than 40 maps"):
        program = compile_sql(star(8))
    assert len(program.maps) == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(compile_sql(star(5)).maps) == 37
        assert len(compile_sql(star(6), size=2).maps) == 70
        assert len(compile_sql(star(8, keys=True)).maps) == 17


@pytest.mark.slow
def test_who_insists_on_full_order_gets_it_and_a_strict_view_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(compile_sql(star(6, options=" WITH (order = full)")).maps) == 70
    with pytest.raises(UnsupportedError, match=r"view v joins so many tables .* and is STRICT") as caught:
        compile_sql(star(8, view="STRICT VIEW"))
    assert caught.value.line == 1
    assert "WITH (order = 1)" in str(caught.value)


@pytest.mark.parametrize("tables", sampled([12, 20, 40], of=3, first=1))
def test_no_star_takes_long(tables: int) -> None:
    started = time.process_time()
    with pytest.warns(LowerOrderWarning):
        compile_sql(star(tables))
    assert time.process_time() - started < 10


def chain(tables: int, conditions: str) -> str:
    made = [f"CREATE TABLE t{at} ({COLUMNS})" for at in range(tables)]
    joins = " AND ".join(f"t{at}.nx = t{at + 1}.k" for at in range(tables - 1))
    names = ", ".join(f"t{at}" for at in range(tables))
    made.append(
        f"CREATE VIEW v AS SELECT t0.a, COUNT(*) AS n FROM {names} WHERE {joins} AND {conditions} GROUP BY t0.a"
    )
    return "; ".join(made)


@pytest.mark.parametrize(
    "script",
    [
        chain(8, " AND ".join(f"(t{at}.a = 1 OR t{at + 1}.b = 2)" for at in range(7))),
        chain(8, "(" + " OR ".join(f"(t{at}.a = 1 AND t{at + 1}.b = 2)" for at in range(7)) + ")"),
        chain(2, "(" + " OR ".join(f"(t0.b = {at} AND t1.b > {at})" for at in range(300)) + ")"),
        f"CREATE TABLE t ({COLUMNS}); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE "
        + " OR ".join(f"b = {at}" for at in range(300))
        + " GROUP BY a",
    ],
)
def test_conditions_that_are_ored_make_no_more_maps(script: str) -> None:
    assert len(compile_sql(script).maps) <= 36


def test_a_wide_cube_is_refused_before_it_is_made() -> None:
    columns = ", ".join(f"c{at}" for at in range(26))
    table = f"CREATE TABLE t ({', '.join(f'c{at} INTEGER' for at in range(26))});"
    started = time.process_time()
    with pytest.raises(UnsupportedError, match="GROUP BY makes more than 256 grouping sets") as caught:
        compile_sql(f"{table} CREATE VIEW v AS SELECT {columns}, COUNT(*) AS n FROM t GROUP BY CUBE ({columns})")
    assert time.process_time() - started < 2
    assert "GROUPING SETS" in str(caught.value)


def test_a_number_of_some_rows_lives_beside_that_of_all() -> None:
    script = """
        CREATE TABLE r (k INTEGER NOT NULL, x INTEGER); CREATE TABLE s (k INTEGER NOT NULL, c VARCHAR);
        CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(x) AS sx, SUM(CASE WHEN c = 'b' THEN x END) AS b,
            COUNT(*) FILTER (WHERE c = 'd' AND x > 3) AS d FROM r JOIN s USING (k);
    """
    program = compile_sql(script)
    assert [m.name for m in program.maps] == ["v", "m1", "m2"]


def test_another_view_has_a_map_of_its_own_where_it_needs_few_rows_of_many() -> None:
    script = """
        CREATE TABLE r (k INTEGER NOT NULL, x INTEGER NOT NULL); CREATE TABLE s (k INTEGER NOT NULL, c VARCHAR);
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM r JOIN s USING (k);
        CREATE VIEW w AS SELECT SUM(x) AS sx FROM r JOIN s USING (k) WHERE c = 'b';
    """
    assert len(compile_sql(script).maps) == 5


def test_tables_that_meet_in_a_condition_alone_are_no_cross_product() -> None:
    script = """
        CREATE TABLE e (i INTEGER NOT NULL, j INTEGER NOT NULL);
        CREATE TABLE r (i INTEGER NOT NULL, x INTEGER NOT NULL);
        CREATE TABLE s (j INTEGER NOT NULL, y INTEGER NOT NULL);
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM e JOIN r USING (i) JOIN s USING (j) WHERE x < y;
    """
    sizes = [len([name for name in "ers" if f"{name}(" in str(m.definitions[0])]) for m in compile_sql(script).maps]
    assert sorted(sizes) == [1, 1, 1, 2, 2, 3]  # none of r and s without e


@pytest.mark.slow
def test_tpch_needs_few_maps() -> None:
    tpch = benchmark("tpch")
    queries = [f"q{number}" for number in range(1, 23)]

    def maps(keys: str, edit: str = "") -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowerOrderWarning)
            return sum(len(compile_sql(tpch.sql(query, keys=keys).replace(edit, "")).maps) for query in queries)

    assert maps("foreign") <= 175
    assert maps("none", " NOT NULL") <= 200


def test_the_warning_names_the_line_that_asked() -> None:
    with pytest.warns(LowerOrderWarning) as caught:
        compile_sql(star(8))
    assert caught[0].filename == __file__


def test_the_command_line_says_it_in_a_paragraph(tmp_path: Path) -> None:
    script = tmp_path / "star.sql"
    script.write_text(star(8))
    told = cumulus("compile", script)
    assert told.returncode == 0
    assert told.stderr.startswith("warning: view v joins so many tables")
    assert told.stderr.count("\n") == 1
