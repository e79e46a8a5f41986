"""Random customers, orders and line items as files per epoch, with a plain model of what the tables must then hold."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

# Cumulus consistency paper, example 2.1, for net changes, with the rows of both keyed tables kept.
PROGRAM = """
RELATION customers(cid INT NOT NULL, nation INT) KEY (cid) KEPT kc;
RELATION orders(oid INT NOT NULL, cid INT, discount DECIMAL(4,2)) KEY (oid)
  FOREIGN KEY (cid) REFERENCES customers (cid) KEPT ko;
RELATION lineitem(oid INT NOT NULL, price DECIMAL(15,2)) FOREIGN KEY (oid) REFERENCES orders (oid);
MAP kc[cid INT, nation INT](n BIGINT) COUNT n = customers(cid, nation);
MAP ko[oid INT, cid INT, discount DECIMAL(4,2)](n BIGINT) COUNT n = orders(oid, cid, discount);
MAP q[nation INT](s DECIMAL(38,4), n BIGINT) COUNT n =
  SUM[nation](customers(cid, nation) * orders(oid, cid, discount) * lineitem(oid, price) * discount * price),
  SUM[nation](customers(cid, nation) * orders(oid, cid, discount) * lineitem(oid, price));
MAP co[oid INT, nation INT](d DECIMAL(38,2), n BIGINT) COUNT n =
  SUM[oid, nation](customers(cid, nation) * orders(oid, cid, discount) * discount),
  SUM[oid, nation](customers(cid, nation) * orders(oid, cid, discount));
MAP l[oid INT](p DECIMAL(38,2), n BIGINT) COUNT n =
  SUM[oid](lineitem(oid, price) * price), SUM[oid](lineitem(oid, price));
MAP ol[cid INT](s DECIMAL(38,4), n BIGINT) COUNT n =
  SUM[cid](orders(oid, cid, discount) * lineitem(oid, price) * discount * price),
  SUM[cid](orders(oid, cid, discount) * lineitem(oid, price));
VIEW revenue(nation INT, revenue DECIMAL(38,4), items BIGINT) FROM q SELECT nation, s, n;
ON BATCH customers {
  kc[cid, nation].n += customers(cid, nation);
  q[nation].s += SUM[nation](customers(cid, nation) * ol[cid].s);
  q[nation].n += SUM[nation](customers(cid, nation) * ol[cid].n);
  co[oid, nation].d += SUM[oid, nation](customers(cid, nation) * ko[oid, cid, discount].n * discount);
  co[oid, nation].n += SUM[oid, nation](customers(cid, nation) * ko[oid, cid, discount].n);
}
ON BATCH orders {
  ko[oid, cid, discount].n += orders(oid, cid, discount);
  q[nation].s += SUM[nation](orders(oid, cid, discount) * kc[cid, nation].n * l[oid].p * discount);
  q[nation].n += SUM[nation](orders(oid, cid, discount) * kc[cid, nation].n * l[oid].n);
  co[oid, nation].d += SUM[oid, nation](orders(oid, cid, discount) * kc[cid, nation].n * discount);
  co[oid, nation].n += SUM[oid, nation](orders(oid, cid, discount) * kc[cid, nation].n);
  ol[cid].s += SUM[cid](orders(oid, cid, discount) * l[oid].p * discount);
  ol[cid].n += SUM[cid](orders(oid, cid, discount) * l[oid].n);
}
ON BATCH lineitem {
  l[oid].p += SUM[oid](lineitem(oid, price) * price);
  l[oid].n += SUM[oid](lineitem(oid, price));
  q[nation].s += SUM[nation](lineitem(oid, price) * co[oid, nation].d * price);
  q[nation].n += SUM[nation](lineitem(oid, price) * co[oid, nation].n);
  ol[cid].s += SUM[cid](lineitem(oid, price) * ko[oid, cid, discount].n * discount * price);
  ol[cid].n += SUM[cid](lineitem(oid, price) * ko[oid, cid, discount].n);
}
"""

TABLES = {
    "customers": pa.schema([("cid", pa.int32()), ("nation", pa.int32())]),
    "orders": pa.schema([("oid", pa.int32()), ("cid", pa.int32()), ("discount", pa.decimal128(4, 2))]),
    "lineitem": pa.schema([("oid", pa.int32()), ("price", pa.decimal128(15, 2))]),
}

ORACLE = """
SELECT nation, COALESCE(SUM(discount * price), 0)::DECIMAL(38,4) AS revenue, COUNT(*) AS items
FROM customers JOIN orders USING (cid) JOIN lineitem USING (oid) GROUP BY nation
"""


class OrdersStream:
    """Writes one file per table and epoch below `folder`, and remembers what must be true after each.

    Deletes, updates, NULLs, line items before their order and orders before their customer all occur. `bad` in an
    epoch is the number of rows that must be in the quarantine by then.
    """

    def __init__(self, folder: Path, seed: int, queries: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.queries = dict(queries or {})
        self.answers: dict[int, dict[str, list[tuple[Any, ...]]]] = {}
        self.random = random.Random(seed)
        self.customers: dict[int, tuple[Any, ...]] = {}
        self.orders: dict[int, tuple[Any, ...]] = {}
        self.items: list[tuple[Any, ...]] = []
        self.late: list[tuple[Any, ...]] = []
        self.epoch = 0
        self.events = 0
        self.bad = 0
        self._seq = 0
        self._next_customer = self._next_order = 0
        self.expected: dict[int, list[tuple[Any, ...]]] = {}
        self.bad_until: dict[int, int] = {}
        self.events_until: dict[int, int] = {}
        for name in TABLES:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def write(self, rows: int = 60) -> None:
        """Write the next epoch's files."""
        self.epoch += 1
        changes: dict[str, list[tuple[Any, ...]]] = {"customers": [], "orders": [], "lineitem": []}
        for row in self.late:
            self._say(changes, "customers", "c", row)
        self.late = []
        for _ in range(rows):
            self._one(changes)
        for name in TABLES:
            self._write(name, changes[name])
        self.expected[self.epoch] = self.oracle()
        self.answers[self.epoch] = {name: self.oracle(sql) for name, sql in self.queries.items()}
        self.bad_until[self.epoch] = self.bad
        self.events_until[self.epoch] = self.events

    def _say(self, changes: dict[str, list[tuple[Any, ...]]], table: str, op: str, row: tuple[Any, ...]) -> None:
        self._seq += 1
        changes[table].append((*row, op, self._seq))

    def _one(self, changes: dict[str, list[tuple[Any, ...]]]) -> None:
        draw = self.random
        kind = draw.choices(
            ("customer", "late", "order", "item", "update", "move", "delete-item", "delete-order", "again", "bad"),
            (6, 1, 14, 50, 4, 4, 8, 4, 3, 2),
        )[0]
        match kind:
            case "customer" | "late":
                row = (self._next_customer, draw.choice((None, 1, 2, 3)))
                self._next_customer += 1
                self.customers[row[0]] = row
                if kind == "late":  # orders may refer to it at once; it comes an epoch later
                    self.late.append(row)
                else:
                    self._say(changes, "customers", "i", row)
            case "order" if self.customers:
                discount = draw.choice((None, Decimal(draw.randrange(1000)).scaleb(-2)))
                row = (self._next_order, draw.choice(list(self.customers)), discount)
                self._next_order += 1
                self.orders[row[0]] = row
                self._say(changes, "orders", "c", row)
            case "item":
                row = (draw.randrange(self._next_order + 3), Decimal(draw.randrange(-500, 10000)).scaleb(-2))
                self.items.append(row)
                self._say(changes, "lineitem", "+", row)
            case "update" if self._present():
                key = draw.choice(self._present())
                self.customers[key] = (key, draw.choice((None, 1, 2, 3, 4)))
                self._say(changes, "customers", "u", self.customers[key])
            case "move" if self.orders and self._present():  # an update that must wait would leave the old row
                key = draw.choice(sorted(self.orders))
                self.orders[key] = (key, draw.choice(self._present()), self.orders[key][2])
                self._say(changes, "orders", "upsert", self.orders[key])
            case "delete-item" if self.items:
                self._say(changes, "lineitem", "-", self.items.pop(draw.randrange(len(self.items))))
            case "delete-order" if self.orders:
                self._say(changes, "orders", "d", self.orders.pop(draw.choice(sorted(self.orders))))
            case "again" if changes["orders"]:  # delivered twice, under its old position
                changes["orders"].append(changes["orders"][draw.randrange(len(changes["orders"]))])
            case "bad":
                self._bad(changes)
            case _:
                pass

    def _present(self) -> list[int]:
        return sorted(set(self.customers) - {row[0] for row in self.late})

    def _bad(self, changes: dict[str, list[tuple[Any, ...]]]) -> None:
        self.bad += 1
        match self.random.randrange(3):
            case 0:
                self._say(changes, "customers", "?", (1, 1))
            case 1:
                self._say(changes, "orders", "d", (10_000_000 + self.bad, 1, None))
            case _:
                self._say(changes, "customers", "i", (None, 1))

    def _write(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        self.events += len(rows)
        schema = TABLES[name].append(pa.field("op", pa.string())).append(pa.field("seq", pa.int64()))
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
        table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
        making = self.folder / f".{name}.tmp"
        pq.write_table(table, making)
        making.rename(self.folder / name / f"{self.epoch:05d}.parquet")

    def oracle(self, sql: str = ORACLE) -> list[tuple[Any, ...]]:
        """Return the view by DuckDB over the model's tables."""
        connection = duckdb.connect()
        for name, rows in (
            ("customers", list(self.customers.values())),
            ("orders", list(self.orders.values())),
            ("lineitem", self.items),
        ):
            gone = {row[0] for row in self.late} if name == "customers" else set()
            rows = [row for row in rows if row[0] not in gone]
            columns = list(zip(*rows, strict=True)) if rows else [[] for _ in TABLES[name]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, TABLES[name], strict=True)]
            connection.register(name, pa.table(arrays, TABLES[name]))
        found = connection.execute(sql).fetchall()
        connection.close()
        return sorted(found, key=repr)


def sorted_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of dicts as sorted tuples, to be compared with `OrdersStream.oracle`."""
    return sorted((tuple(row.values()) for row in rows), key=repr)


def json_lines(path: Path, rows: list[Any]) -> None:
    """Write rows as JSON lines; a string is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
