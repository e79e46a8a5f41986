"""Updates of chunks at one node: who gets a lock, what goes where, what an update leaves (section 7.4)."""

from __future__ import annotations

import random

from cumulus_lab.experiments.ring.update_world import UpdateLedger
from cumulus_ring.machine import RingNode
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkHeader,
    Reconfigured,
    RingEffect,
    RingEvent,
    SendChunk,
    TimePassed,
)
from cumulus_ring.machine.update_messages import (
    LatestAsked,
    LatestRead,
    LockFound,
    ManifestRead,
    ReadManifest,
    SendUpdateMessages,
    SwitchManifest,
    UpdateEnded,
    UpdateMessage,
    UpdateMessagesCame,
    UpdateSubmitted,
    UpdateTag,
    VersionStamp,
    WriteVersion,
)
from support.one_ring_node import SIZE, OneNode, only, settings

OLD: UpdateTag = (1, "n2", 1)
YOUNG: UpdateTag = (2, "n3", 2)
LOCK = (1, 50, "n1")


def messages(effects: list[RingEffect]) -> list[UpdateMessage]:
    return [message for each in only(SendUpdateMessages, effects) for message in each.messages]


def came(kind: str, tag: UpdateTag, sender: str, to: str = "", chunk: int = 7) -> UpdateMessagesCame:
    return UpdateMessagesCame((UpdateMessage(kind, sender, to, 1, tag, (chunk,)),))  # type: ignore[arg-type]


def stamped(stamp: VersionStamp) -> ChunkHeader:
    return ChunkHeader(7, "n1", 1, 1, SIZE, 1.0, 0, 1, 1, 0, stamp=stamp)


def test_a_ring_of_one_updates_its_own_chunks_and_leaves_no_tag() -> None:
    node, ledger, now = RingNode("n0", settings(updates=True), random.Random(0)), UpdateLedger(), 0
    said: list[RingEffect] = []
    due: list[RingEvent] = [
        Reconfigured(1, 1, {1: SIZE, 2: SIZE}),
        UpdateSubmitted(0, (1, 2)),
        UpdateSubmitted(1, (2,)),
        LatestAsked(2, 2),
    ]
    for _ in range(200):
        now += 50_000
        for effect in node.step(now, due.pop(0) if due else TimePassed()):
            said.append(effect)
            if isinstance(effect, ReadManifest | WriteVersion | SwitchManifest):
                due.append(ledger.perform(effect))
        node.check()
    assert {each.number for each in only(UpdateEnded, said) if not each.failure} == {0, 1}
    assert {chunk: value for chunk, (_, value) in ledger.manifest.listed.items()} == {1: 1, 2: 2}
    assert [each.failure for each in only(LatestRead, said)] == [""]
    assert len(node.updates) == 0


def test_an_owner_gives_a_lock_to_the_lowest_tag_and_wants_it_back_for_that() -> None:
    one = OneNode({7: SIZE}, updates=True)
    one.hear(ManifestRead(1, {7: (0, 0)}))
    one.hear(came("want", YOUNG, "n3"))
    one.hear(came("want", OLD, "n2"))
    stamp = one.node.updates.owner.stamps((7,))[0]
    assert stamp.holder == "n3"
    assert stamp.wanted == (OLD, "n2")


def test_a_holder_makes_the_next_version_once_and_commits_it_when_the_owner_has_written_it() -> None:
    one = OneNode(updates=True)
    one.hear(UpdateSubmitted(5, (7,)))
    tag = one.now, "n0", 5
    back = UpdateMessage("seek", "n0", "", 1, tag, (7,), (LockFound(7, 3, 9, None, ""),))
    assert [each.kind for each in messages(one.hear(UpdateMessagesCame((back,))))] == ["want"]
    dirty = only(SendChunk, one.hear(ChunkCame(stamped(VersionStamp(3, 9, LOCK, "n0")), 1)))[0].header.stamp
    assert dirty is not None
    assert dirty.staged is not None
    assert (dirty.staged.version, dirty.staged.value, dirty.is_dirty, dirty.renews) == (4, 10, True, True)
    written = VersionStamp(3, 9, LOCK, "n0", None, dirty.staged, is_written=True)
    assert only(SwitchManifest, one.hear(ChunkCame(stamped(written), 2)))[0].updates == (tag,)


def test_a_holder_gives_a_lock_back_for_an_older_update_and_sends_its_own_to_the_winner() -> None:
    one = OneNode(updates=True)
    settle = UpdateMessage("settle", "n3", "n0", 1, YOUNG, (7, 8))
    one.hear(ChunkCame(stamped(VersionStamp(3, 9, LOCK, "n0")), 1))
    one.hear(UpdateMessagesCame((settle,)))
    effects = one.hear(ChunkCame(stamped(VersionStamp(3, 9, LOCK, "n0", wanted=(OLD, "n2"))), 2))
    sent = only(SendChunk, effects)[0].header.stamp
    assert sent is not None
    assert sent.releases
    assert [(each.kind, each.to, each.winner) for each in messages(effects)] == [("bounce", "n3", "n2")]


def test_an_update_settles_at_the_holder_with_the_highest_tag() -> None:
    one = OneNode(updates=True)
    one.hear(UpdateSubmitted(5, (7, 8)))
    found = LockFound(7, 0, 0, (1, 5, "n1"), "n1"), LockFound(8, 0, 0, (1, 9, "n1"), "n2")
    back = UpdateMessage("seek", "n0", "", 1, (one.now, "n0", 5), (7, 8), found)
    assert [(each.kind, each.to) for each in messages(one.hear(UpdateMessagesCame((back,))))] == [("settle", "n2")]


def test_a_reader_of_the_latest_waits_for_a_clean_version_that_is_late_enough() -> None:
    one = OneNode(updates=True)
    one.hear(LatestAsked(5, 7))
    back = UpdateMessage("read", "n0", "", 1, (one.now, "n0", 5), (7,), (LockFound(7, 4, 9, None, ""),))
    one.hear(UpdateMessagesCame((back,)))
    for slot, stamp in enumerate((VersionStamp(3, 8), VersionStamp(4, 9, is_dirty=True))):
        assert not only(LatestRead, one.hear(ChunkCame(stamped(stamp), slot)))
    assert only(LatestRead, one.hear(ChunkCame(stamped(VersionStamp(4, 9)), 9))) == [LatestRead(5, 7, 4, 9)]
