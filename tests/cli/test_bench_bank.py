"""`cumulus bench bank` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import CumulusError, UsageError
from cumulus_lab.bench.live.bank import SQL, Moves, SumReads, check, read_epochs
from cumulus_lab.bench.live.running_cluster import RunningCluster


@pytest.mark.slow
def test_committed_and_nested_totals_are_right_while_money_moves() -> None:
    told = CliRunner().invoke(
        app, ["bench", "bank", "--transfers", "20000", "--trigger", "50ms", "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    wrong = {(row["view"], row["read"]): row["wrong"] for row in rows}
    assert wrong.pop(("balances", "tentative")) == rows[0]["labelled"]
    assert wrong == {
        ("balances", "committed"): 0,
        ("total", "tentative"): 0,
        ("total", "committed"): 0,
        ("balances", "files of epochs"): 0,
        ("total", "files of epochs"): 0,
    }
    assert all(row["reads"] > 0 for row in rows)
    assert last["summary"]["rows_in_order"] + last["summary"]["rows_late"] == 20_000
    assert last["summary"]["deltas_in_order"] + last["summary"]["deltas_late"] > 0


@pytest.mark.slow
def test_money_that_is_lost_is_found(tmp_path: Path) -> None:
    """A sum that is wrong, or accounts that have something else than they should, are told."""
    moves = Moves.drawn(40, 5, 0)
    views = SQL.replace("UNION ALL SELECT target, amount FROM transfers", "UNION ALL SELECT target, 1 FROM transfers")
    small = RunningCluster(views, tmp_path / "home", nodes=1, switches=1, every_s=0.05, engine="interpreter")
    with small as cluster, cluster.connect() as client:
        for begin, end in ((0, 5), (5, 40)):  # the first ones move 1
            client.view("balances", after=client.insert("transfers", moves.rows(begin, end)))
        reads = list(read_epochs(cluster))
        assert [(each.view, each.reads, each.wrong) for each in reads] == [("balances", 2, 1), ("total", 2, 0)]
        with pytest.raises(CumulusError, match="wrong: 1 of 2 sums over balances, files of epochs; the balances in"):
            check(reads, client, moves)
        labelled = SumReads("balances", "tentative", reads=3, wrong=2, labelled=2)
        with pytest.raises(CumulusError, match=r"wrong: the balances in the end\n"):
            check([labelled], client, moves)


@pytest.mark.parametrize("wrong", [["--trigger", "once"], ["--accounts", "900", "--transfers", "1000"]])
def test_a_bank_that_cannot_be_is_refused(wrong: list[str]) -> None:
    told = CliRunner().invoke(app, ["bench", "bank", *wrong])
    assert isinstance(told.exception, UsageError)
