"""Enforced references: parents that change under their children, beside DuckDB after every transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.catalog.events import UPSERT
from cumulus.compiler import compile_sql
from cumulus.errors import AbsentRowError, DuplicateKeyError, OrphanError
from support.engines import chosen
from support.oracle import Oracle, same_bag

pytestmark = pytest.mark.usefixtures("each_engine")

SHOP = """
CREATE TABLE customers (id INT PRIMARY KEY, city VARCHAR, discount INT);
CREATE TABLE orders (
    id INT PRIMARY KEY, customer INT, price INT, FOREIGN KEY (customer) REFERENCES customers (id));
CREATE TABLE lines (
    id INT, number INT, amount INT, PRIMARY KEY (id, number), FOREIGN KEY (id) REFERENCES orders (id));
CREATE VIEW cities AS
    SELECT city, SUM(amount * (price - discount)) AS s, COUNT(*) AS n
    FROM customers c, orders o, lines l WHERE c.id = o.customer AND o.id = l.id GROUP BY city;
CREATE VIEW known AS SELECT COUNT(*) AS n FROM customers c JOIN orders o ON c.id = o.customer;
CREATE VIEW dear AS
    SELECT city, MAX(price) AS most FROM orders o LEFT JOIN customers c ON c.id = o.customer GROUP BY city;
CREATE VIEW idle AS
    SELECT COUNT(*) AS n FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id);
CREATE VIEW pairs AS
    SELECT a.city, COUNT(*) AS n FROM customers a, orders o, orders p, customers b
    WHERE a.id = o.customer AND o.price < p.price AND p.customer = b.id AND a.discount <= b.discount GROUP BY a.city;
"""
DIAMOND = """
CREATE TABLE tops (id INT PRIMARY KEY, x INT);
CREATE TABLE lefts (id INT PRIMARY KEY, top INT NOT NULL, x INT, FOREIGN KEY (top) REFERENCES tops (id));
CREATE TABLE rights (id INT PRIMARY KEY, top INT, x INT, FOREIGN KEY (top) REFERENCES tops (id));
CREATE TABLE ends (
    id INT PRIMARY KEY, l INT, r INT, x INT,
    FOREIGN KEY (l) REFERENCES lefts (id), FOREIGN KEY (r) REFERENCES rights (id));
CREATE VIEW same AS
    SELECT t.x, SUM(e.x * l.x + r.x) AS s FROM tops t, lefts l, rights r, ends e
    WHERE t.id = l.top AND t.id = r.top AND l.id = e.l AND r.id = e.r GROUP BY t.x;
CREATE VIEW two AS
    SELECT COUNT(*) AS n, MIN(u.x - t.x) AS low FROM tops t, tops u, lefts l, rights r, ends e
    WHERE t.id = l.top AND u.id = r.top AND l.id = e.l AND r.id = e.r;
"""
PAIRS = """
CREATE TABLE places (country VARCHAR, code INT, size INT, PRIMARY KEY (country, code));
CREATE TABLE trips (
    id INT PRIMARY KEY, country VARCHAR, start INT, stop INT NOT NULL, x INT,
    FOREIGN KEY (country, start) REFERENCES places (country, code),
    FOREIGN KEY (country, stop) REFERENCES places (country, code));
CREATE VIEW sizes AS
    SELECT a.size, SUM(b.size * t.x) AS s FROM places a, places b, trips t
    WHERE t.country = a.country AND t.start = a.code AND t.country = b.country AND t.stop = b.code GROUP BY a.size;
"""
STAFF = """
CREATE TABLE staff (id INT PRIMARY KEY, boss INT, pay INT, FOREIGN KEY (boss) REFERENCES staff (id));
CREATE TABLE tasks (id INT PRIMARY KEY, who INT, hours INT, FOREIGN KEY (who) REFERENCES staff (id));
CREATE VIEW costs AS
    SELECT b.id, SUM(s.pay * t.hours) AS c FROM staff b, staff s, tasks t
    WHERE b.id = s.boss AND s.id = t.who GROUP BY b.id;
"""
BAG = """
CREATE TABLE days (id INT PRIMARY KEY, rate INT);
CREATE TABLE sales (day INT, x INT, FOREIGN KEY (day) REFERENCES days (id)) WITH (keep = all);
CREATE VIEW turnover AS SELECT rate, SUM(x) AS s, COUNT(*) AS n FROM days, sales WHERE day = id GROUP BY rate;
"""
STATIC = """
CREATE TABLE regions (id INT PRIMARY KEY, name VARCHAR) WITH (static = true);
CREATE TABLE nations (id INT PRIMARY KEY, region INT, FOREIGN KEY (region) REFERENCES regions (id))
    WITH (static = true);
CREATE TABLE people (id INT PRIMARY KEY, nation INT, FOREIGN KEY (nation) REFERENCES nations (id));
CREATE VIEW counts AS
    SELECT name, COUNT(*) AS n FROM regions r, nations n, people p
    WHERE r.id = n.region AND n.id = p.nation GROUP BY name;
"""


class Beside:
    """A warehouse and DuckDB, which are compared after each transaction."""

    def __init__(self, sql: str) -> None:
        self.warehouse = Warehouse(sql, engine=chosen())
        bare = re.sub(r",\s*(FOREIGN KEY \([^)]*\) REFERENCES \w+|PRIMARY KEY) \([^)]*\)| PRIMARY KEY", "", sql)
        bare = re.sub(r" REFERENCES \w+ \([^)]*\)| WITH \([^)]*\)", "", bare)
        self.oracle = Oracle(bare)
        self.keys = {each.name: each.key_positions for each in self.warehouse.program.relations}

    def run(self, *events: tuple[int, str, tuple[Any, ...]]) -> None:
        """Apply events as one transaction, rows by their keys among them."""
        if any(sign == UPSERT for sign, _, _ in events):
            with self.warehouse.transaction():
                for sign, table, row in events:
                    by_sign = {1: self.warehouse.insert, -1: self.warehouse.delete, UPSERT: self.warehouse.upsert}
                    by_sign[sign](table, [row])
        else:
            self.warehouse.apply(events, per="call")
        self.follow(*events)

    def call(self, what: Callable[..., Any], table: str, *given: Any) -> None:
        """Do something whose effect DuckDB is told by the rows that are kept."""
        what(table, *given)
        self.oracle.database.execute(f"DELETE FROM {table}")
        for row in self.warehouse.query(f"SELECT * FROM {table}").rows():
            self.oracle.apply(1, table, row)
        self.check()

    def follow(self, *events: tuple[int, str, tuple[Any, ...]]) -> None:
        for sign, table, row in events:
            if sign == UPSERT:
                for old in self.oracle.rows(f"FROM {table}"):
                    if all(old[place] == row[place] for place in self.keys[table]):
                        self.oracle.apply(-1, table, old)
            self.oracle.apply(1 if sign > 0 else -1, table, row)
        self.check()

    def check(self) -> None:
        for view in self.warehouse.views:
            ours, theirs = self.warehouse.view(view).rows(), self.oracle.rows(f"FROM {view}")
            assert same_bag(ours, theirs), (view, ours, theirs)

    def is_refused(self, error: type[Exception], *events: tuple[int, str, tuple[Any, ...]]) -> str:
        """Return what is said of events that are refused, all of them."""
        with pytest.raises(error) as told:
            self.warehouse.apply(events, per="call")
        self.check()
        return str(told.value)

    def end(self) -> None:
        self.check()
        report = self.warehouse.recheck(maps=True)
        assert report.is_equal, report


def shop() -> Beside:
    made = Beside(SHOP)
    made.run(*((1, "customers", row) for row in [(1, "Rome", 1), (2, "Oslo", 0), (3, "Rome", 2)]))
    made.run(*((1, "orders", row) for row in [(10, 1, 7), (11, 1, 5), (12, 2, 9), (13, None, 4)]))
    made.run(*((1, "lines", row) for row in [(10, 1, 2), (10, 2, 1), (11, 1, 3), (12, 1, 1), (13, 1, 5)]))
    return made


def references(sql: str) -> list[bool]:
    return [key.enforced for table in compile_sql(sql).relations for key in table.foreign_keys]


def test_references_are_enforced_where_both_tables_are_kept_and_make_no_circle() -> None:
    assert references(SHOP) == [True, True]
    assert references(DIAMOND) == [True, True, True, True]
    assert references(PAIRS) == [True, True]
    assert references(BAG) == [True]
    assert references(BAG.replace(" WITH (keep = all)", "")) == [False]
    assert references(BAG.replace("rate INT)", "rate INT) WITH (changes = often)")) == [False]
    assert references(STAFF) == [False, True]
    assert references(STATIC) == [False, True]


def test_a_parent_changes_under_its_children() -> None:
    made, old = shop(), (1, "Rome", 1)
    for change in [(1, "Oslo", 1), (1, "Rome", 5), (1, None, None), (1, "Bern", 0)]:
        made.run((-1, "customers", old), (1, "customers", change))
        made.run((UPSERT, "customers", old))
        made.call(made.warehouse.update, "customers", [old], [change])
        made.call(made.warehouse.update, "customers", 1, {"city": "Rome"})
        made.call(made.warehouse.upsert, "customers", [old])
    made.end()


def test_parents_of_parents_change_in_one_transaction() -> None:
    made = shop()
    made.run(
        (-1, "orders", (10, 1, 7)),
        (-1, "customers", (1, "Rome", 1)),
        (1, "customers", (1, "Oslo", 3)),
        (1, "lines", (11, 2, 8)),
        (1, "orders", (10, 2, 8)),
        (UPSERT, "orders", (11, 1, 6)),
    )
    made.end()


def test_keys_change_and_children_follow_in_any_order() -> None:
    made = shop()
    made.run(
        (-1, "customers", (1, "Rome", 1)),
        (-1, "orders", (10, 1, 7)),
        (1, "orders", (10, 4, 7)),
        (UPSERT, "orders", (11, 4, 5)),
        (1, "customers", (4, "Rome", 1)),
    )
    made.run(
        (1, "lines", (20, 1, 2)),
        (-1, "orders", (10, 4, 7)),
        (-1, "lines", (10, 1, 2)),
        (1, "lines", (20, 2, 1)),
        (1, "orders", (20, 4, 7)),
        (-1, "lines", (10, 2, 1)),
    )
    made.end()


def test_parents_come_after_their_children() -> None:
    made = Beside(SHOP)
    made.run(
        (1, "lines", (10, 1, 2)),
        (1, "orders", (10, 1, 7)),
        (1, "lines", (10, 2, 3)),
        (1, "orders", (11, 1, 9)),
        (1, "customers", (1, "Rome", 1)),
        (1, "lines", (11, 1, 3)),
    )
    made.end()


def test_static_parents_come_after_their_children() -> None:
    made = Beside(STATIC)
    made.run((1, "nations", (1, 7)), (1, "nations", (2, 7)), (1, "regions", (7, "Asia")), (1, "people", (1, 2)))
    made.run((UPSERT, "people", (1, 1)), (1, "people", (2, 2)))
    made.end()


def test_other_events_come_while_a_parent_is_away() -> None:
    made = shop()
    made.run(
        (-1, "customers", (1, "Rome", 1)),
        (1, "customers", (5, "Oslo", 1)),
        (1, "orders", (15, 5, 8)),
        (1, "orders", (16, 1, 6)),
        (-1, "orders", (11, 1, 5)),
        (-1, "lines", (11, 1, 3)),
        (1, "customers", (1, "Rome", 0)),
    )
    made.end()


def test_parents_go_before_or_after_their_children() -> None:
    orders, lines = [(10, 1, 7), (11, 1, 5)], [(10, 1, 2), (10, 2, 1), (11, 1, 3)]
    events = [(-1, "customers", (1, "Rome", 1)), *((-1, "orders", each) for each in orders)]
    events += [(-1, "lines", each) for each in lines]
    made = shop()
    for order in (events, events[::-1], events[2:] + events[:2]):
        made.run(*order)
        made.run(*((1, table, row) for _, table, row in order))
    made.end()


def test_many_parents_change_at_once() -> None:
    made = Beside(SHOP)
    made.run(*((1, "customers", (each, f"c{each % 5}", each % 3)) for each in range(40)))
    made.run(*((1, "orders", (each, each % 37, each % 11)) for each in range(90)))
    made.run(*((1, "lines", (each % 80, each, each % 7)) for each in range(150)))
    for shift in (1, 2):
        rows = [(each, f"c{(each + shift) % 5}", each % 4) for each in range(0, 50, shift)]
        made.call(made.warehouse.upsert, "customers", rows)
        made.call(made.warehouse.upsert, "orders", [(each, (each + shift) % 40, each % 10) for each in range(60)])
        made.run(*((UPSERT, "customers", (each, "c1", shift)) for each in range(7)))
    made.end()


def test_a_diamond_changes_at_its_top_and_at_its_sides() -> None:
    made = Beside(DIAMOND)
    made.run((1, "tops", (1, 10)), (1, "tops", (2, 20)))
    made.run(*((1, "lefts", row) for row in [(1, 1, 3), (2, 2, 4)]))
    made.run(*((1, "rights", row) for row in [(1, 1, 5), (2, 2, 6), (3, None, 7)]))
    made.run(*((1, "ends", row) for row in [(1, 1, 1, 2), (2, 2, 2, 3), (3, 1, 2, 5), (4, 2, 3, 1), (5, None, 1, 1)]))
    made.run((-1, "tops", (1, 10)), (1, "tops", (1, 20)))
    made.run((UPSERT, "tops", (2, 30)), (UPSERT, "lefts", (1, 2, 8)))
    made.run((UPSERT, "rights", (3, 1, 1)), (UPSERT, "tops", (1, 30)), (UPSERT, "rights", (1, None, 5)))
    made.run((-1, "tops", (2, 30)), (UPSERT, "ends", (1, 2, 3, 9)), (1, "tops", (2, 5)))
    made.end()


def test_keys_of_two_columns_and_two_references_to_one_parent() -> None:
    made = Beside(PAIRS)
    made.run(*((1, "places", row) for row in [("it", 1, 5), ("it", 2, 7), ("no", 1, 2)]))
    made.run(*((1, "trips", row) for row in [(1, "it", 1, 2, 1), (2, "it", 1, 1, 2), (3, None, 9, 9, 3)]))
    made.run((1, "trips", (4, "no", None, 1, 4)), (1, "trips", (5, "no", 1, 1, 5)))
    made.run((-1, "places", ("it", 1, 5)), (1, "places", ("it", 1, 6)))
    made.run((UPSERT, "places", ("no", 1, 6)), (UPSERT, "trips", (4, "no", 1, 1, 4)))
    made.run((-1, "places", ("it", 2, 7)), (UPSERT, "trips", (1, "it", 3, 1, 1)), (1, "places", ("it", 3, 1)))
    assert "trips would refer to places" in made.is_refused(OrphanError, (-1, "places", ("it", 3, 1)))
    made.end()


def test_a_row_refers_to_its_own_table() -> None:
    made = Beside(STAFF)
    made.run((1, "staff", (2, 1, 5)), (1, "tasks", (1, 2, 3)), (1, "staff", (1, 1, 9)), (1, "staff", (3, 2, 4)))
    made.run((1, "tasks", (2, 3, 2)), (1, "tasks", (3, None, 2)), (1, "tasks", (4, 1, 1)))
    made.run((-1, "staff", (2, 1, 5)), (1, "staff", (2, 1, 6)))
    made.run((UPSERT, "staff", (1, None, 8)), (UPSERT, "staff", (2, 3, 6)))
    made.run((-1, "staff", (1, None, 8)), (-1, "tasks", (4, 1, 1)))
    made.end()


def test_equal_children_move_together() -> None:
    made = Beside(BAG)
    made.run((1, "days", (1, 10)), *((1, "sales", (1, 4)) for _ in range(3)), (1, "sales", (1, 5)))
    made.run((-1, "days", (1, 10)), (1, "days", (1, 20)))
    made.run(
        (-1, "days", (1, 20)), (-1, "sales", (1, 4)), (1, "sales", (1, 4)), (1, "sales", (None, 4)), (1, "days", (1, 5))
    )
    made.run((UPSERT, "days", (1, 6)), (-1, "sales", (1, 4)))
    made.end()


REFUSED: Sequence[tuple[type[Exception], tuple[tuple[int, str, tuple[Any, ...]], ...]]] = [
    (OrphanError, ((-1, "customers", (1, "Rome", 1)),)),
    (OrphanError, ((-1, "customers", (1, "Rome", 1)), (-1, "orders", (10, 1, 7)))),
    (OrphanError, ((-1, "customers", (1, "Rome", 1)), (1, "customers", (9, "Rome", 1)))),
    (OrphanError, ((1, "orders", (20, 9, 1)), (1, "customers", (8, "Rome", 1)))),
    (OrphanError, ((1, "orders", (20, 9, 1)), (1, "customers", (9, "Rome", 1)), (-1, "customers", (9, "Rome", 1)))),
    (AbsentRowError, ((-1, "customers", (1, "Rome", 1)), (-1, "customers", (1, "Rome", 1)))),
    (AbsentRowError, ((-1, "customers", (1, "Rome", 1)), (-1, "orders", (10, 1, 8)))),
    (DuplicateKeyError, ((-1, "customers", (1, "Rome", 1)), (1, "orders", (10, None, 7)))),
    (DuplicateKeyError, ((1, "customers", (1, "Oslo", 1)),)),
]


def test_what_is_refused_leaves_nothing() -> None:
    """And it is refused in the words in which it is without enforced references."""
    made = shop()
    other = Warehouse(compile_sql(SHOP, enforced=False), engine="interpreter")
    for name in ("customers", "orders", "lines"):
        other.insert(name, made.oracle.rows(f"FROM {name}"))
    for error, events in REFUSED:
        with pytest.raises(error) as before:
            other.apply(events, per="call")
        assert made.is_refused(error, *events) == str(before.value)
    made.end()


def test_a_single_parent_with_children_stays() -> None:
    made = shop()
    made.run(*((1, "orders", (100 + each, 2, each)) for each in range(20)))
    for key, row in ((1, (1, "Rome", 1)), (2, (2, "Oslo", 0))):
        for what, *given in (
            (made.warehouse.delete, "customers", [row]),
            (made.warehouse.delete_by_key, "customers", key),
            (made.warehouse.trigger("customers"), -1, *row),
            (made.warehouse.apply, [(-1, "customers", row)]),
            (made.warehouse.update, "customers", key, {"id": 7}),
            (made.warehouse.update, "customers", [row], [(7, "Rome", 1)]),
        ):
            with pytest.raises(OrphanError, match=f"orders would refer to customers with id={key}"):
                what(*given)
            made.check()
    made.end()


def test_subscribers_are_told_the_net_change_once() -> None:
    made = shop()
    told: list[Any] = []
    for view in ("known", "cities", "dear"):
        made.warehouse.subscribe(view, told.append)
    made.run((-1, "customers", (1, "Rome", 1)), (1, "customers", (1, "Rome", 2)))
    ((change,),) = told
    assert (change.old, change.new) == (("Rome", 30, 3), ("Rome", 24, 3))
    made.run((-1, "customers", (1, "Rome", 2)), (1, "customers", (1, "Rome", 2)))
    assert len(told) == 1
    assert made.warehouse.transaction_number == 5


def test_what_is_moved_counts_as_no_event() -> None:
    made = shop()
    before = made.warehouse.stats().events
    made.run((-1, "customers", (1, "Rome", 1)), (1, "customers", (1, "Rome", 2)))
    assert made.warehouse.stats().events == before + 2
