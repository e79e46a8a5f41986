"""Warehouses filled with rows that are there from the start: what inserting them one by one gives."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from cumulus import Warehouse, errors
from support.oracle import Oracle, same_bag
from support.random_sql import scripts
from support.random_tables import SCHEMA, streams
from support.tiers import examples, one_mode_each, sampled

ENGINES = ("native", "interpreter")
WAYS = ("auto", "sql", "replay")
SHOP = """
CREATE TABLE kinds (k INT NOT NULL, name VARCHAR) WITH (static = true);
CREATE TABLE customers (cid BIGINT PRIMARY KEY, name VARCHAR);
CREATE TABLE orders (oid BIGINT PRIMARY KEY, cid BIGINT REFERENCES customers, k INT, price DECIMAL(9, 2) NOT NULL);
CREATE VIEW spent AS SELECT c.name, SUM(price) AS s, COUNT(*) AS n FROM orders JOIN customers c USING (cid)
  GROUP BY c.name;
CREATE VIEW dear AS SELECT kinds.name, MAX(price) AS most, COUNT(k) AS n FROM orders JOIN kinds USING (k)
  WHERE price * 2 > 3 GROUP BY kinds.name;
CREATE VIEW above AS SELECT COUNT(*) AS n FROM orders WHERE price > (SELECT AVG(price) FROM orders);
"""
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "kinds": [(1, "one"), (2, None), (2, None)],
    "customers": [(1, "Ann"), (2, None), (3, "Ann")],
    "orders": [
        (1, 1, 1, Decimal("1.50")),
        (2, None, 2, Decimal("2.50")),
        (3, 2, None, Decimal("7.00")),
        (4, 3, 2, Decimal("0.00")),
        (5, 1, 9, Decimal("-3.25")),
    ],
}


def state(warehouse: Warehouse) -> dict[str, Any]:
    """Return all that a user can see, and what the maps hold."""
    stats = warehouse.stats()
    maps = {each.name: dict(warehouse._state.session.engine.stored(each.name)) for each in warehouse.program.maps}
    return {
        "maps": maps,
        "rows": stats.rows,
        "events": stats.events,
        "entries": stats.entries,
        "errors": [tuple(each) for each in warehouse.errors()],
        "views": {name: sorted(warehouse.view(name).rows(), key=repr) for name in warehouse.views},
    }


def inserted(sql: str, rows: dict[str, Any], **options: Any) -> Warehouse:
    """Return a warehouse that has had the rows as one transaction."""
    warehouse = Warehouse(sql, **options)
    warehouse.apply([(1, name, row) for name, each in rows.items() for row in each], per="call")
    return warehouse


@pytest.mark.parametrize(("way", "engine"), one_mode_each(WAYS, ENGINES))
@pytest.mark.parametrize("keep", ["auto", "all"])
def test_a_filled_warehouse_is_what_insertions_make_and_goes_on_alike(engine, way, keep) -> None:
    expected = inserted(SHOP, ROWS, engine=engine, keep=keep)
    filled = Warehouse(SHOP, engine=engine, keep=keep)
    backwards = {name: ROWS[name] for name in reversed(ROWS)}
    told = filled.fill(backwards, way=way)
    assert (told.rows, told.way) == (11, "sql" if way == "sql" else "replay")
    assert state(filled) == state(expected)
    for warehouse in (filled, expected):
        warehouse.insert("orders", [(6, 3, 1, 5)])
        warehouse.delete("orders", ROWS["orders"][:3])
        with pytest.raises(errors.OrphanError):
            warehouse.delete("customers", [(1, "Ann")])
        with pytest.raises(errors.StaticTableError):
            warehouse.insert("kinds", [(7, "late")])
        warehouse.delete("orders", [(4, 3, 2, 0), (5, 1, 9, Decimal("-3.25")), (6, 3, 1, 5)])
        warehouse.delete("customers", ROWS["customers"])
    assert state(filled) == state(expected)
    assert filled.view("spent").rows() == []


@settings(max_examples=examples(12), deadline=None)
@given(scripts(), streams(max_size=20), streams(max_size=5))
def test_filling_is_inserting_whatever_the_views(script, before, later) -> None:
    oracle = Oracle(SCHEMA)
    rows: dict[str, list[Any]] = {}
    for _, name, row in before:
        rows.setdefault(name, []).append(row)
        oracle.apply(1, name, row)
    for engine in ENGINES:
        expected = inserted(SCHEMA + script, rows, engine=engine, keep="all")
        for way in ("sql", "replay"):
            filled = Warehouse(SCHEMA + script, engine=engine, keep="all")
            told = filled.fill(rows, way=way)
            assert (told.way == "sql") <= (way == "sql")
            assert filled.stats().entries == expected.stats().entries, told
            for view, select in views_of(script).items():
                assert same_bag(filled.view(view).rows(), expected.view(view).rows())
                if not expected.errors(view):
                    assert same_bag(filled.view(view).rows(), oracle.rows(select))
            assert [tuple(each) for each in filled.errors()] == [tuple(each) for each in expected.errors()]
            fresh = inserted(SCHEMA + script, rows, engine=engine, keep="all")
            deletions = [(-1, name, row) for name, each in rows.items() for row in each]
            for warehouse in (filled, fresh):
                warehouse.apply([event for event in later if event[0] > 0], per="call")
                warehouse.apply(deletions, per="call")
            for view in filled.views:
                assert same_bag(filled.view(view).rows(), fresh.view(view).rows())


def views_of(script: str) -> dict[str, str]:
    """Return the SELECT of each view."""
    from cumulus.workloads import checks

    return checks.views(script)


TABLES = {
    "r": [(1, 10, 2), (1, 5, 0), (None, None, 7), (2, 2**62, 4)],
    "s": [(1, "x"), (2, None)],
}
ERRING = """
CREATE TABLE r (a INT, x BIGINT, y BIGINT);
CREATE TABLE s (a INT NOT NULL, t VARCHAR);
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("view", "way"),
    [
        ("SELECT a, SUM(x) AS s FROM r GROUP BY a", "sql"),
        ("SELECT SUM(x // y) AS s FROM r", "replay"),  # NULL in DuckDB, where y is 0
        ("SELECT COUNT(*) AS n FROM r WHERE x * y > 3", "replay"),  # beyond BIGINT
        ("SELECT SUM(CAST(x AS DOUBLE)) AS s FROM r", "replay"),
        ("SELECT t, COUNT(*) AS n FROM r JOIN s USING (a) GROUP BY t", "sql"),
        ("SELECT MIN(x) AS least, MAX(y) AS most FROM r", "sql"),
        ("SELECT AVG(x) AS mean FROM r WHERE x > (SELECT AVG(y) FROM r)", "sql"),
    ],
)
def test_what_sql_would_do_otherwise_is_replayed(engine, view, way) -> None:
    sql = f"{ERRING} CREATE VIEW v AS {view}"
    expected = inserted(sql, TABLES, engine=engine)
    filled = Warehouse(sql, engine=engine)
    told = filled.fill(TABLES, way="sql")
    assert (told.way, bool(told.why)) == (way, way == "replay")
    assert state(filled) == state(expected)
    for warehouse in (filled, expected):
        warehouse.apply([(-1, name, row) for name, each in TABLES.items() for row in each], per="call")
    assert state(filled)["views"] == state(expected)["views"]
    assert filled.errors().count == expected.errors().count


@pytest.mark.parametrize(("way", "engine"), one_mode_each(WAYS, ENGINES))
@pytest.mark.parametrize(
    ("table", "rows", "error"),
    [
        ("orders", [(1, 1, 1, 5), (1, 2, 2, 6)], errors.DuplicateKeyError),
        ("orders", [(1, 7, 1, 5)], errors.OrphanError),
        ("orders", [(1, 1, 1, None)], errors.NullError),
        ("orders", [(1, 1, 1, "much")], errors.ValueTypeError),
        ("orders", [(1, 1, 1)], errors.ArityError),
        ("orders", pa.table({"nope": [1]}), errors.ArityError),
        ("customers", pa.table({"cid": [1, 1], "name": ["a", "b"]}), errors.DuplicateKeyError),
    ],
)
def test_rows_that_are_refused_leave_it_empty_and_usable(engine, way, table, rows, error) -> None:
    customers = {"customers": ROWS["customers"], table: rows}
    with pytest.raises(error) as refused:
        Warehouse(SHOP, engine=engine).insert(table, rows) if table == "customers" else _step_by_step(customers, engine)
    filled = Warehouse(SHOP, engine=engine)
    empty = state(filled)
    with pytest.raises(error) as told:
        filled.fill(customers, way=way)
    assert str(told.value) == str(refused.value)
    assert state(filled) == empty
    assert filled.fill(ROWS, way=way).rows == 11
    assert state(filled) == state(inserted(SHOP, ROWS, engine=engine))


def _step_by_step(tables: dict[str, Any], engine: str) -> None:
    warehouse = Warehouse(SHOP, engine=engine)
    for name, rows in tables.items():
        warehouse.insert(name, rows)


def test_only_an_empty_warehouse_is_filled() -> None:
    warehouse = Warehouse(SHOP)
    assert warehouse.fill({}).rows == 0
    assert warehouse.fill({"orders": [], "customers": pa.table({"cid": pa.array([], pa.int64())})}).rows == 0
    with pytest.raises(errors.UnknownNameError, match="no table nope"):
        warehouse.fill({"nope": []})
    with pytest.raises(errors.UsageError, match="by their names"):
        warehouse.fill([(1, "Ann")])
    with pytest.raises(errors.UsageError, match="way="):
        warehouse.fill({}, way="quick")
    with pytest.raises(errors.UsageError, match="a transaction is open"), warehouse.transaction():
        warehouse.fill({"customers": [(1, "Ann")]})
    warehouse.insert("customers", [(1, "Ann")])
    warehouse.delete("customers", [(1, "Ann")])
    with pytest.raises(errors.UsageError, match="has had 2 events"):
        warehouse.fill({"customers": [(1, "Ann")]})


@pytest.mark.parametrize(("way", "engine"), one_mode_each(WAYS, ENGINES))
def test_subscribers_hear_of_it_once(engine, way) -> None:
    heard: list[list[Any]] = []
    warehouse = Warehouse(SHOP, engine=engine)
    warehouse.subscribe("spent", heard.append)
    warehouse.subscribe("above", heard.append)
    warehouse.fill(ROWS, way=way)
    spent, above = heard
    assert sorted(spent, key=repr) == [(None, ("Ann", Decimal("-1.75"), 3)), (None, (None, Decimal("7.00"), 1))]
    assert above == [((0,), (2,))]
    warehouse.delete("orders", [ROWS["orders"][2]])
    assert heard[2] == [((None, Decimal("7.00"), 1), None)]


@pytest.mark.parametrize(("way", "engine"), one_mode_each(WAYS, ENGINES))
def test_what_there_is_no_memory_for_is_refused(engine, way) -> None:
    sql = "CREATE TABLE r (a BIGINT NOT NULL); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a"
    warehouse = Warehouse(sql, engine=engine, memory_limit=2_000_000)
    with pytest.raises(errors.MemoryLimitError, match="cannot grow"), pytest.warns(errors.MemoryLimitWarning):
        warehouse.fill({"r": pa.table({"a": range(200_000)})}, way=way)
    assert warehouse.stats().events == 0
    assert warehouse.view("v").rows() == []
    warehouse.fill({"r": [(1,), (1,)]}, way=way)
    assert warehouse.view("v").rows() == [(1, 2)]


@pytest.mark.parametrize("engine", ENGINES)
def test_views_that_are_computed_again(engine) -> None:
    sql = SHOP.replace("VIEW above AS", "VIEW above WITH (order = 0) AS")
    for way in WAYS:
        filled = Warehouse(sql, engine=engine)
        filled.fill(ROWS, way=way)
        assert state(filled) == state(inserted(sql, ROWS, engine=engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_parents_that_come_after_their_children(engine) -> None:
    sql = """
        CREATE TABLE staff (id BIGINT PRIMARY KEY, boss BIGINT REFERENCES staff);
        CREATE VIEW v AS SELECT boss, COUNT(*) AS n FROM staff GROUP BY boss;
    """
    rows = {"staff": [(1, 2), (2, 3), (3, None), (4, 2)]}
    for way in WAYS:
        filled = Warehouse(sql, engine=engine)
        filled.fill(rows, way=way)
        assert state(filled) == state(inserted(sql, rows, engine=engine))
        with pytest.raises(errors.OrphanError):
            Warehouse(sql, engine=engine).fill({"staff": [(1, 2), (3, 9)]}, way=way)


RANGES = """
CREATE TABLE b (k INT, p {type}, q INT NOT NULL);
CREATE TABLE c (p {other}, w INT);
CREATE VIEW v AS SELECT k, COUNT(*) AS n, SUM(q) AS s FROM b
  WHERE 9 {op} (SELECT SUM(w) FROM c WHERE c.p {op} b.p) GROUP BY k;
CREATE VIEW w AS SELECT SUM(q) AS s FROM b b1
  WHERE (SELECT COUNT(*) FROM b b2 WHERE b1.p {op} b2.p AND b2.q > 1) > 2;
"""


@pytest.mark.slow
@pytest.mark.parametrize("op", sampled(["<", "<=", ">", ">="], of=4, first=3))
def test_sums_over_ranges_by_sql(op) -> None:
    choose = random.Random(op)
    for kind, other in (("INT", "INT"), ("DECIMAL(5, 1)", "INT"), ("DATE", "DATE")):
        sql = RANGES.format(type=kind, other=other, op=op)

        def point(of: str) -> Any:
            number = choose.randrange(8)
            whole = {"INT": number, "DATE": f"2026-01-0{number + 1}"}.get(of, Decimal(2 * number + 1) / 2)
            return None if choose.random() < 0.1 else whole

        rows: dict[str, Any] = {
            "b": [(choose.randrange(3), point(kind), choose.randrange(4)) for _ in range(60)],
            "c": [(point(other), choose.randrange(-2, 4)) for _ in range(40)],
        }
        oracle = Oracle(sql.partition("CREATE VIEW")[0])
        for name, each in rows.items():
            for row in each:
                oracle.apply(1, name, row)
        for engine in ENGINES:
            filled = Warehouse(sql, engine=engine)
            assert filled.fill(rows, way="sql").way == "sql"
            assert state(filled) == state(inserted(sql, rows, engine=engine))
            for name, select in views_of(sql).items():
                assert same_bag(filled.view(name).rows(), oracle.rows(select))


@pytest.mark.parametrize("engine", sampled(ENGINES, of=2, first=ENGINES.index("interpreter")))
def test_sql_fills_where_triggers_would_loop_over_much(engine) -> None:
    choose = random.Random(engine)
    sql = """
        CREATE TABLE b (k INT NOT NULL, p INT NOT NULL);
        CREATE VIEW v AS SELECT k, SUM(p) AS s FROM b
          WHERE 0.3 * (SELECT SUM(p) FROM b) > (SELECT SUM(p) FROM b b2 WHERE b2.p > b.p) GROUP BY k;
    """
    count = 8_000 if engine == "native" else 1_500
    keys, points = ([choose.randrange(end) for _ in range(count)] for end in (9, count // 3))
    table = pa.table({"k": pa.array(keys, pa.int64()), "p": pa.array(points, pa.int16())})
    filled = Warehouse(sql, engine=engine)
    told = filled.fill({"b": table})
    assert (told.rows, told.way) == (count, "sql")
    again = Warehouse(sql)
    again.fill({"b": table}, way="replay")
    assert state(filled) == state(again)
