"""`cumulus simulate`: random runs of a cluster in a virtual world, with faults, each checked against one process."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

import typer

from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.experiments import SeedSummary
    from cumulus.simulation import ScenarioOf

simulate = typer.Typer(
    name="simulate", help="Random runs with faults in a virtual world, each checked.", no_args_is_help=True
)
ALL_FAULTS = "crash,partition,slow,skew"
MOST_TO_CATCH = 200
"""A broken rule must be caught within so many seeds."""
LARGE_RUN = 500
"""In a run of so many seeds with all faults, everything must happen that matters."""


@simulate.callback()
def _group() -> None:
    """Random runs with faults in a virtual world, each checked."""


@simulate.command("cluster")
def simulate_cluster(
    seeds: int = typer.Option(100, min=1, help="How many runs."),
    first: int = typer.Option(0, min=0, help="The seed of the first one."),
    jobs: int = typer.Option(1, min=1, help="In how many processes."),
    nodes: int = typer.Option(0, min=0, help="How many nodes; 0 for some of 1 to 8, by the seed."),
    switches: int = typer.Option(0, min=0, help="How many switches; 0 for some of 1 to 4, by the seed."),
    faults: str = typer.Option(ALL_FAULTS, help="Which may happen, with commas between; '' for none."),
    broken: str = typer.Option("", "--break", help="Break a rule, to see that it is caught within 200 seeds."),
    seed: int = typer.Option(-1, min=-1, help="Run this seed alone; if it fails, show a small run that fails alike."),
    attempts: int = typer.Option(100, min=0, help="Of --seed: how many runs may be spent on making a failure small."),
    trace: bool = typer.Option(False, "--trace", help="Of --seed: print all that happens."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Run clusters over random programs and files, with faults; each epoch must be as the embedded host leaves it.

    Exit code 1 if a seed fails, with a command that runs it again; with --break if none does.
    Example: cumulus simulate cluster --seeds 100
    """
    from cumulus.experiments import Seeds, failure_lines, run_seeds
    from cumulus.experiments.cluster_breaks import BREAKS
    from cumulus.experiments.cluster_counts import NEEDED
    from cumulus.experiments.cluster_seeds import cluster_case, cluster_conditions
    from cumulus.simulation import FAULTS, simulated

    if trace and seed < 0:
        raise UsageError("--trace needs a run", hint="Say which one: --seed 7 --trace.")
    names = _known([each.strip() for each in faults.split(",") if each.strip()], FAULTS, "fault")
    _known([broken] if broken else [], BREAKS, "rule to break")
    conditions = cluster_conditions(names)
    case: ScenarioOf = partial(cluster_case, broken=broken, nodes=nodes, switches=switches)
    if seed >= 0:
        if trace:
            print("\n".join(simulated(case, seed, conditions, traced=True).trace))
        _tell_seed(failure_lines(case, seed, conditions, attempts))
        return
    again = partial(_replay, nodes, switches, faults, broken)
    if broken:
        chosen = Seeds(first, MOST_TO_CATCH, jobs, most_failures=1, stops=True)
    else:
        is_large = seeds >= LARGE_RUN and set(names) == set(FAULTS) and not nodes and not switches
        chosen = Seeds(first, seeds, jobs, needed=NEEDED if is_large else ())
    summary = run_seeds(case, chosen, conditions)
    _tell(summary, again, as_json)
    if broken:
        _tell_break(summary, broken, as_json)
    elif not summary.is_clean:
        raise typer.Exit(1)


def _known(names: Sequence[str], known: Collection[str], what: str) -> Sequence[str]:
    """Return names; UsageError for one that is not known."""
    for name in names:
        if name not in known:
            raise UsageError(f"there is no {what} {name!r}", hint=f"There are: {', '.join(known)}.")
    return names


def _replay(nodes: int, switches: int, faults: str, broken: str, seed: int) -> str:
    """Return the command that runs a seed again."""
    words = ["cumulus", "simulate", "cluster", "--seed", str(seed)]
    words += ["--nodes", str(nodes)] if nodes else []
    words += ["--switches", str(switches)] if switches else []
    words += ["--faults", faults] if faults != ALL_FAULTS else []
    words += ["--break", broken] if broken else []
    return shlex.join(words)


def _tell(summary: SeedSummary, again: Callable[[int], str], as_json: bool) -> None:
    if not as_json:
        print("\n".join(summary.lines(again)))
        return
    failures = [
        {"seed": each.seed, "failure": str(each.failure), "replay": again(each.seed)} for each in summary.failures
    ]
    values = {each.name: getattr(summary, each.name) for each in fields(summary)}
    found = {**values, "counts": dict(sorted(summary.counts.items())), "failures": failures}
    print(json.dumps(found, indent=2))


def _tell_break(summary: SeedSummary, broken: str, as_json: bool) -> None:
    """Say at which seed a broken rule was caught; exit with 1 if at none."""
    if not summary.failures:
        if not as_json:
            print(f"{broken!r} was not caught in {summary.seeds} seeds")
        raise typer.Exit(1)
    if not as_json:
        print(f"{broken!r} was caught at seed {summary.failures[0].seed}")


def _tell_seed(lines: Sequence[str]) -> None:
    """Print what is to be read of one seed; exit with 1 if it fails."""
    print("\n".join(lines))
    if len(lines) > 1:
        raise typer.Exit(1)
