"""A cluster whose machines run in the actors of a Ray cluster: `host`.

References
----------
Cumulus introduction, section 1.2: a warehouse runs in a cluster or computing cloud that is there.
"""

from __future__ import annotations

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
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError:
        raise MissingError("ray is not installed", hint="pip install 'cumulus-ivm[ray]'") from None
    if not ray.is_initialized():
        raise UsageError("this process belongs to no Ray cluster", hint="Call ray.init() before.")
    given = HostedSettings(program, home, **settings)
    require_places(given.hosts, partial(_free_cpus, ray), "the free CPUs of this Ray cluster are")
    if not given.address:
        given = replace(given, address=ray.util.get_node_ip_address())
    return HostedCluster(given, lambda task: _Actors(ray, given.hosts, task), "Ray")


def _free_cpus(ray: Any) -> int:
    return int(ray.available_resources().get("CPU", 0))


class _AgentActor:
    """What runs in an actor."""

    def run(self, number: int, task: AgentTask) -> None:
        """Run an agent until the driver lets it end."""
        util: Any = import_module("ray.util")
        run_agent(number, util.get_node_ip_address(), task)


class _Actors:
    """Actors with an agent in each; a `cumulus.cluster.hosted.hosted_cluster.EngineTasks`."""

    def __init__(self, ray: Any, count: int, task: AgentTask) -> None:
        self._ray, self._is_ended = ray, False
        made = ray.remote(_AgentActor).options(
            num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )
        self._actors = [made.remote() for _ in range(count)]
        self._runs = [actor.run.remote(number, task) for number, actor in enumerate(self._actors)]

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
                return cause if isinstance(cause, CumulusError) else _ended(str(problem).strip().splitlines()[-1])
            return _ended("the agent has ended")
        return None

    def end(self) -> None:
        """End them, if they do not end by themselves."""
        self._is_ended = True
        self._ray.wait(self._runs, num_returns=len(self._runs), timeout=_END_S)
        for actor in self._actors:
            self._ray.kill(actor)


def _ended(why: str) -> CumulusError:
    return ProcessError(
        f"an actor with an agent has ended: {why}",
        hint="Look into Ray's logs. What was accepted is kept: start the cluster again.",
    )
