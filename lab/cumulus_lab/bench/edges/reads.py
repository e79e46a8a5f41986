"""Reading a view of a million groups, beside DuckDB reading the same rows from a table of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds

_GROUPS = 1_000_000
_REPETITIONS = 5
_SQL = """
CREATE TABLE t (g BIGINT, x BIGINT);
CREATE VIEW v AS SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g;
"""


def rows(scale: float) -> list[tuple[str, float]]:
    """Return the milliseconds of CPU time that reading a view takes: whole, one row, a display, as a pandas frame.

    Each stands beside DuckDB. With scale 1, there are a million groups.
    """
    import duckdb
    import numpy as np
    import pyarrow as pa

    from cumulus import Warehouse

    count = max(int(_GROUPS * scale), 10)
    warehouse = Warehouse(_SQL)
    keys = np.random.default_rng(1).permutation(count)
    warehouse.insert("t", pa.table({"g": keys, "x": np.arange(count)}))
    view = warehouse.view("v")
    with duckdb.connect() as connection:
        connection.register("given", view.arrow())
        connection.execute("CREATE TABLE v AS SELECT g, n, s::HUGEINT AS s FROM given")
        connection.unregister("given")
        one = "SELECT * FROM v WHERE g = 5"
        ways: dict[str, Callable[[], object]] = {
            "arrow()": view.arrow,
            "arrow(), DuckDB": lambda: connection.sql("FROM v").to_arrow_table(),
            "query of one key": lambda: warehouse.query(one),
            "query of one key, DuckDB": lambda: connection.sql(one).to_arrow_table(),
            "print(view)": lambda: repr(view),
            "print(view), DuckDB": lambda: repr(connection.sql("FROM v")),
            "pandas()": view.pandas,
            "pandas(), DuckDB": lambda: connection.sql("FROM v").df(),
        }
        return measure_by_turns({name: partial(_milliseconds, way) for name, way in ways.items()}, _REPETITIONS)


def _milliseconds(way: Callable[[], object]) -> float:
    return microseconds(way) / 1000
