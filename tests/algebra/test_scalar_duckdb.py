"""Every scalar function against DuckDB: the same expression over the same values, types and values compared.

Values come from columns, not literals, because DuckDB types literals by what they meet. `TRY` turns an error of DuckDB into
NULL; an `EvaluationError` here must meet exactly that. What is listed as a difference is left out and tested in
`test_scalar_differences.py`.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import duckdb
import pytest

from cumulus.algebra.scalar import argument_types, call, cast_value, result_type
from cumulus.catalog.types import Interval, Kind, SqlType, type_named
from cumulus.errors import EvaluationError

ALL_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("DECIMAL(4,1)", "DECIMAL(9,4)", "DECIMAL(15,2)", "DECIMAL(18,2)", "DECIMAL(18,17)", "DECIMAL(25,5)"),
    *("DECIMAL(38,10)", "DECIMAL(38,0)", "REAL", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "INTERVAL"),
)

SPANS = (
    ("1 month", Interval(1, 0, 0)),
    ("-14 months 3 days", Interval(-14, 3, 0)),
    ("40 days -25 hours", Interval(0, 40, -90_000_000_000)),
    ("1 year 1 day 00:00:01.5", Interval(12, 1, 1_500_000)),
    ("0 days", Interval(0, 0, 0)),
    ("-1 month 30 days 0.000001 seconds", Interval(-1, 30, 1)),
    ("90 minutes 3.25 seconds", Interval(0, 0, 5_403_250_000)),
    ("-7 years -100 days -100:00:59.999999", Interval(-84, -100, -360_059_999_999)),
)

VALUES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("0", "1", "-1", "7", "127", "-128"),
    "SMALLINT": ("0", "-3", "32767"),
    "INTEGER": ("0", "1", "-1", "2", "7", "-25", "45", "2147483647", "-2147483648"),
    "BIGINT": ("0", "3", "-3", "9007199254740993", "-9223372036854775808"),
    "HUGEINT": ("0", "1", "-12", "170141183460469231731687303715884105727"),
    "DECIMAL(4,1)": ("0", "0.5", "-0.5", "2.5", "-999.9", "0.1"),
    "DECIMAL(9,4)": ("0", "1.2345", "-1.2355", "99999.9999"),
    "DECIMAL(15,2)": ("0", "1.05", "-17.25", "0.01", "9999999999999.99"),
    "DECIMAL(38,10)": ("0", "0.0000000001", "-1234567890.0123456789", "2.5"),
    "REAL": ("0", "1.5", "-2.25"),
    "DOUBLE": (
        "0",
        "-0.0",
        "0.1",
        "1",
        "-1.5",
        "2.5",
        "3.5",
        "1e308",
        "5e-324",
        "-7.25",
        "nan",
        "inf",
        "-inf",
        "2.675",
    ),
    "VARCHAR": (
        "",
        "a",
        "hello",
        "Straße",
        "añ👩‍👩‍👧b",
        "  pad ",
        "a%b_c",
        "İΣς",
        "é",
        "line\nbreak",
        "xyx",
        "10",
        "日本語",
    ),
    "DATE": (
        *("1970-01-01", "2000-02-29", "2021-01-01", "2020-12-31", "1999-12-31", "2001-01-01", "1969-07-20"),
        *("0001-01-01", "9999-12-31", "2024-03-31", "2023-01-30", "1900-03-01", "2018-12-31"),
    ),
    "TIMESTAMP": (
        *("1970-01-01 00:00:00", "2020-02-29 10:11:12.345678", "1969-12-31 23:59:59.999999", "2021-01-31 12:00:00"),
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1960-05-05 05:05:05.000001", "2020-12-31 23:00:00.5"),
    ),
    "INTERVAL": tuple(text for text, _ in SPANS),
}
SMALL = {"count": ("-10", "-2", "-1", "0", "1", "2", "5", "100")}


def sql_type(text: str) -> SqlType:
    found = re.fullmatch(r"(\w+)(?:\((\d+),(\d+)\))?", text)
    assert found
    parsed = type_named(found[1], tuple(int(part) for part in found.groups()[1:] if part))
    assert parsed is not None
    return parsed


def type_text(duckdb_name: str) -> str:
    return {"FLOAT": "REAL", '"NULL"': "NULL"}.get(duckdb_name, duckdb_name)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    columns = ", ".join(f"c{index} {name}" for index, name in enumerate(ALL_TYPES))
    connection.execute(f"CREATE TABLE typed ({columns})")
    for index, (name, texts) in enumerate(VALUES.items()):
        connection.execute(f"CREATE TABLE v{index} (x {name})")
        connection.executemany(f"INSERT INTO v{index} VALUES (CAST(? AS {name}))", [[text] for text in texts])
        connection.execute(f"INSERT INTO v{index} VALUES (NULL)")
    return connection


def spelled(template: str, columns: list[str]) -> str:
    for letter, column in zip("abc", columns, strict=False):
        template = template.replace("{" + letter + "}", column)
    return template


def duck_type(duck: duckdb.DuckDBPyConnection, template: str, types: tuple[str, ...]) -> str | None:
    """Return the type that DuckDB gives the expression over columns of `types`, None if it refuses."""
    columns = [f"c{ALL_TYPES.index(name)}" for name in types]
    try:
        described = duck.execute(f"DESCRIBE SELECT {spelled(template, columns)} AS r FROM typed").fetchone()
    except duckdb.Error:
        return None
    assert described
    return type_text(described[1])


def fetched(duck: duckdb.DuckDBPyConnection, expressions: list[str], source: str) -> list[tuple[Any, ...]]:
    """Return rows of plain Python values, intervals with all their parts."""
    relation = duck.execute(f"SELECT {', '.join(expressions)} FROM {source}")
    spans = [column for column, description in enumerate(relation.description) if "INTERVAL" in str(description[1])]
    if not spans:
        return relation.fetchall()
    table = duck.execute(f"SELECT {', '.join(expressions)} FROM {source}").to_arrow_table()
    columns = [table.column(index).to_pylist() for index in range(table.num_columns)]
    for index in spans:
        columns[index] = [
            None if span is None else Interval(span.months, span.days, span.nanoseconds // 1000)
            for span in columns[index]
        ]
    return list(zip(*columns, strict=True))


def same(mine: Any, theirs: Any, result: SqlType) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if result.is_float:
        if math.isnan(theirs):
            return math.isnan(mine)
        return math.isclose(mine, theirs, rel_tol=1e-12 if result.kind is Kind.DOUBLE else 1e-6, abs_tol=0.0)
    if result.kind is Kind.DECIMAL:
        return bool(mine == theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


def mine_of(name: str, types: tuple[SqlType, ...], values: tuple[Any, ...]) -> Any:
    try:
        wanted = argument_types(name, types)
        cast = [
            value if given == target else cast_value(value, target)
            for value, given, target in zip(values, types, wanted, strict=True)
        ]
        return call(name, cast)
    except EvaluationError as problem:
        return problem


def compare_values(duck: duckdb.DuckDBPyConnection, name: str, template: str, types: tuple[str, ...]) -> int:
    """Compare over the product of all values of `types`; return how many were compared."""
    order = list(VALUES)
    tables = ", ".join(f"v{order.index(each)} AS t{index}" for index, each in enumerate(types))
    columns = [f"t{index}.x" for index in range(len(types))]
    rows = fetched(duck, [*columns, f"TRY({spelled(template, columns)})"], tables)
    given = tuple(map(sql_type, types))
    result = result_type(name, given)
    wrong = []
    for *values, theirs in rows:
        if any(isinstance(value, str) and "(BC)" in value for value in (theirs,)):
            continue
        mine = mine_of(name, given, tuple(values))
        if isinstance(mine, EvaluationError) and theirs is None and None not in values:
            continue
        if isinstance(mine, EvaluationError) or not same(mine, theirs, result):
            wrong.append(f"{name}{tuple(values)!r}: {mine!r}, DuckDB {theirs!r}")
    assert not wrong, f"{len(wrong)} of {len(rows)} differ for {types}:\n" + "\n".join(wrong[:20])
    return len(rows)


BINARY = {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "intdiv": "{a} // {b}",
    "mod": "{a} % {b}",
    "coalesce": "coalesce({a}, {b})",
    "greatest": "greatest({a}, {b})",
    "least": "least({a}, {b})",
    "case": "CASE WHEN true THEN {a} ELSE {b} END",
    "power": "power({a}, {b})",
    "like": "{a} LIKE {b}",
    "starts_with": "starts_with({a}, {b})",
    "round": "round({a}, {b})",
    "left": "left({a}, {b})",
    "strftime": "strftime({a}, {b})",
    "date_part": "date_part('year', {a}) + {b}",
}


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "intdiv", "mod", "coalesce", "greatest", "power", "like"])
def test_types_of_two_arguments(duck: duckdb.DuckDBPyConnection, name: str) -> None:
    wrong = []
    for types in itertools.product(ALL_TYPES, repeat=2):
        theirs = duck_type(duck, BINARY[name], types)
        try:
            mine: str | None = str(result_type(name, tuple(map(sql_type, types))))
        except TypeError:
            mine = None
        if mine != theirs:
            wrong.append(f"{types}: {mine}, DuckDB {theirs}")
    assert not wrong, "\n".join(wrong[:30])
