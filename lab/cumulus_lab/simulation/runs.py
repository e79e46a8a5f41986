"""A run of a scenario, by a seed or by recorded choices, and what has come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus_lab.simulation.agenda import MILLISECOND
from cumulus_lab.simulation.checks import FailedRunError
from cumulus_lab.simulation.choices import Choices, Recording
from cumulus_lab.simulation.failure import Failure
from cumulus_lab.simulation.scenario import Conditions, ScenarioOf
from cumulus_lab.simulation.trace import Trace
from cumulus_lab.simulation.world import World


@dataclass(frozen=True)
class SimulatedRun:
    """What has come of a run; equal for equal seeds and options, in any process.

    Parameters
    ----------
    seed
        What decided it, if it was no recording.
    failure
        What is wrong, if anything.
    counts
        How often each thing has happened.
    steps, messages, bytes
        How many steps all machines made, how many messages they sent and how large these were.
    milliseconds
        Virtual time.
    choices
        What was chosen; `repeated` makes the same run of it.
    trace
        The lines of the trace, if one was asked for.
    """

    seed: int
    failure: Failure | None
    counts: Mapping[str, int]
    steps: int
    messages: int
    bytes: int
    milliseconds: float
    choices: Recording
    trace: tuple[str, ...] = ()


def simulated(scenario_of: ScenarioOf, seed: int, conditions: Conditions, *, traced: bool = False) -> SimulatedRun:
    """Run what a seed says.

    Parameters
    ----------
    scenario_of
        Makes the scenario from choices.
    seed
        Decides the scenario and the run.
    conditions
        Faults, delays and limits.
    traced
        Whether to write down what happens.
    """
    return _run(scenario_of, Choices(seed), conditions, traced)


def repeated(
    scenario_of: ScenarioOf, choices: Recording, conditions: Conditions, *, traced: bool = False
) -> SimulatedRun:
    """Run what recorded choices say: the same run, if they are of a run of this scenario under these conditions."""
    return _run(scenario_of, Choices(recording=choices), conditions, traced)


def _run(scenario_of: ScenarioOf, choices: Choices, conditions: Conditions, traced: bool) -> SimulatedRun:
    try:
        scenario = scenario_of(choices)
    except FailedRunError as error:  # in what has to be before
        return SimulatedRun(choices.seed, error.failure, {}, 0, 0, 0, 0.0, choices.recording())
    trace = Trace(scenario.wire.text) if traced else None
    world = World(scenario, conditions, choices, trace)
    failure: Failure | None = None
    try:
        world.run()
        for phase in scenario.phases:
            phase(world)
            world.run()
    except FailedRunError as error:
        failure = error.failure
    return SimulatedRun(
        seed=choices.seed,
        failure=failure,
        counts={name: count for name, count in sorted(world.counts.items()) if count},
        steps=world.steps,
        messages=world.network.messages,
        bytes=world.network.bytes,
        milliseconds=world.agenda.now / MILLISECOND,
        choices=choices.recording(),
        trace=tuple(trace.lines) if trace is not None else (),
    )
