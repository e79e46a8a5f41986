"""`explain --diff`: what a change of views adds, drops and keeps."""

from __future__ import annotations

from cumulus.compiler import compile_sql
from cumulus.compiler.difference import KindDifference, ProgramDifference, compare
from cumulus.m3 import parse

TABLES = """
CREATE TABLE c (cid INT NOT NULL, nation INT NOT NULL);
CREATE TABLE o (oid INT NOT NULL, cid INT NOT NULL, x INT NOT NULL);
"""
REVENUE = "CREATE VIEW revenue AS SELECT nation, SUM(x) AS s FROM c, o WHERE c.cid = o.cid GROUP BY nation;"


def difference(old: str, new: str) -> ProgramDifference:
    return compare(compile_sql(TABLES + old), compile_sql(TABLES + new))


def is_same(part: KindDifference) -> bool:
    return not (part.added or part.dropped or part.changed)


def test_nothing_changes_when_names_and_order_do():
    other = "CREATE VIEW revenue AS SELECT b.nation, SUM(a.x) AS s FROM o AS a, c AS b WHERE a.cid = b.cid GROUP BY 1;"
    found = difference(REVENUE, other)
    assert is_same(found.maps)
    assert is_same(found.views)
    assert all(is_same(part) for part in found.statements.values())
    assert "0 added, 0 dropped" in str(found)


def test_a_new_view_keeps_the_maps_that_it_shares():
    by_customer = "CREATE VIEW spent AS SELECT cid, SUM(x) AS s FROM o GROUP BY cid;"
    found = difference(REVENUE, REVENUE + by_customer)
    assert found.views.added == ["spent"]
    assert is_same(found.maps)  # the orders of a customer were there already, under another name
    assert ("m1", "spent") in found.maps.kept
    assert all(is_same(part) for part in found.statements.values())
    assert is_same(found.relations)


def test_a_dropped_view_takes_its_own_maps_with_it():
    by_order = "CREATE VIEW spent AS SELECT oid, SUM(x) AS s FROM o GROUP BY oid;"
    found = difference(REVENUE + by_order, REVENUE)
    assert (found.views.dropped, found.maps.dropped) == (["spent"], ["spent"])
    assert found.texts["-spent"].startswith("SELECT t0.oid AS oid")
    assert [len(found.statements[event].dropped) for event in ("+o", "-o", "BATCH o", "+c")] == [2, 2, 2, 0]


def test_another_sum_is_a_column_of_the_map_that_stays():
    more = REVENUE.replace("SUM(x) AS s", "SUM(x) AS s, SUM(x * x) AS q")
    found = difference(REVENUE, more)
    assert [name for name, _ in found.views.changed] == ["revenue"]
    assert [name for name, what in found.maps.changed if "is new" in what] == [name for name, _ in found.maps.changed]
    assert found.statements["+o"].added
    assert not found.statements["+o"].dropped


def test_another_condition_is_another_map_and_another_having_is_not():
    less = REVENUE.replace(" GROUP", " AND x > 3 GROUP")
    assert "revenue" in difference(REVENUE, less).maps.added
    having = REVENUE.replace("GROUP BY nation", "GROUP BY nation HAVING SUM(x) > 3")
    found = difference(REVENUE, having)
    assert [name for name, _ in found.views.changed] == ["revenue"]
    assert is_same(found.maps)


def test_tables_are_compared_by_their_declaration():
    old, new = compile_sql(TABLES + REVENUE), compile_sql(TABLES.replace("cid INT NOT NULL, n", "cid INT, n") + REVENUE)
    assert compare(old, new).relations.changed == [("c", "its declaration")]


def test_maps_written_by_hand_are_the_same_by_name():
    old = parse("ON +R(a) { q[a] += m[a]; m[a] += 1 }")
    new = parse("ON +R(b) { q[b] += m[b]; m[b] += 2 }")
    found = compare(old, new)
    assert is_same(found.maps)
    assert (len(found.statements["+R"].kept), found.statements["+R"].added) == (1, ["m[b] += 2"])
    assert found.as_dict()["statements"]["+R"]["dropped"] == ["m[a] += 1"]


def test_a_cube_whose_dimensions_or_levels_are_others_is_told():
    table = "CREATE TABLE r (a INT, b INT); CREATE CUBE c"
    select = "AS SELECT a, b, COUNT(*) AS n FROM r GROUP BY ALL"
    plain = compile_sql(f"{table} DIMENSION d (a, b) {select}")
    assert compare(plain, plain).as_dict()["cubes"]["kept"] == [{"old": "c", "new": "c"}]
    turned = compare(plain, compile_sql(f"{table} DIMENSION d (b, a) {select}"))
    assert "cubes: 0 added, 0 dropped, 1 changed, 0 kept\n  ~ c: its dimensions or levels" in str(turned)
    kept = compare(plain, compile_sql(f"{table} DIMENSION d (a, b) KEEP (a) {select}"))
    assert (kept.views.added, kept.maps.added) == (["c by a"], ["c by a"])
