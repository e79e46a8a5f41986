"""`cumulus simulate`: random runs of clusters and rings in a virtual world, with faults, each checked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

import typer

from cumulus.cluster.planning.central_options import ARITY_HELP, DISPATCH_HELP, GC_HELP, central_options
from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.cluster.planning.central_options import CentralOptions
    from cumulus_lab.experiments import Seeds, SeedSummary
    from cumulus_lab.simulation import Conditions, ScenarioOf

simulate = typer.Typer(
    name="simulate", help="Random runs with faults in a virtual world, each checked.", no_args_is_help=True
)
ALL_FAULTS = "crash,partition,slow,skew"
ALL_RING_FAULTS = "drop,duplicate,delay,crash,slow,partition"
MOST_TO_CATCH = 200
"""A broken rule must be caught within so many seeds; one of a ring within as many as in a large run."""
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
    mode: str = typer.Option("", help="The mode of all of them; '' for one by the seed."),
    option: list[str] = typer.Option(
        [], "--option", help="What the mode does otherwise; some by the seed, if not given."
    ),
    dispatch: str = typer.Option("", help=f"{DISPATCH_HELP} By the seed, as --gc, if none of both is given."),
    arity: int | None = typer.Option(None, help=ARITY_HELP),
    gc: str = typer.Option("", help=GC_HELP),
    commit: str = typer.Option("", help="Who commits: publisher or switches; '' for one by the seed."),
    transitions: str = typer.Option("", help="Of switches: aligned or staggered; '' for some by the seed."),
    hosts: bool = typer.Option(False, "--hosts", help="All of them on several hosts, with standbys."),
    grown: bool = typer.Option(False, "--grown", help="All that can have had other nodes and switches before have."),
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
    from cumulus.cluster.mode import RULES, Mode
    from cumulus.cluster.planning.epoch_endings import epoch_endings
    from cumulus.cluster.planning.mode_options import options_of
    from cumulus_lab.experiments import Seeds, failure_lines
    from cumulus_lab.experiments.cluster_breaks import BREAKS
    from cumulus_lab.experiments.cluster_counts import NEEDED
    from cumulus_lab.experiments.cluster_seeds import cluster_case, cluster_conditions
    from cumulus_lab.simulation import FAULTS, simulated

    if trace and seed < 0:
        raise UsageError("--trace needs a run", hint="Say which one: --seed 7 --trace.")
    names = _known([each.strip() for each in faults.split(",") if each.strip()], FAULTS, "fault")
    _known([broken] if broken else [], BREAKS, "rule to break")
    conditions = cluster_conditions(names)
    _known([mode] if mode else [], list(Mode), "mode")
    one = Mode(mode) if mode else None
    if one and RULES[one].needs_one_switch and switches > 1:
        raise UsageError(f"--mode {mode} has one switch", hint="Leave out --switches.")
    options_of(one or Mode.EVENTUAL, option)
    if hosts and grown:
        raise UsageError("--hosts and --grown: a simulated cluster grows beside its home", hint="Leave one out.")
    if option and one is None:
        raise UsageError("--option is of a mode", hint="Say which one: --mode eventual.")
    central = _central(dispatch, arity, gc, mode)
    shaped = partial(cluster_case, broken=broken, nodes=nodes, switches=switches, mode=one, central=central)
    endings = {name: text for name, text in (("commit", commit), ("transitions", transitions)) if text}
    epoch_endings(**endings)
    shaped = partial(shaped, endings=endings, is_grown=grown)
    case: ScenarioOf = partial(shaped, has_hosts=True if hosts else None, options=tuple(option) or None)
    if seed >= 0:
        if trace:
            print("\n".join(simulated(case, seed, conditions, traced=True).trace))
        _tell_seed(failure_lines(case, seed, conditions, attempts))
        return
    again_by: dict[str, object] = {"--nodes": nodes or "", "--switches": switches or "", "--mode": mode}
    again_by |= {"--option": option or "", "--dispatch": dispatch, "--arity": arity or "", "--gc": gc}
    again_by |= {"--commit": commit, "--transitions": transitions, "--hosts": hosts or "", "--grown": grown or ""}
    again = partial(_replay, "cluster", {**again_by, "--faults": faults, "--break": broken}, ALL_FAULTS)
    is_all = not any((nodes, switches, mode, hosts, grown, endings)) and set(names) == set(FAULTS)
    is_large = seeds >= LARGE_RUN and is_all
    chosen = Seeds(first, seeds, jobs, needed=NEEDED if is_large else ())
    if broken:
        chosen = Seeds(first, MOST_TO_CATCH, jobs, most_failures=1, stops=True)
    _run(case, chosen, conditions, again, broken, as_json)


def _central(dispatch: str, arity: int | None, gc: str, mode: str) -> CentralOptions | None:
    """Return how blocks reach nodes, and when these fold deltas; None to let seeds say."""
    from cumulus.cluster.mode import Mode

    if not dispatch and arity is None and not gc:
        return None
    found = central_options(dispatch, arity, gc)
    if not mode:
        raise UsageError("--dispatch, --arity and --gc are of a mode", hint=f"Give --mode {Mode.CENTRAL_TARGET}.")
    found.require_mode(Mode(mode))
    return found


@simulate.command("ring")
def simulate_ring(
    seeds: int = typer.Option(100, min=1, help="How many runs."),
    first: int = typer.Option(0, min=0, help="The seed of the first one."),
    jobs: int = typer.Option(1, min=1, help="In how many processes."),
    nodes: int = typer.Option(0, min=0, help="How many nodes; 0 for some of 2 to 8, by the seed."),
    faults: str = typer.Option(ALL_RING_FAULTS, help="Which may happen, with commas between; '' for none."),
    broken: str = typer.Option("", "--break", help="Break a rule, to see that it is caught within 500 seeds."),
    policy: list[str] = typer.Option(
        [],
        help="What all nodes do otherwise, repeatable: request-flow, forwarding, inner-ring, relevance, nomads, "
        "pulsation, updates, one of eager and lazy, and one of lru, lfu, pix, lix.",
    ),
    seed: int = typer.Option(-1, min=-1, help="Run this seed alone; if it fails, show a small run that fails alike."),
    attempts: int = typer.Option(100, min=0, help="Of --seed: how many runs may be spent on making a failure small."),
    trace: bool = typer.Option(False, "--trace", help="Of --seed: print all that happens."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Run rings of random chunks and queries, with faults; each query must get its chunks, and nothing be left.

    Exit code 1 if a seed fails, with a command that runs it again; with --break if none does.
    Example: cumulus simulate ring --seeds 500
    """
    from cumulus_lab.experiments import Seeds, failure_lines
    from cumulus_lab.experiments.ring_seeds.breaks import RING_BREAKS
    from cumulus_lab.experiments.ring_seeds.case import POLICIES, RING_FAULTS, RING_NEEDED, ring_case, ring_conditions
    from cumulus_lab.simulation import simulated

    if trace and seed < 0:
        raise UsageError("--trace needs a run", hint="Say which one: --seed 7 --trace.")
    names = _known([each.strip() for each in faults.split(",") if each.strip()], RING_FAULTS, "fault")
    _known([broken] if broken else [], RING_BREAKS, "rule to break")
    _known(policy, POLICIES, "policy")
    conditions = ring_conditions(names)
    case: ScenarioOf = partial(ring_case, faults=tuple(names), broken=broken, nodes=nodes, policies=policy)
    if seed >= 0:
        if trace:
            print("\n".join(simulated(case, seed, conditions, traced=True).trace))
        _tell_seed(failure_lines(case, seed, conditions, attempts))
        return
    options = {"--nodes": nodes or "", "--faults": faults, "--break": broken, "--policy": policy}
    again = partial(_replay, "ring", options, ALL_RING_FAULTS)
    is_large = seeds >= LARGE_RUN and set(names) == set(RING_FAULTS) and not nodes
    chosen = Seeds(first, seeds, jobs, needed=RING_NEEDED if is_large else ())
    if broken:
        chosen = Seeds(first, LARGE_RUN, jobs, most_failures=1, stops=True)
    _run(case, chosen, conditions, again, broken, as_json)


def _run(
    case: ScenarioOf, chosen: Seeds, conditions: Conditions, again: Callable[[int], str], broken: str, as_json: bool
) -> None:
    """Run seeds, and tell what has come of them; exit with 1 if that is not as it should be."""
    from cumulus_lab.experiments import run_seeds

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


def _replay(what: str, options: Mapping[str, object], all_faults: str, seed: int) -> str:
    """Return the command that runs a seed again."""
    words = ["cumulus", "simulate", what, "--seed", str(seed)]
    for option, value in options.items():
        if value != (all_faults if option == "--faults" else ""):
            values = value if isinstance(value, list) else [value]
            words += [option] if value is True else [word for each in values for word in (option, str(each))]
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
