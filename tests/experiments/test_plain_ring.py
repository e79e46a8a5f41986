"""The experiments of the ring beside a simulation that shares no code with them, in set-ups that no paper has."""

from __future__ import annotations

import pytest

from cumulus_lab.experiments.ring.rows import RingRow, ring_row
from cumulus_lab.experiments.ring.set_up import EvenAccess, RingSetUp
from support.plain_ring import PlainRing, PlainSetUp

TOLERANCE = 0.12


def row_of(plain: PlainSetUp, broken: str = "") -> RingRow:
    """Run the same with the product's nodes; seeds mean other chunks and other queries there."""
    (smallest, largest), (fewest, most) = plain.chunk_mb, plain.query_chunks
    shortest, longest = plain.work
    set_up = RingSetUp(
        nodes=plain.nodes,
        chunks=plain.chunks,
        smallest_mb=smallest,
        largest_mb=largest,
        total_gb=plain.total_mb / 1000,
        queue_mb=plain.queue_mb,
        link_gbs=plain.link_mbs / 1000,
        latency_us=round(plain.latency * 1e6),
        access=EvenAccess(plain.rate, plain.seconds),
        most_seconds=plain.at,
        at=plain.at,
        fewest_chunks=fewest,
        most_chunks=most,
        shortest_ms=round(1000 * shortest),
        longest_ms=round(1000 * longest),
        pins="parallel" if plain.is_parallel else "sequential",
        loit=plain.loit,
        resend_s=plain.resend,
        load_all_ms=round(1000 * plain.load_all),
        adapt_ms=round(1000 * plain.adapt),
        seed=plain.seed,
    )
    return ring_row(set_up, broken)


SMALL = PlainSetUp(
    nodes=3, chunks=100, chunk_mb=(4, 6), total_mb=0, queue_mb=50, rate=25, work=(0.01, 0.05), loit=(0.6,)
)

SET_UPS = {
    "a slow link: no chunk is lost, though a turn takes far longer than resend": PlainSetUp(
        nodes=6, chunks=400, chunk_mb=(2, 6), total_mb=0, queue_mb=80, link_mbs=100, rate=30, loit=(0.7,), seed=7
    ),
    "many nodes with small queues": PlainSetUp(
        nodes=20, chunks=500, total_mb=0, queue_mb=60, link_mbs=600, rate=12, loit=(0.4,), load_all=0.1, seed=8
    ),
    "small chunks, asked about late": PlainSetUp(
        nodes=8,
        chunks=1500,
        chunk_mb=(0.5, 3),
        total_mb=0,
        queue_mb=100,
        link_mbs=80,
        rate=25,
        loit=(1.1,),
        at=60,
        seed=9,
    ),
    "long queries over a fast link": PlainSetUp(
        nodes=12,
        chunks=600,
        total_mb=5_000,
        queue_mb=100,
        link_mbs=2_500,
        rate=30,
        query_chunks=(2, 8),
        loit=(0.8,),
        resend=5,
        seed=10,
    ),
    "levels that change, and all pins at once": PlainSetUp(
        nodes=7,
        chunks=350,
        total_mb=2_500,
        queue_mb=70,
        link_mbs=400,
        rate=20,
        loit=(0.2, 0.5, 0.9),
        is_parallel=True,
        seed=11,
    ),
}


def test_a_small_ring_finishes_as_many_queries() -> None:
    wanted = PlainRing(SMALL).run()
    assert row_of(SMALL).finished_at == pytest.approx(wanted, rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", SET_UPS)
def test_a_ring_that_nobody_has_tried_finishes_as_many_queries(name: str) -> None:
    wanted, row = PlainRing(SET_UPS[name]).run(), row_of(SET_UPS[name])
    assert (row.finished_at, row.lost) == (pytest.approx(wanted, rel=TOLERANCE), 0)


@pytest.mark.slow
def test_a_ring_with_a_broken_rule_does_not() -> None:
    plain = SET_UPS["many nodes with small queues"]
    wanted = PlainRing(plain).run()
    for broken in ("figure-6", "no-resend"):
        assert row_of(plain, broken).finished_at != pytest.approx(wanted, rel=TOLERANCE), broken
