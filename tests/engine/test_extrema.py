"""Ends of terms and slices: what counts, in which order, and what stands around them. The law is in the naive test."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from cumulus import m3
from cumulus.catalog.types import Interval
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.protocol import Engine
from cumulus.errors import ValidationError
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")


def read_after(text: str, **loaded: dict) -> Engine:
    """An engine after one event +r() of a program whose statements fill maps from loaded ones."""
    engine = engine_of(m3.read(f"RELATION r(); {text}"))
    for name, entries in loaded.items():
        engine.load(name, [(key if type(key) is tuple else (key,), values) for key, values in entries.items()])
    engine.begin()
    engine.on_event(1, "r", ())
    engine.commit()
    return engine


def keys(engine: Engine, name: str) -> list:
    return [key[0] for key, _ in engine.items(name)]


NAN, INF = float("nan"), float("inf")
ORDERS = [
    ("DOUBLE", [NAN, 1.5, INF, -INF], -INF, NAN),
    ("INTERVAL", [Interval(1, 0, 0), Interval(0, 31, 0), Interval(0, 0, 29 * 86_400_000_000)], 2, 1),
    ("VARCHAR", ["b", "é", "B", ""], "", "é"),
    ("BOOLEAN", [True, False], False, True),
    ("DATE", [dt.date(2020, 1, 2), dt.date(1999, 12, 31)], dt.date(1999, 12, 31), dt.date(2020, 1, 2)),
    ("DECIMAL(9,2)", [Decimal("0.10"), Decimal("-1.00")], Decimal("-1.00"), Decimal("0.10")),
]


@pytest.mark.parametrize("form", ["{end} m[*]", "{end}[x](m[x])", "{end}[x](m[x] * {{1 < 2}})"])
@pytest.mark.parametrize(("kind", "values", "least", "greatest"), ORDERS, ids=[order[0] for order in ORDERS])
def test_values_stand_in_sqls_order_and_null_is_none_of_them(form, kind, values, least, greatest) -> None:
    lift = " ".join(f"{name}[x] += (x := {form.format(end=end)});" for name, end in (("lo", "MIN"), ("hi", "MAX")))
    text = f"MAP m[x {kind}](n BIGINT); MAP lo[x {kind}](n BIGINT); MAP hi[x {kind}](n BIGINT); ON +r() {{ {lift} }}"
    expected = [values[each] if type(each) is int else each for each in (least, greatest)]
    engine = read_after(text, m=dict.fromkeys([None, *values], (1,)))
    assert repr([keys(engine, "lo"), keys(engine, "hi")]) == repr([[value] for value in expected])
    empty = read_after(text, m={None: (1,)})
    assert [keys(empty, "lo"), keys(empty, "hi")] == [[None], [None]]


SLICES = "MAP m[g INT, x INT](n BIGINT, s BIGINT) COUNT n; MAP out[x INT](n BIGINT); ON +r() { out[x] += (x := %s) }"
ENTRIES = {(1, 5): (2, 0), (1, 7): (1, 3), (1, 9): (1, 0), (2, 1): (1, -3), (2, 7): (1, -3)}


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ("MAX[x](m[1, x].n)", 9),
        ("MAX m[1, *]", 9),
        ("MAX[x](m[1, x].s)", 7),  # where the number is not 0, not where an entry is
        ("MIN[x](m[1, x].s)", 7),
        ("MAX[x](m[g, x].n)", 9),
        ("MIN[x](m[g, x].n)", 1),
        ("MIN[x](m[g, x].s)", 1),
        ("MAX[x](m[g, x].s)", 1),  # at 7 the two slices cancel
        ("MAX[x](m[1, x].n - m[2, x].n)", 9),
        ("MAX[x](m[g, x].n * {x < 9} * {g < 2})", 7),
        ("MAX[x](SUM[x](m[g, x].n * {x < 6}))", 5),
        ("MAX[x](m[3, x].n)", None),
        ("MIN[x](m[> 1, x].n)", 1),
        ("MIN[x]((x := 4) - (x := 4))", None),
        ("MAX[x](m[x, MIN[x](m[x, 7].s)].n)", 2),
        ("MAX[x](m[x, MAX[x](m[1, x].s)].n)", 2),
    ],
)
def test_an_end_goes_over_the_values_at_which_its_term_is_not_0(end, found) -> None:
    assert keys(read_after(SLICES % end, m=ENTRIES), "out") == [found]


def test_an_entry_without_rows_counts_for_its_number_but_does_not_exist() -> None:
    engine = engine_of(m3.read(f"RELATION r(); {SLICES % 'MAX[x](m[1, x].s)'}"))
    engine.restore("m", [((1, 5), (0, 4)), ((1, 3), (1, 0))])
    assert engine.end("m", "MAX", 1, (1,), None) == 3
    engine.begin()
    engine.on_event(1, "r", ())
    engine.commit()
    assert keys(engine, "out") == [5]


def test_only_the_slice_is_visited() -> None:
    program = m3.read(f"RELATION r(); {SLICES % 'MAX[x](m[1, x].n)'}")
    assert "for key in map_m_by_0.get(1, ()):" in Interpreter(program).source


def test_the_host_reads_ends_of_slices_and_keeps_an_index_for_it() -> None:
    text = "RELATION r(g INT, x INT); MAP m[g INT, x INT](n BIGINT); ON +r(g, x) { m[g, x] += 1 }"
    engine = engine_of(m3.read(text))
    engine.load("m", [((1, 4), (1,)), ((None, 9), (2,)), ((1, None), (1,))])
    assert [engine.end("m", end, 1, (1,), None) for end in ("MIN", "MAX")] == [4, 4]
    for row in ((1, 7), (1, 2), (None, 3)):
        engine.begin()
        engine.on_event(1, "r", row)
        engine.commit()
    assert [engine.end("m", end, 1, (1,), None) for end in ("MIN", "MAX")] == [2, 7]
    assert [engine.end("m", end, 1, (None,), None) for end in ("MIN", "MAX")] == [3, 9]
    assert engine.end("m", "MAX", 0, (None,), None) == 1
    assert engine.end("m", "MAX", 1, (5,), None) is None


def test_an_end_whose_term_does_not_bind_its_variable_is_refused() -> None:
    program = m3.parse("RELATION r(); MAP m[x INT](n INT); MAP q[](n INT); ON +r() { q[] += MAX[x](m[1]) }")
    with pytest.raises(ValidationError, match="x is not bound in"):
        engine_of(program)


# --- what random ends brought to light ------------------------------------------------------------------------------


def test_of_two_equal_statements_none_runs_before_a_loop_that_reads_their_target() -> None:
    text = """
    RELATION r(a INT);
    MAP s[a INT](n BIGINT); MAP t[a INT](n BIGINT);
    ON BATCH r { s[a] += r(a); t[a] += s[a]; s[a] += r(a) }
    """
    engine = engine_of(m3.read(text))
    engine.begin()
    engine.on_batch("r", {(1,): 1})
    engine.commit()
    assert dict(engine.items("s")) == {(1,): (2,)}
    assert dict(engine.items("t")) == {}


def test_an_inner_sum_sees_what_is_bound_around_its_sum() -> None:
    maps = "MAP m[a INT](n INT); MAP q[a INT](n INT);"
    engine = engine_of(m3.read(f"RELATION r(a INT); {maps} ON +r(a) {{ q[b] += m[b] * SUM[](1 + SUM[](m[b])) }}"))
    engine.load("m", [((1,), (2,)), ((2,), (5,))])
    engine.begin()
    engine.on_event(1, "r", (0,))
    engine.commit()
    assert dict(engine.items("q")) == {(1,): (6,), (2,): (30,)}


def test_sums_inside_a_shared_sum_have_dicts_of_their_own() -> None:
    text = """
    RELATION r(a INT, b INT);
    MAP t[a INT, b INT](n BIGINT); MAP u[](n BIGINT);
    ON BATCH r { t[a, b] += SUM[a, b](r(a, b) * {MIN[x](r(x, y)) <= 1}) - SUM[a, b](r(a, b) * u[]) }
    """
    engine = engine_of(m3.read(text))
    engine.begin()
    engine.on_batch("r", {(1, 2): 1, (4, 5): 2})
    engine.commit()
    assert dict(engine.items("t")) == {(1, 2): (1,), (4, 5): (2,)}
