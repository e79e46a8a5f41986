"""Homes by example: what the planner chooses, what counts and hints change, and what is told of wrong ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cumulus.catalog.types import INTEGER
from cumulus.cluster.placement.home_costs import HomeCosts, estimated_rows, various_columns
from cumulus.cluster.placement.layout import ClusterLayout, FinishedBy
from cumulus.cluster.placement.segments import flows
from cumulus.cluster.placement.statement_placement import choose_homes, cost_of_homes, homes_asked_for
from cumulus.compiler import compile_sql
from cumulus.errors import UsageError
from cumulus.explain.sizes import Statistics
from cumulus.m3 import parse
from cumulus_lab.workloads import benchmark
from support.random_homes import random_statistics
from support.random_programs import RandomProgram
from support.tiers import sampled

SHOP = compile_sql((Path(__file__).parents[2] / "examples" / "shop.sql").read_text(), batches=False)


def homes_by_table(program, homes) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for (index, _), home in homes.items():
        found.setdefault(program.triggers[index].relation, set()).add(home)
    return found


def test_example_2_1_of_the_consistency_paper():
    """Orders and line items meet on the node of the order; a customer's nation is known everywhere."""
    homes = choose_homes(SHOP, Statistics())
    assert homes_by_table(SHOP, homes) == {"customers": {"cid"}, "orders": {"oid"}, "lineitem": {"oid"}}
    layout = ClusterLayout(SHOP, homes, 4)
    definitions = {each.name: str(each.definitions[0]) for each in SHOP.maps}
    assert {definitions[name]: layout.text(name) for name in definitions} == {
        "SUM[nation](customers(cid, nation) * orders(cid, oid, discount) * lineitem(oid, price))": "by nation",
        "SUM[cid](orders(cid, oid, discount) * lineitem(oid, price))": "by cid",
        "SUM[nation, oid](customers(cid, nation) * orders(cid, oid, discount))": "by oid",
        "customers(cid, nation)": "by cid; on every node",
        "SUM[oid](lineitem(oid, price))": "by oid",
        "SUM[cid, oid](orders(cid, oid, discount))": "by oid; by cid",
    }
    assert layout.placement_of_view("revenue").by is FinishedBy.NODES


def test_counts_decide_what_is_everywhere():
    """With more customers than line items it is their sums that every node has, not the nations."""
    many = Statistics({"customers": 10**6, "orders": 10**4, "lineitem": 10**3})
    homes = choose_homes(SHOP, many)
    assert homes_by_table(SHOP, homes) == {"customers": {"cid"}, "orders": {"cid"}, "lineitem": {"oid"}}


@pytest.mark.parametrize("keys", ["none", "primary", "foreign"])
def test_tpch_q3_computes_orders_and_items_together(keys):
    program = compile_sql(benchmark("tpch").sql("q3", keys=keys), rely=False, enforced=False, batches=False)
    homes = choose_homes(program, Statistics())
    assert homes_by_table(program, homes) == {
        "customer": {"c_custkey"},
        "orders": {"o_orderkey"},
        "lineitem": {"l_orderkey"},
    }
    layout = ClusterLayout(program, homes, 2)
    [view] = program.views
    assert layout.text(view.maps[0]) == "by l_orderkey"
    assert layout.placement_of_view(view.name).by is FinishedBy.MERGE  # it has an order and a limit


def test_a_hint_is_kept():
    assert homes_asked_for(SHOP, ["ORDERS.cid", "lineitem.price"]) == {"orders": "cid", "lineitem": "price"}
    homes = choose_homes(SHOP, Statistics(), {"orders": "cid"})
    assert homes_by_table(SHOP, homes)["orders"] == {"cid"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["nobody.x"], "--home nobody.x: there is no table 'nobody'\nWrite --home TABLE.COLUMN; tables: customers,"),
        (["orders"], "--home orders: it names no column of a table\nWrite --home TABLE.COLUMN; tables: customers,"),
        (["orders.x"], "--home orders.x: orders has no column 'x'\nIts columns are cid, oid, discount."),
        (["orders.cid", "orders.oid"], "two homes for orders: cid and oid\nGive --home once for a table."),
    ],
)
def test_a_wrong_hint_is_told(texts, message):
    with pytest.raises(UsageError) as caught:
        homes_asked_for(SHOP, texts)
    assert str(caught.value).startswith(message)


def test_only_what_no_column_helps_is_computed_on_node_0():
    text = "RELATION r(a INT, b INT); ON +r(a, b) { q[] += total[] * a; p[] += m[b]; total[] += a; m[b] += a }"
    program = parse(text)
    small = choose_homes(program, Statistics({"r": 10}))
    assert small[0, 1] == small[0, 3] == "b"
    assert small[0, 0] in (None, "b")


def test_a_table_that_refers_to_another_is_larger():
    program = parse("RELATION p(k INT) KEY (k); RELATION c(k INT) FOREIGN KEY (k) REFERENCES p (k);")
    assert estimated_rows(program, Statistics()) == {"p": 1000, "c": 4000}
    assert estimated_rows(program, Statistics({"p": 10})) == {"p": 10, "c": 40}


def test_a_relation_without_columns_has_no_home():
    program = parse("RELATION r(); ON +r() { q[] += 1 }")
    assert choose_homes(program, Statistics()) == {(0, 0): None}
    assert program.maps[0].values[0].type in (None, INTEGER)


@pytest.mark.parametrize("seed", sampled(range(40), of=10))
def test_the_cheapest_homes_are_the_least_of_all(seed):
    """All homes of all flows, one by one, against those that the search leaves out."""
    rng = random.Random(seed)
    program = parse(RandomProgram(seed).text())
    statistics = random_statistics(rng, program)
    found, homes = flows(program), choose_homes(program, statistics)
    columns = {each.name: each.column_names for each in program.relations}
    told = cost_of_homes(program, homes, statistics, most=1_000_000)
    costs = HomeCosts(program, list(found), statistics)
    costs.homes.update({flow: homes[places[0]] for flow, places in found.items()})
    assert told.chosen == pytest.approx(costs.total())
    assert told.cheapest is not None
    assert told.cheapest <= told.chosen
    for _ in range(200):
        costs.homes.update({flow: rng.choice(columns[flow.relation]) for flow in found})
        home_of = {flow: rng.choice([*columns[flow.relation]]) for flow in found}
        costs.homes.update(home_of)
        assert costs.total() >= told.cheapest * (1 - 1e-9) or not candidates_only(program, found, home_of)


def candidates_only(program, found, home_of) -> bool:
    """Whether the planner would have taken these columns into account."""
    used = {
        (flow.relation, column)
        for flow in found
        for read in flow.reads
        for column in read.columns
        if column is not None
    } | set(various_columns(program))
    return all((flow.relation, column) in used for flow, column in home_of.items())


def test_too_many_homes_are_not_looked_at():
    found = cost_of_homes(SHOP, choose_homes(SHOP, Statistics()), Statistics(), most=3)
    assert found.cheapest is None
    assert found.chosen > 0
