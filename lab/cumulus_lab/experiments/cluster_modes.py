"""Which mode a simulated cluster has, and with which options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.slots import SLOTS, SlotTable
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions, central_options
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.planning.epoch_endings import CommitBy, EpochEndings, Transitions
from cumulus.cluster.planning.mode_options import OPTIONS, options_of
from cumulus.cluster.spread import divide
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus_lab.experiments.cluster_programs import program_named
from cumulus_lab.simulation import Choices, ChoiceStream

Runs: TypeAlias = tuple[tuple[int, int], ...]

CENTRAL = 1 / 3
"""The share of clusters with one switch among those that spread maps."""
OPTION_TEXTS = (
    *("bypass", "buffer=20", "compress", "elide-push=correct"),
    *(
        "elide-put",
        "elide-fetch",
        "elide-push=wait:20",
        "buffer=20,per-depth",
        "patience=20",
        "elide-push=correct,look-ahead",
    ),
)
"""New ones stand behind the others: so a seed draws of those what it has drawn before."""
OPTION = 1 / 6
"""How often a cluster has an option that its mode takes."""
COMMITS = (CommitBy.PUBLISHER, CommitBy.PUBLISHER, CommitBy.SWITCHES)
TRANSITIONS = (Transitions.ALIGNED, Transitions.ALIGNED, Transitions.STAGGERED)
"""How epochs end, as often as they are here."""
CUT = 1 / 4
"""How often the maps of a cluster are cut in another way."""
AT_VALUES = 1 / 3
"""How often a key that is cut is so at values and not by hash."""
VALUES: Mapping[Kind, Sequence[str]] = {
    Kind.VARCHAR: ("", "\x00", "t1", "t2", "t3", "t4", "t5"),
    Kind.DATE: ("0001-01-02", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-06", "9999-12-31"),
    Kind.DOUBLE: ("-inf", "-0.0", "0.25", "0.5", "0.75", "1.0", "inf"),
}
"""Kind → values at which keys are cut; those of other kinds are numbers."""
SLOTTED = 1 / 5
"""How often keys lie by slots that were moved, where there is more than one node."""
SPLIT = 1 / 2
"""How often tables are split where there are several switches."""
TREES = 1 / 2
"""How often blocks go along a tree of nodes in target aggregation by one switch."""
ARITIES = (2, 1, 3)
POLLS = ("epochs", "poll=1", "poll=2", "epochs")
FETCHING = 1 / 4
"""The share of clusters whose nodes fetch entries among the others that spread maps."""


def chosen_mode(choices: Choices, stream: ChoiceStream) -> Mode:
    """Return the mode of a seed; each kind has choices of its own, as what is older stays so as it was."""
    chosen = stream.one([Mode.EVENTUAL, Mode.EVENTUAL, Mode.EVENTUAL, Mode.GATED])
    if chosen is not Mode.EVENTUAL:
        return chosen
    central, fetching = choices.stream("central"), choices.stream("fetching")
    if central.chance(CENTRAL):
        return central.one([Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE])
    return fetching.one([Mode.FOUR_LOGS, Mode.TICKS]) if fetching.chance(FETCHING) else chosen


def chosen_options(choices: Choices, mode: Mode) -> tuple[str, ...]:
    """Return the options of a seed; of those that exclude each other, the first."""
    stream = choices.stream("options")
    taken = [text for text in OPTION_TEXTS if mode in OPTIONS[text.partition("=")[0]].modes]
    found: tuple[str, ...] = ()
    for text in [text for text in taken if stream.chance(OPTION)]:
        try:
            options_of(mode, (*found, text))
        except UsageError:
            continue
        found = (*found, text)
    return found


def chosen_central(choices: Choices, mode: Mode) -> CentralOptions:
    """Return how blocks reach nodes of a seed, and when these fold deltas."""
    stream = choices.stream("central options")
    if mode is not Mode.CENTRAL_TARGET:
        return DEFAULT_CENTRAL
    is_tree, arity, gc = stream.chance(TREES), stream.one(ARITIES), stream.one(POLLS)
    return central_options("directives" if is_tree else "table", arity if is_tree else None, gc)


def chosen_cuts(choices: Choices, program: Program, nodes: int, mode: Mode, *, always: bool = False) -> tuple[str, ...]:
    """Return how maps of a seed are cut: not at all, by a key, or by two into a grid.

    Parameters
    ----------
    always
        Whether they are cut if they can be.
    """
    stream, values = choices.stream("cuts"), choices.stream("cut values")
    if not RULES[mode].is_spread or not (stream.chance(CUT) or always):
        return ()
    keys = {f"{each.name}.{key.name}": key for each in divide(program).spread.maps for key in each.keys}
    if not keys:
        return ()
    first = next((part for part in (2, 3) if nodes % part == 0 and nodes > part), nodes)
    parts = (first, nodes // first) if first < nodes else (nodes,)
    cuts = tuple(_cut(name, keys[name], part, values) for part in parts for name in [stream.one([*keys])])
    try:
        plan_cluster(program, nodes, 1, mode, cuts=cuts)
    except UsageError:
        return ()  # keys that have the same values cannot be cut in two ways
    return cuts


def _cut(name: str, key: Column, parts: int, stream: ChoiceStream) -> str:
    """Return a cut of a key into parts, at values or by hash."""
    known = VALUES.get(key.type.kind, "0123456") if key.type is not None else ()
    if not stream.chance(AT_VALUES) or not 1 < parts <= len(known) or (key.type and key.type.kind is Kind.BOOLEAN):
        return f"{name}={parts}"
    first = stream.below(len(known) - parts + 2)
    return f"{name}@{','.join(known[first : first + parts - 1])}"


def chosen_placement(
    choices: Choices, program: Program, nodes: int, mode: Mode, *, is_cut: bool = False
) -> tuple[tuple[str, ...], Runs]:
    """Return how maps of a seed are cut, and else the runs of its slots; one in four nodes has none of these at all."""
    cuts, stream = chosen_cuts(choices, program, nodes, mode, always=is_cut), choices.stream("slots")
    if cuts or nodes == 1 or not stream.chance(SLOTTED):
        return cuts, ()
    having = [node for node in range(nodes) if stream.chance(3 / 4)] or [nodes - 1]
    runs = 1 + stream.below(64)
    return (), SlotTable.of_runs([(at * SLOTS // runs, stream.one(having)) for at in range(runs)]).runs()


def chosen_splits(choices: Choices, program: Program, switches: int, mode: Mode) -> tuple[str, ...]:
    """Return the tables of a seed that all switches share, each by a column that leaves its primary key checked."""
    stream = choices.stream("splits")
    if switches < 2 or RULES[mode].needs_one_switch or not stream.chance(SPLIT):
        return ()
    kept = dict(program.kept)
    found: tuple[str, ...] = ()
    for each in program.relations:
        columns = each.key if each.key and each.name in kept else each.column_names
        if stream.chance(2 / 3):
            found = (*found, f"{each.name}.{stream.one(list(columns))}")
    return found


@cache
def planned(
    name: str,
    nodes: int,
    switches: int,
    mode: Mode,
    options: tuple[str, ...] = (),
    cuts: tuple[str, ...] = (),
    slots: Runs = (),
    central: CentralOptions = DEFAULT_CENTRAL,
    splits: tuple[str, ...] = (),
) -> ClusterPlan:
    """Return the plan of a program; many seeds have the same."""
    used = 1 if RULES[mode].needs_one_switch else switches
    table = SlotTable.of_runs(slots) if slots else None
    drawn: dict[str, Any] = {"options": options, "cuts": cuts, "slots": table, "central": central, "splits": splits}
    return plan_cluster(program_named(name), nodes, used, mode, **drawn)


def chosen_endings(choices: Choices) -> EpochEndings:
    """Return how epochs of a seed end."""
    stream = choices.stream("endings")
    return EpochEndings(stream.one(COMMITS), stream.one(TRANSITIONS))
