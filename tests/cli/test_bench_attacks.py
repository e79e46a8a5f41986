"""`cumulus bench attacks` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError


@pytest.mark.slow
def test_a_row_for_each_figure_and_the_machine() -> None:
    attacks = "a run of a million rows,two hosts"
    told = CliRunner().invoke(
        app,
        ["bench", "attacks", "--only", attacks, "--seconds", "0.5", "--rows", "100", "--senders", "1", "--json"],
        catch_exceptions=False,
    )
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.stdout.splitlines())
    assert [row["what"] for row in rows] == ["healthz, p99", "insert, p99", "memory over its own"] * 3
    assert {row["load"] for row in rows[6:]} == {"all at once"}
    for row in rows:
        assert row["repetitions"] > 0
        assert row["unit"] == "MB" or row["floor"] > 0
    assert last["summary"]["machine"]["cores"] > 0


def test_an_attack_that_is_not_there_is_refused() -> None:
    told = CliRunner().invoke(app, ["bench", "attacks", "--only", "kindness"])
    assert isinstance(told.exception, UsageError)
    assert "a text of 2 GB" in str(told.exception)
