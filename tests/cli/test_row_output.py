"""How rows leave a command: bounded as a table, whole as JSON, CSV and files."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cumulus.cli.row_output import MOST_ROWS, RowOutput
from cumulus.cli.terminal.tables import print_rows
from cumulus.errors import UsageError

MANY = pa.table({"n": range(25_000), "t": [None, 'a "b",\nc'] * 12_500})


def test_a_table_is_bounded_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    RowOutput().write(MANY)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + MOST_ROWS + 2
    assert lines[-2] == "the first 1,000 of 25,000 rows"
    assert "--csv" in lines[-1]
    RowOutput().write(MANY.slice(0, MOST_ROWS))
    assert "the first" not in capsys.readouterr().out


def test_json_and_csv_have_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    RowOutput(as_json=True).write(MANY)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == MANY.to_pylist()
    RowOutput(as_csv=True).write(MANY.slice(0, 2))
    assert capsys.readouterr().out == '"n","t"\n0,\n1,"a ""b"",\nc"\n'


def test_json_is_json_whatever_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "d": [float("nan"), float("inf"), float("-inf"), -0.5, None],
        "s": pa.array([pa.MonthDayNano([14, 3, 5_000_000_000])] * 4 + [None], pa.month_day_nano_interval()),
        "b": [b"\x00\xff", b"", b"a", b"b", None],
        "l": [[1.5, float("nan")], [], None, [None], [0.0]],
        "m": [Decimal("1.00"), Decimal("-0.10"), None, Decimal("3.14"), Decimal("0.00")],
    }
    RowOutput(as_json=True).write(pa.table(values))
    told = [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]
    assert [row["d"] for row in told] == ["NaN", "Infinity", "-Infinity", -0.5, None]
    assert told[0] == {"d": "NaN", "s": "1 year 2 months 3 days 00:00:05", "b": "AP8=", "l": [1.5, "NaN"], "m": "1.00"}
    twins = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(UsageError, match="two columns are called 'a'"):
        RowOutput(as_json=True).write(twins)
    assert capsys.readouterr().out == ""


def test_files_hold_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RowOutput(parquet=tmp_path / "rows.parquet").write(MANY)
    RowOutput(arrow=tmp_path / "rows.arrow").write(MANY)
    assert pq.read_table(tmp_path / "rows.parquet") == MANY
    assert pa.ipc.open_stream(tmp_path / "rows.arrow").read_all() == MANY
    assert capsys.readouterr().out.count("25,000 rows") == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_two_forms_and_bad_places_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--json and --csv are two forms"):
        RowOutput(as_json=True, as_csv=True)
    with pytest.raises(UsageError, match="is no place for a file"):
        RowOutput(parquet=tmp_path)
    with pytest.raises(UsageError, match="is no place for a file"):
        RowOutput(arrow=tmp_path / "nowhere" / "rows.arrow")
    with pytest.raises(UsageError, match="is no place for a file"):
        RowOutput(parquet=tmp_path / ("x" * 300))
    twins = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(UsageError, match="two columns are called 'a'"):
        RowOutput(parquet=tmp_path / "twins.parquet").write(twins)
    assert not list(tmp_path.iterdir())


def test_wide_cells_bound_the_lines() -> None:
    file = io.StringIO()
    rows = pa.table({"t": ["x" * 30_000_000, *map(str, range(20))]})
    print_rows(Console(file=file, width=80), rows, most=100)
    printed = file.getvalue().splitlines()
    assert len(printed) == 6
    assert printed[-1] == "the first 3 of 21 rows"
