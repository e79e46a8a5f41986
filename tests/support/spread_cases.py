"""Programs that nodes of a cluster can run, blocks of random rows that meet their conditions, and what comes out."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import hypothesis
import pytest

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import Const
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.m3.infer import nodes
from cumulus.m3.program import Program
from cumulus.workloads import flights, shop
from cumulus_lab.workloads import queries
from support import random_tables

SQL = {
    "self_join": """
        CREATE TABLE r (a INTEGER, b VARCHAR, x INTEGER NOT NULL);
        CREATE VIEW v AS SELECT r.b, SUM(r.x * s.x) AS q FROM r, r s WHERE r.a = s.a GROUP BY r.b;""",
    "three_times": """
        CREATE TABLE r (a INTEGER NOT NULL, b INTEGER NOT NULL, x DECIMAL(6,2) NOT NULL);
        CREATE VIEW v AS SELECT r.b, COUNT(*) AS n, SUM(t.x) AS q FROM r, r s, r t
        WHERE r.a = s.b AND s.a = t.b GROUP BY r.b;""",
    "rows_of_tables": """
        CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, c INTEGER);
        CREATE TABLE t (c INTEGER, x INTEGER);
        CREATE VIEW v WITH (order = 1) AS SELECT r.a, SUM(t.x) AS q, COUNT(*) AS n
        FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND r.a < t.x GROUP BY r.a;""",
    "nulls_texts_doubles": """
        CREATE TABLE r (a VARCHAR, d DOUBLE, day DATE);
        CREATE TABLE s (a VARCHAR, b VARCHAR NOT NULL, x DECIMAL(8,2));
        CREATE VIEW v AS SELECT s.b, day, SUM(d) AS d, AVG(d * x) AS q, COUNT(x) AS n
        FROM r, s WHERE r.a = s.a GROUP BY s.b, day;
        CREATE VIEW w AS SELECT a, MIN(x) AS lo, MAX(x) AS hi FROM s WHERE b LIKE 'a%' GROUP BY a;""",
}

M3 = {
    "twice_in_a_product": """
        RELATION r(a INT, b INT); RELATION s(a INT, x INT);
        MAP m[a INT](n BIGINT, s BIGINT) COUNT n; MAP q[a INT](n BIGINT);
        MAP p[](n BIGINT); MAP z[a INT, b INT](n BIGINT);
        ON +r(a, b) { q[a] += m[a].n * m[b].s + 2 * m[a].s * m[a].s * m[b].n; p[] += m[a].n * SUM[](m[c].s * m[c].n);
                      z[a, c] += m[c].n * m[c].s * b; }
        ON -r(a, b) { q[a] += -m[a].n * m[b].s - 2 * m[a].s * m[a].s * m[b].n; p[] += -m[a].n * SUM[](m[c].s * m[c].n);
                      z[a, c] += -m[c].n * m[c].s * b; }
        ON +s(a, x) { m[a].n += 1; m[a].s += x; } ON -s(a, x) { m[a].n += -1; m[a].s += -x; }""",
    "keys_and_loops": """
        RELATION r(a INT, b INT); RELATION s(a INT, x INT NOT NULL); RELATION t(v INT, w INT, x INT);
        MAP m[a INT, x INT](n BIGINT) START (1, 1: 1); MAP u[](n BIGINT) START (: 2);
        MAP k[x INT](n BIGINT) START (0: 3); MAP q[a INT](n BIGINT); MAP p[x INT](n BIGINT); MAP z[a INT](n BIGINT);
        ON +r(a, b) { q[c] += u[] * m[a + 1, c] * {c < b}; p[x] += m[a, x] * k[x] * (u[] + k[b] - 3); }
        ON -r(a, b) { q[c] += -u[] * m[a + 1, c] * {c < b}; p[x] += -m[a, x] * k[x] * (u[] + k[b] - 3); }
        ON +s(a, x) { m[a, x] += 1; u[] += x; p[a] += (y := x + 1) * k[y]; z[a] += m[c, c] * m[x, c]; }
        ON -s(a, x) { m[a, x] += -1; u[] += -x; p[a] += -(y := x + 1) * k[y]; z[a] += -m[c, c] * m[x, c]; }
        ON +t(v, w, x) { k[v] += w * x; } ON -t(v, w, x) { k[v] += -w * x; }""",
    "types_meet": """
        RELATION r(a BIGINT, b DECIMAL(4,2), c INT); RELATION s(a INT, x SMALLINT NOT NULL); RELATION t(c BIGINT);
        MAP m[a INT](n BIGINT); MAP k[b BIGINT](n DECIMAL(10,2));
        MAP q[a BIGINT](n DECIMAL(38,2)); MAP p[c INT](n BIGINT);
        ON +r(a, b, c) { q[a] += m[a] * k[b] * b; p[c] += m[c] * m[a]; }
        ON -r(a, b, c) { q[a] += -m[a] * k[b] * b; p[c] += -m[c] * m[a]; }
        ON +s(a, x) { m[a] += x; } ON -s(a, x) { m[a] += -x; } ON +t(c) { k[c] += 0.5; } ON -t(c) { k[c] += -0.5; }""",
    "untyped": """
        ON +R(A, B) { m1 += m2[A]; m2[A] += m3[B]; w[A, C] += m2[A] * m4[C, B] } ON +S(B) { m3[B] += 2; m4[B, B] += 1 }
        ON -R(A, B) { m1 += -m2[A]; m2[A] += -m3[B]; w[A, C] += -m2[A] * m4[C, B] }
        ON -S(B) { m3[B] += -2; m4[B, B] += -1 }""",
    "signs_differ": """
        RELATION r(a INT); RELATION s(a INT);
        MAP m[a INT](n BIGINT); MAP q[a INT](n BIGINT); MAP last[](n BIGINT);
        ON +r(a) { q[a] += m[a] * m[b] * b; last[] += q[a]; }
        ON -r(a) { q[a] += 3 * m[a] - SUM[](m[a] * m[b] * b); last[] += -q[a]; }
        ON +s(b) { m[b] += 1; } ON -s(c) { m[c] += -1; q[c] += 1; }""",
}

BENCHMARKS = ("tpch q3", "tpch q5", "tpch q7", "tpch q14", "ssb q1_1", "ssb q3_3", "orderbook bsp")
SMALL = ("shop", *SQL, *M3)


@cache
def spread_program(name: str) -> Program:
    """Return the spread program of a case; nothing of it is gated."""
    if name in M3:
        program = m3.read(M3[name])
    else:
        if name in SQL or name in ("shop", "flights"):
            text = SQL.get(name) or {"shop": shop.sql, "flights": flights.sql}[name]()
        else:
            workload, query = name.split()
            text = queries(workload, query, columns="used")[query]
        program = compile_sql(text, rely=False, enforced=False)
    division = divide(program)
    assert not division.maps, division.maps
    return division.spread


@dataclass(frozen=True)
class Block:
    """Rows of a relation with their signs, under versions that begin with the first."""

    first: int
    relation: str
    rows: tuple[tuple[int, tuple[Any, ...]], ...]


def random_blocks(program: Program, rng: random.Random, count: int, longest: int = 4) -> list[Block]:
    """Return blocks in the order of their versions, which have gaps; a third of the rows go again, some never came."""
    rows = RandomRows(program, rng)
    relations = sorted({trigger.relation for trigger in program.triggers})
    version, blocks = 10, []
    here: dict[str, list[tuple[Any, ...]]] = {name: [] for name in relations}
    for _ in range(count):
        relation = rng.choice(relations)
        listed = []
        for _ in range(rng.randint(1, longest)):
            known = here[relation]
            if known and rng.random() < 0.35:
                listed.append((-1, known.pop(rng.randrange(len(known)))))
            elif rng.random() < 0.05:
                listed.append((-1, rows.row(relation)))
            else:
                known.append(rows.row(relation))
                listed.append((1, known[-1]))
        blocks.append(Block(version, relation, tuple(listed)))
        version += longest + rng.randint(0, 3)
    return blocks


class RandomRows:
    """Rows of few values, among them the literals of the program, so that they join and meet conditions."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        self._rng = rng
        self._relations = {relation.name: relation for relation in program.relations}
        self._literals: dict[type, set[Any]] = {}
        for _, statement in program.statements():
            for node in nodes(statement.term):
                if isinstance(node, Const) and node.value is not None:
                    self._literals.setdefault(type(node.value), set()).add(node.value)

    def row(self, relation: str) -> tuple[Any, ...]:
        return self._relations[relation].checked([self._value(column) for column in self._relations[relation].columns])

    def _value(self, column: Column) -> Any:
        if not column.not_null and self._rng.random() < 0.15:
            return None
        return self._rng.choice(list(self._pool(column)))

    def _pool(self, column: Column) -> Iterator[Any]:
        match column.type.kind if column.type else Kind.INTEGER:
            case Kind.VARCHAR:
                yield from ("a", "b", "ab")
                yield from sorted(text.replace("%", "x") for text in self._literals.get(str, ()))
            case Kind.DATE:
                for date in sorted(self._literals.get(dt.date, {dt.date(2020, 1, 1)})):
                    yield from (date - dt.timedelta(1), date, date + dt.timedelta(1))
            case Kind.TIMESTAMP:
                yield from (dt.datetime(2020, 1, 1, hour) for hour in range(3))
            case Kind.DOUBLE:
                yield from (0.1, 2.5, -3.0, 1e6)
            case Kind.DECIMAL:
                yield from (Decimal("0.05"), Decimal("0.06"), Decimal("1.10"), Decimal("2.00"))
            case _:
                yield from (0, 1, 2)
                yield from sorted(self._literals.get(int, ()))[:2]


def views_that_look_up(script: str, seed: int, count: int) -> tuple[Program, list[random_tables.Event]]:
    """Return the spread program of random views with random events of its tables; drop an example without look-ups."""
    program = divide(compile_sql(random_tables.SCHEMA + script, rely=False, enforced=False)).spread
    hypothesis.assume(any(maps_of(statement.term) for _, statement in program.statements()))
    relations = {trigger.relation for trigger in program.triggers}
    return program, [event for event in random_tables.walk(random.Random(seed), count) if event[1] in relations]


EXTREME_KEYS = {
    "DOUBLE": [0.0, -0.0, float("nan"), -float("nan"), 1e308, 5e-324, None],
    "BIGINT": [2**63 - 1, -(2**63) + 1, 0, None],
    "VARCHAR": ["", " ", "ü", "\x00", "a" * 5000, None],
    "DECIMAL(38,10)": [None],
}


def join_of_keys(type: str) -> tuple[Program, list[Block], Block, Block]:
    """Return a join by extreme keys of a type, blocks of the side s, and one of r that comes and one that goes."""
    script = f"""CREATE TABLE r (k {type}, x INTEGER); CREATE TABLE s (k {type}, y INTEGER);
        CREATE VIEW v AS SELECT y, SUM(x) AS q, COUNT(*) AS n FROM r, s WHERE r.k = s.k GROUP BY y;"""
    values = EXTREME_KEYS[type]
    sides = [Block(at, "s", tuple((1, (value, at)) for value in values)) for at in range(3)]
    rows = Block(3, "r", tuple((1, (value, place + 1)) for place, value in enumerate(values)))
    gone = Block(4, "r", tuple((-1, row) for _, row in rows.rows[:2]))
    return divide(compile_sql(script, rely=False, enforced=False)).spread, sides, rows, gone


def states(program: Program, blocks: list[Block]) -> dict[str, dict[Any, Any]]:
    """Return the entries of all maps after the rows of blocks, one by one in the order of their versions."""
    oracle = Interpreter(program)
    for block in sorted(blocks, key=lambda each: each.first):
        for sign, row in block.rows:
            oracle.begin()
            oracle.on_event(sign, block.relation, row)
            oracle.commit()
    return {definition.name: dict(oracle.items(definition.name)) for definition in program.maps}


def approximately(entries: dict[Any, Any]) -> dict[Any, Any]:
    """Return entries to compare with: floats within rounding, all else exactly."""
    return {
        key: tuple(pytest.approx(each, rel=1e-9, abs=1e-6) if isinstance(each, float) else each for each in values)
        for key, values in entries.items()
    }
