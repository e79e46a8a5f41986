"""The nodes of a ring are forks of one process, and need it no more once they run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import LOG, read_address
from support.ring_faults import is_alive, wait_until
from support.running_ring import running_ring


def sum_of(client: RingClient) -> None:
    assert client.query("SELECT SUM(a) AS s FROM t", timeout=30).arrow().to_pylist() == [{"s": 499_500}]


def test_nodes_outlive_what_forks_them_and_the_loss_of_one_is_seen(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "source" / "t.parquet")
    home = tmp_path / "home"
    with running_ring(tmp_path / "source", home, nodes=3) as ring:
        address = read_address(home)
        (server,) = {psutil.Process(pid).ppid() for pid in address.pids.values()}
        assert psutil.Process(server).ppid() == address.pid
        assert psutil.Process(server).num_threads() == 1
        sum_of(ring)
        os.kill(server, signal.SIGKILL)
        sum_of(ring)
        assert read_address(home).lost == {}
        os.kill(address.pids["node1"], signal.SIGKILL)
        wait_until(lambda: "node1" in read_address(home).lost, 20)
        sum_of(ring)
    log = (home / LOG).read_text()
    assert "the process that forks machines was lost; another one starts" in log
    assert "node1 is lost: ended, nobody knows how" in log
    assert "slowly" not in log
    assert not any(map(is_alive, address.pids.values()))
