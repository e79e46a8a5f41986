"""Clusters whose maps lie in a grid, with copies where they are read: epoch for epoch what the embedded host says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.versions import VersionOrder
from cumulus.workloads import shop
from support.orders_stream import json_lines
from support.same_as_embedded import Compared
from support.tiers import sampled

SOURCE = [mode for mode, rules in RULES.items() if rules.has_replicas and rules.is_spread]
SHOP_CUTS = {
    "two by two": (4, ("orders.cid=2", "orders.oid=2")),
    "two by five": (10, ("orders.cid=2", "orders.oid=5")),
    "by value and by hash": (6, ("orders.oid=2", "customers.cid@5,20")),
    "by another column": (3, ("customers.nation=3",)),
    "one column by value": (3, ("lineitem.oid@20,100",)),
    "in one part": (2, ("orders.oid=1", "orders.cid=2")),
}


@pytest.mark.parametrize("name", SHOP_CUTS)
def test_the_shop(tmp_path: Path, name: str) -> None:
    shop.write(tmp_path / "in")
    nodes, cuts = SHOP_CUTS[name]
    found = Compared(shop.sql(), [str(tmp_path / "in")], tmp_path)
    for mode in SOURCE:
        for order in VersionOrder if mode is Mode.EVENTUAL else (VersionOrder.CLOCK,):
            found.check((nodes, 2), mode, order, cuts=cuts)


@pytest.mark.parametrize("options", [("buffer=20,per-depth",), ("compress",), ("patience=20",)])
def test_the_shop_with_options(tmp_path: Path, options: tuple[str, ...]) -> None:
    shop.write(tmp_path / "in")
    nodes, cuts = SHOP_CUTS["two by five"]
    found = Compared(shop.sql(), [str(tmp_path / "in")], tmp_path, "native")
    found.check((nodes, 3), Mode.EVENTUAL, cuts=cuts, options=options, block_rows=3)


STAR = """
CREATE TABLE dates (datekey INT, year INT); CREATE TABLE part (partkey INT, partcat VARCHAR);
CREATE TABLE lineorder (datekey INT, partkey INT, revenue BIGINT);
CREATE VIEW m AS SELECT partcat, year, SUM(revenue) AS revenue, COUNT(*) AS n FROM dates, part, lineorder
WHERE dates.datekey = lineorder.datekey AND part.partkey = lineorder.partkey GROUP BY partcat, year;
"""
STAR_CUTS = {
    "the grid of m": (6, ("m.partcat=2", "m.year@1995,1997")),
    "the grid of lineorder": (10, ("lineorder.datekey=2", "lineorder.partkey=5")),
    "three dimensions": (8, ("m.year=2", "lineorder.partkey=2", "m.partcat@")),
}


def star_rows(seed: int) -> dict[str, list[list[Any]]]:
    """Return rows of a star that come and go, some of them without a partner or a key."""
    draw = random.Random(seed)
    kinds = {
        "dates": lambda: {"datekey": draw.choice((1, 2, 3, 4, None)), "year": draw.choice((1994, 1995, 1997, None))},
        "part": lambda: {"partkey": draw.choice((-5, 0, 7, 8)), "partcat": draw.choice(("", "a", "é", None))},
        "lineorder": lambda: {
            "datekey": draw.choice((1, 2, 3, 9, None)),
            "partkey": draw.choice((-5, 0, 7, 8, None)),
            "revenue": draw.choice((1, -3, 2**40, None)),
        },
    }
    held: dict[str, list[Any]] = {name: [] for name in kinds}
    found: dict[str, list[list[Any]]] = {name: [] for name in kinds}
    for _ in range(4):
        for name, made in kinds.items():
            lines: list[Any] = []
            for _ in range(draw.randrange(12)):
                if held[name] and draw.random() < 0.3:
                    lines.append({**held[name].pop(draw.randrange(len(held[name]))), "op": "d"})
                else:
                    held[name].append(made())
                    lines.append({**held[name][-1], "op": "i"})
            found[name].append(lines)
    return found


def written(folder: Path, rows: dict[str, list[list[Any]]]) -> Path:
    for table, epochs in rows.items():
        (folder / table).mkdir(parents=True, exist_ok=True)
        for number, lines in enumerate(epochs, 1):
            json_lines(folder / table / f"{number:03d}.json", lines)
    return folder


@pytest.mark.parametrize("seed", sampled(range(4), of=4))
@pytest.mark.parametrize("name", STAR_CUTS)
def test_the_star(tmp_path: Path, name: str, seed: int) -> None:
    """Example 3 of the introduction."""
    nodes, cuts = STAR_CUTS[name]
    found = Compared(
        STAR, [str(written(tmp_path / "in", star_rows(seed)))], tmp_path, ("interpreter", "native")[seed % 2]
    )
    for mode in SOURCE:
        found.check((nodes, 3), mode, cuts=cuts)


BOUNDS = {
    "BIGINT": ("-9223372036854775808,0,9223372036854775807", [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1, None]),
    "DOUBLE": ("-0.5,0.0,1e300", ["NaN", "-Infinity", "Infinity", -0.0, 0.0, 5e-324, 1e300, None]),
    "VARCHAR": (",a,\U0001f600", ["", "\x00", "a", "b", "ü", "\U0001f600", "\uffff", None]),
    "DATE": ("0001-01-01,1970-01-01,9999-12-31", ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31", None]),
    "DECIMAL(38,2)": ("-1.5,0.01,9999999999.99", [f"{'9' * 36}.99", f"-{'9' * 36}.99", "-1.50", "0.00", "0.01", None]),
    "HUGEINT": (f"-1,0,{2**64}", [10**38 - 1, -(10**38) + 1, 0, -1, 2**64, 2**64 - 1, None]),
    "BOOLEAN": ("true", [True, False, None]),
    "TIMESTAMP": (
        "1970-01-01 00:00:00,2024-01-01 12:00:00,2024-01-02",
        ["2024-01-01 11:59:59", "2024-01-01 12:00:00", None],
    ),
    "INTEGER": ("-2147483648,7,2147483647", [-(2**31), 2**31 - 1, 7, 6, None]),
}


@pytest.mark.parametrize("type_", BOUNDS)
def test_at_values_of_a_type(tmp_path: Path, type_: str) -> None:
    bounds, values = BOUNDS[type_]
    script = f"""CREATE TABLE r (k {type_}, x INT); CREATE TABLE s (k {type_}, y INT);
    CREATE VIEW v AS SELECT r.k, y, SUM(x) AS q, COUNT(*) AS n FROM r, s WHERE r.k = s.k GROUP BY r.k, y;
    CREATE VIEW w AS SELECT k, SUM(x) AS t FROM r GROUP BY k;"""
    rows: dict[str, list[list[Any]]] = {
        "r": [[{"k": value, "x": at} for at, value in enumerate(values)] * 2, [{"k": values[0], "x": 0, "op": "d"}]],
        "s": [[], [{"k": value, "y": at % 2} for at, value in enumerate(values)]],
    }
    parts = 2 + bounds.count(",")
    found = Compared(script, [str(written(tmp_path / "in", rows))], tmp_path, "native")
    for mode in (*SOURCE, Mode.CENTRAL_TARGET):
        found.check((parts, 2), mode, cuts=(f"r.k@{bounds}",))
        found.check((2 * parts, 2), mode, cuts=("v.y=2", f"r.k@{bounds}"))
