"""The node program: one node, and events, deltas and corrections in any order, end as one engine does."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cumulus import m3
from cumulus.algebra import float_sums
from cumulus.cluster.node_programs.program import NodeProgram, node_program
from cumulus.cluster.spread import divide
from cumulus.m3.program import On, Program
from support.engines import engine_of
from support.spread_cases import BENCHMARKS, SMALL, Block, approximately, random_blocks, spread_program, states
from support.tiers import examples, sampled

GOLDEN = Path(__file__).parent / "golden"


class OneNode:
    """A node program with everything that is under way, delivered in an order of chance."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        self.rng = rng
        self.made: NodeProgram = node_program(program, {})
        self.engine = engine_of(self.made.program)
        self.relations = {relation.name: relation for relation in program.relations}
        self.pool: list[tuple[str, tuple, tuple, int]] = []
        """Deltas under way: map, key, numbers, version."""
        self.sums: dict[str, dict[tuple, list]] = {name: {} for name in self.made.overlays}
        self.newest: dict[str, int] = {}
        """Map → the latest version of a delta."""
        self.seen: dict[str, int] = {}
        """Map → the latest version of a row that has read it."""
        self.late_blocks = self.late_deltas = 0

    def fire(self, block: Block) -> None:
        for group in self.made.groups:
            if group.relation != block.relation:
                continue
            is_late = any(self.newest.get(name, -1) >= block.first for name in group.reads)
            self.late_blocks += is_late
            places = [self.relations[block.relation].position(column) for column in group.columns]
            last = block.first
            self.engine.begin()
            for number, (sign, row) in enumerate(block.rows):
                last = block.first + number * group.has_row_versions
                own = (*(row[place] for place in places), last)
                self.engine.on_event(sign, group.late if is_late else group.in_order, own)
            self.engine.commit()
            for name in group.reads:
                self.seen[name] = max(self.seen.get(name, -1), last)
        self.take()

    def take(self) -> None:
        for name, overlay in self.made.overlays.items():
            floats = [value.type is not None and value.type.is_float for value in self.made.program.map(name).values]
            for key, values in list(self.engine.stored(overlay.out)):
                numbers = tuple(
                    float_sums.read_cell(each) if is_float else each
                    for each, is_float in zip(values, floats, strict=True)
                )
                self.pool.append((name, key[:-1], numbers, key[-1]))
            self.engine.load(overlay.out, ())

    def deliver(self) -> None:
        name, key, values, version = self.pool.pop(self.rng.randrange(len(self.pool)))
        old = self.sums[name].get(key)
        self.sums[name][key] = values if old is None else [one + other for one, other in zip(old, values, strict=True)]
        late = self.made.overlays[name].late
        if late:
            self.late_deltas += version < self.seen.get(name, -1)
            self.newest[name] = max(self.newest.get(name, -1), version)
            self.engine.begin()
            self.engine.on_event(1, late, (*key, *values, version))
            self.engine.commit()
            self.take()

    def read(self, name: str) -> dict[tuple, tuple]:
        """Return the entries that exist, by what was delivered."""
        definition = self.made.program.map(name)
        found = {key: list(values) for key, values in definition.initial}
        for key, values in self.sums[name].items():
            found[key] = [one + other for one, other in zip(found.get(key, [0] * len(values)), values, strict=True)]
        count = definition.column_index(definition.count) if definition.count else None
        return {
            key: tuple(values) for key, values in found.items() if (any(values) if count is None else values[count])
        }


def run(name: str, seed: int, count: int) -> OneNode:
    program, rng = spread_program(name), random.Random(seed)
    blocks = random_blocks(program, rng, count)
    node = OneNode(program, rng)
    waiting = list(blocks)
    while waiting or node.pool:
        if waiting and (not node.pool or rng.random() < 0.4):
            node.fire(waiting.pop(0 if rng.random() < 0.5 else rng.randrange(len(waiting))))
        else:
            node.deliver()
    expected = states(program, blocks)
    for name_, entries in expected.items():
        assert node.read(name_) == approximately(entries), name_
        if node.made.overlays[name_].late:
            assert dict(node.engine.items(name_)) == approximately(entries), name_
    return node


@pytest.mark.parametrize("name", SMALL)
def test_no_order_of_arrival_matters(name, each_engine):
    nodes = [run(name, seed, 14) for seed in range(examples(30))]
    assert sum(node.late_deltas for node in nodes) > 0
    assert name == "three_times" or sum(node.late_blocks for node in nodes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(BENCHMARKS, of=3, first=1))
def test_benchmarks_in_any_order(name, each_engine):
    nodes = [run(name, seed, 30) for seed in range(3)]
    assert sum(node.late_deltas + node.late_blocks for node in nodes) > 0
    assert any(entries for node in nodes for entries in node.sums.values())


@pytest.mark.parametrize("name", [*SMALL, *sampled([*BENCHMARKS, "flights"], of=4)])
def test_it_is_m3(name):
    made = node_program(spread_program(name), {}).program
    m3.validate(made)
    assert m3.parse(str(made)) == made


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.txt")), ids=lambda file: file.stem)
def test_the_program_is_as_written(file):
    """M3, a line `---`, the node program; `CUMULUS_GOLDEN=write` writes them anew."""
    text, _, expected = file.read_text(encoding="utf-8").partition("\n---\n")
    made = node_program(divide(m3.read(text)).spread, {})
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        file.write_text(f"{text}\n---\n{made.program}", encoding="utf-8")
    else:
        assert str(made.program) == expected


def test_statements_of_one_home_make_a_group():
    program = spread_program("shop")
    homes = {
        (index, place): "oid" if "oid" in trigger.variables and statement.map != "m1" else None
        for index, trigger in enumerate(program.triggers)
        for place, statement in enumerate(trigger.statements)
    }
    groups = node_program(program, homes).groups
    told = [(each.relation, each.home, each.in_order, each.columns, each.reads, each.writes) for each in groups]
    assert told == [
        ("customers", None, "customers", ("cid", "nation"), ("m1", "m5"), ("revenue", "m2", "m3")),
        ("orders", "oid", "orders by oid", ("cid", "oid", "discount"), ("m3", "m4"), ("revenue", "m2", "m5")),
        ("orders", None, "orders at one node", ("cid", "oid", "discount"), ("m4",), ("m1",)),
        ("lineitem", "oid", "lineitem by oid", ("oid", "price"), ("m2",), ("revenue", "m4")),
        ("lineitem", None, "lineitem at one node", ("oid", "price"), ("m5",), ("m1",)),
    ]


def test_rows_have_versions_where_they_read_what_they_write():
    assert [each.has_row_versions for each in node_program(spread_program("self_join"), {}).groups] == [True]
    assert {each.has_row_versions for each in node_program(spread_program("shop"), {}).groups} == {False}


def test_signs_share_a_history_where_one_takes_away_what_the_other_adds():
    assert node_program(spread_program("shop"), {}).histories == ("customers seen", "orders seen", "lineitem seen")
    made = node_program(spread_program("signs_differ"), {})
    assert made.histories == ("r seen", "r gone")


def test_names_and_variables_step_aside():
    text = """RELATION r("v" INT, "w" INT, d_n INT); RELATION "m late"(a INT); MAP m[d_v INT](n BIGINT);
    MAP "m since"[](n BIGINT); MAP "M OUT"[](V BIGINT);
    ON +r(v, w, d_n) { "m since"[] += m[d_n] * v; m[w] += 1; } ON +"m late"(a) { "M OUT"[] += "m since"[] * a; }"""
    made = node_program(m3.read(text), {})
    m3.validate(made.program)
    assert made.version == "v_2"
    assert made.overlays["m"].late == "m late_2"
    assert made.overlays["m"].since == "m since_2"
    assert made.overlays["m"].out == "m out_2"
    assert made.program.trigger(On.INSERT, "m late_2").variables == ("d_d_v", "d_n_2", "v_2")
