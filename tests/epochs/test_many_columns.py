"""Tables of thousands of columns: what a column costs does not grow with their number, however the rows come."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import INTEGER
from cumulus.engine.batches import rows_of
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import read_file, read_table

FEW, MANY = 250, 2000
ROWS = 5


def relation_of(count: int) -> Relation:
    return Relation("r", tuple(Column(f"c{place}", INTEGER) for place in range(count)))


def table_of(count: int, name: str = "c", *, of: Any = None) -> pa.Table:
    return pa.table({f"{name}{place}": pa.array([1] * ROWS, of or pa.int32()) for place in range(count)})


def _file(folder: Path, count: int, ending: str) -> Path:
    path = folder / f"{count}.{ending}"
    names = [f"c{place}" for place in range(count)]
    match ending:
        case "parquet":
            pq.write_table(table_of(count), path)
        case "csv":
            path.write_text("\n".join([",".join(names), *[",".join("1" * count)] * ROWS]))
        case _:
            line = ",".join(f'"{name}":1' for name in names)
            path.write_text("".join(f"{{{line}}}\n" for _ in range(ROWS)))
    return path


def _by_run(folder: Path, count: int, ending: str) -> Callable[[], object]:
    path, relation = _file(folder, count, ending), relation_of(count)
    return lambda: read_file(FolderSource("r", str(folder)), relation, str(path), "r/1")


def _by_rows(data: Any, count: int) -> Callable[[], object]:
    relation = relation_of(count)
    return lambda: list(rows_of(1, relation, data, relation.checked))


WAYS: dict[str, Callable[[Path, int], Callable[[], object]]] = {
    "table": lambda _, count: _by_rows(table_of(count), count),
    "names in another case": lambda _, count: _by_rows(table_of(count, "C"), count),
    "row by row": lambda _, count: _by_rows(table_of(count, of=pa.float64()), count),
    "dicts": lambda _, count: _by_rows([{f"C{place}": 1 for place in range(count)}] * ROWS, count),
    "pandas": lambda _, count: _by_rows(pandas.DataFrame({f"c{place}": [1] * ROWS for place in range(count)}), count),
    "Parquet": lambda folder, count: _by_rows(_file(folder, count, "parquet"), count),
    "CSV": lambda folder, count: _by_rows(_file(folder, count, "csv"), count),
    "table of a run": lambda _, count: (
        lambda: read_table(FolderSource("r", ""), relation_of(count), table_of(count, "C"), "r/1")
    ),
    **{
        f"{ending} of a run": lambda folder, count, ending=ending: _by_run(folder, count, ending)
        for ending in ("parquet", "csv", "json")
    },
}


def _cost(work: Callable[[], object]) -> float:
    """Return the least CPU time of three tries."""
    tries = []
    for _ in range(3):
        began = time.process_time()
        work()
        tries.append(time.process_time() - began)
    return min(tries)


@pytest.mark.parametrize("way", WAYS)
def test_columns_cost_what_they_cost_in_narrow_tables(tmp_path: Path, way: str) -> None:
    few, many = (_cost(WAYS[way](tmp_path, count)) for count in (FEW, MANY))
    # Eight times the columns: linear costs are eight times as much, quadratic ones 64 times.
    assert many < 24 * few
