"""A file says the same to a warehouse and to a run: its header, its columns, its dates."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cumulus
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import INTEGER, VARCHAR
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.batches import rows_of
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import read_file
from cumulus.errors import CumulusError, InputError
from support.arrow_extremes import DECLARED, REFUSED, TEXTS, shown, taken


def in_run(path: Path, table: str) -> tuple[list[Any], list[str]]:
    """Return the rows that a run takes from a file, and why it refuses others."""
    relation = compile_sql(table, rely=False).relation("r")
    reading = read_file(FolderSource("r", str(path.parent)), relation, str(path), "r/1")
    rows = reading.rows.select(relation.column_names).to_pylist()
    return [tuple(row.values()) for row in rows], [each.reason for each in reading.rejected]


def in_warehouse(path: Path, table: str) -> list[Any]:
    wh = cumulus.Warehouse(f"{table}; CREATE VIEW v AS SELECT * FROM r")
    wh.insert("r", path)
    return sorted(wh.view("v").rows())


HEADERS = ['id,"first\nname"\n1,ada\n', '"first\nname",id\r\nada,1\r\n']
# No script has such a name; programs may, and files may have such columns beside those of the table.
TWO_LINES = Relation("r", (Column("id", INTEGER), Column("first\nname", VARCHAR)))


def named_rows(path: Path) -> tuple[list[Any], list[Any]]:
    """Return the rows of a file of `TWO_LINES` in a run and in a warehouse."""
    rows = read_file(FolderSource("r", str(path.parent)), TWO_LINES, str(path), "r/1").rows
    run = [tuple(row.values()) for row in rows.select(TWO_LINES.column_names).to_pylist()]
    return run, [event.row for event in rows_of(1, TWO_LINES, path, TWO_LINES.checked)]


@pytest.mark.parametrize("text", HEADERS)
def test_a_header_may_have_line_breaks_in_quotes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.csv"
    path.write_text(text, newline="")
    assert named_rows(path) == ([(1, "ada")], [(1, "ada")])
    assert in_run(path, "CREATE TABLE r (id INT)") == ([(1,)], [])


def test_a_header_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_text('id,"first\nname"')
    assert named_rows(path) == ([], [])


@pytest.mark.parametrize("text", ['id,"first\nname\n1,ada\n', '"id\n\n'])
def test_a_quote_of_a_header_that_is_not_closed_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.csv"
    path.write_text(text)
    for read in (in_run, in_warehouse):
        with pytest.raises(InputError, match=r"a quote in .* is not closed"):
            read(path, "CREATE TABLE r (id INT)")


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table([[1], [2], [3]], names=["id", "x", "x"]), path)
    with pytest.raises(InputError, match=r"1\.parquet: two columns are called 'x'"):
        in_run(path, "CREATE TABLE r (id INT, x INT)")
    with pytest.raises(CumulusError, match=r"1\.parquet: two columns are given for r\.x: 'x' and 'x'"):
        in_warehouse(path, "CREATE TABLE r (id INT, x INT)")
    assert in_run(path, "CREATE TABLE r (id INT)") == ([(1,)], [])  # others are left alone


DAY = dt.date(2024, 1, 5)
DATES = ["2024-01-05", "2024-1-5", "2024/1/5", "2024-01-05 00:00:00", "2024-1-5 0:00", "2024-01-05T00:00:00.000000000"]
NO_DATES = ["2024-01-05 00:00:01", "2024-01-05 00:00:00Z", "2024-1-5 0:00+02", "2024-13-1", "24-1-5", "2024-1/5"]
NO_DATES += ["2024-01-05 00:00:00.0000001", "2024-001-05", "2024- 1- 5"]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_dates_are_read_as_the_cast_reads_them(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"1.{ending}"
    texts = [*DATES, *NO_DATES]
    if ending == "csv":
        path.write_text("\n".join(["x", *texts]))
    elif ending == "json":
        path.write_text("\n".join(json.dumps({"x": text}) for text in texts))
    else:
        pq.write_table(pa.table({"x": texts}), path)
    rows, reasons = in_run(path, "CREATE TABLE r (x DATE)")
    assert rows == [(DAY,)] * len(DATES)
    assert len(reasons) == len(NO_DATES)
    assert all(reason.startswith("x: ") and "is not a DATE" in reason for reason in reasons)
    if ending != "json":
        with pytest.raises(CumulusError, match=r"row 7: r\.x DATE: .* has a time of day"):
            in_warehouse(path, "CREATE TABLE r (x DATE)")


def test_times_may_have_single_digits(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_text("x\n2024-1-5\n2024-1-5 7:08\n2024/1/5T7:8:9.5\n2024-1-5 7:08+02\n")
    hours = [dt.datetime(2024, 1, 5, *rest) for rest in ((), (5, 8), (7, 8), (7, 8, 9, 500_000))]
    assert sorted(in_run(path, "CREATE TABLE r (x TIMESTAMP)")[0]) == [(each,) for each in hours]
    assert in_warehouse(path, "CREATE TABLE r (x TIMESTAMP)") == [(each,) for each in hours]


@pytest.mark.parametrize("sql_type", DECLARED, ids=str)
def test_a_warehouse_takes_texts_of_csv_as_values(tmp_path: Path, sql_type: Any) -> None:
    """All that fit together, and each that does not alone."""
    path = tmp_path / "1.csv"
    wanted = {text: taken(text, sql_type, by_arrow=False) for text in TEXTS}
    fits = [text for text in TEXTS if wanted[text] is not REFUSED]
    relation = Relation("r", (Column("k", INTEGER), Column("x", sql_type)))
    path.write_text("".join(["k,x\n", *(f'{k},"{text}"\n' for k, text in enumerate(fits))]), newline="")
    events = rows_of(1, relation, path, relation.checked)
    assert [shown(event.row[1]) for event in events] == [wanted[text] for text in fits]
    for text in TEXTS:
        if wanted[text] is REFUSED:
            path.write_text(f'k,x\n1,"{text}"\n', newline="")
            with pytest.raises(CumulusError, match=r"row 1: r\.x"):
                rows_of(1, relation, path, relation.checked)
