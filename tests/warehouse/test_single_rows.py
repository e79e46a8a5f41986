"""One row in a list, as most programs insert them: a builtin takes it, and all else is as for many rows."""

from __future__ import annotations

import sys
from collections import namedtuple
from decimal import Decimal
from typing import Any

import pytest

import cumulus
from cumulus import Warehouse

SQL = """
CREATE TABLE regions (name VARCHAR PRIMARY KEY) WITH (static = true);
CREATE TABLE customers (id BIGINT PRIMARY KEY, region VARCHAR) WITH (keep = all);
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer BIGINT NOT NULL REFERENCES customers (id), amount DECIMAL(12, 4) NOT NULL
) WITH (keep = all);
CREATE VIEW revenue AS
SELECT c.region, SUM(o.amount) AS amount, COUNT(*) AS n
FROM orders o JOIN customers c ON o.customer = c.id JOIN regions r ON c.region = r.name GROUP BY c.region;
"""
Order = namedtuple("Order", "id customer amount")


def _calls(do: Any) -> int:
    """Return how many functions of Python are called."""
    count = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture
def wh() -> Warehouse:
    found = Warehouse(SQL)
    found.insert("regions", [("north",)])
    found.insert("customers", [(1, "north")])
    return found


def test_rows_of_all_kinds_pass_python_by(wh) -> None:
    wh.insert("orders", [(4, 1, 1)])  # which makes the builtin
    wh.delete("orders", [(4, 1, 1)])
    for number, row in enumerate(
        [(0, 1, Decimal("99.5")), [1, 1, 3], Order(2, 1, Decimal("0.5000")), {"amount": 7, "id": 3, "customer": 1}]
    ):
        assert _calls(lambda: wh.insert("orders", [row])) <= 12, row  # noqa: B023
        assert wh.view("revenue").get("north")[2] == number + 1
    assert wh.view("revenue").get("north") == ("north", Decimal("110.0000"), 4)
    assert _calls(lambda: wh.delete("orders", [(3, 1, Decimal(7))])) <= 12
    stats = wh.stats()
    assert (stats.events, stats.rows["orders"]) == (9, 3)
    assert stats.stepped == 0


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_what_is_refused_is_told_as_before(engine) -> None:
    wh = Warehouse(SQL, engine=engine)
    wh.insert("customers", [{"id": 1}])
    wh.insert("orders", [(1, 1, 1)])
    for wrong, error in [
        ((1, 1, 1), cumulus.errors.DuplicateKeyError),
        ((2, 9, 1), cumulus.errors.OrphanError),
        ((2, 1, None), cumulus.errors.NullError),
        ((2, 1), cumulus.errors.ArityError),
        ({"id": 2, "customer": 1, "price": 1}, cumulus.errors.ArityError),
        ("abc", cumulus.errors.ArityError),
        ((2, 1, Decimal("0.00001")), cumulus.errors.ValueTypeError),
    ]:
        with pytest.raises(error):
            wh.insert("orders", [wrong])
    with pytest.raises(cumulus.errors.UnknownNameError):
        wh.insert("oders", [(2, 1, 1)])
    with pytest.raises(cumulus.errors.StaticTableError):
        wh.insert("regions", [("south",)])
    assert wh.stats().rows["orders"] == 1


def _insert_twice(wh: Warehouse, row: Any) -> None:
    with wh.transaction():
        wh.insert("orders", [row])
        wh.insert("orders", [row])


def test_in_a_transaction_and_with_subscribers(wh) -> None:
    with pytest.raises(cumulus.errors.DuplicateKeyError):
        _insert_twice(wh, (1, 1, 1))
    with wh.transaction():
        wh.insert("orders", [(1, 1, 1)])
        assert wh.view("revenue").rows() == []
    told: list[Any] = []
    subscription = wh.subscribe("revenue", told.append)
    wh.insert("orders", [(2, 1, 1)])
    assert [change.new for (change,) in told] == [("north", Decimal("2.0000"), 2)]
    subscription.cancel()
    assert wh.stats().rows["orders"] == 2


@pytest.mark.parametrize("sign", [1, -1])
def test_some_go_the_long_way_where_better_code_is_looked_for(wh, sign, monkeypatch) -> None:
    rows = [(number, 1, 1) for number in range(600)]
    wh.insert("orders", [(1000, 1, 1)])
    if sign < 0:
        wh.insert("orders", rows)
    events = []
    session = wh._state.session
    fire = session.fire
    monkeypatch.setattr(session, "fire", lambda *event: (events.append(event), fire(*event))[1])
    for row in rows:
        (wh.insert if sign > 0 else wh.delete)("orders", [row])
    assert 2 <= len(events) <= 3


def test_after_a_view_was_created(wh) -> None:
    wh.insert("orders", [(1, 1, 1)])
    wh.execute("CREATE VIEW n AS SELECT COUNT(*) AS n FROM orders")
    wh.insert("orders", [(2, 1, 1)])
    wh.execute("DROP VIEW revenue")
    wh.insert("orders", [(3, 1, 1)])
    assert wh.view("n").get() == (3,)


def test_an_error_of_a_view(wh) -> None:
    wh.execute("CREATE VIEW q AS SELECT SUM(id // (customer - 1)) AS s FROM orders")
    wh.insert("orders", [(1, 1, 1)])
    assert wh.errors("q").count == 1
    assert wh.stats().rows["orders"] == 1
