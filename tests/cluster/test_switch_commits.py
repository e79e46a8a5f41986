"""Switches that commit: who is told what, in whatever order machines are ready."""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path

import pytest

from cumulus.cluster.machine_tasks import CommitEpoch, Listing
from cumulus.cluster.messages import EpochCommit, EpochReady, EpochTold, node_name, switch_name
from cumulus.cluster.mode import Mode
from cumulus.cluster.output_files import OutputFile, StoreOutput, WrittenElsewhere
from cumulus.cluster.planning.epoch_endings import CommitBy
from cumulus.cluster.publisher import PUBLISHER, Publisher
from cumulus.cluster.resets import Reset
from cumulus.cluster.switches.commits import CommitsOfSwitches, commits_of_switch, coordinator_of
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import Written, committed_epochs
from cumulus.epochs.sources import sources_from
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.machine import Completed, Effect, Lost, Perform, Received, Recovered, Send, Tick
from support.cluster_world import run_cluster
from support.equal_outputs import difference
from support.orders_stream import json_lines
from support.tiers import examples


def written(bucket: int, epoch: int) -> Written:
    return Written(bucket, {"v": f"data/v/{epoch}-{bucket}"}, {}, {}, True)


@pytest.mark.parametrize("seed", range(examples(120)))
def test_nodes_hear_of_an_epoch_when_it_has_a_manifest_and_all_are_ready(seed: int) -> None:
    draw = random.Random(seed)
    nodes, switches, epochs = draw.randint(1, 6), draw.randint(1, 4), 3
    held = [CommitsOfSwitches(number, nodes, switches, 0) for number in range(switches)]
    links: dict[tuple[str, str], deque[object]] = {}
    sent: Counter[str] = Counter()

    def send(source: str, each: Send) -> None:
        links.setdefault((source, each.to), deque()).append(each.message)
        kind = "".join(filter(str.isalpha, source)), "".join(filter(str.isalpha, each.to))
        sent[f"{kind[0]} → {kind[1]} {type(each.message).__name__}"] += 1

    for epoch in range(1, epochs + 1):
        for node in range(nodes):
            to = coordinator_of(node, switches, CommitBy.SWITCHES)
            send(node_name(node), Send(to, EpochReady(epoch, [written(node, epoch)])))
    written_by_switches = [deque(range(1, epochs + 1)) for _ in range(switches)]
    manifests: list[int] = []
    heard: dict[str, list[int]] = {node_name(node): [] for node in range(nodes)}
    while links or any(written_by_switches):
        writing = [number for number in range(switches) if written_by_switches[number]]
        if writing and (not links or draw.random() < 0.3):
            number = draw.choice(writing)
            epoch = written_by_switches[number].popleft()
            for each in held[number].ready(epoch, [written(nodes + number, epoch)]):
                send(switch_name(number), each)
            continue
        source, target = link = draw.choice(sorted(links))
        message = links[link].popleft()
        if not links[link]:
            del links[link]
        match message:
            case EpochReady(epoch, told) if target == PUBLISHER:
                assert sorted(each.bucket for each in told) == list(range(nodes + switches)), "each once"
                assert all(each.files["v"].startswith(f"data/v/{epoch}-") for each in told)
                manifests.append(epoch)
                for number in range(switches):
                    send(PUBLISHER, Send(switch_name(number), EpochCommit(epoch)))
            case EpochCommit(epoch) if target in heard:
                heard[target].append(epoch)
                assert epoch in manifests
            case _:
                commits = held[int(target.removeprefix("switch"))]
                if isinstance(message, EpochReady):
                    for each in commits.take(source, message):
                        send(target, each)
                else:
                    assert isinstance(message, EpochCommit)
                    commits.note_manifest(message.epoch)
                for epoch, told in commits.due():
                    assert epoch in manifests
                    for each in told:
                        send(target, each)
    assert manifests == list(range(1, epochs + 1))
    assert list(heard.values()) == [manifests] * nodes
    assert sent == +Counter(
        {
            "node → switch EpochReady": epochs * nodes,
            "switch → switch EpochReady": epochs * switches * (switches - 1),
            "switch → publisher EpochReady": epochs,
            "publisher → switch EpochCommit": epochs * switches,
            "switch → node EpochCommit": epochs * nodes,
        }
    )


def test_what_was_written_goes_to_the_lowest_switch_alone() -> None:
    middle = CommitsOfSwitches(1, 3, 3, 4)
    assert list(middle.ready(5, [written(4, 5)])) == [], "node 1 is not ready"
    told = list(middle.take("node1", EpochReady(5, [written(1, 5)], ["a"])))
    together = EpochReady(5, [written(4, 5), written(1, 5)], ["a"])
    assert told == [Send("switch0", together), Send("switch2", EpochReady(5, (), ()))]


def test_a_commit_waits_for_the_readiness_of_other_switches() -> None:
    last = CommitsOfSwitches(1, 2, 2, 0)
    assert list(last.take("node1", EpochReady(1, ())))[:1] == []
    assert list(last.ready(1, ())) == [Send("switch0", EpochReady(1, [], []))]
    last.note_manifest(1)
    assert list(last.due()) == [], "switch 0 has told that, but not here"
    assert list(last.take("switch0", EpochReady(1, ()))) == []
    assert list(last.due()) == [(1, [Send("node1", EpochCommit(1))])]
    assert list(last.due()) == []


@pytest.mark.parametrize(("sender", "epoch"), [("node1", 1), ("node0", 2), ("switch2", 1), ("client", 1), ("node0", 0)])
def test_who_should_not_be_ready_here_is_refused(sender: str, epoch: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{sender} is ready with epoch {epoch}"):
        list(CommitsOfSwitches(0, 2, 2, 0).take(sender, EpochReady(epoch, ())))


def test_a_reset_forgets_who_was_ready() -> None:
    alone = CommitsOfSwitches(0, 1, 1, 0)
    list(alone.take("node0", EpochReady(1, ())))
    alone.reset(0)
    assert list(alone.ready(1, ())) == []
    assert list(alone.take("node0", EpochReady(1, ()))) == [Send(PUBLISHER, EpochReady(1, [], []))]


def test_with_the_publisher_a_switch_hears_of_nobody() -> None:
    commits = commits_of_switch(0, 2, 2, CommitBy.PUBLISHER, 3)
    assert list(commits.ready(4, ())) == [Send(PUBLISHER, EpochReady(4, (), []))]
    with pytest.raises(RemoteProtocolError, match="not for a switch"):
        list(commits.take("node0", EpochReady(4, ())))
    with pytest.raises(RemoteProtocolError, match="epoch 5 is committed after 3"):
        commits.note_manifest(5)
    commits.note_manifest(4)
    assert list(commits.due()) == [(4, [])]


# --- the publisher --------------------------------------------------------------------------------------------------


def begun(commit: CommitBy) -> Publisher:
    """Return a publisher whose first epoch has begun."""
    publisher = Publisher(1, 2, "watcher", 0, {}, every_ms=1000, commit=commit)
    publisher.step([Recovered(1, ())])
    effects = publisher.step([Completed(task_of(publisher.step([Tick(0)])), Listing({}, {}, True))])
    assert [each.to for each in effects if isinstance(each, Send)] == ["switch0", "switch1"]
    return publisher


def task_of(effects: list[Effect]) -> object:
    from cumulus.cluster.machine_tasks import ListFiles

    tasks = [each.task for each in effects if isinstance(each, Perform)]
    return tasks[0] if tasks else ListFiles(1, {})


def commits(effects: list[Effect]) -> list[CommitEpoch]:
    return [each.task for each in effects if isinstance(each, Perform) and isinstance(each.task, CommitEpoch)]


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_manifest_waits_for_files_that_come_another_way(is_reset: bool) -> None:
    """What a node on another host has written comes over its own link, and may be behind what switches say of it."""
    publisher = begun(CommitBy.SWITCHES)
    ready = EpochReady(1, [written(0, 1), written(1, 1), written(2, 1)], ["data/v/a", "data/v/b"])
    assert commits(publisher.step([Received("node0", OutputFile("data/v/b", b""))])) == []
    if is_reset:
        publisher.step([Lost("node0"), Received("supervisor", Reset(0))])
        assert commits(publisher.step([Received("node0", OutputFile("data/v/a", b""))])) == []
        assert commits(publisher.step([Received("switch0", ready)])) == [], "b was of the incarnation before"
        [store, commit] = publisher.step([Received("node0", OutputFile("data/v/b", b""))])
    else:
        assert commits(publisher.step([Received("switch0", ready)])) == []
        [store, commit] = publisher.step([Received("node0", OutputFile("data/v/a", b""))])
    assert isinstance(store, Perform)
    assert isinstance(store.task, StoreOutput), "it is on the disk before the manifest"
    [task] = commits([commit])
    told = publisher.step([Completed(task, 0)])
    assert [each for each in told if isinstance(each, Send)] == [
        Send("switch0", EpochCommit(1)),
        Send("switch1", EpochCommit(1)),
        Send("watcher", EpochTold(1, 0)),
    ]


@pytest.mark.parametrize("sender", ["switch1", "node0"])
def test_the_lowest_switch_alone_speaks_for_all(sender: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"EpochReady from {sender}"):
        begun(CommitBy.SWITCHES).step([Received(sender, EpochReady(1, ()))])


def test_files_go_to_the_publisher_and_their_names_to_the_switch() -> None:
    elsewhere = WrittenElsewhere([written(2, 1)], [OutputFile("data/v/x", b"rows")])
    lowest = CommitsOfSwitches(0, 1, 1, 0)
    list(lowest.take("node0", EpochReady(1, ())))
    assert list(lowest.ready(1, elsewhere)) == [
        Send(PUBLISHER, OutputFile("data/v/x", b"rows")),
        Send(PUBLISHER, EpochReady(1, [written(2, 1)], ["data/v/x"])),
    ]


# --- whole clusters -------------------------------------------------------------------------------------------------

SCRIPT = """
CREATE TABLE r (k INT, a INT); CREATE TABLE s (k INT, b INT);
CREATE VIEW v AS SELECT b, SUM(a) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY b;
CREATE VIEW most AS SELECT COUNT(DISTINCT a) AS n FROM r;
"""


def test_who_commits_may_be_another_at_each_start(tmp_path: Path) -> None:
    for epoch in range(1, 10):
        json_lines(tmp_path / "in" / "r" / f"{epoch:03d}.json", [{"k": at % 3, "a": epoch * at} for at in range(5)])
        json_lines(tmp_path / "in" / "s" / f"{epoch:03d}.json", [{"k": at % 3, "b": epoch % 2} for at in range(3)])
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    sources = sources_from([str(tmp_path / "in")], program)
    run_cluster(program, sources, tmp_path / "judged", nodes=1, switches=1)
    for last, commit in ((3, "switches"), (5, "publisher"), (0, "switches")):
        shape: dict[str, int] = {"nodes": 3, "switches": 2, "last": last}
        run_cluster(program, sources, tmp_path / "out", **shape, mode=Mode.EVENTUAL, commit=commit)
    assert committed_epochs(tmp_path / "out") == list(range(1, 10))
    assert difference(tmp_path / "judged", tmp_path / "out") == ""


def test_nobody_else_commits(tmp_path: Path) -> None:
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    (tmp_path / "in").mkdir()
    with pytest.raises(UsageError, match="--commit 'nodes' is none") as told:
        run_cluster(program, (), tmp_path / "out", nodes=2, switches=2, commit="nodes")
    assert "Give publisher or switches." in told.value.hint
    assert not (tmp_path / "out").exists()
