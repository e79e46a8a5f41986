"""A cluster that goes on with another number of nodes leaves each epoch as the embedded host does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.resizing import open_home
from cumulus.cluster.spread import divide
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from cumulus.scalars.function_modules import functions_in
from cumulus_lab.experiments.cluster_modes import chosen_cuts
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
    cuts: tuple[tuple[str, ...], ...] = ((),),
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
        given["cuts"] = cuts[at % len(cuts)]
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


KEYED = ("joins", "NULL, texts, doubles", "self-join", "wide numbers", "rows of tables", "static table")
"""Programs whose spread maps have keys of different values."""


@pytest.mark.parametrize("name", sampled(KEYED, of=2))
@pytest.mark.parametrize("mode", [Mode.EVENTUAL, Mode.CENTRAL_SOURCE])
def test_a_home_gets_a_grid_and_another_one(name: str, mode: Mode, tmp_path: Path) -> None:
    """From nodes that have keys by their hash to two grids, if there are two kinds of keys, and a range of values."""
    program = program_named(name)
    chosen: list[tuple[tuple[str, ...], int]] = [((), 2)]
    for nodes in (4, 6, 2):
        drawn = [chosen_cuts(Choices(50 * nodes + at), program, nodes, mode, always=True) for at in range(20)]
        chosen.append((max(drawn, key=lambda cuts: (len(cuts), "@" in "".join(cuts))), nodes))
    cuts, steps = zip(*chosen, strict=True)
    assert all(cuts[1:])
    grown(name, tmp_path, mode, steps, 11, (1,) if RULES[mode].needs_one_switch else SWITCHES, cuts=cuts)


def test_a_grid_stays_as_it_is_where_its_regions_are_not_as_many_as_nodes(tmp_path: Path) -> None:
    program, notes = program_named("joins"), list[str]()
    (tmp_path / "in").mkdir()
    given: dict[str, Any] = {"mode": Mode.EVENTUAL, "switches": 1, "note": notes.append}
    key = next(f"{each.name}.{key.name}" for each in divide(program).spread.maps for key in each.keys)
    with open_home(program, (), tmp_path / "out", None, nodes=3, cuts=(f"{key}=3",), **given):
        pass
    with pytest.raises(UsageError, match="the cuts make 3 = 3 regions, and there are 5 nodes") as told:
        open_home(program, (), tmp_path / "out", None, nodes=5, **given)
    assert "other cuts" in told.value.hint
    with open_home(program, (), tmp_path / "out", None, nodes=0, **given) as home:
        assert (home.plan.nodes, home.settings.cuts, notes) == (3, (f"{key}=3",), [])
