"""Machines of which one rule is broken, to see that the checks of a simulation would find it."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.machine import Effect, Input, Machine


class BrokenRule:
    """A machine that is another one, but for a rule that a subclass breaks on the way in or out.

    Parameters
    ----------
    machine
        The machine as it should be.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Let the machine step with other inputs, or say that it asked for other effects."""
        taken = self.inputs(inputs)
        return self.effects(self.machine.step(taken)) if taken else []

    def check(self) -> None:
        """Check the machine as it is."""
        self.machine.check()

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Return what the machine is told instead."""
        return inputs

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Return what is done instead."""
        return effects


def as_it_should_be(machine: Machine) -> Machine:
    """Return the machine inside, for who looks at its state."""
    while isinstance(machine, BrokenRule):
        machine = machine.machine
    return machine
