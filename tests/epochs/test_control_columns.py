"""Operations and orders are declared: a column that a table has itself is data, whatever it is called.

The law: for each name that formats give a meaning, each format, and a table that has a column of that name, the table
holds what the files say.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from support.command_line import cumulus
from support.engines import engine_of
from support.tiers import one_mode_each, sampled

NAMES = (
    "op", "OP", "seq", "Seq", "order", "before", "after", "payload", "schema", "source", "ts_ms", "none", "position",
    "_op", "_seq", "_position", "__op", "__deleted", "change", "label", "row",
)  # fmt: skip
FORMATS = ("csv", "parquet", "jsonl", "long jsonl", "debezium", "long debezium", "debezium in payload")
VALUES = ("7", None, "5", "u", "d", "i", "no number", "1970-01-01", "truncate", "")
"""Words of operations, orders that go up and down, and what is neither."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write(folder: Path, kind: str, name: str, rows: Sequence[Any]) -> str:
    """Write rows as one file; return the options of the source."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [{"k": k, name: value} for k, value in rows]
    match kind:
        case "csv":
            with (folder / "1.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["k", name])
                writer.writerows(rows)
        case "parquet":
            pq.write_table(pa.Table.from_pylist(records), folder / "1.parquet")
        case "jsonl" | "long jsonl":
            (folder / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
        case _:
            messages = [{"before": None, "after": each, "op": "c"} for each in records]
            if kind == "debezium in payload":
                messages = [{"payload": each} for each in messages]
            (folder / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in messages))
            return ",format=debezium"
    return ""


def views_after(tmp_path: Path, script: str, sources: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each view after a run that refuses nothing."""
    program = compile_sql(script, rely=False)
    with EmbeddedRun(program, sources_from(sources, program), tmp_path / "out", make_engine=engine_of) as running:
        for _ in running.steps():
            pass
    out = tmp_path / "out"
    assert query(out, "FROM quarantine").to_pylist() == []
    found = {view.name: query(out, f"FROM {quoted(view.name)}").to_pylist() for view in program.shown_views}
    return {name: sorted(tuple(row.values()) for row in rows) for name, rows in found.items()}


def rows_after(tmp_path: Path, script: str, options: str) -> list[tuple[Any, ...]]:
    """Return the rows of the only view."""
    (rows,) = views_after(tmp_path, script, [f"t={tmp_path / 'in'}{options}"]).values()
    return rows


@pytest.mark.parametrize(("kind", "keyed"), one_mode_each(FORMATS, ("", "PRIMARY KEY"), of=2))
def test_a_column_of_the_table_is_data(tmp_path: Path, kind: str, keyed: str) -> None:
    values = [value for value in VALUES if kind != "csv" or value != ""]  # an empty cell is NULL
    rows = [(at, values[at % len(values)]) for at in range(200 if kind.startswith("long") else 3 * len(values))]
    script, sources = "", []
    for at, name in enumerate(NAMES):
        script += (
            f"CREATE TABLE t{at} (k INT {keyed}, {quoted(name)} VARCHAR); CREATE VIEW v{at} AS SELECT * FROM t{at};"
        )
        sources.append(f"t{at}={tmp_path / 'in' / str(at)}{write(tmp_path / 'in' / str(at), kind, name, rows)}")
    found = views_after(tmp_path, script, sources)
    assert {NAMES[int(view[1:])]: shown for view, shown in found.items() if shown != rows} == {}


@pytest.mark.parametrize("kind", sampled(["csv", "parquet", "jsonl", "long jsonl"], of=2, first=1))
@pytest.mark.parametrize("name", ["op", "seq"])
def test_where_none_is_declared_there_is_none(tmp_path: Path, name: str, kind: str) -> None:
    """The files have a column that the table does not have, and it means nothing."""
    rows = [(at, VALUES[at % len(VALUES)] or "x") for at in range(200)]
    options = write(tmp_path / "in", kind, name, rows)
    found = rows_after(
        tmp_path,
        "CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k FROM t",
        f"{options},op=none,order=none",
    )
    assert found == [(k,) for k, _ in rows]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_an_order_without_a_key_means_nothing(tmp_path: Path, kind: str) -> None:
    options = write(tmp_path / "in", kind, "seq", list(enumerate(["7", "no number", "5", "7", "x"])))
    script = "CREATE TABLE t (k INT); CREATE VIEW v AS SELECT k FROM t"
    assert rows_after(tmp_path, script, options) == [(k,) for k in range(5)]


@pytest.mark.parametrize("lines", [2, 200])
def test_a_column_of_the_table_is_the_order_where_it_is_declared(tmp_path: Path, lines: int) -> None:
    script = "CREATE TABLE t (k INT PRIMARY KEY, seq INT, op VARCHAR); CREATE VIEW v AS SELECT * FROM t"
    (tmp_path / "in").mkdir()
    for name, seq, op in (("1", 7, "i"), ("2", 5, "u")):
        rows = [{"k": at, "seq": seq, "op": op} for at in range(lines)]
        (tmp_path / "in" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rows_after(tmp_path, script, ",order=seq,op=op") == [(at, 7, "i") for at in range(lines)]


def test_an_update_is_not_dropped_for_the_tables_own_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"a": 1, "seq": 7, "x": 1}\n')
    (tmp_path / "in" / "2.jsonl").write_text('{"a": 1, "seq": 5, "x": 2, "op": "u"}\n')
    script = "CREATE TABLE t (a INT PRIMARY KEY, seq INT, x INT); CREATE VIEW v AS SELECT a, seq, x FROM t"
    (tmp_path / "v.sql").write_text(script)
    for host in (["embedded"], ["cluster", "--nodes", "2"]):
        out = tmp_path / f"out-{host[0]}"
        ended = cumulus("run", tmp_path / "v.sql", "--from", f"t={tmp_path / 'in'}", "--out", out, "--host", *host)
        assert ended.returncode == 0, ended
        assert query(out, "SELECT * FROM v").to_pylist() == [{"a": 1, "seq": 5, "x": 2}]


def test_an_order_of_decimals(tmp_path: Path) -> None:
    """Oracle's system change numbers are DECIMAL in Parquet."""
    (tmp_path / "in").mkdir()
    for at, (seq, x) in enumerate([(10, 1), (9, 2)]):
        rows = pa.table({"k": [1], "x": [x], "op": ["u"], "scn": pa.array([seq], pa.decimal128(38, 0))})
        pq.write_table(rows, tmp_path / "in" / f"{at}.parquet")
    script = "CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE VIEW v AS SELECT * FROM t"
    assert rows_after(tmp_path, script, ",order=scn") == [(1, 1)]
