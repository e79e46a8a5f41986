"""How many of our functions one request goes through: a short walk stays short."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cumulus

HOME = str(Path(cumulus.__file__).parent)
SCRIPT = """
CREATE TABLE orders (id INT, country VARCHAR, amount DECIMAL(10, 2));
CREATE VIEW revenue AS SELECT country, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY country;
"""


def walked(request: Callable[[], Any]) -> tuple[int, set[str]]:
    """Return how many calls of our functions a request makes in all threads, and in which files they are.

    It is done twice before: what is made once is not counted.
    """
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(HOME):
            calls.append(file)

    request()
    request()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        request()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know that None ends it
    return len(calls), set(calls)


def filled() -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(SCRIPT)
    warehouse.insert("orders", [(1, "France", 10), (2, "Spain", 20)])
    return warehouse


def test_a_row_takes_two_calls() -> None:
    warehouse = filled()
    calls, _ = walked(lambda: warehouse.insert("orders", [(3, "France", 5)]))
    assert calls <= 2


def test_a_look_up_takes_few_calls() -> None:
    warehouse = filled()
    calls, files = walked(lambda: warehouse.view("revenue").get("France"))
    assert calls <= 30
    assert len(files) <= 12, sorted(files)


def test_a_few_rows_take_few_calls() -> None:
    warehouse = filled()
    calls, files = walked(lambda: warehouse.view("revenue").rows())
    assert calls <= 80
    assert len(files) <= 20, sorted(files)


def test_a_fold_of_one_key_takes_few_calls() -> None:
    warehouse = filled()
    view = warehouse.view("revenue")
    calls, _ = walked(lambda: view.fold(["country"], {"country": "France"}, ["total"]))
    assert calls <= 80
