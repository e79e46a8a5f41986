"""What is sent follows laws that know neither protocols nor formulas: who reads and writes, logs, steps and options."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cumulus import m3
from cumulus.algebra.terms import MapRead, Term, Var, children
from cumulus.catalog.arrow import from_ipc
from cumulus.catalog.partition import bucket_of
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind
from cumulus.cluster import codec
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, central_options
from cumulus.cluster.protocols.central_messages import Correct, Fetch, Push
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.m3.program import On, Program
from cumulus.workloads import shop
from support.paper_programs import PROGRAMS
from support.spread_cases import Block, RandomRows
from support.tiers import WHOLE, examples, sampled
from support.told_in_order import CentralNodes

STAR = """
CREATE TABLE dates (datekey INT, year INT); CREATE TABLE part (partkey INT, partcat INT);
CREATE TABLE lineorder (datekey INT, partkey INT, revenue INT);
CREATE VIEW m AS SELECT partcat, year, SUM(revenue) AS revenue FROM dates, part, lineorder
WHERE dates.datekey = lineorder.datekey AND part.partkey = lineorder.partkey GROUP BY partcat, year;
"""
CUTS = {
    "shop": ("orders.cid=2", "orders.oid=5"),
    "star": ("m.year=2", "m.partcat=5"),
    "example 2.1": ("ORDERS.CID=2", "ORDERS.OID=5"),
}
ROWS = 80 if WHOLE else 30


def program_of(name: str) -> Program:
    if name == "example 2.1":
        return divide(m3.read(PROGRAMS["consistency paper, example 2.1"])).spread
    return divide(compile_sql({"shop": shop.sql(), "star": STAR}[name], rely=False, enforced=False)).spread


KNOWN = {name: program_of(name) for name in CUTS}


class WideRows(RandomRows):
    """Rows whose numbers lie on many nodes."""

    def __init__(self, program: Program, rng: random.Random, numbers: Sequence[int]) -> None:
        super().__init__(program, rng)
        self._numbers = numbers

    def _pool(self, column: Column) -> Iterator[Any]:
        assert column.type is not None
        yield from self._numbers if column.type.kind is Kind.INTEGER else super()._pool(column)


def rows_of(program: Program, count: int, seed: int, numbers: Sequence[int] = range(12)) -> list[Block]:
    """Return blocks of a row each, for which there are triggers; some go again."""
    rng, rows = random.Random(seed), WideRows(program, random.Random(seed), numbers)
    known = {(1 if trigger.on is On.INSERT else -1, trigger.relation) for trigger in program.triggers}
    relations, found = sorted({name for _, name in known}), list[Block]()
    for _ in range(count):
        relation = rng.choice(relations)
        before = [block.rows[0][1] for block in found if block.relation == relation]
        goes = bool(before) and (-1, relation) in known and rng.random() < 0.2
        found.append(Block(0, relation, ((-1, rng.choice(before)) if goes else (1, rows.row(relation)),)))
    return found


# --- who reads, and who writes ----------------------------------------------------------------------------------------


def reads_in(term: Term | Any) -> Iterator[MapRead]:
    if isinstance(term, MapRead):
        yield term
    for child in children(term):
        yield from reads_in(child)


def pairs_of(world: CentralNodes, relation: str, sign: int, row: tuple[Any, ...]) -> set[tuple[int, int]]:
    """Return who sends to whom for a row, as figure 3 has it: by values that all loop variables may have.

    A writer alone is a pair with −1.
    """
    layout, program = world.plan.layout, world.plan.division.spread
    (trigger,) = (
        each for each in program.triggers if each.relation == relation and each.on is (On.INSERT, On.DELETE)[sign < 0]
    )
    bound, found = dict(zip(trigger.variables, row, strict=True)), set()
    for statement in trigger.statements:
        reads = list(reads_in(statement.term))
        names = [*statement.keys, *(key.name for read in reads for key in read.keys if isinstance(key, Var))]
        loops = sorted({name for name in names if name not in bound})
        for values in all_values(loops):
            known = {**bound, **values}
            target = layout.owner_of(statement.map, tuple(known[key] for key in statement.keys))
            found.add((-1, target))
            for read in reads:
                assert all(isinstance(key, Var) for key in read.keys), "these programs read by variables"
                found.add((layout.owner_of(read.map, tuple(known[key.name] for key in read.keys)), target))
    return found


def all_values(loops: list[str]) -> Iterator[dict[str, Any]]:
    """Yield numbers for loop variables, one that lies in each part of any cut."""
    if not loops:
        yield {}
        return
    for rest in all_values(loops[1:]):
        for value in OF_EACH_PART:
            yield {loops[0]: value, **rest}


OF_EACH_PART = [*{bucket_of(number, 10): number for number in range(200)}.values()]
"""A part of 1, 2 or 5 is the rest of one of 10."""


@pytest.mark.parametrize("nodes", sampled([2, 1, 5, "grid", 10], of=3))
@pytest.mark.parametrize("name", ["star", "example 2.1"])
def test_fetches_puts_and_pushes_are_those_who_read_and_write(name: str, nodes: int | str) -> None:
    """PUT = Σ|T|, FETCH = Σ|R|, PUSH = Σ|{(r, t): r ≠ t}|, empty ones too; three ticks for each of T ∪ R."""
    program, is_grid = KNOWN[name], nodes == "grid"
    number = 10 if is_grid else int(nodes)
    cuts = CUTS[name] if is_grid else ()
    rows, expected, sent = rows_of(program, ROWS, 1), Counter[str](), {}
    for mode in (Mode.CENTRAL_TARGET, Mode.TICKS, Mode.FOUR_LOGS):
        switches = 1 if RULES[mode].needs_one_switch else 2
        world = CentralNodes(program, mode, number, 1, "native" if WHOLE else "interpreter", cuts, switches)
        world.run(rows)
        sent[mode] = world.sent
    for block in rows:
        ((sign, row),) = block.rows
        pairs = pairs_of(world, block.relation, sign, row)
        targets, readers = {to for _, to in pairs}, {source for source, _ in pairs if source >= 0}
        expected += Counter(Put=len(targets), Fetch=len(readers), Both=len(targets | readers))
        expected["Push"] += sum(source not in (-1, to) for source, to in pairs)
    both = expected.pop("Both")
    ticks = Counter(TickAsked=both, TickTold=both, TickSet=both, Push=expected["Push"])
    assert +sent[Mode.CENTRAL_TARGET] == +expected
    assert +sent[Mode.TICKS] == +ticks
    assert +(sent[Mode.FOUR_LOGS] - Counter(Correct=sent[Mode.FOUR_LOGS]["Correct"])) == +expected


# --- steps of the eventual mode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 5, 10])
@pytest.mark.parametrize("name", KNOWN)
def test_a_step_sends_each_node_one_push_at_most(name: str, nodes: int) -> None:
    world = CentralNodes(KNOWN[name], Mode.EVENTUAL, nodes, 0, switches=2)
    rng, steps = random.Random(nodes), 0
    for block in rows_of(KNOWN[name], ROWS, nodes):
        before = world.sent["Events"]
        world.send(block)
        assert world.sent["Events"] - before <= nodes
        while world.links and rng.random() < 0.7:
            waiting = {link: len(data) for link, data in world.links.items()}
            source, target = rng.choice(sorted(world.links))
            world.deliver_on(source, target)
            waiting[source, target] -= 1
            more = {link: len(data) - waiting.get(link, 0) for link, data in world.links.items()}
            assert all(link[0] == target and count <= 1 for link, count in more.items() if count)
            steps += any(more.values())
    assert steps


# --- corrective updates -----------------------------------------------------------------------------------------------


class SendLogs:
    """The SendLog of each node, by what it was asked for and what it has sent; and what it writes, by its WriteLog."""

    def __init__(self, world: CentralNodes) -> None:
        self._world = world
        self._asked: dict[tuple[int, int, int], list[tuple[int, tuple[Any, ...]]]] = {}
        """Reader, version, target → slices and their bound keys."""
        self._sent: dict[int, dict[tuple[int, tuple[Any, ...], int], int]] = defaultdict(dict)
        """Reader → slice, bound keys and target → the greatest version for which it was sent."""
        self.found = 0

    def deliver(self, source: int, node: int) -> None:
        """Deliver a message; those get a CORRECT whom the node has sent what it writes now for later versions.

        They get one for each block that is computed, of which there may be several in a step.
        """
        before = self._written(node)
        waiting = {link: len(data) for link, data in self._world.links.items() if link[0] == node}
        message = self._world.deliver_on(source, node)
        if isinstance(message, Fetch):
            for each in message.asked:
                keys = [tuple(row.values()) for row in from_ipc(each.keys).to_pylist()] if each.keys else [()]
                place = node, message.version, each.target
                self._asked.setdefault(place, []).extend((each.slice, key) for key in keys)
        changed = self._changed(before, self._written(node))
        owed = {to for (number, key, to), last in self._sent[node].items() if self._is_late(number, key, last, changed)}
        corrected = Counter[int]()
        for link, data in self._world.links.items():
            for sent in list(data)[waiting.get(link, 0) :] if link[0] == node else ():
                told = codec.decode(sent)
                corrected[link[1]] += isinstance(told, Correct)
                if isinstance(told, Push):
                    for number, key in self._asked.get((node, told.version, link[1]), ()):
                        place = number, key, link[1]
                        self._sent[node][place] = max(told.version, self._sent[node].get(place, -1))
        assert (+corrected).keys() == owed - {node}
        assert all(count <= len({version for *_, version in changed}) for count in corrected.values())
        self.found += corrected.total()

    def _is_late(self, number: int, key: tuple[Any, ...], last: int, changed: list[Any]) -> bool:
        asked = self._world.plan.nodes_program.slices[number]
        places = [place for place, column in enumerate(asked.columns) if column is not None]
        return any(
            name == asked.map and version < last and tuple(entry[place] for place in places) == key
            for name, entry, version in changed
        )

    def _written(self, node: int) -> dict[tuple[str, tuple[Any, ...]], Any]:
        maps = self._world.nodes[node].maps.maps
        return {
            (name, key): value
            for name, overlay in maps.made.overlays.items()
            for key, value in maps.engine.items(overlay.since)
        }

    @staticmethod
    def _changed(before: dict[Any, Any], after: dict[Any, Any]) -> list[tuple[str, tuple[Any, ...], int]]:
        places = [place for place in before.keys() | after.keys() if before.get(place) != after.get(place)]
        return [(name, key[:-1], key[-1]) for name, key in places]


BY_KEYS = {
    "semester paper, figure 5": """RELATION P(A INT); RELATION Q(A INT, B INT); MAP mw[B INT](v BIGINT);
        MAP mr[A INT](v BIGINT); ON +P(A) { mr[A] += 1; } ON +Q(A, B) { mw[B] += mr[A]; }""",
    "a cascade": """RELATION P(A INT); RELATION Q(A INT, B INT); RELATION R(B INT, C INT); MAP m1[A INT](v BIGINT);
        MAP m2[B INT](v BIGINT); MAP m3[C INT](v BIGINT);
        ON +P(A) { m1[A] += 1; } ON +Q(A, B) { m2[B] += m1[A]; } ON +R(B, C) { m3[C] += m2[B]; }""",
    **{name: PROGRAMS[name] for name in ("semester paper, example 2.1", "consistency paper, §4.1")},
}
"""Programs without loop variables: what is asked for by its keys is needed whole by who gets it."""


@pytest.mark.parametrize("place", BY_KEYS)
def test_a_correct_is_sent_for_each_entry_of_the_send_log_with_a_later_version(place: str) -> None:
    """Semester paper, section 3.3: when TSz comes, each node that was sent what it writes for a later TSy is told."""
    found = 0
    for seed in range(examples(60)):
        rng = random.Random(seed)
        program = m3.read(BY_KEYS[place])
        tables = len(program.relations)
        world = CentralNodes(program, Mode.FOUR_LOGS, rng.randint(2, 5), seed, switches=tables)
        logs = SendLogs(world)
        for version in rng.sample(range(10, 40), 14):  # as if each had a switch of its own
            relation = rng.choice(program.relations)
            row = tuple(rng.randint(1, 4) for _ in relation.columns)
            world.send(Block(0, relation.name, ((1, row),)), version=version)
            while world.links and rng.random() < 0.7:
                logs.deliver(*rng.choice(sorted(world.links)))
        while world.links:
            logs.deliver(*rng.choice(sorted(world.links)))
        assert logs.found == world.sent["Correct"]
        found += logs.found
    assert found, "nothing was corrected"


# --- options ----------------------------------------------------------------------------------------------------------

CORRECTING = {"Correct"}
OWN_NUMBERS: dict[Mode, dict[str, set[str]]] = {
    Mode.EVENTUAL: {"buffer=20": {"Deltas"}, "patience=20": {"Deltas"}, "compress": set()},
    Mode.CENTRAL_SOURCE: {"compress": set()},
    Mode.CENTRAL_TARGET: {
        "compress": set(),
        "directives": {"Fetch", "Put", "RootBlock", "ForwardedBlock"},
        "poll=5": {"PutsAsked", "PutsTold", "VersionCommit"},
    },
    Mode.FOUR_LOGS: {
        "bypass": CORRECTING,
        "patience=20": CORRECTING,
        "compress": set(),
        "elide-fetch": CORRECTING,
        "elide-put": {"Put", "Fetch", *CORRECTING},
        "elide-push=correct": {"Push", *CORRECTING},
        "elide-push=wait:20": {"Push", *CORRECTING},
        "elide-push=correct,look-ahead": {"Push", *CORRECTING},
    },
}
"""Mode → option → the messages of which there may be more or fewer: what comes late by chance of the order, too."""


@pytest.mark.parametrize(
    ("mode", "option"), [(mode, option) for mode, options in OWN_NUMBERS.items() for option in options]
)
def test_an_option_changes_its_own_numbers_and_no_others(mode: Mode, option: str) -> None:
    """And what nodes have in the end is the same."""
    program = KNOWN["example 2.1"]
    rows = rows_of(program, ROWS, 3)
    central = {
        "directives": central_options("directives"),
        "poll=5": central_options(gc="poll=5"),
    }.get(option, DEFAULT_CENTRAL)
    options = () if central is not DEFAULT_CENTRAL else (option,)
    found = []
    for given, way in (((), DEFAULT_CENTRAL), (options, central)):
        switches = 1 if RULES[mode].needs_one_switch else 2
        world = CentralNodes(program, mode, 3, 0, switches=switches, options=given, central=way)
        world.run(rows)
        found.append((world.sent, world.bytes, world.entries()))
    (plain, plain_bytes, entries), (changed, bytes_, after) = found
    assert entries == after
    different = {kind for kind in plain.keys() | changed.keys() if plain[kind] != changed[kind]}
    assert different <= OWN_NUMBERS[mode][option]
    own = OWN_NUMBERS[mode][option] - CORRECTING - {"Deltas", "Fetch"}
    assert own <= different, "it does what it is for"
    if option == "compress":
        assert plain_bytes != bytes_
    if option == "elide-fetch":
        assert plain_bytes["Fetch"] != bytes_["Fetch"]
    if option.startswith("elide-push"):
        assert changed["Push"] < plain["Push"]


@pytest.mark.parametrize("nodes", sampled([2, 5], of=2))
@pytest.mark.parametrize("name", KNOWN)
def test_no_two_modes_have_sent_the_same(name: str, nodes: int) -> None:
    """The four logs send as target aggregation does, and what corrects; gated nodes send each other nothing."""
    rows = rows_of(KNOWN[name], 40, nodes, OF_EACH_PART[:4])

    def sent_in(mode: Mode, seed: int = 0) -> Counter[str]:
        switches = 1 if RULES[mode].needs_one_switch else 3
        world = CentralNodes(KNOWN[name], mode, nodes, seed, switches=switches)
        for block in rows:
            world.send(block)  # before any of them comes, so that much is late
        world.run(())
        return world.sent

    others = (mode for mode in Mode if RULES[mode].is_spread and mode is not Mode.FOUR_LOGS)
    sent = {mode: sent_in(mode) for mode in others}
    sent[Mode.FOUR_LOGS] = next(found for seed in range(20) if (found := sent_in(Mode.FOUR_LOGS, seed))["Correct"])
    assert sent[Mode.FOUR_LOGS] - sent[Mode.CENTRAL_TARGET] == Counter(Correct=sent[Mode.FOUR_LOGS]["Correct"])
    assert len({tuple(sorted(each.items())) for each in sent.values()}) == len(sent)
