"""A shop small enough to read: the input of the first example.

``python -m cumulus.workloads.shop DIR`` writes its input folder. The tables and the view are `shop.sql`, beside this
module.
"""

from __future__ import annotations

import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.workloads import changes
from cumulus.workloads.checks import declared

EPOCHS = 5
NATIONS = ("Brazil", "Canada", "France", "Japan", "Kenya")

_CUSTOMERS = 8  # new ones in each epoch
_ORDERS = 30
_CANCELLED = 3


def sql() -> str:
    """Return the text of `shop.sql`: three tables and a view."""
    return sql_path().read_text(encoding="utf-8")


def sql_path() -> Path:
    """Return where `shop.sql` is."""
    return Path(__file__).with_name("shop.sql")


def epochs(*, seed: int = 0) -> list[dict[str, pa.Table]]:
    """Return five epochs of changes (module `changes`): customers, their orders with items, and cancelled orders.

    The same seed gives the same shop.
    """
    choose = random.Random(seed)
    customers: list[tuple[Any, ...]] = []
    standing: list[tuple[tuple[Any, ...], list[tuple[Any, ...]]]] = []
    order_count = 0
    seq = 0
    found = []
    for _ in range(EPOCHS):
        told: list[tuple[str, str, tuple[Any, ...]]] = []
        for _ in range(_CUSTOMERS):
            customers.append((len(customers) + 1, choose.choice(NATIONS)))
            told.append(("i", "customers", customers[-1]))
        for _ in range(_ORDERS):
            order_count += 1
            order = (choose.choice(customers)[0], order_count, Decimal(choose.choice(("1.00", "0.95", "0.90"))))
            items = [(order_count, Decimal(choose.randrange(100, 20_000)) / 100) for _ in range(choose.randint(1, 4))]
            standing.append((order, items))
            told.extend([("i", "orders", order), *(("i", "lineitem", item) for item in items)])
        for _ in range(_CANCELLED):
            order, items = standing.pop(choose.randrange(len(standing)))
            told.extend([*(("d", "lineitem", item) for item in items), ("d", "orders", order)])
        found.append(_epoch(told, seq))
        seq += len(told)
    return found


def _epoch(told: list[tuple[str, str, tuple[Any, ...]]], start: int) -> dict[str, pa.Table]:
    tables = {}
    for name, table in declared(sql()).items():
        rows = [(op, start + place, *row) for place, (op, relation, row) in enumerate(told) if relation == name]
        schema = pa.schema([("op", pa.string()), ("seq", pa.int64()), *table.schema])
        tables[name] = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    return tables


def write(folder: Path, *, seed: int = 0) -> int:
    """Write the shop's input folder, ``folder/<table>/<epoch>.parquet``; return the number of epochs."""
    return changes.write(folder, epochs(seed=seed))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m cumulus.workloads.shop DIR")
    print(f"{write(Path(sys.argv[1]))} epochs in {sys.argv[1]}")
