"""Versions: their order is that of epochs, and of each switch; they end with an error and never begin anew."""

from __future__ import annotations

import random

import pytest

from cumulus.cluster.versions import (
    MOST_EPOCHS,
    MOST_SWITCHES,
    MOST_TICKS,
    Numbering,
    VersionOrder,
    first_version,
    last_version,
    pack,
    unpack,
)
from cumulus.errors import UsageError

ORDERS = list(VersionOrder)


def test_every_version_is_a_bigint():
    assert first_version(0) == 0
    assert last_version(MOST_EPOCHS - 1) == (1 << 63) - 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(20))
def test_versions_of_a_switch_grow(order, seed):
    rng = random.Random(seed)
    numbering, epoch, last = Numbering(order, rng.randrange(MOST_SWITCHES)), 0, -1
    given = []
    for _ in range(300):
        epoch += rng.random() < 0.1
        count = rng.choice([1, 1, 5, 16384])
        first = numbering.next(epoch, rng.randrange(50), count)
        assert last < first
        last = first + count - 1
        assert unpack(first)[0] == unpack(last)[0] == epoch
        given.append(first)
    assert given == sorted(given)


@pytest.mark.parametrize("order", ORDERS)
def test_no_two_switches_share_a_version(order):
    given = [
        first + place
        for switch in range(4)
        for numbering in [Numbering(order, switch)]
        for tick in range(3)
        for first in [numbering.next(1, tick, 20)]
        for place in range(20)
    ]
    assert len(set(given)) == len(given)


def test_the_clock_decides_before_the_switch():
    early, late = Numbering(VersionOrder.CLOCK, 1), Numbering(VersionOrder.CLOCK, 0)
    assert early.next(1, 3) < late.next(1, 4)
    early, late = Numbering(VersionOrder.SWITCH, 1), Numbering(VersionOrder.SWITCH, 0)
    assert early.next(1, 3) > late.next(1, 4)


def test_a_clock_that_goes_back_stands_still_and_a_full_tick_runs_ahead():
    numbering = Numbering(VersionOrder.CLOCK, 0)
    first = numbering.next(1, 7)
    assert numbering.next(1, 2) == first + 1
    assert numbering.next(1, 7, numbering.most) == pack(1, 8 << 21)
    assert numbering.next(1, 7) == pack(1, 9 << 21)
    assert numbering.next(2, 0) == pack(2, 0)


def test_ranges_end_with_a_way_out():
    numbering = Numbering(VersionOrder.CLOCK, 0)
    with pytest.raises(UsageError, match="16385 versions at once, where 16384 are the most"):
        numbering.next(1, 0, 16385)
    last = numbering.next(1, MOST_TICKS - 1, 16384)
    for _ in range(2):
        with pytest.raises(UsageError, match="epoch 1 has no version left for 1 more on switch 0"):
            numbering.next(1, 0)
    assert last < numbering.next(2, 0)
    assert numbering.next(MOST_EPOCHS + 1, 0) == first_version(1)  # epochs have no end
    numbering = Numbering(VersionOrder.SWITCH, 127)
    numbering.next(1, 0, numbering.most)
    with pytest.raises(UsageError, match="no version left"):
        numbering.next(1, 0)
    with pytest.raises(UsageError, match="there is no switch 128"):
        Numbering(VersionOrder.CLOCK, 128)
