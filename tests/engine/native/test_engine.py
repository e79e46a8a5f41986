"""Machine code beside the interpreter: every map, after every transaction, event by event and in batches.

A case has one of three modes: "event"; "batch", by a program that has batch triggers alone; and "net", where single
triggers stand for a native batch, as they do wherever there are both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.kernel.lanes import NotNativeError
from cumulus.engine.native.kernel.loaded_code import Load
from cumulus.engine.native.store.row_layout import MARKS
from cumulus.engine.native.values.map_access import I64
from cumulus.engine.protocol import Engine
from cumulus.engine.transaction import Applying
from cumulus.errors import DuplicateKeyError, EvaluationError
from cumulus.m3 import parse
from cumulus.m3.program import On, Program
from fuzz.case import case_of, parse_case
from fuzz.examine import ANY_SCRIPT
from fuzz.schema import Transaction
from support.tiers import one_mode_each, sampled

CASES = sorted((Path(__file__).parents[2] / "compiler" / "regressions").glob("*.sql"))
NOT_NATIVE: set[str] = set()
"""Cases with sums of decimals of any length."""


def net(transaction: Transaction) -> dict[str, dict[Any, int]]:
    """Return the net change of each relation."""
    found: dict[str, dict[Any, int]] = {}
    for sign, relation, row in transaction:
        rows = found.setdefault(relation, {})
        rows[row] = rows.get(row, 0) + sign
    return {relation: {row: n for row, n in rows.items() if n} for relation, rows in found.items()}


def apply(engine: Engine, transaction: Transaction, mode: str) -> None:
    engine.begin()
    if mode == "event":
        for event in transaction:
            engine.on_event(*event)
    else:
        for relation, rows in net(transaction).items():
            if rows:
                engine.on_batch(relation, rows)
    engine.commit()


def plain(engine: Engine, name: str) -> dict[Any, Any]:
    """Return what is stored in a map, cells of floats as numbers."""
    return {
        key: tuple(each[0] + each[1] if isinstance(each, tuple) else each for each in kept)
        for key, kept in engine.stored(name)
    }


def contents(engine: Engine, name: str) -> dict[Any, Any]:
    """Return what is stored in a map, floats as numbers that are near."""
    return {
        key: tuple(pytest.approx(each, rel=1e-9, abs=1e-9) if isinstance(each, float) else each for each in numbers)
        for key, numbers in plain(engine, name).items()
    }


def batches_alone(program: Program) -> Program:
    """Return a program without the single triggers of what has batch triggers."""
    batched = {trigger.relation for trigger in program.triggers if trigger.on is On.BATCH}
    kept = [each for each in program.triggers if each.on is On.BATCH or each.relation not in batched]
    return replace(program, triggers=tuple(kept))


def check(program: Program, transactions: tuple[Transaction, ...], mode: str, load: Load | None = None) -> None:
    if mode == "batch":
        program = batches_alone(program)
    native, model = NativeEngine(program, load=load), Interpreter(program)
    with Applying():
        for transaction in transactions:
            for engine in (native, model):
                apply(engine, transaction, mode)
            for definition in program.maps:
                assert plain(native, definition.name) == contents(model, definition.name), definition.name
            errors = [*native.take_errors()], [*model.take_errors()]
            assert errors[0] == errors[1] or (mode == "net" and all(errors))  # a batch's rows, or the batch
    for definition in program.maps:
        assert native.code.store(definition.name).view.problems() == []


@pytest.mark.parametrize(
    ("path", "mode"),
    one_mode_each((path for path in CASES if path.stem not in NOT_NATIVE), ("event", "batch", "net"), of=2),
)
def test_maps_are_the_interpreters(path: Path, mode: str) -> None:
    case = parse_case(path.read_text(encoding="utf-8"), mode)
    check(compile_sql(case.sql([name for name, _ in case.views]), enforced=False), case.plain, mode)


@pytest.mark.parametrize("seed", sampled(range(5), of=5, first=3))
def test_maps_of_random_views_are_the_interpreters(seed: int) -> None:
    scripts = map(ANY_SCRIPT.script, range(100 * seed, 100 * seed + 100))
    case = case_of(next(each for each in scripts if not any(table.references for table in each.tables)))
    compared = 0
    for name, _ in case.views:
        try:
            program = compile_sql(case.sql([name]))
            for mode in ("event", "batch", "net"):
                check(program, case.transactions, mode)
        except NotNativeError:
            continue
        except Exception as problem:
            if type(problem).__module__ == "cumulus.errors":
                continue  # a view over views, or one that is refused
            raise
        compared += 1
    assert compared or not case.views


@pytest.mark.parametrize("rows", [20, 200], ids=["chains", "trees"])
def test_a_debug_mode_looks_at_every_link(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways in are checked transaction by transaction, and damage is told."""
    monkeypatch.setenv("CUMULUS_DEBUG", "1")
    wh = Warehouse(
        "CREATE TABLE r (a BIGINT NOT NULL, b BIGINT NOT NULL);"
        "CREATE VIEW v AS SELECT a, SUM(b) AS s, MIN(b) AS low FROM r GROUP BY a;"
        "CREATE VIEW w AS SELECT x.a, COUNT(*) AS n FROM r x, r y WHERE x.b > y.b GROUP BY x.a;",
        engine="native",
    )
    on = wh.trigger("r")
    for number in range(rows):
        on(1, number % 3, number)
    wh.insert("r", [(5, 1), (6, 2)])
    wh.apply([(-1, "r", (5, 1)), (1, "r", (7, 2))])
    assert len(wh.view("v").rows()) == 5
    native = wh._state.session.engine
    stored = next(each for each in native.code.maps.values() if each.store.orders)
    row = stored.row_address(3) + stored.store.shape.node(0) + MARKS
    I64.from_address(row).value ^= 1
    with pytest.raises(AssertionError, match=f"map {stored.store.name} is damaged: order 0"):
        on(1, 1, 30)


PROGRAM = """
RELATION r(a BIGINT NOT NULL, b INTEGER, x DOUBLE, d DECIMAL(20,3), s VARCHAR);
MAP m[a BIGINT, b INTEGER](n BIGINT, t DECIMAL(38,3), f DOUBLE) COUNT n;
MAP w[d DECIMAL(20,3), x DOUBLE, s VARCHAR](n BIGINT);
MAP q[](n BIGINT);
ON +r(a, b, x, d, s) { m[a, b].n += 1; m[a, b].t += d * a; m[a, b].f += x; w[d, x, s] += 1; q[] += m[a, c].n }
ON -r(a, b, x, d, s) { m[a, b].n += -1; m[a, b].t += -d * a; m[a, b].f += -x; w[d, x, s] += -1; q[] += -m[a, c].n }
"""


ROWS = [
    (1 << 62, None, 0.1, Decimal("-12345678901234567.125"), "é"),
    (-(1 << 62), -1, -0.0, Decimal("0.001"), None),
    (3, 2, nan, None, ""),
    (3, 2, -inf, Decimal("99999999999999999.999"), "x"),
    (3, None, None, None, "é"),
]
EVENTS = (*((1, "r", row) for row in ROWS), (1, "r", ROWS[0]), (-1, "r", ROWS[1]), (-1, "r", ROWS[0]))


def test_all_layouts_of_keys_and_values() -> None:
    rows, events = ROWS, EVENTS
    program = parse(PROGRAM)
    check(program, tuple((event,) for event in events), "event")
    native = NativeEngine(program)
    with Applying():
        apply(native, events, "event")
        assert native.read("w", (rows[0][3], rows[0][2], "é")) == (1,)
        assert native.read("w", (rows[0][3], 0.2, "é")) is None
        assert native.read("m", ("text", None)) is None
        before = {name: dict(native.stored(name)) for name in ("m", "w", "q")}
        native.begin()
        for event in events[:4]:
            native.on_event(*event)
        native.rollback()
        assert {name: dict(native.stored(name)) for name in ("m", "w", "q")} == before
        native.watch("m")
        native.begin()
        native.on_event(1, "r", rows[4])
        native.on_event(-1, "r", rows[4])
        native.on_event(1, "r", rows[1])
        changes: Mapping[str, Any] = native.commit()
    assert list(changes) == ["m"]
    assert list(changes["m"]) == [(-(1 << 62), -1)]


def test_find_and_index() -> None:
    native = NativeEngine(parse(PROGRAM))
    native.load("m", [((1, 2), (1, 0, 0.0)), ((1, None), (2, 3, 1.5)), ((2, 2), (3, 0, 0.0))])
    native.add_index("m", (1,))
    assert sorted(key for key, _ in native.find("m", (1,), (2,))) == [(1, 2), (2, 2)]
    assert [key for key, _ in native.find("m", (1,), (None,))] == [(1, None)]
    assert native.read("m", (1, None)) == (2, 3, 1.5)
    assert native.end("m", "MAX", 0, (2,), None) == 2
    assert native.size("m") == 3


def test_an_index_that_comes_later_reaches_whoever_holds_the_code() -> None:
    program = parse(
        "RELATION r(a BIGINT NOT NULL, b BIGINT NOT NULL); RELATION s(a BIGINT NOT NULL);"
        "MAP m[a BIGINT, b BIGINT](n BIGINT); MAP c[](n BIGINT);"
        "ON +r(a, b) { m[a, b] += 1 } ON +s(a) { c[] += a }"
    )
    native = NativeEngine(program)
    handed: list[tuple[Any, ...]] = []
    on_r, on_s = (native.fast.builtin(name, lambda *event: handed.append(event)) for name in ("r", "s"))
    native.fast.open("s", False)
    for rest in (True, False):
        native.fast.rest(rest)
        on_r(1, 1, 2)
        on_s(1, 5)
    assert handed == [(1, 5), (1, 1, 2), (1, 5)]
    assert native.fast.take_fired() == {"r": (1, 1)}
    before = native.code.image._free
    native.watch("m")
    native.add_index("m", (1,))
    assert not before.alive, "the memory of the old code is given back at once"
    with Applying():
        assert native.fast.fire(1, "r", (3, 2)) == {"m": {(3, 2): (None, (1,))}}
        assert native.fast.fire(1, "s", (5,)) is None
    assert sorted(key for key, _ in native.find("m", (1,), (2,))) == [(1, 2), (3, 2)]
    native.unwatch("m")
    native.fast.rest(True)
    on_r(1, 1, 2)
    on_s(1, 5)
    assert native.fast.take_fired() == {"r": (1, 1)}
    assert native.read("m", (1, 2)) == (2,)
    native.close()
    on_r(1, 1, 2)
    assert handed[3:] == [(1, 5), (1, 1, 2)]


def test_what_128_bits_cannot_hold_is_refused_and_nothing_is_applied() -> None:
    program = parse(
        "RELATION r(a BIGINT NOT NULL); MAP m[](s HUGEINT); MAP c[](n BIGINT);ON +r(a) { c[] += 1; m[] += a * a + m[] }"
    )
    native = NativeEngine(program)
    with Applying():
        apply(native, ((1, "r", (-(1 << 63),)),), "event")
        native.begin()
        with pytest.raises(EvaluationError, match="128 bits"):
            native.on_event(1, "r", (-(1 << 63),))
        native.rollback()
    assert native.read("c", ()) == (1,)
    assert native.read("m", ()) == (1 << 126,)


def test_a_builtin_fires_what_is_ordinary_and_hands_on_the_rest() -> None:
    program = parse(
        "RELATION r(a BIGINT NOT NULL, b SMALLINT, x DOUBLE, z BOOLEAN, d DECIMAL(6,2), s VARCHAR);"
        "MAP m[b SMALLINT, z BOOLEAN, s VARCHAR](n BIGINT, t DECIMAL(38,2), f DOUBLE) COUNT n;"
        "ON +r(a, b, x, d_, d, s) { m[b, d_, s].n += 1; m[b, d_, s].t += d * a; m[b, d_, s].f += x * 0.5e0 * a }"
        "ON -r(a, b, x, d_, d, s) { m[b, d_, s].n += -1; m[b, d_, s].t += -d * a; m[b, d_, s].f += -(x * 0.5e0 * a) }"
    )
    native, model = NativeEngine(program), Interpreter(program)
    handed: list[tuple[Any, ...]] = []
    on = native.fast.builtin("r", lambda *event: handed.append(event))
    native.fast.rest(True)
    ordinary = [
        (1, 2, 3, 1.5, True, Decimal("2.50"), "x"),
        (1, -(1 << 63), None, -0.0, None, None, None),
        (1, 1, -32768, 2.0, False, Decimal("-0.01"), "é"),
        (-1, 2, 3, 1.5, True, Decimal("2.50"), "x"),
    ]
    unusual = [
        (0, 1, 1, 1.0, True, None, "x"),
        (True, 1, 1, 1.0, True, None, "x"),
        (1, 1, 1 << 15, 1.0, True, None, "x"),
        (1, 1 << 63, 1, 1.0, True, None, "x"),
        (1, None, 1, 1.0, True, None, "x"),
        (1, 1, 1.5, 1.0, True, None, "x"),
        (1, 1, 1, "1", True, None, "x"),
        (1, 1, 1, 1.0, 1, None, "x"),
        (1, 1, 1, 1.0, True, "2", "x"),
        (1, 1, 1),
        (),
    ]
    with Applying():
        for event in ordinary:
            on(*event)
            apply(model, ((event[0], "r", event[1:]),), "event")
        for event in unusual:
            on(*event)
    assert handed == unusual
    assert plain(native, "m") == contents(model, "m")
    assert native.fast.take_fired() == {"r": (4, 2)}
    assert native.fast.take_fired() == {}
    native.fast.rest(False)
    on(*ordinary[0])
    assert handed == [*unusual, ordinary[0]]


@pytest.mark.parametrize("width", sampled([10, 600, 1200], of=3))
def test_tables_of_many_columns(width) -> None:
    columns = ", ".join(f"c{place} BIGINT NOT NULL" for place in range(width))
    sql = f"""
    CREATE TABLE r ({columns}, PRIMARY KEY (c0)) WITH (keep = all);
    CREATE VIEW v AS SELECT c1, COUNT(*) AS n FROM r GROUP BY c1;
    """
    program = compile_sql(sql)
    if width > 1000:
        with pytest.raises(NotNativeError, match="more columns"):
            NativeEngine(program)
        return
    rows = [(number, *range(1, width)) for number in range(40)]
    wh = Warehouse(sql, engine="native")
    wh.insert("r", rows)
    with pytest.raises(DuplicateKeyError):
        wh.insert("r", [(100, *range(1, width)), rows[3]])
    wh.delete("r", rows[:20])
    wh.trigger("r")(1, *rows[0])
    assert wh.view("v").rows() == [(1, 21)]
    assert all(store.view.problems() == [] for store in wh._state.session.engine.code.image.maps.values())


@pytest.mark.slow
def test_a_view_of_many_sums() -> None:
    # An entry is longer than the journal is at first.
    names = [f"c{place}" for place in range(180)]
    sql = f"""
    CREATE TABLE r (k INT NOT NULL, {", ".join(f"{name} DOUBLE NOT NULL" for name in names)});
    CREATE VIEW v AS SELECT k, {", ".join(f"SUM({name}) AS {name}" for name in names)} FROM r GROUP BY k;
    """
    wh = Warehouse(sql, engine="native")
    rows = [(number % 3, *(float(number + place) for place in range(180))) for number in range(30)]
    wh.insert("r", rows)
    wh.delete("r", rows[3:])
    assert sorted(wh.view("v").rows()) == rows[:3]
