"""Arrow columns of every type that fits, in any pieces: they mean what their values mean as plain rows."""

from __future__ import annotations

import pandas
import pyarrow as pa
import pytest

import cumulus
from cumulus import errors

KINDS = [
    *("BIGINT", "TINYINT", "HUGEINT", "REAL", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(30, 2)"),
    *("BOOLEAN", "DATE", "TIMESTAMP", "INTERVAL", "VARCHAR"),
]
NUMBERS = [3, None, -5, 0]
WHOLE = (pa.decimal128(20, 0), pa.decimal256(40, 0))
WIDE = (pa.decimal128(38, 4), pa.decimal256(50, 3))
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
ARRAYS = [
    *(("HUGEINT", pa.array(NUMBERS, kind)) for kind in (pa.int64(), pa.int8(), *WHOLE)),
    ("HUGEINT", pa.array([2**64 - 1, None, 2**63, 0], pa.uint64())),
    ("HUGEINT", pa.array([2**100, None, -(2**100), 0], pa.decimal256(60, 0))),
    *(("BIGINT", pa.array(NUMBERS, kind)) for kind in (pa.int8(), pa.int32(), pa.int64())),
    ("BIGINT", pa.array([3, None, 2**63 - 1, 0], pa.uint64())),
    *(("DECIMAL(9, 2)", pa.array(NUMBERS).cast(kind)) for kind in (pa.int8(), *WIDE)),
    *(("DECIMAL(30, 2)", pa.array(NUMBERS).cast(kind)) for kind in (pa.int64(), *WIDE)),
    *(("DOUBLE", pa.array([1.5, None, -0.0, 2.0], kind)) for kind in (pa.float32(), pa.float64())),
    *(("VARCHAR", pa.array(["a", None, "", "é"], kind)) for kind in TEXTS),
    ("VARCHAR", pa.array(["a", None, "a", "é"]).dictionary_encode()),
    *(("TIMESTAMP", pa.array(NUMBERS, pa.timestamp(unit))) for unit in ("s", "ms", "us")),
    ("DATE", pa.array(NUMBERS, pa.date32())),
    ("DATE", pa.array(NUMBERS, pa.date32()).cast(pa.date64())),
    ("BOOLEAN", pa.array([True, None, False, False])),
]


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("kind", KINDS)
def test_arrow_columns_that_are_null_or_not_there(engine, kind) -> None:
    sql = f"""
    CREATE TABLE r (k INT NOT NULL, x {kind});
    CREATE VIEW counts AS SELECT k, COUNT(*) AS n, COUNT(x) AS present FROM r GROUP BY k;
    CREATE VIEW groups AS SELECT x, COUNT(*) AS n, MIN(x) AS least FROM r GROUP BY x;
    {"CREATE VIEW alike AS SELECT COUNT(*) AS n FROM r WHERE x LIKE 'a%';" if kind == "VARCHAR" else ""}
    """
    wh = cumulus.Warehouse(sql, engine=engine)
    without = pa.table({"k": [1, 1]})
    nulls = without.append_column("x", pa.nulls(2))
    struct = pa.array(nulls.to_pylist(), pa.struct([("k", pa.int64()), ("x", pa.null())]))
    rows = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [struct], ["r"])
    wh.insert("r", nulls)
    wh.insert("r", without)
    wh.apply(pa.table({"sign": pa.array([1, 1], pa.int8()), "row": rows}))
    wh.delete("r", nulls)
    assert wh.view("counts").rows() == [(1, 4, 0)]
    assert wh.view("groups").rows() == [(None, 4, None)]
    again = cumulus.Warehouse(sql, engine=engine)
    again.fill({"r": nulls})
    assert again.view("counts").rows() == [(1, 2, 0)]


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize(("kind", "array"), ARRAYS, ids=lambda each: getattr(each, "type", each))
def test_arrow_columns_of_any_width_in_any_pieces(engine, kind, array) -> None:
    sql = f"""
    CREATE TABLE r (k INT, x {kind}, y INT);
    CREATE VIEW v AS SELECT k, x, y, COUNT(*) AS n FROM r GROUP BY k, x, y;
    """
    k, y = pa.array([1, 2, 3, 4]), pa.array([5, 6, None, 8])
    whole = pa.table({"k": k, "x": array, "y": y})
    pieces = {
        "k": pa.chunked_array([k.slice(0, 3), k.slice(3, 0), k.slice(3)]),
        "x": pa.chunked_array([array.slice(0, 1), array.slice(1, 2), array.slice(3, 0), array.slice(3)]),
        "y": pa.chunked_array([y.slice(0, 0), y.slice(0, 4), y.slice(4, 0)]),
    }
    wh = cumulus.Warehouse(sql, engine=engine)
    wh.insert("r", whole)
    wh.insert("r", pa.table(pieces))
    wh.insert("r", pa.RecordBatchReader.from_stream(pa.table(pieces)))  # cuts at all borders, and leaves empty pieces
    wh.insert("r", pa.concat_tables([whole, whole]).slice(4))
    plain = cumulus.Warehouse(sql, engine="interpreter")
    plain.insert("r", whole.to_pylist() * 4)
    assert sorted(wh.view("v").rows()) == sorted(plain.view("v").rows())
    assert {row[3] for row in wh.view("v").rows()} == {4}
    wh.delete("r", pa.table(pieces))
    assert {row[3] for row in wh.view("v").rows()} == {3}


def test_a_frame_of_objects_that_arrow_cannot_take_is_taken_value_by_value() -> None:
    wh = cumulus.Warehouse("CREATE TABLE customers (cid HUGEINT); CREATE VIEW v AS SELECT SUM(cid) AS s FROM customers")
    with pytest.raises(errors.ValueTypeError, match=r"customers\.cid HUGEINT: 'a' is not an integer"):
        wh.insert("customers", pandas.DataFrame({"cid": [1, "a"]}))
    wh.insert("customers", pandas.DataFrame({"cid": [10**20, 1]}))  # no integer of Arrow
    assert wh.view("v").rows() == [(10**20 + 1,)]
