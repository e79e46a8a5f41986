"""Many seeds of a scenario, in several processes, and a summary that does not depend on how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import TypeAlias

from cumulus_lab.simulation import Conditions, Failure, ScenarioOf, recording_text, shrunk, simulated

ReplayCommand: TypeAlias = Callable[[int], str]
"""The command that runs a seed again, for who reads of its failure."""

BLOCK = 20
"""So many seeds are run by a process, where there are several, before it says what has come of them."""


@dataclass(frozen=True, slots=True)
class SeedFailure:
    """A seed that has failed."""

    seed: int
    failure: Failure


@dataclass(frozen=True)
class SeedSummary:
    """What has come of many seeds.

    Parameters
    ----------
    seeds
        How many were run.
    failures
        The first that have failed, by seed.
    failed
        How many have failed.
    counts
        How often each thing has happened, in all of them.
    steps, messages, bytes, milliseconds
        Of all of them; milliseconds are of virtual time.
    missing
        What should have happened at least once, and never did.
    """

    seeds: int = 0
    failures: tuple[SeedFailure, ...] = ()
    failed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    messages: int = 0
    bytes: int = 0
    milliseconds: float = 0.0
    missing: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether no seed has failed, and all has happened that should have."""
        return not self.failed and not self.missing

    def with_block(self, block: SeedSummary, most: int) -> SeedSummary:
        """Return this and what has come of more seeds, with at most so many failures."""
        return SeedSummary(
            seeds=self.seeds + block.seeds,
            failures=(*self.failures, *block.failures)[:most],
            failed=self.failed + block.failed,
            counts=Counter(self.counts) + Counter(block.counts),
            steps=self.steps + block.steps,
            messages=self.messages + block.messages,
            bytes=self.bytes + block.bytes,
            milliseconds=round(self.milliseconds + block.milliseconds, 3),
        )

    def lines(self, replay: ReplayCommand) -> list[str]:
        """Return the summary as text, with a command for each failure that is listed."""
        found = [
            f"{self.seeds - self.failed:,} of {self.seeds:,} seeds clean: {self.steps:,} steps, "
            f"{self.messages:,} messages of {self.bytes:,} bytes, {self.milliseconds / 1000:,.0f} s of virtual time"
        ]
        width = max(map(len, self.counts), default=0)
        found += [f"  {name:<{width}} {count:>12,}" for name, count in sorted(self.counts.items())]
        found += [f"  {name:<{width}} {'never':>12}" for name in self.missing]
        for each in self.failures:
            found += [f"seed {each.seed}: {each.failure}", f"  {replay(each.seed)}"]
        return found


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds to run: `count` of them from `first` on.

    Parameters
    ----------
    jobs
        In how many processes; with more than one the scenario must be a function that can be imported.
    most_failures
        How many failures are listed; with `stops` no more seeds are run when there are so many.
    needed
        What must happen in at least one of them.
    """

    first: int = 0
    count: int = 100
    jobs: int = 1
    most_failures: int = 5
    stops: bool = False
    needed: Sequence[str] = ()


def run_seeds(
    scenario_of: ScenarioOf,
    seeds: Seeds,
    conditions: Conditions,
    on_block: Callable[[SeedSummary], None] = lambda summary: None,
) -> SeedSummary:
    """Run many seeds.

    Parameters
    ----------
    scenario_of
        Makes the scenario of a seed from its choices.
    seeds
        Which ones, and in how many processes.
    conditions
        Faults, delays and limits, the same for all.
    on_block
        Is called with what has come so far, for who wants to show progress.
    """
    total = SeedSummary()
    for block in _blocks(scenario_of, seeds, conditions):
        total = total.with_block(block, seeds.most_failures)
        on_block(total)
        if seeds.stops and total.failed >= seeds.most_failures:
            break
    return replace(total, missing=tuple(name for name in seeds.needed if not total.counts.get(name)))


def _blocks(scenario_of: ScenarioOf, seeds: Seeds, conditions: Conditions) -> Iterator[SeedSummary]:
    """Yield what has come of each block of seeds, in their order."""
    last = seeds.first + seeds.count
    size = BLOCK if seeds.jobs > 1 else 1
    blocks = [range(first, min(first + size, last)) for first in range(seeds.first, last, size)]
    run = partial(_block, scenario_of, conditions)
    if seeds.jobs == 1:
        yield from map(run, blocks)
        return
    # A process that was forked would have the locks of libraries' threads, and not the threads.
    with ProcessPoolExecutor(seeds.jobs, get_context("spawn")) as pool:
        results = [pool.submit(run, block) for block in blocks]
        try:
            for each in results:
                yield each.result()
        finally:
            for each in results:
                each.cancel()


def _block(scenario_of: ScenarioOf, conditions: Conditions, seeds: range) -> SeedSummary:
    counts: Counter[str] = Counter()
    runs = [simulated(scenario_of, seed, conditions) for seed in seeds]
    for run in runs:
        counts.update(run.counts)
    failures = tuple(SeedFailure(run.seed, run.failure) for run in runs if run.failure is not None)
    return SeedSummary(
        seeds=len(runs),
        failures=failures,
        failed=len(failures),
        counts=counts,
        steps=sum(run.steps for run in runs),
        messages=sum(run.messages for run in runs),
        bytes=sum(run.bytes for run in runs),
        milliseconds=round(sum(run.milliseconds for run in runs), 3),
    )


def failure_lines(scenario_of: ScenarioOf, seed: int, conditions: Conditions, attempts: int = 1000) -> list[str]:
    """Return what is to be read of a seed that fails: the failure, the small run that fails alike, and its choices.

    Parameters
    ----------
    attempts
        How many runs may be spent on making it small.
    """
    run = simulated(scenario_of, seed, conditions)
    if run.failure is None:
        return [f"seed {seed} is clean: {run.steps:,} steps"]
    small = shrunk(scenario_of, run, conditions, attempts)
    failure = small.run.failure
    assert failure is not None, "a smaller run fails alike"
    return [
        f"seed {seed}: {run.failure}",
        f"in {small.run.steps:,} of {run.steps:,} steps, after {small.attempts:,} attempts to make it smaller:",
        *small.run.trace,
        *failure.traceback.splitlines(),
        recording_text(small.run.choices),
    ]
