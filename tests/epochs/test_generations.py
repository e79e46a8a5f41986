"""Runs that go on in other buckets: nothing is read again or lost, and what cannot be done changes nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs, listed_files, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.moves import Move
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.query import query
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import CumulusError, LayoutError, LockedError, MismatchError, StoreError, UsageError
from cumulus.m3.program import Program
from support.cubes_of_orders import QUERIES, SCRIPT, SELECTIONS
from support.engines import engine_of
from support.equal_outputs import difference
from support.full_disk import room
from support.judged_streams import VIEWS, Stream, script
from support.oracle import same_bag
from support.orders_stream import OrdersStream, json_lines
from support.star_stream import STAR, Star, shown
from support.tiers import sampled

CUBES = compile_sql(SCRIPT, rely=False)
PLAIN = compile_sql(
    "CREATE TABLE t (id INT PRIMARY KEY, k INT, x INT); CREATE VIEW v AS SELECT k, SUM(x) AS s FROM t GROUP BY k;",
    rely=False,
)
WISHES: list[dict[str, Any]] = [
    {"layout": "one-bucket"},
    {"layout": "judged", "buckets": 2},
    {"layout": "one-round:orders=oid+lineitem=oid", "buckets": 3},
    {"layout": "one-round:orders=oid+lineitem=oid", "buckets": 2},
    {},
]


def opened(folder: Path, program: Program = PLAIN, **options: Any) -> EmbeddedRun:
    sources = sources_from([str(folder / "in")], program)
    return EmbeddedRun(program, sources, folder / "out", make_engine=engine_of, **options)


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but those that say who has it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def put(folder: Path, epochs: int, first: int = 1) -> None:
    """Write the files of some epochs: rows, and an update of an earlier one."""
    for at in range(first, first + epochs):
        rows = [{"id": 100 * at + row, "k": row % 3, "x": 1} for row in range(20)]
        rows += [{"id": 100 * at - 100, "k": 1, "x": 5, "op": "u"}] if at > 1 else []
        json_lines(folder / "in" / "t" / f"{at:03}.json", rows)


def sums(folder: Path, epoch: int | None = None) -> list[tuple[int, int]]:
    found = query(folder / "out", "SELECT k::INT AS k, s::INT AS s FROM v", epoch).to_pylist()
    return sorted((row["k"], row["s"]) for row in found)


def in_force(folder: Path) -> int:
    found = folder / "out" / "checkpoint" / "generations"
    return len(list(found.glob("[0-9]*.json")))


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("every", sampled([1, 3], of=1))
@pytest.mark.parametrize("seed", sampled(range(1, 7), of=6))
def test_views_and_parts_of_cubes_are_those_of_the_rows(tmp_path: Path, seed: int, every: int) -> None:
    draw = random.Random(seed)
    stream = OrdersStream(tmp_path / "in", seed, QUERIES)
    moved = 0
    for _ in range(7):
        stream.write()
        wish = draw.choice(WISHES)
        moves: list[Move] = []
        with opened(tmp_path, CUBES, snapshot_every=every, on_move=moves.append, **wish) as run:
            assert len(list(run.steps())) == 1
            assert not wish or run.identity.plan.buckets == wish.get("buckets", 1)
        moved += len(moves)
        last = read_manifest(tmp_path / "out", stream.epoch)
        assert last.generation == in_force(tmp_path) == moved
        assert last.totals["events"] == stream.events
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            folded = OutputFolder(tmp_path / "out").fold(view, by, where, epoch=stream.epoch).finish().to_pylist()
            assert same_bag([tuple(row.values()) for row in folded], stream.answers[stream.epoch][f"{at}"]), (view, by)
    assert moved > 1
    out = tmp_path / "out"
    listed = {path for epoch in committed_epochs(out) for path in listed_files(read_manifest(out, epoch))}
    assert {str(file.relative_to(out)) for file in (out / "data").rglob("*.*")} <= listed
    assert len(list((out / "checkpoint" / "state").iterdir())) == 1


ANY_LAYOUT: list[dict[str, Any]] = [
    {"layout": "one-bucket"},
    {"layout": "judged", "buckets": 2},
    {"layout": "judged", "buckets": 3},
    {"buckets": 4},
    {"buckets": 2},
    {},
]


@pytest.mark.parametrize("seed", sampled(range(40), of=5))
def test_random_moves_between_layouts_are_not_seen(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    Stream(seed, parents_go=False).write(tmp_path / "in", 9)
    text = script(draw.sample(list(VIEWS), draw.randint(2, len(VIEWS))), draw.choice(["all", "none"]))
    program = compile_sql(text, rely=False)
    tables = sorted((tmp_path / "in").iterdir())
    sources = sources_from([f"{table.name}={table},op=op,order=seq" for table in tables], program)
    with EmbeddedRun(program, sources, tmp_path / "one", make_engine=partial(make_engine, "auto")) as run:
        list(run.steps())
    wishes, done = [], 0
    engine = partial(make_engine, draw.choice(["auto", "interpreter"]))
    while done < 9:
        wishes.append(draw.choice(ANY_LAYOUT))
        with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine, **wishes[-1]) as run:
            for _ in range(draw.randint(1, 3)):
                done += run.step(last=False) is not None
    assert not difference(tmp_path / "one", tmp_path / "out"), wishes


@pytest.mark.usefixtures("each_engine")
def test_files_that_were_read_are_not_opened_again(tmp_path: Path) -> None:
    put(tmp_path, 3)
    with opened(tmp_path) as run:
        list(run.steps())
    before = sums(tmp_path)
    for number in (1, 2):
        (tmp_path / "in" / "t" / f"{number:03}.json").unlink()
    last = tmp_path / "in" / "t" / "003.json"
    last.write_bytes(b"?" * last.stat().st_size)
    read = last.stat().st_atime_ns
    moves: list[Move] = []
    with opened(tmp_path, layout="one-round", buckets=3, on_move=moves.append) as run:
        assert run.step() is None
        assert sums(tmp_path) == before
        put(tmp_path, 1, first=4)
        assert run.step() is not None
    assert last.stat().st_atime_ns == read
    assert [str(move).split(":")[0] for move in moves] == ["1 bucket → 3 buckets (t by id), after epoch 3"]
    assert sums(tmp_path) == [(0, 7 * 4 - 3 + 0), (1, 7 * 4 + 5 * 3), (2, 6 * 4)]


def test_options_that_are_as_before_or_not_given_change_nothing(tmp_path: Path) -> None:
    put(tmp_path, 1)
    with opened(tmp_path, layout="one-round:t=id", buckets=3) as run:
        list(run.steps())
    before = tree(tmp_path)
    for options in (
        {},
        {"layout": "auto"},
        {"layout": "auto", "buckets": 3},
        {"layout": "one-round"},
        {"layout": "one-round:t=id"},
        {"buckets": 3},
    ):
        with opened(tmp_path, **options) as run:
            assert run.step() is None
            assert run.identity.plan.buckets == 3
        assert tree(tmp_path) == before, options
    with opened(tmp_path, buckets=2) as run:  # the layout that there is, in as many as are asked for
        assert run.identity.plan.buckets == 2
        assert run.identity.plan.why.startswith("2 buckets, t by id; the heaviest has ")
    with opened(tmp_path) as run:
        assert run.identity.plan.buckets == 2


def test_buckets_change_before_the_first_epoch(tmp_path: Path) -> None:
    (tmp_path / "in" / "t").mkdir(parents=True)
    with opened(tmp_path) as run:
        assert run.step() is None
    with opened(tmp_path, layout="one-round", buckets=2):
        pass
    put(tmp_path, 2)
    with opened(tmp_path) as run:
        assert len(list(run.steps())) == 2
        assert run.identity.plan.buckets == 2
    assert sums(tmp_path) == [(0, 13), (1, 19), (2, 12)]


@pytest.mark.usefixtures("each_engine")
def test_deletions_that_wait_for_a_vote_are_done_in_one_bucket_and_the_other_way_round(tmp_path: Path) -> None:
    star = compile_sql(STAR, rely=False)
    regions, shops = [{"r": 1, "region": "N"}], [{"s": at, "r": 1, "shop": "a", "phone": "1"} for at in range(3)]
    sales = [{"id": at, "s": at % 2, "g": None, "amount": at} for at in range(9)]

    def write(number: int, **tables: list[dict[str, Any]]) -> None:
        for name in ("regions", "shops", "goods", "sales"):
            json_lines(tmp_path / "in" / name / f"{number:03}.json", tables.get(name, []))

    write(1, regions=regions, shops=shops, sales=sales)
    write(2, shops=[{**shop, "op": "d"} for shop in shops[1:]])
    with opened(tmp_path, star, layout="one-round", buckets=3) as run:
        assert [run.step(last=False) is not None for _ in range(2)] == [True, True]
    assert read_manifest(tmp_path / "out", 2).poll["asked"] == 2
    with opened(tmp_path, star, layout="one-bucket") as run:
        assert [epoch.counts["waiting"] for epoch in run.steps()] == [1]  # without a file: one of both may go
    assert shown(tmp_path / "out")["shops_there"] == [(1, 2)]
    with opened(tmp_path, star, layout="one-round", buckets=2) as run:
        assert run.step() is None  # there are sales of the other one
        write(3, sales=[{**sale, "op": "d"} for sale in sales if sale["s"] == 1])
        assert [epoch.counts["waiting"] for epoch in run.steps()] == [1, 0]
    assert shown(tmp_path / "out")["shops_there"] == [(1, 1)]


def call(*command: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in command], catch_exceptions=False)


@pytest.mark.parametrize("keep", [100, 2])
def test_a_recheck_follows_the_buckets_of_the_run(tmp_path: Path, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    star = Star(tmp_path / "in", 78)
    Path("star.sql").write_text(STAR)
    run = ("run", "star.sql", "--from", "in", "--out", "out", "--host", "embedded", "--keep", keep)
    for options in (("one-bucket",), ("one-round", "--buckets", 3), ("one-round", "--buckets", 2), ("one-bucket",)):
        star.write()
        told = call(*run, "--layout", *options)
        assert told.exit_code == 0, told.output
        assert call("recheck", "out").exit_code == 0, options
        while star.settle():
            pass
    told = call(*run)
    assert "reshape" not in told.output
    assert json.loads(Path("out/origin.json").read_text())["later"][0]["epoch"] == 1
    assert call("recheck", "out").exit_code == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, 2)
    Path("t.sql").write_text(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, x INT); CREATE VIEW v AS SELECT k, SUM(x) AS s FROM t GROUP BY k;"
    )
    run = ("run", "t.sql", "--from", "in", "--out", "out", "--host", "embedded")
    with pytest.raises(UsageError, match="there is no checkpoint to reshape"):
        call(*run, "--dry-run")
    assert call(*run).exit_code == 0
    before, times = tree(tmp_path), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    told = call(*run, "--dry-run", "--layout", "one-round", "--buckets", 3).output
    assert told.startswith("dry run: 1 bucket → 3 buckets (t by id), after epoch 2: ")
    assert told.endswith(" kB of state, in about 1 s; nothing was changed\n")
    assert call(*run, "--dry-run").output.startswith("dry run: nothing to reshape")
    with pytest.raises(LayoutError):
        call(*run, "--dry-run", "--layout", "one-round:t=nothing")
    with pytest.raises(UsageError, match="--host cluster, which does not reshape"):
        call(*run[:-1], "cluster", "--dry-run")
    assert (tree(tmp_path), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}) == (before, times)
    assert call(*run, "--layout", "one-round", "--buckets", 3).output.startswith(
        "reshape: 1 bucket → 3 buckets (t by id), after epoch 2: "
    )


def _newer_form(checkpoint: Path) -> None:
    (checkpoint / "generations").mkdir()
    (checkpoint / "generations" / "1.json").write_text(json.dumps({"form": 2, "number": 1, "shards": 3}))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


REFUSALS: dict[str, tuple[Any, dict[str, Any], type[CumulusError], str]] = {
    "no such column": (None, {"layout": "one-round:t=nothing"}, LayoutError, "t: 'nothing' is no column"),
    "a torn log": (lambda at: _cut(at / "embedded" / "2-0.log"), {}, StoreError, r"embedded/2-0\.log: .* is torn"),
    "no log": (
        lambda at: (at / "embedded" / "1-0.log").unlink(),
        {},
        StoreError,
        r"embedded/1-0\.log: .*cannot be read",
    ),
    "a newer form": (_newer_form, {}, MismatchError, r"generations/1\.json: a later release has made this"),
    "a torn generation": (
        lambda at: json_lines(at / "generations" / "1.json", [{"form": 1}]),
        {},
        StoreError,
        r"generations/1\.json: this generation of the checkpoint cannot be read",
    ),
    "an unknown layout": (None, {"layout": "two-rounds"}, UsageError, "unknown layout"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path, case: str) -> None:
    harm, options, error, message = REFUSALS[case]
    put(tmp_path, 2)
    with opened(tmp_path) as run:
        list(run.steps())
    if harm is not None:
        harm(tmp_path / "out" / "checkpoint")
    before = tree(tmp_path)
    with pytest.raises(error, match=message) as told:
        opened(tmp_path, **{"layout": "one-round", "buckets": 3} | options)
    assert told.value.hint
    assert tree(tmp_path) == before


@pytest.mark.parametrize("harm", [_cut, Path.unlink])
def test_a_part_of_a_new_generation_that_is_damaged_is_named(tmp_path: Path, harm: Any) -> None:
    put(tmp_path, 1)
    for _ in range(2):
        with opened(tmp_path, layout="one-round", buckets=2 + (tmp_path / "out").exists()) as run:
            list(run.steps())
    [state] = (tmp_path / "out" / "checkpoint" / "state").iterdir()
    harm(state / "1" / "1")
    with pytest.raises(StoreError, match=rf"{state.name}/1/[01]: ") as told:
        opened(tmp_path)
    assert "bring it back from a copy" in str(told.value.hint)


def test_a_run_that_holds_the_checkpoint_goes_on(tmp_path: Path) -> None:
    put(tmp_path, 1)
    with opened(tmp_path) as run:
        assert run.step() is not None
        before = tree(tmp_path)
        with pytest.raises(LockedError, match="another run is using this checkpoint"):
            opened(tmp_path, layout="one-round", buckets=3)
        assert tree(tmp_path) == before
        put(tmp_path, 1, first=2)
        assert run.step() is not None


@pytest.mark.parametrize("size", [10, 3_000])
def test_a_disk_without_room_leaves_the_buckets_of_before(tmp_path: Path, size: int) -> None:
    put(tmp_path, 3)
    rows = [{"id": 10_000 + at, "k": at * 7919 % 100_003, "x": at} for at in range(5000)]
    json_lines(tmp_path / "in" / "t" / "004.json", rows)
    with opened(tmp_path) as run:
        list(run.steps())
    before, found = tree(tmp_path), sums(tmp_path)
    with room(size), pytest.raises(StoreError, match="cannot be written: File too large") as told:
        opened(tmp_path, layout="one-round", buckets=3)
    assert told.value.hint
    assert tree(tmp_path) == before
    put(tmp_path, 1, first=5)
    with opened(tmp_path, layout="one-round", buckets=3) as run:
        assert len(list(run.steps())) == 1
        assert run.identity.plan.buckets == 3
    assert len(sums(tmp_path)) == len(found)


def test_rows_that_break_a_key_are_refused_where_it_would_be_checked(tmp_path: Path) -> None:
    assert choose_plan(PLAIN, "one-round:t=k", 8).why.endswith("not checked: the primary key of t")
    json_lines(tmp_path / "in" / "t" / "1.json", [{"id": 1, "k": 0, "x": 1}, {"id": 1, "k": 1, "x": 2}])
    with opened(tmp_path, layout="one-round:t=k", buckets=8) as run:
        list(run.steps())
        assert run.identity.plan.buckets == 8
    before = tree(tmp_path)
    with pytest.raises(LayoutError, match=r"would check the primary key of t, and several rows have \(1,\)"):
        opened(tmp_path, layout="one-round:t=id", buckets=8)
    assert tree(tmp_path) == before
    json_lines(tmp_path / "in" / "t" / "2.json", [{"id": 1, "k": 1, "x": 2, "op": "d"}])
    with opened(tmp_path) as run:
        list(run.steps())
    with opened(tmp_path, layout="one-round:t=id", buckets=8) as run:
        assert run.identity.plan.why.startswith(
            "8 buckets, t by id; the heaviest has 60% of the work, 4.8 times its part;"
        )
    assert sums(tmp_path) == [(0, 1)]


@pytest.mark.kill
@pytest.mark.parametrize("wish", ["in-reshape:1", "in-reshape:3", "before-generation:1", "after-generation:1"])
def test_a_run_that_is_killed_while_it_reshapes_has_lost_nothing(tmp_path: Path, wish: str) -> None:
    stream = OrdersStream(tmp_path / "in", 22, QUERIES)
    for _ in range(3):
        stream.write()
    (tmp_path / "cubes.sql").write_text(SCRIPT)

    def run(*options: str, **environment: str) -> int:
        command = [sys.executable, "-c", "from cumulus.cli.main import main; main()", "run", tmp_path / "cubes.sql"]
        command += ["--from", tmp_path / "in", "--out", tmp_path / "out", "--host", "embedded", *options]
        return subprocess.run(list(map(str, command)), env={**os.environ, **environment}, check=False).returncode

    assert run() == 0
    options = ("--layout", "one-round:orders=oid+lineitem=oid", "--buckets", "3")
    assert run(*options, CUMULUS_CRASH=wish, CUMULUS_CRASH_DIR=str(tmp_path)) == -signal.SIGKILL
    is_new = wish.startswith("after")
    assert in_force(tmp_path) == is_new
    old = tmp_path / "out" / "checkpoint" / "embedded"
    assert old.is_dir()
    assert call("recheck", tmp_path / "out").exit_code == 0
    stream.write()
    assert run(*options if wish.endswith("1") else ()) == 0  # asked for again, or not
    assert in_force(tmp_path) == (is_new or wish.endswith("1"))
    assert old.is_dir() == (in_force(tmp_path) == 0)
    assert call("recheck", tmp_path / "out").exit_code == 0
    for epoch in committed_epochs(tmp_path / "out"):
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            folded = OutputFolder(tmp_path / "out").fold(view, by, where, epoch=epoch).finish().to_pylist()
            assert same_bag([tuple(row.values()) for row in folded], stream.answers[epoch][f"{at}"]), (epoch, view, by)
    states = tmp_path / "out" / "checkpoint" / "state"
    assert len(list(states.iterdir()) if states.exists() else ()) == in_force(tmp_path)
