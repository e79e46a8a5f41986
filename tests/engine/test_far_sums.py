"""Sums that grow beyond DOUBLE, and what is left when they come back: beside exact fractions."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import inf, isinf
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.algebra.float_sums import LARGEST, ZERO_CELL, add_cells, add_to_cell, read_cell
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from support.tiers import examples

FLOATS = st.sampled_from([LARGEST, -LARGEST, 1.7e308, -1.7e308, 1e308, 9e307, 1.0, -2.5, 1e-300, 5e-324, 0.0, 3e200])
SQL = """
    CREATE TABLE r (k INTEGER NOT NULL, x DOUBLE NOT NULL);
    CREATE VIEW v AS SELECT k, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY k;
"""


def exact(numbers: Iterable[float]) -> Fraction:
    return sum(map(Fraction, numbers), Fraction(0))


def agrees(found: float, numbers: list[float]) -> bool:
    """Whether a sum is right within what the size of its summands allows; infinity is right beyond DOUBLE."""
    wanted, size = exact(numbers), exact(map(abs, numbers))
    if isinf(found):
        return wanted * (1 if found > 0 else -1) > Fraction(LARGEST) * Fraction(999_999_999, 1_000_000_000)
    return abs(Fraction(found) - wanted) <= size / 10**15 + Fraction(5e-324)


@given(st.lists(FLOATS, max_size=12), st.lists(FLOATS, max_size=12), st.sampled_from([1, -1]))
def test_cells(one: list[float], other: list[float], sign: int) -> None:
    cells = []
    for numbers in (one, other):
        cell, there = ZERO_CELL, list[float]()
        for number in numbers:
            cell, there = add_to_cell(cell, number), [*there, number]
            assert agrees(read_cell(cell), there)
        cells.append(cell)
    both = add_cells(cells[0], cells[1], sign)
    assert agrees(read_cell(both), [*one, *(sign * each for each in other)])
    for number in one:
        both = add_to_cell(both, -number)
    left = read_cell(both)
    size = exact(map(abs, [*one, *one, *other]))
    assert isinf(left) or abs(Fraction(left) - sign * exact(other)) <= size / 10**15 + Fraction(5e-324)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 1), FLOATS), max_size=14), gone=st.data())
def test_a_group_heals(engine: str, steps: list[tuple[int, float]], gone: st.DataObject) -> None:
    with cumulus.Warehouse(SQL, engine=engine) as wh:
        there: list[tuple[int, float]] = []
        for step in steps:
            wh.insert("r", [step])
            there.append(step)
        for at in sorted(gone.draw(st.sets(st.integers(0, max(len(steps) - 1, 0)))), reverse=True):
            if at < len(there):
                wh.delete("r", [there.pop(at)])
        for group in (0, 1):
            mine = [number for k, number in there if k == group]
            size = [number for k, number in steps if k == group]
            row = wh.view("v").get(group)
            if not mine:
                assert row is None
                continue
            assert row is not None
            assert row[2] == len(mine)
            if isinf(row[1]):
                assert agrees(row[1], mine)
                continue
            assert abs(Fraction(row[1]) - exact(mine)) <= exact(map(abs, size)) / 10**14 + Fraction(5e-324)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_what_is_left_is_exact_again(engine: str, tmp_path: Path) -> None:
    wh = cumulus.Warehouse(SQL, engine=engine)
    wh.insert("r", [(1, 1.5), (2, 1.7e308), (2, 1.7e308), (2, 2.5)])
    assert sorted(wh.view("v").rows()) == [(1, 1.5, 1), (2, inf, 3)]
    assert wh.errors().count == 0
    wh.save(tmp_path / "raw")
    wh.save(tmp_path / "portable", format="portable")
    for folder in ("raw", "portable"):
        loaded = cumulus.Warehouse.load(tmp_path / folder, engine=engine)
        loaded.delete("r", [(2, 1.7e308), (2, 1.7e308)])
        assert sorted(loaded.view("v").rows()) == [(1, 1.5, 1), (2, 2.5, 1)]
        loaded.close()
    wh.close()


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_what_reads_a_sum_beyond_double_goes_on_with_infinity(engine: str) -> None:
    """As DuckDB says of the same rows; the groups beside it are untouched, and all is as before when the rows go."""
    sql = """
        CREATE TABLE r (k INTEGER NOT NULL, x DOUBLE NOT NULL);
        CREATE VIEW sums AS SELECT k, SUM(x) AS s, AVG(x) AS a, SUM(x) / 2 AS h FROM r GROUP BY k;
        CREATE VIEW ends AS SELECT MAX(s) AS high, MIN(s) AS low, SUM(s) AS total, COUNT(s) AS n FROM sums;
        CREATE VIEW large AS SELECT k, SUM(x) AS s FROM r GROUP BY k HAVING SUM(x) > 5;
        CREATE VIEW below AS SELECT COUNT(*) AS n FROM r WHERE x < (SELECT SUM(x) FROM r WHERE k = 1);
        CREATE VIEW best AS SELECT k, SUM(x) AS s FROM r GROUP BY k ORDER BY s DESC, k LIMIT 2;
    """
    steps = [
        (1, [(1, 1.7e308), (2, -1.7e308), (4, 2.5)]),
        (1, [(1, 1.7e308)]),
        (1, [(2, -1.7e308), (3, 4.0)]),
        (-1, [(2, -1.7e308), (1, 1.7e308)]),
        (-1, [(2, -1.7e308), (1, 1.7e308)]),
    ]
    there: list[tuple[int, float]] = []
    with cumulus.Warehouse(sql, engine=engine) as wh, duckdb.connect() as db:
        db.execute(sql)
        for sign, rows in steps:
            (wh.insert if sign > 0 else wh.delete)("r", rows)
            for row in rows:
                there.append(row) if sign > 0 else there.remove(row)
            db.execute("DELETE FROM r")
            db.executemany("INSERT INTO r VALUES (?, ?)", there)
            for view in ("sums", "ends", "large", "below", "best"):
                found, wanted = wh.view(view).rows(), db.execute(f"FROM {view}").fetchall()
                assert sorted(map(repr, found)) == sorted(map(repr, wanted)), (view, there)
                assert repr(wh.view(view).arrow().to_pylist()) == repr(
                    [dict(zip(wh.view(view).arrow().column_names, row, strict=True)) for row in found]
                )
        assert wh.errors().count == 0


BESIDE = """
    CREATE TABLE r (k INTEGER NOT NULL, x DOUBLE, h HUGEINT);
    CREATE VIEW v AS SELECT k, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY k;
    CREATE VIEW w AS SELECT h + h AS hh, COUNT(*) AS n FROM r GROUP BY h + h;
"""


@pytest.mark.parametrize("engine", [Interpreter, NativeEngine])
@settings(max_examples=examples(120))
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 1), FLOATS, st.sampled_from([1, 2**126]), st.integers(1, 3)), max_size=4),
        max_size=4,
    )
)
def test_batches_leave_what_their_rows_do(engine: Any, batches: list[list[tuple[int, float, int, int]]]) -> None:
    """Equal rows together are beyond DOUBLE before they are added; and another view fails for some of them."""
    program = cumulus.compile(BESIDE)
    at_once, singly = engine(program), Interpreter(program)
    there: dict[int, list[float]] = {0: [], 1: []}
    for batch in batches:
        rows: dict[Any, int] = {}
        for k, x, h, count in batch:
            rows[k, x, h] = rows.get((k, x, h), 0) + count
            there[k] += [x] * count
        for each in (at_once, singly):
            each.begin()
        at_once.on_batch("r", rows)
        for row, count in rows.items():
            for _ in range(count):
                singly.on_event(1, "r", row)
        for each in (at_once, singly):
            each.commit()
        told, expected = ([(error.view, error.row) for error in each.take_errors()] for each in (at_once, singly))
        assert sorted(told) == sorted(expected)
        for key, values in at_once.items("v"):
            named = dict(zip((column.name for column in program.map("v").values), values, strict=True))
            assert agrees(named["s"], there[key[0]]), key
            assert named["n"] == len(there[key[0]])
