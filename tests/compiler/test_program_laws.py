"""Laws of whole programs: what must not change a result does not, and the same text gives the same program."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from decimal import localcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import rename, variables_of
from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.compiler.maps.canonical_forms import canonical
from cumulus.engine.interpreter.engine import Interpreter
from support import trusted
from support.differential import check_maps, check_views, run
from support.oracle import Oracle
from support.random_sql import scripts, views
from support.random_tables import SCHEMA, streams
from support.random_terms import atoms, guards
from support.tiers import examples, sampled

HURRIED = settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))


def selects_of(script: str) -> list[str]:
    return [view.split(" AS ", 1)[1] for view in script.strip().split(";\n")]


def fire(engine: Interpreter, events, *, batch: bool = False) -> None:
    """Apply events one by one, or the net change of each relation at once."""
    with localcontext(EXACT):
        engine.begin()
        if batch:
            net: dict[str, Counter] = {}
            for sign, relation, row in events:
                net.setdefault(relation, Counter())[row] += sign
            for relation, changes in net.items():
                engine.on_batch(relation, {row: count for row, count in changes.items() if count})
        else:
            for sign, relation, row in events:
                engine.on_event(sign, relation, row)
        engine.commit()


def contents(engine: Interpreter, program: m3.Program) -> dict[str, list[str]]:
    """The maps by what they are defined as: names depend on the order of the views."""
    return {m.sql: sorted(map(repr, engine.items(m.name))) for m in program.maps}


@given(st.data())
def test_a_canonical_form_knows_neither_names_nor_order(data):
    factors = data.draw(st.lists(atoms, min_size=1, max_size=4))
    names = sorted(frozenset().union(*map(variables_of, factors)))
    factors += data.draw(st.lists(guards(tuple(names)), max_size=2))
    keys = [name for name in names if data.draw(st.booleans())]
    others = data.draw(st.permutations([f"w{index}" for index in range(len(names))]))
    naming = dict(zip(names, others, strict=True))
    shuffled = data.draw(st.permutations([rename(factor, naming) for factor in factors]))
    one, two = canonical(keys, factors), canonical([naming[key] for key in keys], shuffled)
    assert (one.skeleton, one.values) == (two.skeleton, two.values)
    assert {naming[key] for key in one.keys} == set(two.keys)


@HURRIED
@given(st.lists(views(), min_size=2, max_size=3), streams(), st.randoms())
def test_the_order_of_the_views_changes_no_map(selects, events, draw):
    named = [view.replace("VIEW v ", f"VIEW v{index} ") for index, view in enumerate(selects)]
    programs = []
    for order in (named, draw.sample(named, len(named))):
        program = compile_sql(SCHEMA + ";\n".join(order), keep="none")
        engine = Interpreter(program)
        fire(engine, events)
        programs.append({v.name: sorted(map(repr, rows)) for v, rows in view_rows(program, engine)})
    assert programs[0] == programs[1]


def view_rows(program: m3.Program, engine: Interpreter):
    from cumulus.views import Finisher, MapViewReader

    return [(view, MapViewReader(Finisher(program, view), engine).rows()) for view in program.views]


@HURRIED
@given(scripts(), streams(max_size=25))
def test_a_batch_is_its_single_events(script, events):
    program = compile_sql(SCHEMA + script, keep="all")
    one, many = Interpreter(program), Interpreter(program)
    fire(one, events)
    fire(many, events, batch=True)
    oracle = Oracle(SCHEMA)
    for event in events:
        oracle.apply(*event)
    for engine in (one, many):
        check_maps(program, engine, oracle)
        check_views(program, engine, oracle, selects_of(script))


@pytest.mark.parametrize("rely", sampled([True, False], of=2))
@pytest.mark.parametrize("seed", sampled(range(2), of=2))
def test_trusted_keys_change_no_result_while_the_promises_hold(seed, rely):
    made = trusted.Promises(seed)
    events = made.loaded() + [made.event() for _ in range(45)]
    assert {sign for sign, _, _ in events} == {1, -1}
    run(
        trusted.VIEWS.strip(),
        events,
        schema=trusted.SCHEMA,
        plain=trusted.PLAIN,
        rely=rely,
        keep="all" if seed % 2 else "none",
    )


def test_a_row_may_be_its_own_trusted_parent():
    plain = "CREATE TABLE e (id INT, boss INT, pay INT);"
    schema = "CREATE TABLE e (id INT PRIMARY KEY RELY, boss INT REFERENCES e (id) RELY, pay INT);"
    view = "CREATE VIEW v AS SELECT SUM(b.pay) AS s FROM e x, e b WHERE x.boss = b.id"
    rows = [(4, 4, 1), (1, 1, 5), (2, 1, 7), (3, 2, 9)]
    run(view, [(1, "e", row) for row in rows] + [(-1, "e", row) for row in reversed(rows)], schema=schema, plain=plain)
    engine = Interpreter(compile_sql(schema + view, keep="none"))
    for sign, some in ((1, rows), (-1, rows[1:])):
        fire(engine, [(sign, "e", row) for row in some], batch=True)
    assert list(engine.items("v")) == [((), (1, 1, 1))]


def test_trusted_keys_save_work():
    sizes = [len(compile_sql(trusted.SCHEMA + trusted.VIEWS, keep="none", rely=rely).maps) for rely in (True, False)]
    assert sizes[0] < sizes[1]


@HURRIED
@given(scripts())
def test_what_is_printed_is_read_back(script):
    for keep in ("none", "all"):
        program = compile_sql(SCHEMA + script, keep=keep)
        assert m3.parse(str(program)) == program


def test_the_same_text_gives_the_same_program_in_every_process(tmp_path: Path):
    draw = random.Random(5)
    copies = ", ".join(f"r r{index}" for index in range(4))
    joins = " AND ".join(f"r{draw.randrange(4)}.a = r{index}.b" for index in range(4))
    text = SCHEMA + f"CREATE VIEW v AS SELECT r0.c, SUM(r1.d * r2.d) FROM {copies} WHERE {joins} GROUP BY r0.c;"
    file = tmp_path / "script.sql"
    file.write_text(text + trusted.SCHEMA + trusted.VIEWS, encoding="utf-8")
    line = "import sys, pathlib, cumulus; sys.stdout.write(str(cumulus.compile(pathlib.Path(sys.argv[1]))))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", line, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert printed[0].decode()
