"""Plans by example: the gate's buckets, the switches' tables, who checks what, and what crosses the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster, plan_gate
from cumulus.cluster.planning.table_assignment import assign_tables, checks_of
from cumulus.compiler import compile_sql
from cumulus.epochs.layouts import polled_tables, unchecked_keys
from cumulus.errors import UsageError
from cumulus_lab.workloads import benchmark

SHOP = (Path(__file__).parents[2] / "examples" / "shop.sql").read_text()
PARENTS = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation VARCHAR NOT NULL);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT NOT NULL, FOREIGN KEY (cid) REFERENCES customers (cid));
CREATE TABLE clicks (cid INT NOT NULL, page VARCHAR);
"""


def compiled(script: str):
    return compile_sql(script, rely=False, enforced=False)


# --- the gate -------------------------------------------------------------------------------------------------------


def test_a_gate_is_spread_where_each_bucket_checks_its_rows():
    gated = compiled(f"{SHOP} CREATE VIEW most AS SELECT COUNT(DISTINCT oid) AS n FROM orders;")
    found = plan_gate(gated, 3, {"customers": 10, "orders": 1000, "lineitem": 10_000})
    assert found.nodes == (0, 1, 2)
    assert found.buckets.buckets == 3
    assert found.buckets.partitioned == {"orders": ("oid",), "lineitem": ("oid",)}
    assert found.buckets.why.startswith("3 buckets, one on each node: ")


@pytest.mark.parametrize("query", ["q13", "q18", "q20", "q22"])
@pytest.mark.parametrize("keys", ["none", "primary", "foreign"])
def test_no_gate_leaves_a_key_unchecked_or_votes(query, keys):
    gated = compiled(benchmark("tpch").sql(query, keys=keys))
    rows = {relation.name: 1000 for relation in gated.relations}
    found = plan_gate(gated, 2, rows)
    buckets = found.buckets
    assert {*found.reasons, *buckets.partitioned} == {trigger.relation for trigger in gated.triggers}
    assert all(found.reasons.values())
    assert not unchecked_keys(gated, buckets.partitioned)
    assert not polled_tables(gated, buckets.partitioned)
    if not buckets.partitioned:
        assert buckets.buckets == 1
        assert buckets.why == "one bucket on node 1, since no table can be partitioned"


def test_one_node_has_one_bucket_and_nothing_gated_none():
    gated = compiled(SHOP)
    assert plan_gate(gated, 1, {}).buckets.why == "one bucket, as there is one node"
    assert plan_cluster(gated, 2).gate is None


# --- tables of switches ---------------------------------------------------------------------------------------------


def test_tables_that_refer_to_each_other_stay_together():
    program = compiled(f"{PARENTS} CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders, clicks;")
    found = assign_tables(program, 2, {"customers": 10, "orders": 100, "clicks": 90})
    assert found.switch_of == {"customers": 0, "orders": 0, "clicks": 1}
    checks = checks_of(program, found)
    assert checks.checked == {
        "primary key and deletions of customers": "switch 0",
        "primary key and deletions of orders": "switch 0",
        "orders(cid) references customers": "switch 0",
    }
    assert checks.unchecked == {"deletions of clicks": "its rows are not kept"}


def test_a_table_has_one_switch_however_large_it_is():
    program = compiled(f"{PARENTS} CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders, clicks;")
    found = assign_tables(program, 3, {"customers": 10, "orders": 10_000, "clicks": 90_000})
    assert found.switch_of == {"customers": 1, "orders": 1, "clicks": 0}
    assert [found.tables_of(switch) for switch in range(3)] == [("clicks",), ("customers", "orders"), ()]


def test_what_is_not_kept_is_checked_by_nobody():
    text = """
    CREATE TABLE p (k INT PRIMARY KEY) WITH (keep = none);
    CREATE TABLE c (k INT PRIMARY KEY, FOREIGN KEY (k) REFERENCES p (k));
    CREATE VIEW v AS SELECT COUNT(*) AS n FROM c JOIN p USING (k);
    """
    program = compiled(text)
    found = assign_tables(program, 2, {"p": 1, "c": 1})
    assert found.switch_of["p"] != found.switch_of["c"]  # nothing links them
    assert checks_of(program, found).unchecked == {
        "primary key and deletions of p": "its rows are not kept",
        "c(k) references p": "rows of p are not kept",
    }


@pytest.mark.parametrize("switches", [1, 2, 3])
@pytest.mark.parametrize("query", ["q3", "q5", "q20"])
def test_every_table_has_its_switch_and_references_are_checked(query, switches):
    program = compiled(benchmark("tpch").sql(query, keys="foreign"))
    found = assign_tables(program, switches, {relation.name: 100 for relation in program.relations})
    assert found.switch_of.keys() == {relation.name for relation in program.relations}
    for relation in program.relations:
        for key in relation.foreign_keys:
            assert found.switch_of[relation.name] == found.switch_of[key.parent]
    assert checks_of(program, found).unchecked == {}


# --- the whole plan -------------------------------------------------------------------------------------------------


def test_what_crosses_the_network_in_example_2_1():
    """Of the Cumulus consistency paper: the sums of an order's items are needed where the order is, and stay there."""
    plan = plan_cluster(compiled(SHOP), 4)
    sent = {
        (each.relation, each.map): [
            plan.layout.set_text(each.map, one) for one, local in each.sets.items() if not local
        ]
        for each in plan.crossings
    }
    assert sent["lineitem", "m4"] == sent["orders", "m2"] == []
    assert sent["orders", "m5"] == ["by cid"]
    assert sent["customers", "m3"] == ["on every node"]
    assert plan_cluster(compiled(SHOP), 1).crossings
    assert all(all(each.sets.values()) for each in plan_cluster(compiled(SHOP), 1).crossings)


def test_views_are_spread_or_gated_as_a_whole():
    script = f"{SHOP} CREATE VIEW most AS SELECT COUNT(DISTINCT oid) AS n FROM orders;"
    plan = plan_cluster(compiled(script), 2, 2)
    assert [view.name for view in plan.division.spread.views] == ["revenue"]
    assert [view.name for view in plan.division.gated.views] == ["most"]
    assert plan.gate is not None
    gated = plan_cluster(compiled(script), 2, 2, Mode.GATED)
    assert gated.division.spread.maps == gated.crossings == ()
    assert set(gated.division.views) == {"revenue", "most"}
    assert gated.division.gated == compiled(script)


def test_a_home_where_nothing_is_spread_is_told():
    with pytest.raises(UsageError, match="a home for orders, but no statement of it is spread"):
        plan_cluster(compiled(SHOP), 2, mode=Mode.GATED, hints={"orders": "oid"})


@pytest.mark.filterwarnings("ignore::cumulus.errors.LowerOrderWarning")
@pytest.mark.parametrize("query", ["q1", "q3", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q14", "q19"])
def test_these_queries_of_tpch_are_spread(query):
    plan = plan_cluster(compiled(benchmark("tpch").sql(query, keys="foreign")), 2)
    assert plan.gate is None, plan.division.views
    assert [view.name for view in plan.division.spread.views] == [query]
