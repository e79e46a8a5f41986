"""`cumulus bench edges` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError
from cumulus_lab.bench.edges_bench import EDGES, ROOMS


@pytest.mark.parametrize(
    "room", [pytest.param(room, marks=pytest.mark.slow if room == "numbers" else ()) for room in ROOMS]
)
def test_a_row_for_each_pair_and_the_machine(room: str) -> None:
    told = CliRunner().invoke(
        app, ["bench", "edges", "--only", room, "--scale", "0.002", "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    assert [row["edge"] for row in rows] == [edge.edge for edge in EDGES[room]]
    for row in rows:
        assert row["fast_figure"] > 0
        assert row["slow_figure"] > 0
        assert row["fast"] != row["slow"]
    assert last["summary"]["machine"]["cores"] > 0
    assert last["summary"]["scale"] == 0.002


def test_a_room_that_is_not_there_is_refused() -> None:
    told = CliRunner().invoke(app, ["bench", "edges", "--only", "attic"])
    assert isinstance(told.exception, UsageError)
    assert "numbers" in str(told.exception)
