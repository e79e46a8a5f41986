"""The client of a server has the face of the cluster's client, and gets the errors that the server has told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cumulus import between, connect, errors
from support.http_server import Running, running

ROWS = [
    (1, "ASIA", Decimal("1.50"), dt.date(1994, 1, 1)),
    (2, "ASIA", Decimal("2.25"), dt.date(1995, 1, 1)),
    (3, None, Decimal("4.00"), None),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served")) as found:
        yield found


def test_rows_come_and_go_and_views_are_read_after_them(server: Running) -> None:
    with server.client() as client:
        assert client.views == ("sales", "days", "total")
        assert client.tables == ("orders",)
        token = client.insert("Orders", ROWS)
        assert token.rows == 3
        answer = client.view("sales", after=token)
        assert answer.at == token.at
        assert answer.rows() == [("ASIA", 2, Decimal("3.75"), 1.875), (None, 1, Decimal("4.00"), 4.0)]
        assert client.get("sales", "ASIA").row == ("ASIA", 2, Decimal("3.75"), 1.875)
        assert client.get("sales", None).row == (None, 1, Decimal("4.00"), 4.0)
        assert client.get("sales", "EUROPE").row is None
        assert client.slice("days", day=dt.date(1995, 1, 1)).rows() == [(dt.date(1995, 1, 1), 1)]
        early = client.view("days", where={"day": between(None, dt.date(1994, 6, 1))}, columns=["n"])
        assert early.arrow().to_pydict() == {"n": [1]}
        asked = client.query("SELECT SUM(n) AS n FROM sales WHERE region = ?", ["ASIA"])
        assert (asked.rows(), asked.at) == ([(2,)], token.at)
        after = client.upsert("orders", [(3, "ASIA", 1, None)])
        assert client.get("total", after=after).row == (Decimal("4.75"),)
        with client.transaction() as transaction:
            transaction.delete("orders", [*ROWS[:2], (3, "ASIA", 1, None)])
            transaction.insert("orders", [(9, "AFRICA", 1, None)])
            transaction.delete("orders", [(9, "AFRICA", 1, None)])
        assert transaction.token is not None
        assert transaction.token.at == after.at + 1
        assert client.view("sales").rows() == []


@pytest.mark.parametrize("form", [pa.Table.from_pydict, pd.DataFrame, pl.DataFrame, dict])
def test_rows_of_any_form_go_in(server: Running, form: object) -> None:
    assert callable(form)
    columns = {"region": ["é", 'say "x"'], "id": [11, 12], "amount": [1.5, 2.0], "day": [dt.date(2000, 1, 1), None]}
    with server.client() as client:
        assert client.insert("orders", form(columns)).rows == 2
        assert client.get("sales", "é").row == ("é", 1, Decimal("1.50"), 1.5)
        client.delete("orders", form(columns))
        assert client.get("sales", "é").row is None


def test_errors_are_those_of_the_warehouse(server: Running) -> None:
    with server.client() as client:
        with pytest.raises(errors.UnknownNameError, match="there is no view nothing") as unknown:
            client.view("nothing")
        assert unknown.value.hint == "Views: sales, days, total."
        with pytest.raises(errors.UnknownNameError, match="there is no table nothing"):
            client.insert("nothing", [(1,)])
        with pytest.raises(errors.ValueTypeError, match=r"orders\.amount"):
            client.insert("orders", [(1, "x", "much", None)])
        with pytest.raises(errors.ValueTypeError, match=r"orders\.id") as wrong:
            client.insert("orders", pa.table({"id": ["x"], "region": ["x"]}))
        assert wrong.value.relation == "orders"
        client.insert("orders", ROWS)
        with pytest.raises(errors.DuplicateKeyError):
            client.insert("orders", ROWS[:1])
        client.delete("orders", ROWS)
        with pytest.raises(errors.AbsentRowError):
            client.delete("orders", ROWS[:1])
        with pytest.raises(errors.UsageError, match="this is DROP"):
            client.query("DROP VIEW sales")
        with pytest.raises(errors.UsageError, match="2 values were given"):
            client.get("sales", 1, 2)
        with pytest.raises(errors.UsageError, match="unknown read"):
            client.view("sales", "soon")


def test_a_client_says_what_it_has_not_reached(server: Running) -> None:
    nowhere = connect("http://127.0.0.1:1", timeout_s=0.2)
    with pytest.raises(errors.NotRunningError, match="cumulus serve"):
        nowhere.view("sales")
    client = server.client()
    client.close()
    with pytest.raises(errors.ClosedError):
        client.view("sales")
    with server.client(timeout_s=0.5) as client, pytest.raises(errors.DelayError):
        client.view("sales", after=10**9)
