"""Bounds on the entries of maps hold on real rows, and bytes are about what the interpreter takes."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest

from cumulus import Warehouse
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.explain.sizes import Size, Statistics, bytes_per_entry, size_of
from cumulus.explain.view_costs import explain_views
from cumulus.m3 import parse

SQL = """
CREATE TABLE n (nk INT PRIMARY KEY, region INT NOT NULL);
CREATE TABLE c (ck INT PRIMARY KEY, nk INT REFERENCES n, city VARCHAR);
CREATE TABLE o (ok INT PRIMARY KEY, ck INT NOT NULL, price INT NOT NULL, day INT);
CREATE VIEW by_region AS SELECT region, day, SUM(price) AS s FROM n, c, o
  WHERE n.nk = c.nk AND c.ck = o.ck GROUP BY region, day;
CREATE VIEW by_city AS SELECT city, price % 3 AS m, COUNT(*) AS k FROM c, o WHERE c.ck = o.ck GROUP BY city, price % 3;
CREATE VIEW pairs AS SELECT a.day, COUNT(*) AS k FROM o a, o b WHERE a.price < b.price GROUP BY a.day;
"""


def rows(seed: int) -> dict[str, list[tuple[object, ...]]]:
    draw = random.Random(seed)
    nations = [(k, draw.randrange(3)) for k in range(6)]
    customers = [(k, draw.choice([*range(6), None]), draw.choice(["Oslo", "Rome", None])) for k in range(25)]
    orders = [(k, draw.randrange(25), draw.randrange(40), draw.choice([1, 2, None])) for k in range(60)]
    return {"n": nations, "c": customers, "o": orders}


@pytest.mark.parametrize("seed", range(4))
def test_no_map_is_larger_than_its_bound(seed: int):
    given = rows(seed)
    wh = Warehouse(SQL)
    with wh.transaction():
        for table, each in given.items():
            wh.insert(table, each)
    distinct = {
        (relation.name, column): len({row[place] for row in given[relation.name]})
        for relation in wh.program.relations
        for place, column in enumerate(relation.column_names)
    }
    statistics = Statistics({name: len(each) for name, each in given.items()}, distinct)
    entries = wh.stats().entries
    uses = {u.definition.name: u.size for e in explain_views(wh.program, None, statistics) for u in e.maps}
    assert uses
    for name, size in uses.items():
        assert size.entries is not None
        assert entries[name] <= size.entries, name
    # Rows alone say something too: distinct values are at most rows.
    for explanation in explain_views(wh.program, None, Statistics(statistics.rows)):
        for use in explanation.maps:
            assert use.size.entries is not None
            assert entries[use.definition.name] <= use.size.entries


def bound(sql: str, map_name: str, rows: dict[str, int], distinct: dict[tuple[str, str], int]) -> Size:
    program = compile_sql(sql, keep="none")
    tables = {relation.name: relation for relation in program.relations}
    return size_of(program.map(map_name), tables, Statistics(rows, distinct))


def test_primary_keys_make_a_join_as_large_as_the_table_that_it_hangs_on():
    counts = {"n": 10, "c": 1_000, "o": 50_000}
    program = compile_sql(SQL, keep="none")
    tables = {relation.name: relation for relation in program.relations}
    for each in program.maps:
        entries = size_of(each, tables, Statistics(counts)).entries
        assert entries is not None
        if each.name != "pairs":
            assert entries <= 50_000, each.name  # never a product of tables


def test_a_missing_count_leaves_the_formula():
    assert bound(SQL, "by_region", {}, {}) == Size("rows(o)")
    known = bound(SQL, "by_region", {}, {("n", "region"): 3, ("o", "day"): 2})
    assert known.entries == 6


def test_the_groups_of_a_nested_sum_are_those_of_its_rows():
    program = parse("""
        RELATION o(oid INT, cid INT);
        MAP counts[n BIGINT](k BIGINT) = SUM[n]((n := SUM[cid](o(oid, cid))));
        MAP both[n BIGINT, s BIGINT](k BIGINT)
          = SUM[n, s]((n := SUM[cid](o(oid, cid))) * (s := SUM[cid](o(oid, cid) * oid)));
    """)
    tables = {relation.name: relation for relation in program.relations}
    for name in ("counts", "both"):
        found = size_of(program.map(name), tables, Statistics({"o": 100}, {("o", "cid"): 7}))
        assert (found.formula, found.entries) == ("distinct(o.cid)", 7)


def test_a_map_without_a_definition_has_no_bound():
    assert size_of(parse("ON +R(a) { m[a] += 1 }").map("m"), {}, Statistics({"R": 5})) == Size("")


@pytest.mark.parametrize(
    ("declaration", "entry"),
    [
        ("m[a INTEGER](v BIGINT)", lambda i: ((i,), (10**10 + i,))),
        ("m[a INTEGER, b VARCHAR](v BIGINT)", lambda i: ((i, f"name {i:07d}"), (10**10 + i,))),
        ("m[a INTEGER](n BIGINT, x DOUBLE) COUNT n", lambda i: ((i,), (10**10 + i, i + 0.5))),
        ("m[a INTEGER, b INTEGER](n BIGINT, s BIGINT) COUNT n", lambda i: ((i, i // 4), (10**10 + i, 10**11 + i))),
    ],
)
def test_bytes_are_those_of_the_interpreter(declaration: str, entry):
    number = 40_000
    program = parse(f"RELATION r(a INTEGER); MAP {declaration};")
    engine = Interpreter(program)
    tracemalloc.start()
    engine.load("m", (entry(1000 + i) for i in range(number)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] / number
    tracemalloc.stop()
    assert 0.6 < bytes_per_entry(program.map("m")) / taken < 1.6
