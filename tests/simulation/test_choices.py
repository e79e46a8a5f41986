"""Choices: recorded, repeated, and 0 for the simplest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cumulus_lab.simulation import SIMPLEST, Choices, recording_of, recording_text
from cumulus_lab.simulation.choices import ChoiceStream

DRAWS = st.lists(
    st.one_of(
        st.tuples(st.just("below"), st.integers(1, 1000)),
        st.tuples(st.just("chance"), st.sampled_from([0.0, 0.01, 0.5, 1.0])),
        st.tuples(st.just("mostly_short"), st.integers(0, 10**6)),
        st.tuples(st.just("one"), st.lists(st.integers(), min_size=1)),
    )
)


def drawn(stream: ChoiceStream, draws: list[tuple[str, object]]) -> list[object]:
    return [getattr(stream, kind)(bound) for kind, bound in draws]


@given(seed=st.integers(), draws=DRAWS)
def test_a_recording_gives_the_same_choices(seed: int, draws: list[tuple[str, object]]) -> None:
    choices = Choices(seed)
    first = drawn(choices.stream("a"), draws)
    text = recording_text(choices.recording())
    again = Choices(recording=recording_of(text))
    assert drawn(again.stream("a"), draws) == first
    assert again.recording() == choices.recording()
    assert drawn(Choices(seed).stream("a"), draws) == first


@given(seed=st.integers(), draws=DRAWS)
def test_choices_stay_in_their_bounds(seed: int, draws: list[tuple[str, object]]) -> None:
    for (kind, bound), value in zip(draws, drawn(Choices(seed).stream("a"), draws), strict=True):
        match kind, bound:
            case "below", int():
                assert 0 <= value < bound
            case "mostly_short", int():
                assert 0 <= value <= bound
            case "chance", float():
                assert value is (bound == 1.0) or 0 < bound < 1
            case _:
                assert value in bound


@given(values=st.lists(st.integers(0, 100)), bound=st.integers(1, 50))
def test_a_choice_that_is_not_possible_becomes_the_nearest_and_a_missing_one_the_simplest(
    values: list[int], bound: int
) -> None:
    stream = Choices(recording={"a": values}).stream("a")
    assert [stream.below(bound) for _ in values] == [min(value, bound - 1) for value in values]
    assert stream.below(bound) == 0
    assert stream.chance(0.5) is False
    assert stream.one(["simplest", "other"]) == "simplest"


def test_streams_do_not_disturb_each_other() -> None:
    alone, beside = Choices(7), Choices(7)
    other = beside.stream("other")
    expected = [alone.stream("a").below(1000) for _ in range(50)]
    mixed = []
    for _ in range(50):
        other.below(3)
        mixed.append(beside.stream("a").below(1000))
    assert mixed == expected
    assert [beside.stream("b").below(1000) for _ in range(50)] != expected
    assert [Choices(8).stream("a").below(1000) for _ in range(50)] != expected


def test_without_a_recording_left_all_is_simplest() -> None:
    choices = Choices(recording=SIMPLEST)
    assert drawn(choices.stream("a"), [("below", 9), ("chance", 0.99), ("mostly_short", 10**6)]) == [0, False, 0]
    assert choices.recording() == {}
