"""Programs of every kind that a cluster treats in its own way, and random files of their tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cumulus.catalog.schema import Relation
from cumulus.compiler import compile_sql
from cumulus.m3.program import Program
from cumulus.simulation import ChoiceStream

PROGRAMS = {
    "joins": """
        CREATE TABLE customers (cid INTEGER, nation VARCHAR);
        CREATE TABLE orders (cid INTEGER, oid INTEGER, rate INTEGER);
        CREATE TABLE items (oid INTEGER, price INTEGER);
        CREATE VIEW v AS SELECT nation, SUM(rate * price) AS q, COUNT(*) AS n FROM customers, orders, items
        WHERE customers.cid = orders.cid AND orders.oid = items.oid GROUP BY nation;""",
    "self-join": """
        CREATE TABLE r (a INTEGER, b VARCHAR, x INTEGER);
        CREATE VIEW v AS SELECT r.b, SUM(r.x * s.x) AS q FROM r, r s WHERE r.a = s.a GROUP BY r.b;""",
    "one table three times": """
        CREATE TABLE r (a INTEGER, b INTEGER, x DECIMAL(6,2));
        CREATE VIEW v AS SELECT r.b, COUNT(*) AS n, SUM(t.x) AS q FROM r, r s, r t
        WHERE r.a = s.b AND s.a = t.b GROUP BY r.b;""",
    "rows of tables": """
        CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, c INTEGER);
        CREATE TABLE t (c INTEGER, x INTEGER);
        CREATE VIEW v WITH (order = 1) AS SELECT r.a, SUM(t.x) AS q, COUNT(*) AS n
        FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND r.a < t.x GROUP BY r.a;""",
    "NULL, texts, doubles": """
        CREATE TABLE r (a VARCHAR, d DOUBLE, day DATE); CREATE TABLE s (a VARCHAR, b VARCHAR, x DECIMAL(8,2));
        CREATE VIEW v AS SELECT s.b, day, SUM(d) AS d, AVG(d * x) AS q, COUNT(x) AS n
        FROM r, s WHERE r.a = s.a GROUP BY s.b, day;""",
    "ends": """
        CREATE TABLE s (a VARCHAR, b VARCHAR, x DECIMAL(8,2));
        CREATE VIEW w AS SELECT a, MIN(x) AS lo, MAX(x) AS hi FROM s WHERE b LIKE 't1%' GROUP BY a;""",
    "EXISTS": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.x, COUNT(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y > 2)
        GROUP BY r.x;
        CREATE VIEW w AS SELECT r.a, SUM(r.x * s.y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;""",
    "DISTINCT and outer join": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT a, COUNT(DISTINCT x) AS n FROM r GROUP BY a;
        CREATE VIEW w AS SELECT r.x, SUM(s.y) AS q, COUNT(*) AS n FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.x;""",
    "nested": """
        CREATE TABLE r (a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE x > (SELECT AVG(x) FROM r);""",
    "keys": """
        CREATE TABLE p (a INTEGER PRIMARY KEY, b VARCHAR);
        CREATE TABLE c (id INTEGER PRIMARY KEY, a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT b, SUM(x) AS q, COUNT(*) AS n FROM p, c WHERE p.a = c.a GROUP BY b;""",
    "references": """
        CREATE TABLE p (a INTEGER PRIMARY KEY, b VARCHAR);
        CREATE TABLE c (id INTEGER PRIMARY KEY, a INTEGER REFERENCES p(a), x INTEGER);
        CREATE VIEW v AS SELECT b, SUM(x) AS q, COUNT(*) AS n FROM p, c WHERE p.a = c.a GROUP BY b;""",
    "errors": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(10 // y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;
        CREATE VIEW w AS SELECT r.a, SUM(x) AS q FROM r GROUP BY r.a;""",
}
"""Name → SQL; each has something of its own: what is spread and what is gated, versions, keys, errors."""

DELETED = 0.25
"""The share of rows that go again."""


@cache
def program_named(name: str) -> Program:
    """Return a program as a cluster runs it."""
    return compile_sql(PROGRAMS[name], rely=False, enforced=False)


def write_random_files(program: Program, stream: ChoiceStream, folder: Path, most_epochs: int, most_rows: int) -> None:
    """Write files of rows that come and go, one per table and epoch, for as many epochs as chance says."""
    epochs = 1 + stream.below(most_epochs)
    for relation in program.relations:
        (folder / relation.name).mkdir(parents=True)
    here: dict[str, list[dict[str, object]]] = {relation.name: [] for relation in program.relations}
    for epoch in range(1, epochs + 1):
        for relation in program.relations:
            lines = _random_rows(relation, stream, here[relation.name], stream.below(most_rows + 1))
            if lines or epoch == 1:
                text = "".join(json.dumps(line) + "\n" for line in lines)
                (folder / relation.name / f"{epoch:04}.jsonl").write_text(text)


def _random_rows(
    relation: Relation, stream: ChoiceStream, here: list[dict[str, object]], count: int
) -> Sequence[dict[str, object]]:
    lines = []
    for _ in range(count):
        if here and stream.chance(DELETED):
            lines.append({"op": "delete", **here.pop(stream.below(len(here)))})
            continue
        row = {
            column.name: _random_value(str(column.type), stream, may_be_null=column.name not in relation.key)
            for column in relation.columns
        }
        here.append(row)
        lines.append({"op": "insert", **row})
    return lines


def _random_value(kind: str, stream: ChoiceStream, *, may_be_null: bool) -> object:
    number = stream.below(6)
    if may_be_null and stream.chance(1 / 16):
        return None
    if kind.startswith("VARCHAR"):
        return f"t{number}"
    if kind.startswith("DATE"):
        return f"2024-01-0{number + 1}"
    if kind.startswith(("DOUBLE", "DECIMAL")):
        return number / 4
    return number
