"""What of a program is spread and what is gated, and why."""

from __future__ import annotations

import pytest

from cumulus import m3
from cumulus.cluster.spread import divide
from cumulus.compiler import compile_sql
from cumulus.workloads import flights, shop
from cumulus_lab.workloads import BENCHMARKS, queries
from support.tiers import sampled

SPREAD = {
    *("shop", "flights"),
    *(f"tpch q{number}" for number in (1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 19)),
    *(f"ssb {name}" for name in queries("ssb")),
    *(f"orderbook {name}" for name in ("axf", "bsp", "bsv")),
}
SCRIPTS = {"shop": shop.sql(), "flights": flights.sql()} | {
    f"{workload} {name}": text for workload in BENCHMARKS for name, text in queries(workload).items()
}


@pytest.mark.filterwarnings("ignore::cumulus.errors.LowerOrderWarning")
@pytest.mark.parametrize("name", sampled(SCRIPTS, of=3))
def test_workloads(name):
    program = compile_sql(SCRIPTS[name], rely=False, enforced=False)
    found = divide(program)
    for part in (found.spread, found.gated):
        m3.validate(part)
        assert m3.parse(str(part)) == part
    assert {view.name for view in found.gated.views} == set(found.views)
    if name in SPREAD:
        assert (found.statements, found.maps, found.views, found.gated.maps) == ((), {}, {}, ())
        assert found.spread.views == program.views
    else:
        assert found.gated.views == program.views
        assert found.spread.maps == ()
        assert all(each.reason.startswith("It ") and each.reason.endswith(".") for each in found.statements)


MAPS = "RELATION r(a INT, b INT, t VARCHAR, d DOUBLE); MAP m[a INT](n BIGINT) ORDERED a; MAP q[](n BIGINT); "


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("q[] += SUM[](m[< a])", "It reads a range of m."),
        ("q[] += NEW m[a]", "It reads m as NEW, after the event."),
        ("q[] += CHANGED m[a] * a", "It reads m as CHANGED, after the event."),
        ("q[] += (x := m[a]) * x", "It binds x to what m gives."),
        ("q[] += EXISTS(m[a])", "It asks whether anything is in m."),
        ("q[] += {m[a] > 3}", "It puts m into a condition."),
        ("q[] += {MAX m[*] > a}", "It puts m into a condition."),
        ("q[] += m[x] * m[x + 1]", "It looks into m at x + 1, which the event alone does not tell."),
        ("q[] += m[a // b]", "It computes a // b, which has no value for some rows."),
        ("q[] += {CAST(t AS INTEGER) > 3}", "It computes CAST(t AS INTEGER), which has no value for some rows."),
        ("q[] += {repeat(t, a) = t}", "It computes repeat(t, a), which has no value for extreme ones."),
        ("q[] += m[b] * m[c] * m[d] * m[e] * m[f] * m[g] * m[h]", "It reads m 7 times in one product, and more than 6"),
        (f"q[] += {' * '.join(['(m[a] + m[b])'] * 7)}", "It adds 128 products of maps, and more than 64"),
    ],
)
def test_what_is_gated_says_why(statement, reason):
    found = divide(m3.read(f"{MAPS} ON +r(a, b, t, d) {{ m[a] += 1; {statement}; }}"))
    (gated,) = found.statements
    assert gated.reason.startswith(reason)
    assert list(found.maps) == ["q"]
    assert [each.name for each in found.spread.maps] == ["m"]
    assert [each.name for each in found.gated.maps] == (["m", "q"] if "m[" in statement else ["q"])


@pytest.mark.parametrize(
    "statement",
    [
        "q[] += m[a + b] * {d < 0.5}",
        "q[] += m[x] * m[y] * {x < y}",
        "q[] += (m[a] - 2 * SUM[](m[x] * {x > b})) * intdiv(a, 5)",
    ],
)
def test_what_is_spread(statement):
    found = divide(m3.read(f"{MAPS} ON +r(a, b, t, d) {{ m[a] += 1; {statement}; }}"))
    assert not found.maps
    assert found.gated.maps == ()


def test_what_is_made_from_what_is_gated_is_gated():
    text = "ON +r(a) { p[] += q[a]; q[a] += EXISTS(m[a]); m[a] += 1; z[] += y[]; y[] += z[]; n[] += m[a] }"
    found = divide(m3.read(text))
    assert dict(found.maps) == {
        "q": "A statement of ON +r asks whether anything is in m.",
        "p": "It is made from q, which is gated.",
        "y": "It is made from itself, by way of other maps or not.",
        "z": "It is made from itself, by way of other maps or not.",
    }
    assert {each.name for each in found.spread.maps} == {"n", "m"}
    assert {each.name for each in found.gated.maps} == {"p", "q", "m", "y", "z"}


def test_functions_of_the_users_are_gated_in_statements_and_views():
    text = """FUNCTION f(INT) INT; RELATION r(a INT); MAP p[](n BIGINT); MAP q[](n BIGINT);
    VIEW v(n BIGINT) FROM p SELECT n; VIEW w(n INT) FROM p SELECT f(CAST(n AS INT)); VIEW x(n BIGINT) FROM q SELECT n;
    ON +r(a) { p[] += 1; q[] += f(a); }"""
    found = divide(m3.read(text))
    assert found.views == {
        "w": "It calls f, a function of the user's.",
        "x": "It reads q. A statement of ON +r calls f, a function of the user's.",
    }
    assert [view.name for view in found.spread.views] == ["v"]
    assert found.spread.functions == ()
    assert [each.name for each in found.gated.maps] == ["p", "q"]


def test_programs_that_enforce_references_are_gated():
    text = """CREATE TABLE p (k INTEGER PRIMARY KEY, x INTEGER); CREATE TABLE c (k INTEGER PRIMARY KEY, p INTEGER,
    FOREIGN KEY (p) REFERENCES p (k)); CREATE VIEW v AS SELECT SUM(x) AS s FROM p, c WHERE c.p = p.k;"""
    found = divide(compile_sql(text))
    assert found.statements[0].reason == ("It leaves out what the reference from c to p makes 0, as it is ENFORCED.")
    assert divide(compile_sql(text, enforced=False)).maps == {}


def test_the_gated_part_keeps_the_rows_that_were_kept():
    text = """CREATE TABLE r (k INTEGER PRIMARY KEY, x INTEGER); CREATE VIEW v AS SELECT SUM(x) AS s FROM r;
    CREATE VIEW w AS SELECT x, COUNT(DISTINCT k) AS n FROM r GROUP BY x;"""
    found = divide(compile_sql(text, rely=False, enforced=False))
    assert [name for name, _ in found.gated.kept] == ["r"]
    assert found.spread.kept == ()
    assert found.views.keys() == {"w"}
