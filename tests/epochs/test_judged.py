"""Judges before views: what two stages say of every epoch is what one bucket says."""

from __future__ import annotations

import json
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
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from cumulus.explain.layout.choice import LayoutChoices
from cumulus.explain.layout.view_parts import part_of_views
from cumulus.m3.program import Program
from support.engines import KINDS
from support.equal_outputs import difference
from support.judged_streams import VIEWS, Stream, script
from support.tiers import sampled

EPOCHS = 7


def run(
    text: str, folder: Path, out: Path, engine: str, layout: str, buckets: int = 1, order: str = ",order=seq"
) -> BucketPlan:
    program = compile_sql(text, rely=False)
    sources = sources_from([f"{table.name}={table},op=op{order}" for table in sorted(folder.iterdir())], program)
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
    return BucketPlan(4, {"sales": ("id", "line")}, by_key=("sales",), groups=tuple(groups))


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


ROWS = "CREATE TABLE p (id INT PRIMARY KEY, g VARCHAR, x DECIMAL(38,0), d DOUBLE, t DATE);"
SPREAD = """
CREATE VIEW sums AS SELECT g, SUM(x) AS s, COUNT(*) AS n, MIN(t) AS f FROM p GROUP BY g;
CREATE VIEW pairs AS SELECT a.g, COUNT(*) AS n FROM p a, p b WHERE a.g = b.g GROUP BY a.g;
CREATE VIEW doubles AS SELECT d, COUNT(*) AS n FROM p GROUP BY d;
CREATE VIEW largest AS SELECT g, MAX(x) AS m FROM p GROUP BY g ORDER BY m DESC LIMIT 2;
"""
STATIC = "CREATE TABLE k (g VARCHAR PRIMARY KEY, w INT) WITH (static = true);"
WEIGHTS = "CREATE VIEW weights AS SELECT w, SUM(x) AS s FROM p JOIN k USING (g) GROUP BY w;"
CUBES = """
CREATE CUBE q DIMENSION kind (g) DIMENSION day (t) KEEP (g), (t) AS SELECT g, t, SUM(x) AS s, COUNT(*) AS n FROM p
GROUP BY g, t;
CREATE CUBE r DIMENSION kind (g) AS SELECT g, SUM(x) AS s, COUNT(*) AS n FROM p GROUP BY g;
"""
MOST = "9" * 38


def row(op: str, number: int = 0, g: str | None = None, x: str | None = None, d: object = None, t: str | None = None):
    return {"op": op, "id": number, "g": g, "x": x, "d": d, "t": t}


FIRST = [
    row("i", at, "ab"[at % 2], MOST if at % 3 else f"-{MOST}", [1.5, "NaN", -0.0, 0.0, None][at % 5], DAY)
    for at in range(9)
    for DAY in [["0001-01-01", "9999-12-31", None][at % 3]]
]
LATER = {
    "extremes": [
        [row("u", 1, "", "1", "NaN", "9999-12-31"), row("d", 2), row("u", 2**31 - 1, "zz", MOST)],
        [row("u", -(2**31), d=1e308), row("d", 0), row("d", 3), row("d", 4)],
    ],
    "truncations": [
        [row("truncate"), row("i", 5, "n", "2")],
        [row("u", 5, "m", "3"), row("i", 6, "m", "3"), row("truncate")],
        [row("i", 6, "m", "3")],
    ],
}


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("more", [SPREAD, STATIC + WEIGHTS + SPREAD, CUBES + SPREAD], ids=["plain", "static", "cubes"])
@pytest.mark.parametrize("kind", LATER)
def test_extremes_go_through_judges(kind: str, more: str, engine: str, tmp_path: Path) -> None:
    tables = {"p": [FIRST, *LATER[kind]]}
    if "CREATE TABLE k" in more:
        weights = [{"op": "i", "g": g, "w": w} for g, w in (("a", 1), ("b", 2), ("m", 2))]
        tables["k"] = [weights, [{"op": "i", "g": "late", "w": 3}]]
    for table, epochs in tables.items():
        (tmp_path / "in" / table).mkdir(parents=True)
        for number, rows in enumerate(epochs):
            file = tmp_path / "in" / table / f"{number}.jsonl"
            file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    text = ROWS + more if "CREATE TABLE k" not in more else STATIC + ROWS + more.replace(STATIC, "")
    run(text, tmp_path / "in", tmp_path / "one", engine, "one-bucket", order="")
    assert run(text, tmp_path / "in", tmp_path / "two", engine, "judged", 3, order="").groups
    found = difference(tmp_path / "one", tmp_path / "two")
    assert not found, found


def test_columns_that_leave_a_key_unchecked_are_refused() -> None:
    program = compile_sql(ROWS + SPREAD, rely=False)
    with pytest.raises(LayoutError, match="--layout judged:p=g: with these columns nobody would check the primary key"):
        choose_plan(program, "judged:p=g", 3)
    assert choose_plan(program, "judged:p=id", 3).partitioned == {"p": ("id",)}
