"""A cluster whose machines run in the executors of a Spark application: `host`.

References
----------
Cumulus introduction, section 1.2: a warehouse runs in a cluster or computing cloud that is there.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from cumulus.cluster.hosted.hosted_agents import AgentTask, run_agent
from cumulus.cluster.hosted.hosted_cluster import PLACES_S, HostedCluster, HostedSettings, require_places
from cumulus.errors import CumulusError, ProcessError, UsageError
from cumulus.m3.program import Program
from cumulus.spark.errors import carried_error, carry_errors_through_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_END_S = 120.0
_BACK_S = 60.0
"""How long an executor that was lost may take to be replaced."""
_SOUND_S, _MOST_LOSSES = 60.0, 5
"""Tasks may be lost so often in a row without a minute in between."""
_PYTHON_ERROR = re.compile(r"^\w+Error: .+$", re.MULTILINE)
_SPARK_ERROR = re.compile(r"Exception: (.+)$", re.MULTILINE)


def host(spark: SparkSession, program: Program | str, home: str | Path, **settings: Any) -> HostedCluster:
    """Start a cluster whose nodes and switches run in the executors of a Spark application, until it is closed.

    Each host is a barrier task that runs an agent, for as long as the cluster runs: it takes as many slots of the
    application as there are hosts. The driver has the home and commits.

    Parameters
    ----------
    spark
        A session of an application with as many free slots as `hosts`.
    program, home, settings
        As `cumulus.cluster.hosted.hosted_cluster.HostedSettings` has them: ``data="/var/lib/cumulus", nodes=4``.

    Raises
    ------
    UsageError
        If there are too few slots, or links would be in the clear.
    CumulusError
        What else is against it.

    Notes
    -----
    If Spark loses an executor, all barrier tasks end, and are started anew. Those that come to a host that they had
    find their state there, and the cluster goes on as after the loss of these hosts (docs/cluster-hosts.md). The secret
    of the agents goes to the tasks as Spark sends them.
    """
    context = spark.sparkContext
    given = HostedSettings(program, home, **settings)
    require_slots(context, given.hosts)
    if not given.address:
        given = replace(given, address=context.getConf().get("spark.driver.host", "127.0.0.1"))
    start = partial(BarrierTasks, context, given.hosts, what="agents of a Cumulus cluster")
    return HostedCluster(given, lambda task: start(partial(_run_agent, task)), "Spark")


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why a job of barrier tasks has ended, and whether the next one would, too."""

    error: CumulusError
    is_final: bool


def require_slots(context: SparkContext, wanted: int, seconds: float = PLACES_S) -> None:
    """Refuse more barrier tasks than can run at a time: Spark would look for slots for ten minutes."""
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    slots = partial(scala.maxNumConcurrentTasks, profile)
    require_places(wanted, slots, "the slots of this Spark application are", seconds)


class BarrierTasks:
    """A job of barrier tasks; a `cumulus.cluster.hosted.hosted_cluster.EngineTasks`.

    Parameters
    ----------
    count
        How many.
    work
        What each does until it is to end, by its number and the address that Spark knows of its host.
    what
        Of what they are, for Spark's pages.
    is_renewed
        Whether they are started anew when one is lost: Spark ends all of them then.
    """

    def __init__(
        self,
        context: SparkContext,
        count: int,
        work: Callable[[int, str], None],
        *,
        what: str,
        is_renewed: bool = True,
    ) -> None:
        self._context, self._group = context, f"cumulus {id(self)}"
        self._what, self._is_renewed = what, is_renewed
        self._problem: CumulusError | None = None
        self._is_ended = False
        self._job = Thread(target=self._keep, args=(count, work), name="barrier tasks", daemon=True)
        self._job.start()

    def _keep(self, count: int, work: Callable[[int, str], None]) -> None:
        """Run the job, and run it anew when a task is lost, as Spark does not: it has no tasks behind it."""
        losses = 0
        while not self._is_ended:
            begun = time.monotonic()
            problem = self._run(count, work)
            losses = 1 if time.monotonic() - begun > _SOUND_S else losses + 1
            if problem.is_final or losses >= _MOST_LOSSES or not self._is_renewed:
                self._problem = problem.error
                return
            if not self._is_ended:
                print(f"cumulus: {problem.error.message}; they are started again", file=sys.stderr, flush=True)

    def _run(self, count: int, work: Callable[[int, str], None]) -> _Loss:
        """Run the job to its end; return why it has ended."""

        def keep(_: Iterable[int]) -> Iterator[int]:
            yield from _work_in_task(work)

        if self._context._jsc is None:  # pyspark has no other way to ask
            why = f"the Spark application has ended, and with it the {self._what}"
            hint = "What was accepted is kept: start it again in another one."
            return _Loss(ProcessError(why, hint=hint), is_final=True)
        try:
            self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)
            require_slots(self._context, count, _BACK_S)
            self._context.parallelize(range(count), count).barrier().mapPartitions(keep).collect()
        except UsageError as problem:
            return _Loss(problem, is_final=True)
        except Exception as problem:  # noqa: BLE001  # Py4J's, Spark's, or of a context that was stopped
            own = carried_error(problem)
            if own is not None:
                return _Loss(own, is_final=True)
            why = f"Spark has ended the tasks with the {self._what}: {_reason(problem)}"
            hint = "Look into Spark's log. What was accepted is kept: start it again."
            return _Loss(ProcessError(why, hint=hint), is_final=_PYTHON_ERROR.search(str(problem)) is not None)
        why, hint = f"the {self._what} in Spark's tasks have ended", "Look into the log of the executors."
        return _Loss(ProcessError(why, hint=hint), is_final=False)

    def problem(self) -> CumulusError | None:
        """Return why they do not run."""
        return None if self._is_ended else self._problem

    def end(self) -> None:
        """End them, if they do not end by themselves."""
        self._is_ended = True
        self._job.join(PLACES_S)
        if self._job.is_alive():
            self._context.cancelJobGroup(self._group)
            self._job.join(_END_S)


def _reason(problem: Exception) -> str:
    """Return the line that says what has happened of the pages that Spark gives."""
    told = str(problem).strip()
    found = _PYTHON_ERROR.findall(told) or _SPARK_ERROR.findall(told) or told.splitlines()[:1]
    return str(found[0]) if found else type(problem).__name__


def _run_agent(task: AgentTask, number: int, address: str) -> None:
    run_agent(number, address, task)


def _work_in_task(work: Callable[[int, str], None]) -> Iterator[int]:
    """Work in a barrier task, at the address that Spark knows of its host."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    number = context.partitionId()
    addresses = [each.rpartition(":")[0].strip("[]") for each in (info.address for info in context.getTaskInfos())]
    with carry_errors_through_spark():
        work(number, addresses[number])
    yield number
