"""The machines of a simulated cluster, as their processes would make them, and what does their tasks."""

from __future__ import annotations

from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.processes import equip_by_plan, machine_names
from cumulus.cluster.processes.tasks import PublisherTasks
from cumulus.cluster.standby.copies import KeepCopies, ReadOwnLog
from cumulus.machine import Machine, Name
from cumulus.transport.machine_spec import MachineSpec
from cumulus_lab.experiments.cluster_hosts import VirtualHosts
from cumulus_lab.simulation import Reports, Wire

WIRE = Wire(lambda message: b"".join(codec.encode(message)), codec.decode, lambda message: type(message).__name__)


class VirtualCluster:
    """The machines of a cluster, life after life, with what does their tasks.

    Parameters
    ----------
    settings, plan
        What its home has.
    every_ms, last
        As the publisher takes them.
    hosts
        Where they are, if they have standbys.
    reports
        Where it is counted what happens.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        plan: ClusterPlan,
        every_ms: int | None,
        last: int,
        reports: Reports,
        hosts: VirtualHosts | None = None,
    ) -> None:
        self.names = machine_names(settings)
        self._settings, self._plan, self._hosts = settings, plan, hosts
        self._argument: dict[str, Any] = {"home": settings.home, "every_ms": every_ms, "last": last}
        if hosts is not None:
            self._argument |= {"ack": "standby", "hosts": hosts.count}
        self._equipped: dict[Name, MachineSpec] = {}
        self._reports = reports

    def made(self, name: Name) -> Machine:
        """Return the machine of a new life, as its process would make it."""
        self._equipped.pop(name, None)  # it holds locks
        if self._hosts is not None:
            if name in self._hosts.standbys:
                return self._hosts.made(name)
            self._hosts.bring(name)
        spec = equip_by_plan(name, self._argument, self._settings, self._plan)
        if spec.log is not None:
            spec.log.close()  # records are on the world's disk
        self._equipped[name] = spec
        return spec.machine

    def perform(self, name: Name, task: Any) -> Any:
        """Do a task of a machine."""
        self._reports(f"task {type(task).__name__}")
        if self._hosts is not None and isinstance(task, KeepCopies | ReadOwnLog):
            return self._hosts.perform(name, task)
        return self._equipped[name].perform(task)

    def close(self) -> None:
        """Let go of what the tasks hold of the folders."""
        for each in self._equipped.values():
            tasks = getattr(each.perform, "__self__", None)
            if isinstance(tasks, PublisherTasks):
                tasks.close()
        self._equipped.clear()
