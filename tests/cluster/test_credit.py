"""How much a switch takes in before it is committed: what nodes can do in a while, once they are behind."""

from __future__ import annotations

import random

from cumulus.cluster.clients.credit import FIRST_BYTES, GOAL_MS, LEAST_BYTES, MOST_BYTES, Credit


def epochs_of(bytes_per_s: int, seconds: int, draw: random.Random, fixed_ms: int = 100) -> tuple[list[int], int]:
    """Let a client send whenever it may, and nodes do so much, with something else to do at each commit.

    Two epochs may be open, as with a cluster's publisher.

    Returns
    -------
    list[int], int
        How many milliseconds each commit was behind the end of its epoch, and how many bytes were done in all.
    """
    credit, now = Credit(), 0
    waiting: list[tuple[int, int]] = []  # epochs that have ended: when, and their bytes
    epoch, size, done, committed = 1, 0, 0, 0
    took: list[int] = []
    busy_until = 0
    while now < 1000 * seconds:
        now += 10
        credit.tell(now)
        while not credit.is_spent and size < 2 * MOST_BYTES:
            part = draw.randrange(1, 200_000)
            credit.take(epoch, part)
            size += part
        if len(waiting) < 2 and size:
            waiting.append((now, size))
            credit.end(epoch)
            epoch, size = epoch + 1, 0
            if len(waiting) == 1:
                busy_until = now + fixed_ms + 1000 * waiting[0][1] // bytes_per_s
        if waiting and now >= busy_until:
            ended, bytes_done = waiting.pop(0)
            took.append(now - ended)
            committed += 1
            credit.commit(committed)
            done += bytes_done
            if waiting:
                busy_until = now + fixed_ms + 1000 * waiting[0][1] // bytes_per_s
    return took, done


def test_commits_stay_near_whatever_the_nodes_can_do() -> None:
    for bytes_per_s in (200_000, 5_000_000, 100_000_000):
        took, done = epochs_of(bytes_per_s, 120, random.Random(1))
        settled = took[len(took) // 2 :]
        assert max(settled) < 4 * GOAL_MS, (bytes_per_s, settled)
        assert done > 0.7 * 120 * min(bytes_per_s, 40_000_000), (bytes_per_s, done)


def test_a_long_wait_takes_credit_and_short_ones_give_it_back() -> None:
    credit = Credit()
    for epoch in range(-9, 1):
        credit.end(epoch)
        credit.commit(epoch)
    assert credit.bytes == MOST_BYTES
    credit.take(1, 10_000_000)
    credit.end(1)
    credit.take(2, 10_000_000)
    credit.tell(20 * GOAL_MS)
    credit.commit(1)
    assert (credit.bytes, credit.open_bytes, credit.is_spent) == (1_000_000, 10_000_000, True)
    credit.end(2)
    credit.commit(2)
    assert (credit.bytes, credit.open_bytes, credit.is_spent) == (2_000_000, 0, False)
    credit.take(3, 1)
    credit.end(3)
    credit.tell(60 * GOAL_MS)
    credit.commit(3)
    assert credit.bytes == LEAST_BYTES
    for epoch in range(4, 20):
        credit.end(epoch)
        credit.commit(epoch)
    assert credit.bytes == MOST_BYTES


def test_an_epoch_without_rows_says_nothing() -> None:
    """A long wait of one with none is not for what was taken in."""
    credit = Credit()
    credit.end(1)
    credit.tell(10 * GOAL_MS)
    credit.commit(1)
    assert credit.bytes == FIRST_BYTES
