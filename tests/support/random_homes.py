"""Counts of tables and homes of statements by chance."""

from __future__ import annotations

import random

from cumulus.cluster.node_programs.program import Homes
from cumulus.cluster.placement.segments import flows
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program


def random_statistics(rng: random.Random, program: Program) -> Statistics:
    """Counts of some tables: other counts, other homes."""
    tables = [relation for relation in program.relations if rng.random() < 0.5]
    return Statistics({relation.name: rng.choice([3, 1000, 10**6]) for relation in tables})


def random_homes(rng: random.Random, program: Program) -> Homes:
    """Homes that nobody would choose: any column for any statement."""
    found = {}
    for flow, places in flows(program).items():
        column = rng.choice([*program.relation(flow.relation).column_names, None])
        found |= dict.fromkeys(places, column)
    return found
