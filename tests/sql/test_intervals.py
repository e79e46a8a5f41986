"""INTERVAL literals mean what they mean in DuckDB, with their units inside the string or behind it."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest

from cumulus import Warehouse, compile
from cumulus.errors import BindError

WRITTEN = (
    *("'1 day 01:00:00'", "'01:30'", "'-2 months 5 days 00:00:00.000001'", "'1 month 1 day ago'", "'3'", "'-1.5 days'"),
    *("'1.5' HOUR", "1.5 HOUR", "1.5 SECOND", "1.5 MILLISECOND", "1.7 MONTH", "'-1.7' DAY", "1.9 WEEKS", "7 DAYS"),
    *("'1 year 2 months'", "' 2 ' DAY", "1 CENTURY", "'90 minutes'", "(2) HOURS"),
)


def test_literals_are_duckdbs() -> None:
    told = ", ".join(f"((a - a) + INTERVAL {text})::VARCHAR AS c{at}" for at, text in enumerate(WRITTEN))
    wh = Warehouse(f"CREATE TABLE t (a TIMESTAMP); CREATE VIEW v AS SELECT {told} FROM t")
    wh.insert("t", [(dt.datetime(2020, 1, 1),)])
    theirs = duckdb.sql("SELECT " + ", ".join(f"(INTERVAL {text})::VARCHAR" for text in WRITTEN)).fetchall()
    assert dict(zip(WRITTEN, wh.view("v").rows()[0], strict=True)) == dict(zip(WRITTEN, theirs[0], strict=True))


@pytest.mark.parametrize("text", ["'x' DAY", "'1 fortnight'", "'1:99'", "1 EPOCH"])
def test_what_is_no_interval_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(BindError, match=r"INTERVAL .* is not understood") as caught:
        compile(f"CREATE TABLE t (a TIMESTAMP); CREATE VIEW v AS SELECT a + INTERVAL {text} AS b FROM t")
    assert caught.value.line == 1
