"""The claim that a value is updated in constant time, whatever the tables hold."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from cumulus.warehouse.warehouse import Warehouse
from cumulus_lab.claims.claims import ClaimFound, ClaimScale, Rows, ratio
from cumulus_lab.workloads import orders

_PARTS, _PART = 20, 1_000
"""The last events of a stream, whose time counts: so many parts, of so many each."""
_SIZES = (0.5, 2, 8, 32)
"""Rows there are, in events of the scale."""


def constant_updates(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure the time of an event, in one process, by how many rows there are."""
    rows: Rows = []
    for size in _SIZES:
        wanted = size * scale.events + _PARTS * _PART
        stream = orders.stream(scale=wanted / orders.ROWS, deletes=0, seed=0)
        there = len(stream.kinds) - _PARTS * _PART
        warehouse = Warehouse(orders.SQL)
        for name, table in stream.part(0, there).tables.items():
            warehouse.insert(name, table)
        took = []
        for number in range(_PARTS):
            part = stream.part(there + number * _PART, there + (number + 1) * _PART).tables
            began = time.process_time()
            for name, table in part.items():
                warehouse.insert(name, table)
            took.append(time.process_time() - began)
        rows.append({"rows": there, "us_per_event": round(median(took) / _PART * 1e6, 3)})
    small, large = rows[0], rows[-1]
    sentence = (
        f"With {large['rows']:,} rows an event takes {large['us_per_event']} µs, which is "
        f"{ratio(large['us_per_event'], small['us_per_event'])} what it takes with {small['rows']:,}."
    )
    until = "As long as the maps fit the processor's caches; behind them a look-up costs more, and no more than that."
    return ClaimFound(rows, sentence, until)
