"""How quickly files become applied rows: change logs, JSON lines, CSV and Parquet, through the folder host.

Each format has the same orders; reading, packing, applying and writing the view are all in the time.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow.csv import write_csv
from pyarrow.parquet import write_table

from cumulus_lab.bench.edges.turns import measure_by_turns

_SQL = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer VARCHAR, price DECIMAL(8,2), quantity INTEGER, sold DATE);
CREATE VIEW revenue AS
SELECT customer, SUM(price * quantity) AS total, COUNT(*) AS n FROM orders GROUP BY customer;
"""
_ROWS = 200_000
_REPETITIONS = 3
_SOURCE = {"version": "3.0", "connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "txId": 5}


class FileFormat(NamedTuple):
    """A way to write the rows: its name, the ending and options of its file, and what writes one."""

    name: str
    ending: str
    options: str
    write: Callable[[pa.Table, Path], None]


def rows(scale: float) -> list[tuple[str, float]]:
    """Return how many rows of each format a second of CPU takes in, by name.

    A row of a change log is one message: an insertion, or an update with the row before and after. With scale 1, each
    format has 200,000 rows.

    Examples
    --------
    >>> [name for name, speed in rows(0.001) if speed > 0]
    ['Debezium', 'JSON lines', 'CSV', 'Parquet']
    """
    from cumulus.compiler.pipeline import compile_sql

    count = max(int(_ROWS * scale), 10)
    orders = _orders(count)
    program = compile_sql(_SQL, rely=False)
    with tempfile.TemporaryDirectory() as folder:
        for each in _FORMATS:
            each.write(orders, Path(folder) / f"orders{each.ending}")
        runs = {each.name: partial(_rows_a_second, program, Path(folder), each, count) for each in _FORMATS}
        return measure_by_turns(runs, _REPETITIONS)


def _rows_a_second(program: Any, folder: Path, each: FileFormat, count: int) -> float:
    from cumulus.engine.engines import make_engine
    from cumulus.epochs.embedded_run import EmbeddedRun
    from cumulus.epochs.sources import sources_from

    sources = sources_from([f"orders={folder}/orders{each.ending}{each.options}"], program)
    out = tempfile.mkdtemp(dir=folder)
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "auto")) as running:
        before = process_time()
        [epoch] = running.steps()
        seconds = process_time() - before
    assert epoch.counts["applied"] == epoch.counts["events"] >= count, epoch.counts
    return count / seconds


def _orders(count: int) -> pa.Table:
    choose = np.random.default_rng(1)
    cents = pa.array(choose.integers(100, 99_999, count), pa.int32()).cast(pa.decimal128(10, 0))
    return pa.table(
        {
            "id": pa.array(np.arange(count), pa.int32()),
            "customer": [f"c{number}" for number in choose.integers(0, 1000, count)],
            "price": pa.Array.from_buffers(pa.decimal128(8, 2), count, cents.buffers()),
            "quantity": pa.array(choose.integers(1, 20, count), pa.int32()),
            "sold": pa.array(choose.integers(19_000, 20_000, count), pa.int32()).cast(pa.date32()),
        }
    )


def _records(orders: pa.Table) -> Iterator[dict[str, Any]]:
    for row in orders.to_pylist():
        yield row | {"price": float(row["price"]), "sold": row["sold"].isoformat()}


def _write_json(orders: pa.Table, path: Path) -> None:
    with path.open("w") as file:
        for row in _records(orders):
            file.write(json.dumps(row | {"seq": row["id"], "op": "i"}) + "\n")


def _write_debezium(orders: pa.Table, path: Path) -> None:
    with path.open("w") as file:
        before: dict[str, Any] | None = None
        for number, row in enumerate(_records(orders)):
            after, op = row, "c"
            if number % 3 == 2 and before is not None:  # the order before this one is corrected
                after, op = before | {"quantity": 7}, "u"
            message = {"before": before if op == "u" else None, "after": after, "op": op, "ts_ms": 1_700_000_000_000}
            file.write(json.dumps(message | {"source": _SOURCE | {"lsn": number}}) + "\n")
            before = after


_FORMATS = (
    FileFormat("Debezium", ".log", ",format=debezium,order=source.lsn", _write_debezium),
    FileFormat("JSON lines", ".jsonl", "", _write_json),
    FileFormat("CSV", ".csv", "", write_csv),
    FileFormat("Parquet", ".parquet", "", write_table),
)
