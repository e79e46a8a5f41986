"""`cumulus bench olap` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app


@pytest.mark.slow
def test_selections_look_ups_and_kept_levels_are_measured() -> None:
    call = ["bench", "olap", "--only", "selections", "--only", "levels", "--entries", "400", "--events", "1000"]
    call += ["--repetitions", "3", "--json"]
    told = CliRunner().invoke(app, call, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    kinds = [row["what"] for row in rows]
    assert kinds == ["selection"] * 11 + ["look-up"] * 2 + ["kept levels"] * 4
    for row in rows[:11]:
        assert min(row["first_ms"], row["again_ms"], row["duckdb_ms"]) > 0
        assert row["entries_read"] >= row["rows"] > 0
    assert [row["entries_read"] for row in rows[11:13]] == [1, 1]
    assert all(row["cube_us"] > 0 and row["sets_us"] > 0 for row in rows[13:])
    assert last["summary"]["machine"]["cores"] > 0


@pytest.mark.slow
def test_a_log_reads_less_with_the_levels_that_are_advised_for_it() -> None:
    call = ["bench", "olap", "--only", "advice", "--entries", "9000", "--log", "40", "--repetitions", "3", "--json"]
    told = CliRunner().invoke(app, call, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    row, last = map(json.loads, told.output.splitlines())
    assert row["what"] == "advised levels"
    assert row["read_after"] * 3 < row["read_before"]
    assert 0 < row["foretold_us"] <= 1
    assert row["keep"].startswith("KEEP (")
    assert min(row["before_ms"], row["after_ms"], row["before_us"], row["after_us"]) > 0
    assert last["summary"]["log"] == 40
