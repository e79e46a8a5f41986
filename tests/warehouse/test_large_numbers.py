"""Sums beyond 128 bits: a warehouse goes on by the interpreter, whichever way the rows come, and loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import cumulus
from cumulus.errors import EngineWarning, EvaluationError, LargeNumberError

SQL = """
    CREATE TABLE r (k INTEGER NOT NULL, x HUGEINT NOT NULL, d DECIMAL(38,38));
    CREATE VIEW sums AS SELECT k, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY k;
    CREATE VIEW fractions AS SELECT k, SUM(d) AS d, MAX(x) AS m FROM r GROUP BY k;
    CREATE VIEW best AS SELECT k, COUNT(*) AS n FROM r GROUP BY k ORDER BY n DESC, k LIMIT 2;
"""
LARGE, NINE = 2**126, Decimal("0.9")
Row: TypeAlias = tuple[int, int, Decimal | None]
ROWS: list[Row] = [(1, LARGE, NINE), (2, 5, Decimal("0.5")), (1, LARGE, NINE), (3, -7, None), (1, LARGE - 1, NINE)]


def by_rows(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    (wh.insert if sign > 0 else wh.delete)("r", rows)


def one_by_one(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    for row in rows:
        (wh.insert if sign > 0 else wh.delete)("r", [row])


def by_arrow(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    columns: list[list[Any]] = list(map(list, zip(*rows, strict=True)))
    types = (pa.int32(), pa.decimal128(38, 0), pa.decimal128(38, 38))
    table = pa.table([pa.array(column, type) for column, type in zip(columns, types, strict=True)], ["k", "x", "d"])
    (wh.insert if sign > 0 else wh.delete)("r", table)


def by_trigger(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    on = wh.trigger("r")
    for row in rows:
        on(sign, *row)


def by_events(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    assert wh.apply([(sign, "r", row) for row in rows]) == len(rows)


def by_generator(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    assert wh.apply((sign, "r", row) for row in rows) == len(rows)


def by_call(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    assert wh.apply([(sign, "r", row) for row in rows], per="call") == len(rows)


def by_transaction(wh: cumulus.Warehouse, sign: int, rows: list[Row]) -> None:
    with wh.transaction():
        one_by_one(wh, sign, rows)


WAYS = [by_rows, one_by_one, by_arrow, by_trigger, by_events, by_generator, by_call, by_transaction]
Way: TypeAlias = Callable[[cumulus.Warehouse, int, list[Row]], None]


@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_without_bounds_however_rows_come(way: Way, tmp_path: Path) -> None:
    told: list[cumulus.Change] = []
    with cumulus.Warehouse(SQL, keep="all") as wh:
        on = wh.trigger("r")
        wh.subscribe("best", told.extend)
        by_rows(wh, 1, [(4, 1, None)])
        with pytest.warns(EngineWarning, match="goes on by the interpreter"):
            way(wh, 1, ROWS)
        for view in ("sums", "fractions"):
            with pytest.raises(EvaluationError, match=r"at \(1,\)"):
                wh.view(view).rows()
        assert sorted(wh.view("sums").rows(skip_errors=True)) == [(2, 5, 1), (3, -7, 1), (4, 1, 1)]
        assert wh.view("sums").arrow(skip_errors=True).num_rows == 3
        assert wh.view("fractions").get(2) == (2, Decimal("0.5"), 5)
        assert wh.view("best").rows() == [(1, 3), (2, 1)]
        on(+1, 5, 6, None)
        on(-1, 5, 6, None)
        wh.execute("CREATE VIEW late AS SELECT COUNT(*) AS n FROM r WHERE x > 5")
        assert wh.errors().count == 0
        way(wh, -1, [ROWS[0], ROWS[2]])
        assert sorted(wh.view("sums").rows()) == [(1, LARGE - 1, 1), (2, 5, 1), (3, -7, 1), (4, 1, 1)]
        assert wh.view("fractions").get(1) == (1, NINE, LARGE - 1)
        assert wh.stats().engine == "interpreter"
    there: Counter[Any] = Counter()
    for change in told:
        there.update([] if change.new is None else [change.new])
        there.subtract([] if change.old is None else [change.old])
    assert +there == Counter([(1, 1), (2, 1)])


def test_native_alone_refuses_the_transaction() -> None:
    with cumulus.Warehouse(SQL, engine="native") as wh:
        by_rows(wh, 1, ROWS[:2])
        with pytest.raises(LargeNumberError, match="engine='interpreter'"):
            by_rows(wh, 1, ROWS[2:])
        assert sorted(wh.view("sums").rows()) == [(1, LARGE, 1), (2, 5, 1)]


@pytest.mark.parametrize("form", ["auto", "portable"])
def test_what_was_saved_beyond_128_bits_is_loaded(form: str, tmp_path: Path) -> None:
    with cumulus.Warehouse(SQL) as wh:
        with pytest.warns(EngineWarning):
            by_rows(wh, 1, ROWS)
        wh.save(tmp_path / "saved", format=form)
    with pytest.warns(EngineWarning, match="goes on by the interpreter"):
        again = cumulus.Warehouse.load(tmp_path / "saved")
    with again:
        by_rows(again, -1, [ROWS[0], ROWS[2]])
        assert again.view("sums").get(1) == (1, LARGE - 1, 1)
