"""Programs that are too large are refused while they are made, with what makes them smaller."""

from __future__ import annotations

import time

import pytest

import cumulus
from cumulus.compiler import materialize
from cumulus.errors import LowerOrderWarning, UnsupportedError

TABLES = """
    CREATE TABLE atom (run INTEGER, t INTEGER, id INTEGER, x DOUBLE);
    CREATE TABLE meta (protein INTEGER, id INTEGER, name VARCHAR, residue VARCHAR) {static};
    CREATE TABLE dihedral (a1 INTEGER, a2 INTEGER, a3 INTEGER, a4 INTEGER, f DOUBLE) {static};
    CREATE TABLE angle (a INTEGER, r INTEGER) {static};
"""
JOIN = """
    CREATE VIEW v AS SELECT p1.run, p1.t, SUM(p1.x * p2.x * p3.x * p4.x * d.f) AS s
    FROM atom p1, atom p2, atom p3, atom p4, meta m1, meta m2, meta m3, meta m4, dihedral d, angle a
    WHERE p1.run = p2.run AND p2.run = p3.run AND p3.run = p4.run AND p1.t = p2.t AND p2.t = p3.t AND p3.t = p4.t
      AND p1.id = d.a1 AND p2.id = d.a2 AND p3.id = d.a3 AND p4.id = d.a4
      AND m1.id = d.a1 AND m2.id = d.a2 AND m3.id = d.a3 AND m4.id = d.a4 AND a.a = d.a1
      AND m1.protein = m2.protein AND m2.protein = m3.protein AND m3.protein = m4.protein
      AND ((m1.name = 'N' AND m2.name = 'CA' AND m3.name = 'C')
        OR (m1.name = 'C' AND m2.name = 'N' AND m3.residue = 'CB')
        OR (m2.residue = 'X' AND m3.name = 'Y' AND m4.name <> 'Z'))
    GROUP BY p1.run, p1.t
"""


@pytest.mark.slow
def test_a_join_of_ten_tables_is_refused_early_and_compiles_with_static_tables() -> None:
    started = time.process_time()
    with pytest.raises(UnsupportedError, match="more than 2000 maps") as told:
        cumulus.compile(TABLES.format(static="") + JOIN)
    assert time.process_time() - started < 20
    assert "WITH (static = true)" in told.value.hint
    assert "meta" in told.value.hint
    assert "Warehouse(…, size=2), --size 2" in told.value.hint
    program = cumulus.compile(TABLES.format(static="WITH (static = true)") + JOIN)
    assert len(program.maps) < 500


def channels() -> str:
    """Facts of two kinds under one name, read four times."""
    tables = "".join(f"CREATE TABLE s{kind} (c INTEGER, y INTEGER, p INTEGER);\n" for kind in range(2))
    parts = " UNION ALL ".join(
        f"SELECT c, y, {kind} AS kind, SUM(p) AS total FROM s{kind} GROUP BY c, y" for kind in range(2)
    )
    reads = [f"t{at}.c = t0.c AND t{at}.kind = {at % 2} AND t{at}.y = {at // 2}" for at in range(4)]
    return f"""{tables} CREATE VIEW v AS WITH t AS ({parts}) SELECT t0.c, t0.total, t1.total AS other
        FROM t t0, t t1, t t2, t t3 WHERE {" AND ".join(reads)} AND t1.total > t2.total;"""


def test_what_sub_queries_need_is_found_and_a_lower_order_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize, "MAX_ROWS", 60)
    with pytest.warns(LowerOrderWarning, match=r"view v would need more than 60 looks .* as WITH \(order = 0\) does"):
        program = cumulus.compile(channels())
    assert {s.op for _, s in program.statements() if s.map == "v"} == {":="}
    monkeypatch.setattr(materialize, "MAX_ROWS", 1)
    with pytest.raises(UnsupportedError, match=r"3:14: view v needs more than 1 looks into sub-queries") as told:
        cumulus.compile(channels())
    assert "Warehouse(…, size=2); cumulus compile FILE --size 2" in told.value.hint


def test_a_strict_view_is_refused_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize, "MAX_ROWS", 60)
    with pytest.raises(UnsupportedError, match=r"view v would need more than 60 looks .* and is STRICT"):
        cumulus.compile(channels().replace("CREATE VIEW", "CREATE STRICT VIEW"))


def test_an_evaluated_view_over_sub_queries_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize, "MAX_ROWS", 60)
    with pytest.warns(LowerOrderWarning):
        warehouse = cumulus.Warehouse(channels(), keep="all")
    for kind, year, price in [(0, 0, 5), (1, 0, 7), (0, 1, 6), (1, 1, 9), (0, 0, 1)]:
        warehouse.insert(f"s{kind}", [(1, year, price), (2, year, price + kind)])
    assert sorted(warehouse.view("v").rows()) == [(1, 6, 7), (2, 6, 8)]
    assert warehouse.recheck()
    warehouse.delete("s1", [(2, 0, 8)])
    assert warehouse.view("v").rows() == [(1, 6, 7)]
    assert warehouse.recheck()


def test_a_union_of_many_tables_takes_as_long_as_its_branches() -> None:
    tables = "".join(f"CREATE TABLE t{at} (a INTEGER, b INTEGER);\n" for at in range(200))
    union = " UNION ALL ".join(f"SELECT a, b FROM t{at}" for at in range(200))
    started = time.process_time()
    program = cumulus.compile(f"{tables} CREATE VIEW v AS SELECT a, SUM(b) AS s FROM ({union}) q GROUP BY a;")
    assert time.process_time() - started < 10
    assert len(program.maps) == 1


def test_a_cube_over_a_wide_join_is_evaluated_again() -> None:
    names = ", ".join(f"t{at}.b" for at in range(8))
    tables = "".join(f"CREATE TABLE t{at} (k INTEGER PRIMARY KEY, b INTEGER);\n" for at in range(8))
    fact = f"CREATE TABLE f (i INTEGER PRIMARY KEY, {', '.join(f'd{at} INTEGER REFERENCES t{at}' for at in range(8))});"
    joins = " ".join(f"JOIN t{at} ON d{at} = t{at}.k" for at in range(8))
    cube = f"CREATE VIEW v AS SELECT {names}, COUNT(*) AS n, SUM(i) AS s FROM f {joins} GROUP BY CUBE ({names});"
    with pytest.warns(LowerOrderWarning, match="statements of usual length"):
        cumulus.compile(f"{tables} {fact} {cube}")
