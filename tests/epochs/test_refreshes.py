"""Queries of TPC-H in one program while customers, suppliers and parts come, change and go: every epoch is DuckDB's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus_lab.bench.refresh_runs import Comparison, WrittenStream, write_stream
from cumulus_lab.workloads import tpch
from support.engines import KINDS

QUERIES = ("q5", "q7", "q8", "q9")
EPOCHS = 6
SETTINGS = [
    pytest.param(keys, buckets, layout, engine, marks=() if engine == fast else pytest.mark.slow)
    for keys, buckets, layout, fast in (
        ("foreign", 1, "auto", ""),
        ("foreign", 2, "auto", "interpreter"),
        ("foreign", 3, "judged", "native"),
        ("none", 2, "auto", ""),
    )
    for engine in KINDS
]


pytestmark = pytest.mark.xdist_group("refreshes")  # one worker has what is made once


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenStream:
    stream = tpch.refreshes(tpch.sample(orders=240, seed=3), queries=QUERIES, epochs=EPOCHS, updates=0.2, seed=1)
    return write_stream(stream, tmp_path_factory.mktemp("refreshes"), check=True)


def run(written: WrittenStream, keys: str, engine: str, buckets: int, out: Path, layout: str = "auto") -> Comparison:
    program = compile_sql(written.stream.sql(keys), rely=False, order=1 if keys == "none" else None)
    sources = sources_from([str(written.folder(keys))], program)
    making = partial(make_engine, engine)
    compared = Comparison(written)
    with EmbeddedRun(program, sources, out, make_engine=making, layout=layout, buckets=buckets) as running:
        assert running.identity.plan.buckets == buckets
        for epoch in running.steps():
            compared(epoch)
    return compared


@pytest.mark.parametrize(("keys", "buckets", "layout", "engine"), SETTINGS)
def test_every_epoch_is_what_duckdb_says(
    written: WrittenStream, keys: str, buckets: int, layout: str, engine: str, tmp_path: Path
) -> None:
    found = run(written, keys, engine, buckets, tmp_path / "out", layout)
    assert found.different == []
    assert len(found.epochs) in (EPOCHS, EPOCHS + 1)  # one more, if buckets agree on deletions after the last files
    assert found.compared == len(found.epochs) * len(QUERIES)
    last = found.epochs[-1]
    assert (last.totals["quarantined"], last.counts["waiting"], last.view_error_totals) == (0, 0, {})


def test_each_query_has_rows_and_changes(written: WrittenStream) -> None:
    for query in QUERIES:
        seen = [views[query] for views in written.expected]
        assert any(rows.num_rows for rows in seen)
        assert any(before != after for before, after in pairwise(seen[1:]))


@pytest.mark.slow
def test_what_is_not_duckdbs_is_told(written: WrittenStream, tmp_path: Path) -> None:
    late = [written.expected[0], *written.expected[:-1]]
    found = run(replace(written, expected=late), "foreign", "native", 1, tmp_path / "out")
    assert any(line.startswith("q9 in epoch 2: ") for line in found.different)
    assert not any("in epoch 1:" in line for line in found.different)
