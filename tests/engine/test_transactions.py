"""Transactions of the interpreter: bit for bit back, errors that leave nothing behind, snapshots that lose nothing."""

from __future__ import annotations

import decimal
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import dump, restore
from cumulus.errors import MismatchError, UsageError, ValidationError
from support.engines import engine_of
from support.random_sql import scripts
from support.random_tables import SCHEMA, streams
from support.tiers import examples

pytestmark = pytest.mark.usefixtures("each_engine")


def state_of(engine: Engine):
    """Everything that is stored, floats to the bit, and every index."""
    found = {}
    for definition in engine.program.maps:
        entries = {repr(key): repr(stored) for key, stored in engine.stored(definition.name)}
        indexes = {}
        if isinstance(engine, Interpreter):
            indexes = {
                positions: {repr(part): {repr(key) for key in keys} for part, keys in index.items()}
                for positions, index in engine.store(definition.name).indexes.items()
            }
        else:
            assert engine.code.store(definition.name).view.problems() == []
        found[definition.name] = (entries, indexes)
    return found


def play(engine: Engine, events) -> None:
    for event in events:
        engine.on_event(*event)


@settings(max_examples=examples(20), deadline=None)
@given(scripts(), streams(), streams())
def test_a_rollback_restores_every_bit(script, before, inside) -> None:
    engine = engine_of(compile_sql(SCHEMA + script, keep="all"))
    with decimal.localcontext(EXACT):
        engine.begin()
        play(engine, before)
        engine.commit()
        state = state_of(engine)
        engine.begin()
        play(engine, inside)
        engine.rollback()
        assert state_of(engine) == state
        engine.begin()  # and the journal is empty again
        engine.rollback()
        assert state_of(engine) == state


@settings(max_examples=examples(20), deadline=None)
@given(scripts(), streams(), streams())
def test_a_snapshot_restores_every_bit_and_goes_on_alike(script, before, later) -> None:
    program = compile_sql(SCHEMA + script, keep="all")
    engine, other = engine_of(program), engine_of(program)
    with decimal.localcontext(EXACT):
        engine.begin()
        play(engine, before)
        engine.commit()
        for definition in program.maps:
            restore(other, definition.name, dump(engine, definition.name))
        for each in (engine, other):
            each.begin()
            play(each, later)
            each.commit()
    for definition in program.maps:
        assert dict(other.stored(definition.name)) == dict(engine.stored(definition.name))


def test_a_snapshot_of_another_map_is_refused() -> None:
    one = engine_of(m3.parse("MAP m[k INT](v BIGINT); ON +r(a) { m[a] += 1 }"))
    two = engine_of(m3.parse("MAP m[k INT, l INT](v BIGINT); ON +r(a, b) { m[a, b] += 1 }"))
    with pytest.raises(MismatchError, match="another program"):
        restore(two, "m", dump(one, "m"))


@pytest.mark.parametrize("number", [1 << 80, Decimal("0.1") ** 30, Decimal(10) ** 60 + Decimal("0.5"), 10**90])
def test_a_snapshot_holds_numbers_of_any_width(number) -> None:
    engine = engine_of(m3.parse("MAP m[k](v); ON +r(a) { m[a] += 1 }"))
    with decimal.localcontext(EXACT):
        engine.load("m", [((key,), (number,)) for key in (1, "one", None, Decimal("1.50"), 2.5, True)])
        other = engine_of(engine.program)
        restore(other, "m", dump(engine, "m"))
    assert dict(other.items("m")) == dict(engine.items("m"))


def test_floats_go_to_zero_only_with_their_count() -> None:
    engine = engine_of(
        m3.parse(
            "RELATION r(k INT NOT NULL, x DOUBLE NOT NULL); MAP m[k INT](s DOUBLE, n BIGINT) COUNT n;"
            "ON +r(k, x) { m[k].s += x; m[k].n += 1 } ON -r(k, x) { m[k].s += -1 * x; m[k].n += -1 }"
        )
    )

    def fire(sign, x):
        engine.begin()
        engine.on_event(sign, "r", (1, x))
        engine.commit()

    for x in (0.1, 0.2, 1e16, -0.3):
        fire(1, x)
    fire(-1, 1e16)
    assert engine.read("m", (1,)) == pytest.approx((0.0, 3), abs=1e-15)
    for x in (0.1, 0.2):
        fire(-1, x)
    assert engine.read("m", (1,)) == (pytest.approx(-0.3, rel=1e-15), 1)
    fire(-1, -0.3)
    assert engine.read("m", (1,)) is None
    assert list(engine.stored("m")) == []
    # A deletion before its insertion: the count passes 0 while the sum must not be forgotten.
    fire(-1, 5.0)
    assert engine.read("m", (1,)) == (-5.0, -1)
    fire(1, 2.0)
    assert engine.read("m", (1,)) is None
    fire(1, 5.0)
    assert engine.read("m", (1,)) == (2.0, 1)


def test_keys_have_one_nan_and_one_zero() -> None:
    engine = engine_of(m3.parse("RELATION r(x DOUBLE); MAP m[x DOUBLE](n BIGINT); ON +r(x) { m[x] += 1 }"))
    engine.begin()
    for x in (float("nan"), -float("nan"), 0.0, -0.0, None, None):
        engine.on_event(1, "r", (x,))
    engine.commit()
    assert engine.size("m") == 3
    assert engine.read("m", (float("nan"),)) == engine.read("m", (-0.0,)) == engine.read("m", (None,)) == (2,)


def test_assignments_run_once_at_the_end_and_only_when_something_they_read_has_changed() -> None:
    calls = []

    def noted(value):
        calls.append(value)
        return value

    program = m3.parse(
        "RELATION r(x INT NOT NULL); RELATION s(x INT NOT NULL);"
        "MAP n[](v BIGINT); MAP m[x INT](v BIGINT); MAP t[](v BIGINT); MAP twice[](v BIGINT);"
        "ON +r(x) { n[] += 1; m[x] += 1; t[] := SUM[x](m[x] * {noted(x) > 1}); twice[] := t[] * 2 }"
        "ON +s(x) { n[] += 1 }"
    )
    engine = engine_of(program, {"noted": noted})
    engine.watch("twice")
    engine.begin()
    for x in (1, 2, 3):
        engine.on_event(1, "r", (x,))
    assert engine.read("twice", ()) is None
    assert engine.commit() == {"twice": {(): (None, (4,))}}
    assert sorted(calls) == [1, 2, 3]
    engine.begin()
    engine.on_event(1, "s", (1,))
    assert engine.commit() == {}
    assert len(calls) == 3


def test_a_batch_is_applied_event_by_event_only_where_maps_have_definitions() -> None:
    with_definition = engine_of(
        m3.parse(
            "RELATION r(a INT NOT NULL); MAP m[a INT](n BIGINT) = r(a);ON +r(a) { m[a] += 1 } ON -r(a) { m[a] += -1 }"
        )
    )
    with_definition.begin()
    with_definition.on_batch("r", {(1,): 2, (2,): -1})
    with_definition.commit()
    assert dict(with_definition.items("m")) == {(1,): (2,), (2,): (-1,)}
    without = engine_of(m3.parse("ON +r(a) { m[a] += 1 }"))
    without.begin()
    with pytest.raises(UsageError, match="no definition"):
        without.on_batch("r", {(1,): 1})


def test_what_cannot_run_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValidationError, match="COUNT"):
        engine_of(m3.parse("MAP m[](s DOUBLE); ON +r(x) { m[] += x }"))
    with pytest.raises(ValidationError, match="exact"):
        engine_of(m3.parse("RELATION r(x DOUBLE); MAP m[](s BIGINT); ON +r(x) { m[] += x }"))
    with pytest.raises(ValidationError, match="no function"):
        engine_of(m3.parse("ON +r(x) { m[] += unheard_of(x) }"))


@settings(max_examples=examples(15), deadline=None)
@given(scripts(), streams(), st.booleans())
def test_watched_changes_are_the_difference_of_the_states(script, events, batch) -> None:
    program = compile_sql(SCHEMA + script)
    engine = engine_of(program)
    for definition in program.maps:
        engine.watch(definition.name)
    with decimal.localcontext(EXACT):
        for sign, relation, row in events:
            before = {each.name: dict(engine.items(each.name)) for each in program.maps}
            engine.begin()
            if batch:
                engine.on_batch(relation, {row: sign})
            else:
                engine.on_event(sign, relation, row)
            changes = engine.commit()
            for each in program.maps:
                after = dict(engine.items(each.name))
                keys = before[each.name].keys() | after.keys()
                expected = {
                    key: (before[each.name].get(key), after.get(key))
                    for key in keys
                    if before[each.name].get(key) != after.get(key)
                }
                assert changes.get(each.name, {}) == expected
