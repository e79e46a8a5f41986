"""Agents that are not what they should be: of another release, with a certificate that is over, with another clock."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.errors import ProcessError
from cumulus.transport.secret_file import write_secret
from support.live_load import PEOPLE, settings_of
from support.network_hosts import write_certificates

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bad hosts")]
OTHER_RELEASE = """
import sys, cumulus.version
cumulus.version.VERSION = "0.0.0"
from cumulus.cli.main import main
main()
"""
DAY = "86400"


@contextmanager
def agent(folder: Path, *more: str, before: Sequence[str] = (), code: str = "") -> Iterator[HostSettings]:
    """Run an agent, and return a cluster's host with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    secret = folder / "agents.secret"
    with suppress(FileExistsError):
        write_secret(secret)
    words = ["cluster", "agent", "--listen", address, "--secret-file", str(secret), "--data", str(folder / address)]
    command = [*before, sys.executable, *(["-c", code] if code else ["-u", "-m", "cumulus"]), *words, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert "the agent listens" in process.stdout.readline()
        yield HostSettings((address,), {}, str(secret))
    finally:
        own = psutil.Process(process.pid)
        for each in (*own.children(recursive=True), own):
            each.kill()
        process.communicate()


def refused(home: Path, hosts: HostSettings) -> str:
    with pytest.raises(ProcessError) as told:
        daemon.start(replace(settings_of(home), hosts=hosts))
    return str(told.value)


def test_an_agent_of_another_release_is_refused(tmp_path: Path) -> None:
    code = OTHER_RELEASE.replace("main()\n", "sys.stdout.reconfigure(line_buffering=True); main()\n", 1)
    with agent(tmp_path, code=code) as host:
        told = refused(tmp_path / "home", host)
    assert "refuses: supervisor runs another program than agent" in told
    assert "run one release of Cumulus on all hosts" in told


def test_a_certificate_that_is_over_is_refused(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["127.0.0.1"], days=-1)
    cert, key, ca = (str(tmp_path / name) for name in ("127.0.0.1.pem", "127.0.0.1.key", "ca.pem"))
    with agent(tmp_path, "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca) as host:
        told = refused(tmp_path / "home", replace(host, tls_ca=ca))
        assert "shows a certificate that is not trusted: certificate has expired" in told
        assert "it closes the connection" in refused(tmp_path / "home", host), "and in the clear it says nothing"


def test_hosts_whose_clocks_are_a_day_apart_keep_views_together(tmp_path: Path) -> None:
    later = ["unshare", "--time", "--monotonic", DAY, "--boottime", DAY, "--fork"]
    if subprocess.run([*later, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no host can have a clock of its own here")
    home, count = tmp_path / "home", 20
    with agent(tmp_path) as first, agent(tmp_path, before=later) as second:
        address = second.agents[0]
        place = {"node1": address, "switch1": address}
        both = replace(first, agents=(*first.agents, address), place=place, standbys=1, lease_s=3.0)
        daemon.start(replace(settings_of(home), hosts=both))
        try:
            with cumulus.connect(home, timeout_s=60) as client:
                client.insert("people", PEOPLE)
                for at in range(count):
                    receipt = client.insert("sales", [(at, at % 20, at)])
                assert sum(n for _, _, n in client.view("by_town", after=receipt).rows()) == count
                assert client.view("different").rows() == [(count,)]
            log = (home / "checkpoint" / "cluster.log").read_text()
            assert "goes on after" not in log, "nobody is lost"
        finally:
            daemon.stop(home)
