"""Triggers of both signs: each sign gives back the trigger of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.algebra.terms import number, rebuild
from cumulus.compiler import compile_sql
from cumulus.engine.analysis.signs import SIGN, joined_triggers
from cumulus.m3 import parse
from cumulus.m3.program import On, Program, Trigger
from cumulus_lab.workloads import queries
from fuzz.case import parse_case
from support.tiers import sampled

CASES = sorted(Path(__file__).parents[1].joinpath("compiler", "regressions").glob("*.sql"))
QUERIES = {
    f"{each}-{name}": sql for each in ("tpch", "orderbook") for name, sql in queries(each, keys="foreign").items()
}


def with_sign(term: Any, sign: int) -> Any:
    return number(sign) if term is SIGN else rebuild(term, lambda each: with_sign(each, sign))


def pairs(program: Program) -> list[tuple[Trigger, Trigger]]:
    found = {(trigger.on, trigger.relation): trigger for trigger in program.triggers}
    return [(found[On.INSERT, name], found[On.DELETE, name]) for on, name in found if on is On.DELETE]


def check(program: Program) -> None:
    for pair in pairs(program):
        statements = joined_triggers(*pair)
        assert statements is not None
        for sign, trigger in zip((1, -1), pair, strict=True):
            for statement, own in zip(statements, trigger.statements, strict=True):
                assert (statement.map, statement.column, statement.keys) == (own.map, own.column, own.keys)
                assert with_sign(statement.term, sign) is own.term


@pytest.mark.parametrize("path", sampled(CASES, of=3))
def test_each_sign_is_a_trigger(path: Path) -> None:
    case = parse_case(path.read_text(encoding="utf-8"), "event")
    check(compile_sql(case.sql([name for name, _ in case.views])))


@pytest.mark.parametrize("name", sampled(QUERIES, of=3))
def test_each_sign_is_a_trigger_of_a_query(name: str) -> None:
    check(compile_sql(QUERIES[name]))


DECLARED = "RELATION r(a INT, b INT); MAP m[a INT](n INT); MAP q[](n INT);"


@pytest.mark.parametrize(
    ("insertion", "deletion", "both"),
    [
        ("m[a] += 1", "m[a] += -1", '"#sign"'),
        ("m[a] += 3 * b", "m[a] += 3 * b", "3 * b"),
        ("m[a] += (x := m[a] + b) * x", "m[a] += (x := m[a] + -1 * b) * x", '(x := m[a].n + "#sign" * b) * x'),
        ("m[a] += EXISTS(m[a] + 1)", "m[a] += EXISTS(m[a] + -1)", 'EXISTS(m[a].n + "#sign")'),
        ("m[a] += {SUM[](m[b]) > 2}", "m[a] += -1 * {SUM[](m[b]) > 2}", '"#sign" * {SUM[](m[b].n) > 2}'),
        ("m[a] += {b > 2}", "m[a] += {b > 3}", None),
        ("m[a] += {b > 2}", "m[a] += {b >= 2}", None),
        ("m[a] += 2 * b", "m[a] += -1 * b", None),
        ("m[a] += b", "m[b] += b", None),
        ("m[a] += b", "q[] += b", None),
        ("m[a] += b", "m[a] += 1", None),
        ("m[a] += b", "m[a] += b; m[a] += 1", None),
        ("m[a] += NEW q[]", "m[a] += q[]", None),
        ("m[a] += (x := q[]) * x", "m[a] += (y := q[]) * y", None),
        ("m[a] += SUM[](m[b]) + b", "m[a] += SUM[](m[b])", None),
    ],
)
def test_what_differs_in_signs_alone_is_one(insertion: str, deletion: str, both: str | None) -> None:
    program = parse(f"{DECLARED} ON +r(a, b) {{ {insertion} }} ON -r(a, b) {{ {deletion} }}")
    found = joined_triggers(*program.triggers)
    assert (None if found is None else str(found[0].term)) == both


def test_variables_must_be_the_same() -> None:
    program = parse(f"{DECLARED} ON +r(a, b) {{ m[a] += 1 }} ON -r(b, a) {{ m[a] += -1 }}")
    assert joined_triggers(*program.triggers) is None


def test_a_column_may_be_called_as_the_sign() -> None:
    program = compile_sql(
        'CREATE TABLE r ("#sign" INT, b INT); CREATE VIEW v AS SELECT "#sign" AS s, SUM(b) AS n FROM r GROUP BY s'
    )
    assert [joined_triggers(*pair) for pair in pairs(program)] == [None]
    warehouse = Warehouse(program)
    warehouse.insert("r", [(2, 3), (2, 5), (4, 7)])
    warehouse.delete("r", [(2, 3)])
    assert sorted(warehouse.view("v").rows()) == [(2, 5), (4, 7)]
