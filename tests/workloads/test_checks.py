"""The oracle must be able to say no: every kind of difference is found, and nothing else is."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from cumulus.errors import InputError, UnknownNameError
from cumulus.workloads import checks


def test_equal_bags_in_another_order_do_not_differ() -> None:
    a = pa.table({"k": [1, 1, 2, None], "x": [0.1 + 0.2, 7.0, None, float("nan")]})
    b = pa.table({"k": [None, 2, 1, 1], "x": [float("nan"), None, 7.0, 0.3]})
    assert checks.differences(a, b) == []


def test_a_row_too_few_and_a_row_too_many() -> None:
    a, b = pa.table({"k": ["a", "a", "b"]}), pa.table({"k": ["a", "b", "b"]})
    assert checks.differences(a, b) == ["missing: (k=a)", "unexpected: (k=b)"]
    assert checks.differences(a, a.slice(0, 2)) == ["missing: (k=b)"]
    assert checks.differences(a, pa.concat_tables([a, a.slice(2)])) == ["unexpected: (k=b)"]


def test_a_wrong_number_is_told_beside_the_right_one() -> None:
    a, b = pa.table({"k": [1], "x": [1.0]}), pa.table({"k": [1], "x": [1.0 + 2e-9]})
    assert checks.differences(a, b) == ["differs: expected (k=1, x=1.0), got (k=1, x=1.000000002)"]
    assert checks.differences(a, pa.table({"k": [1], "x": [1.0 + 5e-10]})) == []


def test_null_is_not_zero() -> None:
    a, b = pa.table({"x": pa.array([None], pa.float64())}), pa.table({"x": [0.0]})
    assert len(checks.differences(a, b)) == 1


def test_terms_that_cancel_need_their_magnitude() -> None:
    a, b = pa.table({"x": [0.0]}), pa.table({"x": [1e-10]})
    assert len(checks.differences(a, b)) == 1
    assert checks.differences(a, b, magnitudes={"x": 1.0}) == []
    with pytest.raises(UnknownNameError, match="'y'"):
        checks.differences(a, b, magnitudes={"y": 1.0})


def test_types_and_names_count_layout_does_not() -> None:
    a = pa.table({"s": pa.array([Decimal("1.00")], pa.decimal128(38, 2)), "t": ["x"]})
    view = pa.table({"s": a["s"], "t": a["t"].cast(pa.large_string())})
    assert checks.differences(a, view) == []
    narrow = pa.table({"s": a["s"].cast(pa.decimal128(15, 2)), "t": a["t"]})
    assert checks.differences(a, narrow) == ["column s: expected decimal128(38, 2), got decimal128(15, 2)"]
    assert checks.differences(a, a.rename_columns(["u", "t"])) == ["columns: expected ['s', 't'], got ['u', 't']"]


def test_many_differences_are_cut_short() -> None:
    a, b = pa.table({"k": range(50)}), pa.table({"k": range(50, 60)})
    told = checks.differences(a, b, limit=3)
    assert len(told) == 4
    assert told[-1] == "… and 57 more"


def test_recompute_speaks_cumulus_types() -> None:
    r = pa.table({"a": pa.array([1, 2, None], pa.int32()), "d": [Decimal("0.10"), Decimal("0.20"), None]})
    got = checks.recompute("SELECT SUM(a) AS s, COUNT(*) AS n, SUM(d) AS d, AVG(a) AS m FROM r", {"r": r})
    assert got.schema.types == [pa.decimal128(38, 0), pa.int64(), pa.decimal128(38, 2), pa.float64()]
    assert got.to_pylist() == [{"s": Decimal(3), "n": 3, "d": Decimal("0.30"), "m": 1.5}]


def test_recompute_passes_on_what_the_oracle_refuses() -> None:
    with pytest.raises(InputError, match="nowhere"):
        checks.recompute("SELECT * FROM nowhere", {})


def test_statements_do_not_trip_over_quotes_and_comments() -> None:
    sql = (
        "-- a; comment\nCREATE TABLE r (a TEXT -- not this;\n);\nCREATE VIEW v AS\nSELECT 'it''s; -- here' AS x FROM r;"
    )
    assert [text.split()[1] for text in checks.statements(sql)] == ["TABLE", "VIEW"]
    assert checks.views(sql) == {"v": "SELECT 'it''s; -- here' AS x FROM r"}


def test_declared_reads_types_and_keys() -> None:
    sql = "CREATE TABLE r (a INT NOT NULL, t TIMESTAMP, p DECIMAL(15,2), d DATE, PRIMARY KEY (d, a));"
    found = checks.declared(sql)["r"]
    assert found.key == ("d", "a")
    assert found.schema.types == [pa.int32(), pa.timestamp("us"), pa.decimal128(15, 2), pa.date32()]
    row = {"a": [1], "t": [dt.datetime(2013, 1, 1)], "p": [Decimal("1.00")], "d": [dt.date(2013, 1, 1)]}
    assert pa.table(row, schema=found.schema).num_rows == 1
    with pytest.raises(InputError, match="cannot be declared"):
        checks.declared("CREATE TABLE r (a NONSENSE);")
