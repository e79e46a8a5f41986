"""Judges before views: what two stages say of every epoch is what one bucket says."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs import embedded_run
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.plan import BucketPlan, GroupPlan
from cumulus.epochs.sources import sources_from
from cumulus.explain.layout.choice import LayoutChoices
from cumulus.explain.layout.view_parts import part_of_views
from cumulus.m3.program import Program
from support.engines import KINDS
from support.equal_outputs import difference
from support.judged_streams import VIEWS, Stream, script
from support.tiers import sampled

EPOCHS = 7


def run(text: str, folder: Path, out: Path, engine: str, layout: str, buckets: int = 1):
    program = compile_sql(text, rely=False)
    sources = sources_from([f"{table.name}={table},op=op,order=seq" for table in sorted(folder.iterdir())], program)
    making = partial(make_engine, engine)
    with EmbeddedRun(
        program, sources, out, make_engine=making, layout=layout, buckets=buckets, late_epochs=3
    ) as running:
        for _ in running.steps():
            pass
        return running.identity.plan


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("seed", sampled(range(40), of=5))
def test_judges_before_views_say_what_one_bucket_says(seed: int, engine: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    views = draw.sample(list(VIEWS), draw.randint(1, 5))
    text = script(views, draw.choice(["none", "all"]))
    Stream(seed, parents_go=False).write(tmp_path / "in", EPOCHS)
    run(text, tmp_path / "in", tmp_path / "one", engine, "one-bucket")
    buckets = draw.randint(2, 4)
    plan = run(text, tmp_path / "in", tmp_path / "two", engine, "judged", buckets)
    assert plan.groups
    assert plan.buckets == buckets
    found = difference(tmp_path / "one", tmp_path / "two")
    assert not found, f"{views} {plan}: {found}"


ALONE = ("by_town", "labels", "weights", "everything")
"""Views that can also be spread where rows are judged by their own keys."""


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("seed", sampled(range(100, 120), of=5))
def test_deletions_of_parents_are_voted_on_as_in_one_round(seed: int, engine: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    text = script(draw.sample(ALONE, draw.randint(1, 4)))
    Stream(seed, parents_go=True).write(tmp_path / "in", EPOCHS)
    split = "sales=id+visits=shop"
    run(text, tmp_path / "in", tmp_path / "one", engine, f"one-round:{split}", 3)
    plan = run(text, tmp_path / "in", tmp_path / "two", engine, f"judged:{split}", 3)
    assert plan.groups
    found = difference(tmp_path / "one", tmp_path / "two")
    assert not found, f"{plan}: {found}"


def random_plan(program: Program, draw: random.Random) -> BucketPlan:
    """Return judges, and the views cut into random groups, each spread by some columns that are legal for it."""
    views = [view.name for view in program.shown_views]
    draw.shuffle(views)
    cuts = sorted(draw.sample(range(1, len(views)), draw.randint(0, len(views) - 1)))
    groups = []
    for begin, end in pairwise([0, *cuts, len(views)]):
        mine = tuple(views[begin:end])
        choices = LayoutChoices(part_of_views(program, mine))
        legal = [{}, *(each for each in choices.candidates() if not choices.held_back(each))]
        chosen = draw.choice(legal)
        groups.append(GroupPlan(mine, draw.randint(2, 4) if chosen else 1, chosen))
    return BucketPlan(2, {"sales": ("id", "line")}, by_key=("sales",), groups=tuple(groups))


@pytest.mark.parametrize("seed", sampled(range(200, 260), of=10))
def test_cuts_into_groups_do_not_matter(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    text = script(draw.sample(list(VIEWS), draw.randint(2, 6)))
    Stream(seed, parents_go=False).write(tmp_path / "in", EPOCHS)
    engine = draw.choice(KINDS)
    run(text, tmp_path / "in", tmp_path / "one", engine, "one-bucket")
    plan = random_plan(compile_sql(text, rely=False), draw)
    monkeypatch.setattr(embedded_run, "choose_plan", lambda *_: plan)  # none that would be chosen
    run(text, tmp_path / "in", tmp_path / "two", engine, "judged", 2)
    found = difference(tmp_path / "one", tmp_path / "two")
    assert not found, f"{plan}: {found}"


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    text = script(list(VIEWS))
    Stream(7, parents_go=True).write(tmp_path / "in", EPOCHS)
    plan = run(text, tmp_path / "in", tmp_path / "one", "native", "judged", 3)
    program = compile_sql(text, rely=False)
    sources = sources_from(
        [f"{table.name}={table},op=op,order=seq" for table in sorted((tmp_path / "in").iterdir())], program
    )
    done = True
    while done:  # one epoch in each run
        with EmbeddedRun(
            program,
            sources,
            tmp_path / "two",
            make_engine=partial(make_engine, "native"),
            layout="judged",
            buckets=3,
            late_epochs=3,
        ) as running:
            assert running.identity.plan == plan
            done = running.step() is not None
    assert not difference(tmp_path / "one", tmp_path / "two")
