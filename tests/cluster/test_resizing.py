"""A cluster that goes on with another number of nodes leaves each epoch as the embedded host does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.resizing import open_home
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus.scalars.function_modules import functions_in
from cumulus_lab.experiments.cluster_programs import PROGRAMS, functions_of, program_named
from cumulus_lab.experiments.cluster_rows import write_random_files
from cumulus_lab.experiments.equal_outputs import difference
from cumulus_lab.simulation import Choices
from support.cluster_world import run_cluster
from support.tiers import one_mode_each, sampled

STEPS = ((2, 4), (3, 1), (1, 3), (5, 2))
OTHER_MODES = (Mode.GATED, Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.FOUR_LOGS, Mode.TICKS)
SWITCHES = (1, 3, 2)


def grown(
    name: str,
    folder: Path,
    mode: Mode,
    steps: tuple[int, ...],
    seed: int,
    switches: tuple[int, ...] = (2,),
    **settings: Any,
) -> None:
    """Read random files, so many of them with each number of nodes, and compare with the embedded host."""
    program, choices = program_named(name), Choices(seed)
    write_random_files(
        program, choices.stream("files"), choices.stream("extreme values"), folder / "in", most_epochs=6, most_rows=6
    )
    _, sources = match_sources_to_tables(program, sources_from([str(folder / "in")], program))
    out, functions = folder / "out", functions_of(name)
    given: dict[str, Any] = {"functions": functions, "mode": mode, **settings}
    notes: list[str] = []
    for at, nodes in enumerate(steps):
        given["switches"] = switches[at % len(switches)]
        with open_home(program, sources, out, None, nodes=nodes, note=notes.append, **given) as home:
            assert home.settings.layout == at
        last = 0 if at + 1 == len(steps) else 2 * (at + 1)
        run_cluster(program, sources, out, nodes=nodes, last=last, seed=seed, **given)
    assert len(notes) == len(steps) - 1, notes
    kept = read_settings(out / "checkpoint")
    assert kept is not None
    there = {path.name for path in (out / "checkpoint").iterdir() if path.is_dir()}
    assert there == {"publisher", f"layout{len(steps) - 1}"}, "what nobody reads is removed"
    made = partial(make_engine, "interpreter")
    with EmbeddedRun(program, sources, folder / "judged", make_engine=made, functions=functions_in(functions)) as judge:
        for _ in judge.steps():
            pass
    found = difference(folder / "judged", out)
    assert not found, found
    assert committed_epochs(out) == committed_epochs(folder / "judged")


@pytest.mark.parametrize("name", sampled(PROGRAMS, of=8))
def test_every_program_goes_on_with_more_and_with_fewer_nodes(name: str, tmp_path: Path) -> None:
    for seed, steps in enumerate(STEPS):
        grown(name, tmp_path / str(seed), Mode.EVENTUAL, steps, seed, SWITCHES[seed % 3 :])


@pytest.mark.parametrize(("name", "mode"), one_mode_each(PROGRAMS, OTHER_MODES, of=4))
def test_every_mode_does(name: str, mode: Mode, tmp_path: Path) -> None:
    grown(name, tmp_path, mode, (2, 5, 1), 7, (1,) if RULES[mode].needs_one_switch else SWITCHES)
