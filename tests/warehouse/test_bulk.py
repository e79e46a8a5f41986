"""Events in bulk: rows, lists of events and Arrow columns do on the native engine what they do one by one."""

from __future__ import annotations

import datetime as dt
import gc
import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from cumulus import Warehouse
from cumulus.errors import CumulusError

SQL = """
CREATE TABLE kinds (k INT NOT NULL, name VARCHAR NOT NULL) WITH (static = true);
CREATE TABLE sales (k INT, at TIMESTAMP, day DATE, price DECIMAL(8, 2), big DECIMAL(30, 1), weight DOUBLE, gift BOOLEAN,
  note VARCHAR, unused VARCHAR NOT NULL);
CREATE TABLE owned (id BIGINT, k INT, PRIMARY KEY (id));
CREATE VIEW totals AS SELECT name, gift, SUM(price) AS price, SUM(big) AS big, SUM(weight) AS weight, COUNT(day) AS n
  FROM sales JOIN kinds USING (k) GROUP BY name, gift;
CREATE VIEW days AS SELECT day, note, MAX(at) AS last, COUNT(*) AS n FROM sales GROUP BY day, note;
CREATE VIEW shares AS SELECT k, SUM(price / (k - 3)) AS share FROM sales GROUP BY k;
CREATE VIEW owners AS SELECT k, COUNT(*) AS n FROM owned GROUP BY k;
"""
KINDS = [(k, f"kind {k % 3}") for k in range(6)]
TYPES = {
    "k": pa.int32(),
    "at": pa.timestamp("us"),
    "day": pa.date32(),
    "price": pa.decimal128(8, 2),
    "big": pa.decimal128(30, 1),
    "weight": pa.float64(),
    "gift": pa.bool_(),
    "note": pa.string(),
    "unused": pa.string(),
}
WRONG = [(1, "sales", (None,) * 9), (1, "sales", (1, 2)), (2, "sales", ())]
OWNED = {"id": pa.int64(), "k": pa.int32()}


ENGINES = ("native", "interpreter")


def sale(choose: random.Random) -> tuple[Any, ...]:
    """Return a row, NULLs and all."""

    def or_null(value: Any) -> Any:
        return None if choose.random() < 0.15 else value

    return (
        or_null(choose.randrange(6)),
        or_null(dt.datetime(2026, 1, choose.randrange(1, 9), 3, 0, 0, choose.randrange(5))),
        or_null(dt.date(2026, 1, choose.randrange(1, 4))),
        or_null(Decimal(choose.randrange(-999, 9999)).scaleb(-2)),
        or_null(Decimal(choose.randrange(-(10**29), 10**29)).scaleb(-1)),
        or_null(choose.choice((0.5, -0.0, 1e300, 2.25, float("nan"), float("inf")))),
        or_null(choose.random() < 0.5),
        or_null(choose.choice(("", "é", "x" * 40))),
        "ünused",
    )


def table(rows: list[tuple[Any, ...]], types: dict[str, Any] = TYPES) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(types)
    return pa.table({name: pa.array(c, t) for (name, t), c in zip(types.items(), columns, strict=True)})


def union(events: list[tuple[int, str, tuple[Any, ...]]]) -> pa.Table:
    """Return events as Arrow has them."""
    types = {"sales": TYPES, "owned": OWNED}
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in types}
    codes, offsets = [], []
    for _, name, row in events:
        codes.append(list(types).index(name))
        offsets.append(len(rows[name]))
        rows[name].append(row)
    children = [
        pa.StructArray.from_arrays([column.combine_chunks() for column in made.columns], names=list(made.column_names))
        for made in (table(rows[name], types[name]) for name in types)
    ]
    row = pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children, list(types))
    return pa.table({"sign": pa.array([sign for sign, _, _ in events], pa.int8()), "row": row})


def seen(wh: Warehouse) -> dict[str, Any]:
    views = {name: sorted(map(repr, wh.view(name).rows())) for name in wh.views}
    stats = wh.stats()
    errors = [(each.view, each.event, each.message, each.transaction) for each in wh.errors()]
    return {**views, "rows": stats.rows, "events": stats.events, "errors": errors}


def act(wh: Warehouse, seed: int) -> list[Any]:
    """Do a few random things; return what came of each."""
    choose = random.Random(seed)
    there: list[tuple[Any, ...]] = []
    story: list[Any] = []
    for _ in range(8):
        rows = [sale(choose) for _ in range(choose.randrange(12))]
        gone = [row for row in there if choose.random() < 0.3]
        owned = [(1, "owned", (choose.randrange(40), 1)) for _ in range(choose.randrange(3))]
        events = [*((1, "sales", row) for row in rows), *((-1, "sales", row) for row in gone), *owned]
        choose.shuffle(events)
        if choose.random() < 0.3:
            events.insert(choose.randrange(len(events) + 1), choose.choice(WRONG))
        per = choose.choice(("event", "call"))
        way = choose.choice(("tuples", "arrow", "list", "union", "trigger", "transaction"))
        try:
            match way:
                case "tuples":
                    wh.insert("sales", rows)
                    wh.delete("sales", gone)
                case "arrow":
                    wh.insert("sales", table(rows))
                    wh.delete("sales", table(gone))
                case "list":
                    wh.apply(events, per=per)
                case "union":
                    wh.apply(union([event for event in events if event not in WRONG]), per=per)
                case "trigger":
                    on = wh.trigger("sales")
                    for row in rows:
                        on(1, *row)
                    for row in gone:
                        on(-1, *row)
                case "transaction":
                    with wh.transaction():
                        wh.insert("sales", table(rows))
                        wh.apply([event for event in events if event[1] == "sales"])
        except CumulusError as problem:
            story.append((way, type(problem).__name__, str(problem)))
        story.append((way, seen(wh)))
        there = [row for row in there if row not in gone] + rows
    return story


def opened(engine: str) -> Warehouse:
    wh = Warehouse(SQL, engine=engine)
    wh.insert("kinds", KINDS)
    return wh


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
@pytest.mark.parametrize("seed", range(12))
def test_all_ways_in_are_one(seed: int) -> None:
    told = {engine: act(opened(engine), seed) for engine in ENGINES}
    for native, model in zip(told["native"], told["interpreter"], strict=True):
        assert native == model


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
def test_subscribers_are_told_of_every_transaction() -> None:
    stories = {}
    for engine in ENGINES:
        wh, told = opened(engine), []
        wh.subscribe("days", lambda rows, told=told: told.append(sorted(map(repr, rows))))
        stories[engine] = [act(wh, 3), told]
    assert stories["native"] == stories["interpreter"]
    assert stories["native"][1]


def test_a_static_table_is_closed_by_what_comes_past_python() -> None:
    wh = opened("native")
    on = wh.trigger("sales")
    on(1, *sale(random.Random(0)))
    with pytest.raises(CumulusError, match="static: sales has had events"):
        wh.insert("kinds", table([(9, "x")], {"k": pa.int32(), "name": pa.string()}))
    assert wh.stats().rows["kinds"] == 6


@pytest.mark.slow
def test_a_builtin_outlives_the_views_it_was_made_for_and_the_name_of_its_warehouse() -> None:
    wh = opened("native")
    on = wh.trigger("sales")
    on(1, *sale(random.Random(0)))
    wh.execute("CREATE VIEW more AS SELECT COUNT(*) AS n FROM owned")
    on(1, *sale(random.Random(1)))
    assert wh.stats().rows["sales"] == 2
    view = wh.view("days")
    del wh
    gc.collect()
    on(1, *sale(random.Random(2)))
    assert sum(row[-1] for row in view.rows()) == 3


def test_dates_that_python_does_not_have_are_refused() -> None:
    for engine in ENGINES:
        wh = opened(engine)
        day = pa.array([3_000_000], pa.int32()).cast(pa.date32())
        with pytest.raises(CumulusError, match=r"sales\.day"):
            wh.insert("sales", pa.table({"day": day, "unused": ["x"]}))
        assert wh.stats().rows["sales"] == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.table({"a": [1]}), "the columns sign and row"),
        (pa.table({"sign": [1], "row": [1]}), "the columns sign and row"),
    ],
)
def test_what_is_no_table_of_events_is_refused(data: pa.Table, message: str) -> None:
    with pytest.raises(CumulusError, match=message):
        opened("native").apply(data)


@pytest.mark.parametrize("per", ["call", "event"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_static_table_is_closed_by_what_comes_before_it_in_the_same_bulk(engine: str, per: str) -> None:
    wh = Warehouse(SQL, engine=engine)
    with pytest.raises(CumulusError, match="static: sales has had events"):
        wh.apply([(1, "sales", sale(random.Random(0))), (1, "owned", (1, 1)), (1, "kinds", (9, "x"))], per=per)
    assert wh.stats().rows == {"kinds": 0, "sales": int(per == "event"), "owned": int(per == "event")}


def test_a_table_that_is_checked_stays_so_when_a_view_makes_an_index() -> None:
    wh = opened("native")
    assert wh.apply([(1, "owned", (1, 1))]) == 1
    wh._state.session.engine.end("owned_rows", "max", 0, (1,), None)
    with pytest.raises(CumulusError, match="already"):
        wh.apply([(1, "owned", (1, 2))])


@pytest.mark.parametrize("null", ["", "NOT NULL"])
def test_numbers_of_two_words_in_tuples_are_read_by_code(null) -> None:
    sql = f"""
    CREATE TABLE r (id INT PRIMARY KEY, h HUGEINT {null}, d DECIMAL(30, 2) {null});
    CREATE VIEW by_h AS SELECT h, COUNT(*) AS n, SUM(d) AS s, MIN(d) AS least FROM r GROUP BY h;
    CREATE VIEW total AS SELECT SUM(h) AS s FROM r WHERE h > -1000;
    """
    wides = [0, 5, -5, 2**64, -(2**64), 10**30, 2**63, -(2**63)]
    rows = [
        (number, h, Decimal(d).scaleb(-2, Context(prec=50)))
        for number, (h, d) in enumerate((h, d) for h in wides for d in (0, -1, 10**27, 1 - 10**30))
    ]
    rows += [] if null else [(100, None, Decimal("1.00")), (101, 7, None), (102, None, None)]
    native, plain = (Warehouse(sql, engine=engine) for engine in ("native", "interpreter"))
    for wh in (native, plain):
        on = wh.trigger("r")
        for row in rows:
            on(1, *row)
        wh.delete("r", rows)
        wh.insert("r", rows[::-1])
        wh.apply([(-1, "r", row) for row in rows[::3]])
        on(1, *rows[0])
    for view in native.views:
        assert sorted(native.view(view).rows(), key=repr) == sorted(plain.view(view).rows(), key=repr)
    assert native.stats().stepped == 0
    for wrong in ((2**127, 0), (1.5, 0), (True, "x"), (0, Decimal("0.001")), (0, Decimal("1e29"))):
        with pytest.raises(CumulusError):
            native.trigger("r")(1, 500, *wrong)
