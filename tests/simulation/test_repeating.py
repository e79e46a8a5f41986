"""A seed and options give the same run, byte for byte, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cumulus_lab.simulation import FAULTS, Conditions, repeated, simulated
from support.ledger_machines import ledger

CONDITIONS = Conditions(faults={**FAULTS, "crash": 1 / 30})

RUNS = """
import hashlib
from simulation.test_repeating import text_of_runs
print(hashlib.sha256(text_of_runs(range(20)).encode()).hexdigest())
"""


def text_of_runs(seeds: range) -> str:
    results = (simulated(ledger, seed, CONDITIONS, traced=True) for seed in seeds)
    return "\n".join(f"{result}\n{''.join(result.trace)}" for result in results)


def digest(hash_seed: str) -> str:
    # The tests' own folder is not on the path of a process of its own.
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    command = [sys.executable, "-c", RUNS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_another_process_gives_the_same_runs() -> None:
    digests = {digest("1"), digest("77")}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@pytest.mark.parametrize("seed", range(10))
def test_recorded_choices_give_the_same_run(seed: int) -> None:
    first = simulated(ledger, seed, CONDITIONS, traced=True)
    again = repeated(ledger, first.choices, CONDITIONS, traced=True)
    assert again.trace == first.trace
    assert again.choices == first.choices


def test_seeds_differ_and_a_trace_changes_nothing() -> None:
    traces = {simulated(ledger, seed, CONDITIONS, traced=True).trace for seed in range(10)}
    assert len(traces) == 10
    plain, traced = simulated(ledger, 3, CONDITIONS), simulated(ledger, 3, CONDITIONS, traced=True)
    assert (plain.steps, plain.choices, plain.counts) == (traced.steps, traced.choices, traced.counts)
