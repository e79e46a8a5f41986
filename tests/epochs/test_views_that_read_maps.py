"""Published views that read entries and ends of maps beside their own: every epoch is what the tables say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus import m3
from cumulus.catalog.arrow import table_of
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from support.ends_and_totals import TEXT, expected, random_events, with_views
from support.engines import engine_of
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")

EPOCHS = 7
LOCAL = ("range", "bag", "top")


def write(folder: Path, program: m3.Program, seed: int) -> list[dict[str, Counter]]:
    """Write the files of some epochs; return the rows of the views after each of them."""
    tables = {name: Counter() for name in ("sales", "shops")}
    wanted = []
    events = list(random_events(seed, 20 * EPOCHS))
    for epoch in range(EPOCHS):
        for name, rows in tables.items():
            mine = [event for event in events[20 * epoch : 20 * epoch + 20] if event[1] == name]
            for sign, _, row in mine:
                rows[row] += sign
            data = table_of(program.relation(name).columns, [row for *_, row in mine])
            (folder / name).mkdir(parents=True, exist_ok=True)
            signs = pa.array(["+" if sign > 0 else "-" for sign, *_ in mine], pa.string())
            pq.write_table(data.append_column("op", signs), folder / name / f"{epoch}.parquet")
        wanted.append(expected({name: +rows for name, rows in tables.items()}))
    return wanted


def bag(out: Path, epoch: int, view: str) -> Counter:
    return Counter(tuple(row.values()) for row in query(out, f"FROM {view}", epoch).to_pylist())


@pytest.mark.parametrize(
    ("layout", "views"),
    [
        ("one-bucket", ("range", "large", "bag", "extremes", "top", "followed")),
        ("one-round:sales=shop+shops=shop", LOCAL),
        ("one-round:sales=shop", LOCAL),  # the cities are in every bucket
        ("one-round:shops=shop", ("range", "large", "top", "followed")),  # the sales are
    ],
)
@pytest.mark.parametrize("seed", sampled(range(2), of=2))
def test_every_epoch_is_what_the_tables_say(tmp_path: Path, layout: str, views: tuple[str, ...], seed: int) -> None:
    program = m3.read(with_views(*views))
    wanted = write(tmp_path / "in", program, seed)
    sources = sources_from([str(tmp_path / "in")], program)
    shown = {view: Counter() for view in views}
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=3) as run:
        assert run.identity.plan.buckets == (1 if layout == "one-bucket" else 3)
        for done, expectation in zip(run.steps(), wanted, strict=True):
            for view in views:
                for *row, change in map(dict.values, done.changes(view).to_pylist()):
                    shown[view][tuple(row)] += change
                assert +shown[view] == expectation[view], view
    assert run.epoch == EPOCHS
    for epoch, expectation in enumerate(wanted, 1):
        assert {view: bag(tmp_path / "out", epoch, view) for view in views} == {
            view: expectation[view] for view in views
        }
    assert query(tmp_path / "out", "FROM quarantine").num_rows == 0


@pytest.mark.parametrize(
    ("view", "told"),
    [
        ("large", "in VIEW large: s * 3 > total[].s, a condition or function needs the whole of total"),
        ("extremes", "in VIEW extremes: "),
        ("followed", "in VIEW followed: by_shop[shop + 1].n > 0, "),
    ],
)
def test_a_view_that_reads_other_buckets_keeps_the_program_in_one(view: str, told: str) -> None:
    program = m3.read(with_views("range", view))
    with pytest.raises(LayoutError, match="not one round with sales by shop") as caught:
        choose_plan(program, "one-round:sales=shop", 3)
    assert told in caught.value.message
    assert choose_plan(m3.read(with_views("range")), "one-round:sales=shop", 3).buckets == 3


def test_the_plan_says_which_view_needs_one_bucket() -> None:
    plan = choose_plan(m3.read(TEXT), "auto", 4)
    assert plan.buckets == 1
    assert "large, extremes, followed hold the others back: without, sales by shop" in plan.why
    assert "large: in VIEW large: s * 3 > total[].s" in plan.why
