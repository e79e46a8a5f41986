"""Maps of compiled views handed over as frames: whatever is kept in an order goes on as if the rows had come there."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.limits import Budget
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.transaction import Applying
from cumulus.errors import MemoryLimitError
from cumulus.m3 import parse
from engine.native.test_groups import BETWEEN, ENDS, RANGES, ROWS, SHARES, a_tide, contents
from support.tiers import sampled

FIRST = """
    CREATE VIEW least AS SELECT g, v, x, COUNT(*) AS n FROM rows GROUP BY g, v, x ORDER BY v LIMIT 3;
    CREATE VIEW most AS SELECT v, SUM(x) AS s FROM rows GROUP BY v ORDER BY s DESC LIMIT 2;
"""
KINDS = (["BIGINT", "INTEGER"], ["DOUBLE", "DECIMAL(12,2)"], ["DECIMAL(25,1)", "BIGINT"])


@pytest.mark.slow
@pytest.mark.parametrize("kinds", sampled(KINDS, of=3), ids=lambda kinds: kinds[0])
def test_maps_are_handed_over_and_go_on(kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_DEBUG", "1")
    program = compile_sql(ROWS.format(x=kinds[0], v=kinds[1]) + ENDS + RANGES + BETWEEN + SHARES + FIRST)
    names = [each.name for each in program.maps]
    oracle, native = Interpreter(program), NativeEngine(program)
    assert any(native.code.store(name).store.first_rows for name in names)
    assert any(native.code.store(name).store.orders for name in names)
    with Applying():
        for number, (sign, row) in enumerate(a_tide(3, kinds, 300)):
            for engine in (oracle, native):
                engine.begin()
                engine.on_event(sign, "rows", row)
                engine.commit()
            if number % 50 == 49:
                other = NativeEngine(program)
                for name, frame in native.take_all(names).items():
                    halves = frame.filter(frame.words[:, 0] % 2 == 0), frame.filter(frame.words[:, 0] % 2 != 0)
                    for half in halves:
                        other.add(name, half)
                assert [native.size(name) for name in names] == [0] * len(names)
                native = other
            for name in names:
                assert contents(native, name) == contents(oracle, name), (number, name)


def test_frames_go_into_maps_with_other_indexes() -> None:
    """An index that is added later is kept by what comes as a frame, too, and rows are found by it."""
    program = parse("MAP m[a BIGINT, t VARCHAR](n BIGINT, s BIGINT);")
    one, other = (make_engine("native", program, None, ()) for _ in range(2))
    rows = [((a % 7, f"t{a % 5}"), (1, a)) for a in range(1, 36)]
    one.load("m", rows)
    frame = one.take("m")
    other.add("m", frame)
    other.add_index("m", (1,))
    other.add("m", frame)
    assert sorted(key[0] for key, _ in other.find("m", (1,), ("t3",))) == list(range(7))
    assert dict(other.stored("m")) == {key: (2 * n, 2 * s) for key, (n, s) in rows}
    assert other.cut("m", 0, 5) == 30
    assert [key for key, _ in other.find("m", (1,), ("t3",))] == [(6, "t3")]


def test_a_map_that_is_cut_to_nothing_can_be_filled_again() -> None:
    program = parse("MAP m[a BIGINT NOT NULL, b BIGINT](n BIGINT);")
    engine = NativeEngine(program, indexes=[("m", (1,))])
    choose = random.Random(1)
    for round_ in range(4):
        rows: dict[tuple[Any, ...], Any] = {(choose.randrange(10**6), choose.randrange(9)): (1,) for _ in range(500)}
        engine.load("m", rows.items())
        assert engine.cut("m", 0, 10**6) == len(rows)
        assert engine.code.store("m").last == 0
        engine.begin()
        engine.add("m", frame_with(engine, rows))
        assert engine.cut("m", 0, 10**6) == len(rows)
        (engine.rollback if round_ % 2 else engine.commit)()
        assert engine.size("m") == 0
        assert engine.code.store("m").view.problems() == []


def frame_with(engine: Any, rows: dict[tuple[Any, ...], Any]) -> Any:
    other = NativeEngine(engine.program)
    other.load("m", rows.items())
    return other.take("m")


def test_a_frame_that_does_not_fit_into_memory_changes_nothing() -> None:
    program = parse("MAP m[a BIGINT](n BIGINT);")
    one, other = NativeEngine(program), NativeEngine(program)
    one.load("m", [((a,), (a,)) for a in range(1, 20_000)])
    other.load("m", [((-1,), (1,))])
    frame = one.take("m")
    other.limit(Budget(other.memory() + 50_000))
    with pytest.raises(MemoryLimitError, match="cannot grow"):
        other.add("m", frame)
    assert dict(other.stored("m")) == {(-1,): (1,)}
    other.begin()
    with pytest.raises(MemoryLimitError, match="cannot grow"):
        other.add("m", frame)
    other.rollback()
    assert dict(other.stored("m")) == {(-1,): (1,)}
    other.limit(Budget())
    other.add("m", frame)
    assert other.size("m") == 20_000
    assert other.code.store("m").view.problems() == []
