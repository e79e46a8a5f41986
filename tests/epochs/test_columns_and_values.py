"""Every type of a file's column for every declared type: by columns comes what comes value by value, or a refusal."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cumulus.catalog.arrow import plain_list
from cumulus.catalog.events import ORDER_COLUMN, POSITION_COLUMN
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import SqlType
from cumulus.engine.batches import rows_of
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats import lines
from cumulus.epochs.intake.reading import Reading, read_file, read_table
from cumulus.errors import CumulusError, InputError
from support.arrow_extremes import DECLARED, REFUSED, TEXTS, WHOLE, columns, one_by_one, shown, taken, those
from support.tiers import sampled

COLUMNS = list(columns())
SOURCE = FolderSource("r", "")


def relation_of(sql_type: SqlType) -> Relation:
    return Relation("r", (Column("x", sql_type),))


def rows_in(reading: Reading, count: int) -> list[Any]:
    """Return what became of each row; each is there once."""
    found: list[Any] = [None] * count
    positions = reading.rows.column(POSITION_COLUMN).to_pylist()
    for position, value in zip(positions, plain_list(reading.rows.column("x")), strict=True):
        found[position - 1] = shown(value)
    for rejected in reading.rejected:
        assert rejected.reason.startswith("x: "), rejected
        assert rejected.reason.strip() != "x:"
        found[rejected.position - 1] = REFUSED
    assert sorted([*positions, *(each.position for each in reading.rejected)]) == [*range(1, count + 1)]
    return found


def as_run(array: Any, sql_type: SqlType) -> list[Any] | None:
    """Return what a run makes of each cell of a column; None if it refuses the column's type."""
    try:
        reading = read_table(SOURCE, relation_of(sql_type), pa.table({"x": array}), "place")
    except InputError as problem:
        told = str(problem)
    else:
        return rows_in(reading, len(array))
    assert "column 'x' is" in told
    return None


def as_warehouse(array: Any, sql_type: SqlType) -> list[Any]:
    """Return what a warehouse makes of the cells of a column; REFUSED for all if it takes none."""
    relation = relation_of(sql_type)
    try:
        return [shown(event.row[0]) for event in rows_of(1, relation, pa.table({"x": array}), relation.checked)]
    except CumulusError as problem:
        told = str(problem)
    assert "r.x" in told
    return [REFUSED] * len(array)


@pytest.mark.parametrize("sql_type", sampled(DECLARED, of=2, first=1), ids=str)
def test_columns_say_what_values_say(sql_type: SqlType) -> None:
    for given in COLUMNS:
        wanted = [taken(cell, sql_type, by_arrow=True) for cell in given.cells]
        found = as_run(given.array, sql_type)
        if found is None:
            assert {str(each) for each in wanted} <= {str(REFUSED), str(shown(None))}, given.name
            continue
        assert found == wanted, given.name
        assert [as_run(array, sql_type) for array in one_by_one(given.array)] == [[each] for each in wanted], given.name
        fits = [each is not REFUSED for each in wanted]
        assert as_run(those(given.array, fits), sql_type) == [each for each in wanted if each is not REFUSED]


@pytest.mark.parametrize("sql_type", sampled(DECLARED, of=2, first=0), ids=str)
def test_a_warehouse_takes_columns_as_it_takes_values(sql_type: SqlType) -> None:
    for given in COLUMNS:
        wanted = [taken(cell, sql_type, by_arrow=False) for cell in given.cells]
        alone = [found for array in one_by_one(given.array) for found in as_warehouse(array, sql_type)]
        assert alone == wanted, given.name
        fits = [each is not REFUSED for each in wanted]
        assert as_warehouse(those(given.array, fits), sql_type) == [each for each in wanted if each is not REFUSED]
        assert as_warehouse(given.array, sql_type) == (wanted if all(fits) else [REFUSED] * len(wanted)), given.name


def read(folder: Path, name: str, text: str, sql_type: SqlType) -> Reading:
    (folder / name).write_text(text, newline="")
    return read_file(FolderSource("r", str(folder)), relation_of(sql_type), str(folder / name), f"r/{name}")


@pytest.mark.parametrize("sql_type", sampled(DECLARED, of=2, first=1), ids=str)
def test_texts_of_csv_say_what_values_say(tmp_path: Path, sql_type: SqlType) -> None:
    cells = [f'"{text}"' for text in TEXTS]
    wanted = [taken(text, sql_type, by_arrow=True) for text in TEXTS]
    assert rows_in(read(tmp_path, "1.csv", "\n".join(["x", *cells]), sql_type), len(TEXTS)) == wanted
    for cell, each in zip(cells, wanted, strict=True):
        assert rows_in(read(tmp_path, "1.csv", f"x\n{cell}\n", sql_type), 1) == [each], cell


LITERALS = [
    *(json.dumps(text) for text in TEXTS),
    *map(str, WHOLE),
    *("true", "false", "null", "[]", "{}", "[1]", '{"a": 1}', "NaN", "Infinity", "-Infinity", "-0", "-0.0", "1e2"),
    *("1.5", "1.239", "59.97", "1e400", "1e-400", "1e999999999", "9" * 38, "9" * 39, "-" + "9" * 39, "9" * 5000),
    *(str(2**127 - 1), str(-(2**127)), "0." + "1" * 38, "0." + "1" * 39, "1e38", "1.0", "7.000", "5e-324", "0.1e-5"),
]


@pytest.mark.parametrize("sql_type", sampled(DECLARED, of=2, first=0), ids=str)
def test_values_of_json_say_what_values_say(tmp_path: Path, sql_type: SqlType, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [json.loads(each, parse_float=Decimal, parse_int=_whole) for each in LITERALS]
    wanted = [taken(cell, sql_type, by_arrow=True) for cell in cells]
    text = "\n".join(f'{{"x": {each}, "y": 1}}' for each in LITERALS)
    assert rows_in(read(tmp_path, "1.json", text, sql_type), len(LITERALS)) == wanted
    monkeypatch.setattr(lines, "_FEW", 1)  # columns also for two
    for literal, each in zip(LITERALS, wanted, strict=True):
        text = f'{{"x": {literal}, "y": 1}}\n' * 2
        assert rows_in(read(tmp_path, "1.json", text, sql_type), 2) == [each, each], literal


def _whole(text: str) -> Any:
    return int(text) if len(text) < 4000 and text != "-0" else Decimal(text)


@pytest.mark.parametrize("name", ["op", "seq", "extra"])
def test_no_cell_of_another_column_ends_a_run(name: str) -> None:
    """Operations, orders, and what is shown of a refused row: each row has one fate, or the column is refused."""
    for given in COLUMNS:
        for array in (given.array, *one_by_one(given.array)):
            table = pa.table({"x": pa.array(["no number"] * len(array)), name: array})
            try:
                reading = read_table(FolderSource("r", "", order="seq"), relation_of(DECLARED[3]), table, "place")
            except InputError as problem:
                told = str(problem)
                assert "the order column 'seq'" in told, given.name
                continue
            assert [each.position for each in reading.rejected] == [*range(1, len(array) + 1)], given.name
            assert all(each.row.encode() for each in reading.rejected)


def test_orders_finer_than_a_microsecond_are_no_repetitions() -> None:
    orders = pa.array([1000, 1001, 2**62], pa.timestamp("ns"))
    reading = read_table(
        FolderSource("r", "", order="seq"), relation_of(DECLARED[3]), pa.table({"x": [1, 2, 3], "seq": orders}), "place"
    )
    assert reading.rows.column(ORDER_COLUMN).to_pylist() == [1]
    assert ["is more precise than a microsecond" in each.reason for each in reading.rejected] == [True, True]
