"""Every map of a compiled program equals its definition's SQL on DuckDB, after every event."""

from __future__ import annotations

import math
from decimal import localcontext

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter import Interpreter
from support.random_sql import SCHEMA, scripts, streams


def same_number(left, right):
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return left == right


def check_maps(program, engine, database):
    for m in program.maps:
        width = len(m.keys)
        expected = {}
        for row in database.execute(m.sql).fetchall():
            numbers = tuple(0 if value is None else value for value in row[width:])
            if any(numbers):
                expected[row[:width]] = numbers
        found = {key: numbers for key, numbers in engine.items(m.name) if any(numbers)}
        assert found.keys() == expected.keys(), m.name
        for key, numbers in found.items():
            assert all(map(same_number, numbers, expected[key])), (m.name, key, numbers, expected[key])


def run(script, events, *, batch=False):
    program = compile_sql(SCHEMA + script, keep="none")
    engine = Interpreter(program)
    database = duckdb.connect()
    database.execute(SCHEMA)
    for sign, relation, row in events:
        with localcontext(EXACT):
            engine.begin()
            if batch:
                engine.on_batch(relation, {row: sign})
            else:
                engine.on_event(sign, relation, row)
            engine.commit()
        if sign > 0:
            database.execute(f"INSERT INTO {relation} VALUES ({','.join('?' * len(row))})", row)
        else:
            where = " AND ".join(
                f"{c[0]} IS NOT DISTINCT FROM ?" for c in database.execute(f"DESCRIBE {relation}").fetchall()
            )
            database.execute(
                f"DELETE FROM {relation} WHERE rowid = (SELECT min(rowid) FROM {relation} WHERE {where})", row
            )
        check_maps(program, engine, database)


@pytest.mark.parametrize("batch", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(), streams())
def test_maps_equal_their_definitions_after_every_event(batch, script, events):
    run(script, events, batch=batch)
