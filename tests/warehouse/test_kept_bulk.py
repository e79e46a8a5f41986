"""Kept tables in bulk: machine code checks keys and references, and refuses what the interpreter refuses."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cumulus import Warehouse
from cumulus.errors import CumulusError, DuplicateKeyError, OrphanError
from support.tiers import sampled

SQL = """
CREATE TABLE towns (town VARCHAR PRIMARY KEY, size HUGEINT) WITH (static = true);
CREATE TABLE owners (id BIGINT PRIMARY KEY, name VARCHAR);
CREATE TABLE shops (no SMALLINT, rent DECIMAL(9, 2), town VARCHAR REFERENCES towns (town), owner INT,
  PRIMARY KEY (town, no), FOREIGN KEY (owner) REFERENCES owners (id));
CREATE TABLE sales (day DATE, no BIGINT, town VARCHAR, amount DECIMAL(25, 2),
  FOREIGN KEY (no, town) REFERENCES shops (no, town)) WITH (keep = all);
CREATE TABLE people (id INT PRIMARY KEY, boss BIGINT REFERENCES people (id), weight DOUBLE);
CREATE TABLE visits (person SMALLINT, at TIMESTAMP, FOREIGN KEY (person) REFERENCES people (id) RELY)
  WITH (keep = all);
CREATE TABLE tags (tag VARCHAR, person INT REFERENCES people (id), PRIMARY KEY (tag, person));
CREATE TABLE free (x INT);
CREATE VIEW rents AS SELECT name, SUM(rent) AS rent, COUNT(*) AS n FROM shops, owners WHERE owner = id GROUP BY name;
CREATE VIEW days AS SELECT day, town, SUM(amount) AS amount, COUNT(no) AS n FROM sales GROUP BY day, town;
CREATE VIEW bosses AS SELECT boss, SUM(weight) AS weight, COUNT(*) AS n FROM people GROUP BY boss;
CREATE VIEW shares AS SELECT person, COUNT(*) AS n, SUM(1 // (person - 3)) AS s FROM visits GROUP BY person;
CREATE VIEW frees AS SELECT x, COUNT(*) AS n FROM free, tags WHERE x = person GROUP BY x;
"""
TYPES: dict[str, dict[str, pa.DataType]] = {
    "towns": {"town": pa.string(), "size": pa.decimal128(38, 0)},
    "owners": {"id": pa.int64(), "name": pa.string()},
    "shops": {"no": pa.int16(), "rent": pa.decimal128(9, 2), "town": pa.string(), "owner": pa.int32()},
    "sales": {"day": pa.date32(), "no": pa.int64(), "town": pa.string(), "amount": pa.decimal128(25, 2)},
    "people": {"id": pa.int32(), "boss": pa.int64(), "weight": pa.float64()},
    "visits": {"person": pa.int16(), "at": pa.timestamp("us")},
    "tags": {"tag": pa.string(), "person": pa.int32()},
    "free": {"x": pa.int32()},
}
TOWNS = [("a", 1), ("é", 10**30), ("", 3)]
ENGINES = ("native", "interpreter")
Event = tuple[int, str, tuple[Any, ...]]


def row_of(choose: random.Random, table: str) -> tuple[Any, ...]:
    """Return a row; values are few, so that rows meet."""

    def or_null(value: Any) -> Any:
        return None if choose.random() < 0.2 else value

    town, number = choose.choice(("a", "é", "", "z")), choose.randrange(3)
    match table:
        case "owners":
            return number, choose.choice(("x", None))
        case "shops":
            return number, Decimal(choose.randrange(3)).scaleb(-2), town, or_null(choose.randrange(3))
        case "sales":
            amount = Decimal(choose.randrange(2)).scaleb(-2)
            return dt.date(2026, 1, 1 + choose.randrange(2)), or_null(number), or_null(town), or_null(amount)
        case "people":
            return choose.randrange(5), or_null(choose.randrange(5)), choose.choice((0.5, -0.0, 0.0, float("nan")))
        case "visits":
            return or_null(choose.randrange(5)), dt.datetime(2026, 1, 1, choose.randrange(2))
        case "tags":
            return choose.choice("tu"), choose.randrange(5)
        case _:
            return (choose.randrange(5),)


def table_of(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    types = TYPES[name]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(types)
    return pa.table({each: pa.array(c, t) for (each, t), c in zip(types.items(), columns, strict=True)})


def union_of(events: list[Event]) -> pa.Table:
    """Return events as Arrow has them."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TYPES}
    codes, offsets = [], []
    for _, name, row in events:
        codes.append(list(TYPES).index(name))
        offsets.append(len(rows[name]))
        rows[name].append(row)
    children = [
        pa.StructArray.from_arrays([column.combine_chunks() for column in made.columns], names=list(made.column_names))
        for made in (table_of(name, rows[name]) for name in TYPES)
    ]
    row = pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children, list(TYPES))
    return pa.table({"sign": pa.array([sign for sign, _, _ in events], pa.int8()), "row": row})


def number(value: Any) -> Any:
    """Return a number in one form, however many zeros it is written with."""
    return value if isinstance(value, float) else Decimal(value).normalize() + 0


def seen(wh: Warehouse) -> dict[str, Any]:
    """Return everything that both engines must have alike."""
    engine, stats = wh._state.session.engine, wh.stats()
    maps = {
        each.name: sorted(repr((key, *map(number, values))) for key, values in engine.items(each.name))
        for each in wh._state.session.program.maps
    }
    errors = [(each.view, each.event, each.message, each.transaction) for each in wh.errors()]
    return {**maps, "rows": stats.rows, "events": stats.events, "negative": stats.negative, "errors": errors}


def act(wh: Warehouse, seed: int) -> list[Any]:
    """Do a few random things; return what came of each."""
    choose = random.Random(seed)
    names = [name for name in TYPES if name != "towns"]
    there: list[tuple[str, tuple[Any, ...]]] = []
    story: list[Any] = []
    wild = choose.choice((0.02, 0.3))
    for _ in range(24):
        events: list[Event] = []
        for _ in range(choose.randrange(1, 12)):
            if there and choose.random() < 0.4:
                events.append((-1, *choose.choice(there)))
            else:
                name = choose.choice(names if choose.random() < 0.7 else ["people", "owners"])
                events.append((1, name, row_of(choose, name)))
        if choose.random() < 0.3:  # a family comes or goes, in any order
            sign = -1 if ("people", FAMILY[0]) in there else 1
            events = [(sign, "people", row) for row in choose.sample(FAMILY, len(FAMILY))]
        if choose.random() < wild:
            events.insert(choose.randrange(len(events)), choose.choice(WRONG))
        right = [event for event in events if len(event[2]) == len(TYPES[event[1]])]
        sign, name, _ = choose.choice(right)
        rows = [row for s, n, row in right if (s, n) == (sign, name)]
        per, way = choose.choice(("event", "call")), choose.choice(WAYS)
        try:
            match way:
                case "tuples" | "arrow":
                    (wh.insert if sign > 0 else wh.delete)(name, rows if way == "tuples" else table_of(name, rows))
                case "list":
                    wh.apply(events, per=per)
                case "union":
                    wh.apply(union_of(right), per=per)
                case "trigger":
                    for each_sign, each, row in events:
                        wh.trigger(each)(each_sign, *row)
                case "upsert" | "upsert arrow" if wh._state.session.relations[name].key and name != "towns":
                    wh.upsert(name, rows if way == "upsert" else table_of(name, rows))
                case "update":
                    old = [row for each, row in there if each == name][: len(rows)]
                    wh.update(name, old, rows[: len(old)])
                case _:
                    with wh.transaction():
                        wh.insert("free", [(1,)])
                        wh.apply(right)
                        if name not in ("towns", "sales", "visits", "free"):
                            wh.upsert(name, rows)
        except CumulusError as problem:
            told = getattr(problem, "relation", None), repr(getattr(problem, "row", None))
            story.append((way, per, type(problem).__name__, str(problem), *told))
        story.append((way, per, repr(events), seen(wh)))
        kept = {
            name: wh._state.session.engine.items(map_)
            for name, map_ in wh._state.session.program.kept
            if name != "towns"
        }
        there = sorted(((name, row) for name, found in kept.items() for row, _ in found), key=repr)
    return story


FAMILY = [(number, 5 + (number - 5) // 2, 0.5) for number in range(5, 10)]
WRONG: list[Event] = [(1, "shops", (1,)), (1, "towns", ("y", 1)), (-1, "towns", ("a", 1))]
WAYS = (
    "tuples",
    "arrow",
    "list",
    "list",
    "union",
    "union",
    "trigger",
    "upsert",
    "upsert arrow",
    "update",
    "transaction",
)


def opened(engine: str) -> Warehouse:
    wh = Warehouse(SQL, engine=engine)
    wh.insert("towns", table_of("towns", [(town, Decimal(size)) for town, size in TOWNS]))
    return wh


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
@pytest.mark.parametrize("seed", sampled(range(40), of=4))
def test_all_ways_in_refuse_alike(seed: int) -> None:
    told = {engine: act(opened(engine), seed) for engine in ENGINES}
    for native, model in zip(told["native"], told["interpreter"], strict=True):
        assert native == model


@pytest.mark.filterwarnings("ignore::cumulus.errors.EvaluationWarning")
def test_subscribers_of_kept_tables_are_told_alike() -> None:
    stories = {}
    for engine in ENGINES:
        wh, told = opened(engine), []
        for view in ("bosses", "rents"):
            wh.subscribe(view, lambda rows, told=told: told.append(sorted(map(repr, rows))))
        stories[engine] = [act(wh, 7), told]
    assert stories["native"] == stories["interpreter"]
    assert stories["native"][1]


PEOPLE: list[tuple[Any, ...]] = [(0, None, 1.0), *((number, number // 2, 1.0) for number in range(1, 200))]


@pytest.mark.parametrize("way", ["tuples", "arrow", "list", "union", "trigger"])
def test_events_of_kept_tables_stay_in_code(way: str) -> None:
    wh = opened("native")
    for sign, rows in ((1, PEOPLE), (-1, PEOPLE[::-1]), (1, PEOPLE)):
        events: list[Event] = [(sign, "people", row) for row in rows]
        match way:
            case "tuples" | "arrow":
                (wh.insert if sign > 0 else wh.delete)("people", rows if way == "tuples" else table_of("people", rows))
            case "list":
                wh.apply(events)
            case "union":
                wh.apply(union_of(events))
            case _:
                on = wh.trigger("people")
                for row in rows:
                    on(sign, *row)
    assert wh.stats().rows["people"] == 200
    assert (wh.stats().stepped, wh.stats().events) == (0, 603)
    with pytest.raises(DuplicateKeyError, match="id=5"):
        wh.apply([(1, "people", (200, 5, 1.0)), (1, "people", (5, 5, 1.0)), (1, "people", (201, 5, 1.0))])
    assert (wh.stats().stepped, wh.stats().events) == (0, 604)


def test_what_python_took_is_still_counted_when_views_have_changed() -> None:
    wh = opened("native")
    wh.apply([(1, "people", [1, None, 0.0]), (1, "people", (2, None, 0.0))])  # the first row is a list
    wh.execute("CREATE VIEW more AS SELECT COUNT(*) AS n FROM people")
    assert (wh.stats().stepped, wh.stats().events) == (1, len(TOWNS) + 2)


@pytest.mark.parametrize("way", ["tuples", "arrow", "update", "transaction"])
def test_rows_are_replaced_in_code(way: str) -> None:
    wh = opened("native")
    wh.insert("people", PEOPLE[:100])
    new = [(number, None if number % 3 else number // 2, 2.0 if number % 2 else 1.0) for number in range(150)]
    match way:
        case "tuples" | "arrow":
            assert wh.upsert("people", new if way == "tuples" else table_of("people", new)) == 150
        case "update":
            wh.update("people", PEOPLE[:100], new[:100])
            wh.insert("people", new[100:])
        case _:
            with wh.transaction():
                wh.delete("people", PEOPLE[:100])
                wh.insert("people", table_of("people", new))
    assert sorted(row for row, _ in wh._state.session.engine.items("people_rows")) == sorted(new)
    assert wh.stats().rows["people"] == 150
    assert wh.stats().stepped == 0
    if way in ("tuples", "arrow"):
        same = sum(row in PEOPLE[:100] for row in new)
        assert wh.stats().events == len(TOWNS) + 100 + 2 * (100 - same) + 50


@pytest.mark.parametrize("engine", ENGINES)
def test_references_need_only_hold_when_the_call_is_done(engine: str) -> None:
    wh = opened(engine)
    wh.insert("people", table_of("people", PEOPLE[::-1]))  # children first
    assert wh.stats().rows["people"] == 200
    with pytest.raises(OrphanError, match="people would refer to people with id=500"):
        wh.insert("people", table_of("people", [(201, 202, 0.0), (203, 500, 0.0), (202, 204, 0.0), (204, 600, 0.0)]))
    wh.delete("people", table_of("people", PEOPLE))  # parents first
    assert wh.stats().rows["people"] == 0
    assert engine == "interpreter" or wh.stats().stepped == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_event_that_is_wrong_at_the_end_is_told_whoever_took_it(engine: str) -> None:
    wh = opened(engine)
    wh.insert("people", [(1, None, 0.0)])
    events = [(1, "people", (2, 1, 0.0)), (-1, "people", [1, None, 0.0])]  # Python takes the list
    with pytest.raises(OrphanError) as told:
        wh.apply(events, per="call")
    assert told.value.row == (2, 1, 0.0)
    assert wh.stats().rows["people"] == 1


def test_a_trusted_reference_must_hold_at_every_event() -> None:
    for engine in ENGINES:
        wh = opened(engine)
        with pytest.raises(OrphanError):
            wh.apply([(1, "visits", (1, dt.datetime(2026, 1, 1))), (1, "people", (1, None, 0.0))], per="call")
        assert wh.stats().events == len(TOWNS)
