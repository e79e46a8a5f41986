"""Processes that go on when who has started them ends: what they write."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from cumulus.transport.detached import start_detached
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
