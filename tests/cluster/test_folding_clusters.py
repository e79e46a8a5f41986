"""Cubes of a cluster, folded from its committed epochs: they say what DuckDB says of the rows so far."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.sources import sources_from
from support.cluster_world import run_cluster
from support.cubes_of_orders import QUERIES, SCRIPT, SELECTIONS
from support.oracle import same_bag
from support.orders_stream import OrdersStream


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_fold_is_right_after_every_epoch(tmp_path: Path, nodes: int) -> None:
    stream = OrdersStream(tmp_path / "in", 11, QUERIES)
    for _ in range(3):
        stream.write()
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    sources = sources_from([str(tmp_path / "in")], program)
    run_cluster(program, sources, tmp_path / "out", nodes=nodes, switches=2, engine="interpreter")
    folder = OutputFolder(tmp_path / "out")
    assert folder.epochs == [1, 2, 3]
    for epoch in folder.epochs:
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            found = [tuple(row.values()) for row in folder.fold(view, by, where, epoch=epoch).finish().to_pylist()]
            assert same_bag(found, stream.answers[epoch][f"{at}"]), (epoch, view, by, where)
