"""What machines tell each other of an epoch: the tables of the plan, and what was sent, are the same numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.planning.epoch_endings import CommitBy, EpochEndings, Transitions
from cumulus.cluster.planning.message_counts import messages_of_epoch
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus_lab.experiments.cluster_programs import PROGRAMS, functions_of, program_named
from cumulus_lab.experiments.cluster_rows import write_random_files
from cumulus_lab.simulation import Choices
from support.cluster_world import run_cluster
from support.tiers import one_mode_each

MODES = (Mode.EVENTUAL, Mode.FOUR_LOGS, Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.TICKS, Mode.GATED)


def messages(name: str, mode: Mode, folder: Path) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return how many messages of epochs there were in a run, by class, and how many the plan says."""
    draw, choices = random.Random(f"{name} {mode}"), Choices(sum(map(ord, name)))
    program, nodes = program_named(name), draw.choice((1, 2, 3, 5, 8))
    switches = 1 if RULES[mode].needs_one_switch else draw.choice((1, 2, 3))
    write_random_files(
        program, choices.stream("rows"), choices.stream("values"), folder / "in", most_epochs=4, most_rows=5
    )
    program, sources = match_sources_to_tables(program, sources_from([str(folder / "in")], program))
    plan: ClusterPlan = plan_cluster(program, nodes, switches, mode)
    endings = EpochEndings(draw.choice(tuple(CommitBy)), draw.choice(tuple(Transitions)))
    sent: Counter[str] = Counter()
    run_cluster(
        program,
        sources,
        folder / "out",
        nodes=nodes,
        switches=switches,
        mode=mode,
        sent=sent,
        **endings.plain(),
        functions=functions_of(name),
    )
    epochs, formula = len(committed_epochs(folder / "out")), messages_of_epoch(plan, endings)
    assert epochs
    return {kind: sent[kind] for kind in formula}, {kind: epochs * count for kind, count in formula.items()}


@pytest.mark.parametrize(("name", "mode"), one_mode_each(PROGRAMS, MODES))
def test_the_formula_is_what_is_sent(name: str, mode: Mode, tmp_path: Path) -> None:
    sent, formula = messages(name, mode, tmp_path)
    assert sent == formula
