"""Better code takes over between two events, with the maps as they are."""

from __future__ import annotations

import sys
import tempfile
import time

import pytest

from cumulus import Warehouse
from cumulus.engine.native import tiering

SQL = """
CREATE TABLE r (a BIGINT NOT NULL, s VARCHAR, x DOUBLE, d DECIMAL(9, 2));
CREATE VIEW v AS SELECT s, COUNT(*) AS n, SUM(d) AS d, MAX(a) AS a FROM r GROUP BY s
"""


def test_better_code_goes_on_where_the_first_was(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_CACHE", str(tmp_path))
    monkeypatch.setattr(tiering, "WARM", 10)
    wh = Warehouse(SQL, engine="native")
    on = wh.trigger("r")
    image = wh._state.session.engine.code.image
    rows = 0
    ends = time.monotonic() + 60
    while len(image._codes) == 1 and time.monotonic() < ends:
        on(1, rows, f"s{rows % 7}", 0.5, None)
        rows += 1
        if not rows % 50:
            wh.insert("r", [(rows, "more", None, None)])
            rows += 1
            time.sleep(0.01)
    assert len(image._codes) == 2, "no better code came"
    on(1, rows, "s0", 0.5, None)
    wh.delete("r", [(1, "s1", 0.5, None)])
    assert sum(row[1] for row in wh.view("v").rows()) == rows == wh.stats().rows["r"]
    assert all(store.view.problems() == [] for store in image.maps.values())
    # The next warehouse has it from the start.
    again = Warehouse(SQL, engine="native")._state.session.engine
    assert again.code.image.code is image.code


@pytest.mark.parametrize(("module", "name"), [(sys, "executable"), (tempfile, "tempdir")])
def test_code_stays_as_it_is_where_no_child_can_start(module, name, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tiering, "WARM", 10)
    wh = Warehouse(SQL, engine="native")
    on = wh.trigger("r")
    monkeypatch.setattr(module, name, str(tmp_path / "nowhere"))
    rows = [(each, "s", 0.5, None) for each in range(20)]
    for _ in range(3):
        wh.insert("r", rows)
        on(1, 1, "s", 0.5, None)
        assert wh.view("v").get("s")[1] == wh.stats().rows["r"] == wh.stats().events
    assert wh.stats().events == 63
