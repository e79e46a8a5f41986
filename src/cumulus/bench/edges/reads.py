"""Reading a view of a million groups, beside DuckDB reading the same rows from a table of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

_GROUPS = 1_000_000
_REPEATS = 5
_SQL = """
CREATE TABLE t (g BIGINT, x BIGINT);
CREATE VIEW v AS SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g;
"""


class TimedRead(NamedTuple):
    """One way to read, and the milliseconds of CPU time that it takes: the median of a few."""

    name: str
    milliseconds: float


def rows(scale: float = 1.0) -> list[TimedRead]:
    """Measure reading a view: whole, one row, a display, and as a pandas frame; each beside DuckDB, one by turns.

    Parameters
    ----------
    scale
        Of a million groups, how many there are.
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
        return _timed(ways)


def _timed(ways: dict[str, Callable[[], object]]) -> list[TimedRead]:
    """Return what each of some ways takes, all of them by turns, after one turn that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_REPEATS + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            times[name].append((time.process_time() - start) * 1000)
    return [TimedRead(name, statistics.median(each[1:])) for name, each in times.items()]
