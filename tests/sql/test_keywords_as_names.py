"""Every keyword of DuckDB as a name: taken where DuckDB takes it, or refused with the advice to quote it."""

from __future__ import annotations

import duckdb
import pytest

import cumulus
from cumulus import CumulusError, Warehouse
from support.tiers import sampled

PLACES = {
    "column": "CREATE TABLE t ({0} INTEGER, x INTEGER); CREATE VIEW v AS SELECT {0}, SUM(x) AS s FROM t GROUP BY {0}",
    "operand": "CREATE TABLE t ({0} INTEGER, x INTEGER); CREATE VIEW v AS SELECT x + {0} AS y FROM t WHERE {0} > 1",
    "behind a dot": "CREATE TABLE t ({0} INTEGER); CREATE VIEW v AS SELECT t.{0} FROM t",
    "table": "CREATE TABLE {0} (a INTEGER); CREATE VIEW v AS SELECT a FROM {0}",
    "view": "CREATE TABLE t (a INTEGER); CREATE VIEW {0} AS SELECT a FROM t",
    "alias": "CREATE TABLE t (a INTEGER); CREATE VIEW v AS SELECT a AS {0} FROM t",
}
ONCE_REFUSED = (
    *("alter", "cube", "drop", "exclude", "force", "grant", "insert", "install", "lock", "map", "revoke", "rollback"),
    *("rollup", "function", "macro"),
)


def keywords() -> list[str]:
    """Return DuckDB's keywords."""
    with duckdb.connect() as connection:
        found = connection.execute("SELECT DISTINCT keyword_name FROM duckdb_keywords() ORDER BY 1").fetchall()
    return [word for (word,) in found]


def takes(script: str) -> str:
    """Return what Cumulus says against a script, "" if it takes it."""
    try:
        cumulus.compile(script)
    except CumulusError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("part", sampled(range(16), of=8))
def test_every_keyword_is_a_name_or_is_to_be_quoted(part: int) -> None:
    problems = []
    for word in keywords()[part::16]:
        for place, pattern in PLACES.items():
            told = takes(pattern.format(word))
            if told and "quoted" not in told:
                problems.append(f"{word} as {place}: {told}")
            if told and takes(pattern.format(f'"{word}"')):
                problems.append(f"{word} as {place} is refused in quotes")
    assert problems == []


@pytest.mark.parametrize("word", ONCE_REFUSED)
def test_words_that_duckdb_takes_bare(word: str) -> None:
    for pattern in PLACES.values():
        assert takes(pattern.format(word)) == "", word
        assert takes(pattern.format(word.upper())) == "", word


def test_columns_with_such_names_are_read_back_by_duckdb() -> None:
    columns = ", ".join(f"{word} INTEGER" for word in ONCE_REFUSED)
    names = ", ".join(ONCE_REFUSED)
    warehouse = Warehouse(
        f"CREATE TABLE t ({columns}); CREATE VIEW v AS SELECT {names}, COUNT(*) AS n FROM t GROUP BY ALL"
    )
    row = tuple(range(len(ONCE_REFUSED)))
    warehouse.insert("t", [row])
    assert warehouse.view("v").rows() == [(*row, 1)]
    assert warehouse.query(f"SELECT {names} FROM v").rows() == [row]


def test_clauses_of_these_words_are_read_as_before() -> None:
    script = "CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER);"
    for select in (
        "SELECT a, b, SUM(c) AS s FROM t GROUP BY CUBE (a, b)",
        "SELECT a, b, SUM(c) AS s FROM t GROUP BY ROLLUP (a, b)",
        "SELECT a FROM t WHERE a BETWEEN 1 AND 2",
    ):
        assert takes(f"{script} CREATE VIEW v AS {select}") == "", select
    assert (
        takes(f"{script} CREATE CUBE v DIMENSION a DIMENSION b AS SELECT a, b, SUM(c) AS s FROM t GROUP BY a, b") == ""
    )
    assert takes(f"{script} CREATE VIEW v AS SELECT a FROM t; DROP VIEW v") == ""
    assert "EXCLUDE (c)' is not supported" in takes(f"{script} CREATE VIEW v AS SELECT * EXCLUDE (c) FROM t")
    assert "ALTER" in takes(f"{script} ALTER TABLE t ADD COLUMN d INTEGER")
    assert "INSERT" in takes(f"{script} INSERT INTO t VALUES (1, 2, 3)")
