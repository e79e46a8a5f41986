"""Homes in a grid: what a statement reads lies where its rows are computed, and nothing is computed twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cumulus import m3
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.cuts import grid_asked_for
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.node_edges import edges_of_deltas
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from support.random_homes import random_homes
from support.random_programs import RandomProgram, random_events
from support.routed_nodes import assert_nodes_are_embedded
from support.spread_cases import SMALL, random_blocks, spread_program, states
from support.tiers import examples
from support.told_in_order import CentralNodes

SOURCE = [mode for mode, rules in RULES.items() if rules.has_replicas and rules.is_spread]


def random_cuts(program: Program, rng: random.Random) -> tuple[str, ...]:
    """Return cuts of one to three keys or columns, by hash or at values; none if they are of the same values."""
    keys = [(f"{each.name}.{key.name}", key) for each in program.maps for key in each.keys]
    texts = [_cut(rng, *rng.choice(keys)) for _ in range(rng.randint(1, 3))] if keys else []
    try:
        grid_asked_for(program, texts, nodes_of(texts))
    except UsageError as refused:
        assert "of the same values" in str(refused)  # noqa: PT017
        return ()
    return tuple(texts)


def _cut(rng: random.Random, name: str, key: Column) -> str:
    if key.type is None:
        return f"{name}={rng.choice((2, 3))}"
    values = {Kind.DATE: ("2020-01-01",), Kind.VARCHAR: ("", "b", "ab"), Kind.DOUBLE: ("0.1", "-3", "-inf")}
    known = values.get(key.type.kind, ("1", "0", "2"))
    return f"{name}{rng.choice(('=2', '=3', f'@{known[0]}', f'@{rng.choice(known)}'))}"


def nodes_of(cuts: Any) -> int:
    found = 1
    for text in cuts:
        found *= int(text.partition("=")[2]) if "=" in text else 2 + text.count(",")
    return found


@pytest.mark.parametrize("seed", range(examples(60)))
def test_any_grid_finds_all_that_it_reads(seed: int) -> None:
    rng = random.Random(seed)
    program = divide(m3.read(RandomProgram(seed).text())).spread
    cuts = random_cuts(program, rng)
    if not cuts or not program.triggers:
        return
    homes, nodes = random_homes(rng, program), nodes_of(cuts)
    layout = ClusterLayout(program, homes, nodes, grid=grid_asked_for(program, cuts, nodes))
    relations = {trigger.relation for trigger in program.triggers}
    world = assert_nodes_are_embedded(layout, [each for each in random_events(rng, 40) if each[1] in relations])
    edges: dict[str, Any] = {}
    for name, each in edges_of_deltas(layout):
        edges[name] = edges[name] | each if name in edges else each
    assert {link for link in world.links if not edges[link[0]][link[1:]]} == set()


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("mode", SOURCE)
def test_protocols_in_any_grid(mode: Mode, name: str, seed: int) -> None:
    rng, program = random.Random(f"{name} {seed}"), spread_program(name)
    cuts = next(filter(None, (random_cuts(program, rng) for _ in range(20))))
    switches = 1 if RULES[mode].needs_one_switch else 2
    blocks = random_blocks(program, rng, 16)
    world = CentralNodes(program, mode, nodes_of(cuts), seed, "interpreter", cuts, switches)
    world.run(blocks)
    world.must_have(states(program, world.in_order()))


def test_a_home_that_the_cuts_exclude_is_told() -> None:
    program = spread_program("shop")
    cuts = ["orders.cid=2", "orders.oid=2"]
    assert plan_cluster(program, 4, hints={"orders": "oid"}, cuts=cuts).homes["orders", "cid, oid"]
    with pytest.raises(
        UsageError, match=r"--home lineitem\.price: by the cuts rows of lineitem are computed by"
    ) as told:
        plan_cluster(program, 4, hints={"lineitem": "price"}, cuts=cuts)
    assert "lineitem.price" in told.value.hint


def test_what_no_cut_is_about_keeps_its_home() -> None:
    script = """CREATE TABLE r (a INT, b INT); CREATE TABLE s (c INT, d INT);
    CREATE VIEW v AS SELECT a, SUM(b) AS b FROM r GROUP BY a;
    CREATE VIEW w AS SELECT c, SUM(d) AS d FROM s GROUP BY c;"""
    plan = plan_cluster(compile_sql(script, rely=False, enforced=False), 6, cuts=["r.a=6"])
    assert {label for _, label in plan.homes} == {"a", "c"}
    assert plan.layout.text(plan.division.spread.view("w").maps[0]) == "by c"


def test_of_several_columns_with_the_values_the_chosen_one_says_the_part() -> None:
    """Both ends of an edge are of one kind: a home by the other one may be asked for."""
    script = """CREATE TABLE e (a INT, b INT);
    CREATE VIEW v AS SELECT x.a, COUNT(*) AS n FROM e x, e y WHERE x.b = y.a GROUP BY x.a;"""
    program = compile_sql(script, rely=False, enforced=False)
    for column in "ab":
        plan = plan_cluster(program, 3, hints={"e": column}, cuts=["e.a=3"])
        assert {label for _, label in plan.homes} == {column}
