"""What goes through Python one by one is said: by `explain`, by `stats`, and once by a warning."""

from __future__ import annotations

import datetime as dt
import warnings

import pytest

from cumulus import Warehouse
from cumulus.engine import counters
from cumulus.engine.engines import python_functions
from cumulus.errors import EngineWarning

SCRIPT = """
CREATE TABLE r (t TIMESTAMP NOT NULL, s VARCHAR, x DOUBLE);
CREATE VIEW hours AS SELECT date_trunc('hour', t) AS h, COUNT(*) AS n FROM r GROUP BY date_trunc('hour', t);
CREATE VIEW names AS SELECT strftime(t, '%Y') AS y, SUM(CAST(s AS INTEGER)) AS n FROM r GROUP BY strftime(t, '%Y');
"""
ROWS = [(dt.datetime(2000 + number, 1, 1), str(number), 1.5) for number in range(30)]


def test_explain_names_what_is_called_in_python() -> None:
    wh = Warehouse(SCRIPT)
    assert wh.explain("hours").python == ()
    assert wh.explain("names").python == ("CAST(… AS INTEGER)", "strftime")
    assert "calls Python: CAST(… AS INTEGER), strftime" in str(wh.explain("names")).splitlines()
    assert wh.explain("names").as_dict()["python"] == ["CAST(… AS INTEGER)", "strftime"]
    assert python_functions(wh.program) == {"CAST(… AS INTEGER)", "strftime"}
    assert Warehouse(SCRIPT, engine="interpreter").explain("names").python == ()


def test_calls_are_counted() -> None:
    wh = Warehouse(
        "CREATE TABLE r (t TIMESTAMP, h INT); CREATE VIEW v AS SELECT strftime(t, '%Y') AS y, hour(t) FROM r"
    )
    rows = [(row[0], 0) for row in ROWS]
    for _ in range(2):  # the second time Python's values are remembered
        wh.insert("r", rows)
        assert wh.stats().called == len(rows)


def test_one_warning_where_much_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MANY_CALLS", 10)
    wh = Warehouse(SCRIPT)
    with pytest.warns(EngineWarning, match=r"has called CAST.* AS INTEGER\), strftime in Python") as told:
        wh.apply(((+1, "r", row) for row in ROWS * 2), per="call")
    assert len(told) == 1


def test_one_warning_where_much_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MUCH", 10)
    wh = Warehouse(SCRIPT)
    with pytest.warns(EngineWarning, match="30 events went through Python one by one") as told:
        wh.insert("r", [dict(zip("tsx", row, strict=True)) for row in ROWS])
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = Warehouse(SCRIPT, engine="interpreter")
        quiet.apply([(+1, "r", row) for row in ROWS])
