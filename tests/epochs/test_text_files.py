"""CSV, packed files, endings and encodings; decimals of any scale; messages in Parquet."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.events import POSITION_COLUMN
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats import csv_file
from cumulus.epochs.intake.reading import read_file
from cumulus.errors import InputError
from support.read_files import RELATION, read, reasons, same

HEADER = ",".join(RELATION.column_names)


@pytest.mark.parametrize(
    ("rows", "ids", "rejected"),
    [
        (b"1,a\xe9,,,,,,,\n2,b,,,,,,,\n", [2], {1: "not UTF-8"}),
        (b"1,a\xe9,,,,,,,\n2,b\n\xe9,\xe9\n4,d,,,,,,,\n", [4], {1: "not UTF-8", 2: "2 columns", 3: "2 columns"}),
        (b'1,"a,,,,,,,\n2,b,,,,,,,\n', [2], {1: "a quote is not closed"}),
        (b'1,"a\nb",,,,,,,\n2,"b ""x""",,,,,,,\n3,c"d,,,,,,,\n4,"half', [1, 2, 3], {4: "a quote"}),
        (b"1,a\x00b,,,,,,,\r\n2,,,,,,,,\r\n", [1, 2], {}),
        (b"0xFFFFFFFF,,,,,,,,\n1,,,,,,,,\n", [1], {1: "not a"}),
        (b"1,,,,1e999,,,,\n2,,,,inf,,,,\n", [2], {1: "does not fit DOUBLE"}),
        (b"1.0,,,,,,1,,\n2,,,,,,yes,,\n", [1], {2: "not a BOOLEAN"}),
        (b"", [], {}),
        (b"\n\n1,,,,,,,,\n\n2,x", [1], {2: "2 columns"}),
    ],
)
def test_a_row_of_csv_stops_nothing(tmp_path: Path, rows: bytes, ids: list[int], rejected: dict[int, str]) -> None:
    reading = read(tmp_path, b"\xef\xbb\xbf" + HEADER.encode() + b"\n" + rows, "1.csv")
    assert reading.rows.column("id").to_pylist() == ids
    found = dict(reasons(reading))
    assert found.keys() == rejected.keys()
    assert all(reason in found[at] for at, reason in rejected.items())


def test_arrow_and_python_read_csv_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        '1,"a ""b"", c",1.50,,,,t,,',
        '2,"x\ny",2,NULL,1e3,,f,2024-01-01,',
        "3,,,,",
        '4,"a"bc,,,,,,,',
        "",
        "5,,,,,,,,",
    ]
    data = (HEADER + "\r\n" + "\r\n".join(rows)).encode()
    quick = read(tmp_path, data, "1.csv")
    monkeypatch.setattr(csv_file, "_by_arrow", lambda *_: None)
    slow = read(tmp_path, data, "1.csv")
    assert (same(quick.rows), reasons(quick)) == (same(slow.rows), reasons(slow))
    assert quick.rows.column("name").to_pylist() == ['a "b", c', "x\ny", "abc", None]


def test_files_are_read_by_their_endings(tmp_path: Path) -> None:
    import bz2
    import gzip

    table = (HEADER + "\n1" + "," * 8 + "\n").encode()
    line = b'{"id": 1}\n'
    good = {
        "1.CSV": table,
        "1.tsv": table.replace(b",", b"\t"),
        "1.csv.gz": gzip.compress(table),
        "1.jsonl": line,
        "1.ndjson.bz2": bz2.compress(line),
        "1.json.gz": gzip.compress(line),
        "1.jsonl.zst": pa.compress(line, codec="zstd", asbytes=True),
    }
    for name, data in good.items():
        assert read(tmp_path, data, name).rows.column("id").to_pylist() == [1], name
    semicolons = table.replace(b",", b";")
    assert read(tmp_path, semicolons, "1.csv", delimiter=";").rows.num_rows == 1
    with pytest.raises(InputError) as problem:
        read(tmp_path, semicolons, "1.csv")
    assert problem.value.hint == "The header has ';' in it: say delimiter=semicolon."
    assert read(tmp_path, b"1,x,,,,,,,\n", "1.csv", header=False).rows.num_rows == 1
    latin = read(tmp_path, table + "2,é,,,,,,,\n".encode("latin-1"), "1.csv", encoding="latin-1")
    assert latin.rows.column("name").to_pylist() == [None, "é"]
    for name in ("1.log", "1", "1.xlsx", "1.parquet.gz"):
        with pytest.raises(InputError, match=r"is of no known format|the name has no ending") as problem:
            read(tmp_path, table, name)
        assert ".parquet, .csv, .tsv" in str(problem.value.hint)


@pytest.mark.parametrize("name", ["1.csv.gz", "1.json.gz", "1.json.bz2", "1.json.zst"])
def test_half_a_packed_file_names_itself(tmp_path: Path, name: str) -> None:
    import bz2
    import gzip

    data = b'{"id": 1}\n' * 1000
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True)}
    packed = pack[name.rpartition(".")[2]](data)
    with pytest.raises(InputError, match=rf"{name}: not a whole"):
        read(tmp_path, packed[:-12], name)


def test_a_file_in_utf_16_names_itself(tmp_path: Path) -> None:
    data = '{"id": 1}\n'.encode("utf-16")
    with pytest.raises(InputError, match="begins as UTF-16"):
        read(tmp_path, data)
    assert read(tmp_path, data, encoding="utf-16").rows.num_rows == 1


def test_parquet_messages_and_numbers_of_time(tmp_path: Path) -> None:
    after = pa.array([{"id": 1, "at": 1000, "price": Decimal("1.5")}, None, None, {"id": 2, "at": 0, "price": None}])
    table = pa.table({"before": pa.nulls(4), "after": after, "op": ["c", None, "m", "?"]})
    pq.write_table(table, tmp_path / "1.parquet")
    source = FolderSource("t", str(tmp_path), format="debezium", times="millis")
    reading = read_file(source, RELATION, str(tmp_path / "1.parquet"), "t/1.parquet")
    assert [str(value) for value in reading.rows.column("at").to_pylist()] == ["1970-01-01 00:00:01"]
    assert reading.ignored == {"tombstones": 1, "messages": 1}
    assert reasons(reading) == [(4, "unknown operation '?'")]


@pytest.mark.parametrize("form", ["json", "json text", "csv"])
def test_decimals_are_exact_at_any_scale(tmp_path: Path, form: str) -> None:
    """Arrow's own reader makes 0.242 of 78955.96 for DECIMAL(38,38), and 0 of 1e-41, without a word."""
    columns = "a DECIMAL(38,38), b DECIMAL(38,20), c DECIMAL(8,4), d HUGEINT, e INT"
    script = f"CREATE TABLE t ({columns}); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t"
    relation = compile_sql(script, rely=False).relation("t")
    texts = ["78955.959554442", "1907236081916205101749410988318180.859", "0.10e-41", "12345678901234567" * 2 + "890"]
    texts += [
        "0.5",
        "12345678.25",
        "1e3",
        "98.8533" + "0" * 40,
        "9" * 60,
        "1.5e17",
        "0." + "1" * 38,
        "7.0",
        "1e-2",
        "1.25e9",
        "1234567890123456789.5e9",
    ]
    names = relation.column_names
    mark = '"' if form == "json text" else ""
    for name in names:
        path = tmp_path / f"{name}.{'csv' if form == 'csv' else 'json'}"
        if form == "csv":
            path.write_text(
                "\n".join(
                    [",".join(names), *(",".join(text if each == name else "" for each in names) for text in texts)]
                )
            )
        else:
            path.write_text("\n".join(f'{{"{name}": {mark}{text}{mark}}}' for text in texts))
        reading = read_file(FolderSource("t", str(tmp_path)), relation, str(path), "t/1")
        taken = dict(
            zip(reading.rows.column(POSITION_COLUMN).to_pylist(), reading.rows.column(name).to_pylist(), strict=True)
        )
        assert len(taken) + len(reading.rejected) == len(texts)
        for position, value in taken.items():
            assert value == Decimal(texts[position - 1]), (name, texts[position - 1])
        assert {"0.5", "1e-2"} <= {texts[at - 1] for at in taken} or name in ("d", "e")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1,a\n2,b\n", "If the first line is a row already, say header=false"),
        ("idd,t\n1,a\n", "^Rename the column in the file, or correct CREATE TABLE.$"),
    ],
)
def test_a_header_that_is_a_row(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(InputError) as told:
        read(tmp_path, text.encode(), "1.csv")
    assert re.search(hint, told.value.hint)


def test_an_object_over_several_lines_is_told(tmp_path: Path) -> None:
    reading = read(tmp_path, b'{\n  "id": 1,\n  "d": "x"\n}\nno json\n', "1.json")
    told = ["each object stands on a line of its own" in reason for _, reason in reasons(reading)]
    assert told == [True, True, True, True, False]
