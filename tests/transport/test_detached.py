"""Processes that go on when who has started them ends: what they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cumulus.durable.folders import lock_file
from cumulus.transport.detached import detached_holder, start_detached, stop_detached
from support.talker import MOST_BYTES


@pytest.mark.slow
def test_a_log_is_replaced_when_it_is_large_and_one_older_part_is_kept(tmp_path: Path) -> None:
    log, older = tmp_path / "talk.log", tmp_path / "talk.log.1"
    log.write_text("from a life before\n")
    before = {each.pid for each in psutil.Process().children()}
    start_detached("support.talker", "", log, "talker")
    (talker,) = [each for each in psutil.Process().children() if each.pid not in before]
    until, first = time.monotonic() + 60, ""
    while not older.exists() or older.read_text()[:20] == first or not first:  # it is replaced twice
        assert time.monotonic() < until
        first = first or (older.read_text()[:20] if older.exists() else "")
        time.sleep(0.05)
    os.kill(talker.pid, signal.SIGTERM)
    talker.wait(30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["talk.log", "talk.log.1"]
    lines = (older.read_text() + log.read_text()).splitlines()
    assert lines.pop() == "the end"
    numbers = [int(line.split()[0]) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none is lost, and none is out of order"
    assert numbers[0] > 1
    assert older.stat().st_size > MOST_BYTES


def talker_that_begins(log: Path) -> int:
    before = {each.pid for each in psutil.Process().children()}
    start_detached("support.talker", "", log, "talker")
    (talker,) = [each for each in psutil.Process().children() if each.pid not in before]
    return talker.pid


def test_to_be_stopped_twice_is_to_be_stopped(tmp_path: Path) -> None:
    log = tmp_path / "talk.log"
    pid = talker_that_begins(log)
    for _ in range(20):
        os.kill(pid, signal.SIGTERM)
    stop_detached(pid, lambda: psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie", 30, "")
    lines = log.read_text().splitlines()
    assert lines.pop() == "the end"
    assert all(line.endswith("x") for line in lines)


def test_who_is_not_waited_for_any_more_ends_in_order(tmp_path: Path) -> None:
    """Whoever has started it was killed: nobody knows of it, and it must not go on in the way of the next one."""
    log = tmp_path / "talk.log"
    with log.open("ab") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.talker", str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=lines,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.close()
        process.stdin.close()
        assert process.wait(30) == 1
    told = log.read_text()
    assert "who has started it did not wait until all ran" in told
    assert "Traceback" not in told


def test_who_has_a_lock_is_known_by_its_program(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert detached_holder(lock, "pytest") is None
    code = """
import sys, pathlib
from cumulus.durable.folders import lock_file
held = lock_file(pathlib.Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock), "its.module"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert detached_holder(lock, "its.module") == holder.pid
        assert detached_holder(lock, "another.module") is None
        assert lock_file(lock) is None
        holder.communicate()
    assert detached_holder(lock, "its.module") is None
    held = lock_file(lock)
    assert held is not None
    held.close()
