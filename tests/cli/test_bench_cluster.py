"""`cumulus bench cluster` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError

SMALL = ["--events", "10000", "--epochs", "4", "--block", "100", "--switches", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["example-2.1", "q3"])
def test_a_row_for_each_host_and_shape(workload: str) -> None:
    told = CliRunner().invoke(
        app, ["bench", "cluster", "--workload", workload, *SMALL, "--nodes", "2", "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.output
    embedded, eventual, gated, last = map(json.loads, told.output.splitlines())
    assert [row["mode"] for row in (embedded, eventual, gated)] == ["embedded", "eventual", "gated"]
    assert embedded["cpu_by_embedded"] == 1.0
    assert embedded["events"] == eventual["events"] == gated["events"] > 0
    assert eventual["pushes"] > 0
    assert eventual["late_deltas"] + eventual["late_rows"] > 0
    assert eventual["gated_views"] == 0
    assert gated["gated_views"] == 1
    assert gated["bytes_per_event"] > 0
    assert last["summary"]["workload"] == workload


@pytest.mark.parametrize("wrong", [["--workload", "q99"], ["--order", "random"]])
def test_what_is_not_there_is_refused(wrong: list[str]) -> None:
    told = CliRunner().invoke(app, ["bench", "cluster", *wrong])
    assert isinstance(told.exception, UsageError)
    assert "random" in str(told.exception) or "q3" in str(told.exception)
