"""`cumulus bench layouts` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError


@pytest.mark.slow
def test_a_row_for_each_layout_beside_one_bucket(tmp_path: Path) -> None:
    given = ["--queries", "q3,q15", "--sf", "0.001", "--epochs", "2", "--buckets", "3", "--cache", str(tmp_path)]
    told = CliRunner().invoke(app, ["bench", "layouts", *given, "--layout", "judged", "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    one, judged, last = map(json.loads, told.output.splitlines())
    assert (one["buckets"], one["groups"], one["ratio"]) == (1, 0, 1.0)
    assert (judged["buckets"], judged["groups"]) == (3, 2)
    assert one["events"] == judged["events"] > 0
    for row in (one, judged):
        seconds = [list(map(float, row[f"stage_{stage}_s"].split())) for stage in (1, 2)]
        assert len(seconds[0]) == len(seconds[1]) == row["buckets"]
        assert max(map(sum, zip(*seconds, strict=True))) <= row["heaviest_s"] + 0.02
    assert last["summary"]["queries"] == "q3,q15"


def test_a_query_that_is_not_there_is_refused() -> None:
    told = CliRunner().invoke(app, ["bench", "layouts", "--queries", "q3,q99"])
    assert isinstance(told.exception, UsageError)
    assert "no query 'q99'" in str(told.exception)
