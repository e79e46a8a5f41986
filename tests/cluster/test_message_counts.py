"""What each mode sends, for a row a block: the formula, and what nodes and switches have sent, are the same numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from cumulus import m3
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions, central_options
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.m3.program import On, Program
from cumulus.workloads import shop
from support.paper_programs import PROGRAMS
from support.spread_cases import Block, random_blocks
from support.tiers import examples
from support.told_in_order import CentralNodes

STAR = """
CREATE TABLE dates (datekey INT, year INT); CREATE TABLE part (partkey INT, partcat INT);
CREATE TABLE lineorder (datekey INT, partkey INT, revenue INT);
CREATE VIEW m AS SELECT partcat, year, SUM(revenue) AS revenue FROM dates, part, lineorder
WHERE dates.datekey = lineorder.datekey AND part.partkey = lineorder.partkey GROUP BY partcat, year;
"""


def programs() -> dict[str, tuple[Program, Sequence[str]]]:
    """Return the programs, each with the columns that cut it into a grid of two by five."""
    sql = {"shop": (shop.sql(), ("orders.cid=2", "orders.oid=5")), "star": (STAR, ("m.year=2", "m.partcat=5"))}
    found = {
        name: (divide(compile_sql(script, rely=False, enforced=False)).spread, cuts)
        for name, (script, cuts) in sql.items()
    }
    example = m3.read(PROGRAMS["consistency paper, example 2.1"])
    return found | {"example 2.1": (divide(example).spread, ("ORDERS.CID=2", "ORDERS.OID=5"))}


KNOWN = programs()
SPREADING = [mode for mode in Mode if RULES[mode].is_spread]


def events(program: Program, count: int, seed: int) -> list[Block]:
    """Return blocks of a row each."""
    found: list[Block] = []
    rng = random.Random(seed)
    known = {(1 if trigger.on is On.INSERT else -1, trigger.relation) for trigger in program.triggers}
    while len(found) < count:
        blocks = random_blocks(program, rng, count)
        rows = ((block.relation, row) for block in blocks for row in block.rows)
        found += [Block(0, name, (row,)) for name, row in rows if (row[0], name) in known]
    return found[:count]


def rows_in_all() -> int:
    """Return 2,000, or as many as the fast tier has time for."""
    return 2_000 if examples(8) == 8 else 40


def sent_by(
    name: str, mode: Mode, nodes: int, count: int, *, grid: bool = False, central: CentralOptions = DEFAULT_CENTRAL
) -> tuple[Counter[str], Counter[str]]:
    """Return what was sent for some rows, and what the formula says."""
    program, cuts = KNOWN[name]
    switches = 1 if RULES[mode].needs_one_switch else 2
    world = CentralNodes(program, mode, nodes, 0, "native", cuts if grid else (), switches, central=central)
    world.run(events(program, count, nodes))
    return world.sent, world.formula.counts


@pytest.mark.parametrize("nodes", [1, 2, 5, 10])
@pytest.mark.parametrize("mode", SPREADING)
@pytest.mark.parametrize("name", KNOWN)
def test_the_formula_is_what_is_sent(name: str, mode: Mode, nodes: int) -> None:
    count = rows_in_all()
    sent, formula = sent_by(name, mode, nodes, count)
    at_most = {"Deltas", "Correct"}
    assert {kind: number for kind, number in sent.items() if kind not in at_most} == {
        kind: number for kind, number in formula.items() if kind not in at_most and number
    }
    if mode is Mode.EVENTUAL:
        assert sent["Deltas"] <= formula["Deltas"] + count * nodes, "but for what corrects, one a block and pair"


@pytest.mark.parametrize("mode", SPREADING)
@pytest.mark.parametrize("name", KNOWN)
def test_so_it_is_on_a_grid_of_two_by_five(name: str, mode: Mode) -> None:
    count = rows_in_all()
    sent, formula = sent_by(name, mode, 10, count, grid=True)
    at_most = {"Deltas", "Correct"} if mode is Mode.EVENTUAL else {"Correct"}
    assert {kind: number for kind, number in sent.items() if kind not in at_most} == {
        kind: number for kind, number in formula.items() if kind not in at_most and number
    }
    if mode is Mode.EVENTUAL:
        assert 0 < sent["Deltas"] <= formula["Deltas"] + count * 10


def counts_of_table(name: str, nodes: int, count: int, *, grid: bool) -> Counter[str]:
    """Return what the formula says of the same rows by a dispatch table."""
    program, cuts = KNOWN[name]
    world = CentralNodes(program, Mode.CENTRAL_TARGET, nodes, 0, "interpreter", cuts if grid else ())
    for block in events(program, count, nodes):
        world.send(block)
    return world.formula.counts


CENTRAL = {
    "directives, poll": (central_options("directives", gc="poll=7"), 1),
    "directives, a chain": (central_options("directives", 1), 10),
    "table, poll": (central_options(gc="poll=3"), 10),
}
"""How blocks reach nodes, and which share of the rows is sent."""


@pytest.mark.parametrize("nodes", [1, 2, 5, 10, "grid"])
@pytest.mark.parametrize("way", CENTRAL)
@pytest.mark.parametrize("name", KNOWN)
def test_directives_and_polls(name: str, way: str, nodes: int | str) -> None:
    """A block is sent N times, N − 1 of them by nodes, with no PUT and no FETCH, and the PUSHes of a dispatch table."""
    (central, share), is_grid = CENTRAL[way], nodes == "grid"
    count = max(rows_in_all() // share, 20)
    number = 10 if is_grid else int(nodes)
    sent, formula = sent_by(name, Mode.CENTRAL_TARGET, number, count, grid=is_grid, central=central)
    assert +sent == +formula
    table = counts_of_table(name, number, count, grid=is_grid)
    if central.has_tree:
        assert (sent["RootBlock"], sent["ForwardedBlock"]) == (count, count * (number - 1))
        assert (sent["Put"], sent["Fetch"]) == (0, 0)
    else:
        assert (sent["Put"], sent["Fetch"]) == (table["Put"], table["Fetch"])
    assert sent["Push"] == table["Push"]
    polls = number * (count // central.poll_blocks if central.poll_blocks else 0)
    assert (sent["PutsAsked"], sent["PutsTold"], sent["VersionCommit"]) == (polls, polls, polls)


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("name", KNOWN)
def test_no_two_modes_send_the_same(name: str, nodes: int) -> None:
    tables = {mode: tuple(sorted(sent_by(name, mode, nodes, examples(80))[1].items())) for mode in SPREADING}
    same_messages = {Mode.FOUR_LOGS: Mode.CENTRAL_TARGET}  # but for what is late, which no table says
    different = [mode for mode in SPREADING if mode not in same_messages]
    assert len({tables[mode] for mode in different}) == len(different)
    assert all(tables[one] == tables[other] for one, other in same_messages.items())
