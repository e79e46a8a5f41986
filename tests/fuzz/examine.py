"""One seed: generate, compare, shrink; what it says about each view goes into the table of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzz.case import case_of
from fuzz.compare import Comparison, Failure, compare
from fuzz.constructs import constructs, relation_count
from fuzz.generator import Script, script_of
from fuzz.shrink import shrunk


@dataclass(frozen=True)
class Seen:
    """One view: `state` is "accepted", "refused" or "invalid"."""

    constructs: frozenset[str]
    relations: int
    state: str
    shown: bool
    changed: bool


@dataclass
class Examined:
    """What one seed has shown.

    Parameters
    ----------
    refused
        Feature → messages.
    invalid
        What DuckDB has said of views that it does not take.
    failures, doubted
        Ready to paste, with the seed.
    """

    seed: int
    views: list[Seen] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


def examine(
    seed: int,
    *,
    dry: bool = False,
    only: tuple[str, ...] = (),
    without: frozenset[str] = frozenset(),
    shrink: bool = True,
) -> Examined:
    """Return what the script of a seed shows."""
    script = script_of(seed, only=only, without=without)
    found = compare(case_of(script), dry=dry)
    examined = Examined(seed)
    for view in script.views:
        state = "invalid" if view.name in found.invalid else "refused" if view.name in found.refused else "accepted"
        seen = Seen(constructs(view), relation_count(view), state, view.name in found.shown, view.name in found.changed)
        examined.views.append(seen)
        if view.name in found.invalid:
            examined.invalid.append(f"{view.sql()}\n  {found.invalid[view.name]}")
    for feature, message in found.refused.values():
        examined.refused.setdefault(feature, []).append(message)
    examined.kinds = [failure.kind for failure in found.failures]
    for failure in found.failures[:1]:
        examined.failures.append(told(script, failure, shrink=shrink))
    for failure in found.doubted[:1]:
        examined.doubted.append(told(script, failure, shrink=False))
    return examined


def told(script: Script, failure: Failure, *, shrink: bool) -> str:
    """Return a failure as a case to paste, with what differs."""
    smaller = script
    if shrink and failure.kind != "timeout":
        smaller = shrunk(script, lambda candidate: fails_alike(compare(case_of(candidate)), failure))
        failure = next(each for each in compare(case_of(smaller)).failures if _alike(each, failure))
    mode = "" if smaller.mode == "event" else f", mode {smaller.mode}"
    case = case_of(smaller)
    what = "\n".join(f"   {line}" for line in failure.message.splitlines())
    head = f"{failure.kind} in {failure.view or 'the script'}, seed {script.seed}{mode}:"
    return f"{head}\n{what}\n{case.text(f'Seed {script.seed}{mode}.')}"


def fails_alike(found: Comparison, failure: Failure) -> bool:
    """Whether a comparison has a failure like another."""
    return any(_alike(each, failure) for each in found.failures)


def _alike(one: Failure, two: Failure) -> bool:
    if one.kind != two.kind:
        return False
    if one.kind in ("crash", "error"):
        lines = [each.message.splitlines() for each in (one, two)]
        places = [0, 0] if one.kind == "error" else [-1, -1]
        return lines[0][places[0]][:30].split(":")[0] == lines[1][places[1]][:30].split(":")[0]
    return True
