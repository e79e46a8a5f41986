"""DuckDB as the oracle of the scalar functions: the same expression over the same values.

Values come from columns, not literals, because DuckDB types a literal by what it meets. `TRY` turns an error of DuckDB
into NULL; an `EvaluationError` here must meet exactly that.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from cumulus.catalog.types import INTEGER, VARCHAR, Interval, Kind, SqlType, type_named
from cumulus.errors import EvaluationError
from cumulus.scalars.registry import argument_types, call, cast_value, result_type

ALL_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("DECIMAL(4,1)", "DECIMAL(9,4)", "DECIMAL(15,2)", "DECIMAL(18,2)", "DECIMAL(18,17)", "DECIMAL(25,5)"),
    *("DECIMAL(38,10)", "DECIMAL(38,0)", "REAL", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "INTERVAL"),
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
        *("0", "-0.0", "0.1", "1", "-1.5", "2.5", "3.5", "1e308", "5e-324", "-7.25", "nan", "inf", "-inf", "2.675"),
        *("-0.5", "0.49999999999999994", "4503599627370497.5", "123456.789"),
    ),
    "VARCHAR": (
        *(
            "",
            "a",
            "hello",
            "Straße",
            "añ👩\u200d👩\u200d👧b",
            "  pad ",
            "a%b_c",
            "İΣς",
            "e\u0301",
            "line\nbreak",
            "xyx",
        ),
        *("10", "日本語", "HELLO", "Straße"),
    ),
    "DATE": (
        *("1970-01-01", "2000-02-29", "2021-01-01", "2020-12-31", "1999-12-31", "2001-01-01", "1969-07-20"),
        *("0001-01-01", "9999-12-31", "2024-03-31", "2023-01-30", "1900-03-01", "2018-12-31"),
    ),
    "TIMESTAMP": (
        *("1970-01-01 00:00:00", "2020-02-29 10:11:12.345678", "1969-12-31 23:59:59.999999", "2021-01-31 12:00:00"),
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1960-05-05 05:05:05.000001", "2020-12-31 23:00:00.5"),
    ),
    "INTERVAL": (
        *("1 month", "-14 months 3 days", "40 days -25:00:00", "1 year 1 day 00:00:01.5", "0 days"),
        *("-1 month 30 days 00:00:00.000001", "01:30:03.25", "-7 years -100 days -100:00:59.999999"),
    ),
}


PARTS = (
    "CASE WHEN {0} IS NOT NULL THEN [year({0}) * 12 + month({0}), day({0}), "
    "hour({0}) * 3600000000 + minute({0}) * 60000000 + microsecond({0})] END"
)


def sql_type(text: str) -> SqlType:
    """Return the type that `text` writes."""
    found = re.fullmatch(r"(\w+)(?:\((\d+),(\d+)\))?", text)
    assert found
    parsed = type_named(found[1], tuple(int(part) for part in found.groups()[1:] if part))
    assert parsed is not None
    return parsed


def same(mine: Any, theirs: Any, result: SqlType) -> bool:
    """Whether two values of a type are the same: exactly, or nearly for floats."""
    if mine is None or theirs is None:
        return mine is theirs
    if result.is_float:
        if math.isnan(theirs):
            return math.isnan(mine)
        return math.isclose(mine, theirs, rel_tol=1e-12 if result.kind is Kind.DOUBLE else 1e-6, abs_tol=0.0)
    if result.kind is Kind.DECIMAL and isinstance(mine, Decimal):
        return bool(mine.as_tuple() == theirs.as_tuple())  # the scale too: it shows as text
    return type(mine) is type(theirs) and bool(mine == theirs)


class Oracle:
    """A DuckDB with one table of typed columns, and one table of values per type."""

    all_types = ALL_TYPES
    values = VALUES

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        columns = ", ".join(f"c{index} {name}" for index, name in enumerate(ALL_TYPES))
        self.duck.execute(f"CREATE TABLE typed ({columns})")
        self.tables: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        for name, texts in VALUES.items():
            self.store(name, name, texts)

    def store(self, label: str, type_name: str, texts: tuple[str, ...]) -> None:
        """Make a table of values, NULL among them, that `check` knows by `label`."""
        table = self.tables.setdefault(label, f"v{len(self.tables)}")  # a label may be stored again
        self.sizes[label] = len(texts) + 1
        self.duck.execute(f"CREATE OR REPLACE TABLE {table} (x {type_name})")
        for text in (*texts, None):
            self.duck.execute(f"INSERT INTO {table} VALUES (CAST(? AS {type_name}))", [text])

    def type_of(self, template: str, types: tuple[str, ...]) -> str | None:
        """Return the type that DuckDB gives an expression over columns of `types`, None if it refuses."""
        columns = [f"c{ALL_TYPES.index(name)}" for name in types]
        try:
            described = self.duck.execute(f"DESCRIBE SELECT {template.format(*columns)} AS r FROM typed").fetchone()
        except duckdb.Error:
            return None
        assert described
        return {"FLOAT": "REAL", '"NULL"': "NULL"}.get(described[1], described[1])

    def rows(self, template: str, labels: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return (argument, …, value) for all combinations of the values behind `labels`."""
        columns = [f"t{index}.x" for index in range(len(labels))]
        source = ", ".join(f"{self.tables[label]} AS t{index}" for index, label in enumerate(labels))
        given, expression = ", ".join(columns), template.format(*columns)
        try:
            return self.select(f"SELECT {given}, TRY({expression}) AS r FROM {source}")
        except duckdb.Error:  # some errors are not TRY's: ask row by row
            rows = []
            for places in itertools.product(*[range(self.sizes[label]) for label in labels]):
                at = " AND ".join(f"t{index}.rowid = {place}" for index, place in enumerate(places))
                try:
                    rows += self.select(f"SELECT {given}, {expression} AS r FROM {source} WHERE {at}")
                except duckdb.Error:
                    rows += [(*row, None) for row in self.select(f"SELECT {given} FROM {source} WHERE {at}")]
            return rows

    def select(self, query: str) -> list[tuple[Any, ...]]:
        """Return rows of plain Python values; an interval is taken apart, Python has no type that holds it."""
        described = self.duck.execute(f"DESCRIBE {query}").fetchall()
        spans = [index for index, column in enumerate(described) if column[1] == "INTERVAL"]
        if not spans:
            return self.duck.execute(query).fetchall()
        names = [f"x{index}" for index in range(len(described))]
        parts = [PARTS.format(name) if index in spans else name for index, name in enumerate(names)]
        rows = self.duck.execute(f"SELECT {', '.join(parts)} FROM ({query}) AS q({', '.join(names)})").fetchall()
        return [
            tuple(
                Interval(*value) if index in spans and value is not None else value for index, value in enumerate(row)
            )
            for row in rows
        ]

    def check(
        self,
        name: str,
        template: str,
        labels: tuple[str, ...],
        *,
        unless: Callable[..., bool] = lambda *values: False,
        before: tuple[Any, ...] = (),
        after: tuple[Any, ...] = (),
    ) -> None:
        """Compare function `name` with an expression, over all combinations of values but those `unless` names.

        `before` and `after` are literal arguments around the columns; `template` spells them out.
        """
        types = tuple(
            literal if isinstance(literal, SqlType) else sql_type(literal)
            for literal in (*map(literal_type, before), *(each.split("#")[0] for each in labels))
        ) + tuple(map(literal_type, after))
        literals = (*before, *(None for _ in labels), *after)
        result = result_type(name, types, literals)
        rows = [(*before, *row[:-1], *after, row[-1]) for row in self.rows(template, labels) if not unless(*row[:-1])]
        wrong = list(differences(name, types, result, rows))
        assert rows
        assert not wrong, f"{len(wrong)} of {len(rows)} differ for {labels}:\n" + "\n".join(wrong[:20])

    def check_cast(self, label: str, target: str, *, unless: Callable[[Any], bool] = lambda value: False) -> None:
        """Compare the cast of all values behind `label`."""
        wanted = sql_type(target)
        wrong = []
        for value, theirs in self.rows(f"CAST({{0}} AS {target})", (label,)):
            try:
                mine = cast_value(value, wanted)
            except EvaluationError as problem:
                mine = problem
            if isinstance(theirs, str) and wanted.is_temporal:
                theirs = None
            if value is None or not unless(value):
                agreed = theirs is None and value is not None if isinstance(mine, EvaluationError) else None
                if agreed is None:
                    agreed = same(mine, theirs, wanted)
                if not agreed:
                    wrong.append(f"CAST({value!r} AS {target}): {mine!r}, DuckDB {theirs!r}")
        assert not wrong, f"{len(wrong)} differ from {label}:\n" + "\n".join(wrong[:20])


def literal_type(value: Any) -> SqlType:
    """Return the type of a literal of text or a small integer."""
    return VARCHAR if isinstance(value, str) else INTEGER


def differences(name: str, types: tuple[SqlType, ...], result: SqlType, rows: list[tuple[Any, ...]]) -> Iterator[str]:
    """Tell every row (argument, …, DuckDB's value) where the function and DuckDB differ."""
    wanted = argument_types(name, types)
    for *values, theirs in rows:
        if isinstance(theirs, str) and result.is_temporal:
            theirs = None  # a year that Python's dates do not have; an error here
        try:
            cast = [
                value if given == target else cast_value(value, target)
                for value, given, target in zip(values, types, wanted, strict=True)
            ]
            mine = call(name, cast)
            if theirs is None and result.is_exact:
                cast_value(mine, result)  # exact arithmetic does not overflow, but its result has no such value
        except EvaluationError as problem:
            if theirs is not None:
                yield f"{name}{tuple(values)!r}: {problem}, DuckDB {theirs!r}"
            continue
        if not same(mine, theirs, result):
            yield f"{name}{tuple(values)!r}: {mine!r}, DuckDB {theirs!r}"


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    """Return the oracle."""
    return Oracle()
