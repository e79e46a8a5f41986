"""Rows go in: every way in gives the same views, and a wrong one changes nothing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

import cumulus
from cumulus import errors, m3
from cumulus.compiler import compile_sql
from cumulus.warehouse.stats import Stats

SQL = """
CREATE TABLE customers (id INT PRIMARY KEY, nation VARCHAR NOT NULL);
CREATE TABLE orders (id INT PRIMARY KEY, customer INT NOT NULL, price DECIMAL(9,2),
                     FOREIGN KEY (customer) REFERENCES customers (id));
CREATE VIEW revenue AS SELECT c.nation, SUM(o.price) AS price, COUNT(*) AS n
    FROM customers c, orders o WHERE c.id = o.customer GROUP BY c.nation;
CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(price) AS price FROM orders;
"""


@pytest.fixture
def wh() -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(SQL)
    warehouse.insert("customers", [(1, "CH"), (2, "DE"), (3, "CH")])
    return warehouse


def sold(warehouse) -> set:
    return set(warehouse.view("revenue").rows())


def state(warehouse):
    engine = warehouse._state.session.engine
    return {each.name: sorted(map(repr, engine.stored(each.name))) for each in warehouse.program.maps}


def test_rows_may_be_tuples_dicts_or_arrow(wh) -> None:
    assert wh.insert("orders", [(1, 1, 10)]) == 1
    assert wh.insert("orders", [{"id": 2, "customer": 3, "price": Decimal("5.50")}]) == 1
    assert wh.insert("orders", pa.table({"price": [Decimal("1.25"), None], "id": [3, 4], "customer": [2, 2]})) == 2
    assert wh.insert("orders", wh.view("total").arrow().slice(0, 0).select([])) == 0
    assert sold(wh) == {("CH", Decimal("15.50"), 2), ("DE", Decimal("1.25"), 2)}
    assert wh.delete("orders", [(4, 2, None), (3, 2, Decimal("1.25"))]) == 2
    assert sold(wh) == {("CH", Decimal("15.50"), 2)}


def test_the_fast_path_and_events_one_by_one_do_what_insert_and_delete_do(wh) -> None:
    on = wh.trigger("orders")
    on(+1, 1, 1, Decimal("10.00"))
    on(+1, 2, 2, Decimal("2.00"))
    on(-1, 1, 1, Decimal("10.00"))
    assert wh.apply(iter([(1, "orders", (3, 1, 3)), (-1, "orders", (2, 2, 2))])) == 2
    assert sold(wh) == {("CH", Decimal("3.00"), 1)}


def test_update_and_upsert_replace_rows(wh) -> None:
    wh.insert("orders", [(1, 1, 10), (2, 2, 20)])
    assert wh.update("orders", [(1, 1, 10)], [(1, 2, 11)]) == 1
    assert sold(wh) == {("DE", Decimal("31.00"), 2)}
    assert wh.upsert("orders", [(2, 1, 21), (3, 3, 1), (3, 3, 2)]) == 3
    assert sold(wh) == {("DE", Decimal("11.00"), 1), ("CH", Decimal("23.00"), 2)}
    # A parent may be changed while it is referenced, if it is there again when the transaction ends.
    wh.upsert("customers", [(3, "FR")])
    assert sold(wh) == {("DE", Decimal("11.00"), 1), ("CH", Decimal("21.00"), 1), ("FR", Decimal("2.00"), 1)}
    assert wh.stats().rows == {"customers": 3, "orders": 3}


WRONG = [
    (lambda wh: wh.insert("orders", [(7, 1, 1), (8, 1)]), errors.ArityError),
    (lambda wh: wh.insert("orders", [(7, 1, 1), (8, 1, "x")]), errors.ValueTypeError),
    (lambda wh: wh.insert("orders", [(7, 1, 1), (8, None, 1)]), errors.NullError),
    (lambda wh: wh.insert("orders", [(7, 1, 1), (7, 2, 1)]), errors.DuplicateKeyError),
    (lambda wh: wh.insert("orders", [(7, 1, 1), (8, 9, 1)]), errors.OrphanError),
    (lambda wh: wh.delete("orders", [(1, 1, 10), (1, 1, 10)]), errors.AbsentRowError),
    (lambda wh: wh.delete("customers", [(3, "CH"), (1, "CH")]), errors.OrphanError),
    (lambda wh: wh.update("orders", [(1, 1, 10)], []), errors.UsageError),
    (lambda wh: wh.update("orders", [(5, 1, 10)], [(5, 1, 11)]), errors.AbsentRowError),
    (lambda wh: wh.apply([(2, "orders", (1, 1, 1))]), errors.UsageError),
    (lambda wh: wh.apply([(1, "orders")]), errors.UsageError),
    (lambda wh: wh.apply([(1, "orders", (7, 1, 1)), (1, "orders", (7, 1, 2))], per="call"), errors.DuplicateKeyError),
    (lambda wh: wh.apply([], per="row"), errors.UsageError),
    (lambda wh: wh.insert("nowhere", [(1,)]), errors.UnknownNameError),
    (lambda wh: wh.trigger("nowhere"), errors.UnknownNameError),
    (lambda wh: wh.view("nowhere"), errors.UnknownNameError),
    (lambda wh: wh.explain("nowhere"), errors.UnknownNameError),
    (lambda wh: wh.subscribe("nowhere", print), errors.UnknownNameError),
    (lambda wh: wh.query("SELECT * FROM nowhere"), errors.UsageError),
    (lambda wh: wh.query("SELEKT"), errors.UsageError),
    (lambda wh: wh.view("revenue").get(), errors.UsageError),
    (lambda wh: wh.view("total").get(1), errors.UsageError),
    (lambda wh: cumulus.Warehouse(SQL, keep="some"), errors.UsageError),
    (lambda wh: cumulus.Warehouse(SQL, engine="steam"), errors.UsageError),
    (lambda wh: cumulus.Warehouse(7), errors.UsageError),
]


def counts(wh: cumulus.Warehouse) -> Stats:
    """Return what is there, without its memory: looking for children makes an index, which stays."""
    return replace(wh.stats(), bytes=0, maps={})


@pytest.mark.parametrize(("call", "error"), WRONG)
def test_bad_input_is_one_named_error_and_changes_nothing(wh, call, error) -> None:
    wh.insert("orders", [(1, 1, 10)])
    before = state(wh), counts(wh)
    with pytest.raises(error) as caught:
        call(wh)
    assert "\n" in str(caught.value), "an error ends with a way out"
    assert (state(wh), counts(wh)) == before
    wh.insert("orders", [(7, 3, 1)])
    assert sold(wh) == {("CH", Decimal("11.00"), 2)}


def test_one_by_one_what_stands_before_a_wrong_event_stays(wh) -> None:
    with pytest.raises(errors.DuplicateKeyError):
        wh.apply([(1, "orders", (1, 1, 1)), (1, "orders", (1, 1, 2)), (1, "orders", (2, 1, 2))])
    assert sold(wh) == {("CH", Decimal("1.00"), 1)}


def test_upsert_says_what_it_lacks() -> None:
    warehouse = cumulus.Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    with pytest.raises(errors.UsageError, match="has none"):
        warehouse.upsert("r", [(1,)])
    warehouse = cumulus.Warehouse(SQL, keep="none")
    with pytest.raises(errors.UsageError, match="not kept"):
        warehouse.upsert("orders", [(1, 1, 1)])


def test_a_transaction_is_all_or_nothing_and_reads_see_the_state_before_it(wh) -> None:
    with wh.transaction():
        wh.insert("orders", [(1, 5, 10)])  # its customer comes later
        wh.insert("customers", [(5, "FR")])
        assert sold(wh) == set()
    assert sold(wh) == {("FR", Decimal("10.00"), 1)}
    before = state(wh)
    with pytest.raises(errors.OrphanError), wh.transaction():  # noqa: PT012
        wh.delete("orders", [(1, 5, 10)])
        wh.insert("orders", [(2, 6, 10)])
    assert state(wh) == before
    with pytest.raises(RuntimeError, match="mine"), wh.transaction():  # noqa: PT012
        wh.delete("orders", [(1, 5, 10)])
        raise RuntimeError("mine")
    assert state(wh) == before
    with pytest.raises(errors.UsageError, match="open already"), wh.transaction(), wh.transaction():
        pass
    with pytest.raises(errors.ValueTypeError), wh.transaction():
        wh.insert("orders", [(1, 1, "wrong at once, not at the end")])
    wh.upsert("orders", [(1, 5, 11)])
    assert sold(wh) == {("FR", Decimal("11.00"), 1)}


def test_static_tables_are_loaded_first() -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE nations (id INT, name VARCHAR) WITH (static = true); CREATE TABLE c (nation INT);"
        "CREATE VIEW v AS SELECT n.name, COUNT(*) AS n FROM nations n, c WHERE n.id = c.nation GROUP BY n.name"
    )
    warehouse.insert("nations", [(1, "CH"), (2, "DE")])
    with pytest.raises(errors.StaticTableError, match="do not go"):
        warehouse.delete("nations", [(1, "CH")])
    with pytest.raises(errors.StaticTableError, match="c has had events"), warehouse.transaction():  # noqa: PT012
        warehouse.insert("c", [(1,)])
        warehouse.insert("nations", [(3, "FR")])
    warehouse.insert("nations", [(3, "FR")])  # nothing of the transaction counts
    warehouse.insert("c", [(1,), (3,), (3,)])
    with pytest.raises(errors.StaticTableError, match="c has had events"):
        warehouse.insert("nations", [(4, "IT")])
    assert set(warehouse.view("v").rows()) == {("CH", 1), ("FR", 2)}


def test_negative_multiplicities_are_not_shown_but_counted_and_healed() -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY a"
    )
    warehouse.delete("r", [(1, 5)])
    assert warehouse.view("v").rows() == []
    assert warehouse.stats().negative == 1
    warehouse.insert("r", [(1, 7)])
    assert (warehouse.view("v").rows(), warehouse.stats().negative) == ([], 0)
    warehouse.insert("r", [(1, 5)])
    assert warehouse.view("v").rows() == [(1, 7, 1)]


def test_a_warehouse_is_made_from_sql_a_file_or_a_program(tmp_path) -> None:
    (tmp_path / "w.sql").write_text(SQL)
    (tmp_path / "w.m3").write_text(str(compile_sql(SQL)))
    made = [
        cumulus.Warehouse(tmp_path / "w.sql"),
        cumulus.Warehouse(tmp_path / "w.m3"),
        cumulus.Warehouse(compile_sql(SQL)),
        cumulus.Warehouse(cumulus.compile(SQL)),
    ]
    for warehouse in made:
        warehouse.insert("customers", [(1, "CH")])
        warehouse.insert("orders", [(1, 1, 10)])
        assert sold(warehouse) == {("CH", Decimal("10.00"), 1)}
        assert warehouse.tables == ("customers", "orders")
        assert warehouse.views == ("revenue", "total")
        assert m3.parse(warehouse.m3) == m3.parse(str(warehouse.program))
    with pytest.raises(errors.InputError):
        cumulus.Warehouse(tmp_path / "missing.sql")
    with pytest.raises(errors.SqlError):
        cumulus.Warehouse("CREATE TABEL r (a INT)")


def test_a_program_may_call_functions_of_your_own() -> None:
    program = m3.parse(
        "RELATION p(id INT NOT NULL, prop DOUBLE NOT NULL);"
        "MAP q[id INT](n BIGINT); MAP s[id INT, prop DOUBLE](n BIGINT);"
        "VIEW pairs(id INT, n BIGINT) FROM q SELECT id, n;"
        "ON +p(id, prop) { q[id] += SUM[](s[id2, prop2] * {id <> id2} * {0.9 <= score(prop, prop2)});"
        "                  s[id, prop] += 1 }"
    )
    warehouse = cumulus.Warehouse(program, functions={"score": lambda a, b: 1 - abs(a - b)})
    warehouse.insert("p", [(1, 0.5), (2, 0.55), (3, 0.7), (4, 0.52)])
    assert warehouse.view("pairs").rows() == [(2, 1), (4, 2)]
