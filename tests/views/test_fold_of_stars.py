"""Folding a view over tables whose keys are trusted or checked: what the program knows of them changes no fold."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import cumulus
from support.oracle import Oracle, same_bag

CUSTOMERS = "CREATE TABLE customers (ck INT PRIMARY KEY, city VARCHAR, segment VARCHAR);"
ORDERS = "CREATE TABLE orders (ok INT PRIMARY KEY, ck INT NOT NULL, day DATE, price DECIMAL(9,2), weight DOUBLE{});"
MEASURES = """
    COUNT(*) AS n, SUM(price) AS s, AVG(weight) AS mean, COUNT(DISTINCT c.ck) AS customers, MIN(day) AS first,
    COUNT(DISTINCT segment) AS segments, MAX(price) AS dearest, STDDEV(weight) AS spread, AVG(DISTINCT weight) AS apart,
    COUNT(DISTINCT day) FILTER (WHERE price > 3) AS days, BOOL_OR(price > 8) AS dear, SUM(DISTINCT price) AS prices
    FROM orders o JOIN customers c ON o.ck = c.ck"""
KEYS = {"city": "city", "y": "year(day)", "segment": "segment"}


@pytest.mark.parametrize("trust", [" RELY", ""])
def test_keys_change_no_fold(trust: str) -> None:
    reference = f", FOREIGN KEY (ck) REFERENCES customers (ck){trust}"
    view = f"CREATE VIEW v AS SELECT city, year(day) AS y, segment, {MEASURES} GROUP BY city, year(day), segment"
    warehouse = cumulus.Warehouse(CUSTOMERS + ORDERS.format(reference) + view, engine="interpreter")
    oracle = Oracle(CUSTOMERS + ORDERS.format(""))
    draw = random.Random(3)
    customers = [(number, draw.choice("XYZ"), draw.choice(["a", "b", None])) for number in range(12)]
    orders = [
        (n, draw.randrange(12), f"202{draw.randrange(3)}-0{n % 9 + 1}-11", f"{n % 11}.25", draw.choice([None, n * 0.1]))
        for n in range(90)
    ]
    gone = draw.sample(orders, 30)
    warehouse.insert("customers", customers)
    warehouse.insert("orders", orders)
    warehouse.delete("orders", gone)
    for row in customers:
        oracle.apply(+1, "customers", row)
    for row in orders:
        if row not in gone:
            oracle.apply(+1, "orders", row)
    for by in [each for count in range(4) for each in combinations(KEYS, count)]:
        items = "".join(f"{KEYS[name]} AS {name}, " for name in by)
        grouping = f" GROUP BY {', '.join(KEYS[name] for name in by)}" if by else ""
        found = [tuple(row.values()) for row in warehouse.view("v").fold(by).finish().to_pylist()]
        assert same_bag(found, oracle.rows(f"SELECT {items}{MEASURES}{grouping}")), by
