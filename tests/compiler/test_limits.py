"""Programs that are too large are refused while they are made, with what makes them smaller."""

from __future__ import annotations

import time

import pytest

import cumulus
from cumulus.errors import UnsupportedError

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
