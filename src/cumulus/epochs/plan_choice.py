"""The choice of a plan for a new run: the layout, in how many buckets, and a sentence that says why.

Whoever asks for a layout asks here, so that `cumulus explain`, the first line of a run and its checkpoint say the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cumulus.epochs.keeping import judging_program
from cumulus.epochs.layouts import counts_on_unchecked, polled_tables, unchecked_keys
from cumulus.epochs.plan import BucketPlan, GroupPlan, keyed_tables
from cumulus.errors import LayoutError, UsageError
from cumulus.explain.explanation import counted
from cumulus.explain.layout.choice import HeldBack, LayoutChoices, SpreadViews
from cumulus.explain.layout.co_partitioning import Columns, Layout, Partitioned, partition_text
from cumulus.explain.sizes import Statistics
from cumulus.m3.dataflow import cycles
from cumulus.m3.program import Program

LAYOUTS = ("auto", "one-bucket", "one-round", "judged")
UNEVEN = 1.5
"""The heaviest bucket is told to be too heavy if it has so many times its part."""
USELESS = 0.9
"""A layout of which the heaviest bucket has more of the work than this is not worth having."""
PAYS = 0.8
"""Judges before views are worth having if the heaviest bucket has at most so much of what it has without them."""
_SHIPPING = 2.0
"""What it costs to hand a row on from a judge to views, as `cumulus.explain.layout.load` counts."""
_HOLDS_BACK = 1.25
"""A view holds others back if without it the heaviest bucket has so many times less."""


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan, and what there is to say about it.

    Parameters
    ----------
    plan
        The plan.
    layout
        Its layout; with one bucket, the layout that is the same everywhere.
    share
        Of all work, what the heaviest bucket gets.
    """

    plan: BucketPlan
    layout: Layout
    share: float

    def __str__(self) -> str:
        """Return the sentence of the plan, and in one round where each map lies."""
        if self.plan.buckets == 1 or self.plan.groups:
            return self.plan.why
        _, *details = self.layout.explain().split("\n")
        return "\n".join([self.plan.why, *details])


def choose_plan(program: Program, layout: str, buckets: int, statistics: Statistics | None = None) -> BucketPlan:
    """Return the plan for a new checkpoint.

    Parameters
    ----------
    layout, buckets, statistics
        As in `choice_of_plan`.
    """
    return choice_of_plan(program, layout, buckets, statistics).plan


def wanted_plan(
    program: Program, now: BucketPlan, layout: str, buckets: int, statistics: Statistics | None = None
) -> BucketPlan:
    """Return the plan that options ask for where a checkpoint has one: its own, if they fit it (`is_same_plan`).

    Parameters
    ----------
    now
        The plan of the checkpoint.
    layout
        As `choice_of_plan` takes it. "auto" are the tables and columns of the checkpoint, if it has spread any; and so
        is the name of its layout with no columns, or with some of them.
    buckets
        0 for as many as there are.
    statistics
        What is known of the tables.

    Raises
    ------
    LayoutError, UsageError
        If no such plan is right.
    """
    name, _, hint = layout.partition(":")
    if buckets in (0, now.buckets) and name == "auto":
        return now
    wishes = _hint(program, hint)
    is_kept = all(now.partitioned.get(table) == columns for table, columns in wishes.items())
    has_it = name == ("judged" if now.groups else "one-round" if now.partitioned else "one-bucket")
    if now.partitioned and (name == "auto" or (has_it and is_kept)) and buckets != 1:
        if buckets in (0, now.buckets):
            return now
        columns = "+".join(f"{table}={','.join(each)}" for table, each in now.partitioned.items())
        layout = f"{'judged' if now.groups else 'one-round'}:{columns}"
    count = buckets or (now.buckets if now.partitioned else os.cpu_count() or 1)
    try:
        found = choose_plan(program, layout, count, statistics)
    except LayoutError as problem:
        raise LayoutError(
            problem.message,
            hint="Ask for another --layout, or leave it out: the run then goes on in the buckets that it has.",
        ) from None
    return found


def is_same_plan(one: BucketPlan, other: BucketPlan) -> bool:
    """Whether two plans have the same buckets, whatever they say of them."""
    return replace(one, why=other.why) == other


def plan_text(plan: BucketPlan) -> str:
    """Return a plan in a few words.

    Examples
    --------
    >>> plan_text(BucketPlan(2, {"orders": ("oid",)})), plan_text(BucketPlan())
    ('2 buckets (orders by oid)', '1 bucket')
    """
    spread = f" ({partition_text(plan.partitioned)})" if plan.partitioned else ""
    then = f", then views in {counted(len(plan.groups), 'group')}" if plan.groups else ""
    return f"{counted(plan.buckets, 'bucket')}{' of judges' if plan.groups else ''}{spread}{then}"


def choice_of_plan(program: Program, layout: str, buckets: int, statistics: Statistics | None = None) -> PlanChoice:
    """Choose the plan for a new checkpoint.

    Parameters
    ----------
    layout
        One of `LAYOUTS`; after "one-round:" or "judged:", tables and columns to partition by, such as
        ``orders=oid+lineitem=oid,number``.
    buckets
        How many are wanted.
    statistics
        What is known of the tables.

    Raises
    ------
    LayoutError
        If "one-round" is asked for and no such layout is right, or none in which somebody checks the references that
        the program counts on; says why.
    """
    name, _, hint = layout.partition(":")
    if name not in LAYOUTS or (hint and name not in ("one-round", "judged")):
        raise UsageError(
            f"unknown layout {layout!r}",
            hint=f"Layouts: {', '.join(LAYOUTS)}; after one-round and judged: TABLE=COLUMN,COLUMN+TABLE=COLUMN.",
        )
    if buckets < 1:
        raise UsageError(f"{buckets} buckets", hint="There is at least one.")
    whole = Layout(program, {}, {})
    if name == "one-bucket" or (name == "judged" and buckets == 1):
        return PlanChoice(BucketPlan(why="one bucket, as asked for"), whole, 1.0)
    if buckets == 1 and name == "auto":
        return PlanChoice(BucketPlan(why="one bucket, as there is one core"), whole, 1.0)
    choice = LayoutChoices(program, statistics or Statistics(), buckets)
    if name == "judged":
        judged = _judged(choice, hint)
        if judged is None:
            lost = unchecked_keys(judging_program(program)[0], _hint(program, hint))
            what = f"with these columns nobody would check {lost[0]}" if lost else "no table can be partitioned"
            raise LayoutError(f"--layout {layout}: {what}", hint="Judges are spread by columns of primary keys.")
        return judged
    simple = _simple(choice, name, hint)
    # Where tables keep rows, judging these is most of the work, and can be spread whatever the views are.
    if name == "auto" and program.kept and simple.share > _HOLDS_BACK / buckets and not cycles(program):
        judged = _judged(choice)
        if judged is not None and judged.share < PAYS * simple.share:
            return judged
    return simple


def _simple(choice: LayoutChoices, name: str, hint: str) -> PlanChoice:
    """Choose among one round and one bucket."""
    program, buckets = choice.program, choice.buckets
    whole = Layout(program, {}, {})
    found = _one_round(choice, _hint(program, hint))
    split = partition_text(found.partitioned)
    lost = unchecked_keys(program, found.partitioned)
    if found.one_bucket:
        reason = _held_back_text(choice, 1.0) or "; ".join(f"{name}: {why}" for name, why in found.reasons.items())
        if name == "one-round":
            raise LayoutError(f"no table can be partitioned: {reason}", hint="Use --layout one-bucket.")
        return PlanChoice(BucketPlan(why=f"one bucket, since no table can be partitioned: {reason}"), found, 1.0)
    if lost and name == "auto":
        why = f"one bucket: with {split} in several, nobody would check {lost[0]}"
        return PlanChoice(BucketPlan(why=why), whole, 1.0)
    if counts_on_unchecked(program, found.partitioned):
        raise LayoutError(
            f"with {split} in several buckets nobody would check {lost[0]}, and the program leaves out statements "
            "because it is checked",
            hint="Compile it with enforced=False.",
        )
    share = choice.loads.heaviest(found.partitioned, buckets)
    if share > USELESS and name == "auto":
        reason = _held_back_text(choice, share)
        why = f"one bucket, since with {split} in {buckets} the heaviest would have {share:.0%} of the work"
        return PlanChoice(BucketPlan(why=f"{why}; {reason}" if reason else why), whole, 1.0)
    why = "; ".join([f"{buckets} buckets, {split}", *_remarks(choice, found, share, lost)])
    keyed = keyed_tables(program, found.partitioned)
    return PlanChoice(BucketPlan(buckets, found.partitioned, why, keyed), found, share)


def _judged(choice: LayoutChoices, hint: str = "") -> PlanChoice | None:
    """Return the plan that judges rows first and keeps views in groups; None if rows cannot be spread."""
    program, buckets = choice.program, choice.buckets
    judging, _ = judging_program(program)
    judges = LayoutChoices(judging, choice.statistics, buckets)
    found = _one_round(judges, _hint(program, hint))
    if found.one_bucket or unchecked_keys(judging, found.partitioned) or not program.views:
        return None
    views = choice.groups()
    groups = tuple(
        GroupPlan(each.views, buckets if each.partitioned else 1, each.partitioned) for each in views if each.views
    )
    loads = judges.loads
    rows = sum(weight * loads.row_share(table) for table, weight in loads.weights.items())
    first = loads.heaviest(found.partitioned, buckets) * (sum(loads.weights.values()) + _SHIPPING * rows)
    second = sum(choice.group_cost(each.partitioned, each.views) for each in views)
    share = min(1.0, (first + second) / sum(choice.loads.weights.values()))
    why = "; ".join([f"judged in {buckets} buckets, {partition_text(found.partitioned)}", *_group_texts(choice, views)])
    why += f"; the heaviest has {share:.0%} of the work"
    polled = _polled_text(judging, found.partitioned)
    keyed = keyed_tables(program, found.partitioned)
    plan = BucketPlan(buckets, found.partitioned, "; ".join(filter(None, [why, polled])), keyed, groups)
    return PlanChoice(plan, found, share)


def _group_texts(choice: LayoutChoices, views: Iterable[SpreadViews]) -> Iterator[str]:
    """Yield of each group where its views are."""
    for group in views:
        names = ", ".join(group.views)
        if group.partitioned:
            yield f"then {names} in {choice.buckets}, {partition_text(group.partitioned)}"
        else:
            known = {each.view: each for each in choice.refusals()}
            reasons = _reasons(known[view] for view in group.views if view in known)
            yield f"then {names} in one" + (f" ({reasons})" if reasons else "")


def partitioned_by(program: Program, layout: str, buckets: int, statistics: Statistics | None = None) -> Partitioned:
    """Return the tables that a layout of one round would partition, and by which columns.

    Parameters
    ----------
    layout, buckets, statistics
        As in `choice_of_plan`.
    """
    name, _, hint = layout.partition(":")
    if name != "one-round":
        return {}
    return _one_round(LayoutChoices(program, statistics or Statistics(), buckets), _hint(program, hint)).partitioned


def _one_round(choice: LayoutChoices, asked: Partitioned) -> Layout:
    """Return the best layout of one round: of those with all keys and references checked, if there are any."""

    def objection(partitioned: Partitioned) -> str:
        lost = unchecked_keys(choice.program, partitioned)
        return f"nobody would check {lost[0]}" if lost else ""

    if not objection(asked):
        checked = choice.layout(asked, objection)
        if not checked.one_bucket:
            return checked
    return choice.layout(asked)


def _hint(program: Program, text: str) -> dict[str, Columns]:
    found: dict[str, Columns] = {}
    for part in text.split("+") if text else ():
        table, _, columns = part.partition("=")
        if table not in {relation.name for relation in program.relations}:
            raise UsageError(f"there is no table {table!r}", hint="Write --layout one-round:TABLE=COLUMN+TABLE=COLUMN.")
        found[table] = tuple(columns.split(","))
    return found


def _remarks(choice: LayoutChoices, found: Layout, share: float, lost: Sequence[str]) -> list[str]:
    """Return what there is to say of a layout in several buckets."""
    program, partitioned, buckets = choice.program, found.partitioned, choice.buckets
    streams = {trigger.relation for trigger in program.triggers}
    everywhere = [each.name for each in program.relations if each.name in streams and each.name not in partitioned]
    said = [f"in all of them {', '.join(everywhere)}"] if everywhere else []
    even = 1 / buckets
    said.append(f"the heaviest has {share:.0%} of the work")
    if share > UNEVEN * even:
        said[-1] += f", {share / even:.1f} times its part"
    said += [
        f"{' and '.join(columns)} of {table} has {counted(values, 'value')}, so no more buckets have rows of it"
        for table, columns in partitioned.items()
        if (values := choice.loads.distinct(table, columns)) < buckets
    ]
    held = _held_back_text(choice, share)
    if held:
        said.append(held)
    polled = _polled_text(program, partitioned)
    if polled:
        said.append(polled)
    if lost:
        said.append(f"not checked: {', '.join(lost)}")
    return said


def _polled_text(program: Program, partitioned: Partitioned) -> str:
    """Return the tables whose deletions are left to a vote, in a sentence; "" if there are none."""
    which = " or ".join(polled_tables(program, partitioned))
    return f"a deletion from {which} counts an epoch later, when no bucket has rows that refer to it" if which else ""


def _held_back_text(choice: LayoutChoices, share: float) -> str:
    """Return which views keep the others from being spread better, why, and what that costs; "" if none do."""
    if share <= _HOLDS_BACK / choice.buckets:
        return ""
    best = next(iter(choice.groups()), None)
    if best is None or not best.partitioned:
        return _reasons(choice.refusals())
    if best.share * _HOLDS_BACK > share:
        return ""
    held = choice.held_back(best.partitioned)
    if not held:
        return ""
    names = ", ".join(each.view for each in held)
    them = "holds the others" if len(held) == 1 else "hold the others"
    return (
        f"{names} {them} back: without, {partition_text(best.partitioned)}, and the heaviest would have "
        f"{best.share:.0%} ({_reasons(held)})"
    )


def _reasons(held: Iterable[HeldBack]) -> str:
    # The columns are named already.
    reasons = ((each.view, re.sub("^not one round with .*?: in ", "in ", each.reason)) for each in held)
    return "; ".join(f"{view}: {reason}" for view, reason in reasons)
