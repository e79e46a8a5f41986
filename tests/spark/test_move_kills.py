"""Runs that are killed while they move between hosts and buckets: whatever happens, every epoch is there once and says
what a run says that nobody has moved. Files that were read are gone, so nothing is read again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.arrivals import progress_of
from cumulus.epochs.committed.manifest import committed_epochs, newest_epoch, newest_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.spark.java import find_java
from cumulus_lab.experiments.equal_outputs import difference
from support.written_workloads import write

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.xdist_group("spark")]
LEGS = [
    ("embedded",),
    ("spark", "--layout", "judged", "--buckets", "2"),
    ("spark", "--buckets", "8"),
    ("spark", "--buckets", "3"),
    ("embedded",),
]
TESTS = Path(__file__).parents[1]
POINTS = ("in-reshape:1", "before-generation:1", "after-generation:1", "in-reshape:2")
STARTS_S = {"embedded": 1.5, "spark": 14.0}
"""About how long a run takes to its first epoch: the kills fall into that time."""


class Killed:
    """A run of the command line over a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.kills = 0

    def start(self, leg: tuple[str, ...], epochs: int, crash: str = "") -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("cumulus")), "run", "views.sql", "--from", "in", "--out", "out"]
        command += ["--host", *leg, "--epochs", str(epochs), "--json"]
        environment = {**os.environ, "CUMULUS_CRASH": crash, "CUMULUS_CRASH_DIR": str(self.folder)}
        return subprocess.Popen(
            [*command, *(["--master", "local[2]"] if leg[0] == "spark" else [])],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        said, errors = process.communicate(timeout=300)
        with_children = process.returncode == -signal.SIGKILL
        if with_children:
            self.end(process)
            self.kills += 1
        return process.returncode, said + errors

    def end(self, process: subprocess.Popen[str]) -> None:
        """End what a killed run has started, too."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def move(self, leg: tuple[str, ...], point: str, epochs: int) -> None:
        """Kill a run at a point, one at some time, and let one go on."""
        out = self.folder / "out"
        wanted = (newest_epoch(out) or 0) + epochs
        for reached in self.folder.glob("*.reached"):
            reached.unlink()
        code, told = self.ended(self.start(leg, epochs, point))
        assert code == -signal.SIGKILL, told[-3000:]
        process = self.start(leg, epochs)
        time.sleep(self.draw.uniform(0.2, 1.0) * STARTS_S[leg[0]])
        self.end(process)
        self.ended(process)
        left = wanted - (newest_epoch(out) or 0)
        if left > 0 or leg == LEGS[-1]:
            code, told = self.ended(self.start(leg, max(left, 0)))
            assert code == 0, told[-3000:]
        self.forget()

    def forget(self) -> None:
        """Remove the files that are in; of the last of each table the name and the size stay."""
        newest = newest_manifest(self.folder / "out")
        assert newest is not None
        for table, state in progress_of(newest).items():
            for file in sorted((self.folder / "in" / table).iterdir()):
                if file.name < str(state["last"]):
                    file.unlink()
                elif file.name == state["last"]:
                    file.write_bytes(b"?" * file.stat().st_size)


@pytest.mark.parametrize(
    ("workload", "first"),
    # Refreshes delete what others refer to, and judges vote on it an epoch later than one bucket does it.
    [("shop", "one-bucket"), ("flights", "one-bucket"), ("tpch", "judged")],
)
def test_a_run_is_killed_twice_in_each_move(tmp_path: Path, workload: str, first: str) -> None:
    text = write(workload, tmp_path / "in", weeks=10, epochs=10, queries=("q3", "q5", "q17"))
    (tmp_path / "views.sql").write_text(text)
    program = compile_sql(text, rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    told: dict[str, Any] = {"layout": first, "buckets": 2, "make_engine": partial(make_engine, "auto")}
    with EmbeddedRun(program, sources, tmp_path / "one", **told) as run:
        epochs = len(list(run.steps()))
    killed = Killed(tmp_path, 7)
    buckets = ("--buckets", "2") if first == "judged" else ()
    code, words = killed.ended(killed.start((*LEGS[0], "--layout", first, *buckets), 2))
    assert code == 0, words
    killed.forget()
    for number, (leg, point) in enumerate(zip(LEGS[1:], POINTS, strict=True)):
        rest = epochs - (newest_epoch(tmp_path / "out") or 0)
        killed.move(leg, point, min(2, rest) if number < len(POINTS) - 1 else rest)
    assert committed_epochs(tmp_path / "out") == list(range(1, epochs + 1))
    assert not difference(tmp_path / "one", tmp_path / "out", same_host=False)
    moved = [
        json.loads(file.read_text())["host"] for file in sorted((tmp_path / "out/checkpoint/generations").iterdir())
    ]
    assert [*dict.fromkeys(moved)] == ["spark", "embedded"]
    print(f"{workload}: {epochs} epochs, {killed.kills} kills, generations {moved}")


@pytest.mark.parametrize(
    "points", [("before-generation:1", "before-manifest:1"), ("after-generation:1", "after-manifest:1")]
)
def test_a_run_over_a_dataframe_is_killed_while_its_buckets_change(tmp_path: Path, points: tuple[str, str]) -> None:
    draw = random.Random(points[0])
    environment = {**os.environ, "CUMULUS_CRASH_DIR": str(tmp_path), "JAVA_HOME": find_java().home}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(TESTS)}
    (tmp_path / "in").mkdir()
    rows: list[dict[str, int]] = []

    def start(buckets: int, crash: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, str(TESTS / "support" / "frame_run.py"), str(tmp_path / "in"), str(tmp_path / "out")]
        return subprocess.Popen(
            [*command, str(buckets)],
            env={**environment, "CUMULUS_CRASH": crash},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    killed = Killed(tmp_path, 7)
    for leg, buckets in enumerate((2, 5, 3)):
        for number in (2 * leg, 2 * leg + 1):
            rows += (lines := [{"a": draw.randrange(9), "b": draw.randrange(-99, 99)} for _ in range(60)])
            (tmp_path / "in" / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for point in points if leg else ():
            code, told = killed.ended(start(buckets, point))
            assert code == -signal.SIGKILL, told[-3000:]
        if leg:
            process = start(buckets)
            time.sleep(draw.uniform(0.2, 1.0) * STARTS_S["spark"])
            killed.end(process)
            killed.ended(process)
        for reached in tmp_path.glob("*.reached"):
            reached.unlink()
        code, told = killed.ended(start(buckets))
        assert code == 0, told[-3000:]
        expected = {
            (a, sum(mine), max(mine))
            for a in {row["a"] for row in rows}
            if (mine := [row["b"] for row in rows if row["a"] == a])
        }
        assert {(row["a"], row["s"], row["m"]) for row in query(tmp_path / "out", "FROM v").to_pylist()} == expected
    assert committed_epochs(tmp_path / "out") == list(range(1, 7))
    print(f"{killed.kills} kills")
