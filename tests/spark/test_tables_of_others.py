"""The examples of docs/spark-tables.md: a Delta table that is kept by changes, and a materialized view of Spark's."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest

from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import newest_epoch
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from cumulus.spark.java import find_java
from support.fences import fences
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.spark_hosts, pytest.mark.xdist_group("spark")]
PAGE = Path(__file__).parents[2] / "docs" / "spark-tables.md"
DELTA, PIPELINE = (each.text for each in fences(PAGE) if "elsewhere" in each.options)
EPOCHS = 50


def opened(folder: Path, out: Path) -> EmbeddedRun:
    program = parse(PROGRAM)
    return EmbeddedRun(program, sources_from([str(folder)], program), out, make_engine=partial(make_engine, "auto"))


def environment() -> dict[str, str]:
    more = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **more}


def shown(table: object, out: Path) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Return the rows of the Delta table, and those of the view after the epoch that its last commit names."""
    epoch = int(table.history(1)[0]["epoch"])  # type: ignore[attr-defined]
    kept = sorted_rows(table.to_pyarrow_table().to_pylist())  # type: ignore[attr-defined]
    return kept, sorted_rows(query(out, "FROM revenue", epoch).to_pylist())


def test_a_delta_table_whose_writer_is_killed_is_the_view(tmp_path: Path) -> None:
    """The changes of 50 epochs, with a restart of their run between, while the writer is killed ten times."""
    stream, out, draw = OrdersStream(tmp_path / "in", 1), tmp_path / "out", random.Random(1)
    (tmp_path / "keep.py").write_text(DELTA.replace("availableNow=True", 'processingTime="0 seconds"'))
    killed = 0
    run, writer = opened(stream.folder, out), None
    for epoch in range(1, EPOCHS + 1):
        stream.write(30)
        assert run.step() is not None
        if epoch == EPOCHS // 2:
            run.close()
            run = opened(stream.folder, out)
        if epoch % 5 == 0:
            with (tmp_path / "writer.log").open("ab") as log:
                writer = subprocess.Popen(
                    [sys.executable, "keep.py"], cwd=tmp_path, env=environment(), stdout=log, stderr=log
                )
            before, until = max(_version(tmp_path), 0), time.monotonic() + 120  # version 0 is made without rows
            while writer.poll() is None and _version(tmp_path) <= before and time.monotonic() < until:
                time.sleep(0.02)
            stream.write(30)  # it is at work on the next one when it dies
            run.step()
            time.sleep(draw.uniform(0.0, 1.0))
            assert writer.poll() is None, (tmp_path / "writer.log").read_text()[-3000:]
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            killed += 1
            kept, view = shown(deltalake.DeltaTable(str(tmp_path / "delta" / "revenue")), out)
            assert kept == view
    run.close()
    assert killed == 10
    (tmp_path / "keep.py").write_text(DELTA)
    ended = subprocess.run(
        [sys.executable, "keep.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    kept, view = shown(deltalake.DeltaTable(str(tmp_path / "delta" / "revenue")), out)
    assert kept == view == stream.expected[newest_epoch(out) or 0]


def _version(folder: Path) -> int:
    place = str(folder / "delta" / "revenue")
    return deltalake.DeltaTable(place).version() if deltalake.DeltaTable.is_deltatable(place) else -1


def test_a_pipeline_has_a_view_as_a_table(tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 2), tmp_path / "out"
    stream.write()
    with opened(stream.folder, out) as run:
        run.step()
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "views.py").write_text(PIPELINE.replace("OUT", str(out)))
    spec = (
        f"name: views\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", "spark-pipeline.yml"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert "Run is COMPLETED" in ended.stdout + ended.stderr, ended.stderr[-3000:]
    written = pq.read_table(tmp_path / "spark-warehouse" / "busiest")
    assert sorted_rows(written.to_pylist()) == stream.expected[1]
