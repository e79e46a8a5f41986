"""A cluster in the tasks of an engine: here in processes of their own, which are killed and started again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cumulus
from cumulus.cluster.hosted.hosted_agents import AgentSlot, AgentTask, run_agent
from cumulus.cluster.hosted.hosted_cluster import HostedCluster, HostedSettings
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import is_running
from cumulus.errors import CumulusError, LockedError, MissingError, ProcessError, UsageError
from cumulus.ray import host as host_on_ray
from cumulus.transport.agents.agent_messages import AGENT_NAME, INCARNATION, RELEASE
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.greeting import Credentials, RefusalError

SQL = "CREATE TABLE r (a INT NOT NULL); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;"


class Tasks:
    """An engine: its tasks are processes."""

    def __init__(self, count: int, task: AgentTask) -> None:
        self.task = task
        context = multiprocessing.get_context("spawn")
        self._start = lambda number: context.Process(target=run_agent, args=(number, "127.0.0.1", task), daemon=False)
        self.running = [self._start(number) for number in range(count)]
        for each in self.running:
            each.start()
        self.why: CumulusError | None = None

    def problem(self) -> CumulusError | None:
        return self.why

    def start_again(self, number: int) -> None:
        self.running[number] = self._start(number)
        self.running[number].start()

    def end(self) -> None:
        for each in self.running:
            each.join(20)
            assert not each.is_alive(), "it ends by itself"


def hosted(folder: Path, tasks: list[Tasks], **given: Any) -> HostedCluster:
    settings = HostedSettings(
        SQL, folder / "home", str(folder / "data"), **{"address": "127.0.0.1", "trigger": "100ms", **given}
    )

    def start(task: AgentTask) -> Tasks:
        tasks.append(Tasks(settings.hosts, task))
        return tasks[-1]

    return HostedCluster(settings, start, "a test")


def wait_for(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.05)


def test_machines_run_where_the_engine_has_tasks_and_come_back_with_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks: list[Tasks] = []
    home = tmp_path / "home"
    with hosted(tmp_path, tasks, lease="2s") as cluster:
        places = json.loads((home / "checkpoint" / "hosts.json").read_text())
        where = {name: each["host"] for name, each in places.items()}
        assert where["publisher"] == cluster.agents[0], "the driver has the home"
        assert {where[name] for name in ("switch0", "node0", "node1")} == {*cluster.agents[1:]}, "and nothing else"
        with cluster.connect(timeout_s=60) as client:
            client.insert("r", [(1,), (1,), (2,)], once=("loader", 1))
            os.kill(tasks[0].running[0].pid or 0, signal.SIGKILL)
            tasks[0].running[0].join()
            tasks[0].start_again(0)
            token = client.insert("r", [(3,)])
            client.insert("r", [(1,), (1,), (2,)], once=("loader", 1))
            assert sorted(client.view("v", after=token).rows()) == [(1, 2), (2, 1), (3, 1)]
        with pytest.raises(UsageError, match=r"is kept by process .* the driver of a test"):
            daemon.stop(home)
        assert not cluster.wait(0.1)
        secret = tasks[0].task.secret
        for name, known in (("joining-7", b"another"), ("joining-7", None)):
            me = Credentials(name, RELEASE, secret if known is None else known)
            address = tasks[0].task.driver if known else cluster.agents[1].rpartition(":")[::2]
            with pytest.raises(RefusalError) as refused:
                ClientConnection(me, AGENT_NAME, (address[0], int(address[1])), INCARNATION, time.monotonic() + 20)
            assert ("does not know the secret" if known else "no agent is waited for here") in refused.value.message
    assert not is_running(home)
    assert "the cluster goes on after epoch" in capfd.readouterr().err
    with AgentSlot(tmp_path / "data") as slot, socket.create_server(("127.0.0.1", slot.port)):
        slot.close()  # another program has its port now
        with hosted(tmp_path, tasks, nodes=1) as cluster, cluster.connect(timeout_s=60) as client:
            assert sorted(client.view("v").rows()) == [(1, 2), (2, 1), (3, 1)], "its state is found all the same"
            at = cluster.agents[0]
            with cumulus.connect(f"cluster://{at}", secret_file=cluster.secret_file) as other:
                assert other.get("v", 2).row == (2, 1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("a\n2\n9\n")
    with hosted(tmp_path, tasks, nodes=1, sources=[f"r={tmp_path}/in"]) as cluster, cluster.connect() as client:
        wait_for(lambda: client.view("v").at is not None and len(client.view("v").rows()) == 4)
        assert sorted(client.view("v").rows()) == [(1, 2), (2, 2), (3, 1), (9, 1)]
    places = json.loads((home / "checkpoint" / "layout2" / "hosts.json").read_text())
    assert places["switch0"]["is_beside"], "it reads files now, so what it had was brought to the home"


def test_what_is_against_it_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    tasks: list[Tasks] = []
    with pytest.raises(UsageError, match="could be read, and changed, on the way"):
        hosted(tmp_path, tasks, address="192.0.2.2")
    with pytest.raises(UsageError, match="cannot be used"):
        hosted(tmp_path, tasks, address="192.0.2.77", insecure=True)  # no address of this computer
    with pytest.raises(UsageError, match="there is no mode 'none'"):
        hosted(tmp_path, tasks, mode="none")
    with pytest.raises(UsageError, match="standby=2 is no cluster"):
        hosted(tmp_path, tasks, standby=2)
    with pytest.raises(CumulusError, match="no table"):
        hosted(tmp_path, tasks, sources=["nothing=/nowhere"])
    assert not tasks
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        HostedCluster(HostedSettings(SQL, tmp_path / "file", "data", address="127.0.0.1"), lambda task: tasks[0], "-")

    class Broken(Tasks):
        def __init__(self, task: AgentTask) -> None:
            super().__init__(0, task)
            self.why = ProcessError("the engine has none", hint="-")

    with pytest.raises(TypeError, match="wrong"):
        hosted(tmp_path / "odd", tasks, hosts=1, settings={"wrong": 1})
    settings = HostedSettings(SQL, tmp_path / "other", str(tmp_path / "data"), address="127.0.0.1")
    with pytest.raises(ProcessError, match="the engine has none"):
        HostedCluster(settings, Broken, "-")
    with (
        hosted(tmp_path, tasks, hosts=1, nodes=1),
        pytest.raises(LockedError, match="the cluster of this home runs already"),
    ):
        hosted(tmp_path, tasks, hosts=1, nodes=1)


def test_ray_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingError, match="ray is not installed"):
        host_on_ray(SQL, tmp_path, data="-")
