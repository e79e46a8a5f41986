"""`cumulus bench olap` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app


@pytest.mark.slow
def test_selections_look_ups_and_kept_levels_are_measured() -> None:
    call = ["bench", "olap", "--entries", "400", "--events", "1000", "--repetitions", "3", "--json"]
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
