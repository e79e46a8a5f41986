"""`cumulus bench ring` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError

SMALL = ["bench", "ring", "--only", "links", "--nodes", "2", "--seconds", "0.1"]


def test_a_row_for_each_transport_and_size() -> None:
    told = CliRunner().invoke(app, [*SMALL, "--chunk-mb", "0.2", "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    assert [row["transport"] for row in rows] == ["tcp", "local"]
    for row in rows:
        assert row["chunks"] == 4
        assert row["hops_per_s"] > 0
        assert row["cpu_s_per_gb_hop"] == pytest.approx(row["cpu_us_per_hop"] / 200, rel=0.02)
        # A chunk that goes round makes two hops.
        assert row["hops_per_s"] * row["rotation_ms"] / 1000 == pytest.approx(2 * row["chunks"], rel=0.3)
    assert last["summary"]["nodes"] == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--only", "nothing"], "there is no measurement 'nothing'\nThere are: links"),
        (["--transport", "rdma"], "there is no transport 'rdma'\nThere are: tcp, local"),
    ],
)
def test_what_is_not_there_is_refused(wrong: list[str], message: str) -> None:
    told = CliRunner().invoke(app, ["bench", "ring", *wrong])
    assert isinstance(told.exception, UsageError)
    assert message in str(told.exception)
