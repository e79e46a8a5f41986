"""How many Python functions an ordinary insertion calls: the common path is one that somebody has designed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from types import FrameType
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.garbage_collection import gc_paused

MOST = 40
PLAIN = "CREATE TABLE t (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM t GROUP BY a"
KEYED = PLAIN.replace("a INT,", "a INT PRIMARY KEY,")
PRICES = "CREATE TABLE t (a INT, x DECIMAL(10,2)); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM t GROUP BY a"


def calls(act: Callable[[], object]) -> list[str]:
    """Return the Python functions that are called, one after another."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")

    with gc_paused():  # what is collected calls functions of its own
        sys.setprofile(note)
        try:
            act()
        finally:
            sys.setprofile(None)
    return found[1:]


def inserted(wh: Warehouse, *rows: tuple[object, ...]) -> list[int]:
    """Insert rows, each by a call; return how many functions each has called."""
    return [len(calls(lambda row=row: wh.insert("t", [row]))) for row in rows]


@pytest.mark.parametrize(("script", "value"), [(PLAIN, 7), (KEYED, 7), (PRICES, Decimal("7.50")), (PRICES, 7)])
def test_an_insertion(script: str, value: object) -> None:
    wh = Warehouse(script, engine="native")
    wh.insert("t", [(-1, value)])
    counts = inserted(wh, *((number, value) for number in range(600)))
    assert max(counts) <= MOST, "also where better code is looked for"
    assert sorted(counts)[-10] <= 5
    wh.view("v").rows()
    wh.delete("t", [(-1, value)])
    wh.apply([(+1, "t", (601, value))])
    assert inserted(wh, (602, value))[0] <= MOST, "the first one after others"
    assert wh.stats().events == 604


@pytest.mark.parametrize("script", [PLAIN, KEYED])
def test_an_insertion_with_a_subscriber(script: str) -> None:
    wh = Warehouse(script, engine="native")
    told: list[Any] = []
    wh.subscribe("v", told.append)
    wh.insert("t", [(-1, 1)])
    assert max(inserted(wh, *((number, 1) for number in range(300)))) <= MOST
    wh.insert("t", [(number, 1) for number in range(300, 400)])
    wh.view("v").rows()
    assert inserted(wh, (500, 1))[0] <= MOST, "the first one after others"
    assert len(told) == 303
    assert told[-1] == [(None, (500, 1))]
