"""Kill what can be killed; afterwards every epoch must be there, once, and say what the embedded host says.

The points are those of `cumulus.durable.faults`. When a process of a machine dies, the run starts all of them anew; a
run that dies takes its processes with it, and the next one resumes.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from cumulus.epochs.committed.manifest import committed_epochs
from support.cluster_driver import WHOLE, machines, run_through, start
from support.equal_outputs import difference
from support.sales_stream import SalesStream

pytestmark = pytest.mark.kill

WISHES = {
    "switches": [
        *("after-read:3", "after-read:17", "in-pack:5", "in-pack:20"),
        *("switch0.after-append:2", "switch1.after-append:3", "switch1.after-append:8"),
        *("switch0.between-peers:2", "switch0.between-peers:9", "switch1.between-peers:14"),
        *("switch0.in-snapshot:1", "switch1.in-snapshot:3", "switch0.after-snapshot:2"),
        *("switch0.in-start:3", "switch1.in-start:5", "switch0.in-recovery:4", "switch1.in-recovery:7"),
    ],
    "nodes": [
        *("node0.after-append:2", "node1.after-append:5", "node1.after-append:9"),
        *("node0.after-outputs:1", "node0.after-outputs:7", "node1.after-outputs:4"),
        *("node0.between-peers:4", "node0.between-peers:31", "node1.between-peers:15"),
        *("node0.in-snapshot:1", "node0.in-snapshot:3", "node1.in-snapshot:2", "node1.after-snapshot:2"),
        *("node0.in-start:3", "node1.in-start:6", "node0.in-recovery:4", "node1.in-recovery:7"),
    ],
    "publisher": [
        *("publisher.after-append:1", "publisher.after-append:6", "publisher.after-append:15"),
        *("publisher.between-peers:2", "publisher.between-peers:20"),
        *("before-manifest:1", "before-manifest:4", "after-manifest:3", "after-manifest:9"),
        *("publisher.in-start:3", "publisher.in-start:8", "publisher.in-recovery:4", "publisher.in-recovery:7"),
    ],
}


def stream_of(tmp_path: Path, seed: int, epochs: int) -> SalesStream:
    stream = SalesStream(tmp_path / "in", seed)
    stream.write(epochs)
    stream.run_embedded(tmp_path / "embedded")
    return stream


def run_until_done(stream: SalesStream, out: Path, crash: str = "", tries: int = 20) -> list[str]:
    """Run again and again until all is read; return all lines that were told."""
    told: list[str] = []
    for _ in range(tries):
        process = start(stream, out, crash)
        lines, _ = process.communicate(timeout=600)
        told += lines.splitlines()
        if process.returncode == 0:
            return told
        assert process.returncode == 1, lines
        assert "without an epoch in between" in lines, lines
    raise AssertionError(f"not done after {tries} runs: {told}")


def hits(tmp_path: Path) -> list[str]:
    return [":".join(line.split()[:2]) for line in (tmp_path / "hits.log").read_text().splitlines()]


def point_of(wish: str) -> str:
    """Return a point without who has reached it, and how often."""
    return wish.split(".")[-1].split(":")[0]


@pytest.mark.parametrize("who", WISHES)
def test_machines_die_at_every_point(tmp_path: Path, who: str) -> None:
    stream = stream_of(tmp_path, 1, 30)
    told = run_until_done(stream, tmp_path / "out", ",".join(WISHES[who]))
    found = hits(tmp_path)
    assert set(found) <= set(WISHES[who])
    # How often a log is written and a peer is sent to depends on what comes together: late numbers may not be reached.
    assert {point_of(each) for each in found} == {point_of(each) for each in WISHES[who]}
    assert difference(tmp_path / "embedded", tmp_path / "out") == ""
    begun_anew = [line for line in told if "goes on after epoch" in line or "without an epoch in between" in line]
    assert len(begun_anew) > len(WISHES[who]) // 2  # two may have died at the same time
    print(f"hit: {dict(sorted(Counter(hit.split(':')[0] for hit in hits(tmp_path)).items()))}")


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for_epochs(process: subprocess.Popen[str], out: Path, more: int) -> None:
    """Wait until so many epochs more are committed, or the run ends."""
    wanted = len(committed_epochs(out)) + more
    while process.poll() is None and len(committed_epochs(out)) < wanted:
        time.sleep(0.02)


def test_random_kills_of_one_two_and_all(tmp_path: Path) -> None:
    """What is killed is a machine, two at once, or the run itself: then its machines end, and the next one resumes."""
    stream, out, draw = stream_of(tmp_path, 2, 150), tmp_path / "out", random.Random(2)
    killed: Counter[str] = Counter()
    process = start(stream, out)
    while killed.total() < 20:
        wait_for_epochs(process, out, draw.randrange(3))
        time.sleep(draw.uniform(0, 0.2))
        assert process.poll() is None, "all epochs were done before the last kill"
        alive = machines(process)
        if draw.random() < 0.3:
            killed["run"] += 1
            process.kill()
            process.wait()
            process = start(stream, out)  # at once: it waits for those that are left over
            until = time.monotonic() + 20
            while not all(map(has_ended, alive.values())):
                assert time.monotonic() < until, "a machine has outlived its run"
                time.sleep(0.05)
            continue
        names = draw.sample(sorted(alive), min(len(alive), draw.choice([1, 1, 2])))
        for name in names:
            alive[name].kill()
            killed[name] += 1
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert difference(tmp_path / "embedded", out) == ""
    print(f"killed: {dict(sorted(killed.items()))}")


BROKEN = {
    "corrections dropped": ("", "differs"),
    "ready before durable": ("after-manifest:4", "epoch 4 is committed, and not in the log"),
    "blocks doubled after reset": ("node0.after-outputs:3", "differs"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(tmp_path: Path, rule: str) -> None:
    """With the same files, and the same machine killed, everything is as it should be if no rule is broken."""
    crash, found = BROKEN[rule]
    for factory in (WHOLE, f"support.broken_machines:{rule.replace(' ', '_')}"):
        place, is_broken = tmp_path / factory.partition(":")[2], factory != WHOLE
        stream, told = SalesStream(place / "in", 5), ""
        for epochs in (4, 1):
            stream.write(epochs)
            process = start(stream, place / "out", crash, factory=factory)
            told += process.communicate(timeout=300)[0]
        assert bool(crash) == (place / "hits.log").exists()
        stream.run_embedded(place / "embedded")
        told += "differs" * bool(difference(place / "embedded", place / "out"))
        assert (found in told) == is_broken, told
        assert is_broken or process.returncode == 0, told


def test_an_interrupt_ends_the_run_in_peace(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path, 3, 40), tmp_path / "out"
    for _ in range(2):
        process = start(stream, out)
        wait_for_epochs(process, out, 2)
        alive = machines(process)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
        assert process.returncode == 0, told
        assert "note:" not in told
        assert all(map(has_ended, alive.values()))
        assert len(committed_epochs(out)) < 40
    run_through(stream, out)
    assert difference(tmp_path / "embedded", out) == ""
