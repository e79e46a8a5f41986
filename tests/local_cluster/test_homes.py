"""Homes that were copied, moved or removed while their cluster runs, and a first start that fails."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import read_address
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.errors import NotRunningError, ProcessError
from cumulus.transport.secret_file import write_secret
from support.live_load import begin, settings_of

pytestmark = pytest.mark.xdist_group("live homes")


def test_a_copy_of_a_home_is_none_and_a_cluster_whose_home_is_gone_ends(tmp_path: Path) -> None:
    """Nobody can stop a cluster that nobody finds: it ends by itself, also if no rows come, and goes on elsewhere."""
    home, copy, elsewhere = tmp_path / "home", tmp_path / "copy", tmp_path / "elsewhere"
    daemon.start(settings_of(home))
    begin(home)
    address = read_address(home)
    shutil.copytree(home, copy)
    for using in (cumulus.connect, daemon.stop):
        with pytest.raises(NotRunningError, match="copy: this is a copy of the home of a cluster that runs"):
            using(copy)
    with cumulus.connect(home, timeout_s=60) as client:
        client.view("different", after=client.insert("sales", [(1, 1, 1)]))
    home.rename(elsewhere)
    psutil.wait_procs([psutil.Process(pid) for pid in (address.pid, *address.pids.values()) if psutil.pid_exists(pid)])
    said = (elsewhere / "checkpoint" / "cluster.log").read_text()
    assert f"{home / 'checkpoint'}: this folder has gone" in said
    daemon.start(settings_of(elsewhere))
    with cumulus.connect(elsewhere, timeout_s=60) as client:
        assert client.view("different", after=client.insert("sales", [(2, 1, 5)])).rows() == [(2,)]
    daemon.stop(elsewhere)


@pytest.mark.slow
def test_a_host_that_does_not_answer_at_the_first_start_is_none_of_the_cluster(tmp_path: Path) -> None:
    secret, home = tmp_path / "agents.secret", tmp_path / "home"
    write_secret(secret)
    for port in (1, 2):
        live = replace(settings_of(home), hosts=HostSettings((f"127.0.0.1:{port}",), {}, str(secret)))
        with pytest.raises(ProcessError, match=f"the agent at 127.0.0.1:{port} cannot be had"):
            daemon.start(live)
    daemon.start(settings_of(home))
    daemon.stop(home)
