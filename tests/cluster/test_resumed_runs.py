"""Runs that end early, fail, or go on later: what they leave is what one run leaves, and what stops them is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.codec import encode
from cumulus.cluster.records import LoggedTurn
from cumulus.compiler.pipeline import compile_sql
from cumulus.durable.log_files import RecordLog
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import MismatchError
from support.cluster_world import run_cluster
from support.equal_outputs import difference
from support.orders_stream import json_lines

SCRIPT = """
CREATE TABLE r (id INT PRIMARY KEY, k INT, a BIGINT);
CREATE TABLE s (k INT, b BIGINT);
CREATE VIEW joined AS SELECT r.k, SUM(a * b) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY r.k;
CREATE VIEW kinds AS SELECT COUNT(DISTINCT b) AS n FROM s;
"""
SPREAD = SCRIPT[: SCRIPT.index("CREATE VIEW kinds")]


def write(folder: Path, epochs: range) -> None:
    for epoch in epochs:
        rows = [{"id": 10 * epoch + place, "k": place % 3, "a": epoch + place} for place in range(5)]
        json_lines(folder / "r" / f"{epoch:03d}.json", rows)
        json_lines(folder / "s" / f"{epoch:03d}.json", [{"k": place % 3, "b": epoch} for place in range(4)])


def run(script: str, folder: Path, out: Path, nodes: int = 2, **settings: Any) -> None:
    program = compile_sql(script, rely=False, enforced=False)
    given = {"nodes": nodes, "switches": 2, "engine": "interpreter"} | settings
    run_cluster(program, sources_from([str(folder)], program), out, **given)


@pytest.mark.parametrize("script", [SCRIPT, SPREAD], ids=["gated", "spread"])
def test_a_later_run_goes_on_where_the_last_one_has_ended(tmp_path: Path, script: str) -> None:
    write(tmp_path / "in", range(1, 4))
    run(script, tmp_path / "in", tmp_path / "resumed")
    run(script, tmp_path / "in", tmp_path / "resumed")
    assert committed_epochs(tmp_path / "resumed") == [1, 2, 3]
    write(tmp_path / "in", range(4, 7))
    run(script, tmp_path / "in", tmp_path / "resumed", order="switch")
    run(script, tmp_path / "in", tmp_path / "once")
    assert difference(tmp_path / "resumed", tmp_path / "once") == ""


@pytest.mark.parametrize(
    ("script", "broken", "is_mended"),
    [
        (SCRIPT, "r", False),
        (SPREAD, "s", True),
        pytest.param(SCRIPT, "s", True, marks=pytest.mark.slow),
        pytest.param(SPREAD, "r", False, marks=pytest.mark.slow),
    ],
    ids=["gated-removed", "spread-mended", "gated-mended", "spread-removed"],
)
def test_a_file_that_cannot_be_read_ends_the_run_after_the_epochs_before_it(
    tmp_path: Path, script: str, broken: str, is_mended: bool
) -> None:
    write(tmp_path / "in", range(1, 5))
    file = tmp_path / "in" / broken / "003.json"
    good = file.read_bytes()
    file.rename(file.with_suffix(".parquet"))
    file = file.with_suffix(".parquet")
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"003\.parquet"):
            run(script, tmp_path / "in", tmp_path / "out")
        assert committed_epochs(tmp_path / "out") == [1, 2]
        assert query(tmp_path / "out", "FROM joined").num_rows == 3
    file.unlink()
    if is_mended:
        file.with_suffix(".json").write_bytes(good)
    run(script, tmp_path / "in", tmp_path / "out")
    run(script, tmp_path / "in", tmp_path / "once")
    assert difference(tmp_path / "out", tmp_path / "once") == ""


def test_what_does_not_fit_the_state_that_is_there_is_told(tmp_path: Path) -> None:
    write(tmp_path / "in", range(1, 3))
    run(SCRIPT, tmp_path / "in", tmp_path / "out")
    for other in (SCRIPT.replace("COUNT(*) AS n", "MAX(a) AS n"), SPREAD, SCRIPT.replace("b BIGINT", "b INT")):
        with pytest.raises(MismatchError, match="the program has changed"):
            run(other, tmp_path / "in", tmp_path / "out")
    with pytest.raises(MismatchError, match="began with --nodes 2 --switches 2 --mode eventual"):
        run(SCRIPT, tmp_path / "in", tmp_path / "out", nodes=3)
    run(SCRIPT, tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("script", [SCRIPT, SPREAD], ids=["gated", "spread"])
def test_an_epoch_that_a_node_has_done_twice_counts_once(tmp_path: Path, script: str) -> None:
    """As if all had died between its log and the manifest, and again after the manifest of the next life."""
    write(tmp_path / "in", range(1, 4))
    run(script, tmp_path / "in", tmp_path / "out", last=2)
    for node in ("node0", "node1"):
        log = RecordLog(tmp_path / "out" / "checkpoint" / node / "log")
        _, records = log.recover()
        assert len(records) == 2
        log.write(records[-1:])
        log.close()
    run(script, tmp_path / "in", tmp_path / "out")
    run(script, tmp_path / "in", tmp_path / "once")
    assert difference(tmp_path / "out", tmp_path / "once") == ""


def test_a_run_does_no_more_epochs_than_it_was_asked_for(tmp_path: Path) -> None:
    """A life that had begun two epochs is gone; the next one is to do one of them, as its last, with whole views."""
    write(tmp_path / "in", range(1, 5))
    settings = {"snapshot_every": 3}
    run(SPREAD, tmp_path / "in", tmp_path / "out", last=1, **settings)
    log = RecordLog(tmp_path / "out" / "checkpoint" / "publisher" / "log")
    first, records = log.recover()
    assert (first, len(records)) == (1, 1)
    for epoch in (2, 3):
        files = {name: {"last": f"{epoch:03d}.json", "count": epoch} for name in "rs"}
        turn = LoggedTurn(epoch, {name: [f"{epoch:03d}.json"] for name in "rs"}, files, final=False)
        log.write([b"".join(encode(turn))])
    log.close()
    run(SPREAD, tmp_path / "in", tmp_path / "out", last=2, **settings)
    assert committed_epochs(tmp_path / "out") == [1, 2]
    assert read_manifest(tmp_path / "out", 2).snapshot == 2
    run(SPREAD, tmp_path / "in", tmp_path / "out", **settings)
    assert committed_epochs(tmp_path / "out") == [1, 2, 3, 4]
    run(SPREAD, tmp_path / "in", tmp_path / "once")
    assert query(tmp_path / "out", "FROM joined ORDER BY ALL") == query(tmp_path / "once", "FROM joined ORDER BY ALL")
