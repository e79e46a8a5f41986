"""Warehouses from frames and from paths, and what is said of what is none."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cumulus
from cumulus import errors, m3

ORDERS = pd.DataFrame({"Id": [1, 2, 3], "Customer": ["a", "b", "a"], "price": [1.5, None, 2.0]})
SQL = "CREATE TABLE t (id INTEGER PRIMARY KEY, k VARCHAR); CREATE VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k"


def test_tables_are_declared_as_the_frames_say_and_filled(tmp_path) -> None:
    pq.write_table(pa.table({"day": [dt.date(2024, 1, 31)]}), tmp_path / "days.parquet")
    schema = pa.schema([pa.field("name", pa.string(), nullable=False), pa.field("n", pa.uint64())])
    wh = cumulus.Warehouse.from_frames(
        {
            "Orders": ORDERS[ORDERS.Id > 1],
            "customers": pl.DataFrame({"name": ["a", "b"], "limit": [Decimal("1.50"), None]}).lazy(),
            "names": pa.table({"name": ["a"], "n": pa.array([1], pa.uint64())}, schema=schema),
            "sums": ORDERS.groupby("Customer").sum(numeric_only=True),
            "days": tmp_path / "days.parquet",
            "dicts": [{"q": 1}, {"q": None}],
            "columns": {"k": pd.Series(["x"]).astype("category")},
        },
        "CREATE VIEW Revenue AS SELECT name, SUM(price) AS Total FROM orders JOIN customers ON customer = name"
        " GROUP BY name ORDER BY name DESC",
        keys={"orders": "id", "names": ["NAME"]},
        keep="all",
    )
    assert wh.view("revenue").arrow().to_pylist() == [{"name": "b", "Total": None}, {"name": "a", "Total": 2.0}]
    assert wh.m3.splitlines()[:7] == [
        "RELATION Orders(Id BIGINT NOT NULL, Customer VARCHAR, price DOUBLE) KEY (Id) KEPT Orders_rows;",
        "RELATION customers(name VARCHAR, limit DECIMAL(38,2)) KEPT customers_rows;",
        "RELATION names(name VARCHAR NOT NULL, n HUGEINT) KEY (name) KEPT names_rows;",
        "RELATION sums(Customer VARCHAR, Id BIGINT, price DOUBLE) KEPT sums_rows;",
        "RELATION days(day DATE) KEPT days_rows;",
        "RELATION dicts(q BIGINT) KEPT dicts_rows;",
        "RELATION columns(k VARCHAR) KEPT columns_rows;",
    ]
    assert wh.delete_by_key("ORDERS", 2) == 1
    assert wh.recheck().is_equal


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (None, "frames are given by the names of their tables"),
        ({"a": {"x": [None]}}, "a.x is null"),
        ({"a": {"x": [[1]]}}, r"a.x is list<"),
        ({"a": {"x": [1, "b"]}}, "the dict for a says no types"),
        ({"a": [(1,)]}, "the list for a says no types"),
        ({"a": None}, "the NoneType for a says no types"),
        ({"a": pd.DataFrame()}, "the frame for a has no columns"),
        ({"a": pd.concat([ORDERS, ORDERS], axis=1)}, "Duplicate column names"),
        ({"a": "a.csv"}, "only a Parquet file says the types"),
        ({"a": "a.parquet"}, "there is no such file"),
        ({"a": {"x": [1], "X": [2]}}, "a has two columns called x"),
        ({"a": {"x": [1]}, "A": {"x": [1]}}, "A is there already"),
    ],
)
def test_what_is_no_frame_says_so(frames, told) -> None:
    with pytest.raises(errors.CumulusError, match=told):
        cumulus.Warehouse.from_frames(frames, "")


def test_a_text_that_is_a_path_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my views.sql").write_text(SQL)
    (tmp_path / "views").write_text(SQL)
    (tmp_path / "program.m3").write_text(cumulus.Warehouse(SQL).m3)
    for source in ("my views.sql", "views", "program.m3", str(tmp_path / "my views.sql")):
        assert cumulus.Warehouse(source).views == ("v",)
    assert cumulus.compile("my views.sql").view("v").name == "v"
    (tmp_path / "only.sql").write_text("CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    assert cumulus.Warehouse.from_frames({"r": {"a": [1, 2]}}, "only.sql").view("v").rows() == [(2,)]
    for source in ("nowhere.sql", "nowhere.m3"):
        with pytest.raises(errors.InputError, match=f"there is no file {source}"):
            cumulus.Warehouse(source)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (pickle.dumps, "save\\(\\) it to a folder"),
        (copy.deepcopy, "save\\(\\) it to a folder"),
        (copy.copy, "save\\(\\) it to a folder"),
        (lambda wh: wh.apply(None), "events are no NoneType"),
        (lambda wh: wh.apply("ab", per="call"), "events are no str"),
        (lambda wh: wh.apply([None]), "None is no event"),
        (lambda wh: wh.apply([(1, ["t"], (1, "a"))]), "no table"),
        (lambda wh: wh.insert("t", [{1, "a"}]), "must be a tuple, a list or a dict"),
        (lambda wh: wh.query(None), "None is no query"),
        (lambda wh: wh.query(" "), "' ' is no query"),
        (lambda wh: wh.execute(None), "statements are SQL"),
        (
            lambda wh: wh.execute("CREATE VIEW w AS\nSELECT k || '\ud83d' AS k FROM t"),
            r"2:14: '\\ud83d' is half a char",
        ),
        (lambda wh: wh.save(None), "a folder is given by its path"),
        (lambda wh: cumulus.Warehouse.load(None), "a folder is given by its path"),
        (lambda wh: cumulus.Warehouse(SQL, functions=5), "no list of functions"),
        (lambda wh: cumulus.Warehouse.from_frames({"a": {"x": [1]}}, "", keys="x"), "keys are given by the names"),
        (lambda wh: cumulus.Warehouse.from_frames({"a": {"x": [1]}}, "", keys={"a": 5}), "a column or several, not 5"),
        (
            lambda wh: cumulus.Warehouse.from_frames({"a": {"x": [1]}}, "", keys={"a": "x", "A": "x"}),
            "named twice in keys: a, A",
        ),
        (lambda wh: wh.changes("v", timeout="x"), "timeout='x'"),
        (lambda wh: wh.changes("v", timeout=float("nan")), "timeout=nan"),
        (lambda wh: wh.changes("v").next(-1), "timeout=-1"),
        (lambda wh: m3.parse("RELATION r(a VARCHAR); -- \ud83d"), r"1:27: '\\ud83d' is half a character"),
    ],
)
def test_the_api_called_wrongly_says_so(call, told) -> None:
    with pytest.raises(errors.CumulusError, match=told) as caught:
        call(cumulus.Warehouse(SQL))
    assert str(caught.value).encode()  # it can be printed
