"""A ring whose nodes an engine runs: `python -m support.hosted_tables spark|ray FOLDER`.

All queries of TPC-H at each node, then a worker is killed. On Spark the ring is over with it, and says so; Ray starts
the actor again, and its node comes back.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cumulus.errors import CumulusError, UsageError
from cumulus.workloads import tpch
from cumulus_ring.hosted.hosted_ring import on_ray, on_spark
from support.fences import fences
from support.hosted_shop import ROOT, pids
from support.running_ring import QUERIES, duckdb_over, expect_equal, select

NODES = 3


def spark_ring() -> tuple[Any, Callable[[], None], str]:
    from pyspark.sql import SparkSession

    made: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        made = made.config(name, value)
    spark = made.master("local-cluster[3,1,1024]").getOrCreate()
    return partial(on_spark, spark), spark.stop, "CoarseGrainedExecutorBackend"


def ray_ring() -> tuple[Any, Callable[[], None], str]:
    import ray

    ray.init(num_cpus=NODES, include_dashboard=False, log_to_driver=False)
    return on_ray, ray.shutdown, "ray::_WorkingActor"


def wait_for(is_so: Callable[[], bool], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not come to be so"
        time.sleep(0.1)


def is_run(text: str, spark: Any) -> bool:
    """Run a page's block; return whether there were places: Spark has to start the worker again that was killed."""
    try:
        exec(text, {"spark": spark})
    except UsageError as problem:
        print("not yet:", problem.message, flush=True)
        return False
    return True


def main(engine: str, folder: Path) -> None:
    source = tpch.generate(0.01, folder)
    ring_on, stop, worker = {"spark": spark_ring, "ray": ray_ring}[engine]()
    begun = time.monotonic()
    try:
        ring_on(source, 5)
        raise AssertionError("there are three places")
    except UsageError as problem:
        print("refused:", problem.message, flush=True)
    assert time.monotonic() - begun < 30
    with ring_on(source, NODES, failure_s=3.0) as ring, duckdb_over(source) as alone:
        for name in QUERIES:
            wanted = alone.execute(select(name)).to_arrow_table()
            for node in ring.nodes:
                expect_equal(ring.query(select(name), node=node).arrow(), wanted)
        print("right at", *sorted(ring.nodes), flush=True)
        os.kill(pids(worker)[0], signal.SIGKILL)
        if engine == "ray":
            wait_for(lambda: bool(ring.status()["lost"]) or len(ring.nodes) < NODES)
            wait_for(lambda: len(ring.nodes) == NODES)
            expect_equal(ring.query(select("q1")).arrow(), alone.execute(select("q1")).to_arrow_table())
            print("it has come back", flush=True)
        else:
            wait_for(lambda: ring.problem() is not None)
            print("told:", ring.problem(), flush=True)
            try:
                ring.query(select("q1"))
            except CumulusError as problem:
                print("over:", type(problem).__name__, flush=True)
    wait_for(lambda: not pids("cumulus_ring.hosted"))
    if engine == "spark":
        [fence] = [each for each in fences(ROOT / "docs" / "ring.md") if "elsewhere" in each.options]
        wait_for(lambda: is_run(fence.text.replace("/data/tpch", str(source)), ring_on.args[0]))
    stop()
    wait_for(lambda: not any("cumulus_ring" in " ".join(each.cmdline()) for each in psutil.Process().children()))
    print("nothing is left", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
