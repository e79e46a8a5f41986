"""Switches that end epochs one after the other: who has the token, for how long, and what a reset leaves of it."""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.messages import EpochEnd, EpochToken
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.epoch_endings import Transitions
from cumulus.cluster.switches.epoch_transitions import (
    AlignedTransitions,
    StaggeredTransitions,
    epoch_transitions,
)
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.sources import sources_from
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Send
from support.cluster_world import run_cluster
from support.equal_outputs import difference
from support.orders_stream import json_lines
from support.tiers import examples


def test_a_token_goes_around() -> None:
    first, last = StaggeredTransitions(0, 2, 0, 4), StaggeredTransitions(1, 2, 0, 4)
    assert first.may_end(5, 0, is_urgent=False)
    assert not last.may_end(5, 0, is_urgent=False), "switch 0 has the token"
    assert not first.may_end(6, 0, is_urgent=True), "switch 1 has not ended epoch 5"
    assert list(first.ended(5)) == [Send("switch1", EpochToken(5))]
    last.take("switch0", EpochToken(5), 0)
    assert last.may_end(5, 0, is_urgent=False)
    assert list(last.ended(5)) == [Send("switch0", EpochToken(5))]
    first.take("switch1", EpochToken(5), 0)
    assert first.may_end(6, 0, is_urgent=False)


def test_who_has_it_waits_for_a_period_unless_clients_wait() -> None:
    switch = epoch_transitions(1, 4, Transitions.STAGGERED, 1000, 0)
    switch.take("switch0", EpochToken(1), 5_000)
    assert not switch.may_end(1, 5_249, is_urgent=False)
    assert switch.may_end(1, 5_249, is_urgent=True)
    assert switch.may_end(1, 5_250, is_urgent=False)


@pytest.mark.parametrize(("sender", "epoch"), [("switch2", 5), ("switch0", 4), ("node0", 5)])
def test_a_token_that_cannot_be_is_refused(sender: str, epoch: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{sender} passes the token for epoch {epoch} after 4"):
        StaggeredTransitions(1, 3, 0, 4).take(sender, EpochToken(epoch), 0)


def test_aligned_switches_and_one_alone_have_no_token() -> None:
    for switch in (epoch_transitions(0, 1, Transitions.STAGGERED, 9, 0), AlignedTransitions()):
        assert switch.may_end(1, 0, is_urgent=False)
        assert list(switch.ended(1)) == list(switch.reset(0, 1)) == []
        with pytest.raises(RemoteProtocolError, match="there are none"):
            switch.take("switch0", EpochToken(1), 0)


def test_a_reset_tells_again_what_has_ended() -> None:
    ahead, next_one = StaggeredTransitions(0, 2, 0, 0), StaggeredTransitions(1, 2, 0, 0)
    next_one.take("switch0", EpochToken(1), 0)
    assert list(next_one.reset(0, 0)) == []
    assert not next_one.may_end(1, 0, is_urgent=True), "it is not known any more"
    assert list(ahead.reset(0, 2)) == [Send("switch1", EpochToken(2))]
    next_one.take("switch0", EpochToken(2), 0)
    assert next_one.may_end(1, 0, is_urgent=False)
    assert next_one.may_end(2, 0, is_urgent=False)


@pytest.mark.parametrize("seed", range(examples(80)))
def test_switches_end_epochs_in_turns_whatever_is_lost(seed: int) -> None:
    draw = random.Random(seed)
    count, epochs, committed = draw.randint(2, 5), 4, 0
    held = [StaggeredTransitions(number, count, 0, 0) for number in range(count)]
    ended = [0] * count
    links: dict[tuple[str, str], deque[EpochToken]] = {}
    turns: list[tuple[int, int]] = []

    def send(number: int, sent: Any) -> None:
        for each in sent:
            links.setdefault((f"switch{number}", each.to), deque()).append(each.message)

    while min(ended) < epochs:
        committed = max(committed, min(ended) - draw.randint(0, 1))
        if draw.random() < 0.05:  # all meet anew, and one has lost what it did since the commit
            links.clear()
            lost = draw.randrange(count)
            held[lost], ended[lost] = StaggeredTransitions(lost, count, 0, committed), committed
            for number, each in enumerate(held):
                send(number, each.reset(committed, ended[number]) if number != lost else ())
        for number in draw.sample(range(count), count):
            if ended[number] < epochs and held[number].may_end(ended[number] + 1, 0, is_urgent=False):
                ended[number] += 1
                turns.append((ended[number], number))
                send(number, held[number].ended(ended[number]))
        if links and draw.random() < 0.8:
            source, target = link = draw.choice(sorted(links))
            held[int(target.removeprefix("switch"))].take(source, links[link].popleft(), 0)
            if not links[link]:
                del links[link]
    first = list(dict.fromkeys(turns))
    assert first == sorted(first), "epoch by epoch, and switch by switch"
    assert len(first) == count * epochs


SCRIPT = """
CREATE TABLE r (k INT, a INT); CREATE TABLE s (k INT, b INT); CREATE TABLE t (b INT, c INT);
CREATE VIEW v AS SELECT c, SUM(a) AS t, COUNT(*) AS n FROM r JOIN s USING (k) JOIN t USING (b) GROUP BY c;
CREATE VIEW most AS SELECT COUNT(DISTINCT a) AS n FROM r;
"""


@pytest.mark.parametrize("commit", ["publisher", "switches"])
def test_a_cluster_with_staggered_switches_leaves_the_same(tmp_path: Path, commit: str) -> None:
    for epoch in range(1, 7):
        json_lines(tmp_path / "in" / "r" / f"{epoch:03d}.json", [{"k": at % 3, "a": epoch * at} for at in range(5)])
        json_lines(tmp_path / "in" / "s" / f"{epoch:03d}.json", [{"k": at % 3, "b": epoch % 2} for at in range(3)])
        json_lines(tmp_path / "in" / "t" / f"{epoch:03d}.json", [{"b": at % 2, "c": epoch % 3} for at in range(2)])
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    sources, sent = sources_from([str(tmp_path / "in")], program), Counter[str]()
    run_cluster(program, sources, tmp_path / "judged", nodes=1, switches=1)
    for last in (2, 0):  # the second life begins behind the first one
        shape: dict[str, Any] = {"nodes": 2, "switches": 3, "last": last, "commit": commit, "order": "switch"}
        run_cluster(program, sources, tmp_path / "out", **shape, mode=Mode.EVENTUAL, transitions="staggered", sent=sent)
    assert committed_epochs(tmp_path / "out") == list(range(1, 7))
    assert difference(tmp_path / "judged", tmp_path / "out") == ""
    assert sent[EpochToken.__name__] == 6 * 3
    assert sent[EpochEnd.__name__]
