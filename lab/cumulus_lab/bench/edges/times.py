"""What groups by functions of times cost beside a group by an integer: all are machine code, so they should be near."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from cumulus.warehouse import Warehouse

GROUPS = {
    "integer": "g",
    "date_trunc": "date_trunc('hour', ts)",
    "date_trunc of a month": "date_trunc('month', ts)",
    "time_bucket": "time_bucket(INTERVAL '1 hour', ts)",
    "cast to DATE": "ts::DATE",
    "hour": "hour(ts)",
    "epoch_us //": "epoch_us(ts) // 3600000000",
    "+ INTERVAL of days": "date_trunc('hour', ts + INTERVAL '3 days')",
    "+ INTERVAL of months": "date_trunc('hour', ts + INTERVAL '1 month')",
    "date_trunc of a TIMESTAMPTZ": "date_trunc('hour', tz)",
}
"""What is measured: the keys of `GROUP BY`, by their names."""
_ROWS, _REPETITIONS = 200_000, 5
_FIRST = 1_600_000_000_000_000
_STEP = 61_000_003
"""Microseconds between two rows: no two times are equal."""


def rows(scale: float) -> list[tuple[str, float]]:
    """Return how many microseconds of CPU an event costs for each of `GROUPS`, by name; with scale 1, of 200,000 rows.

    Examples
    --------
    >>> [name for name, cost in rows(0.0005) if cost > 0][:2]
    ['integer', 'date_trunc']
    """
    from cumulus.warehouse import Warehouse

    count = max(int(_ROWS * scale), 1)
    batches = [_batch(repetition * count, count) for repetition in range(_REPETITIONS + 1)]
    opened = {name: Warehouse(_script(key), keep="none") for name, key in GROUPS.items()}
    return measure_by_turns({name: partial(_inserted, wh, iter(batches)) for name, wh in opened.items()}, _REPETITIONS)


def _inserted(warehouse: Warehouse, batches: Iterator[pa.Table]) -> float:
    batch = next(batches)
    return microseconds(lambda: warehouse.insert("t", batch), batch.num_rows)


def _script(key: str) -> str:
    return (
        "CREATE TABLE t (g BIGINT, ts TIMESTAMP, tz TIMESTAMPTZ); "
        f"CREATE VIEW v AS SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY {key}"
    )


def _batch(first: int, count: int) -> pa.Table:
    """Return rows whose times are all different, in no order; the integer has as many values as there are hours."""
    import numpy as np
    import pyarrow as pa

    times = _FIRST + np.random.default_rng(first).permutation(np.arange(first, first + count)) * _STEP
    micros = pa.array(times, pa.int64())
    return pa.table(
        {
            "g": pa.array(times // 3_600_000_000, pa.int64()),
            "ts": micros.cast(pa.timestamp("us")),
            "tz": micros.cast(pa.timestamp("us", tz="UTC")),
        }
    )
