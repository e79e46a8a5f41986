"""The order of materialisation: views kept from rows alone, and views that are evaluated again, are exact too."""

from __future__ import annotations

import pytest

from cumulus.algebra.scope import relations_of
from cumulus.compiler import compile_sql
from cumulus.errors import BindError, UnsupportedError
from cumulus.explain.layout.choice import choose_layout
from support.differential import run
from support.tiers import sampled
from support.whole_language import SCHEMA, VIEWS

JOIN = "SELECT s.d, t.f, SUM(c) AS x FROM r, s, t WHERE r.a = s.a AND s.d = t.d GROUP BY s.d, t.f"
EVENTS = [
    (1, "r", (1, 2, 3)),
    (1, "s", (1, 4)),
    (1, "t", (4, 0.5, "x")),
    (1, "r", (None, 1, 1)),
    (1, "r", (1, 5, 2)),
    (-1, "r", (1, 2, 3)),
    (1, "s", (1, 4)),
    (-1, "t", (4, 0.5, "x")),
    (1, "t", (4, None, "y")),
    (-1, "s", (1, 4)),
]


@pytest.mark.parametrize("place", sampled(range(len(VIEWS)), of=3))
def test_a_view_is_exact_in_every_order(place: int) -> None:
    run(f"CREATE VIEW v AS {VIEWS[place]}", EVENTS, schema=SCHEMA, order=place % 2, batch=place // 2 % 2 * 3)


def tables_of_maps(order: str) -> set[int]:
    """How many tables the definitions of the maps beside the view's own join."""
    program = compile_sql(f"{SCHEMA} CREATE VIEW v WITH (order = {order}) AS {JOIN}")
    return {len(relations_of(term)) for each in program.maps[1:] for term in each.definitions}


def test_only_the_full_order_keeps_joins() -> None:
    assert tables_of_maps("0") == tables_of_maps("1") == {1}
    assert tables_of_maps("full") == {1, 2}


def test_each_view_has_an_order_of_its_own() -> None:
    script = f"{SCHEMA} CREATE VIEW v AS {JOIN}; CREATE VIEW w WITH (order = 0) AS {JOIN}; CREATE VIEW x AS {JOIN}"
    program = compile_sql(script)
    replaced = {s.map for trigger in program.triggers for s in trigger.statements if s.op == ":="}
    assert replaced == {"w"}
    assert program.view("x").maps == program.view("v").maps
    assert {s.op for t in compile_sql(script, order=0).triggers for s in t.statements if s.map == "v"} == {":="}
    assert choose_layout(program).tags.keys() == {each.name for each in program.maps}


def test_what_is_evaluated_again_is_not_strict() -> None:
    with pytest.raises(UnsupportedError, match="computed anew"):
        compile_sql(f"{SCHEMA} CREATE STRICT VIEW v WITH (order = 0) AS {JOIN}")


@pytest.mark.parametrize("clause", ["order = 2", "order = many", "static = true", "order = 1, keep = all"])
def test_other_options_of_a_view_are_refused(clause: str) -> None:
    with pytest.raises(BindError, match="unknown view option") as refused:
        compile_sql(f"{SCHEMA} CREATE VIEW v WITH ({clause}) AS {JOIN}")
    assert refused.value.line == 5
    assert "order = 0" in refused.value.hint


def test_a_query_may_still_begin_with() -> None:
    program = compile_sql(
        f"{SCHEMA} CREATE VIEW v AS WITH w AS (SELECT a FROM r) SELECT a, COUNT(*) AS n FROM w GROUP BY a"
    )
    assert [column.name for column in program.views[0].columns] == ["a", "n"]
