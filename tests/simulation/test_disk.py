"""The log of a virtual disk: what is durable stays, the rest may stay, from its front."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cumulus.machine import Append
from cumulus_lab.simulation import Choices
from cumulus_lab.simulation.disk import VirtualLog

DEEDS = st.lists(st.one_of(st.just("write"), st.just("sync"), st.just("forget"), st.just("crash")), max_size=60)


@given(seed=st.integers(), deeds=DEEDS, cuts=st.lists(st.integers(0, 5), min_size=60, max_size=60))
def test_a_crash_leaves_what_is_durable_and_a_front_of_the_rest(seed: int, deeds: list[str], cuts: list[int]) -> None:
    stream = Choices(seed).stream("disk")
    log = VirtualLog()
    written: list[bytes] = []
    durable = forgotten = life = 0
    for deed, cut in zip(deeds, cuts, strict=False):
        match deed:
            case "write":
                written.append(f"{life}.{len(written) + 1}".encode())
                log.write(Append(len(written), written[-1]))
            case "sync":
                durable = log.durable = max(durable, len(written) - cut)
            case "forget":
                forgotten = max(forgotten, durable - cut)
                log.forget(max(0, durable - cut))
            case _:
                lost = log.crash(stream)
                assert 0 <= lost <= len(written) - durable
                written = written[: len(written) - lost]
                durable, life = len(written), life + 1
                told = log.recovered(stream)
                assert 1 <= told.first <= forgotten + 1
                assert list(told.records) == written[told.first - 1 :]


def test_all_ends_of_a_crash_occur() -> None:
    left, first = set(), set()
    for seed in range(100):
        log = VirtualLog()
        for number in range(1, 6):
            log.write(Append(number, b""))
        log.durable = 3
        log.forget(1)
        log.forget(2)
        stream = Choices(seed).stream("disk")
        left.add(5 - log.crash(stream))
        first.add(log.recovered(stream).first)
    assert left == {3, 4, 5}
    assert first == {2, 3}, "what is forgotten may still be there"
