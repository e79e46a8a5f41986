"""A star in several buckets: facts are spread, dimensions everywhere, and every key stays enforced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cumulus.catalog.events import DELETE
from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.integrity import references
from cumulus.epochs.bucket.net_changes import InputChange
from cumulus.epochs.bucket.votes import Deletion, Poll, Voter
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from support.engines import engine_of
from support.orders_stream import json_lines
from support.star_stream import COLUMNS, STAR, Star, shown
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")


def opened(tmp_path: Path, buckets: int, **options: Any) -> EmbeddedRun:
    program = compile_sql(STAR, rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    layout = "one-round" if buckets > 1 else "one-bucket"
    return EmbeddedRun(
        program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=buckets, **options
    )


def test_a_star_is_spread_and_its_keys_are_enforced() -> None:
    program = compile_sql(STAR, rely=False)
    assert all(key.enforced for relation in program.relations for key in relation.foreign_keys)
    plan = choose_plan(program, "auto", 4)
    assert plan.partitioned == {"sales": ("id",)}
    assert plan.why == (
        "4 buckets, sales by id; in all of them regions, shops, goods; the heaviest has 28% of the work; a deletion "
        "from goods or shops counts an epoch later, when no bucket has rows that "
        "refer to it"
    )


@pytest.mark.parametrize("seed", sampled(range(12), of=12, first=4))
def test_every_epoch_is_what_the_tables_say(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.epochs.epoch_log.LEAST_LOG_BYTES", 2000)
    star = Star(tmp_path / "in", seed)
    buckets = 2 + seed % 3
    asked = 0
    for _ in range(12):
        star.write()
        with opened(tmp_path, buckets, late_epochs=99) as run:  # each goes on where the last one ended
            expected = {star.epoch: star.answers()}
            while star.settle():
                expected[star.epoch] = star.answers()
            assert [epoch.number for epoch in run.steps()] == list(expected)
        for epoch, answers in expected.items():
            assert shown(tmp_path / "out", epoch) == answers, epoch
            asked += read_manifest(tmp_path / "out", epoch).poll.get("asked", 0)
    assert asked > 0
    assert query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine").to_pylist() == [{"n": 0}]


def write(folder: Path, **tables: list[dict[str, Any]]) -> None:
    """Write the files of the next epoch."""
    number = len(list((folder / "sales").glob("*"))) + 1
    for name in COLUMNS:
        json_lines(folder / name / f"{number:03d}.json", tables.get(name, []))


REGION = {"r": 1, "region": "N"}
SHOPS = [{"s": shop, "r": 1, "shop": "abc"[shop]} for shop in range(3)]
GOODS = [{"g": 1, "kind": "x", "weight": 2}, {"g": 2, "kind": "y", "weight": 3}]
SALES = [{"id": at, "s": at % 2, "g": 1, "amount": at} for at in range(20)]


def totals(out: Path) -> Iterator[tuple[int, int, int, int]]:
    for epoch in committed_epochs(out):
        manifest = read_manifest(out, epoch)
        found = manifest.totals
        assert found["events"] == found["applied"] + found["quarantined"] + manifest.counts["waiting"]
        yield epoch, found["applied"], manifest.counts["waiting"], found["quarantined"]


def test_a_parent_with_children_anywhere_stays(tmp_path: Path) -> None:
    write(tmp_path / "in", regions=[REGION], shops=SHOPS, goods=GOODS, sales=SALES)
    write(tmp_path / "in", shops=[{**shop, "op": "d"} for shop in SHOPS])
    write(tmp_path / "in", sales=[{**sale, "op": "d"} for sale in SALES if sale["s"] == 1])
    write(tmp_path / "in")
    write(tmp_path / "in")
    with opened(tmp_path, 4, late_epochs=2) as run:
        assert len(list(run.steps())) == 5
    shops = [shown(tmp_path / "out", epoch)["shops_there"] for epoch in committed_epochs(tmp_path / "out")]
    assert shops == [[(1, 3)], [(1, 3)], [(1, 2)], [(1, 1)], [(1, 1)]]
    polls = [read_manifest(tmp_path / "out", epoch).poll for epoch in committed_epochs(tmp_path / "out")]
    assert [poll.get("asked", 0) for poll in polls] == [0, 3, 2, 1, 0]
    assert [[each[0] for each in poll.get("objections", ())] for poll in polls] == [
        [],
        ["shops"] * 2,
        ["shops"],
        ["shops"],
        [],
    ]
    refused = query(tmp_path / "out", "SELECT epoch, reason, row FROM quarantine").to_pylist()
    assert [(each["epoch"], each["reason"].split(":")[0], each["row"][:12]) for each in refused] == [
        (5, "parent with children", "-shops(s=0, ")
    ]
    assert list(totals(tmp_path / "out"))[-1] == (5, 1 + 3 + 2 + 20 + 2 + 10, 0, 1)


def test_a_parent_that_comes_again_is_not_deleted(tmp_path: Path) -> None:
    write(tmp_path / "in", regions=[REGION], shops=SHOPS, goods=GOODS, sales=SALES)
    write(tmp_path / "in", goods=[{**GOODS[0], "op": "d"}, {**GOODS[1], "op": "d"}])
    write(tmp_path / "in", goods=[{**GOODS[0], "kind": "z"}, {**GOODS[1], "kind": "w"}])
    with opened(tmp_path, 3) as run:
        assert len(list(run.steps())) == 3
    kinds = [shown(tmp_path / "out", epoch)["kinds"] for epoch in (1, 2, 3)]
    assert kinds == [[("x", 1), ("y", 1)]] * 2 + [[("w", 1), ("z", 1)]]


def test_a_child_of_a_parent_that_is_to_go_keeps_it(tmp_path: Path) -> None:
    write(tmp_path / "in", regions=[REGION], shops=SHOPS, goods=GOODS, sales=SALES)
    late = [{"id": 50 + at, "s": 2, "g": 2, "amount": 1} for at in range(3)]
    write(tmp_path / "in", shops=[{**SHOPS[2], "op": "d"}], sales=late[:1])
    write(tmp_path / "in", goods=[{**GOODS[1], "op": "d"}], sales=[{**late[0], "op": "d"}])
    write(tmp_path / "in", sales=late[1:])
    with opened(tmp_path, 3) as run:
        assert len(list(run.steps())) == 4
    out = tmp_path / "out"
    assert [read_manifest(out, epoch).poll.get("asked", 0) for epoch in (1, 2, 3, 4)] == [0, 1, 2, 0]
    assert [epoch["shops_there"] for epoch in (shown(out, at) for at in (2, 3, 4))] == [
        [(1, 3)],
        [(1, 3)],
        [(1, 2)],
    ]
    assert list(totals(out))[-1] == (4, 26 + 1 + 1 + 1 + 1, 2, 0)  # the late ones wait for shop and goods


def test_all_goods_go_at_once(tmp_path: Path) -> None:
    write(tmp_path / "in", regions=[REGION], shops=SHOPS, goods=GOODS, sales=SALES)
    write(tmp_path / "in", goods=[{"op": "truncate"}], sales=[{"op": "truncate"}])
    with opened(tmp_path, 3) as run:
        assert len(list(run.steps())) == 3
    assert [shown(tmp_path / "out", epoch)["kinds"] for epoch in (1, 2, 3)] == [
        [("x", 1), ("y", 1)],
        [("x", 1), ("y", 1)],
        [],
    ]


def test_the_rows_of_a_truncation_have_the_same_numbers_in_any_order() -> None:
    program = compile_sql(STAR, rely=False)
    tables = {each.name: each for each in program.relations}
    there = {"sales": {(1,): 2, (2,): 0}, "shops": {}}

    def count(relation: str, places: tuple[int, ...], values: tuple[Any, ...], most: int) -> int:
        return there.get(relation, {}).get(values, 0)

    voter = Voter(references(tables), {"sales": "id"}, count)
    waiting = [InputChange("goods", DELETE, (key, "x", 1), None, "goods/1", 7, 3) for key in (1, 2)]
    poll = voter.vote(waiting)
    assert poll == voter.vote(waiting[::-1]) == Poll(2, frozenset({Deletion("goods", "goods/1", 7, 0)}))
    assert voter.granted(waiting, poll) == voter.granted(waiting[::-1], poll) == [waiting[1]]
    assert Poll.of_plain(json.loads(json.dumps(poll.plain()))) == poll


def test_a_recheck_votes_as_the_run_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    star = Star(tmp_path / "in", 77)
    (tmp_path / "star.sql").write_text(STAR)
    asked = 0
    for _ in range(6):
        star.write()
        told = call("run star.sql --from in --out out --host embedded --layout one-round --buckets 3")
        assert told.exit_code == 0, told.output
        while star.settle():
            pass
        asked += sum(read_manifest("out", epoch).poll.get("asked", 0) for epoch in committed_epochs("out"))
        assert call("recheck out").exit_code == 0
    assert asked > 0
    assert shown(tmp_path / "out") == star.answers()


def test_a_recheck_knows_of_epochs_without_files_that_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "star.sql").write_text(STAR)
    write(tmp_path / "in", regions=[REGION], shops=SHOPS, goods=GOODS, sales=SALES)
    write(tmp_path / "in", goods=[{**GOODS[1], "op": "d"}])
    told = call("run star.sql --from in --out out --host embedded --layout one-round --buckets 3 --keep 1")
    assert told.exit_code == 0, told.output
    assert committed_epochs("out") == [3]
    assert call("recheck out").exit_code == 0


def call(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), catch_exceptions=False)
