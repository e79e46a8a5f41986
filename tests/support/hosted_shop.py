"""The shop on a cluster whose machines an engine hosts: `python -m support.hosted_shop spark|ray FOLDER`.

After the second epoch one of the workers is killed. What the cluster leaves is compared with what an embedded run does;
then it is started again, in the same home, and takes rows of a client, those under one name once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cumulus.cluster.hosted.hosted_cluster import HostedCluster
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import newest_epoch
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from cumulus.workloads import shop
from cumulus_lab.experiments.equal_outputs import difference
from support.fences import fences

ROOT = Path(__file__).parents[2]


def on_spark() -> tuple[Any, Callable[[], None], str]:
    from pyspark.sql import SparkSession

    from cumulus.spark import host

    made: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        made = made.config(name, value)
    spark = made.master("local-cluster[2,1,1024]").getOrCreate()
    return partial(host, spark), spark.stop, "CoarseGrainedExecutorBackend"


def on_ray() -> tuple[Any, Callable[[], None], str]:
    import ray

    from cumulus.ray import host

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    return host, ray.shutdown, "ray::_AgentActor"


def pids(word: str) -> list[int]:
    """Return the processes below this one that have a word in their command lines."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if word in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def bring(folder: Path, epochs: int) -> None:
    """Bring the files of so many of the epochs that are left to where they are read."""
    for table in (folder / "all").iterdir():
        (folder / "in" / table.name).mkdir(parents=True, exist_ok=True)
        for file in sorted(table.iterdir())[:epochs]:
            file.rename(folder / "in" / table.name / file.name)


def wait_for_epoch(home: Path, epoch: int, cluster: HostedCluster) -> None:
    end = time.monotonic() + 120
    while (newest_epoch(home) or 0) < epoch:
        assert not cluster.wait(0.1), "it has ended"
        assert time.monotonic() < end, f"epoch {epoch} has not come"


def main(engine: str, folder: Path) -> None:
    shop.write(folder / "all")
    bring(folder, 2)
    host, stop, worker = {"spark": on_spark, "ray": on_ray}[engine]()
    home, given = folder / "home", {"data": str(folder / "data"), "insecure": True, "trigger": "300ms", "lease": "3s"}
    try:
        host(shop.sql(), home, **given, hosts=5)
        raise AssertionError("there are two places")
    except UsageError as problem:
        print("refused:", problem.message)
    with host(shop.sql(), home, **given, sources=[str(folder / "in")], settings={"files_per_epoch": 1}) as cluster:
        wait_for_epoch(home, 2, cluster)
        os.kill(pids(worker)[0], signal.SIGKILL)
        bring(folder, shop.EPOCHS)
        wait_for_epoch(home, shop.EPOCHS, cluster)
    assert not pids("cumulus.transport.process"), "machines are left"
    program = compile_sql(shop.sql(), rely=False, enforced=False)
    program, sources = match_sources_to_tables(program, sources_from([str(folder / "in")], program))
    make = partial(make_engine, "interpreter")
    with EmbeddedRun(program, sources, folder / "judged", make_engine=make) as judge:
        for _ in judge.steps():
            pass
    print("difference:", difference(folder / "judged", home))
    with host(shop.sql(), home, **given, nodes=1) as cluster, cluster.connect(timeout_s=60) as client:
        for _ in range(2):
            client.insert("customers", [(9001, "Nowhere")], once=("loader", 1))
            client.insert("orders", [(9001, 99001, "1.00")], once=("loader", 1))
            token = client.insert("lineitem", [(99001, 5)], once=("loader", 1))
        print("counted:", client.get("revenue", "Nowhere", after=token).row)
    if engine == "spark":
        [fence] = [each for each in fences(ROOT / "docs" / "cluster-hosts.md") if "elsewhere" in each.options]
        os.chdir(folder)
        (folder / "examples").mkdir()
        (folder / "examples" / "shop.sql").write_text(shop.sql())
        exec(fence.text.replace("/var/lib/cumulus", str(folder / "of the page")), {"spark": host.args[0]})
        print("the page's:", read_settings(folder / "live" / "checkpoint").nodes, "nodes")
    stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
