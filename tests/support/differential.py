"""The differential harness: a script of views beside DuckDB, compared after every event."""

from __future__ import annotations

from collections import Counter
from decimal import localcontext

from cumulus import m3
from cumulus.catalog.types import BIGDECIMAL, EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.views import Finisher, MapViewReader
from support.oracle import Oracle, same_bag
from support.random_tables import SCHEMA
from support.tiers import WHOLE


def check_maps(program, engine, oracle):
    """Every map holds what its definition's SQL says on DuckDB."""
    for m in program.maps:
        width = len(m.keys)
        # DuckDB has floats where maps keep decimals of any length.
        kinds = [float if column.type == BIGDECIMAL else lambda value: value for column in m.values]
        expected = {}
        for row in oracle.rows(m.sql):
            numbers = tuple(kind(value or 0) for kind, value in zip(kinds, row[width:], strict=True))
            if any(numbers):
                expected[row[:width]] = numbers
        items = [(key, tuple(kind(v) for kind, v in zip(kinds, row, strict=True))) for key, row in engine.items(m.name)]
        found = {key: numbers for key, numbers in items if any(numbers)}
        bag = [(*key, *map(number, numbers)) for key, numbers in found.items()]
        assert same_bag(bag, [(*key, *map(number, numbers)) for key, numbers in expected.items()]), m.name


def number(value):
    return value if isinstance(value, float) else value + 0


def check_views(program, engine, oracle, selects):
    """Every view has the rows and columns of its SELECT on DuckDB."""
    for view, select in zip(program.views, selects, strict=True):
        reader = MapViewReader(Finisher(program, view), engine)
        table = reader.arrow()
        assert table.column_names == [column.name for column in view.columns]
        assert same_bag(reader.rows(), oracle.rows(select)), (view.name, reader.rows(), oracle.rows(select))


def run(script, events, *, batch=0, maps=True, schema=SCHEMA, plain=None, **options):
    """Compile a script of views and compare with DuckDB after every event, maps after every third in the fast tier.

    `batch`: as many events of one relation, neighbours in the stream or not, go in as one net change. `plain` is the
    schema for DuckDB, if it does not read ours.
    """
    program = compile_sql(schema + script, **{"keep": "none", **options})
    assert m3.parse(str(program)) == program
    assert m3.problems(program) == ()
    selects = [view.split(" AS ", 1)[1] for view in script.split(";\n")]
    engine = Interpreter(program)
    oracle = Oracle(plain or schema)
    if len(selects) > 1 and any(f" {view.name}" in select for view in program.views for select in selects):
        oracle.database.execute(script)
    for view, select in zip(program.views, selects, strict=True):
        assert [(c.name, str(c.type).replace("REAL", "FLOAT")) for c in view.columns] == oracle.types(select)
    if maps:
        check_maps(program, engine, oracle)
    check_views(program, engine, oracle, selects)
    groups = list(in_batches(events, batch))
    for place, group in enumerate(groups, 1):
        with localcontext(EXACT):
            engine.begin()
            if batch:
                net = Counter()
                for sign, _, row in group:
                    net[row] += sign
                engine.on_batch(group[0][1], {row: count for row, count in net.items() if count})
            else:
                engine.on_event(*group[0])
            engine.commit()
        for event in group:
            oracle.apply(*event)
        if maps and (WHOLE or place % 3 == 0 or place == len(groups)):
            check_maps(program, engine, oracle)
        check_views(program, engine, oracle, selects)


def in_batches(events, size):
    """Return the events in groups of one relation each."""
    waiting = {}
    for event in events:
        group = waiting.setdefault(event[1], [])
        group.append(event)
        if len(group) >= size:
            yield waiting.pop(event[1])
    yield from waiting.values()
