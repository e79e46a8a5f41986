"""Views of which two divide by zero for some rows, and a folder of such rows: what they say, and what they miss."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from support.oracle import Oracle
from support.orders_stream import json_lines

TABLES = "CREATE TABLE r (id INT PRIMARY KEY, k INT NOT NULL, a INT NOT NULL); CREATE TABLE s (k INT NOT NULL, b INT);"
VIEWS = {
    "halves": (
        "SELECT k, SUM(a // k) AS s FROM r GROUP BY k",
        "SELECT k, SUM(TRY(a // k)) AS s FROM r GROUP BY k",
    ),
    "joined": (
        "SELECT a // b AS q, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY 1",
        "SELECT a // b AS q, COUNT(*) AS n FROM r JOIN s USING (k) WHERE b IS DISTINCT FROM 0 GROUP BY 1",
    ),
    "counts": ("SELECT k, COUNT(*) AS n, SUM(a) AS s FROM r GROUP BY k",) * 2,
}
"""View → its SQL, and what DuckDB must say it is."""
SCRIPT = TABLES + "".join(f"CREATE VIEW {name} AS {sql};" for name, (sql, _) in VIEWS.items())


class FailingStream:
    """Writes epochs of insertions and deletions; remembers what the views are after each, and which rows fail."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.epoch = 0
        self.answers: dict[int, dict[str, list[tuple[Any, ...]]]] = {}
        self.failed: dict[int, list[tuple[int, int, str]]] = {}
        """Epoch → (sign, position in the file, source) of the rows of r with k = 0: what `halves` must tell."""
        self._oracle = Oracle(TABLES)
        self._chance = random.Random(seed)
        self._rows: list[tuple[int, int, int]] = []
        self._next = 0

    def write(self, count: int = 12) -> None:
        self.epoch += 1
        lines: list[dict[str, Any]] = []
        failed = []
        gone_before = list(self._rows)
        for _ in range(count):
            if gone_before and self._chance.random() < 0.3:
                row = gone_before.pop(self._chance.randrange(len(gone_before)))
                self._rows.remove(row)
                sign = -1
            else:
                self._next += 1
                row = (self._next, self._chance.randrange(3), self._chance.randrange(1, 9))
                self._rows.append(row)
                sign = 1
            self._oracle.apply(sign, "r", row)
            lines.append(dict(zip(("id", "k", "a"), row, strict=True)) | {"op": "i" if sign > 0 else "d"})
            if row[1] == 0:
                failed.append((sign, len(lines), f"r/{self.epoch}.json"))
        json_lines(self.folder / "r" / f"{self.epoch}.json", lines)
        others = [(self._chance.randrange(3), self._chance.choice([None, 0, 2])) for _ in range(2)]
        for other in others:
            self._oracle.apply(1, "s", other)
        json_lines(self.folder / "s" / f"{self.epoch}.json", [{"k": k, "b": b} for k, b in others])
        self.answers[self.epoch] = {name: self._oracle.rows(sql) for name, (_, sql) in VIEWS.items()}
        self.failed[self.epoch] = sorted(failed)
