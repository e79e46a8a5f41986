"""Files with rows that come, change, wait for others and go, for views that a cluster spreads and one that it gates."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.sources import sources_from
from cumulus.m3.program import Program
from support.orders_stream import json_lines

SQL = """
CREATE TABLE customers (id INT PRIMARY KEY, nation VARCHAR);
CREATE TABLE orders (id INT PRIMARY KEY, customer INT NOT NULL REFERENCES customers(id), amount DECIMAL(9,2));
CREATE TABLE lines (id INT, item INT, qty INT);
CREATE VIEW revenue AS SELECT nation, SUM(amount) AS s, COUNT(*) AS n
FROM customers, orders WHERE customers.id = orders.customer GROUP BY nation;
CREATE VIEW bought AS SELECT nation, SUM(qty * amount) AS q
FROM customers, orders, lines WHERE customers.id = orders.customer AND lines.id = orders.id GROUP BY nation;
CREATE VIEW items AS SELECT COUNT(DISTINCT item) AS n FROM lines;
"""


def cluster_program() -> Program:
    """Return the views as a cluster takes them."""
    return compile_sql(SQL, rely=False, enforced=False)


class SalesStream:
    """A folder of files, one for each table and epoch; an order may be there an epoch before its customer."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._draw = random.Random(seed)
        self._epoch = 0
        self._customers: dict[int, dict[str, Any]] = {}
        self._orders: dict[int, dict[str, Any]] = {}
        self._lines: list[dict[str, Any]] = []
        self._late: list[dict[str, Any]] = []

    @property
    def sources(self) -> tuple[FolderSource, ...]:
        """Where the tables' files are."""
        return sources_from([str(self.folder)], cluster_program())

    def write(self, epochs: int, rows: int = 12) -> None:
        """Write the files of the next epochs."""
        for _ in range(epochs):
            self._epoch += 1
            for table, made in self._made(rows).items():
                json_lines(self.folder / table / f"{self._epoch:05}.json", made)

    def _made(self, rows: int) -> dict[str, list[dict[str, Any]]]:
        draw, customers, orders = self._draw, list(self._late), []
        self._late = []
        for _ in range(rows):
            number = draw.randrange(10 * rows)
            row = {"id": number, "nation": f"n{draw.randrange(5)}"}
            if number not in self._customers and draw.random() < 0.3:
                self._late.append(row)  # its orders of this epoch wait
            else:
                customers.append(row)
            self._customers[number] = row
        for _ in range(2 * rows):
            number = draw.randrange(30 * rows)
            row = {"id": number, "customer": draw.choice(sorted(self._customers)), "amount": draw.randrange(900) / 4}
            orders.append(row)
            self._orders[number] = row
        for number in draw.sample(sorted(self._orders), min(rows // 4, len(self._orders))):
            orders.append({**self._orders.pop(number), "op": "d"})
        lines = [
            {"id": draw.randrange(30 * rows), "item": draw.randrange(50), "qty": draw.randrange(1, 9)}
            for _ in range(2 * rows)
        ]
        self._lines += lines
        gone = [self._lines.pop(draw.randrange(len(self._lines))) for _ in range(rows // 2)]
        lines += [{**row, "op": "d"} for row in gone]
        customers.append({"id": None, "nation": "refused"})
        return {"customers": customers, "orders": orders, "lines": lines}

    def run_embedded(self, out: Path) -> None:
        """Read all there is as `cumulus run --host embedded` does."""
        program = compile_sql(SQL, rely=False)
        with EmbeddedRun(program, self.sources, out, make_engine=partial(make_engine, "auto"), keep=10_000) as running:
            list(running.steps())
