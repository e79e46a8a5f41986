"""Where nodes may send each other something: nothing goes beside the edges, and those that are there are needed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cumulus import m3
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.node_edges import edges_of_deltas, edges_of_slices
from cumulus.cluster.placement.statement_placement import choose_homes
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.protocols.central_messages import Correct, Push
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.errors import UsageError
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program
from support.random_homes import random_homes, random_statistics
from support.routed_nodes import RoutedNodes
from support.spread_cases import SMALL, random_blocks, spread_program
from support.tiers import examples
from support.told_in_order import CentralNodes

if TYPE_CHECKING:
    from cumulus.cluster.placement.node_edges import Edges


def together(found: Any) -> dict[str, Edges]:
    """Return the edges of maps, those of all statements together."""
    edges: dict[str, Edges] = {}
    for name, each in found:
        assert not each.diagonal().any(), "nothing is sent to oneself"
        edges[name] = edges[name] | each if name in edges else each
    return edges


@pytest.mark.parametrize("seed", range(examples(24)))
@pytest.mark.parametrize("name", [name for name in SMALL if "doubles" not in name])
def test_deltas_go_along_edges(name: str, seed: int) -> None:
    rng, program = random.Random(f"{name} {seed}"), spread_program(name)
    homes = random_homes(rng, program) if seed % 2 else choose_homes(program, random_statistics(rng, program))
    world = RoutedNodes(ClusterLayout(program, homes, rng.randint(1, 6)))
    for block in random_blocks(program, rng, 30):
        for sign, row in block.rows:
            world.on_event((sign, block.relation, row))
    edges = together(edges_of_deltas(world.layout))
    assert {link for link in world.links if not edges[link[0]][link[1:]]} == set()


CHAIN = """
CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT, c INT); CREATE TABLE t (c INT);
CREATE VIEW v AS SELECT a, SUM(r.b * s.c) AS v FROM r, s, t WHERE r.b = s.b AND s.c = t.c GROUP BY a;
"""


def test_all_edges_are_used_when_rows_are_many() -> None:
    program, rng = divide(compile_sql(CHAIN, rely=False, enforced=False)).spread, random.Random(1)
    world = RoutedNodes(ClusterLayout(program, choose_homes(program, Statistics()), 3))
    for _ in range(400):
        table, width = rng.choice((("r", 2), ("s", 2), ("t", 1)))
        world.on_event((1, table, tuple(rng.randrange(1, 12) for _ in range(width))))
    edges = together(edges_of_deltas(world.layout))
    assert world.links == {(name, *pair) for name, each in edges.items() for pair in np.argwhere(each).tolist()}
    assert len(world.links) > 12


class WatchedNodes(CentralNodes):
    """Nodes that fetch entries, and what of which map has gone from where to where."""

    went: set[tuple[str, int, int]]

    def _send(self, source: int, target: int, message: Any) -> None:
        if isinstance(message, Push | Correct):
            self.went |= {(self.plan.nodes_program.slices[at].map, source, target) for at, _ in message.frames}
        super()._send(source, target, message)


@pytest.mark.parametrize("seed", range(examples(16)))
@pytest.mark.parametrize("name", SMALL)
def test_slices_and_corrections_go_along_edges(name: str, seed: int) -> None:
    rng, program = random.Random(f"{name} {seed}"), spread_program(name)
    options = rng.choice(((), ("bypass",), ("elide-push=correct",)))
    nodes, cuts = rng.choice(((3, ()), (6, cuts_of(program, rng)), (4, ())))
    world = WatchedNodes(program, Mode.FOUR_LOGS, nodes, seed, cuts=cuts, switches=2, options=options)
    world.went = set()
    world.run(random_blocks(program, rng, 20))
    assert world.went
    edges = together(edges_of_slices(world.plan.layout))
    assert {link for link in world.went if not edges[link[0]][link[1:]]} == set()


def cuts_of(program: Program, rng: random.Random) -> tuple[str, ...]:
    """Return how the maps are cut by two keys, if that can be."""
    keys = [f"{each.name}.{key.name}" for each in program.maps for key in each.keys]
    cuts = (f"{rng.choice(keys)}=2", f"{rng.choice(keys)}=3")
    try:
        plan_cluster(program, 6, 2, Mode.FOUR_LOGS, cuts=cuts)
    except UsageError:
        return ()
    return cuts


STAR = """
CREATE TABLE dates (datekey INT, year INT); CREATE TABLE lineorder (datekey INT, revenue INT);
CREATE VIEW m AS SELECT year, SUM(revenue) AS revenue FROM dates, lineorder
WHERE dates.datekey = lineorder.datekey GROUP BY year;
"""


def count(script: str, nodes: int, mode: Mode = Mode.EVENTUAL) -> list[int]:
    """Return for each depth how many nodes tell how many others."""
    switches = 1 if RULES[mode].needs_one_switch else 2
    plan = plan_cluster(compile_sql(script, rely=False, enforced=False), nodes, switches, mode)
    routes = [plan.epoch_routes.of_node(number) for number in range(nodes)]
    told = [sum(len(each.targets[depth]) for each in routes) for depth in range(len(routes[0].targets))]
    assert told == [sum(len(each.sources[depth]) for each in routes) for depth in range(len(routes[0].sources))]
    assert sum(told) == plan.epoch_routes.checkpoints
    return told


@pytest.mark.parametrize("nodes", [1, 2, 5, 16])
def test_what_is_known_of_a_star(nodes: int) -> None:
    """Both sides of the join are added up by datekey, where their rows are; only the result goes elsewhere."""
    assert count(STAR, nodes) == [0, nodes * (nodes - 1)]
    assert count(STAR, nodes, Mode.FOUR_LOGS) == [nodes * (nodes - 1), 0]
    assert count(STAR, nodes, Mode.CENTRAL_TARGET) == count(STAR, nodes, Mode.GATED) == []
    assert count("CREATE TABLE r (a INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM r;", nodes) == [nodes - 1]
    assert count("CREATE TABLE r (a INT); CREATE VIEW n AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;", nodes) == [0]


def test_a_grid_sends_along_its_rows_alone() -> None:
    edges = [edges for _, edges in edges_of_slices(grid().layout) if edges.any()]
    assert [int(each.sum()) for each in edges] == [8, 5]


def grid() -> ClusterPlan:
    """Return the plan of a product of two maps that lies in two by five regions."""
    text = """RELATION r(a INT, b INT, c INT); MAP m1[b INT, c INT](n BIGINT); MAP m2[a INT, b INT](n BIGINT);
        MAP m3[c INT](n BIGINT); ON +r(a, b, c) { m1[x, y] += m2[a, x] * m3[y]; m2[a, b] += 1; m3[c] += 1; }"""
    return plan_cluster(m3.parse(text), 10, 1, Mode.FOUR_LOGS, cuts=("m1.b=2", "m1.c=5"))


def test_a_node_waits_for_those_that_tell_it() -> None:
    routes = [plan_cluster(spread_program("shop"), 4, 2).epoch_routes.of_node(number) for number in range(4)]
    for number, mine in enumerate(routes):
        assert number not in {node for told in (*mine.targets, *mine.sources) for node in told}
        for depth, told in enumerate(mine.targets):
            assert all(number in routes[node].sources[depth] for node in told)
    assert np.sum([len(told) for mine in routes for told in mine.targets]) == 3 * 12


BESIDE = """
CREATE TABLE r (a INT); CREATE TABLE s (b INT); CREATE TABLE t (c INT);
CREATE VIEW n AS SELECT a, COUNT(*) AS n FROM r GROUP BY a; CREATE VIEW m AS SELECT COUNT(*) AS n FROM s;
"""


def ended_by(script: str, nodes: int, switches: int, mode: Mode = Mode.EVENTUAL) -> list[tuple[int, ...]]:
    """Return for each switch the nodes that it tells when an epoch has ended."""
    plan = plan_cluster(compile_sql(script, rely=False, enforced=False), nodes, switches, mode)
    told = [plan.epoch_routes.of_switch(number) for number in range(switches)]
    waiting = [plan.epoch_routes.of_node(number).switches for number in range(nodes)]
    assert all(waiting), "a node hears of each epoch"
    assert waiting == [{each for each in range(switches) if node in told[each]} for node in range(nodes)]
    assert plan.epoch_routes.ends == sum(map(len, told))
    return told


def test_a_switch_tells_the_nodes_that_may_get_rows_of_its_tables() -> None:
    """Table r is everywhere, s added up where its rows are, by b; nobody reads t, and switch 3 has no table."""
    assert ended_by(BESIDE, 3, 4) == [(0, 1, 2), (0, 1, 2), (), ()]
    assert ended_by(BESIDE, 3, 1) == [(0, 1, 2)]
    fetching = ended_by(BESIDE, 3, 4, Mode.FOUR_LOGS)
    assert fetching == [(0, 1, 2), (0,), (), ()], "m lies on node 0"
    assert ended_by(BESIDE, 3, 4, Mode.TICKS) == fetching
    assert ended_by(BESIDE, 3, 4, Mode.GATED) == [(0, 1, 2)] * 3 + [()], "a gate takes in rows of all tables"
    nested = "CREATE TABLE r (a INT); CREATE VIEW n AS SELECT COUNT(DISTINCT a) AS n FROM r WHERE a > 0;"
    alone = ended_by(nested + "CREATE TABLE s (b INT);", 3, 2, Mode.GATED)
    assert sum(map(len, alone)) in (4, 6)
    assert ended_by("CREATE TABLE r (a INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM r;", 4, 3, Mode.FOUR_LOGS) == [
        (0, 3),
        (1,),
        (2,),
    ], "who gets nothing has the switch of its number"
