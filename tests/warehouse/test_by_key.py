"""Rows are deleted and changed by their primary keys, in any form a key may have, in and out of transactions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus import errors

SQL = """
CREATE TABLE t (Id INTEGER PRIMARY KEY, owner VARCHAR NOT NULL, x DECIMAL(9, 2));
CREATE TABLE c (a INTEGER, b VARCHAR, n INTEGER, PRIMARY KEY (b, a));
CREATE TABLE free (x INTEGER);
CREATE VIEW v AS SELECT id, owner, x FROM t ORDER BY id;
CREATE VIEW w AS SELECT * FROM c ORDER BY b, a;
"""


@pytest.fixture(params=["native", "interpreter"])
def wh(request) -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(SQL, engine=request.param)
    warehouse.insert("t", [(n, "o", n) for n in (1, 2, 3)])
    warehouse.insert("c", [(1, "x", 0), (2, "x", 0), (1, "y", 0)])
    return warehouse


def ids(wh) -> list:
    return [row[0] for row in wh.view("v").rows()]


def test_an_interval_is_one_value() -> None:
    wh = cumulus.Warehouse(
        "CREATE TABLE t (i INTERVAL PRIMARY KEY, x INT); CREATE VIEW v AS SELECT i, SUM(x) AS x FROM t GROUP BY i"
    )
    wh.insert("t", [(dt.timedelta(days=n), n) for n in range(3)])
    one, two = sorted(row[0] for row in wh.view("v").rows())[1:]
    wh.update("t", one, {"x": 10})
    assert wh.view("v").get(one) == (one, 10)
    wh.delete_by_key("t", [one, two])
    assert [x for _, x in wh.view("v").rows()] == [0]


@pytest.mark.parametrize(
    "keys",
    [
        [1, 2],
        [(1,), [2]],
        [{"ID": 1}, "2"],
        {"id": [1, 2]},
        (n for n in (1, 2)),
        np.array([1, 2]),
        pd.Series([1, 2]),
        pl.Series([1, 2]),
        pa.array([1, 2]),
        pd.DataFrame({"Id": [0, 1, 2]})[1:],
        pa.table({"id": [1, 2]}),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_come_in_any_form(keys) -> None:
    wh = cumulus.Warehouse(SQL)
    wh.insert("t", [(n, "o", n) for n in (1, 2, 3)])
    assert wh.delete_by_key("T", keys) == 2
    assert ids(wh) == [3]


def test_a_key_alone_and_keys_of_several_columns(wh) -> None:
    assert wh.delete_by_key("t", 1) == wh.delete_by_key("t", {"id": 2}) == 1
    assert ids(wh) == [3]
    assert wh.delete_by_key("c", ("x", 1)) == 1  # in the order of the key
    assert wh.delete_by_key("c", [("x", 2), {"A": 1, "b": "y"}]) == 2
    assert wh.view("w").rows() == []
    assert wh.delete_by_key("t", []) == 0


def test_columns_of_rows_are_changed_by_key(wh) -> None:
    assert wh.update("t", 1, {"owner": "me"}) == 1
    assert wh.update("T", [2, 3], {"OWNER": "you", "x": "7.5"}) == 2
    assert wh.update("t", 3, {"id": 9, "x": None}) == 1
    assert wh.view("v").rows() == [(1, "me", Decimal("1.00")), (2, "you", Decimal("7.50")), (9, "you", None)]
    assert wh.update("c", ("y", 1), {"n": 5}) == 1
    assert wh.view("w").rows()[2] == (1, "y", 5)
    told: list = []
    wh.subscribe("v", told.append)
    assert wh.update("t", 1, {"owner": "me"}) == 1  # what it is already
    assert not told


def test_in_a_transaction_keys_mean_the_rows_that_are_there_by_then(wh) -> None:
    with wh.transaction():
        wh.insert("t", [(9, "new", 1)])
        wh.update("t", 9, {"owner": "newer"})
        wh.delete_by_key("t", [1])
        wh.upsert("t", [(1, "again", 0)])
        wh.update("t", [1, 2], {"x": 3})
        wh.delete_by_key("t", 3)
    three = Decimal("3.00")
    assert wh.view("v").rows() == [(1, "again", three), (2, "o", three), (9, "newer", Decimal("1.00"))]
    with pytest.raises(errors.AbsentRowError, match="t has no row with Id=1"), wh.transaction():  # noqa: PT012
        wh.delete_by_key("t", 1)
        wh.delete_by_key("t", 1)
    assert ids(wh) == [1, 2, 9]


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda wh: wh.delete_by_key("t", [1, 9]), errors.AbsentRowError, "t has no row with Id=9"),
        (lambda wh: wh.delete_by_key("t", [1, 1]), errors.AbsentRowError, "t has no row with Id=1"),
        (lambda wh: wh.update("t", [1, 9], {"x": 1}), errors.AbsentRowError, "t has no row with Id=9"),
        (lambda wh: wh.update("t", 1, {"id": 2}), errors.DuplicateKeyError, "t has a row with Id=2 already"),
        (lambda wh: wh.update("t", 1, {"owner": None}), errors.NullError, "t.owner is NULL"),
        (lambda wh: wh.update("t", 1, {"z": 1}), errors.ArityError, "t has no column 'z'"),
        (lambda wh: wh.update("t", 1, {"x": "?"}), errors.ValueTypeError, "t.x DECIMAL"),
        (lambda wh: wh.update("t", 1, {}), errors.UsageError, "no column of t gets a value"),
        (lambda wh: wh.delete_by_key("t", (1, 2)), errors.ArityError, r"the key of t is \(Id\).*\nSeveral keys are a"),
        (lambda wh: wh.delete_by_key("t", {"id": 1, "x": 2}), errors.ArityError, "the key of t has no column 'x'"),
        (lambda wh: wh.delete_by_key("t", None), errors.NullError, "the key of t.Id is NULL"),
        (lambda wh: wh.delete_by_key("t", ["x"]), errors.ValueTypeError, "the key of t.Id INTEGER: 'x'"),
        (lambda wh: wh.delete_by_key("free", 1), errors.UsageError, "needs a primary key, and free has none"),
        (lambda wh: wh.delete("t", [{"id": 1}]), errors.NullError, "owner, x of t are not given\n.*delete_by_key"),
        (
            lambda wh: wh.delete("t", [{"id": 1, "owner": "o"}]),
            errors.AbsentRowError,
            "x of t is not given\n.*delete_by_key",
        ),
        (
            lambda wh: wh.delete("t", pd.DataFrame({"id": [1]})),
            errors.NullError,
            "owner, x of t are .*\n.*delete_by_key",
        ),
        (lambda wh: wh.delete("t", [(1, "o", 5)]), errors.AbsentRowError, "no row .* to delete\nDelete rows as they"),
        (lambda wh: wh.insert("t", [{"id": 7}]), errors.NullError, r"the row \{'id': 7\} has no t.owner"),
    ],
)
def test_what_cannot_be_done_by_key_is_told_and_changes_nothing(wh, call, error, told) -> None:
    before = wh.view("v").rows(), wh.stats()
    with pytest.raises(error, match=told):
        call(wh)
    assert (wh.view("v").rows(), wh.stats()) == before


def test_rows_that_are_not_kept_have_no_keys() -> None:
    wh = cumulus.Warehouse(SQL, keep="none")
    for call in (lambda: wh.delete_by_key("t", 1), lambda: wh.update("t", 1, {"x": 2})):
        with pytest.raises(errors.UsageError, match="the rows of t are not kept"):
            call()


CHANGES = st.lists(
    st.tuples(st.sampled_from(["upsert", "delete", "update"]), st.integers(0, 4), st.integers(0, 3)), max_size=12
)


@settings(max_examples=30, deadline=None)
@given(changes=CHANGES, in_one=st.booleans())
def test_changes_by_key_do_to_a_table_what_they_do_to_a_dict(changes, in_one) -> None:
    wh = cumulus.Warehouse(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, x INTEGER); CREATE VIEW v AS SELECT k, x FROM t", engine="interpreter"
    )
    rows: dict[int, int] = {}

    def apply() -> None:
        for kind, key, value in changes:
            if kind == "upsert":
                wh.upsert("t", [(key, value)])
                rows[key] = value
            elif key in rows and kind == "delete":
                wh.delete_by_key("t", key)
                del rows[key]
            elif key in rows:
                wh.update("t", key, {"x": value})
                rows[key] = value

    if in_one:
        with wh.transaction():
            apply()
    else:
        apply()
    assert dict(wh.view("v").rows()) == rows
