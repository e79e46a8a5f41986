"""An integer literal takes the width of what it meets, as in DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from cumulus.compiler import compile_sql

TABLE = "CREATE TABLE u (b INTEGER, s SMALLINT, i TINYINT, d DECIMAL(5,1))"


@pytest.mark.parametrize(
    "scalar",
    [
        "coalesce(s, 0)",
        "coalesce(s, -1)",
        "coalesce(s, 70000)",
        "coalesce(i, 200)",
        "coalesce(i, 0, s)",
        "coalesce(d, 0)",
        "coalesce(MAX(s), 0)",
        "greatest(s, 1, 2)",
        "nullif(0, s)",
        "if(b > 1, s, 0)",
        "CASE WHEN b > 1 THEN s ELSE 0 END",
        "CASE WHEN b > 1 THEN 0 ELSE s END",
        "CASE WHEN b > 1 THEN s WHEN b > 2 THEN 0 END",
        "CASE WHEN b > 1 THEN 0 WHEN b > 2 THEN s END",
        "s + 1",
        "s + 70000",
    ],
)
def test_a_literal_has_the_type_that_duckdb_gives_it(scalar: str) -> None:
    database = duckdb.connect()
    database.execute(TABLE)
    query = f"SELECT {scalar} AS x FROM u"
    [column] = compile_sql(f"{TABLE}; CREATE VIEW v AS {query}").views[0].columns
    assert str(column.type) == str(database.sql(query).types[0])
