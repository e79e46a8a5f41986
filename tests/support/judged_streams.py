"""Random folders of sales with their shops and goods, and scripts over them, for judges before views."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

TABLES = """
CREATE TABLE towns (town VARCHAR NOT NULL, country VARCHAR, PRIMARY KEY (town));
CREATE TABLE shops (shop INT NOT NULL, town VARCHAR, size INT, PRIMARY KEY (shop),
                    FOREIGN KEY (town) REFERENCES towns (town));
CREATE TABLE goods (good INT NOT NULL, price DECIMAL(8,2), label VARCHAR, PRIMARY KEY (good));
CREATE TABLE sales (id INT NOT NULL, line INT NOT NULL, shop INT, good INT, amount INT, PRIMARY KEY (id, line),
                    FOREIGN KEY (shop) REFERENCES shops (shop), FOREIGN KEY (good) REFERENCES goods (good));
CREATE TABLE visits (shop INT, weight DOUBLE) WITH (keep = {visits});
"""
VIEWS = {
    "by_town": "SELECT town, SUM(amount * price) AS s, COUNT(*) AS n FROM sales JOIN shops USING (shop) "
    "JOIN goods USING (good) GROUP BY town",
    "by_good": "SELECT good, SUM(amount) AS s, MAX(amount) AS most FROM sales GROUP BY good",
    "counts": "SELECT n, COUNT(*) AS shops FROM (SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop) x GROUP BY n",
    "dear": "SELECT shop, COUNT(*) AS n FROM sales s WHERE amount > (SELECT AVG(amount) FROM sales t "
    "WHERE t.good = s.good) GROUP BY shop",
    "above": "SELECT COUNT(*) AS n FROM (SELECT good, SUM(amount) AS s FROM sales GROUP BY good) x "
    "WHERE s > (SELECT SUM(amount) / 4 FROM sales)",
    "labels": "SELECT CAST(label AS INT) AS label, SUM(amount) AS s FROM sales JOIN goods USING (good) GROUP BY 1",
    "countries": "SELECT country, COUNT(DISTINCT good) AS n FROM sales JOIN shops USING (shop) JOIN towns USING (town) "
    "GROUP BY country",
    "weights": "SELECT town, SUM(weight) AS w, COUNT(*) AS n FROM visits JOIN shops USING (shop) GROUP BY town",
    "everything": "SELECT shop, good, amount FROM sales",
    "empty": "SELECT s.shop, size FROM shops s WHERE NOT EXISTS (SELECT 1 FROM sales WHERE sales.shop = s.shop)",
}


def script(views: Sequence[str], visits: str = "none") -> str:
    """Return a script with some of the views; `visits` says which rows that table keeps."""
    told = [f"CREATE VIEW {name} AS {VIEWS[name]};" for name in views]
    return "\n".join([TABLES.format(visits=visits), *told])


class Stream:
    """Random changes: updates, deletions, orphans, late parents, repeated and wrong rows.

    Parameters
    ----------
    parents_go
        Whether rows that others refer to are deleted.
    """

    def __init__(self, seed: int, *, parents_go: bool) -> None:
        self.draw = random.Random(seed)
        self.parents_go = parents_go
        self.number = 0

    def write(self, folder: Path, epochs: int, rows: int = 25) -> None:
        """Write a file of JSON for each table and epoch."""
        for epoch in range(epochs):
            changes: dict[str, list[dict[str, object]]] = {
                name: [] for name in ("towns", "shops", "goods", "sales", "visits")
            }
            for _ in range(rows if epoch else 2 * rows):
                table = self.draw.choice(["towns", "shops", "goods", "sales", "sales", "sales", "sales", "visits"])
                changes[table].append(self.change(table))
            for name, told in changes.items():
                place = folder / name / f"{epoch:03}.jsonl"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("".join(json.dumps(each) + "\n" for each in told))

    def change(self, table: str) -> dict[str, object]:
        """Return one change of a table."""
        draw, row = self.draw, self.row(table)
        self.number += draw.choice([1, 1, 1, 1, 0, -3])  # some come again, or late
        ops = "iiiuud" if table == "sales" or self.parents_go else "iiuuu"
        op = draw.choice("iiid" if table == "visits" else ops)
        return {"op": op, "seq": max(self.number, 0), **row}

    def row(self, table: str) -> dict[str, object]:
        """Return a random row."""
        draw = self.draw
        match table:
            case "towns":
                return {"town": draw.choice("abcd"), "country": draw.choice(["x", "y", None])}
            case "shops":
                return {
                    "shop": draw.randrange(7),
                    "town": draw.choice(["a", "b", "c", "d", None]),
                    "size": draw.choice([1, 2]),
                }
            case "goods":
                price, label = draw.choice([1, "2.50", "1000000.01"]), draw.choice(["1", "2", "two", None])
                return {"good": draw.randrange(7), "price": price, "label": label}
            case "sales":
                amount = draw.choice([1, 2, 3, -(2**31), 2**31 - 1])
                shop, good = draw.choice([*range(7), None]), draw.choice([*range(8), None])
                return {
                    "id": draw.randrange(12),
                    "line": draw.randrange(2),
                    "shop": shop,
                    "good": good,
                    "amount": amount,
                }
            case _:
                return {"shop": draw.randrange(7), "weight": draw.choice([0.1, 0.25, -3.5, 1e3])}
