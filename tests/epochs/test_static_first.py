"""Static tables are loaded before all else of the first epoch, whichever way the rows of other tables go."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import read_table
from cumulus.epochs.plan import BucketPlan
from cumulus.views import finish

PROGRAM = compile_sql(
    """
CREATE TABLE nations (k INT PRIMARY KEY, name VARCHAR NOT NULL) WITH (static = true);
CREATE TABLE zones (name VARCHAR NOT NULL, zone INT NOT NULL) WITH (static = true);
CREATE TABLE sales (k INT NOT NULL, x INT NOT NULL);
CREATE TABLE shops (id INT PRIMARY KEY, k INT NOT NULL REFERENCES nations (k), x INT NOT NULL);
CREATE VIEW sold AS SELECT name, SUM(x) AS s, COUNT(*) AS n FROM nations JOIN sales USING (k) GROUP BY name;
CREATE VIEW zoned AS SELECT zone, SUM(x) AS s, COUNT(*) AS n FROM zones z, nations n, shops s
  WHERE z.name = n.name AND s.k = n.k GROUP BY zone;
""",
    rely=False,
)
SCHEMAS = {
    "nations": [("k", pa.int32()), ("name", pa.string())],
    "zones": [("name", pa.string()), ("zone", pa.int32())],
    "sales": [("k", pa.int32()), ("x", pa.int32())],
    "shops": [("id", pa.int32()), ("k", pa.int32()), ("x", pa.int32())],
}


class Streams:
    """Makes the rows of an epoch, and knows what the views then are."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.nations = {k: draw.choice("abc") for k in range(5)}
        self.zones = [(name, draw.randrange(2)) for name in "abcb"]
        self.sales: Counter[tuple[int, int]] = Counter()
        self.shops: dict[int, tuple[int, int]] = {}

    def static(self) -> dict[str, list[dict[str, Any]]]:
        rows = {
            "nations": [{"op": "i", "k": k, "name": name} for k, name in self.nations.items()],
            "zones": [{"op": "i", "name": name, "zone": zone} for name, zone in self.zones],
        }
        if self._draw.random() < 0.3:  # refused: the first one stays
            rows["nations"].append({"op": "i", "k": 0, "name": "z"})
        return rows

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        draw, found = self._draw, dict[str, list[dict[str, Any]]](sales=[], shops=[])
        for _ in range(draw.randrange(0, 8)):
            row = (draw.randrange(6), draw.randrange(9))
            op = draw.choice("iid")  # some go before they come
            self.sales[row] += 1 if op == "i" else -1
            found["sales"].append({"op": op, "k": row[0], "x": row[1]})
        for number in draw.sample(range(12), 4):
            gone = self.shops.pop(number, None)
            if gone is None:
                self.shops[number] = (draw.randrange(5), draw.randrange(9))
            k, x = gone or self.shops[number]
            found["shops"].append({"op": "i" if gone is None else "d", "id": number, "k": k, "x": x})
        return found

    def sold(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for (k, x), count in self.sales.items():
            sums = found.setdefault(self.nations.get(k, ""), [0, 0])
            sums[:] = [sums[0] + count * x, sums[1] + count]
        return {name: sums for name, sums in found.items() if name and sums[1] > 0}

    def zoned(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for k, x in self.shops.values():
            for name, zone in self.zones:
                if name == self.nations[k]:
                    sums = found.setdefault(zone, [0, 0])
                    sums[:] = [sums[0] + x, sums[1] + 1]
        return found


def shown(bucket: Bucket, view: str) -> dict[Any, list[int]]:
    table = finish(PROGRAM, PROGRAM.view(view), bucket.engine.items)
    return {key: [s, n] for key, s, n in zip(*(column.to_pylist() for column in table.columns), strict=True)}


@pytest.mark.parametrize("engine", [NativeEngine, Interpreter])
def test_rows_of_the_first_epoch_find_static_ones(engine: Any) -> None:
    for seed in range(40):
        streams = Streams(random.Random(seed))
        bucket = Bucket(PROGRAM, BucketPlan(), 0, engine)
        for epoch in (1, 2, 3):
            given = {**(streams.static() if epoch == 1 else {}), **streams.rows()}
            readings = [
                read_table(
                    FolderSource(name, ""),
                    PROGRAM.relation(name),
                    pa.Table.from_pylist(rows, pa.schema([("op", pa.string()), *SCHEMAS[name]])),
                    f"{name}/{epoch}",
                )
                for name, rows in given.items()
            ]
            bucket.apply(epoch, pack(readings, BucketPlan()))
            assert shown(bucket, "sold") == streams.sold(), (seed, epoch)
            assert shown(bucket, "zoned") == streams.zoned(), (seed, epoch)
