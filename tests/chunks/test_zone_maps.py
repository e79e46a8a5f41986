"""Row groups that are left out have no row that DuckDB finds."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus_ring.chunks.catalogue import ChunkedTable
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.chunks.predicates import (
    AllOf,
    AnyOf,
    ColumnAmong,
    ColumnCompared,
    ColumnNull,
    Constant,
    NotPrunable,
    Predicate,
)
from cumulus_ring.chunks.zone_maps import ColumnBounds, may_touch
from support.random_files import COLUMNS, connected, tables, write
from support.tiers import examples

ALL = list(range(10))
SIGNS = ("=", "!=", "<", "<=", ">", ">=")


def constant(value: Any, name: str) -> Constant:
    """As DuckDB says it: moments of a time zone are microseconds."""
    return Constant(value, COLUMNS[name][1], repr(value))


@st.composite
def leaves(draw: st.DrawFn, table: pa.Table, name: str) -> tuple[Predicate, str, list[Any]]:
    """A condition of a column; as SQL, with the parameters that stand in it."""
    kind, sql_type, values = COLUMNS[name]
    quoted = '"' + name.replace('"', '""') + '"'
    there = [value for value in table.column(name).to_pylist() if value is not None]
    some = st.one_of(values, st.sampled_from(there)) if there else values
    wanted = draw(st.lists(some, min_size=1, max_size=3))
    if name == "instant":
        told = [constant(pa.scalar(value, pa.timestamp("us", "UTC")).value, name) for value in wanted]
        wanted = [each.value for each in told]
        given = "make_timestamptz(?)"
    else:
        wanted = [
            pa.scalar(value, kind if not pa.types.is_dictionary(kind) else pa.string()).as_py() for value in wanted
        ]
        told = [constant(value, name) for value in wanted]
        given = f"?::{sql_type}"
    match draw(st.sampled_from(["compare", "in", "null"])):
        case "compare":
            sign = draw(st.sampled_from(SIGNS))
            return ColumnCompared(name, sign, told[0]), f"{quoted} {sign} {given}", wanted[:1]
        case "in":
            return ColumnAmong(name, tuple(told)), f"{quoted} IN ({', '.join([given] * len(told))})", wanted
        case _:
            is_null = draw(st.booleans())
            return ColumnNull(name, is_null), f"{quoted} IS {'' if is_null else 'NOT '}NULL", []


@st.composite
def conditions(draw: st.DrawFn, table: pa.Table) -> tuple[Predicate, str, list[Any]]:
    one = st.deferred(lambda: st.sampled_from(table.column_names).flatmap(lambda name: leaves(table, name)))
    found = draw(st.lists(one, min_size=1, max_size=3))
    for joined, word in ((AllOf, "AND"), (AnyOf, "OR")):
        if len(found) > 1 and draw(st.booleans()):
            (first, left, given), (second, right, more) = found[:2]
            found[:2] = [(joined((first, second)), f"({left} {word} {right})", given + more)]
    return found[0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, list[tuple[Predicate, str, list[Any]]]]:
    table = draw(tables())
    return table, draw(st.lists(conditions(table), min_size=1, max_size=5))


@given(case=cases(), group_rows=st.integers(1, 6), by_duckdb=st.booleans())
@pytest.mark.law
@settings(max_examples=examples(200), deadline=None)
def test_no_row_is_left_out(case: tuple, group_rows: int, by_duckdb: bool) -> None:
    """DuckDB filters a copy in its memory, so that it does not look at the same bounds."""
    table, predicates = case
    with tempfile.TemporaryDirectory() as folder, connected() as connection:
        connection.register("given", table.append_column("row_place", pa.array(range(table.num_rows), pa.int64())))
        connection.execute("CREATE TABLE kept AS FROM given")
        if by_duckdb:
            connection.execute(
                f"COPY (SELECT * EXCLUDE row_place FROM kept ORDER BY row_place) TO '{folder}/t.parquet'"
                f" (FORMAT parquet, ROW_GROUP_SIZE {group_rows})"
            )
        else:
            write(table, Path(folder, "t.parquet"), group_rows)
        (listed,) = read_source(folder).tables
        for predicate, condition, values in predicates:
            found = connection.execute(f"SELECT row_place FROM kept WHERE {condition}", values).fetchall()
            left = rows_of(listed, predicate)
            assert {row for (row,) in found} <= left, (predicate, condition)


def rows_of(table: ChunkedTable, predicate: Predicate) -> set[int]:
    """Numbers of the rows of a table of one file that a predicate leaves."""
    (file,) = table.files
    firsts, first = {}, 0
    for group in file.row_groups:
        firsts[group.number] = first
        first += group.rows
    batches = table.groups(table.schema.names[:1], [predicate])
    return {firsts[batch.row_group.number] + batch.first_row + row for batch in batches for row in range(batch.rows)}


def compared(name: str, sign: Any, value: Any) -> ColumnCompared:
    return ColumnCompared(name, sign, constant(value, name))


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> ChunkedTable:
    """Ten row groups of ten: numbers in order, and NULLs in the last of them."""
    folder = tmp_path_factory.mktemp("hundred")
    numbers = pa.array([number if number < 90 else None for number in range(100)], pa.int32())
    seconds = pa.array([number * 1_000_000 for number in range(100)])
    table = pa.table(
        {
            "i32": numbers,
            "double": numbers.cast(pa.float64()),
            "Text": numbers.cast(pa.string()),
            "half": numbers.cast(pa.float32()).cast(pa.float16()),
            "duration": numbers.cast(pa.int64()).cast(pa.duration("us")),
            "day": numbers.cast(pa.date32()),
            "moment": seconds.cast(pa.timestamp("us")),
            "instant": seconds.cast(pa.timestamp("us", "UTC")),
            "clock": seconds.cast(pa.time64("us")),
            "blob": numbers.cast(pa.string()).cast(pa.binary()),
            "yes": pa.array([number >= 50 for number in range(100)]),
            "long": numbers.cast(pa.decimal128(38, 10)),
            "nanoseconds": seconds.cast(pa.timestamp("us")).cast(pa.timestamp("ns")),
            "milliseconds": seconds.cast(pa.timestamp("us")).cast(pa.timestamp("ms")),
            "u64": pa.array([(1 << 64) - 100 + number for number in range(100)], pa.uint64()),
        }
    )
    write(table, folder / "t.parquet", 10)
    return read_source(folder).tables[0]


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        (compared("i32", "=", 35), [3]),
        (compared("i32", "<", 10), [0]),
        (compared("i32", "<", 11), [0, 1]),
        (compared("i32", "<=", 10), [0, 1]),
        (compared("i32", ">", 79), [8]),
        (compared("i32", ">", 78), [7, 8]),
        (compared("i32", ">=", 79), [7, 8]),
        (compared("i32", "!=", 5), list(range(9))),
        (compared("i32", "=", None), []),
        (ColumnNull("i32", True), [9]),
        (ColumnNull("i32", False), list(range(9))),
        (ColumnAmong("i32", tuple(constant(each, "i32") for each in (5, 15, 400, None))), [0, 1]),
        (AllOf((compared("i32", ">=", 20), compared("i32", "<", 40))), [2, 3]),
        (AnyOf((compared("i32", "=", 20), compared("i32", "=", 40))), [2, 4]),
        (AnyOf((compared("i32", "=", 20), NotPrunable("x"))), list(range(10))),
        (AllOf((compared("i32", "=", 20), NotPrunable("x"))), [2]),
        (AllOf(()), list(range(10))),
        (compared("double", "<", 10.0), [0]),
        (compared("double", ">", 100.0), list(range(9))),  # there may be a NaN
        (compared("double", "=", math.nan), list(range(9))),
        (compared("Text", "=", "35"), [0, 3]),  # "0" to "9" is the first row group,
        (compared("Text", "<", "1"), [0]),
        (compared("u64", "=", (1 << 64) - 1), [9]),
        (ColumnCompared("half", "=", Constant(35.0, "FLOAT", "")), list(range(9))),
        (ColumnCompared("duration", "=", Constant(35, "BIGINT", "")), [3]),
        (compared("day", "=", dt.date(1970, 2, 5)), [3]),
        (compared("moment", "=", dt.datetime(1970, 1, 1, 0, 0, 35)), [3]),
        (compared("instant", "=", 35_000_000), [3]),
        (compared("clock", "=", dt.time(0, 0, 35)), [3]),
        (compared("blob", "=", b"35"), [0, 3]),
        (compared("yes", "=", False), [0, 1, 2, 3, 4]),
        (compared("long", "=", Decimal("35.0000000001")), [3]),
        (compared("long", "=", Decimal("39.0000000001")), []),
        (ColumnCompared("milliseconds", "=", Constant(dt.datetime(1970, 1, 1, 0, 0, 35), "TIMESTAMP", "")), [3]),
        (ColumnCompared("nanoseconds", "=", Constant(dt.datetime(1970, 1, 1, 0, 0, 35), "TIMESTAMP", "")), [3]),
        (ColumnCompared("nanoseconds", "=", Constant(dt.datetime(1970, 1, 1, 0, 0, 35), "TIMESTAMP_NS", "")), ALL),
        (ColumnCompared("moment", "=", Constant("infinity", "TIMESTAMP", "")), ALL),
        (ColumnCompared("i32", "=", Constant(True, "BOOLEAN", "")), list(range(9))),
        (ColumnCompared("absent", "=", Constant(1, "INTEGER", "")), ALL),
    ],
    ids=str,
)
def test_row_groups_are_left_out(hundred: ChunkedTable, predicate: Predicate, left: list[int]) -> None:
    assert [batch.row_group.number for batch in hundred.groups(["i32"], [predicate])] == left


@given(
    st.lists(st.text("ab\U0010ffff", min_size=1, max_size=4), min_size=1, max_size=4),
    st.text("ab\U0010ffff", max_size=4),
    st.sampled_from(SIGNS),
    st.integers(0, 3),
)
def test_texts_with_shortened_bounds(texts: list[str], text: str, sign: Any, length: int) -> None:
    """An upper bound of which only the beginning is left is below what it bounds."""
    low, high = (end(texts)[:length].encode() for end in (min, max))
    bounds = {"Text": ColumnBounds("text", low, high, 0, len(texts))}
    tests = {
        "=": str.__eq__, "!=": str.__ne__, "<": str.__lt__, "<=": str.__le__, ">": str.__gt__, ">=": str.__ge__,
    }  # fmt: skip
    if any(tests[sign](each, text) for each in texts):
        assert may_touch(compared("Text", sign, text), bounds)
