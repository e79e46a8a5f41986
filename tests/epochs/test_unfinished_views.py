"""A view that cannot be finished keeps its last good rows; manifest, progress and `cumulus query` say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from cumulus.m3 import Program
from support.engines import engine_of
from support.orders_stream import json_lines
from support.unfinished_view import ROWS, SQL, write_rows

pytestmark = pytest.mark.usefixtures("each_engine")


def run(program: Program, tmp_path: Path, **options: object) -> list[Epoch]:
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of, **options) as running:  # type: ignore[arg-type]  # any options
        return list(running.steps())


def test_a_division_by_zero_keeps_the_last_good_rows_and_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path / "in", 3)
    told = run(compile_sql(SQL, rely=False), tmp_path)
    assert [list(epoch.errors) for epoch in told] == [[], ["share"], []]
    assert "zero" in told[1].errors["share"]
    assert read_manifest(tmp_path / "out", 2).errors == told[1].errors
    for epoch, (share, plain) in enumerate(ROWS, 1):
        assert query(tmp_path / "out", "FROM share", epoch).to_pylist() == [{"s": share}]
        assert query(tmp_path / "out", "FROM plain", epoch).to_pylist() == [{"n": plain}]
    assert told[1].changes("share").num_rows == 0
    assert query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine").to_pylist() == [{"n": 0}]
    asked = CliRunner().invoke(app, ["query", str(tmp_path / "out"), "FROM share", "--epoch", "2", "--json"])
    assert "view share shows older rows: " in asked.stderr
    assert asked.stdout == '{"s": -10}\n'
    asked = CliRunner().invoke(app, ["query", str(tmp_path / "out"), "FROM share"])
    assert asked.stderr == ""


def test_the_word_about_it_survives_a_restart_and_an_epoch_without_changes(tmp_path: Path) -> None:
    program = compile_sql(SQL, rely=False)
    write_rows(tmp_path / "in", 1)
    run(program, tmp_path)
    write_rows(tmp_path / "in", 2)
    [second] = run(program, tmp_path)
    json_lines(tmp_path / "in" / "r" / "3.json", [])
    [third] = run(program, tmp_path)
    assert third.errors == second.errors != {}
    assert (tmp_path / "out" / "latest" / "share").exists()
    json_lines(tmp_path / "in" / "r" / "4.json", [{"a": 3}])
    [fourth] = run(program, tmp_path)
    assert fourth.errors == {}
    assert query(tmp_path / "out", "FROM share").to_pylist() == [{"s": 10}]


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:r=a"])
def test_a_view_that_never_had_rows_says_so_when_it_is_asked(tmp_path: Path, layout: str) -> None:
    json_lines(tmp_path / "in" / "r" / "1.json", [{"a": 1}, {"a": 2}])
    json_lines(tmp_path / "in" / "r" / "2.json", [{"a": 3}])
    program, out = compile_sql(SQL, rely=False), str(tmp_path / "out")
    first, second = run(program, tmp_path, layout=layout, buckets=2)
    assert list(first.errors) == ["share"]
    with pytest.raises(UsageError, match=r"no rows of a view 'share': .*zero"):
        first.changes("share")
    assert first.changes("plain").to_pylist() == [{"n": 2, "change": 1}]
    asked = CliRunner().invoke(app, ["query", out, "FROM plain", "--json", "--epoch", "1"])
    assert asked.stdout == '{"n": 2}\n'
    assert "view share could not be computed yet: " in asked.stderr
    with pytest.raises(UsageError, match="Views here: plain, quarantine"):
        query(out, "FROM share", 1)
    assert second.errors == {}
    assert second.changes("share").to_pylist() == [{"s": 10, "change": 1}]


@pytest.mark.parametrize("buckets", [2, 3])
def test_a_view_that_the_driver_merges_fails_there(tmp_path: Path, buckets: int) -> None:
    write_rows(tmp_path / "in", 3)
    told = run(compile_sql(SQL, rely=False), tmp_path, layout="one-round:r=a", buckets=buckets)
    assert [list(epoch.errors) for epoch in told] == [[], ["share"], []]
    for epoch, (share, plain) in enumerate(ROWS, 1):
        assert query(tmp_path / "out", "FROM share", epoch).to_pylist() == [{"s": share}]
        assert query(tmp_path / "out", "FROM plain", epoch).to_pylist() == [{"n": plain}]
