"""Machines in a virtual world that a seed decides, with faults, checks, traces, and failures made small.

Owns virtual time, the network between machines, their disks and tasks, and all randomness. Knows nothing of what the
machines are about: `cumulus.machine` is all that it shares with them, and with `cumulus.transport`, which drives the
same machines in processes of their own.
"""

from cumulus_lab.simulation.agenda import Agenda
from cumulus_lab.simulation.bandwidth import BandwidthLink, ByteQueue
from cumulus_lab.simulation.broken_rules import BrokenRule, as_it_should_be
from cumulus_lab.simulation.choices import SIMPLEST, Choices, ChoiceStream, Recording, recording_of, recording_text
from cumulus_lab.simulation.disk import VirtualLog
from cumulus_lab.simulation.failure import Failure
from cumulus_lab.simulation.manifest import SimulatedManifest
from cumulus_lab.simulation.runs import SimulatedRun, repeated, simulated
from cumulus_lab.simulation.scenario import (
    FAULTS,
    BackPressure,
    Conditions,
    Factory,
    Reports,
    Scenario,
    ScenarioOf,
    StartIncarnation,
    Wire,
    faults_named,
)
from cumulus_lab.simulation.scripted_client import ScriptedClient
from cumulus_lab.simulation.shrink import Shrunk, shrunk
from cumulus_lab.simulation.world import World

__all__ = [
    "FAULTS",
    "SIMPLEST",
    "Agenda",
    "BackPressure",
    "BandwidthLink",
    "BrokenRule",
    "ByteQueue",
    "ChoiceStream",
    "Choices",
    "Conditions",
    "Factory",
    "Failure",
    "Recording",
    "Reports",
    "Scenario",
    "ScenarioOf",
    "ScriptedClient",
    "Shrunk",
    "SimulatedManifest",
    "SimulatedRun",
    "StartIncarnation",
    "VirtualLog",
    "Wire",
    "World",
    "as_it_should_be",
    "faults_named",
    "recording_of",
    "recording_text",
    "repeated",
    "shrunk",
    "simulated",
]
