"""Rows in order: ends, sums over intervals and thresholds beside the interpreter, which visits every row."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from math import nan
from typing import Any

import pytest

import cumulus
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.m3.program import On
from cumulus.m3.view_reads import top_of
from support.tiers import one_mode_each

BIDS = "CREATE TABLE bids (t {t}, broker INTEGER, volume {v} NOT NULL, price {p});"
VWAP = """
    CREATE VIEW vwap AS SELECT SUM(b1.price * b1.volume) AS vwap FROM bids b1
    WHERE 0.25 * (SELECT SUM(b3.volume) FROM bids b3) > (SELECT SUM(b2.volume) FROM bids b2 WHERE b2.price > b1.price);
"""
LATER = """
    CREATE VIEW later AS SELECT x.broker, SUM(x.volume - y.volume) AS later, COUNT(*) AS n FROM bids x, bids y
    WHERE x.broker = y.broker AND x.t > y.t GROUP BY x.broker;
"""
LARGE = """
    CREATE VIEW large AS SELECT SUM(a.price - b.price) AS large FROM bids a, bids b
    WHERE a.volume > 0.1 * (SELECT SUM(volume) FROM bids) AND b.volume >= 2 * (SELECT AVG(volume) FROM bids);
"""
BANDS = """
    CREATE VIEW bands AS SELECT a.broker, SUM(b.volume) AS bands FROM bids a, bids b
    WHERE b.price BETWEEN a.price - 2 AND a.price + 2 GROUP BY a.broker;
"""
ENDS = """
    CREATE VIEW ends AS SELECT broker, MIN(price) AS low, MAX(price) AS high, MAX(t) AS last, MIN(volume) AS least
    FROM bids GROUP BY broker;
    CREATE VIEW top AS SELECT b.broker, COUNT(*) AS n FROM bids b
    WHERE b.price = (SELECT MAX(price) FROM bids) GROUP BY b.broker;
"""
TEXTS = """
    CREATE VIEW texts AS SELECT a.broker, SUM(b.volume) AS v FROM bids a, bids b WHERE b.price > a.price
    GROUP BY a.broker;
    CREATE VIEW few AS SELECT broker FROM bids GROUP BY broker
    HAVING SUM(CASE WHEN price >= 'f' THEN 1 ELSE 0 END) = 0;
    CREATE VIEW outer_joined AS SELECT q.broker FROM bids p FULL JOIN bids q ON p.t = q.broker AND q.price >= 'f'
    GROUP BY q.broker;
"""
BOXES = """
    CREATE VIEW boxes AS SELECT COUNT(*) AS n FROM bids b
    WHERE NOT EXISTS (SELECT 1 FROM bids a WHERE a.price > b.price AND a.volume <= b.volume);
"""
RUNNING = """
    CREATE VIEW running AS SELECT a.t, (SELECT SUM(b.volume) FROM bids b WHERE b.t <= a.t AND b.broker = a.broker) AS s
    FROM bids a;
"""
MISSED = """
    CREATE VIEW missed AS SELECT b.broker, SUM(a.price * a.volume - b.price * b.volume) AS missed FROM bids b, bids a
    WHERE 0.25 * (SELECT SUM(a1.volume) FROM bids a1) > (SELECT SUM(a2.volume) FROM bids a2 WHERE a2.price > a.price)
    AND 0.5 * (SELECT SUM(b1.volume) FROM bids b1) > (SELECT SUM(b2.volume) FROM bids b2 WHERE b2.price > b.price)
    GROUP BY b.broker;
"""
LUCKY = """
    CREATE VIEW lucky AS SELECT broker, COUNT(*) AS n, SUM(volume) AS volume FROM bids b
    WHERE price > (SELECT AVG(price) FROM bids)
    AND NOT EXISTS (SELECT * FROM bids o WHERE o.t = b.t AND o.broker > b.broker) GROUP BY broker;
"""
CASES = {
    "missed": (MISSED, "BIGINT", "BIGINT", "BIGINT"),
    "lucky": (LUCKY, "BIGINT", "BIGINT", "INTEGER"),
    "lucky decimals": (LUCKY, "BIGINT NOT NULL", "DECIMAL(12,2)", "DECIMAL(12,2)"),
    "vwap": (VWAP, "BIGINT", "BIGINT", "BIGINT NOT NULL"),
    "vwap with NULLs": (VWAP, "BIGINT", "INTEGER", "BIGINT"),
    "vwap of decimals": (VWAP, "BIGINT", "DECIMAL(12,2)", "DECIMAL(30,4)"),
    "vwap of floats": (VWAP, "BIGINT", "DOUBLE", "DOUBLE"),
    "later": (LATER, "TIMESTAMP", "BIGINT", "INTEGER"),
    "later by days": (LATER, "DATE NOT NULL", "DOUBLE", "INTEGER"),
    "large": (LARGE, "BIGINT", "BIGINT", "BIGINT"),
    "large decimals": (LARGE, "BIGINT", "DECIMAL(12,2)", "DECIMAL(10,1)"),
    "bands": (BANDS, "BIGINT", "BIGINT", "INTEGER NOT NULL"),
    "bands of decimals": (BANDS, "BIGINT", "DECIMAL(20,2)", "DECIMAL(25,1)"),
    "ends": (ENDS, "DATE", "DECIMAL(25,2)", "BIGINT"),
    "ends of floats": (ENDS, "TIMESTAMP", "DOUBLE", "DOUBLE"),
    "ends of texts": (ENDS, "DATE", "HUGEINT", "VARCHAR"),
    "bands of texts": (TEXTS, "BIGINT", "BIGINT", "VARCHAR"),
    "boxes": (BOXES, "BIGINT", "BIGINT", "BIGINT"),
    "running": (RUNNING, "BIGINT NOT NULL", "BIGINT", "BIGINT"),
}


def a_value(kind: str, choose: random.Random, *, negative: bool) -> Any:
    """Return a value of few: rows must meet."""
    if "NOT NULL" not in kind and choose.random() < 0.1:
        return None
    number = choose.randrange(-3 if negative else 0, 12)
    match kind.split()[0].split("(")[0]:
        case "DATE":
            return dt.date(2026, 1, 15) + dt.timedelta(number)
        case "TIMESTAMP":
            return dt.datetime(2026, 1, 15) + dt.timedelta(seconds=number)
        case "DECIMAL":
            return Decimal(number) / 2
        case "DOUBLE":
            return nan if negative and number == 3 else number / 4
        case "VARCHAR":
            return "abcdefghijklmno"[number + 3]
        case _:
            return number


def a_stream(kinds: list[str], seed: int, *, negative: bool) -> list[tuple[int, tuple[Any, ...]]]:
    """Return events: deletions of what is there, and now and then of what comes later or never."""
    choose = random.Random(seed)
    there: list[tuple[Any, ...]] = []
    events = []
    for _ in range(250):
        if there and choose.random() < 0.4:
            events.append((-1, there.pop(choose.randrange(len(there)))))
            continue
        row = tuple(
            a_value(kind, choose, negative=negative and (place != 2 or choose.random() < 0.3))
            for place, kind in enumerate(kinds)
        )
        if negative and choose.random() < 0.1:
            events.append((-1, row))
        else:
            events.append((1, row))
            there.append(row)
    return events


def contents(engine: Any, name: str, kinds: list[str]) -> dict[Any, Any]:
    """Return what is stored; of floats what readers see, for sums in another order leave other rests behind."""
    if "DOUBLE" not in kinds[1]:
        return dict(engine.stored(name))
    return {
        key: tuple(round(each, 6) if isinstance(each, float) else each for each in values)
        for key, values in engine.items(name)
    }


@pytest.mark.parametrize(("case", "negative"), one_mode_each([*CASES][::-1], (False, True), of=12))
def test_orders_give_what_visiting_gives(case: str, negative: bool) -> None:
    views, *kinds = CASES[case]
    script = BIDS.format(t=kinds[0], v=kinds[1], p=kinds[2]) + views
    program = compile_sql(script)
    stream = a_stream([kinds[0], "INTEGER", f"{kinds[1]} NOT NULL", kinds[2]], len(case), negative=negative)
    if "DOUBLE" in kinds[1]:  # a sum that is not a number is wrong in both, and says so
        stream = [(sign, row) for sign, row in stream if row[2] == row[2]]
    oracle, native = Interpreter(program), NativeEngine(program)
    visited = "texts" in case or case == "boxes"  # texts have no order, and two ranges at once no tree
    assert visited or any(native.code.store(each.name).store.orders for each in program.maps)
    for number, (sign, row) in enumerate(stream):
        for engine in (oracle, native):
            engine.begin()
            if number % 5 == 4 and ((On.BATCH, "bids") in {(each.on, each.relation) for each in program.triggers}):
                engine.on_batch("bids", {row: sign, stream[number // 2][1]: 2})
            else:
                engine.on_event(sign, "bids", row)
            if number % 7 == 3:
                engine.rollback()
            else:
                engine.commit()
        for definition in program.maps:
            found, wanted = (contents(engine, definition.name, kinds) for engine in (native, oracle))
            assert found == wanted, (number, definition.name)
        if number % 50 == 49:
            for definition in program.maps:
                assert native.code.store(definition.name).view.problems() == []
    assert [*native.take_errors()] == [*oracle.take_errors()]


TOPS = {
    "largest sums": ("SUM(volume) AS x, COUNT(*) AS n", "", "x DESC", 3, 0),
    "least sums behind the first": ("SUM(volume) AS x, COUNT(*) AS n", "", "x, n DESC", 4, 2),
    "most rows of those with a sum": ("SUM(volume) AS x, COUNT(*) AS n", "HAVING SUM(volume) > 3", "n DESC, x", 2, 0),
    "first groups": ("SUM(volume) AS x", "", "broker", 3, 1),
    "none": ("SUM(volume) AS x", "", "x", 0, 0),
}


@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(20,2)", "DOUBLE"])
@pytest.mark.parametrize("top", TOPS)
def test_first_rows_are_those_of_all_rows_sorted(top: str, kind: str) -> None:
    select, having, order, limit, offset = TOPS[top]
    everything = f"SELECT broker, {select} FROM bids GROUP BY broker {having}"
    wh = cumulus.Warehouse(f"""
        CREATE TABLE bids (broker INTEGER NOT NULL, volume {kind} NOT NULL);
        CREATE VIEW everything AS {everything};
        CREATE VIEW first AS {everything} ORDER BY {order} LIMIT {limit} OFFSET {offset};
    """)
    assert wh.stats().engine == "native"
    stream = a_stream(["INTEGER NOT NULL", f"{kind} NOT NULL"], len(top), negative=True)
    columns = [column.name for column in wh.view("first").columns]
    keys = [(columns.index(item.split()[0]), "DESC" in item) for item in order.split(", ")]
    for number, (sign, row) in enumerate(stream):
        if row[1] != row[1]:
            continue
        wh.apply([(sign, "bids", row)])
        if number % 10:
            continue
        wanted = wh.view("everything").rows()
        for place, descending in reversed(keys):
            wanted.sort(key=lambda each, place=place: each[place], reverse=descending)
        found = wh.view("first").rows()
        assert {*found} <= {*wanted}
        cut = wanted[offset : offset + limit]
        assert [[each[place] for place, _ in keys] for each in found] == [
            [each[place] for place, _ in keys] for each in cut
        ]


@pytest.mark.parametrize("kind", ["INTEGER", "DOUBLE", "DECIMAL(30,2)"])
@pytest.mark.parametrize("order", ["k", "k DESC", "k NULLS FIRST", "k DESC NULLS FIRST"])
def test_nulls_stand_where_order_by_has_them(order: str, kind: str) -> None:
    script = f"""
        CREATE TABLE r (k {kind}, g INTEGER NOT NULL);
        CREATE VIEW v AS SELECT k, g, COUNT(*) AS n FROM r GROUP BY k, g ORDER BY {order}, g LIMIT 3 OFFSET 1;
    """
    native, model = (cumulus.Warehouse(script, engine=engine) for engine in ("native", "interpreter"))
    assert (top_of(native.program, native.program.views[0]) is None) == ("FIRST" in order)
    draw = random.Random(order + kind)
    rows: list[tuple[Any, ...]] = []
    for number in range(600):
        # In the middle, more rows have a NULL than are kept in order, and then nothing else is left.
        if number > 300 and any(row[0] is not None for row in rows):
            sign, row = -1, next(row for row in rows if row[0] is not None)
        elif rows and draw.random() < 0.2:
            sign, row = -1, draw.choice(rows)
        else:
            sign, row = 1, (None if draw.random() < 0.6 else Decimal(draw.randrange(-4, 5)), draw.randrange(150))
        rows.append(row) if sign > 0 else rows.remove(row)
        for warehouse in (native, model):
            warehouse.apply([(sign, "r", row if kind != "DOUBLE" or row[0] is None else (float(row[0]), row[1]))])
        if number % 7 == 0:
            assert native.view("v").rows() == model.view("v").rows()
    assert sum(row[0] is None for row in rows) > 100
