"""Rings whose nodes run in the workers of an engine that is there: `on_spark` and `on_ray`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from cumulus.errors import ProcessError
from cumulus_ring.hosted.hosted_node import NodeTask, keep_node
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import SECRET, read_address
from cumulus_ring.process.ring_supervisor import RingSupervisor
from cumulus_ring.process.settings import RingOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cumulus.cluster.hosted.hosted_cluster import EngineTasks

_START_S, _LOOK_S = 120.0, 0.1


class HostedRing(RingClient):
    """A client of a ring whose nodes an engine runs, and whose keeper runs in this process, as a context.

    Parameters
    ----------
    options
        How the ring runs; it has no home yet.
    count
        How many nodes.
    start
        Starts the tasks or actors, given what each does.
    data
        The folder for the nodes' homes on each worker; empty for temporary ones.
    note
        Takes a line about what happens.

    Raises
    ------
    CumulusError
        If it cannot start.
    """

    def __init__(
        self,
        options: RingOptions,
        count: int,
        start: Callable[[Callable[[int, str], None]], EngineTasks],
        data: str,
        note: Callable[[str], None],
    ) -> None:
        self._folder = Path(options.home)
        self._wish, self._is_up = Event(), Event()
        self._problem: Exception | None = None
        self._tasks: EngineTasks | None = None
        self._thread = Thread(target=self._keep, args=(options, note), name="keeper of a ring", daemon=True)
        self._thread.start()
        try:
            self._wait(self._is_up.is_set, f"the keeper of the ring has not begun in {_START_S:g} s")
            secret = (self._folder / SECRET).read_bytes().strip()
            address = read_address(self._folder)
            task = NodeTask(address.door, secret, options.source, data, options.threads)
            self._tasks = start(partial(keep_node, task))
            super().__init__(self._folder)
            self._wait(lambda: len(self.nodes) >= count, f"fewer than {count} nodes have come in {_START_S:g} s")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the ring; nothing is left of it, but in `data`."""
        self._wish.set()
        self._thread.join()
        if self._tasks is not None:
            self._tasks.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def problem(self) -> Exception | None:
        """Return why the ring, or the engine's part of it, has ended; None while both run."""
        return self._problem or (None if self._tasks is None else self._tasks.problem())

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, options: RingOptions, note: Callable[[str], None]) -> None:
        try:
            RingSupervisor(options, note).keep(self._wish.is_set, self._is_up.set)
        except Exception as problem:  # noqa: BLE001  # whoever has started it is told, whatever it is
            self._problem = problem

    def _wait(self, is_so: Callable[[], bool], late: str) -> None:
        until = time.monotonic() + _START_S
        while not is_so():
            problem = self.problem()
            if problem is not None:
                raise problem
            if time.monotonic() > until:
                raise ProcessError(late, hint="Look whether workers are free, and reach the driver.")
            time.sleep(_LOOK_S)


def on_spark(
    spark: SparkSession, source: str | Path, nodes: int = 3, *, address: str = "", data: str = "", **options: Any
) -> HostedRing:
    """Start a ring whose nodes run in the executors of a Spark application, until it is closed or the application ends.

    Each node is a barrier task, for as long as the ring runs: it takes as many slots as there are nodes. The driver
    keeps the ring.

    Parameters
    ----------
    source
        The folder with the tables, as `cumulus ring start --from` takes it, which the driver sees; executors that do
        not get their chunks from those that do.
    nodes
        How many.
    address
        Of the driver's computer, as the executors reach it; what Spark says, if it is not given.
    data
        The folder for the nodes' homes on each worker; temporary ones, if it is not given.
    options
        Others of a ring, as `cumulus_ring.process.settings.RingOptions` has them, such as ``storage=64_000_000``.

    Raises
    ------
    UsageError
        If there are too few slots.
    CumulusError
        What else is against it.

    Notes
    -----
    When Spark loses an executor, it ends all barrier tasks: the ring is over then, and says so.
    """
    from cumulus.cluster.hosted.spark_hosts import BarrierTasks, require_slots

    context = spark.sparkContext
    require_slots(context, nodes)
    host = address or context.getConf().get("spark.driver.host", "127.0.0.1") or "127.0.0.1"

    def start(work: Callable[[int, str], None]) -> EngineTasks:
        return BarrierTasks(context, nodes, work, what="nodes of a ring", is_renewed=False)

    return HostedRing(_options(source, host, options), nodes, start, data, _quiet)


def on_ray(source: str | Path, nodes: int = 3, *, address: str = "", data: str = "", **options: Any) -> HostedRing:
    """Start a ring whose nodes run in actors of the Ray cluster that this process belongs to, until it is closed.

    Each node is an actor and takes one CPU; Ray starts it again when it is lost, and the node comes back to the ring.

    Parameters
    ----------
    source, nodes, address, data, options
        As `on_spark` takes them.

    Raises
    ------
    MissingError
        If Ray is not installed.
    UsageError
        If this process belongs to no Ray cluster, or there are too few CPUs.
    CumulusError
        What else is against it.
    """
    from cumulus.cluster.hosted.ray_hosts import RayActors, ray_with_cpus

    ray = ray_with_cpus(nodes)
    host = address or str(ray.util.get_node_ip_address())

    def start(work: Callable[[int, str], None]) -> EngineTasks:
        return RayActors(ray, nodes, work, what="node")

    return HostedRing(_options(source, host, options), nodes, start, data, _quiet)


def _options(source: str | Path, host: str, options: dict[str, Any]) -> RingOptions:
    home = tempfile.mkdtemp(prefix="cumulus-ring-home-")
    return RingOptions(str(Path(source).absolute()), home, nodes=0, listen=f"{host}:0", **options)


def _quiet(line: str) -> None:
    """Say nothing: `status` tells what has been lost."""
