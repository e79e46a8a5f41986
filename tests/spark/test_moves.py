"""Runs that move: from one process to Spark, there to other buckets and layouts, and back. Nothing is read again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cumulus.spark
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs, newest_epoch, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.spark.streams import Frame
from cumulus_lab.experiments.equal_outputs import difference
from support.judged_streams import VIEWS, Stream, script
from support.star_stream import STAR, Star, shown

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
TEXT = script([name for name in VIEWS if name not in ("countries", "everything")], "all")
PROGRAM = compile_sql(TEXT, rely=False)
Leg = tuple[str, dict[str, Any]]


class Moving:
    """A run over the files of a folder, some epochs at a time; files that were read are gone afterwards."""

    def __init__(self, spark: Any, program: Program, folder: Path, all_files: Path) -> None:
        self.spark, self.program, self.folder = spark, program, folder
        self.names = sorted({file.name for file in all_files.rglob("*.jsonl")})
        self.all_files = all_files
        self.said: list[str] = []
        self.done = 0

    def sources(self, folder: Path) -> Sequence[FolderSource]:
        tables = sorted(table.name for table in self.all_files.iterdir())
        return sources_from([f"{name}={folder / name},op=op,order=seq" for name in tables], self.program)

    def go_on(self, leg: Leg, epochs: int) -> Any:
        host, options = leg
        before = self.names[: self.done]
        mine = self.names[self.done : self.done + epochs]
        self.done += epochs
        for table in self.all_files.iterdir():
            for name in mine:
                (self.folder / "in" / table.name).mkdir(parents=True, exist_ok=True)
                shutil.copy(table / name, self.folder / "in" / table.name / name)
            for name in before[:-1]:
                (self.folder / "in" / table.name / name).unlink(missing_ok=True)
            for name in before[-1:]:
                file = self.folder / "in" / table.name / name
                file.write_bytes(b"?" * file.stat().st_size)
        out, sources = self.folder / "out", self.sources(self.folder / "in")
        if host == "embedded":
            told: dict[str, Any] = {"on_move": lambda move: self.said.append(f"reshape: {move}")}
            told["spark_parts"] = partial(cumulus.spark.stored_parts, spark=self.spark)
            with EmbeddedRun(
                self.program, sources, out, make_engine=partial(make_engine, "auto"), **told, **options
            ) as run:
                list(run.steps())
            return run
        by_table = {source.relation: source for source in sources}
        return cumulus.spark.maintain(self.spark, self.program, by_table, out, say=self.said.append, **options)

    def check(self) -> None:
        """Check that the epochs are those of a run in one bucket that nobody has moved."""
        out = self.folder / f"one-{self.done}"
        if self.done < len(self.names):
            for file in (file for name in self.names[self.done :] for file in self.all_files.rglob(name)):
                file.rename(file.with_suffix(".later"))
        with EmbeddedRun(
            self.program, self.sources(self.all_files), out, make_engine=partial(make_engine, "auto")
        ) as run:
            list(run.steps())
        for file in self.all_files.rglob("*.later"):
            file.rename(file.with_suffix(".jsonl"))
        assert not difference(out, self.folder / "out", same_host=False)


def test_a_run_goes_to_spark_and_comes_back(spark: Any, tmp_path: Path) -> None:
    Stream(5, parents_go=False).write(tmp_path / "all", 7)
    moving = Moving(spark, PROGRAM, tmp_path, tmp_path / "all")
    moving.go_on(("embedded", {}), 3)
    moving.go_on(("spark", {"layout": "judged", "buckets": 2}), 2)
    states = tmp_path / "out" / "checkpoint" / "state"
    assert [state.name.partition("-")[0] for state in states.iterdir()] == ["1"]
    moving.go_on(("embedded", {}), 2)
    assert [words.split(",")[0] for words in moving.said] == ["reshape: embedded", "reshape: spark"]
    moving.check()


CHAIN: list[Leg] = [
    ("embedded", {}),
    ("spark", {"layout": "judged", "buckets": 2, "compact_bytes": 3000}),
    ("spark", {"buckets": 3}),  # which does nothing
    ("spark", {"buckets": 5, "compact_bytes": 3000}),
    ("spark", {"layout": "one-bucket"}),
    ("embedded", {"layout": "judged", "buckets": 3}),
    ("spark", {"partitions": 3}),
    ("spark", {"partitions": 2}),
    ("embedded", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_goes_through_all_layouts_on_both_hosts(spark: Any, tmp_path: Path, seed: int) -> None:
    Stream(seed, parents_go=False).write(tmp_path / "all", 20)
    moving = Moving(spark, PROGRAM, tmp_path, tmp_path / "all")
    draw = random.Random(seed)
    for number, leg in enumerate(CHAIN):
        more = len(CHAIN) - 1 - number
        moving.go_on(leg, 0 if leg[1] == {"buckets": 3} else draw.randint(1, 3) if more else 20 - moving.done)
        states = tmp_path / "out" / "checkpoint" / "state"
        assert len(list(states.iterdir()) if states.exists() else ()) == (number > 0)
    moving.check()


@pytest.mark.slow
def test_a_run_that_moves_before_its_first_epoch_has_begun(spark: Any, tmp_path: Path) -> None:
    Stream(3, parents_go=False).write(tmp_path / "all", 2)
    moving = Moving(spark, PROGRAM, tmp_path, tmp_path / "all")
    for table in (tmp_path / "all").iterdir():
        (tmp_path / "in" / table.name).mkdir(parents=True)
    moving.go_on(("embedded", {}), 0)
    moving.go_on(("spark", {"layout": "judged", "buckets": 2}), 0)
    moving.go_on(("spark", {"buckets": 3}), 1)
    moving.go_on(("embedded", {}), 1)
    moving.check()


@pytest.mark.slow
def test_votes_go_along(spark: Any, tmp_path: Path) -> None:
    star = Star(tmp_path / "in", 31)
    program = compile_sql(STAR, rely=False)
    star.write()
    sources = {source.relation: source for source in sources_from([str(tmp_path / "in")], program)}
    asked = 0
    for host, options in [
        ("embedded", {"layout": "one-round", "buckets": 2}),
        ("spark", {"buckets": 3}),
        ("spark", {"buckets": 2}),
        ("embedded", {"buckets": 3}),
    ]:
        star.write()
        while star.settle():
            pass
        settings: dict[str, Any] = {"late_epochs": 99, **options}
        if host == "spark":
            cumulus.spark.maintain(spark, program, sources, tmp_path / "out", **settings)
        else:
            settings["spark_parts"] = partial(cumulus.spark.stored_parts, spark=spark)
            make = partial(make_engine, "auto")
            with EmbeddedRun(program, list(sources.values()), tmp_path / "out", make_engine=make, **settings) as run:
                list(run.steps())
        assert newest_epoch(tmp_path / "out") == star.epoch
        assert shown(tmp_path / "out", star.epoch) == star.answers()
        asked += sum(
            read_manifest(tmp_path / "out", at).poll.get("asked", 0) for at in committed_epochs(tmp_path / "out")
        )
    assert asked > 0


@pytest.mark.slow
def test_a_run_killed_before_spark_has_noted_its_batch_moves(spark: Any, tmp_path: Path) -> None:
    Stream(9, parents_go=False).write(tmp_path / "all", 4)
    moving = Moving(spark, PROGRAM, tmp_path, tmp_path / "all")
    moving.go_on(("spark", {"layout": "judged", "buckets": 2}), 3)
    (tmp_path / "out" / "checkpoint" / "spark" / "commits" / "2").unlink()
    (tmp_path / "out" / "checkpoint" / "spark" / "commits" / ".2.crc").unlink(missing_ok=True)
    moving.go_on(("embedded", {}), 1)
    moving.check()


@pytest.mark.slow
def test_a_run_over_dataframes_keeps_its_stages_and_changes_its_buckets(spark: Any, tmp_path: Path) -> None:
    program = compile_sql("CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT a, SUM(b) AS s FROM t GROUP BY a;")
    (tmp_path / "in").mkdir()
    frame = Frame("t", spark.readStream.schema("a INT, b INT").json(str(tmp_path / "in")))
    maintain = partial(cumulus.spark.maintain, spark, program, {"t": frame}, tmp_path / "out")

    def put(number: int) -> None:
        (tmp_path / "in" / f"{number}.json").write_text("".join(f'{{"a": {a}, "b": {number}}}\n' for a in range(9)))

    put(1)
    assert maintain(buckets=2, layout="one-round").identity.plan.buckets == 2
    expected = 1
    for number, buckets in ((2, 5), (3, 3)):
        put(number)
        expected += number
        run = maintain(buckets=buckets)
        assert run.identity.plan.buckets == buckets
        rows = query(tmp_path / "out", "FROM v").to_pylist()
        assert sorted((row["a"], row["s"]) for row in rows) == [(a, expected) for a in range(9)]
        keys = {
            row.key[0]
            for row in spark.read.format("statestore")
            .option("stateVarName", "entries")
            .load(str(tmp_path / "out" / "checkpoint" / "spark"))
            .collect()
        }
        assert len(keys) == buckets, "others are forgotten"
    with pytest.raises(UsageError, match="table t comes from a DataFrame, of which only Spark's") as told:
        maintain(layout="judged")
    assert "Another number of buckets is possible" in str(told.value.hint)
    assert committed_epochs(tmp_path / "out") == [1, 2, 3]
