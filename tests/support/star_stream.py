"""A star as files of epochs: sales with shops and goods, regions behind them, and a plain model of the tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb

from cumulus.epochs.output.query import query
from support.orders_stream import json_lines, sorted_rows

TABLES = """
CREATE TABLE regions (r INT PRIMARY KEY, region VARCHAR);
CREATE TABLE shops (s INT PRIMARY KEY, r INT REFERENCES regions, shop VARCHAR, phone VARCHAR);
CREATE TABLE goods (g INT PRIMARY KEY, kind VARCHAR, weight INT);
CREATE TABLE sales (id INT PRIMARY KEY, s INT REFERENCES shops, g INT REFERENCES goods, amount INT);
"""
VIEWS = {
    "by_region": "SELECT region, kind, SUM(amount) AS a, COUNT(*) AS n FROM sales JOIN shops USING (s) "
    "JOIN regions USING (r) JOIN goods USING (g) GROUP BY region, kind",
    "by_shop": "SELECT shop, SUM(amount * weight) AS a FROM sales JOIN shops USING (s) JOIN goods USING (g) "
    "GROUP BY shop",
    "shops_there": "SELECT r, COUNT(*) AS n FROM shops GROUP BY r",
    "kinds": "SELECT kind, COUNT(*) AS n FROM goods GROUP BY kind",
}
STAR = TABLES + "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())
COLUMNS = {"regions": ("r", "region"), "shops": ("s", "r", "shop", "phone"), "goods": ("g", "kind", "weight")}
COLUMNS["sales"] = ("id", "s", "g", "amount")
PARENTS = {"shops": {"regions": 1}, "sales": {"shops": 1, "goods": 2}, "regions": {}, "goods": {}}
POLLED = ("shops", "goods")


class Star:
    """Random files of epochs, and a plain model of the tables: what a deletion of a shop or of goods says is done in
    the epoch after it, if nothing refers to the row then.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.rows: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in COLUMNS}
        self.waiting: dict[str, set[int]] = {name: set() for name in POLLED}
        self.epoch = 0

    def write(self) -> None:
        """Write the files of an epoch, and let the model take them."""
        self.epoch += 1
        self._delete_granted()
        lines: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
        touched: set[tuple[str, int]] = set()
        for name in ("regions", "shops", "goods", "sales"):
            for _ in range(self.draw.choice((0, 1, 3, 8) if name != "sales" else (2, 10, 40))):
                key = self.draw.randrange(3 if name == "regions" else 8 if name != "sales" else 60)
                if (name, key) not in touched:
                    touched.add((name, key))
                    self._change(name, key, lines[name])
        for name, rows in lines.items():
            json_lines(self.folder / name / f"{self.epoch:03d}.json", rows)

    def settle(self) -> bool:
        """Do the epoch without files that follows if something may be deleted; say whether there is one."""
        is_due = self._delete_granted()
        self.epoch += is_due
        return is_due

    def _change(self, name: str, key: int, lines: list[dict[str, Any]]) -> None:
        """Change the row with a key of a table, as far as the tables allow it."""
        old, draw = self.rows[name].get(key), self.draw
        if name in POLLED and key in self.waiting[name]:
            return  # what has been deleted comes back only when it has gone
        if old is not None and draw.random() < 0.3:
            if name == "regions" and any(shop[1] == key for shop in self.rows["shops"].values()):
                return
            lines.append({**dict(zip(COLUMNS[name], old, strict=True)), "op": "d"})
            if name in POLLED:
                self.waiting[name].add(key)
            else:
                del self.rows[name][key]
            return
        parents = {place: list(self.rows[parent]) for parent, place in PARENTS[name].items()}
        if not all(parents.values()):
            return
        choices: dict[str, tuple[Any, ...]] = {
            "regions": (key, draw.choice("NS")),
            "shops": (key, 0, draw.choice("abc"), str(draw.randrange(9))),
            "goods": (key, draw.choice("xy"), draw.randrange(4)),
            "sales": (key, 0, 0, draw.randrange(100)),
        }
        row = list(choices[name])
        for place, keys in parents.items():
            row[place] = draw.choice(keys) if draw.random() < 0.9 else None
        if old is not None and name in POLLED and draw.random() < 0.5:
            row[1:-1] = old[1:-1]  # only what few views read
        self.rows[name][key] = tuple(row)
        lines.append({**dict(zip(COLUMNS[name], row, strict=True)), "op": "i" if old is None else "u"})

    def _delete_granted(self) -> bool:
        granted = [
            (name, key)
            for name, keys in self.waiting.items()
            for key in keys
            if all(sale[PARENTS["sales"][name]] != key for sale in self.rows["sales"].values())
        ]
        for name, key in granted:
            self.waiting[name].discard(key)
            del self.rows[name][key]
        return bool(granted)

    def answers(self) -> dict[str, list[Any]]:
        """Return the rows of the views as DuckDB has them."""
        with duckdb.connect() as database:
            database.execute(
                TABLES.replace("REFERENCES regions", "").replace("REFERENCES shops", "").replace("REFERENCES goods", "")
            )
            for name, rows in self.rows.items():
                if rows:
                    marks = ", ".join("?" * len(COLUMNS[name]))
                    database.executemany(f"INSERT INTO {name} VALUES ({marks})", list(rows.values()))
            return {name: sorted(database.execute(select).fetchall(), key=repr) for name, select in VIEWS.items()}


def shown(out: Path, epoch: int | None = None) -> dict[str, list[Any]]:
    return {name: sorted_rows(query(out, f"FROM {name}", epoch).to_pylist()) for name in VIEWS}
