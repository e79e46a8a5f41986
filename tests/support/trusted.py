"""Tables with trusted keys, views over them, and streams that honour the promises: parents first, deleted last."""

from __future__ import annotations

import random
import re

from support.random_tables import Event

SCHEMA = """
CREATE TABLE region (rid INT PRIMARY KEY RELY, name VARCHAR) WITH (static = true);
CREATE TABLE customer (cid INT PRIMARY KEY RELY, rid INT NOT NULL REFERENCES region (rid) RELY, n INT);
CREATE TABLE orders (oid INT PRIMARY KEY RELY, cid INT REFERENCES customer (cid) RELY, d DECIMAL(9,2), boss INT);
CREATE TABLE item (oid INT NOT NULL, ln INT NOT NULL, price DECIMAL(9,2), other INT REFERENCES customer (cid) RELY,
  PRIMARY KEY (oid, ln) RELY, FOREIGN KEY (oid) REFERENCES orders (oid) RELY);
CREATE TABLE note (oid INT, ln INT, words INT, FOREIGN KEY (oid, ln) REFERENCES item (oid, ln) RELY);
"""

# The same tables for an oracle that need not check any key.
PLAIN = re.sub(
    r" PRIMARY KEY RELY| REFERENCES \w+ \([\w, ]+\) RELY| WITH \(static = true\)"
    r"|,\s+(PRIMARY|FOREIGN) KEY \([\w, ]+\)( RELY)?",
    "",
    SCHEMA,
)

VIEWS = """
CREATE VIEW a AS SELECT n, SUM(d * price) AS s FROM customer c, orders o, item i
  WHERE c.cid = o.cid AND o.oid = i.oid GROUP BY n;
CREATE VIEW b AS SELECT COUNT(*) AS k FROM customer c, orders o WHERE c.cid = o.cid;
CREATE VIEW c AS SELECT o.cid, COUNT(*) AS k, SUM(price) AS s FROM customer c, orders o, item i
  WHERE c.cid = o.cid AND o.oid = i.oid GROUP BY o.cid;
CREATE VIEW d AS SELECT name, SUM(words) AS s, AVG(price) AS m FROM region r, customer c, orders o, item i, note x
  WHERE r.rid = c.rid AND c.cid = o.cid AND o.oid = i.oid AND i.oid = x.oid AND i.ln = x.ln GROUP BY name;
CREATE VIEW e AS SELECT x.words, COUNT(*) AS k FROM item i, note x WHERE x.oid = i.oid AND x.ln = i.ln GROUP BY x.words;
CREATE VIEW f AS SELECT x.words, COUNT(*) AS k FROM orders o, item i, note x
  WHERE x.oid = o.oid AND x.ln = i.ln AND x.oid = i.oid AND o.d > 1 GROUP BY x.words;
CREATE VIEW g AS SELECT c.n, m.n AS other, COUNT(*) AS k FROM customer c, orders o, item i, customer m
  WHERE c.cid = o.cid AND i.oid = o.oid AND i.other = m.cid GROUP BY c.n, m.n;
CREATE VIEW h AS SELECT COUNT(*) AS k, SUM(c.n * m.n) AS s FROM customer c, customer m, orders o
  WHERE o.cid = c.cid AND o.boss = m.cid;
CREATE VIEW i AS SELECT o.oid, COUNT(*) AS k FROM customer c, orders o, item i
  WHERE o.oid = i.oid AND i.other = c.cid AND o.cid = c.cid GROUP BY o.oid
"""

# Child → (its columns, the parent, the parent's key), of every foreign key.
REFERENCES = {
    "customer": [((1,), "region", (0,))],
    "orders": [((1,), "customer", (0,))],
    "item": [((0,), "orders", (0,)), ((3,), "customer", (0,))],
    "note": [((0, 1), "item", (0, 1))],
}
KEYS = {"region": (0,), "customer": (0,), "orders": (0,), "item": (0, 1), "note": ()}


class Promises:
    """A model of the tables that only makes events which keep the promises."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in KEYS}

    def loaded(self) -> list[Event]:
        """The static table, which comes first."""
        return [self._add("region", (rid, name)) for rid, name in ((1, "x"), (2, "y"), (3, None))]

    def event(self) -> Event:
        """One event: a row whose parents are there, or the end of a row without children."""
        while True:
            table = self.draw.choice(("customer", "orders", "item", "item", "note"))
            if self.draw.random() < 0.35:
                free = [row for row in self.rows[table] if not self._has_children(table, row)]
                if free:
                    row = self.draw.choice(free)
                    self.rows[table].remove(row)
                    return -1, table, row
                continue
            row = self._row(table)
            key = tuple(row[place] for place in KEYS[table])
            taken = {tuple(each[place] for place in KEYS[table]) for each in self.rows[table]}
            if (not KEYS[table] or key not in taken) and self._has_parents(table, row):
                return self._add(table, row)

    def _add(self, table: str, row: tuple[object, ...]) -> Event:
        self.rows[table].append(row)
        return 1, table, row

    def _row(self, table: str) -> tuple[object, ...]:
        small = self.draw.choice((None, 1, 2, 3))
        some = self.draw.randrange(1, 5)
        match table:
            case "customer":
                return some, self.draw.randrange(1, 4), small
            case "orders":
                return self.draw.randrange(1, 7), small, self.draw.choice((None, 1, 2)), self.draw.choice((None, 1, 2))
            case "item":
                return self.draw.randrange(1, 7), some, self.draw.choice((None, 1, 3)), small
            case _:
                return self.draw.choice((None, 1, 2, 3)), self.draw.choice((None, 1, 2)), small

    def _has_parents(self, table: str, row: tuple[object, ...]) -> bool:
        for columns, parent, key in REFERENCES.get(table, []):
            wanted = tuple(row[place] for place in columns)
            if None not in wanted and all(tuple(each[p] for p in key) != wanted for each in self.rows[parent]):
                return False
        return True

    def _has_children(self, table: str, row: tuple[object, ...]) -> bool:
        return any(
            tuple(child[place] for place in columns) == tuple(row[place] for place in key)
            for name, references in REFERENCES.items()
            for columns, parent, key in references
            if parent == table
            for child in self.rows[name]
        )
