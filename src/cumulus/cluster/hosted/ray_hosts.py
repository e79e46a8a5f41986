"""A cluster whose machines run in the actors of a Ray cluster: `host`.

References
----------
Cumulus introduction, section 1.2: a warehouse runs in a cluster or computing cloud that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from cumulus.cluster.hosted.hosted_agents import AgentTask, run_agent
from cumulus.cluster.hosted.hosted_cluster import HostedCluster, HostedSettings, require_places
from cumulus.errors import CumulusError, MissingError, ProcessError, UsageError
from cumulus.m3.program import Program

_END_S = 10.0
"""How long actors may take to end by themselves."""


def host(program: Program | str, home: str | Path, **settings: Any) -> HostedCluster:
    """Start a cluster whose nodes and switches run in actors of the Ray cluster that this process belongs to.

    Each host is an actor that runs an agent and takes one CPU, for as long as the cluster runs; Ray starts it again
    when it is lost. This process has the home and commits.

    Parameters
    ----------
    program, home, settings
        As `cumulus.cluster.hosted.hosted_cluster.HostedSettings` has them: ``data="/var/lib/cumulus", nodes=4``.

    Raises
    ------
    MissingError
        If Ray is not installed.
    UsageError
        If this process belongs to no Ray cluster, or there are too few CPUs, or links would be in the clear.
    CumulusError
        What else is against it.
    """
    given = HostedSettings(program, home, **settings)
    ray = ray_with_cpus(given.hosts)
    if not given.address:
        given = replace(given, address=ray.util.get_node_ip_address())
    start = partial(RayActors, ray, given.hosts, what="agent")
    return HostedCluster(given, lambda task: start(partial(_run_agent, task)), "Ray")


def ray_with_cpus(count: int) -> Any:
    """Return Ray, with so many free CPUs.

    Raises
    ------
    MissingError
        If it is not installed.
    UsageError
        If this process belongs to no Ray cluster, or there are too few CPUs.
    """
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError:
        raise MissingError("ray is not installed", hint="pip install 'cumulus-ivm[ray]'") from None
    if not ray.is_initialized():
        raise UsageError("this process belongs to no Ray cluster", hint="Call ray.init() before.")
    require_places(count, partial(_free_cpus, ray), "the free CPUs of this Ray cluster are")
    return ray


def _free_cpus(ray: Any) -> int:
    return int(ray.available_resources().get("CPU", 0))


def _run_agent(task: AgentTask, number: int, address: str) -> None:
    run_agent(number, address, task)


class _WorkingActor:
    """What runs in an actor."""

    def run(self, number: int, work: Callable[[int, str], None]) -> None:
        """Work until the driver lets it end."""
        util: Any = import_module("ray.util")
        work(number, util.get_node_ip_address())


class RayActors:
    """Actors, of which Ray starts again those that are lost; a `cumulus.cluster.hosted.hosted_cluster.EngineTasks`.

    Parameters
    ----------
    count
        How many.
    work
        What each does until it is to end, by its number and the address that Ray knows of its host.
    what
        What is in each, for errors.
    """

    def __init__(self, ray: Any, count: int, work: Callable[[int, str], None], *, what: str) -> None:
        self._ray, self._what, self._is_ended = ray, what, False
        made = ray.remote(_WorkingActor).options(
            num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )
        self._actors = [made.remote() for _ in range(count)]
        self._runs = [actor.run.remote(number, work) for number, actor in enumerate(self._actors)]

    def problem(self) -> CumulusError | None:
        """Return why they do not run."""
        if self._is_ended:
            return None
        ended, _ = self._ray.wait(self._runs, num_returns=1, timeout=0)
        for each in ended:
            try:
                self._ray.get(each)
            except Exception as problem:  # noqa: BLE001  # what has happened in the actor, or to it
                cause = getattr(problem, "cause", None)
                if isinstance(cause, CumulusError):
                    return cause
                return self._ended(str(problem).strip().splitlines()[-1])
            return self._ended(f"the {self._what} has ended")
        return None

    def _ended(self, why: str) -> CumulusError:
        return ProcessError(
            f"an actor of the {self._what}s has ended: {why}",
            hint="Look into Ray's logs. What was accepted is kept: start it again.",
        )

    def end(self) -> None:
        """End them, if they do not end by themselves."""
        self._is_ended = True
        self._ray.wait(self._runs, num_returns=len(self._runs), timeout=_END_S)
        for actor in self._actors:
            self._ray.kill(actor)
