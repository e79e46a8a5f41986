"""Cost classes, on programs written by hand so that every construct stands alone."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.explain.cost import CostClass, CostedRead, Costs, cost_classes
from cumulus.m3 import parse


def reads(statement: str, declarations: str = "") -> tuple[CostClass, tuple[CostedRead, ...]]:
    """The class and the reads of the one statement of a trigger on R(e, f)."""
    program = parse(f"{declarations} ON +R(e, f) {{ {statement} }}")
    found = Costs(program).statement(program.triggers[0], program.triggers[0].statements[0])
    return found.cost, found.reads


def cost(statement: str, declarations: str = "") -> str:
    return str(reads(statement, declarations)[0])


def test_classes_are_ordered_from_best_to_worst():
    assert sorted(CostClass, reverse=True)[0] is CostClass.REEVALUATION
    assert CostClass.CONSTANT < CostClass.LOGARITHMIC < CostClass.SLICE < CostClass.SCAN < CostClass.REEVALUATION
    with pytest.raises(TypeError):
        assert CostClass.SCAN < "O(n)"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("q[e] += f", "O(1)"),
        ("q[e] += m[e, f] * s[]", "O(1)"),
        ("q[e] += m[e, x]", "O(slice)"),
        ("q[x] += m[x, y]", "O(n)"),
        ("q[x] += m[e, x] * s[x]", "O(slice)"),  # s is looked up, once for each entry of the slice
        ("q[x] += m[e, x] * s[y]", "O(n)"),
        ("q[] := m[e, x] * e", "re-evaluation"),
    ],
)
def test_what_a_plain_product_costs(statement: str, expected: str):
    if ":=" in statement:
        statement = statement.replace("e", "y")
    assert cost(statement) == expected


def test_a_variable_that_one_value_binds_is_bound():
    assert cost("q[k] += (k := e + 1) * m[k]") == "O(1)"
    assert cost("q[k] += (k := e) * (n := p[k] + 1) * {n <> 0} * m[k, n]") == "O(1)"
    assert cost("q[g] += (k := e) * (n := p[k] + 1) * {n <> 0} * m[k, g]") == "O(slice)"


def test_nested_terms_count_too():
    assert cost("q[e] += EXISTS(SUM[](m[e, x]))") == "O(slice)"
    assert cost("q[e] += (n := SUM[](m[x, y])) * n") == "O(n)"
    assert cost("q[e] += {SUM[](m[e, x]) > 3}") == "O(slice)"
    assert cost("q[x] += EXISTS(SUM[x](m[e, x])) * s[x]") == "O(slice)"


def test_a_sum_binds_on_each_side_alone():
    assert cost("q[x] += (m[e, x] + s[e, x]) * w[x]") == "O(slice)"
    assert cost("q[e] += (m[e] + s[e]) * w[e]") == "O(1)"


def test_ends_and_ranges_are_logarithmic():
    ordered = "MAP m[g INT, x INT](v INT) ORDERED x;"
    assert cost("q[e] += (x := MIN m[e, *]) * x", ordered) == "O(log n)"
    assert cost("q[e] += m[e, > f]", ordered) == "O(log n)"
    assert cost("q[e] += m[e, f .. e]", ordered) == "O(log n)"
    assert cost("q[e] += m[> f, e]", ordered) == "O(slice)"  # not the axis that is ordered
    assert cost("q[y] += m[y, > f]", ordered) == "O(n)"


def test_the_end_of_a_map_is_one_search_also_beside_a_changed_entry():
    assert cost("q[e] += (x := MIN[y](m[e, y])) * x") == "O(log n)"
    assert cost("q[] += (x := MAX[y](m[y])) * x") == "O(log n)"
    assert cost("q[e] += (x := MAX[y](m[e, y] + (y := f))) * x") == "O(log n)"
    assert cost("q[e] += (x := MAX[y](m[e, y] * s[y, z])) * x") == "O(slice)"


def test_a_batch_is_counted_by_its_rows():
    program = parse("ON BATCH R { q[e] += R(e, f) * m[e] } ON +R(e, f) { q[e] += m[e] }")
    assert Costs(program).statement(program.triggers[0], program.triggers[0].statements[0]).cost is CostClass.CONSTANT


def test_a_scan_says_what_ties_it_to_the_event():
    (only,) = reads("q[] += {x < e} * m[x]")[1]
    assert (only.condition, only.nested) == ("{x < e}", "")
    (only,) = reads("q[] += m[x] * e")[1]
    assert (only.condition, only.nested) == ("", "")


def test_a_scan_for_a_nested_value_says_which():
    # Which entries count depends on a total that the event has changed: all may be in or out now.
    look, scan = reads("q[] += (t := s[] + e) * m[x] * {x > t}")[1]
    assert look.cost is CostClass.CONSTANT
    assert scan.nested == "{x > t}"
    assert reads("q[] += m[x] * {x > s[]}")[1][0].nested == "{x > s[].v}"
    assert reads("q[] += m[x] * EXISTS(s[])")[1][0].nested == "EXISTS(s[].v)"
    assert reads("q[] += (n := SUM[](m[x] * x)) * n")[1][0].nested == "(n := SUM[](m[x].v * x))"


def test_the_worst_statement_on_the_way_to_a_view_says_its_class():
    program = parse("""
        VIEW v(g, s) FROM q SELECT k1, v;
        VIEW w(s) FROM p SELECT v;
        ON +R(a, b) { q[a] += m[a]; p[] += b }
        ON +S(a) { m[x] += s[x, y] * a; p[] += 1 }
        ON -S(a) { p[] += -1 }
    """)
    assert cost_classes(program) == {
        "v": {"R": CostClass.CONSTANT, "S": CostClass.SCAN},  # by way of m, which q reads
        "w": {"R": CostClass.CONSTANT, "S": CostClass.CONSTANT},
    }


def test_maps_that_a_view_reads_when_it_is_read_belong_to_it():
    program = parse("""
        VIEW v(g, s) FROM q SELECT k1, v WHERE v > t[].v;
        ON +R(a) { q[a] += 1 }
        ON +S(a) { t[] += m[x] }
    """)
    assert cost_classes(program)["v"]["S"] is CostClass.SCAN


SHOP = """
CREATE TABLE c (cid INT PRIMARY KEY, nation INT NOT NULL);
CREATE TABLE o (oid INT PRIMARY KEY, cid INT NOT NULL, discount INT NOT NULL);
CREATE TABLE l (oid INT NOT NULL, price INT NOT NULL);
CREATE VIEW revenue AS SELECT nation, SUM(discount * price) AS r FROM c, o, l
  WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY nation;
CREATE VIEW pairs AS SELECT COUNT(*) AS n FROM l a, l b WHERE a.price < b.price;
"""


def test_sql_has_the_classes_that_its_keys_allow():
    found = cost_classes(compile_sql(SHOP, keep="none"))
    assert found["revenue"] == {"c": CostClass.SLICE, "o": CostClass.CONSTANT, "l": CostClass.CONSTANT}
    assert found["pairs"] == {"l": CostClass.SCAN}
