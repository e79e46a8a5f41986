"""Records of a real ring's machines: told the same again, they say the same."""

from __future__ import annotations

import json
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cumulus.errors import StoreError
from cumulus.workloads import tpch
from cumulus_ring.machine.messages import LeaseReleased, Reconfigured, TimePassed
from cumulus_ring.machine.node import RingNode
from cumulus_ring.process.home import read_address
from cumulus_ring.process.recording import RECORD, Recorder
from support.command_line import cumulus
from support.one_ring_node import SIZE, settings
from support.running_ring import QUERIES, running_ring, select
from support.tiers import sampled

pytestmark = pytest.mark.xdist_group("test_ring_records")  # one ring for all of them

NODES = ("node1", "node2", "node3")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1_000_000, ("pin by copy", "pin by reference", "unload")), id="copied"),
        pytest.param((None, ("kept chunk given up", "pin by reference", "unload")), id="kept", marks=pytest.mark.slow),
    ],
)
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What three nodes have written: queries at once, chunks that are copied or kept, and node2 killed."""
    query_storage, needed = request.param
    folder = tmp_path_factory.mktemp("records")
    source, home = tpch.generate(0.01, folder / "tpch"), folder / "home"
    with running_ring(source, home, nodes=3, storage=12_000_000, query_storage=query_storage, record=True) as ring:

        def ask(query: str) -> None:
            ring.query(select(query), node="node1" if query in QUERIES[:8] else "node3", timeout=60)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(ask, QUERIES))
            states = [each["counts"] for each in ring.status()["nodes"].values()]
            os.kill(read_address(home).pids["node2"], signal.SIGKILL)
            list(pool.map(ask, QUERIES[:6]))
    for what in needed:
        assert sum(each.get(what, 0) for each in states), f"no {what}"
    return {name: home / name / RECORD for name in NODES}


@pytest.mark.parametrize("node", sampled(NODES, of=2))
def test_a_replay_says_the_same(records: dict[str, Path], node: str) -> None:
    ended = cumulus("ring", "replay", records[node])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps = [json.loads(line) for line in records[node].read_text(encoding="utf-8").splitlines(keepends=True)[1:-1]]
    assert ended.stdout.startswith(f"{node}: ")
    assert int(ended.stdout.split()[1].replace(",", "")) in (len(steps), len(steps) + 1)
    assert {"ChunkCame", "RequestsCame", "ChunkLoaded", "TimePassed"} <= {told[0] for _, told, _ in steps}
    met = sum(told[0] == "Reconfigured" for _, told, _ in steps)
    assert met == 1 if node == "node2" else met > 1


def test_the_first_difference_is_told(records: dict[str, Path], tmp_path: Path) -> None:
    lines = records["node1"].read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"SendRequests"' in line)
    now, told, said = json.loads(lines[at])
    sent = next(each for each in said if each[0] == "SendRequests")
    sent[1][0][1] ^= 1  # another chunk
    lines[at] = json.dumps([now, told, said]) + "\n"
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(lines), encoding="utf-8")
    ended = cumulus("ring", "replay", changed)
    assert ended.returncode == 1
    assert f"line {at + 1}: told " in ended.stdout
    assert f'was: ["SendRequests", [["node1", {sent[1][0][1]}' in ended.stdout


def test_a_machine_is_told_what_its_record_says(records: dict[str, Path], tmp_path: Path) -> None:
    lines = records["node1"].read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"ChunkCame"' in line)
    left_out = tmp_path / "left_out.jsonl"
    left_out.write_text("".join(lines[:at] + lines[at + 1 :]), encoding="utf-8")
    ended = cumulus("ring", "replay", left_out)
    assert ended.returncode == 1


def test_a_line_that_is_cut_is_left_out(records: dict[str, Path], tmp_path: Path) -> None:
    data = records["node3"].read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(data[: data.rindex(b"\n") - 5])
    ended = cumulus("ring", "replay", cut)
    assert ended.returncode == 0
    assert "all the same; the last line is not whole, and left out" in ended.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no record"),
        ("[1]\n", "is no record"),
        ('{"format": "cumulus ring record 0"}\n', "is no record"),
        (None, "cannot be read"),
        (b"\xff\xfe", "is no record"),
    ],
)
def test_what_is_no_record_is_told_so(text: str | bytes | None, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = cumulus("ring", "replay", file)
    assert ended.returncode != 0
    assert problem in ended.stderr
    assert "--record" in ended.stderr


def test_a_record_ends_where_the_disk_is_full_and_its_node_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(Path("/dev/full"), "n0", settings(), 0)
    node = RingNode("n0", settings(), random.Random(0))
    for now in range(3):
        assert recorder.step(node, now, TimePassed()) == []
    assert capsys.readouterr().out == "/dev/full goes no further: No space left on device\n"
    recorder.close()


def test_a_step_at_which_a_machine_fails_is_in_its_record(tmp_path: Path) -> None:
    place = tmp_path / RECORD
    recorder = Recorder(place, "n0", settings(), 0)
    node = RingNode("n0", settings(), random.Random(0))
    recorder.step(node, 1, Reconfigured(1, 2, {7: SIZE}))
    with pytest.raises(AssertionError, match="which it has not got by reference"):
        recorder.step(node, 2, LeaseReleased(1, 7))
    assert place.read_text().splitlines()[-1].startswith('[2,["Released",1,7],"AssertionError: query 1 releases')
    assert cumulus("ring", "replay", place).stdout == "n0: 2 steps, all the same\n"
    recorder.close()


def test_a_file_that_cannot_be_made_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/record\.jsonl cannot be written: No such file"):
        Recorder(tmp_path / "nowhere" / RECORD, "n0", settings(), 0)


def test_a_step_that_is_none_is_told_so(records: dict[str, Path], tmp_path: Path) -> None:
    lines = records["node1"].read_text(encoding="utf-8").splitlines(keepends=True)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(lines[0] + '[1,["Nonsense"],[]]\n', encoding="utf-8")
    ended = cumulus("ring", "replay", broken)
    assert ended.returncode != 0
    assert f"{broken}:2 is no step of a machine" in ended.stderr.replace("\n", " ")
