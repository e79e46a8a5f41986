"""Rows of Parquet and CSV files go in by their path, with the types of the table; errors name file and row."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cumulus
from cumulus import errors

SQL = """
CREATE TABLE t (Id INTEGER NOT NULL, k VARCHAR, d DECIMAL(9, 2), day DATE, ts TIMESTAMP, b BOOLEAN, f DOUBLE,
                h HUGEINT);
CREATE VIEW v AS SELECT * FROM t ORDER BY id;
"""
CSV = """ID,k,d,day,ts,b,f,h
1,"a
,b",3.50,2024-01-31,2024-01-31 10:00:00,true,1.5,12345678901234567890
2,,NULL,,,,,
3,"",,,,,,
4,"NULL", 1.5 ,,,t,nan,7
"""
ROWS = [
    (1, "a\n,b", Decimal("3.50"), dt.date(2024, 1, 31), dt.datetime(2024, 1, 31, 10), True, 1.5, 12345678901234567890),
    (2, *(None,) * 7),
    (3, "", *(None,) * 6),
    (4, "NULL", Decimal("1.50"), None, None, True, float("nan"), 7),
]


def taken(path: str | Path) -> list:
    wh, filled = cumulus.Warehouse(SQL), cumulus.Warehouse(SQL)
    wh.insert("t", path)
    filled.fill({"T": path})
    assert repr(wh.view("v").rows()) == repr(filled.view("v").rows())
    return wh.view("v").rows()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_files_are_read_with_the_types_of_the_table(tmp_path, ending) -> None:
    path = tmp_path / f"rows{ending}"
    match ending:
        case ".csv":
            path.write_text("\ufeff" + CSV, encoding="utf-8", newline="")  # as Windows writes it
        case ".tsv":
            path.write_text(CSV.replace(",", "\t"), encoding="utf-8")
        case ".csv.gz":
            path.write_bytes(gzip.compress(CSV.replace("\n", "\r\n").encode()))
        case _:
            names = [name.upper() for name in ("id", "k", "d", "day", "ts", "b", "f", "h")]
            columns = list(zip(*ROWS, strict=True))
            columns[2] = [None if value is None else str(value) for value in columns[2]]  # text for DECIMAL
            columns[7] = [None if value is None else Decimal(value) for value in columns[7]]
            pq.write_table(pa.table(columns, names=names), path)
    break_ = {".tsv": "\t", ".csv.gz": ","}.get(ending, ",")
    text = ("a\r\n,b" if ending == ".csv.gz" else "a\n,b").replace(",", break_)
    assert repr(taken(path)) == repr([(1, text, *ROWS[0][2:]), *ROWS[1:]])
    assert repr(taken(str(path))) == repr(taken(path))


def test_a_file_may_lack_columns_and_rows(tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("k,id\na,7\n")
    assert taken(tmp_path / "rows.csv") == [(7, "a", *(None,) * 6)]
    for text in ("id,k\n", "id,k"):
        (tmp_path / "rows.csv").write_text(text)
        assert taken(tmp_path / "rows.csv") == []


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("id,k\n1,a\nx,b\n", errors.ValueTypeError, r"rows.csv, row 2: t.Id INTEGER: 'x' is not an integer"),
        ("id,d\n1,1.005\n", errors.ValueTypeError, r"rows.csv, row 1: t.d .* more than 2 digits"),
        ("id\n0x10\n", errors.ValueTypeError, r"rows.csv, row 1: t.Id INTEGER: '0x10' is not an integer"),
        ("id,f\n1,1\n2,1e400\n", errors.ValueTypeError, r"rows.csv, row 2: t.f .*1e400 does not fit DOUBLE"),
        ("id,k\n1,a\n,b\n", errors.NullError, r"rows.csv, row 2: t.Id is NULL"),
        ("k\na\n", errors.NullError, r"rows.csv: the table has no column Id"),
        ("id,z\n1,a\n", errors.ArityError, r"rows.csv: t has no column 'z'"),
        ("id,ID\n1,1\n", errors.ArityError, r"rows.csv: two columns .*'id' and 'ID'"),
        ("id,k\n1,a\n2\n", errors.InputError, r"rows.csv: .*Row #3: Expected 2 columns, got 1"),
        ("id,k\n1,a\n2,\xe9\n", errors.InputError, r"rows.csv: .*Row #3: .*UTF8"),
        ("", errors.InputError, r"rows.csv: not a CSV file with a header"),
    ],
)
def test_what_is_wrong_in_a_file_names_file_and_row(tmp_path, text, error, told) -> None:
    (tmp_path / "rows.csv").write_text(text, encoding="latin-1")
    with pytest.raises(error, match=told):
        taken(tmp_path / "rows.csv")


def test_a_decimal_that_arrow_reads_wrongly_is_refused(tmp_path) -> None:
    """Arrow says 0.242 for this number as a DECIMAL(38,38)."""
    (tmp_path / "rows.csv").write_text("d\n78955.96\n")
    wh = cumulus.Warehouse("CREATE TABLE t (d DECIMAL(38,38)); CREATE VIEW v AS SELECT SUM(d) AS s FROM t")
    with pytest.raises(errors.ValueTypeError, match=r"rows.csv, row 1: t.d .*78955.96 does not fit"):
        wh.insert("t", tmp_path / "rows.csv")


@pytest.mark.parametrize("cells", ["1,0,t", "1,0,true", "t,f,1", "T,F,TRUE"])
def test_a_boolean_is_the_same_whatever_else_is_in_its_column(tmp_path, cells) -> None:
    (tmp_path / "rows.csv").write_text("id,b\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells.split(","))))
    assert [row[5] for row in taken(tmp_path / "rows.csv")] == [True, False, True]


def test_what_is_no_file_of_rows_says_so(tmp_path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"xx")
    for name, told in (
        ("rows.parquet", "not a Parquet file"),
        ("no.parquet", "there is no such file"),
        ("no.csv", "there is no such file"),
        ("rows.xlsx", "is no file of rows for t\nFiles end in .parquet"),
        ("7", "is no file of rows for t"),
    ):
        with pytest.raises(errors.InputError, match=told):
            taken(str(tmp_path / name))
    pq.write_table(pa.table({"id": [1, 2], "d": [1.5, 2.125]}), tmp_path / "rows.parquet")
    with pytest.raises(errors.ValueTypeError, match=r"rows.parquet, row 2: t.d .*2.125 has more than 2 digits"):
        taken(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('1,"x\n2,b\n3,c\n', "rows.csv, row 1: a quote is not closed"),
        ('1,"a\n""b"\n2,5" c\n3,"x', "rows.csv, row 3: a quote is not closed"),
        ('1,"x\n2\n', "rows.csv, row 1: a quote is not closed"),
    ],
)
def test_a_quote_that_is_not_closed_takes_in_no_rows(tmp_path, rows, told) -> None:
    (tmp_path / "rows.csv").write_text("id,k\n" + rows)
    with pytest.raises(errors.InputError, match=told):
        taken(tmp_path / "rows.csv")


@pytest.mark.parametrize("rows", ['1,"a\n""b"\n2,"5"" c"', '1,"a\n""b"\n2,5" c\n\n'])
def test_quotes_that_are_closed(tmp_path, rows) -> None:
    (tmp_path / "rows.csv").write_text("id,k\n" + rows)
    assert [row[:2] for row in taken(tmp_path / "rows.csv")] == [(1, 'a\n"b'), (2, '5" c')]
    (tmp_path / "one.csv").write_text('"id"\n"1"\n')
    assert [row[0] for row in taken(tmp_path / "one.csv")] == [1]


def test_what_is_wrong_with_a_csv_file(tmp_path) -> None:
    for text, told in (
        (b"", "not a CSV file with a header: it is empty"),
        (b"id,k\n1,caf\xe9\n", "cannot be read as CSV: .*invalid UTF8 data\nA CSV file is UTF-8"),
        (b"id,k\n1\n", "cannot be read as CSV: Row #2: Expected 2 columns, got 1"),
    ):
        (tmp_path / "rows.csv").write_bytes(text)
        with pytest.raises(errors.InputError, match=told):
            taken(tmp_path / "rows.csv")
