"""Whether a cluster runs: its process, and no other one that has its number now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cumulus.cluster.live.address import (
    STATE,
    ClusterAddress,
    begun_at,
    is_alive,
    is_running,
    read_address,
)
from cumulus.cluster.processes.cluster_settings import SETTINGS_FILE
from cumulus.errors import NotRunningError

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell it")


def home_of(place: Path, pid: int, begun: str | None) -> Path:
    (place / STATE).mkdir()
    (place / STATE / SETTINGS_FILE).write_text("{}")
    ClusterAddress(pid, begun, 1, str(place / "secret"), {"node0": ("127.0.0.1", 1)}, {"node0": pid}).write(place)
    return place


def test_a_process_is_found_by_number_and_beginning(tmp_path: Path) -> None:
    own = os.getpid()
    home = home_of(tmp_path, own, begun_at(own))
    assert is_running(home)
    assert read_address(home).pid == own


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_number_that_another_process_has_now_is_no_cluster(tmp_path: Path, shift: int) -> None:
    own = os.getpid()
    boot, tick = (begun_at(own) or "").split()
    home = home_of(tmp_path, own, f"{boot} {int(tick) + shift}")
    assert not is_running(home)
    with pytest.raises(NotRunningError, match="ended without being stopped"):
        read_address(home)


def test_a_number_of_another_boot_is_no_cluster(tmp_path: Path) -> None:
    own = os.getpid()
    _, tick = (begun_at(own) or "").split()
    assert not is_running(home_of(tmp_path, own, f"00000000-0000-0000-0000-000000000000 {tick}"))


def test_a_process_that_has_ended_and_is_not_waited_for_is_not_alive() -> None:
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        begun = begun_at(process.pid)
        assert begun is not None
        assert is_alive(process.pid, begun)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert begun_at(process.pid) is None
        assert not is_alive(process.pid, begun)
    assert not is_alive(process.pid, begun)


def test_a_name_with_parentheses_hides_nothing(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        try:
            begun = begun_at(process.pid)
            assert begun is not None
            assert begun.split()[1].isdigit()
            assert begun.split()[0] == (begun_at(os.getpid()) or "").split()[0]
            assert is_alive(process.pid, begun)
        finally:
            process.kill()
