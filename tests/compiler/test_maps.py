"""Every map equals its definition's SQL, and every view its SELECT, on DuckDB, after every event."""

from __future__ import annotations

from decimal import localcontext

import pytest
from hypothesis import HealthCheck, given, settings

from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter import Interpreter
from cumulus.views import Finisher, MapViewReader
from support.oracle import Oracle, same_bag, same_value
from support.random_sql import SCHEMA, scripts, streams


def check_maps(program, engine, oracle):
    for m in program.maps:
        width = len(m.keys)
        expected = {}
        for row in oracle.rows(m.sql):
            numbers = tuple(0 if value is None else value for value in row[width:])
            if any(numbers):
                expected[row[:width]] = numbers
        found = {key: numbers for key, numbers in engine.items(m.name) if any(numbers)}
        assert found.keys() == expected.keys(), m.name
        for key, numbers in found.items():
            assert all(map(same_value, map(number, numbers), map(number, expected[key]))), (m.name, key)


def number(value):
    return value if isinstance(value, float) else value + 0


def check_views(program, engine, oracle, selects):
    for view, select in zip(program.views, selects, strict=True):
        reader = MapViewReader(Finisher(program, view), engine)
        table = reader.arrow()
        assert table.column_names == [column.name for column in view.columns]
        assert same_bag(reader.rows(), oracle.rows(select)), (view.name, reader.rows(), oracle.rows(select))


def run(script, events, *, batch=False, maps=True):
    program = compile_sql(SCHEMA + script, keep="none")
    selects = [view.split(" AS ", 1)[1] for view in script.split(";\n")]
    engine = Interpreter(program)
    oracle = Oracle(SCHEMA)
    for view, select in zip(program.views, selects, strict=True):
        assert [(c.name, str(c.type)) for c in view.columns] == oracle.types(select)
    check_views(program, engine, oracle, selects)
    for sign, relation, row in events:
        with localcontext(EXACT):
            engine.begin()
            if batch:
                engine.on_batch(relation, {row: sign})
            else:
                engine.on_event(sign, relation, row)
            engine.commit()
        oracle.apply(sign, relation, row)
        if maps:
            check_maps(program, engine, oracle)
        check_views(program, engine, oracle, selects)


@pytest.mark.parametrize("batch", [False, True])
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(), streams())
def test_views_and_maps_are_exact_after_every_event(batch, script, events):
    run(script, events, batch=batch)
