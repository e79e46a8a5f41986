"""Views too big for every epoch: snapshots every k-th, exact whenever there is one, restarts or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from support.engines import engine_of
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")


def run(stream: OrdersStream, out: Path, every: int, epochs: int = 0, layout: str = "one-bucket") -> None:
    """Do `epochs` epochs and stop as Ctrl-C does; 0 for all."""
    program = parse(PROGRAM)
    sources = sources_from([str(stream.folder)], program)
    with EmbeddedRun(
        program, sources, out, make_engine=engine_of, snapshot_every=every, layout=layout, buckets=2
    ) as running:
        for _ in range(epochs):
            assert running.step(last=False) is not None
        if not epochs:
            list(running.steps())


def shown(out: Path, epoch: int) -> int:
    return read_manifest(out, epoch).snapshot


def rows_of(out: Path, epoch: int = 0) -> list[tuple[object, ...]]:
    return sorted_rows(query(out, "FROM revenue", epoch).to_pylist())


@pytest.mark.parametrize("layout", sampled(["one-bucket", "one-round:orders=oid+lineitem=oid"], of=2, first=1))
def test_snapshots_are_exact_and_the_rest_carries_them(tmp_path: Path, layout: str) -> None:
    stream, out = OrdersStream(tmp_path / "in", 20), tmp_path / "out"
    for _ in range(8):
        stream.write()
    run(stream, out, 3, layout=layout)
    assert [shown(out, epoch) for epoch in range(1, 9)] == [1, 1, 3, 3, 3, 6, 6, 8]
    for epoch in range(1, 9):
        assert rows_of(out, epoch) == stream.expected[shown(out, epoch)]
        refused = query(out, "SELECT COUNT(*) AS n FROM quarantine", epoch).to_pylist()
        assert refused == [{"n": stream.bad_until[epoch]}]
        assert read_manifest(out, epoch).totals["events"] == stream.events_until[epoch]
    told = CliRunner().invoke(app, ["query", str(out), "FROM revenue", "--epoch", "5"])
    assert "epoch 5 wrote no views: these are of epoch 3; there are views of epochs 1, 3, 6, 8" in told.stderr
    assert CliRunner().invoke(app, ["query", str(out), "FROM revenue"]).stderr == ""


def test_a_restart_between_snapshots_loses_nothing(tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 21), tmp_path / "out"
    for _ in range(9):
        stream.write()
    run(stream, out, 4, epochs=2)
    latest = out / "latest" / "revenue"
    assert latest.resolve().name == "1"
    run(stream, out, 4, epochs=1)
    run(stream, out, 4, epochs=3)
    assert latest.resolve().name == "4"
    assert rows_of(out) == stream.expected[4]
    assert rows_of(out) != stream.expected[6]
    run(stream, out, 1, epochs=1)  # what changed in epochs 5 and 6 is written now, although 7 might not touch it
    assert shown(out, 7) == 7
    assert rows_of(out) == stream.expected[7]
    run(stream, out, 100)
    assert [shown(out, epoch) for epoch in range(1, 10)] == [1, 1, 1, 4, 4, 4, 7, 7, 9]
    assert rows_of(out) == stream.expected[9]


def test_an_unchanged_view_catches_up_when_every_epoch_writes_again(tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 22), tmp_path / "out"
    for _ in range(3):
        stream.write()
    run(stream, out, 10, epochs=3)
    assert rows_of(out) == stream.expected[1] != stream.expected[3]
    stream.write(rows=0)
    run(stream, out, 1)
    assert rows_of(out) == stream.expected[4]


def test_old_epochs_go_without_the_files_of_a_snapshot_still_shown(tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 23), tmp_path / "out"
    for _ in range(8):
        stream.write()
    program = parse(PROGRAM)
    sources = sources_from([str(stream.folder)], program)
    with EmbeddedRun(program, sources, out, make_engine=engine_of, snapshot_every=5, keep=2) as running:
        for _ in range(8):
            running.step(last=False)
            epoch = running.epoch
            assert rows_of(out, epoch) == stream.expected[shown(out, epoch)]
    assert shown(out, 8) == 5
