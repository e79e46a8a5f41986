"""`cumulus cluster plan` as a user calls it.

`CUMULUS_GOLDEN=write pytest tests/cli/test_cluster_plan.py` writes what it says of the shop anew.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus import m3
from cumulus.cli.main import app
from cumulus.errors import CumulusError, InputError, UsageError
from cumulus_lab.experiments.cluster_programs import M3
from support.tiers import sampled

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "shop_plan.txt"
NESTED = "CREATE VIEW most AS SELECT COUNT(DISTINCT oid) AS n FROM orders;"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shop = (ROOT / "examples" / "shop.sql").read_text(encoding="utf-8")
    (tmp_path / "shop.sql").write_text(shop, encoding="utf-8")
    (tmp_path / "both.sql").write_text(f"{shop}\n{NESTED}", encoding="utf-8")
    return tmp_path


def told(command: str) -> str:
    found = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_plan_of_the_shop_is_as_written():
    text = told("cluster plan shop.sql --nodes 2 --switches 2")
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_json_has_the_content_of_the_text():
    found = json.loads(told("cluster plan both.sql --nodes 2 --switches 2 --json"))
    assert {name: found[name] for name in ("nodes", "switches", "mode")} == {
        "nodes": 2,
        "switches": 2,
        "mode": "eventual",
    }
    assert found["spread"]["views"] == [{"name": "revenue", "finished": "nodes", "by": "nation"}]
    assert [view["name"] for view in found["gated"]["views"]] == ["most"]
    assert found["gated"]["views"][0]["why"]
    assert all(each["why"] and each["statement"] and each["on"] for each in found["gated"]["statements"])
    assert found["gated"]["layout"]["buckets"] == len(found["gated"]["layout"]["nodes"])
    assert {(each["table"], each["column"]) for each in found["homes"]} == {
        ("customers", "cid"),
        ("orders", "oid"),
        ("lineitem", "oid"),
    }
    [everywhere] = [each for each in found["maps"] if {"reach": "every", "key": None} in each["replicas"]]
    assert everywhere["replicas"][0] == {"reach": "key", "key": "cid"}
    to = {(each["table"], each["map"]): each["to"] for each in found["network"]}
    assert to["customers", everywhere["name"]] == ["on every node"]
    assert {each["name"]: each["switch"] for each in found["tables"]}.keys() == {"customers", "orders", "lineitem"}
    assert found["checked"] == []
    assert {"what": "deletions of orders", "why": "its rows are not kept"} in found["unchecked"]
    text = told("cluster plan both.sql --nodes 2 --switches 2")
    assert found["gated"]["layout"]["why"] in text
    assert found["gated"]["views"][0]["why"] in text


def test_maps_that_follow_the_order_of_events_are_named(folder: Path):
    (folder / "hand.m3").write_text(HAND_WRITTEN["semester paper, example 2.1"], encoding="utf-8")
    text = told("cluster plan hand.m3 --nodes 2")
    assert "\nin the order of events, as they have no definitions\n  m1, m2, m3\n" in text
    assert json.loads(told("cluster plan hand.m3 --nodes 2 --json"))["by_order"] == ["m1", "m2", "m3"]
    assert json.loads(told("cluster plan shop.sql --nodes 2 --json"))["by_order"] == []


def test_the_program_of_a_node_is_m3_that_compiles(folder: Path):
    text = told("cluster plan shop.sql --nodes 2 --program")
    (folder / "node.m3").write_text(text, encoding="utf-8")
    assert told("compile node.m3") == text
    assert str(m3.parse(text)) == text
    assert json.loads(told("cluster plan shop.sql --nodes 2 --program --json"))["program"] == text
    # The program does not depend on how many nodes run it.
    assert told("cluster plan shop.sql --nodes 7 --program") == text


def test_counts_and_hints_move_homes():
    def home_of_orders(options: str) -> set[str]:
        found = json.loads(told(f"cluster plan shop.sql --nodes 2 --json {options}"))
        return {each["column"] for each in found["homes"] if each["table"] == "orders"}

    assert home_of_orders("") == {"oid"}
    assert home_of_orders("--rows customers=1_000_000 --rows orders=10000 --rows lineitem=1000") == {"cid"}
    assert home_of_orders("--home Orders.CID") == {"cid"}


def test_messages_of_an_epoch_are_counted_without_rows():
    text = told("cluster plan shop.sql --nodes 3 --switches 2 --messages")
    assert text.splitlines()[:2] == ["eventual, 3 nodes", "for each epoch"]
    for mode, checkpoints in (("eventual", 18), ("four-logs", 12), ("ticks", 0), ("gated", 0)):
        found = json.loads(told(f"cluster plan shop.sql --nodes 3 --switches 2 --mode {mode} --messages --json"))
        assert found.keys() == {"of_an_epoch"}
        assert found["of_an_epoch"]["MapCheckpoint"] == checkpoints


def test_all_can_be_gated():
    found = json.loads(told("cluster plan shop.sql --nodes 2 --mode gated --json"))
    assert found["spread"] == {"views": [], "maps": [], "statements": 0}
    assert found["gated"]["layout"]["buckets"] == 2
    assert "spread: nothing" in told("cluster plan shop.sql --nodes 2 --mode gated")


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("cluster plan nothing.sql --nodes 2", InputError, "cannot read nothing.sql: No such file"),
        ("cluster plan shop.sql --nodes 2 --home orders.x", UsageError, "orders has no column 'x'"),
        ("cluster plan shop.sql --nodes 2 --home x.oid", UsageError, "there is no table 'x'"),
        ("cluster plan shop.sql --nodes 2 --rows x=1", UsageError, "no table 'x'"),
        ("cluster plan shop.sql --nodes 2 --mode gated --home orders.oid", UsageError, "no statement of it is spread"),
        ("cluster plan shop.sql --nodes 2 --mode gated --program", UsageError, "nothing is spread"),
        ("cluster plan shop.sql --nodes 2 --mode gated --messages --from .", UsageError, "nothing is spread"),
    ],
)
def test_what_is_wrong_is_told_with_a_way_out(command: str, kind: type[CumulusError], message: str):
    with pytest.raises(kind) as caught:
        CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    assert message in caught.value.message
    assert caught.value.args[0] != caught.value.message, "no way out"


DIRECTIVES = """
tree: along which nodes send blocks on, 1 hop behind the root, node 0
  0 to 1

directives: for the classes of a row's values, which nodes send what to whom, and which add

  customers → revenue[nation]: nation in 2 parts, cid in 2 parts
    0 0  m1[cid] 0→0; add on 0
    0 1  m1[cid] 1→0; add on 0
    1 0  m1[cid] 0→1; add on 1
    1 1  m1[cid] 1→1; add on 1

  customers → m2[nation, *]: the same for all rows
    m5[cid, *] 0→0, 1→1; add on 0 1
"""


def test_directive_tables_are_printed_and_in_json():
    """m5[cid, oid] and m2[nation, oid] lie by oid, so each node has what it reads for itself."""
    command = "cluster plan shop.sql --nodes 2 --mode central-target --dispatch directives"
    assert DIRECTIVES in told(command)
    tables = json.loads(told(f"{command} --json"))["directives"]
    assert tables[0] == {
        "table": "customers",
        "adds_to": "revenue[nation]",
        "columns": [{"name": name, "parts": 2, "bounds": []} for name in ("nation", "cid")],
        "cells": [
            {"classes": [a, b], "reads": [{"entries": "m1[cid]", "from": b, "to": [a]}], "adds_on": [a]}
            for a in (0, 1)
            for b in (0, 1)
        ],
    }
    assert "directives:" not in told("cluster plan shop.sql --nodes 2 --mode central-target")
    assert json.loads(told("cluster plan shop.sql --nodes 2 --mode central-target --json"))["directives"] == []


def test_of_large_tables_the_first_cells_are_printed():
    command = "cluster plan shop.sql --nodes 10 --mode central-target --dispatch directives"
    text = told(command)
    assert text.count("and 68 cells more; --json has all") == 4
    assert "2 hops" not in told(f"{command} --arity 1")
    assert "9 hops behind the root" in told(f"{command} --arity 1")
    assert [len(each["cells"]) for each in json.loads(told(f"{command} --json"))["directives"]].count(100) == 4


def test_cuts_at_values_are_classes_between_their_bounds():
    command = "cluster plan shop.sql --nodes 6 --mode central-target --dispatch directives --cut orders.oid=2"
    text = told(f"{command} --cut customers.cid@5,20")
    assert "orders → m5[cid, oid]: oid in 2 parts, cid in 3 parts at 5, 20" in text


@pytest.mark.parametrize("options", ["--nodes 0", "", "--nodes 1 --switches 0", "--nodes 1 --switches 129"])
def test_numbers_of_machines_are_checked(options: str):
    found = CliRunner().invoke(app, shlex.split(f"cluster plan shop.sql {options}"))
    assert found.exit_code == 2
    assert "--nodes" in found.output or "--switches" in found.output


HAND_WRITTEN = {
    "semester paper, example 2.1": """RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT);
        MAP m3[B INT](v BIGINT); ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
    "a map without a definition in a condition": """RELATION r(a INTEGER, x INTEGER); MAP q[a INTEGER](s HUGEINT);
        MAP p[a INTEGER](s HUGEINT); ON +r(a, x) { q[a] += {p[a] > 2} * x; p[a] += x; }""",
    "semester paper, example 3.2": """RELATION r(a INTEGER, x INTEGER); MAP q[a INTEGER](s HUGEINT);
        MAP p[a INTEGER](s HUGEINT); ON +r(a, x) { q[a] += p[a] * x; p[a] += q[a]; }""",
    "with definitions": M3["hand-written"],
    "an interval": """RELATION r(a INTERVAL); MAP q[a INTERVAL](n BIGINT) COUNT n = r(a);
        VIEW v(a INTERVAL) FROM q SELECT a; ON +r(a) { q[a].n += 1; } ON -r(a) { q[a].n += -1; }""",
}


@pytest.mark.parametrize("name", sampled(HAND_WRITTEN, of=5))
def test_what_is_planned_can_be_started_and_what_is_refused_is_refused_alike(folder: Path, name: str) -> None:
    (folder / "hand.m3").write_text(HAND_WRITTEN[name], encoding="utf-8")
    for relation in m3.parse(HAND_WRITTEN[name]).relations:
        (folder / "in" / relation.name).mkdir(parents=True)
    sentences = []
    for command in (
        "cluster plan hand.m3 --nodes 2",
        "cluster start hand.m3 --home live --nodes 2 --switches 1",
        "run hand.m3 --from in --out out --host cluster --nodes 2 --switches 1",
    ):
        found = CliRunner().invoke(app, shlex.split(command))
        sentences.append(found.exception.message if isinstance(found.exception, CumulusError) else "")
        if command.startswith("cluster start") and found.exit_code == 0:
            told("cluster stop live")
    planned = ("with definitions", "semester paper, example 2.1", "semester paper, example 3.2")
    assert bool(sentences[0]) == (name not in planned)
    assert all(bool(each) == bool(sentences[0]) and sentences[0] in each for each in sentences), sentences
