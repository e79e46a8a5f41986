"""Processes along a tree of nodes: whoever is killed, what it had to send on comes again, and counts once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.run import ClusterRun
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from support.equal_outputs import difference
from support.sales_stream import SQL, SalesStream

SPREAD = SQL.partition("CREATE VIEW items")[0]
"""Without the view that a gate computes: nodes that live go on in their life."""


def run_killed(folder: Path, monkeypatch: pytest.MonkeyPatch, crash: str, script: str, **settings: Any) -> list[str]:
    """Run the stream on three nodes, of which one dies at a point; every epoch is that of the embedded host."""
    stream = SalesStream(folder / "in", 3)
    stream.write(8)
    settings_of_judge: dict[str, Any] = {"make_engine": partial(make_engine, "auto"), "keep": 1_000}
    judged = compile_sql(script, rely=False)
    with EmbeddedRun(judged, stream.sources, folder / "embedded", **settings_of_judge) as judge:
        list(judge.steps())
    notes: list[str] = []
    monkeypatch.setenv("CUMULUS_CRASH", crash)
    monkeypatch.setenv("CUMULUS_CRASH_DIR", str(folder))
    program = compile_sql(script, rely=False, enforced=False)
    counts: dict[str, Any] = {"mode": Mode.CENTRAL_TARGET, "nodes": 3, "switches": 1, "keep": 1_000, "block_rows": 3}
    with Home(program, stream.sources, folder / "out", None, **counts, **settings) as home:
        told = [each.number for each in ClusterRun(home, None, note=notes.append).epochs(lambda: False)]
    assert told == list(range(1, 9))
    assert difference(folder / "embedded", folder / "out") == ""
    return notes


def test_a_node_is_killed_between_the_two_that_it_sends_blocks_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain of three: node 1 dies while it sends, and node 2, which lives, gets the blocks of open epochs again."""
    notes = run_killed(
        tmp_path, monkeypatch, "node1.between-peers:9", SPREAD, dispatch="directives", arity=1, gc="poll=1"
    )
    assert [note.split(";")[0] for note in notes] == ["node1 was ended by signal 9, Killed"]


POINTS = {
    "the root": ("node0.between-peers:5", {"dispatch": "directives"}),
    "the root, when an epoch is done": ("node0.after-outputs:3", {"dispatch": "directives", "arity": 1}),
    "a leaf": ("node2.between-peers:7", {"dispatch": "directives", "gc": "poll=2"}),
    "the switch": ("switch0.between-peers:12", {"dispatch": "directives", "arity": 1}),
    "the switch, which has polled": ("switch0.after-append:5", {"gc": "poll=1"}),
}


@pytest.mark.kill
@pytest.mark.parametrize("script", [SPREAD, SQL], ids=["spread", "with a gate"])
@pytest.mark.parametrize("who", POINTS)
def test_each_machine_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, script: str) -> None:
    crash, settings = POINTS[who]
    notes = run_killed(tmp_path, monkeypatch, crash, script, **settings)
    assert any(f"{crash.partition('.')[0]} was ended by signal 9" in note for note in notes), notes
