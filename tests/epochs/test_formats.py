"""Columns at a time or line by line: what a file says is the same, whoever reads it; and no line stops a reader."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.catalog.events import OP_COLUMN
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats import lines
from cumulus.epochs.formats.json_file import read_json
from cumulus.epochs.intake.reading import Reading, read_file, reading_of
from cumulus.errors import InputError
from support.read_files import TABLE, read, reasons, same

WIDE = compile_sql(TABLE.replace("at TIMESTAMP", "at TIMESTAMP, moment TIMESTAMPTZ"), rely=False).relation("t")


@pytest.fixture(autouse=True)
def _columns_also_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_FEW", 1)


NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "1e2",
            "1E-2",
            "-0",
            "-0.0",
            "0e50",
            "1e999",
            "1e999999999",
            "NaN",
            "Infinity",
            "Inf",
            "7.0",
            "1.550",
            "007",
            "99.5",
            "1.00000000000",
            "2.225073858507203e-26",
            "2.225073858507203e-309",
            "123456789012345678901234567890e7",
            "1907236081916205101749410988318180.859",
            "1234567890123456789012345678901234567",
            "9" * 5000,
            "0.1000000000000000055511151231257827",
        ]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=5).map(json.dumps),
    st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)).filter(lambda t: _encodes(t)),
    st.sampled_from(
        [
            '"\\ud83d"',
            '"a\\u0000b"',
            '"2024-01-02"',
            '"2024-13-01"',
            '"2024-01-02T03:04:05.678901"',
            '"20240102"',
            '"2024-01-02 03"',
            '"123456789012345678901234567890e7"',
            '"1907236081916205101749410988318180.859"',
            '"0.1e-41"',
            '"2024-01-02T03:04:05+02:30"',
            '"2024-01-02T03:04:05Z"',
            '"2024-01-02T03:04:05.1234567"',
            '"0001-01-01T00:00:00+14:00"',
            '"2024-01-02T03:04:05+25:00"',
            '"7"',
            '"7.0"',
            '" 7 "',
            '"0x1F"',
            '"1_0"',
            '"true"',
            '"1"',
            '"1e999"',
            '"inf"',
            '""',
            '"__debezium_unavailable_value"',
            '"\\u005f_debezium_unavailable_value"',
            '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',
        ]
    ),
)
VALUES = st.one_of(
    st.just("null"),
    NUMBERS,
    TEXTS,
    st.sampled_from(["true", "false", "[1]", '{"id": 1}', '["__debezium_unavailable_value"]']),
)
NAMES = st.sampled_from([*WIDE.column_names, "ID", "Name", "\\u0069d", "op", "OP", "seq", "other"])
FITTING = {
    "id": st.integers(-(2**31), 2**31 - 1).map(str),
    "name": st.text(max_size=4).map(json.dumps),
    "price": st.decimals(-99999, 99999, places=2).map(str),
    "big": st.integers(-(10**37), 10**37).map(str),
    "x": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "r": st.floats(-1e30, 1e30).map(repr),
    "ok": st.sampled_from(["true", "false"]),
    "day": st.dates().map(lambda day: f'"{day.isoformat()}"'),
    "at": st.datetimes().map(lambda at: f'"{at.isoformat()}"'),
    "moment": st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)).map(lambda at: f'"{at.isoformat()}Z"'),
}


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@st.composite
def rows(draw: st.DrawFn) -> str:
    """A row that fits, mostly, with a few fields that may not."""
    fields = {name: draw(values) for name, values in FITTING.items() if draw(st.integers(0, 9))}
    parts = [f'"{name}": {value}' for name, value in fields.items()]
    if not draw(st.integers(0, 3)):
        parts.append(f'"{draw(NAMES)}": {draw(VALUES)}')
    return "{" + ", ".join(parts) + "}"


ODD = st.one_of(
    st.sampled_from(
        [
            b"",
            b"null",
            b"[1]",
            b"{}",
            b"{",
            b"7",
            b'"x"',
            b'{"id":1}{"id":2}',
            b'{"id":1,"id":2}',
            b'{"id":"\xe9"}',
            b'{"other":"\xe9","id":3}',
            b"\xef\xbb\xbf" + b'{"id":4}',
            b"[" * 1000,
            b'{"other":' + b"[" * 900 + b"]" * 900,
            b'{"other":' + b"[" * 600 + b"]" * 600 + b',"id":5}',
            b'{"id":\x00}',
            b'{"name":"a\x00b"}',
            b"\xff\xfe\x00",
            b'{"other":Inf,"id":6}',
            b'{"other":NaN,"id":7}',
            b'{"id":8,"other":01}',
        ]
    ),
    st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"")),
)


def files(line: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Files of lines, of which few are odd; that of a mark of UTF-16 is none."""
    each = st.one_of(line.map(str.encode), line.map(str.encode), line.map(str.encode), ODD)
    return st.lists(each, max_size=12).map(lambda each: b"\n" + b"\n".join(each))


def both(folder: Path, data: bytes, **options: Any) -> tuple[Reading, Reading]:
    """Read data as columns, and with all care."""
    path = folder / "1.json"
    path.write_bytes(data)
    source = FolderSource("t", str(folder), **options)
    found = (read_json(source, WIDE, str(path), careful=careful) for careful in (False, True))
    first, second = (reading_of(source, WIDE, each, str(path), "t/1.json") for each in found)
    return first, second


def agree(folder: Path, data: bytes, **options: Any) -> Reading:
    quick, careful = both(folder, data, **options)
    assert quick.rows.schema == careful.rows.schema
    assert same(quick.rows) == same(careful.rows)
    assert quick.rejected == careful.rejected
    assert quick.ignored == careful.ignored
    return quick


CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=40, deadline=None, suppress_health_check=CHECKS)
@given(data=files(rows()))
def test_columns_and_lines_agree(tmp_path: Path, data: bytes) -> None:
    agree(tmp_path, data)


@st.composite
def messages(draw: st.DrawFn) -> str:
    before, after = (draw(st.one_of(st.just("null"), rows())) for _ in range(2))
    op = draw(st.sampled_from(['"c"', '"u"', '"u"', '"d"', '"r"', '"t"', '"m"', '"?"', "null", '"C"']))
    fields = [f'"before": {before}', f'"after": {after}', f'"op": {op}']
    if draw(st.integers(0, 5)):
        fields.append(f'"source": {{"lsn": {draw(st.integers(0, 99))}, "schema": "public"}}')
    envelope = "{" + ", ".join(fields) + "}"
    match draw(st.integers(0, 4)):
        case 0:
            return envelope
        case 1:
            return f'{{"schema": {SCHEMA}, "payload": {envelope}}}'
        case 2:
            return f'{{"payload": {draw(st.sampled_from(["null", envelope]))}, "schema": {SCHEMA}}}'
        case _:
            return f'{{"payload": {envelope}}}'


def schema(**names: str) -> str:
    fields = [{"field": name, "name": kind, "type": "?", "parameters": {"scale": "2"}} for name, kind in names.items()]
    return json.dumps({"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]})


SCHEMA = schema(day="io.debezium.time.Date")


@settings(max_examples=40, deadline=None, suppress_health_check=CHECKS)
@given(data=files(messages()))
def test_columns_and_messages_agree(tmp_path: Path, data: bytes) -> None:
    agree(tmp_path, data, format="debezium", order="source.lsn")


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=CHECKS)
@given(plain=files(rows()), log=files(messages()), times=st.sampled_from(["", "millis", "nanos"]))
def test_many_columns_and_lines_agree(tmp_path: Path, plain: bytes, log: bytes, times: str) -> None:
    agree(tmp_path, plain, times=times)
    agree(tmp_path, log, format="debezium", order="source.lsn", times=times, decimals="base64" if times else "")


def test_most_lines_go_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The careful reader has only the lines that need it: else the tests above would compare it with itself."""
    seen: list[int] = []
    kept = lines.LineReader.read_record
    monkeypatch.setattr(lines.LineReader, "read_record", lambda self, at, line: (seen.append(at), kept(self, at, line)))
    plain = [json.dumps({"id": at, "name": "é", "price": 1.25, "day": "2024-01-01", "seq": at}) for at in range(2000)]
    plain[700], plain[1500] = '{"id": "x"}', "nothing"
    assert len(read(tmp_path, "\n".join(plain).encode()).rejected) == 2
    assert len(seen) < 10
    seen.clear()
    row = {"id": 1, "name": "x", "price": "MDk=", "big": 1, "x": 1.5, "r": 2.5, "ok": None, "day": 19000}
    row["at"] = 1704067200000000
    kinds = schema(price="org.apache.kafka.connect.data.Decimal", at="io.debezium.time.MicroTimestamp")
    log = [
        [json.dumps({"before": None, "after": row | {"price": "1"}, "op": "c"})] * 500,
        [f'{{"schema":{kinds},"payload":{json.dumps({"before": row, "after": row, "op": "u"})}}}'] * 500,
        [f'{{"payload":{json.dumps({"before": row | {"price": 1}, "op": "d"})}}}'] * 500,
    ]
    mixed = [line for three in zip(*log, strict=True) for line in three]
    reading = read(tmp_path, "\n".join(mixed).encode(), format="debezium", times="micros")
    assert (reading.rows.num_rows, reading.rejected, seen) == (2000, (), [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": 2, "name": "\\ud83d"}', "half a character"),
        (b'{"id": ' + b"1" * 5000 + b"}", "does not fit"),
        (b"[" * 100_000, "nested deeper than 400 levels"),
        (b'{"id": 2, "other": ' + b"[" * 100_000, "nested deeper"),
        (b'{"id": 2, "name": "caf\xe9"}', "not UTF-8: byte 0xe9"),
        (b'{"id": 1e999999999}', "does not fit"),
        (b'{"id": 2, "x": 1e999}', "does not fit DOUBLE"),
        (b'{"id": 2, "seq": "soon"}', "not a whole number"),
        (b'{"ID": 2, "Id": 3}', "differ only in case"),
        (b'{"number": 2}', "no column of t is in it; found: number"),
        (b'{"id": 2', "not JSON"),
    ],
)
def test_a_line_that_is_no_row_goes_to_the_quarantine(tmp_path: Path, line: bytes, reason: str) -> None:
    reading = read(tmp_path, b'{"id": 1, "seq": 1}\n' + line + b'\n{"id": 3, "seq": 1}\n')
    assert reading.rows.column("id").to_pylist() == [1, 3]
    [rejected] = reading.rejected
    assert rejected.position == 2
    assert reason in rejected.reason
    rejected.row.encode()
    assert len(rejected.reason) < 400


def test_each_message_has_its_own_envelope(tmp_path: Path) -> None:
    """Lines with `payload` among such without; tombstones and messages say nothing, and are counted."""
    data = b"""{"before":null,"after":{"id":9},"op":"c","source":{"lsn":1}}
{"payload":{"before":null,"after":{"id":10},"op":"c","source":{"lsn":2}}}
null
{"payload":null}
{"op":"m","message":{"prefix":"x"},"source":{"lsn":3}}
{"id":11}
{"op":"d","source":{"lsn":4}}
{"op":"t","before":null,"after":null,"source":{"lsn":5}}
"""
    reading = agree(tmp_path, data, format="debezium", order="source.lsn")
    assert reading.rows.column("id").to_pylist() == [9, 10, None]
    assert reading.rows.column(OP_COLUMN).to_pylist() == [1, 1, 3]
    assert reading.ignored == {"tombstones": 2, "messages": 1}
    assert [(at, why.split(";")[0].split(":")[0]) for at, why in reasons(reading)] == [
        (6, "no Debezium envelope"),
        (7, "op 'd' without 'before'"),
    ]


ENCODED = [
    ("day", "io.debezium.time.Date", 19723, "2024-01-01"),
    ("day", "org.apache.kafka.connect.data.Date", -1, "1969-12-31"),
    ("at", "io.debezium.time.Timestamp", 1704067200123, "2024-01-01 00:00:00.123000"),
    ("at", "io.debezium.time.MicroTimestamp", 1704067200123456, "2024-01-01 00:00:00.123456"),
    ("at", "io.debezium.time.NanoTimestamp", 1704067200123456000, "2024-01-01 00:00:00.123456"),
    ("at", "org.apache.kafka.connect.data.Timestamp", -1, "1969-12-31 23:59:59.999000"),
    ("price", "org.apache.kafka.connect.data.Decimal", base64.b64encode(b"\xff\x85").decode(), "-1.23"),
    ("price", "io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": "BNI="}, "123.40"),
    ("name", "io.debezium.time.MicroTime", 3723000001, "01:02:03.000001"),
    ("name", "io.debezium.time.Time", 3723000, "01:02:03"),
    ("name", "io.debezium.time.ZonedTime", "10:00:00Z", "10:00:00Z"),
    ("name", "io.debezium.time.Date", 19723, "2024-01-01"),
    ("big", "io.debezium.time.Year", 2024, "2024"),
]


@pytest.mark.parametrize("value", [{"scale": 1}, {"value": "BNI="}, {"scale": None, "value": "BNI="}, {}])
def test_a_decimal_without_its_parts_is_a_row_of_the_quarantine(tmp_path: Path, value: Any) -> None:
    payload = {"before": None, "after": {"id": 1, "price": value}, "op": "c"}
    line = f'{{"schema":{schema(price="io.debezium.data.VariableScaleDecimal")},"payload":{json.dumps(payload)}}}'
    reading = agree(tmp_path, f"{line}\n{line}".encode(), format="debezium")
    assert ["is not a decimal" in each.reason for each in reading.rejected] == [True, True]


@pytest.mark.parametrize(("column", "kind", "value", "meant"), ENCODED)
def test_the_schema_of_a_message_says_what_its_values_are(
    tmp_path: Path, column: str, kind: str, value: Any, meant: str
) -> None:
    payload = {"before": None, "after": {"id": 1, column: value}, "op": "c"}
    line = f'{{"schema":{schema(**{column: kind})},"payload":{json.dumps(payload)}}}'
    reading = agree(tmp_path, f"{line}\n{line}".encode(), format="debezium")
    assert reasons(reading) == []
    assert [str(found) for found in reading.rows.column(column).to_pylist()] == [meant, meant]


def test_spans_of_a_change_log_are_intervals(tmp_path: Path) -> None:
    script = "CREATE TABLE t (id INT, a INTERVAL, b INTERVAL, c INTERVAL); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t"
    relation = compile_sql(script, rely=False).relation("t")
    kinds = {"a": "io.debezium.time.Interval", "b": "io.debezium.time.MicroDuration", "c": "io.debezium.time.MicroTime"}
    after = {"id": 1, "a": "P1Y2M3DT4H5M-6.000007S", "b": -5, "c": 9}
    line = f'{{"schema":{schema(**kinds)},"payload":{json.dumps({"after": after, "op": "c"})}}}'
    (tmp_path / "1.json").write_text(line)
    source = FolderSource("t", str(tmp_path), format="debezium")
    [row] = read_file(source, relation, str(tmp_path / "1.json"), "t/1").rows.to_pylist()
    micros = ((4 * 60 + 5) * 60 - 6) * 1_000_000 - 7
    assert [tuple(row[name]) for name in "abc"] == [(14, 3, micros * 1000), (0, 0, -5000), (0, 0, 9000)]


def test_spans_are_read_as_texts(tmp_path: Path) -> None:
    relation = compile_sql("CREATE TABLE t (id INT, x INTERVAL)", rely=False).relation("t")
    plain = {"1.csv": "id,x\n1,2 days\n2,\n3,no\n", "1.json": '{"id":1,"x":"2 days"}\n{"id":2}\n{"id":3,"x":"no"}\n'}
    for name, text in plain.items():
        (tmp_path / name).write_text(text)
        reading = read_file(FolderSource("t", str(tmp_path)), relation, str(tmp_path / name), f"t/{name}")
        assert [each and tuple(each) for each in reading.rows.column("x").to_pylist()] == [(0, 2, 0), None]
        [rejected] = reading.rejected
        assert rejected.reason.startswith("x: 'no' is not an INTERVAL")
    log = [{"op": "c", "after": {"id": 1, "x": "P1MT2S"}}, {"op": "c", "after": {"id": 2, "x": "2 days"}}]
    (tmp_path / "2.json").write_text("".join(f"{json.dumps(each)}\n" for each in log))
    source = FolderSource("t", str(tmp_path), format="debezium")
    reading = read_file(source, relation, str(tmp_path / "2.json"), "t/2")
    assert [tuple(each) for each in reading.rows.column("x").to_pylist()] == [(1, 0, 2_000_000_000)]
    assert "such as P1Y2M3DT4H5M6.7S" in reading.rejected[0].reason


def test_without_a_schema_the_source_says_what_values_are(tmp_path: Path) -> None:
    after = {"id": 1, "price": "BNI=", "day": 19723, "at": 1704067200000}
    line = json.dumps({"before": None, "after": after, "op": "c"}).encode()
    [rejected] = read(tmp_path, line, format="debezium").rejected
    assert "decimals=base64" in rejected.reason
    [rejected] = read(tmp_path, line, format="debezium", decimals="base64").rejected
    assert "say times=UNIT in --from: seconds, millis, micros, nanos" in rejected.reason
    reading = agree(tmp_path, line + b"\n" + line, format="debezium", decimals="base64", times="millis")
    assert [str(reading.rows.column(name)[1].as_py()) for name in ("price", "day", "at")] == [
        "12.34",
        "2024-01-01",
        "2024-01-01 00:00:00",
    ]


def test_an_array_of_objects_is_read(tmp_path: Path) -> None:
    data = json.dumps([{"id": 1}, {"id": "x"}, 7, {"id": 2, "name": "é"}], indent=1).encode()
    reading = read(tmp_path, data)
    assert reading.rows.column("id").to_pylist() == [1, 2]
    assert [at for at, _ in reasons(reading)] == [2, 3]


def test_columns_of_files_are_found_in_any_case(tmp_path: Path) -> None:
    rest = "price,big,x,r,ok,day,at"
    reading = read(tmp_path, f"ID,Name,{rest},OP\n1,x,,,,,,,,d\n".encode(), "1.csv")
    assert (reading.rows.column("id")[0].as_py(), reading.rows.column(OP_COLUMN)[0].as_py()) == (1, -1)
    reading = read(tmp_path, f"ID,Name,id,{rest}\n7,x,1,,,,,,,\n".encode(), "1.csv")
    assert reading.rows.column("id").to_pylist() == [1]
    with pytest.raises(InputError, match="'ID' and 'Id' differ only in case, and neither is 'id'"):
        read(tmp_path, f"ID,Name,Id,{rest}\n7,x,1,,,,,,,\n".encode(), "1.csv")
    assert agree(tmp_path, b'{"ID": 1, "NAME": "x"}\n{"id": 2, "ID": 3}\n').rows.column("id").to_pylist() == [1, 2]
