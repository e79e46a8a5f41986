"""Selections of a cube: folded from its finest map, looked up, and grouped by DuckDB from a table of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cumulus.views.folding import between
from cumulus_lab.bench.agreement import compare
from cumulus_lab.bench.edges.turns import microseconds

if TYPE_CHECKING:
    import duckdb

    from cumulus import Warehouse

TABLE = """
CREATE TABLE sales (y INT NOT NULL, m INT NOT NULL, region VARCHAR, nation VARCHAR, city INT, carrier VARCHAR,
                    price DECIMAL(9,2), weight DOUBLE, amount INT);
"""
_SQL = (
    TABLE
    + """
CREATE CUBE cube DIMENSION date (y, m) DIMENSION place (region, nation, city) DIMENSION carrier KEEP ()
AS SELECT y, m, region, nation, city, carrier, COUNT(*) AS orders, SUM(price) AS revenue, AVG(weight) AS mean_weight,
          SUM(amount) AS amounts, MAX(price) AS dearest FROM sales GROUP BY ALL;
"""
)
_FINEST = """
CREATE TABLE finest AS SELECT y, m, region, nation, city, carrier, COUNT(*) AS n, SUM(price) AS s, SUM(weight) AS w,
                              COUNT(weight) AS wn, SUM(amount) AS a, MAX(price) AS p FROM given GROUP BY ALL
"""
_MEASURES = {
    "orders": "SUM(n)::BIGINT",
    "revenue": "SUM(s)",
    "mean_weight": "SUM(w) / SUM(wn)",
    "amounts": "SUM(a)",
    "dearest": "MAX(p)",
}
_SUMS = tuple(name for name in _MEASURES if name != "dearest")


@dataclass(frozen=True, slots=True)
class _Shape:
    """A selection, and its condition for DuckDB."""

    by: tuple[str, ...]
    columns: tuple[str, ...] = _SUMS
    where: Mapping[str, Any] = field(default_factory=dict)
    condition: str = "TRUE"


_SHAPES = (
    _Shape((), where={"m": between(1, 12)}, condition="m BETWEEN 1 AND 12"),
    _Shape(("y",)),
    _Shape(("y",), ("revenue",)),
    _Shape(("y",), tuple(_MEASURES)),
    _Shape(("y", "region")),
    _Shape(("y", "m", "nation")),
    _Shape(("city",)),
    _Shape(("y",), where={"region": "REGION 1"}, condition="region = 'REGION 1'"),
    _Shape(("y",), where={"city": 5}, condition="city = 5"),
    _Shape(("nation",), where={"y": between(1993, 1994)}, condition="y BETWEEN 1993 AND 1994"),
    _Shape(("y", "m", "nation", "city"), ("orders", "revenue")),
)


def sales(count: int, seed: int) -> pa.Table:
    """Return rows of sales, nearly every one of another group."""
    draw = np.random.default_rng(seed)
    nations = draw.integers(0, 25, count)
    names = [np.array([f"{what} {number}" for number in range(30)]) for what in ("REGION", "NATION", "CARRIER")]
    prices = pa.array(draw.integers(0, 1000, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.table(
        {
            "y": pa.array(draw.integers(1992, 1999, count), pa.int32()),
            "m": pa.array(draw.integers(1, 13, count), pa.int32()),
            "region": names[0][nations // 5],
            "nation": names[1][nations],
            "city": pa.array(draw.integers(0, max(10, count // 400), count), pa.int32()),
            "carrier": names[2][draw.integers(0, 30, count)],
            "price": prices.cast(pa.decimal128(9, 2)),
            "weight": draw.random(count) * 1000,
            "amount": pa.array(draw.integers(0, 50, count), pa.int32()),
        }
    )


def rows(entries: int, seed: int, repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each selection of a cube with about so many entries, and one for a look-up."""
    import duckdb

    from cumulus import Warehouse

    given = sales(entries, seed)
    warehouse = Warehouse(_SQL, engine="native")
    warehouse.insert("sales", given)
    with duckdb.connect() as connection:
        connection.register("given", given)
        connection.execute(_FINEST)
        found = [_measured(shape, warehouse, connection, repetitions) for shape in _SHAPES]
        key = connection.execute("SELECT y, m, region, nation, city, carrier FROM finest LIMIT 1").fetchone()
    assert key is not None
    names = ("y", "m", "region", "nation", "city", "carrier")
    return [*found, *_looked_up(warehouse, dict(zip(names, key, strict=True)), repetitions)]


def _measured(
    shape: _Shape, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, repetitions: int
) -> dict[str, Any]:
    view = warehouse.view("cube")
    partial = view.fold(shape.by, shape.where, shape.columns)
    items = [*shape.by, *(f"{_MEASURES[column]} AS {column}" for column in shape.columns)]
    sql = f"SELECT {', '.join(items)} FROM finest WHERE {shape.condition}"
    sql += f" GROUP BY {', '.join(shape.by)}" if shape.by else ""
    compare(connection.sql(sql).to_arrow_table(), partial.finish(), f"cube by {shape.by} where {shape.condition}")

    def fold() -> object:
        return view.fold(shape.by, shape.where, shape.columns).finish()

    def after_an_event() -> float:
        # It comes and goes: what was read before is forgotten, and the rows stay what DuckDB has.
        with warehouse.transaction():
            for change in (warehouse.insert, warehouse.delete):
                change("sales", [(1992, 1, "REGION 0", "NATION 0", 1, "CARRIER 0", 1, 1.0, 1)])
        return microseconds(fold)

    figures: dict[str, Callable[[], float]] = {
        "first_ms": after_an_event,
        "again_ms": lambda: microseconds(fold),
        "duckdb_ms": lambda: microseconds(lambda: connection.sql(sql).to_arrow_table()),
    }
    times: dict[str, list[float]] = {name: [] for name in figures}
    for _ in range(repetitions):
        for name, figure in figures.items():
            times[name].append(figure() / 1000)
    medians = {name: median(each) for name, each in times.items()}
    return {
        "what": "selection",
        "by": ", ".join(shape.by) or "()",
        "where": "" if shape.condition == "TRUE" else shape.condition,
        "columns": len(shape.columns),
        "entries_read": partial.entries_read,
        "rows": partial.finish().num_rows,
        **{name: round(each, 2) for name, each in medians.items()},
        "first_ratio": round(medians["first_ms"] / medians["duckdb_ms"], 2),
        "again_ratio": round(medians["again_ms"] / medians["duckdb_ms"], 2),
    }


def _looked_up(warehouse: Warehouse, key: dict[str, Any], repetitions: int) -> list[dict[str, Any]]:
    """Return a row for one entry, found by its whole key, and one for the kept total."""
    view, count, found = warehouse.view("cube"), 300, []
    for by, where in ((("y",), key), ((), {})):
        partial = view.fold(by, where, _SUMS)

        def many(by: tuple[str, ...] = by, where: dict[str, Any] = where) -> None:
            for _ in range(count):
                view.fold(by, where, _SUMS).finish()

        times = [microseconds(many, count) / 1000 for _ in range(repetitions)]
        found.append(
            {
                "what": "look-up",
                "by": ", ".join(by) or "()",
                "where": "the whole key" if where else "",
                "columns": len(_SUMS),
                "entries_read": partial.entries_read,
                "rows": partial.finish().num_rows,
                "first_ms": None,
                "again_ms": round(median(times), 4),
                "duckdb_ms": None,
                "first_ratio": None,
                "again_ratio": None,
            }
        )
    return found
