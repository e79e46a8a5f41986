"""Errors of views in epochs: told once, with the place in the input, whatever happens; all views go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.durable.store import FileStore
from cumulus.epochs.bucket.view_errors import SCHEMA, merge_errors
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from support.engines import chosen, engine_of
from support.failing_view import SCRIPT, FailingStream
from support.oracle import same_bag
from support.orders_stream import json_lines
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")


def run(tmp_path: Path, script: str = SCRIPT, **options: Any) -> list[Epoch]:
    program = compile_sql(script, rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of, **options) as running:
        return list(running.steps())


def told(out: Path, view: str, epoch: int = 0) -> list[tuple[int, int, int, str]]:
    sql = f"SELECT epoch, sign, position, source FROM view_errors WHERE view = '{view}'"
    return sorted(tuple(row.values()) for row in query(out, sql, epoch).to_pylist())


def check(out: Path, stream: FailingStream) -> None:
    """Every epoch has the views without what failed, and every error once."""
    for epoch, answers in stream.answers.items():
        for view, expected in answers.items():
            found = [tuple(row.values()) for row in query(out, f"FROM {view}", epoch).to_pylist()]
            assert same_bag(found, expected), (epoch, view)
        failed = [(each, *row) for each in range(1, epoch + 1) for row in stream.failed[each]]
        assert told(out, "halves", epoch) == sorted(failed)
        assert told(out, "counts", epoch) == []
        manifest = read_manifest(out, epoch)
        assert manifest.view_error_totals["halves"] == len(failed)
        assert manifest.view_error_counts.get("halves", 0) == len(stream.failed[epoch])
        assert manifest.totals["errors"] == sum(manifest.view_error_totals.values())
        assert manifest.errors == {}
    assert query(out, "FROM quarantine").num_rows == 0


def stream_of(tmp_path: Path, seed: int, epochs: int) -> FailingStream:
    stream = FailingStream(tmp_path / "in", seed)
    for _ in range(epochs):
        stream.write()
    return stream


@pytest.mark.parametrize("layout", sampled(["one-bucket", "one-round:r=k+s=k", "one-round:s=k"], of=2))
def test_views_go_on_without_the_rows_that_fail(tmp_path: Path, layout: str) -> None:
    stream = stream_of(tmp_path, 3, 6)
    epochs = run(tmp_path, layout=layout, buckets=3)
    check(tmp_path / "out", stream)
    assert [epoch.view_errors.get("halves", 0) for epoch in epochs] == [len(each) for each in stream.failed.values()]
    assert epochs[-1].view_error_totals["joined"] > 0
    kept = list((tmp_path / "out" / "data" / "halves").glob("*.errors.parquet"))
    assert len(kept) == sum(map(bool, stream.failed.values()))  # what was merged is gone


def test_errors_stay_when_epochs_go_and_when_a_run_resumes_from_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cumulus.epochs.epoch_log.LEAST_LOG_BYTES", 500)
    stream = FailingStream(tmp_path / "in", 4)
    for _ in range(8):
        stream.write()
        run(tmp_path, keep=2, snapshot_every=3)
    failed = [(epoch, *row) for epoch, rows in stream.failed.items() for row in rows]
    assert told(tmp_path / "out", "halves") == sorted(failed)
    assert any(path.is_dir() for path in (tmp_path / "out" / "checkpoint" / "embedded").iterdir())


def test_both_commands_tell_how_many_errors_there_are(tmp_path: Path) -> None:
    (tmp_path / "views.sql").write_text(
        "CREATE TABLE r (k INT, a INT); CREATE VIEW v AS SELECT k, SUM(a // k) AS s FROM r GROUP BY k;"
        "CREATE VIEW n AS SELECT COUNT(*) AS n FROM r"
    )
    json_lines(tmp_path / "in" / "r" / "1.json", [{"k": k, "a": 10} for k in (5, 0, 2, 1)])
    json_lines(tmp_path / "in" / "r" / "2.json", [{"k": 0, "a": 10, "op": "d"}, {"k": 0, "a": 11}])
    out = str(tmp_path / "out")
    command = ["run", str(tmp_path / "views.sql"), "--from", str(tmp_path / "in"), "--out", out, "--host", "embedded"]
    ran = CliRunner().invoke(app, command)
    assert "epoch 1: view v could not take 1 rows in whole (1 so far)" in ran.stdout
    assert "epoch 2: view v could not take 2 rows in whole (3 so far)" in ran.stdout
    assert "0 quarantined, 3 errors of views; the views are in" in ran.stdout
    asked = CliRunner().invoke(app, ["query", out, "SELECT k, s::INT AS s FROM v ORDER BY k", "--json"])
    assert asked.stdout.splitlines() == [
        '{"k": 0, "s": null}',
        '{"k": 1, "s": 10}',
        '{"k": 2, "s": 5}',
        '{"k": 5, "s": 2}',
    ]
    assert asked.stderr == "view v lacks what 3 rows of the input should have added: see the table view_errors\n"
    found = query(out, "FROM view_errors ORDER BY epoch, sign").to_pylist()
    assert found[0] == {
        "epoch": 1,
        "view": "v",
        "message": "intdiv(10, 0): division by zero",
        "sign": 1,
        "relation": "r",
        "source": "r/1.json",
        "position": 2,
        "row": "k=0, a=10",
    }
    assert [(row["epoch"], row["sign"], row["row"]) for row in found[1:]] == [(2, -1, "k=0, a=10"), (2, 1, "k=0, a=11")]


def test_a_view_may_be_called_as_the_errors_are(tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "r" / "1.json", [{"a": 0}, {"a": 2}])
    run(tmp_path, "CREATE TABLE r (a INT); CREATE VIEW view_errors AS SELECT SUM(4 // a) AS s FROM r")
    assert query(tmp_path / "out", "SELECT s::INT AS s FROM view_errors").to_pylist() == [{"s": 2}]
    assert read_manifest(tmp_path / "out", 1).view_error_totals == {"view_errors": 1}


def test_a_map_that_is_computed_anew_does_not_fail_anew_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cumulus.epochs.epoch_log.LEAST_LOG_BYTES", 1)
    program = parse(
        "RELATION r(a INT NOT NULL); RELATION t(b INT NOT NULL); MAP m[a INT](n BIGINT) = r(a);"
        "MAP n[](c BIGINT) = SUM[](t(b)); MAP w[a INT](x BIGINT); VIEW v(a INT, x BIGINT) FROM w SELECT a, x;"
        "ON BATCH r { m[a] += r(a); w[a] := m[a] * intdiv(6, a) } ON BATCH t { n[] += SUM[](t(b)) }"
    )
    json_lines(tmp_path / "in" / "r" / "1.json", [{"a": 0}, {"a": 3}])
    for epoch in range(1, 4):
        json_lines(tmp_path / "in" / "t" / f"{epoch}.json", [{"b": epoch}])
        sources = sources_from([str(tmp_path / "in")], program)
        with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of) as running:
            list(running.steps())
    assert [
        tuple(row.values()) for row in query(tmp_path / "out", "SELECT epoch, sign, row FROM view_errors").to_pylist()
    ] == [(1, 0, None)]


DRIVER = """
import sys
from functools import partial
from pathlib import Path
import cumulus.epochs.embedded_run as embedded
import cumulus.epochs.epoch_log as epoch_log
from cumulus.engine.engines import make_engine
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.sources import sources_from
epoch_log.LEAST_LOG_BYTES = 500
folder, out, script = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
engine = partial(make_engine, sys.argv[4])
program = compile_sql(script, rely=False)
sources = sources_from([str(folder)], program)
with embedded.EmbeddedRun(
    program, sources, out, make_engine=engine, layout="one-round:s=k", buckets=2
) as running:
    list(running.steps())
"""


@pytest.mark.slow
def test_a_run_that_is_killed_tells_every_error_once(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, 5, 6)
    wishes = "in-handler:2,after-state-write:2,before-manifest:2,after-manifest:2,in-compaction:1"
    environment = {**os.environ, "CUMULUS_CRASH": wishes, "CUMULUS_CRASH_DIR": str(tmp_path)}
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "in"), str(tmp_path / "out"), SCRIPT, chosen()]
    codes = []
    while not codes or codes[-1]:
        codes.append(subprocess.run(command, env=environment, check=False).returncode)
        assert codes[-1] in (0, -signal.SIGKILL)
    assert len(codes) == 6
    check(tmp_path / "out", stream)


def test_equal_errors_of_a_bucket_are_as_many_beside_those_of_another(tmp_path: Path) -> None:
    """Equal rows of an epoch have the same place, and each is an error; what two buckets have of one row is one."""
    row = {"epoch": 1, "view": "v", "sign": 1, "relation": "r", "source": "r/1.jsonl", "row": "a=1"}

    def written(name: str, *positions: int) -> str:
        rows = [{**row, "position": each, "message": name} for each in positions]
        FileStore(tmp_path).write_new(name, pa.Table.from_pylist(rows, SCHEMA))
        return name

    path, dropped = merge_errors(tmp_path, "v", 1, [written("one", 4, 4, 7), written("other", 4, 9)])
    found = pq.read_table(tmp_path / path, partitioning=None).column("position").to_pylist()
    assert (sorted(found), dropped) == ([4, 4, 7, 9], 1)
