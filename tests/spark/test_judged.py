"""Judges before views on Spark: two stateful operators say what the embedded host says stage by stage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cumulus.spark
from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from cumulus_lab.experiments.equal_outputs import difference
from support.judged_streams import VIEWS, Stream, script
from support.orders_stream import PROGRAM, OrdersStream

pytestmark = pytest.mark.spark


def embedded(program: Any, sources: Any, out: Path, layout: str = "judged") -> None:
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "auto"), layout=layout, buckets=2) as run:
        for _ in run.steps():
            pass


def test_two_operators_say_what_two_stages_in_one_process_say(spark: Any, tmp_path: Path) -> None:
    text = script(list(VIEWS), "all")
    Stream(11, parents_go=True).write(tmp_path / "in", 5)
    program = compile_sql(text, rely=False)
    folders = sorted((tmp_path / "in").iterdir())
    sources = sources_from([f"{table.name}={table},op=op,order=seq" for table in folders], program)
    embedded(program, sources, tmp_path / "one")
    told = []
    for epochs in (2, 0):  # the second run goes on
        run = cumulus.spark.maintain(
            spark,
            program,
            {source.relation: source for source in sources},
            tmp_path / "two",
            layout="judged",
            buckets=2,
            epochs=epochs,
            on_epoch=told.append,
        )
    assert len(run.identity.plan.groups) > 1
    assert not difference(tmp_path / "one", tmp_path / "two", same_host=False)
    assert [epoch.number for epoch in told] == list(range(1, len(told) + 1))
    assert all(epoch.how == ("kept",) for epoch in told[1:])


def test_a_program_without_keys_has_nothing_to_judge(spark: Any, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 5)
    for _ in range(3):
        stream.write(40)
    program = parse(PROGRAM)
    embedded(program, sources_from([str(stream.folder)], program), tmp_path / "one", "one-bucket")
    cumulus.spark.maintain(spark, program, stream.folder, tmp_path / "two", layout="judged", buckets=2)
    assert not difference(tmp_path / "one", tmp_path / "two", same_host=False)
