"""Maps that feed each other in a circle: each committed epoch is what events, one by one, have made of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cumulus import m3
from cumulus.cluster.epoch_marks import EpochMarks
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from support.cluster_world import run_cluster
from support.paper_programs import CIRCLES, one_by_one, random_events, write_epochs
from support.tiers import examples, one_mode_each

EPOCHS = 4
MODES = tuple(mode for mode, rules in RULES.items() if rules.takes_circles)


def differing(name: str, folder: Path, seed: int, mode: Mode = Mode.EVENTUAL, cut: str = "") -> list[tuple[int, str]]:
    """Return the epochs and views of a run that are not as they would be, event after event."""
    text, draw = CIRCLES[name], random.Random(f"{name} {seed}")
    program, nodes = m3.parse(text), draw.randint(1, 4)
    cuts = tuple(f"{each.name}.{each.keys[-1].name}{cut}" for each in program.maps if each.keys)[:1] if cut else ()
    nodes = 3 if cuts else nodes
    switches = 1 if RULES[mode].needs_one_switch else 2
    parts = write_epochs(folder / "in", random_events(text, 40, draw), text, EPOCHS)
    sources = sources_from([str(folder / "in")], program)
    own = {
        Mode.EVENTUAL: [("buffer=20",), ("patience=20",)],
        Mode.FOUR_LOGS: [("bypass",), ("elide-put",), ("patience=20",)],
    }.get(mode, [])
    options = draw.choice([(), *own, ("compress",)])
    given: dict[str, Any] = {"nodes": nodes, "switches": switches, "mode": mode, "order": "switch", "cuts": cuts}
    run_cluster(program, sources, folder / "out", **given, seed=seed, options=options)
    switch_of = plan_cluster(program, nodes, switches, mode).tables.switch_of
    tables = [each.name for each in program.relations]
    ordered, found = [], []
    assert committed_epochs(folder / "out") == list(range(1, EPOCHS + 1))
    for epoch, part in enumerate(parts, 1):
        ordered += sorted(part, key=lambda event: (switch_of[event[1]], tables.index(event[1])))
        expected = one_by_one(text, ordered)
        for view in expected.views:
            rows = query(folder / "out", f'SELECT * FROM "{view}" ORDER BY ALL', epoch).to_pylist()
            if [tuple(row.values()) for row in rows] != sorted(expected.view(view).rows()):
                found.append((epoch, view))
    return found


@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize(("name", "mode"), one_mode_each(CIRCLES, MODES))
def test_each_epoch_is_what_events_have_made_one_by_one(name: str, mode: Mode, seed: int, tmp_path: Path) -> None:
    assert not differing(name, tmp_path, seed, mode)


@pytest.mark.parametrize("cut", ["=3", "@1,2"])
@pytest.mark.parametrize(("name", "mode"), one_mode_each(CIRCLES, MODES))
def test_so_it_is_in_regions(name: str, mode: Mode, cut: str, tmp_path: Path) -> None:
    for seed in range(examples(4)):
        assert not differing(name, tmp_path / str(seed), seed, mode, cut)


def test_whoever_ends_the_rounds_too_early_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quiet_at_once(marks: EpochMarks, epoch: int) -> bool:
        return True

    monkeypatch.setattr(EpochMarks, "take_quiet", quiet_at_once)
    seeds = (seed for seed in range(40) if noticed(tmp_path / str(seed), seed))
    assert next(seeds, None) is not None


def noticed(folder: Path, seed: int) -> bool:
    try:
        return bool(differing("a circle in one trigger, with a loop", folder, seed))
    except AssertionError:  # a node hears of an epoch after it was over
        return True


def test_a_round_is_over_when_nobody_has_sent_anything_since_the_one_before() -> None:
    marks = EpochMarks((0,), [{0, 1}], 0, in_rounds=True)
    assert marks.tell() == []
    assert marks.end(1, 0)
    assert marks.tell() == [(1, 0)]
    assert not marks.take_quiet(1), "nobody knows of the first round what was sent before it"
    assert marks.checkpoint(1, 0, 0, is_quiet=False)
    assert marks.tell() == [], "the other node's mark of the round is not here"
    assert marks.next_over() is None
    assert marks.checkpoint(1, 0, 1, is_quiet=False)
    marks.note_sent(1)
    assert marks.tell() == [(1, 1)]
    assert not marks.take_quiet(1)
    assert marks.checkpoint(1, 1, 0, is_quiet=False)
    assert marks.checkpoint(1, 1, 1, is_quiet=True)
    assert marks.next_over() is None, "one of the two has sent something"
    marks.note_sent(2)
    assert marks.tell() == [(1, 2)]
    assert marks.take_quiet(1), "what is of a later epoch does not count"
    assert marks.checkpoint(1, 2, 0, is_quiet=True)
    assert marks.checkpoint(1, 2, 1, is_quiet=True)
    assert marks.tell() == []
    assert marks.next_over() == 1


@pytest.mark.parametrize("mode", [mode for mode, rules in RULES.items() if not rules.takes_circles])
def test_other_modes_refuse_them_and_name_one_that_does_not(mode: Mode) -> None:
    program = m3.parse(CIRCLES["semester paper, example 3.2"])
    with pytest.raises(LayoutError, match=f"a circle, which --mode {mode} cannot do in rounds: m1 → m2 → m1") as told:
        plan_cluster(program, 2, 1, mode)
    assert "Take --mode eventual" in told.value.hint


@pytest.mark.parametrize(
    ("mode", "option"),
    [
        (Mode.FOUR_LOGS, "elide-push=correct"),
        (Mode.FOUR_LOGS, "elide-push=wait:20"),
        (Mode.EVENTUAL, "buffer=20,per-depth"),
    ],
)
def test_so_do_options_that_let_nothing_wait_or_go_by_depth(mode: Mode, option: str) -> None:
    program = m3.parse(CIRCLES["semester paper, example 3.2"])
    with pytest.raises(LayoutError, match=f"which --mode {mode} --option {option} cannot do in rounds"):
        plan_cluster(program, 2, 1, mode, options=(option,))


def test_a_circle_with_definitions_is_gated_and_then_refused_by_name() -> None:
    text = """RELATION r(a INT); MAP p[a INT](n BIGINT) = r(a); MAP q[a INT](n BIGINT) = r(a);
        VIEW v(a INT, n BIGINT) FROM q SELECT a, n; ON +r(a) { q[a] += p[a]; p[a] += q[a]; }"""
    with pytest.raises(LayoutError, match="It is made from itself, by way of other maps or not"):
        plan_cluster(m3.parse(text), 2)


def test_rounds_are_counted_as_two_at_least() -> None:
    from cumulus.cluster.planning.message_counts import messages_of_epoch

    plan = plan_cluster(m3.parse(CIRCLES["a map made from itself"]), 3, 1)
    assert messages_of_epoch(plan) & Counter(MapCheckpoint=100) == Counter(MapCheckpoint=12)
