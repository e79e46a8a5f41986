"""One seed: generate, compare, shrink; what it says about each view goes into the table of the run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fuzz.case import case_of
from fuzz.compare import COMPILE_SECONDS, Comparison, Failure, compare
from fuzz.constructs import constructs, relation_count
from fuzz.generator import Script, script_of
from fuzz.rows import updated_parents
from fuzz.shrink import shrunk
from fuzz.tree import TableRef, View, walk

SHRINKING_SECONDS = 3.0
"""How long a smaller script may take to compile: one that does not is no help."""


@dataclass(frozen=True)
class Seen:
    """One view: `state` is "accepted", "refused", "failed" or "invalid"."""

    constructs: frozenset[str]
    relations: int
    state: str
    shown: bool
    changed: bool
    is_enforced: bool = False
    """Whether it is about both tables of an enforced reference."""
    sees_updates: bool = False
    """Whether, of such a reference, a parent has changed while it was referred to."""


@dataclass
class Examined:
    """What one seed has shown.

    Parameters
    ----------
    refused
        Feature → messages.
    invalid
        What DuckDB has said of views that it does not take.
    """

    seed: int
    views: list[Seen] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    doubted: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Making:
    """How scripts are made."""

    only: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    keyed: bool = False

    def script(self, seed: int) -> Script:
        return script_of(seed, only=self.only, without=self.without, keyed=self.keyed)


ANY_SCRIPT = Making()


def examine(seed: int, making: Making = ANY_SCRIPT, *, dry: bool = False, seconds: float = COMPILE_SECONDS) -> Examined:
    """Return what the script of a seed shows."""
    script = making.script(seed)
    found = compare(case_of(script), dry=dry, seconds=seconds)
    examined = Examined(seed, failures=found.failures, doubted=found.doubted)
    updated = updated_parents(script.tables, script.transactions)
    read: dict[str, frozenset[str]] = {}
    for view in script.views:
        names = {node.name for node in walk(view) if isinstance(node, TableRef)}
        read[view.name] = frozenset(names).union(*(read[name] for name in names & read.keys()))
        mine = frozenset(each for each in found.enforced if read[view.name].issuperset(each))
        examined.views.append(replace(_seen(view, found), is_enforced=bool(mine), sees_updates=bool(mine & updated)))
        if view.name in found.invalid:
            examined.invalid.append(f"{view.sql()}\n  {found.invalid[view.name]}")
    for feature, message in found.refused.values():
        examined.refused.setdefault(feature, []).append(message)
    return examined


def _seen(view: View, found: Comparison) -> Seen:
    state = "accepted"
    for name, views in (("invalid", found.invalid), ("refused", found.refused), ("failed", found.failed)):
        if view.name in views:
            state = name
    is_shown, is_changed = view.name in found.shown, view.name in found.changed
    return Seen(constructs(view), relation_count(view), state, is_shown, is_changed)


def told(script: Script, failure: Failure, *, shrink: bool) -> str:
    """Return a failure as a case to paste, with what differs."""
    smaller = script
    if shrink and failure.kind != "timeout":
        smaller = shrunk(script, lambda candidate: _alike(candidate, failure) is not None)
        failure = _alike(smaller, failure) or failure
    mode = "" if smaller.mode == "event" else f", mode {smaller.mode}"
    what = "\n".join(f"   {line}" for line in failure.message.splitlines())
    head = f"{failure.kind} in {failure.view or 'the script'}, seed {script.seed}{mode}:"
    return f"{head}\n{what}\n{case_of(smaller).text(f'Seed {script.seed}{mode}.')}"


def _alike(script: Script, failure: Failure) -> Failure | None:
    """Return a failure of the same cause that a script has."""
    found = compare(case_of(script), seconds=SHRINKING_SECONDS).failures
    return next((each for each in found if each.signature() == failure.signature()), None)
