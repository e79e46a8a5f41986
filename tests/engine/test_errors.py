"""What cannot be evaluated counts as 0, is told to the views concerned, and leaves nothing behind."""

from __future__ import annotations

import decimal
import itertools
import math
import random
from collections.abc import Iterable

import pytest

import cumulus
from cumulus import m3
from cumulus.catalog.types import EXACT
from cumulus.engine.failures import ErrorLog, ViewError
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.protocol import Engine
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")

SHARED = """
RELATION r(a INT NOT NULL, x INT NOT NULL); RELATION t(a INT NOT NULL);
MAP m[a INT](n BIGINT, s BIGINT) COUNT n; MAP inverse[a INT](v BIGINT); MAP total[](v BIGINT); MAP other[](v BIGINT);
VIEW counts(a INT, n BIGINT) FROM m SELECT a, n;
VIEW sums(a INT, s BIGINT) FROM m SELECT a, s;
VIEW totals(v BIGINT) FROM total SELECT v;
VIEW others(v BIGINT) FROM other SELECT v;
ON +r(a, x) { m[a].n += 1;  m[a].s += intdiv(10, x);  inverse[a] += intdiv(12, x);
              total[] += intdiv(12, x); other[] += x }
ON -r(a, x) { m[a].n += -1; m[a].s += -intdiv(10, x); inverse[a] += -intdiv(12, x);
              total[] += -intdiv(12, x); other[] += -x }
ON +t(a) { total[] += inverse[a] }
ON -t(a) { total[] += -inverse[a] }
ON BATCH r {
  m[a].n += SUM[a](r(a, x)); m[a].s += SUM[a](r(a, x) * intdiv(10, x)); inverse[a] += SUM[a](r(a, x) * intdiv(12, x));
  total[] += SUM[](r(a, x) * intdiv(12, x)); other[] += SUM[](r(a, x) * x)
}
"""


def fire(engine: Engine, *events: tuple[int, str, tuple]) -> list[ViewError]:
    with decimal.localcontext(EXACT):
        engine.begin()
        for event in events:
            engine.on_event(*event)
        engine.commit()
    return list(engine.take_errors())


def contents(engine: Engine) -> dict[str, dict]:
    return {each.name: dict(engine.items(each.name)) for each in engine.program.maps}


def test_the_column_that_fails_stays_and_all_others_go_on() -> None:
    engine = engine_of(m3.parse(SHARED))
    errors = fire(engine, (1, "r", (1, 2)), (1, "r", (1, 0)), (1, "r", (1, 5)))
    assert contents(engine) == {"m": {(1,): (3, 7)}, "inverse": {(1,): (8,)}, "total": {(): (8,)}, "other": {(): (7,)}}
    assert errors == [
        ViewError(view, 1, "r", (1, 0), f"intdiv({number}, 0): division by zero")
        for view, number in (("sums", 10), ("totals", 12))
    ]
    assert errors[0].event == "+r(1, 0)"
    assert fire(engine, (1, "t", (1,))) == []


def test_deleting_what_failed_fails_in_the_same_way_and_leaves_nothing() -> None:
    engine = engine_of(m3.parse(SHARED))
    fire(engine, (1, "r", (1, 2)), (1, "r", (1, 0)))
    errors = fire(engine, (-1, "r", (1, 0)))
    assert [(error.view, error.event) for error in errors] == [("sums", "-r(1, 0)"), ("totals", "-r(1, 0)")]
    assert engine.read("m", (1,)) == (1, 5)
    fire(engine, (-1, "r", (1, 2)))
    assert not any(contents(engine).values())


def test_a_batch_fails_for_its_rows_and_does_what_the_events_do() -> None:
    engine, single = engine_of(m3.parse(SHARED)), engine_of(m3.parse(SHARED))
    with decimal.localcontext(EXACT):
        engine.begin()
        engine.on_batch("r", {(1, 2): 2, (1, 0): 3, (2, 0): 1, (2, 3): 1})
        engine.commit()
    told = [(error.view, error.event) for error in engine.take_errors()]
    assert told == [(view, f"+r({a}, 0)") for view in ("sums", "totals") for a in (1, 1, 1, 2)]
    errors = fire(single, *[(1, "r", row) for row in [(1, 2), (1, 2), (1, 0), (1, 0), (1, 0), (2, 0), (2, 3)]])
    assert sorted((error.view, error.event) for error in errors) == told
    assert contents(engine) == contents(single)


def test_a_batch_that_fails_for_a_group_of_rows_is_told_as_a_batch() -> None:
    engine = engine_of(
        m3.parse("RELATION r(a INT NOT NULL, x INT NOT NULL); ON BATCH r { m[a] += SUM[a](r(a, x) * x) * mod(6, a) }")
    )
    with decimal.localcontext(EXACT):
        engine.begin()
        engine.on_batch("r", {(0, 1): 1, (0, 2): 1, (4, 5): 1})
        engine.commit()
    [error] = engine.take_errors()
    assert (error.view, error.row, error.event) == ("m", None, "a batch of +r")
    assert dict(engine.items("m")) == {(4,): (10,)}


def test_errors_are_those_of_committed_transactions_and_taken_once() -> None:
    engine = engine_of(m3.parse(SHARED))
    engine.begin()
    engine.on_event(1, "r", (1, 0))
    engine.rollback()
    assert not engine.take_errors()
    assert len(fire(engine, (1, "r", (1, 0)))) == 2
    assert fire(engine) == []


def test_a_log_keeps_the_first_and_counts_all() -> None:
    log, more = ErrorLog(limit=3), ErrorLog(limit=3)
    for row in range(5):
        log.add(ViewError("v", 1, "r", (row,), "why"))
    more.extend(log)
    more.extend(log)
    more.add(ViewError("w", 1, "r", (9,), "why"))
    assert more.counts == {"v": 10, "w": 1}
    assert [error.row for error in more] == [(0,), (1,), (2,), (9,)]
    assert [error.row for error in more.of("v")] == [(0,), (1,), (2,)]


NESTED = """
RELATION r(k INT NOT NULL, g INT NOT NULL);
MAP q[k INT, g INT](n BIGINT) COUNT n; MAP v[g INT](s BIGINT); MAP far[](s BIGINT);
ON +r(k, g) {
  v[g] += (n := q[k, g] + 1) * {n <> 0} * (y := intdiv(60, n - 2)) * y;
  v[g] += -1 * (n := q[k, g]) * {n <> 0} * (y := intdiv(60, n - 2)) * y;
  q[k, g] += 1;
}
ON -r(k, g) {
  v[g] += (n := q[k, g] - 1) * {n <> 0} * (y := intdiv(60, n - 2)) * y;
  v[g] += -1 * (n := q[k, g]) * {n <> 0} * (y := intdiv(60, n - 2)) * y;
  q[k, g] += -1;
}
"""


def test_a_function_of_a_sum_is_right_again_when_the_sum_is() -> None:
    # v[g] = Σ 60 // (n - 2) over the groups of g: it cannot be computed for groups of two.
    engine, rows, chance = engine_of(m3.parse(NESTED)), [], random.Random(5)
    for _ in range(200):
        row = (chance.randrange(3), chance.randrange(2))
        sign = chance.choice([1, -1]) if row in rows else 1
        before = rows.count(row)
        rows.append(row) if sign > 0 else rows.remove(row)
        errors = fire(engine, (sign, "r", row))
        assert bool(errors) == (2 in (before, rows.count(row)))
        for group in range(2):
            counts = [rows.count((key, group)) for key in range(3)]
            expected = sum(60 // (n - 2) for n in counts if n not in (0, 2))
            assert (engine.read("v", (group,)) or (0,)) == (expected,)


FAILING_KEYS = """
RELATION r(a INT NOT NULL, x INT NOT NULL); MAP m[k INT](v BIGINT); MAP n[k INT](v BIGINT); MAP p[a INT](v BIGINT);
MAP z[](v BIGINT);
ON +r(a, x) {
  m[k] += (k := intdiv(6, x));  n[a] += m[6 // x];  p[a] += m[> 6 // x];
  z[] += (y := SUM[](m[k] * intdiv(k, a))) * y * {y > 0};
}
"""


def test_keys_ranges_and_inner_sums_may_fail() -> None:
    engine = engine_of(m3.parse(FAILING_KEYS))
    errors = fire(engine, (1, "r", (1, 2)), (1, "r", (1, 3)), (1, "r", (0, 2)), (1, "r", (2, 0)))
    assert contents(engine) == {
        "m": {(3,): (2,), (2,): (1,)},
        "n": {(0,): (1,)},
        "p": {(1,): (1,)},
        "z": {(): (3 + 3,)},
    }
    assert sorted((error.view, error.event) for error in errors) == [
        ("m", "+r(2, 0)"),
        ("n", "+r(2, 0)"),
        ("p", "+r(2, 0)"),
        ("z", "+r(0, 2)"),
    ]


def _upset(x: int) -> int:
    if x == 13:
        raise LookupError("not thirteen")
    return x


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (_upset, "f(13): raised LookupError: not thirteen"),
        (lambda x: 0.5 if x == 13 else x, "0.5 is a DOUBLE, and the map's column is exact"),
        (lambda x: "text" if x == 13 else x, "'text' stands where a number must stand"),
    ],
)
def test_a_function_of_the_user_may_raise_or_give_nonsense(result, reason: str) -> None:
    program = m3.parse("RELATION r(x INT); MAP m[](v BIGINT); ON +r(x) { m[] += f(x); n[] += 1 }")
    engine = engine_of(program, {"f": result})
    [error] = fire(engine, (1, "r", (1,)), (1, "r", (13,)), (1, "r", (5,)))
    assert error == ViewError("m", 1, "r", (13,), reason)
    assert contents(engine) == {"m": {(): (6,)}, "n": {(): (3,)}}


def test_what_cannot_be_a_key_is_an_error() -> None:
    program = m3.parse("RELATION r(x INT); ON +r(x) { m[k] += (k := f(x)) }")
    engine = engine_of(program, {"f": lambda x: [x] if x == 2 else x})
    [error] = fire(engine, (1, "r", (1,)), (1, "r", (2,)))
    assert "unhashable" in error.message
    assert contents(engine) == {"m": {(1,): (1,)}}


def test_values_of_unknown_type_that_have_no_order_are_an_error() -> None:
    engine = engine_of(m3.parse("ON +r(a, b) { less[] += {a < b}; all[] += 1 }"))
    [error] = fire(engine, (1, "r", (1, 2)), (1, "r", (1, "one")))
    assert (error.view, error.row) == ("less", (1, "one"))
    assert contents(engine) == {"less": {(): (1,)}, "all": {(): (2,)}}


DOUBLES = """
RELATION r(k INT NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL);
MAP m[k INT](n BIGINT, s DOUBLE) COUNT n;
VIEW v(k INT, s DOUBLE) FROM m SELECT k, s; VIEW n(k INT, n BIGINT) FROM m SELECT k, n;
ON +r(k, x, y) { m[k].n += 1;  m[k].s += x * y }
ON -r(k, x, y) { m[k].n += -1; m[k].s += -1 * x * y }
ON BATCH r { m[k].n += SUM[k](r(k, x, y)); m[k].s += SUM[k](r(k, x, y) * x * y) }
"""


def test_a_product_of_doubles_that_overflows_is_an_error() -> None:
    engine = engine_of(m3.parse(DOUBLES))
    [error] = fire(engine, (1, "r", (1, 1e200, 1e200)), (1, "r", (1, 2.0, 3.0)))
    assert (error.view, error.row) == ("v", (1, 1e200, 1e200))
    assert engine.read("m", (1,)) == (2, 6.0)
    [error] = fire(engine, (-1, "r", (1, 1e200, 1e200)))
    assert error.event == "-r(1, 1e+200, 1e+200)"
    assert engine.read("m", (1,)) == (1, 6.0)


def test_a_sum_of_doubles_that_overflows_is_infinity_until_what_it_was_made_of_is_gone() -> None:
    engine = engine_of(m3.parse(DOUBLES))
    engine.watch("m")
    rows = [(1, 1e308, 1.0), (1, 1e308, 1.5)]
    with decimal.localcontext(EXACT):
        engine.begin()
        for row in rows:
            engine.on_event(1, "r", row)
        assert engine.commit() == {"m": {(1,): (None, (2, math.inf))}}
        assert engine.read("m", (1,)) == (2, math.inf)
        engine.begin()
        for row in rows:
            engine.on_event(-1, "r", row)
        assert engine.commit() == {"m": {(1,): ((2, math.inf), None)}}
        assert not list(engine.take_errors())
    assert contents(engine) == {"m": {}}


def test_a_batch_whose_own_sum_overflows_is_an_error() -> None:
    engine = engine_of(m3.parse(DOUBLES))
    with decimal.localcontext(EXACT):
        engine.begin()
        engine.on_batch("r", {(1, 1e308, 1.0): 1, (1, 1e308, 1.5): 1, (2, 2.0, 3.0): 1})
        engine.commit()
    [error] = engine.take_errors()
    assert error.view == "v"
    assert "beyond its range" in error.message
    assert engine.read("m", (2,)) == (1, 6.0)


@pytest.mark.parametrize(
    ("kind", "value", "condition"),
    [("INT", 3, "intdiv(12, h) > 1"), ("HUGEINT", 3, "h * h > 1"), ("VARCHAR", "3", "CAST(h AS INT) > 1")],
)
def test_nothing_is_evaluated_for_rows_that_are_gone(kind: str, value: object, condition: str) -> None:
    engine = engine_of(
        m3.parse(f"""
        RELATION r(a INT NOT NULL); RELATION s(h {kind}, x INT NOT NULL);
        MAP m[h {kind}, x INT](n BIGINT, t BIGINT) COUNT n; MAP v[](n BIGINT, t BIGINT);
        VIEW w(n BIGINT, t BIGINT) FROM v SELECT n, t;
        ON +s(h, x) {{ m[h, x].n += 1;  m[h, x].t += x }}
        ON -s(h, x) {{ m[h, x].n += -1; m[h, x].t += -x }}
        ON +r(a) {{ v[].n += m[h, x].n * {{{condition}}}; v[].t += m[h, x].t * {{{condition}}} }}
        """)
    )
    rows = [(key, x) for key in (value, None) for x in range(2, 40)]
    events = [(sign, "s", row) for sign in (1, -1) for row in rows]
    assert fire(engine, (1, "s", (value, 1)), *events, (1, "r", (1,))) == []
    assert contents(engine)["v"] == {(): (1, 1)}


def test_nothing_is_evaluated_for_rows_whose_numbers_are_0() -> None:
    engine = engine_of(
        m3.parse("""
        RELATION r(a INT NOT NULL); RELATION s(h INT NOT NULL, x INT NOT NULL);
        MAP m[h INT](c BIGINT, n BIGINT, t BIGINT) COUNT c; MAP v[](n BIGINT, t BIGINT);
        VIEW w(n BIGINT, t BIGINT) FROM v SELECT n, t;
        ON +s(h, x) { m[h].c += 1;  m[h].n += x;  m[h].t += 2 * x }
        ON +r(a) { v[].n += m[h].n * {intdiv(12, h) > 1}; v[].t += m[h].t * {intdiv(12, h) > 1} }
        """)
    )
    assert fire(engine, (1, "s", (0, 0)), (1, "s", (3, 1)), (1, "r", (1,))) == []
    assert contents(engine)["v"] == {(): (1, 2)}


def test_assignments_fail_without_an_event() -> None:
    program = m3.parse(
        "RELATION r(a INT NOT NULL); MAP m[a INT](n BIGINT); MAP v[a INT](x BIGINT); VIEW w(a INT, x BIGINT) FROM v "
        "SELECT a, x; ON +r(a) { m[a] += 1; v[a] := m[a] * intdiv(6, a) } ON -r(a) { m[a] += -1 } ON +s(b) { o[] += b }"
    )
    engine = engine_of(program)
    [error] = fire(engine, (1, "r", (0,)), (1, "r", (2,)))
    assert (error.view, error.event, error.sign) == ("w", "no event", 0)
    assert dict(engine.items("v")) == {(2,): (3,)}
    assert fire(engine, (1, "s", (1,))) == []
    engine.begin()
    engine.on_event(1, "s", (1,))
    engine.rollback()
    assert fire(engine, (1, "s", (1,))) == []
    assert len(fire(engine, (1, "r", (1,)))) == 1
    assert fire(engine, (-1, "r", (0,))) == []


def test_what_cannot_fail_is_written_without_a_try() -> None:
    program = cumulus.compile(
        "CREATE TABLE r (a INT, x DOUBLE, d DATE); CREATE TABLE s (a INT, y DECIMAL(9,2));"
        "CREATE VIEW v AS SELECT r.a, COUNT(*) AS n, SUM(y) AS y FROM r JOIN s ON r.a = s.a "
        "WHERE x > 0.5 AND d < DATE '2024-01-01' AND y >= 2 GROUP BY r.a"
    )
    assert "_failed" not in Interpreter(program).source


SQL = """
CREATE TABLE r (g INT, a INT, b INT, t VARCHAR); CREATE TABLE s (b INT, c INT);
CREATE VIEW v AS SELECT g, SUM(a // b) AS s, COUNT(*) AS n, AVG(a % b) AS m FROM r GROUP BY g;
CREATE VIEW j AS SELECT CAST(t AS INT) AS k, SUM(a // c) AS s FROM r JOIN s USING (b) WHERE a // c <> 1 GROUP BY 1;
CREATE VIEW bag AS SELECT CAST(t AS INT) AS k, a // c AS q FROM r JOIN s USING (b);
"""


def _events(seed: int, count: int) -> Iterable[tuple[int, str, tuple]]:
    chance, rows = random.Random(seed), {"r": [], "s": []}
    for _ in range(count):
        name = chance.choice(["r", "r", "s"])
        if rows[name] and chance.random() < 0.4:
            yield -1, name, rows[name].pop(chance.randrange(len(rows[name])))
            continue
        number = [None, 0, 1, 2, 7]
        row = tuple(chance.choice(number) for _ in range(3 if name == "r" else 2))
        row = (*row, chance.choice(["1", "2", "x", None])) if name == "r" else row
        rows[name].append(row)
        yield 1, name, row
    for name in chance.sample(["r", "s"], 2):
        yield from ((-1, name, row) for row in rows[name])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_failed_on_the_way_empty_tables_leave_empty_maps(seed: int) -> None:
    engine, batched = engine_of(cumulus.compile(SQL)), engine_of(cumulus.compile(SQL))
    events, failed = list(_events(seed, 120)), 0
    with decimal.localcontext(EXACT):
        for (sign, name), group in itertools.groupby(events, key=lambda event: event[:2]):
            batch: dict[tuple, int] = {}
            for event in group:
                failed += len(fire(engine, event))
                batch[event[2]] = batch.get(event[2], 0) + sign
            batched.begin()
            batched.on_batch(name, batch)
            batched.commit()
            assert contents(batched) == contents(engine)
    assert failed > 50
    assert not any(contents(engine).values())
