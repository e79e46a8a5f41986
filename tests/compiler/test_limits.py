"""Programs that are too large are refused while they are made, with what makes them smaller."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pytest

import cumulus
from cumulus.calculus.polynomial import Monomial
from cumulus.compiler import materialize
from cumulus.errors import LowerOrderWarning, UnsupportedError
from support.tiers import sampled

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
def test_a_join_of_ten_tables_is_kept_from_rows_and_compiles_in_full_with_static_tables() -> None:
    with pytest.warns(LowerOrderWarning, match="more than 40 maps.* which tables are static"):
        cumulus.compile(TABLES.format(static="") + JOIN)
    with pytest.raises(UnsupportedError, match="15000 deltas of products"):
        cumulus.compile(TABLES.format(static="") + JOIN.replace("VIEW v AS", "VIEW v WITH (order = full) AS"))
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


@pytest.mark.slow
def test_a_union_of_many_tables_takes_as_long_as_its_branches() -> None:
    tables = "".join(f"CREATE TABLE t{at} (a INTEGER, b INTEGER);\n" for at in range(200))
    union = " UNION ALL ".join(f"SELECT a, b FROM t{at}" for at in range(200))
    started = time.process_time()
    program = cumulus.compile(f"{tables} CREATE VIEW v AS SELECT a, SUM(b) AS s FROM ({union}) q GROUP BY a;")
    assert time.process_time() - started < 10
    assert len(program.maps) == 1


@pytest.mark.slow
def test_a_cube_over_a_wide_join_is_evaluated_again() -> None:
    names = ", ".join(f"t{at}.b" for at in range(8))
    tables = "".join(f"CREATE TABLE t{at} (k INTEGER PRIMARY KEY, b INTEGER);\n" for at in range(8))
    fact = f"CREATE TABLE f (i INTEGER PRIMARY KEY, {', '.join(f'd{at} INTEGER REFERENCES t{at}' for at in range(8))});"
    joins = " ".join(f"JOIN t{at} ON d{at} = t{at}.k" for at in range(8))
    cube = f"CREATE VIEW v AS SELECT {names}, COUNT(*) AS n, SUM(i) AS s FROM f {joins} GROUP BY CUBE ({names});"
    with pytest.warns(LowerOrderWarning, match="deltas of products"):
        cumulus.compile(f"{tables} {fact} {cube}")


def power(factors: int, head: str = "VIEW v") -> str:
    """A product of sums over three tables: four to the power of `factors` monomials."""
    tables = "".join(f"CREATE TABLE t{at} (k INTEGER, b INTEGER, nx INTEGER);\n" for at in range(3))
    sums = " * ".join(f"(t0.b + t1.b + t2.b + {at})" for at in range(factors))
    join = "FROM t0, t1, t2 WHERE t0.nx = t1.k AND t1.nx = t2.k GROUP BY t0.k"
    return f"{tables}CREATE {head} AS SELECT t0.k, SUM({sums}) AS s {join};"


def test_a_product_of_sums_is_counted_before_it_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    split = materialize.split_scalars

    def watched(monomial: Monomial, bound: Iterable[str]) -> list[Monomial]:
        found = split(monomial, bound)
        made.append(len(found))
        return found

    monkeypatch.setattr(materialize, "split_scalars", watched)
    with pytest.warns(LowerOrderWarning, match=r"15000 deltas of products.*WITH \(order = 0\)"):
        cumulus.compile(power(20))
    assert max(made, default=0) < 100
    with pytest.raises(UnsupportedError, match=r"4:20: view v would need .* and is STRICT") as strict:
        cumulus.compile(power(20, "STRICT VIEW v"))
    assert strict.value.hint.endswith("or leave out STRICT.")


def test_what_is_evaluated_again_adds_products_of_sums_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize, "MAX_LOAD", 100)
    with pytest.warns(LowerOrderWarning):
        warehouse = cumulus.Warehouse(power(3), keep="all")
    for at in range(3):
        warehouse.insert(f"t{at}", [(1, at + 1, 1), (2, 5, 1), (1, 7, 2)])
    assert warehouse.recheck()


def test_the_size_that_a_refusal_tells_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize, "MAX_LOAD", 100)
    script, size = power(2, "VIEW v WITH (order = full)"), 1
    warehouse = None
    while warehouse is None:
        try:
            warehouse = cumulus.Warehouse(script, size=size)
        except UnsupportedError as told:
            found = re.search(r"Warehouse\(…, size=(\d+)\); cumulus compile FILE --size \1 ", told.hint)
            assert found is not None
            assert size < int(found[1]) < 20
            size = int(found[1])
    assert size > 1
    assert warehouse.recheck()


@pytest.mark.parametrize(
    ("link", "part", "query"),
    sampled(
        [
            (" + ", "a", "SELECT SUM({}) AS s FROM t"),
            (" || ", "a::VARCHAR", "SELECT {} AS s FROM t"),
            (" UNION ALL ", "SELECT a FROM t WHERE a <> {at}", "{}"),
        ],
        of=3,
        first=1,
    ),
)
def test_a_chain_that_is_too_long_is_told_with_its_place_and_compiles_in_brackets(
    link: str, part: str, query: str
) -> None:
    script = "CREATE TABLE t (a INTEGER);\nCREATE VIEW w AS SELECT a FROM t;\nCREATE VIEW v AS {};"
    for length in (1000, 400):
        links = [part.format(at=at) for at in range(length)]
        with pytest.raises(UnsupportedError, match=r"^3:\d+: this is nested too deeply") as told:
            cumulus.compile(script.format(query.format(link.join(links))))
        assert "brackets around 32 links" in told.value.hint
        parts = [f"({link.join(links[at : at + 32])})" for at in range(0, length, 32)]
    assert len(cumulus.compile(script.format(query.format(link.join(parts)))).views) == 2


def test_a_cube_of_wide_rows_is_one_term_for_all_changes() -> None:
    names = ", ".join(f"c{at}" for at in range(5))
    columns = ", ".join(f"c{at} INTEGER" for at in range(5))
    table = f"CREATE TABLE t ({columns}, x INTEGER) WITH (keep = all);"
    view = f"CREATE VIEW v WITH (order = 0) AS SELECT {names}, SUM(x) AS s FROM t GROUP BY CUBE ({names});"
    program = cumulus.compile(table + view)
    evaluated = {s.column: s.term for _, s in program.statements() if s.map == "v"}
    assert all(s.term is evaluated[s.column] for _, s in program.statements() if s.map == "v")
    warehouse = cumulus.Warehouse(program)
    warehouse.insert("t", [(1, 2, None, 4, 5, 6), (1, 2, 3, 4, 5, 7)])
    assert warehouse.recheck()
