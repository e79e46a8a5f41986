"""Central modes: nodes that keep to the order of one switch end as one engine, and send what the formula says."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.messages import Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.central_messages import AskedSlice, Fetch, Push, Put
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.m3.program import Program
from support import random_sql
from support.random_programs import RandomProgram
from support.spread_cases import (
    BENCHMARKS,
    EXTREME_KEYS,
    SMALL,
    Block,
    join_of_keys,
    random_blocks,
    spread_program,
    states,
    views_that_look_up,
)
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes

CENTRAL = (Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE)


def run(
    program: Program,
    blocks: list[Block],
    mode: Mode,
    nodes: int,
    seed: int,
    engine: str = "interpreter",
    cuts: Sequence[str] = (),
) -> Any:
    found = CentralNodes(program, mode, nodes, seed, engine, cuts)
    found.run(blocks)
    found.must_have(states(program, blocks))
    assert found.sent == found.formula.counts, "what is sent is not what the tables say"
    return found


@pytest.mark.parametrize("mode", CENTRAL)
@pytest.mark.parametrize("name", sampled(SMALL, of=2))
def test_nodes_end_as_one_engine(name: str, mode: Mode) -> None:
    waited = 0
    for seed in range(examples(12)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        waited += run(program, blocks, mode, rng.randint(1, 5), seed).most_waiting
    assert waited, "nothing ever waited for its turn"


@pytest.mark.parametrize("mode", CENTRAL)
@pytest.mark.parametrize("name", sampled(BENCHMARKS, of=4))
def test_benchmarks(name: str, mode: Mode) -> None:
    program = spread_program(name)
    run(program, random_blocks(program, random.Random(3), 20), mode, 3, 3, "native")


@pytest.mark.parametrize("mode", CENTRAL)
def test_random_programs(mode: Mode) -> None:
    """Hand-written maps without definitions, joins of loop variables, sums inside, initial entries."""
    ran = 0
    for seed in range(examples(20)):
        program = divide(m3.read(RandomProgram(seed).text())).spread
        if not any(maps_of(statement.term) for _, statement in program.statements()):
            continue
        rng = random.Random(seed)
        run(program, random_blocks(program, rng, 12), mode, rng.randint(1, 4), seed)
        ran += 1
    assert ran > 0


@given(random_sql.scripts(), st.integers(0, 10**9))
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_random_views(script: str, seed: int) -> None:
    program, events = views_that_look_up(script, seed, 40)
    blocks = [Block(at, name, ((sign, row),)) for at, (sign, name, row) in enumerate(events)]
    for mode in CENTRAL:
        run(program, blocks, mode, random.Random(seed).randint(1, 4), seed)


@pytest.mark.parametrize("mode", CENTRAL)
@pytest.mark.parametrize("nodes", [1, 2, 5, 10])
def test_messages_are_as_many_as_the_formula_says(nodes: int, mode: Mode) -> None:
    """One row a block: example 2.1 of the consistency paper."""
    program = spread_program("shop")
    rng = random.Random(nodes)
    blocks = [
        Block(at, block.relation, (row,))
        for at, (block, row) in enumerate(
            (block, row) for block in random_blocks(program, rng, examples(80)) for row in block.rows
        )
    ]
    found = run(program, blocks, mode, nodes, nodes, "native")
    kinds = {"Fetch", "Put", "Push"} if mode is Mode.CENTRAL_TARGET else {"Evaluate", "Expect", "Push"}
    assert found.sent.keys() == kinds - ({"Push"} if nodes == 1 else set())


SHOP_CUTS = {
    "a grid by hash": (10, ["orders.cid=2", "orders.oid=5"]),
    "the other way round": (10, ["lineitem.oid=5", "customers.cid=2"]),
    "by value and by hash": (6, ["orders.cid@1,2", "lineitem.oid=2"]),
    "by a key of a map": (4, ["revenue.nation=4"]),
    "in one part": (1, ["orders.oid=1"]),
}


@pytest.mark.parametrize("name", SHOP_CUTS)
def test_maps_in_regions(name: str) -> None:
    nodes, cuts = SHOP_CUTS[name]
    program = spread_program("shop")
    for seed in range(examples(6)):
        blocks = random_blocks(program, random.Random(seed), 16)
        run(program, blocks, Mode.CENTRAL_TARGET, nodes, seed, cuts=cuts)


def test_random_programs_in_random_regions() -> None:
    """Keys of maps that are cut into 2 and 3 parts, whatever else lies by the same values."""
    ran = 0
    for seed in range(examples(30)):
        rng = random.Random(seed)
        program = divide(m3.read(RandomProgram(seed).text())).spread
        keys = [f"{each.name}.{key.name}" for each in program.maps for key in each.keys]
        if not keys or not program.triggers:
            continue
        chosen = [f"{rng.choice(keys)}={parts}" for parts in (2, 3)]
        for cuts in (chosen, chosen[:1]):
            try:
                plan_cluster(program, 6 if len(cuts) == 2 else 2, 1, Mode.CENTRAL_TARGET, cuts=cuts)
            except UsageError as refused:
                assert "of the same values" in str(refused)  # noqa: PT017
                continue
            blocks = random_blocks(program, rng, 10)
            run(program, blocks, Mode.CENTRAL_TARGET, 6 if len(cuts) == 2 else 2, seed, cuts=cuts)
            ran += 1
    assert ran > 0


WRONG_CUTS = {
    "orders.oid=3": "3 regions, and there are 4 nodes",
    "orders.oid=x": "'x' is no number of parts",
    "orders.oid": "'nothing' is no number of parts",
    "orders.none=4": "has no column 'none'",
    "none.oid=4": "there is no table or map 'none'",
    "lineitem.price=4": "no map lies by that",
    "orders.oid@3,2,1": "do not ascend",
    "orders.oid@3,x,9": "--cut orders.oid@3,x,9",
    "=": "it names no column of a table, and no key of a map",
    "@": "it names no column of a table, and no key of a map",
    "": "it names no column of a table, and no key of a map",
}


@pytest.mark.parametrize("cut", WRONG_CUTS)
def test_a_cut_that_is_none_is_told(cut: str) -> None:
    with pytest.raises(UsageError, match=re.escape(WRONG_CUTS[cut])) as told:
        plan_cluster(spread_program("shop"), 4, 1, Mode.CENTRAL_TARGET, cuts=[cut])
    assert told.value.hint


def test_nodes_that_keep_no_maps_take_no_cuts() -> None:
    with pytest.raises(UsageError, match="in --mode gated they keep none"):
        plan_cluster(spread_program("shop"), 2, 1, Mode.GATED, cuts=["orders.oid=2"])


SELF = "CREATE TABLE r (a DOUBLE, x INTEGER); CREATE VIEW v AS SELECT SUM(r.x * s.x) AS q FROM r, r s WHERE r.a = s.a;"


@pytest.mark.parametrize("mode", CENTRAL)
@pytest.mark.parametrize("type", EXTREME_KEYS)
def test_equal_keys_are_asked_for_once(type: str, mode: Mode) -> None:
    """Keys that are equal and have other bits stand in one block; NULL joins nothing."""
    program, sides, rows, gone = join_of_keys(type)
    run(program, [*sides, rows, gone], mode, 3, 1)


def test_a_block_of_a_self_join_is_taken_row_by_row() -> None:
    program = compile_sql(SELF, rely=False, enforced=False)
    rows = Block(1, "r", tuple((1, (float(at % 2), at)) for at in range(6)))
    found = run(divide(program).spread, [rows], Mode.CENTRAL_TARGET, 3, 0)
    assert found.formula.blocks == 6


@pytest.mark.parametrize("mode", CENTRAL)
def test_a_central_mode_has_one_switch(mode: Mode) -> None:
    with pytest.raises(UsageError, match=r"has one switch.*\n?.*--switches 1"):
        plan_cluster(spread_program("shop"), 2, 2, mode)


def strange(block: SentBlock) -> list[tuple[int, Any, str]]:
    """Return what no machine of this mode would say: its sender, the message, and what is told of it."""
    return [
        (0, Put(block, 1), "is no message"),
        (-1, Push(1, []), "is no message"),
        (-1, Events([block]), "is no message"),
        (-1, Fetch(1, -1, [0], [AskedSlice(0, 99, b"")]), "there is no slice 99"),
        (-1, Put(SentBlock(99, 1, b""), 0), "there is no group 99"),
    ]


def test_what_is_not_of_the_protocol_is_told() -> None:
    world = CentralNodes(spread_program("shop"), Mode.CENTRAL_TARGET, 2, 0)
    for sender, message, told in strange(SentBlock(0, 1, b"")):
        with pytest.raises(RemoteProtocolError, match=told):
            world.nodes[0].take(sender, message)
    for keys, told in ((b"?", "cannot be read"), (to_ipc(pa.table({})), "have come")):
        world.nodes[1].take(-1, Fetch(1, -1, [0], [AskedSlice(0, 0, keys)]))
        with pytest.raises(RemoteProtocolError, match=told):
            list(world.nodes[1].drain())
    world.nodes[0].take(1, Push(7, []))
    with pytest.raises(RemoteProtocolError, match="again"):
        world.nodes[0].take(1, Push(7, []))
