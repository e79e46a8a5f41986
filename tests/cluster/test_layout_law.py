"""The law of homes and layouts: nodes that see their own entries only, together, are the embedded engine."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cumulus.cluster.placement.layout import ClusterLayout, FinishedBy
from cumulus.cluster.placement.segments import ON_FIRST
from cumulus.cluster.placement.slots import SLOTS, SlotTable, table_of_hash
from cumulus.cluster.placement.statement_placement import choose_homes
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.engine.frames.entries import frame_of
from cumulus.engine.frames.layout import layout_of
from cumulus.explain.sizes import Statistics
from cumulus.m3 import parse
from cumulus.m3.program import Program
from support.random_homes import random_homes, random_statistics
from support.random_programs import RandomProgram, random_events
from support.random_sql import scripts
from support.random_tables import SCHEMA, streams
from support.routed_nodes import assert_nodes_are_embedded
from support.tiers import examples, sampled

SEEDS = 60


@pytest.mark.parametrize("seed", sampled(range(SEEDS), of=6))
def test_chosen_homes_find_all_that_they_read(seed):
    rng = random.Random(seed)
    program = parse(RandomProgram(seed).text())
    homes = choose_homes(program, random_statistics(rng, program))
    layout = ClusterLayout(program, homes, rng.randint(1, 6))
    assert_nodes_are_embedded(layout, random_events(rng, 40))


@pytest.mark.parametrize("seed", sampled(range(SEEDS), of=6))
def test_slots_may_be_on_any_nodes(seed):
    rng = random.Random(seed)
    program = parse(RandomProgram(seed).text())
    nodes = rng.randint(1, 5)
    slots = SlotTable([rng.choice([*range(nodes), 0]) for _ in range(SLOTS)])
    layout = ClusterLayout(program, random_homes(rng, program), nodes, slots=slots)
    assert_nodes_are_embedded(layout, random_events(rng, 40))


@pytest.mark.parametrize("seed", sampled(range(SEEDS), of=6))
def test_slots_of_the_hash_are_no_other_layout(seed):
    rng = random.Random(seed)
    program = parse(RandomProgram(seed).text())
    homes = random_homes(rng, program)
    one, other = (ClusterLayout(program, homes, 4, slots=slots) for slots in (None, table_of_hash(4)))
    for _, event, row in random_events(rng, 20):
        for definition in program.maps:
            key = tuple(rng.choice(row) if row else event for _ in definition.keys)
            assert one.nodes_of(definition.name, key) == other.nodes_of(definition.name, key)


@pytest.mark.parametrize("seed", sampled(range(SEEDS), of=6))
def test_any_homes_find_all_that_they_read(seed):
    rng = random.Random(seed)
    program = parse(RandomProgram(seed).text())
    layout = ClusterLayout(program, random_homes(rng, program), rng.randint(2, 6))
    assert_nodes_are_embedded(layout, random_events(rng, 40))


def test_random_programs_make_every_kind_of_replica_set():
    """Else the laws above say little."""
    rng, reaches, several, sent = random.Random(1), set(), 0, 0
    for seed in range(20):
        program = parse(RandomProgram(seed).text())
        layout = ClusterLayout(program, random_homes(rng, program), 4)
        known = {layout.everywhere: "every", ON_FIRST: "first"}
        reaches |= {known.get(each, "key") for sets in layout.sets.values() for each in sets}
        several += any(len(sets) > 1 and layout.everywhere not in sets for sets in layout.sets.values())
        sent += sum(assert_nodes_are_embedded(layout, random_events(rng, 10)).sent.values())
    assert reaches == {"every", "first", "key"}
    assert several > 2
    assert sent > 100


def test_a_replica_set_that_is_left_out_is_noticed():
    """The judge itself: with each set of a map but the owner's taken away, some entry goes wrong."""
    noticed = 0
    for seed in range(12):
        rng = random.Random(seed)
        program = parse(RandomProgram(seed).text())
        layout = ClusterLayout(program, random_homes(rng, program), 4)
        if all(len(sets) == 1 for sets in layout.sets.values()):
            continue
        layout.sets = {name: sets[:1] for name, sets in layout.sets.items()}
        try:
            assert_nodes_are_embedded(layout, random_events(rng, 60))
        except AssertionError:
            noticed += 1
    assert noticed > 6


TABLES = """
CREATE TABLE r (a INT, b INT);
CREATE TABLE s (b INT, c INT);
CREATE TABLE t (c INT);
"""
VIEWS = {
    "three relations": "SELECT a, SUM(r.b * s.c) AS v FROM r, s, t WHERE r.b = s.b AND s.c = t.c GROUP BY a",
    "grouped by the key": "SELECT r.b, AVG(c) AS v FROM r JOIN s ON r.b = s.b GROUP BY r.b",
    "two maps": "SELECT a, SUM(b) AS v, MAX(b) AS high FROM r GROUP BY a",
    "no group": "SELECT SUM(a) AS v, COUNT(*) AS n FROM r",
    "the first": "SELECT b, SUM(a) AS v FROM r GROUP BY b ORDER BY v, b LIMIT 2",
    "an end": "SELECT b, MIN(a) AS low, MAX(a) AS high FROM r GROUP BY b",
    "self-join": "SELECT x.a, COUNT(*) AS n FROM r x, r y WHERE x.b = y.b GROUP BY x.a",
    "a bag": "SELECT a, c FROM r JOIN s USING (b)",
    "a cross product": "SELECT r.a, COUNT(*) AS n FROM r, t GROUP BY r.a",
}


@pytest.mark.parametrize("view", VIEWS)
def test_compiled_views_are_finished_where_the_layout_says(view):
    program = compile_sql(f"{TABLES} CREATE VIEW v AS {VIEWS[view]};", batches=False)
    for seed in range(3):
        rng = random.Random(seed)
        for homes in (choose_homes(program, random_statistics(rng, program)), random_homes(rng, program)):
            assert_nodes_are_embedded(ClusterLayout(program, homes, rng.randint(1, 5)), random_events(rng, 30))


def test_views_are_finished_in_all_three_ways():
    ways = {}
    for view, select in VIEWS.items():
        program = compile_sql(f"{TABLES} CREATE VIEW v AS {select};")
        ways[view] = ClusterLayout(program, choose_homes(program, Statistics()), 3).placement_of_view("v").by
    assert ways["no group"] is FinishedBy.FIRST
    assert ways["grouped by the key"] is ways["an end"] is FinishedBy.NODES
    assert ways["the first"] is FinishedBy.MERGE


@given(scripts(), streams(max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_spread_parts_of_random_views_are_embedded(script, events, rng):
    """All of the language that is spread, but for sums of DOUBLE, which round."""
    spread = divide(compile_sql(f"{SCHEMA}{script};", rely=False, enforced=False)).spread
    assume(spread.maps)
    assume(not any(value.type.is_float for definition in spread.maps for value in definition.values))
    for homes in (choose_homes(spread, random_statistics(rng, spread)), random_homes(rng, spread)):
        assert_nodes_are_embedded(
            ClusterLayout(spread, homes, rng.randint(1, 5)), [e for e in events if fires(spread, e)]
        )


def fires(program: Program, event) -> bool:
    return any(trigger.relation == event[1] for trigger in program.triggers)


KEYS = {
    "INTEGER": [0, 1, -7, 2**31 - 1, None],
    "BIGINT": [0, 1, 2**40, None],
    "VARCHAR": ["", "x", "é", None],
    "DECIMAL(9,2)": [Decimal("0.00"), Decimal("1.00"), Decimal("1.50"), None],
    "DOUBLE": [0.0, -0.0, 1.5, float("nan"), float("inf"), None],
    "DATE": [dt.date(1970, 1, 1), dt.date(2024, 2, 29), None],
}


@pytest.mark.parametrize("seed", range(12))
def test_columns_go_where_single_keys_go(seed):
    """`targets` and `owners` are `nodes_of` and `owner_of`, of all rows at once."""
    rng = random.Random(seed)
    kinds = [rng.choice(list(KEYS)) for _ in range(3)]
    text = (
        f"RELATION r(a {kinds[0]}, b {kinds[1]}, c {kinds[2]}); MAP m[a {kinds[0]}, b {kinds[1]}, c {kinds[2]}](n INT);"
    )
    reads = rng.sample(["m[a, y, z]", "m[x, b, z]", "m[x, y, c]", "m[a, b, c]", "m[x, y, z]"], 2)
    program = parse(f"{text} MAP q[](n INT); ON +r(a, b, c) {{ q[] += {reads[0]}; q[] += 2 * {reads[1]} }}")
    layout = ClusterLayout(program, random_homes(rng, program), rng.randint(1, 5))
    rows = [tuple(rng.choice(KEYS[kind]) for kind in kinds) for _ in range(50)]
    entries = frame_of(layout_of(program.map("m")), [(row, (1,)) for row in rows])
    targets = layout.targets("m", entries)
    expected = [
        [at for at, row in enumerate(rows) if node in layout.nodes_of("m", row)] for node in range(layout.nodes)
    ]
    assert [found.tolist() for found in targets] == expected
    owners = layout.owners("m", entries)
    assert owners.tolist() == [layout.owner_of("m", row) for row in rows]
    assert all(owner in layout.nodes_of("m", row) for owner, row in zip(owners.tolist(), rows, strict=True))
    total = layout.targets("q", frame_of(layout_of(program.map("q")), [((), (1,))] * 3))
    assert [found.tolist() for found in total] == [[0, 1, 2], *[[]] * (layout.nodes - 1)]


def test_both_signs_have_one_home():
    program = parse(
        "RELATION r(a INT, b INT); ON +r(a, b) { q[] += m[b]; p[a] += 1 } ON -r(x, y) { q[] += -m[y]; p[x] += -1 }"
    )
    homes = choose_homes(program, Statistics())
    assert homes == dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], "b")


def test_equal_values_of_other_types_are_not_looked_for_at_their_hash():
    """A DATE and a TIMESTAMP that are equal lie on different nodes."""
    text = "RELATION r(d DATE); MAP m[t {}](n INT); MAP q[](n INT); ON +r(d) {{ q[] += m[d] }}"
    for kind, is_everywhere in (("TIMESTAMP", True), ("DATE", False)):
        layout = ClusterLayout(parse(text.format(kind)), {(0, 0): "d"}, 2)
        assert (layout.everywhere in layout.sets["m"]) == is_everywhere
