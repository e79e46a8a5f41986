"""Maps as columns: what the native engine writes the interpreter reads, to the bit, and the other way round."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import dump, restore
from cumulus.engine.transaction import Applying
from cumulus.m3 import parse
from engine.native.test_engine import EVENTS, PROGRAM, apply


def state(engine: Engine) -> dict[str, dict[str, object]]:
    return {each.name: {repr(key): kept for key, kept in engine.stored(each.name)} for each in engine.program.maps}


@pytest.mark.parametrize(("writer", "reader"), [(NativeEngine, Interpreter), (Interpreter, NativeEngine)])
def test_what_one_engine_writes_the_other_reads(writer, reader) -> None:
    program = parse(PROGRAM)
    one, other = writer(program), reader(program)
    with Applying():
        apply(one, EVENTS, "event")
        for each in program.maps:
            restore(other, each.name, dump(one, each.name))
    assert state(other) == state(one)
    for each in program.maps:
        assert dump(other, each.name).column_names == dump(one, each.name).column_names


TYPES = """
RELATION r(b BOOLEAN, d DATE, t TIMESTAMP, i TINYINT, n DECIMAL(5, 2), h HUGEINT, v INTERVAL, f REAL, s VARCHAR);
MAP m[b BOOLEAN, d DATE, t TIMESTAMP, i TINYINT, n DECIMAL(5, 2), h HUGEINT, v INTERVAL, f REAL, s VARCHAR](
  c BIGINT, w HUGEINT, l BIGDECIMAL) COUNT c;
ON +r(b, d, t, i, n, h, v, f, s) {
  m[b, d, t, i, n, h, v, f, s].c += 1;
  m[b, d, t, i, n, h, v, f, s].w += h * h;
  m[b, d, t, i, n, h, v, f, s].l += exactly(f)
}
"""


@pytest.mark.parametrize("boxed", [False, True])
def test_every_type_goes_there_and_back(boxed: bool) -> None:
    import datetime as dt

    from cumulus.catalog.types import Interval

    text = TYPES
    if not boxed:
        text = text.replace(", l BIGDECIMAL", "").replace("  m[b, d, t, i, n, h, v, f, s].l += exactly(f)\n", "")
    row = (True, dt.date(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), -128, Decimal("-999.99"))
    row = (*row, 10**18, Interval(1, -2, 3), 0.5, "é")
    rows = [row, (None,) * 9, (False, *row[1:3], 127, Decimal("0.00"), -(10**19) + 1, *row[6:8], "")]
    program = parse(text)
    native, back = NativeEngine(program), NativeEngine(program)
    with Applying():
        apply(native, tuple((1, "r", each) for each in rows), "event")
    assert (native.stored_columns("m") is None) == boxed
    restore(back, "m", dump(native, "m"))
    assert state(back) == state(native)
    assert back.code.store("m").view.problems() == []


def test_numbers_beyond_38_digits_are_looked_at_one_by_one() -> None:
    program = parse("RELATION r(a HUGEINT); MAP m[](s HUGEINT); ON +r(a) { m[] += a }")
    native, back = NativeEngine(program), NativeEngine(program)
    with Applying():
        apply(native, ((1, "r", (10**38,)),), "event")
    assert native.stored_columns("m") is None
    restore(back, "m", dump(native, "m"))
    assert back.read("m", ()) == (10**38,)


def test_an_empty_map_is_empty_afterwards() -> None:
    program = parse(PROGRAM)
    native, empty = NativeEngine(program), NativeEngine(program)
    with Applying():
        apply(native, EVENTS, "event")
    for each in program.maps:
        restore(native, each.name, dump(empty, each.name))
    assert state(native) == state(empty)
