"""Numbers too large for a view cost the views that show them and no others, and these heal with a deletion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import RULES, Mode
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from support.cluster_world import run_cluster
from support.equal_outputs import difference
from support.orders_stream import json_lines
from support.tiers import one_mode_each, sampled

SCRIPT = """
CREATE TABLE r (k INTEGER, a {type}); CREATE TABLE s (k INTEGER, b BIGINT);
CREATE VIEW totals AS SELECT k, SUM(a) AS t, COUNT(*) AS n FROM r GROUP BY k;
CREATE VIEW joined AS SELECT b, SUM(a) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY b;
CREATE VIEW times AS SELECT k, SUM(a) AS t FROM r JOIN s USING (k) GROUP BY k;
CREATE VIEW kinds AS SELECT k, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY k;
CREATE VIEW lines AS SELECT k, SUM(b) AS t FROM s GROUP BY k;
"""
ENGINES = ("interpreter", "native")


def write(folder: Path, large: str | float, epochs: Sequence[tuple[str, int]]) -> None:
    """Write epoch by epoch so many rows with a large number, inserted or deleted, among small ones."""
    for epoch, (op, count) in enumerate(epochs, 1):
        rows: list[Mapping[str, Any]] = [{"op": op, "k": 1, "a": large}] * count
        rows += [{"op": "insert", "k": place % 3, "a": epoch + place} for place in range(4)]
        json_lines(folder / "r" / f"{epoch:03d}.json", rows)
        json_lines(folder / "s" / f"{epoch:03d}.json", [{"k": place % 3, "b": epoch} for place in range(4)])


def run(folder: Path, out: Path, type: str, **settings: Any) -> None:
    program = compile_sql(SCRIPT.format(type=type), rely=False, enforced=False)
    switches = 1 if RULES[settings.get("mode", Mode.EVENTUAL)].needs_one_switch else 2
    given = {"nodes": 3, "switches": switches, "block_rows": 1} | settings
    run_cluster(program, sources_from([str(folder)], program), out, **given)


def judge(folder: Path, out: Path, type: str) -> None:
    program = compile_sql(SCRIPT.format(type=type), rely=False, enforced=False)
    sources = sources_from([str(folder)], program)
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "interpreter")) as embedded:
        assert list(embedded.steps())


def manifests(out: Path) -> list[Manifest]:
    return [read_manifest(out, epoch) for epoch in committed_epochs(out)]


@pytest.mark.parametrize(("mode", "engine"), one_mode_each(Mode, ENGINES))
@pytest.mark.parametrize(
    ("type", "large"),
    sampled([("HUGEINT", str(2**126)), ("HUGEINT", str(-(2**126))), ("DECIMAL(38,2)", f"{'9' * 36}.99")], of=3),
    ids=["positive", "negative", "decimal"],
)
def test_views_of_a_sum_beyond_128_bits_fail_alone_and_heal(
    tmp_path: Path, type: str, large: str, mode: Mode, engine: str
) -> None:
    write(tmp_path / "in", large, [("insert", 0), ("insert", 2), ("insert", 1), ("delete", 2), ("delete", 1)])
    run(tmp_path / "in", tmp_path / "out", type, engine=engine, mode=mode)
    judge(tmp_path / "in", tmp_path / "judged", type)
    assert difference(tmp_path / "judged", tmp_path / "out") == ""
    first, *broken, _, last = manifests(tmp_path / "out")
    assert not first.errors
    assert not last.errors
    for each in broken:
        assert {"totals", "joined", "times"} >= each.errors.keys() > set()
        assert not each.errors.keys() & {"kinds", "lines"}


@pytest.mark.parametrize(("mode", "engine"), one_mode_each(Mode, ENGINES, of=2))
def test_a_home_in_which_a_sum_is_too_large_starts_again(tmp_path: Path, mode: Mode, engine: str) -> None:
    """At each epoch: the state of nodes is in their logs, or in snapshots."""
    epochs = [("insert", 2), ("insert", 1), ("delete", 1), ("delete", 2)]
    write(tmp_path / "in", str(2**126), epochs)
    for snapshot_bytes, last in [(0, 1), (1 << 25, 2), (0, 3), (0, 0)]:
        settings: dict[str, Any] = {"engine": engine, "mode": mode, "last": last, "snapshot_bytes": snapshot_bytes}
        run(tmp_path / "in", tmp_path / "out", "HUGEINT", **settings)
    judge(tmp_path / "in", tmp_path / "judged", "HUGEINT")
    assert difference(tmp_path / "judged", tmp_path / "out") == ""


@pytest.mark.parametrize(("mode", "engine"), one_mode_each(Mode, ENGINES, of=2))
def test_a_sum_beyond_double_is_infinite_in_its_group_until_it_is_back(tmp_path: Path, mode: Mode, engine: str) -> None:
    write(tmp_path / "in", 1.7e308, [("insert", 0), ("insert", 1), ("insert", 1), ("delete", 1), ("delete", 1)])
    for last in (1, 3, 0):  # an epoch that is open beside the one before shows none of its numbers early
        run(tmp_path / "in", tmp_path / "out", "DOUBLE", engine=engine, mode=mode, last=last)
    judge(tmp_path / "in", tmp_path / "judged", "DOUBLE")
    for each in manifests(tmp_path / "out"):
        shown, judged = (
            query(tmp_path / out, "FROM totals ORDER BY k", epoch=each.epoch).to_pylist() for out in ("out", "judged")
        )
        assert [row["t"] == math.inf for row in shown] == [False, each.epoch == 3, False]
        large = shown.pop(1), judged.pop(1)  # beside it small numbers may be rounded away
        assert shown == judged
        assert large[0] == large[1] | {"t": large[0]["t"]}
        assert not each.errors.keys() & {"totals", "lines"}


@pytest.mark.parametrize("engine", ENGINES)
def test_views_of_a_step_beyond_double_keep_their_last_good_rows(tmp_path: Path, engine: str) -> None:
    """A large number times the two rows that it meets."""
    first = 3
    write(tmp_path / "in", 1.7e308, [("insert", int(epoch == first)) for epoch in range(1, first + 3)])
    for last in (first - 1, first + 1, 0):
        run(tmp_path / "in", tmp_path / "out", "DOUBLE", engine=engine, last=last)
    last_good = manifests(tmp_path / "out")[first - 2]
    assert not last_good.errors
    for each in manifests(tmp_path / "out")[first - 1 :]:
        assert "times" in each.errors
        assert each.files("times") == last_good.files("times") != []
        assert not each.errors.keys() & {"lines", "totals"}
    judge(tmp_path / "in", tmp_path / "judged", "DOUBLE")
    shown = [query(tmp_path / out, "FROM lines ORDER BY ALL").to_pylist() for out in ("out", "judged")]
    assert shown[0] == shown[1]
