"""`cumulus stats` as a user calls it."""

from __future__ import annotations

import json

import pytest

from cumulus import Warehouse
from support.command_line import cumulus
from support.tiers import sampled

SQL = """
CREATE TABLE r (a BIGINT, b BIGINT, x BIGINT);
CREATE TABLE s (a BIGINT);
CREATE VIEW v AS SELECT b, SUM(x // (x - 9)) AS s FROM r JOIN s ON r.a = s.a GROUP BY b;
"""


@pytest.mark.parametrize("engine", sampled(["native", "interpreter"], of=2))
def test_a_saved_warehouse_says_what_it_holds(tmp_path, engine) -> None:
    wh = Warehouse(SQL)
    wh.insert("r", [(number % 4, number, 1) for number in range(1000)])
    wh.insert("s", [(1,)])
    wh.insert("r", [(1, 1, 9)])
    wh.delete("r", [(1, 5000, 2)])
    wh.save(tmp_path / "w")
    told = cumulus("stats", str(tmp_path / "w"), "--engine", engine, "--json")
    assert (told.returncode, told.stderr) == (0, "")
    found = json.loads(told.stdout)
    assert (found["engine"], found["events"], found["rows"]) == (engine, 1003, {"r": 1000, "s": 1})
    assert found["errors"] == {"v": 1}
    assert {name: each["rows"] for name, each in found["maps"].items()}
    assert max(each["chain"] for each in found["maps"].values()) >= 250
    shown = cumulus("stats", str(tmp_path / "w"), "--engine", engine).stdout
    assert "1,003 events; rows: r 1,000, s 1" in shown
    assert "that it may take" in shown
    assert "view v lacks what 1 events should have added" in shown


def test_what_is_no_saved_warehouse_is_an_error(tmp_path) -> None:
    told = cumulus("stats", str(tmp_path))
    assert (told.returncode, told.stdout) == (1, "")
    assert "holds no whole warehouse" in told.stderr
