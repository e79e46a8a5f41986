"""Cubes over `OrdersStream`: which maps are in one bucket, in all, or in parts differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cumulus

TABLES = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT REFERENCES customers, discount DECIMAL(4,2));
CREATE TABLE lineitem (oid INT REFERENCES orders, price DECIMAL(15,2));
"""
MEASURES = """COUNT(*) AS n, SUM(price) AS s, AVG(price::DOUBLE * 1.1) AS mean, STDDEV(price::DOUBLE) AS spread"""
COUNTED = "COUNT(*) AS n, COUNT(DISTINCT price) AS prices, MAX(price) AS high"
PEOPLE = "COUNT(*) AS n, COUNT(DISTINCT cid % 7) AS sorts"
JOINED = "FROM customers JOIN orders USING (cid) JOIN lineitem USING (oid)"
KEYS = {"nation": "nation", "third": "oid % 3", "oid": "oid"}
CUBES = {
    "sales": (MEASURES, JOINED, ("nation", "third")),  # no bucket has a group of its own
    "items": (COUNTED, "FROM lineitem", ("oid", "third")),  # each group is in one bucket
    "people": (PEOPLE, "FROM customers", ("nation",)),  # each is in all buckets
    "prices": ("COUNT(*) AS n, MIN(price) AS low, MAX(price) AS high", "FROM lineitem", ("oid", "third")),
}
LEVELS = {"sales": [("nation",), ()], "prices": [("third",)]}
"""Kept beside the finest; that of `prices` has its ends in all buckets."""


def said(view: str, by: tuple[str, ...], where: str = "") -> str:
    """Return what a cube says by some of its columns, as a query over the tables."""
    measures, tables, _ = CUBES[view]
    shown = "".join(f"{KEYS[key]} AS {key}, " for key in by)
    grouping = f" GROUP BY {', '.join(KEYS[key] for key in by)}" if by else ""
    return f"SELECT {shown}{measures} {tables} {where}{grouping}"


def _cube(name: str) -> str:
    *_, keys = CUBES[name]
    kept = ", ".join(f"({', '.join(level)})" for level in LEVELS.get(name, ()))
    dimensions = " ".join(f"DIMENSION {key}" for key in keys)
    return f"CREATE CUBE {name} {dimensions} {f'KEEP {kept}' if kept else ''} AS {said(name, keys)};\n"


SCRIPT = TABLES + "".join(map(_cube, CUBES))
SCRIPT += f"CREATE VIEW revenue AS SELECT nation, SUM(price) AS s {JOINED} GROUP BY nation;\n"
SELECTIONS: list[tuple[str, tuple[str, ...], str, Mapping[str, Any]]] = [
    ("sales", ("nation",), "", {}),
    ("sales", ("nation", "third"), "", {}),
    ("sales", (), "WHERE nation IN (1, 3) OR nation IS NULL", {"nation": [1, None, 3]}),
    ("sales", ("third",), "WHERE nation BETWEEN 2 AND 3", {"nation": cumulus.between(2, 3)}),
    ("items", ("third",), "", {}),
    ("items", ("oid",), "WHERE oid >= 20 AND oid % 3 = 2", {"oid": cumulus.between(20), "third": 2}),
    ("people", (), "", {}),
    ("prices", ("third",), "WHERE oid % 3 > 0", {"third": [1, 2]}),
    ("prices", (), "", {}),
    ("sales", (), "", {}),
    ("people", ("nation",), "WHERE nation <= 3", {"nation": cumulus.between(None, 3)}),
]
"""Cube, grouping columns, WHERE of the query, and the same for `fold`."""
QUERIES = {f"{at}": said(view, by, where) for at, (view, by, where, _) in enumerate(SELECTIONS)}
