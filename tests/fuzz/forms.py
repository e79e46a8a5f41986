"""The tables of the generator: literals, functions, predicates by kind. A construct is added by adding a row.

Nothing here divides by zero, overflows, fails to cast or compares rounded floats: those are errors of a view, or left
open.
"""

from __future__ import annotations

from typing import NamedTuple

EXACT = ("int", "big", "decimal", "float")
"""Kinds of numbers that may be compared with each other."""
KINDS = ("int", "decimal", "float", "text", "date", "timestamp", "bool")

LITERALS = {
    "int": ("0", "1", "2", "3"),
    "big": ("0", "1", "2", "4"),
    "decimal": ("0.5", "1.5", "1.0", "2.00"),
    "float": ("0.5e0", "1.5e0", "1e0"),
    "text": ("'x'", "'y'", "'xy'", "''"),
    "date": ("DATE '2020-02-29'", "DATE '2020-12-31'", "DATE '2021-01-01'"),
    "timestamp": ("TIMESTAMP '2020-02-29 00:00:00'", "TIMESTAMP '2021-01-01 12:30:00'"),
    "bool": ("TRUE", "FALSE"),
}
TYPES = {
    "int": "INTEGER", "big": "HUGEINT", "decimal": "DECIMAL(12,2)", "float": "DOUBLE", "mean": "DOUBLE",
    "rough": "DOUBLE", "text": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP", "bool": "BOOLEAN",
}  # fmt: skip


class Form(NamedTuple):
    """A way to make a value: the construct it is, the template, and the kinds of its operands.

    An operand "column:kind" is a plain column (or a literal), so that types do not grow; "condition" is any condition.
    """

    construct: str
    template: str
    operands: tuple[str, ...]


def _of(construct: str, operands: str, *templates: str) -> list[Form]:
    return [Form(construct, template, tuple(operands.split())) for template in templates]


# What every kind has; {k} becomes the kind.
COMMON = (
    ("CASE", "CASE WHEN {0} THEN {1} ELSE {2} END", "condition {k} {k}"),
    ("CASE", "CASE WHEN {0} THEN {1} END", "condition {k}"),
    ("CASE", "CASE {0} WHEN 1 THEN {1} WHEN 2 THEN {2} ELSE {1} END", "int {k} {k}"),
    ("CASE", "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} ELSE {1} END", "condition {k} condition {k}"),
    ("COALESCE", "COALESCE({0}, {1})", "{k} {k}"),
    ("COALESCE", "COALESCE({0}, {1}, {2})", "{k} {k} {k}"),
    ("NULLIF", "NULLIF({0}, {1})", "{k} {k}"),
)

FORMS: dict[str, list[Form]] = {
    "int": [
        *_of("arithmetic", "int int", "({0} + {1})", "({0} - {1})"),
        *_of("arithmetic", "column:int column:int", "({0} * {1})", "({0} * (1 - {1}))", "({0} + 2 * {1})"),
        *_of("arithmetic", "int", "({0} + 1)", "(-{0})", "({0} % 2)", "({0} // 2)", "abs({0})", "sign({0})"),
        *_of("arithmetic", "int int", "least({0}, {1})", "greatest({0}, {1})"),
        *_of("string function", "text", "length({0})", "strpos({0}, 'x')"),
        *_of("EXTRACT", "date", "EXTRACT(year FROM {0})", "EXTRACT(month FROM {0})", "EXTRACT(day FROM {0})"),
        *_of("EXTRACT", "timestamp", "EXTRACT(year FROM {0})", "EXTRACT(hour FROM {0})", "EXTRACT(quarter FROM {0})"),
        *_of("date function", "date", "year({0})", "month({0})", "day({0})", "dayofweek({0})"),
        *_of("date function", "date date", "date_diff('day', {0}, {1})", "({0} - {1})"),
        *_of("CAST", "decimal", "CAST({0} AS INTEGER)", "CAST({0} AS BIGINT)"),
        *_of("CAST", "bool", "CAST({0} AS INTEGER)"),
        *_of("CAST", "int", "CAST({0} AS BIGINT)", "CAST({0} AS SMALLINT)"),
    ],
    "decimal": [
        *_of("arithmetic", "column:decimal column:decimal", "({0} + {1})", "({0} - {1})", "({0} * {1})"),
        *_of("arithmetic", "column:decimal column:int", "({0} * {1})", "({0} + {1})", "({0} * (1 - {1}))"),
        *_of("arithmetic", "decimal", "(-{0})", "abs({0})", "round({0}, 1)", "floor({0})", "ceil({0})"),
        *_of("CAST", "int", "CAST({0} AS DECIMAL(9,2))"),
        *_of("CAST", "decimal", "CAST({0} AS DECIMAL(14,1))"),
    ],
    "float": [
        *_of("arithmetic", "column:float column:float", "({0} + {1})", "({0} - {1})", "({0} * {1})"),
        *_of("arithmetic", "column:float column:int", "({0} * {1})", "({0} + {1})"),
        *_of("arithmetic", "column:float column:decimal", "({0} + {1})", "({0} - {1})"),
        *_of("arithmetic", "int", "({0} / 2)"),
        *_of("arithmetic", "decimal", "({0} / 4)"),
        *_of("arithmetic", "float", "(-{0})", "abs({0})"),
        *_of("CAST", "int", "CAST({0} AS DOUBLE)"),
        *_of("CAST", "decimal", "CAST({0} AS DOUBLE)"),
    ],
    "rough": [
        *_of("arithmetic", "int", "({0} / 3)", "sqrt(abs({0}))"),
        *_of("arithmetic", "int int", "({0} / NULLIF({1}, 0))"),
        *_of("arithmetic", "float", "({0} / 3)", "({0} * 0.1e0)"),
        *_of("arithmetic", "decimal int", "({0} / NULLIF({1}, 0))"),
    ],
    "text": [
        *_of("UPPER/LOWER", "text", "upper({0})", "lower({0})"),
        *_of("SUBSTRING", "text", "substring({0}, 1, 1)", "substring({0} FROM 2)", "substring({0}, 2, 3)"),
        *_of("||", "text text", "({0} || {1})"),
        *_of("||", "text", "({0} || '!')", "('<' || {0})"),
        *_of("string function", "text", "trim({0})", "replace({0}, 'x', 'zz')", "left({0}, 1)", "right({0}, 1)"),
        *_of("string function", "text", "lpad({0}, 3, '.')", "reverse({0})"),
        *_of("CAST", "int", "CAST({0} AS VARCHAR)"),
        *_of("CAST", "date", "CAST({0} AS VARCHAR)"),
        *_of("CAST", "bool", "CAST({0} AS VARCHAR)"),
        *_of("date function", "date", "strftime({0}, '%Y-%m')"),
    ],
    "date": [
        *_of("CAST", "timestamp", "CAST({0} AS DATE)"),
        *_of("date function", "date", "({0} + 1)", "({0} - 31)", "last_day({0})"),
        *_of("date function", "timestamp", "last_day({0})"),
        *_of("date function", "date date", "least({0}, {1})", "greatest({0}, {1})"),
    ],
    "timestamp": [
        *_of("INTERVAL", "date", "({0} + INTERVAL '1 month')", "({0} - INTERVAL 1 DAY)", "({0} + INTERVAL '1' YEAR)"),
        *_of("INTERVAL", "timestamp", "({0} + INTERVAL '36 hours')", "({0} - INTERVAL 1 MONTH)"),
        *_of("DATE_TRUNC", "date", "date_trunc('month', {0})", "date_trunc('year', {0})"),
        *_of("DATE_TRUNC", "timestamp", "date_trunc('day', {0})", "date_trunc('quarter', {0})"),
        *_of("CAST", "date", "CAST({0} AS TIMESTAMP)"),
    ],
    "bool": [
        *_of("NOT", "bool", "(NOT {0})"),
        *_of("comparison", "condition", "({0})"),
    ],
}  # fmt: skip
for _kind, _forms in FORMS.items():
    for _construct, _template, _operands in COMMON:
        if (_kind, _construct) != ("rough", "NULLIF"):
            _forms += _of(_construct, _operands.replace("{k}", _kind), _template)
FORMS["big"] = [
    *_of("arithmetic", "big column:int", "({0} + {1})", "({0} - {1})"),
    *_of("arithmetic", "big", "(-{0})"),
    *_of("COALESCE", "big", "COALESCE({0}, 0)"),
    *_of("CASE", "condition big", "CASE WHEN {0} THEN {1} ELSE 0 END"),
    *_of("CAST", "column:int", "CAST({0} AS HUGEINT)"),
]

# Kind → predicates that hold for most values of the tiny domains, and predicates that hold for few.
PREDICATES: dict[str, tuple[list[Form], list[Form]]] = {
    "int": (
        [
            *_of("comparison", "int", "{0} >= 0", "{0} <= 2", "{0} <> 2", "{0} < 3", "0 <= {0}", "{0} > 0.5"),
            *_of("BETWEEN", "int", "{0} BETWEEN 0 AND 2", "{0} BETWEEN 1 AND 3", "{0} NOT BETWEEN 2 AND 9"),
            *_of("IN list", "int", "{0} IN (0, 1, 2)", "{0} NOT IN (2, 9)", "{0} IN (1, NULL)", "{0} IN (1, 1.5, 2)"),
            *_of("IS DISTINCT FROM", "int", "{0} IS DISTINCT FROM 2"),
            *_of("IS NOT NULL", "int", "{0} IS NOT NULL"),
        ],
        [
            *_of("comparison", "int", "{0} = 2", "{0} > 2", "{0} < 0", "{0} = 0"),
            *_of("IN list", "int", "{0} IN (2, 3)", "{0} NOT IN (1, NULL)"),
            *_of("BETWEEN", "int", "{0} NOT BETWEEN 0 AND 2"),
            *_of("IS DISTINCT FROM", "int", "{0} IS NOT DISTINCT FROM NULL", "{0} IS NOT DISTINCT FROM 1"),
            *_of("IS NULL", "int", "{0} IS NULL"),
        ],
    ),
    "decimal": (
        [
            *_of("comparison", "decimal", "{0} >= 0.5", "{0} < 2", "{0} <> 1", "{0} <= 1.50", "{0} > -1"),
            *_of("BETWEEN", "decimal", "{0} BETWEEN 0 AND 1.50"),
            *_of("IN list", "decimal", "{0} IN (1, 1.5, 0.5)"),
            *_of("IS NOT NULL", "decimal", "{0} IS NOT NULL"),
        ],
        [
            *_of("comparison", "decimal", "{0} = 1", "{0} < 0", "{0} > 1.5"),
            *_of("IS NULL", "decimal", "{0} IS NULL"),
        ],
    ),
    "float": (
        [
            *_of("comparison", "float", "{0} >= 0.5", "{0} < 2", "{0} <> 1", "{0} > -1e0"),
            *_of("BETWEEN", "float", "{0} BETWEEN 0 AND 1.5"),
            *_of("IN list", "float", "{0} IN (1, 1.5, 0.5)"),
            *_of("IS DISTINCT FROM", "float", "{0} IS DISTINCT FROM 1"),
        ],
        [
            *_of("comparison", "float", "{0} = 1", "{0} < 0", "{0} > 1.5"),
            *_of("IS NULL", "float", "{0} IS NULL"),
        ],
    ),
    "text": (
        [
            *_of("comparison", "text", "{0} <> 'y'", "{0} >= 'x'", "{0} < 'y'", "{0} <= 'xy'"),
            *_of("LIKE", "text", "{0} LIKE 'x%'", "{0} NOT LIKE '%y'", "{0} LIKE '_%'"),
            *_of("LIKE", "text", "{0} NOT LIKE 'é!%' ESCAPE '!'"),
            *_of("ILIKE", "text", "{0} ILIKE 'X%'", "{0} NOT ILIKE '_Y'"),
            *_of("IN list", "text", "{0} IN ('x', 'y')", "{0} NOT IN ('', 'Xy')"),
            *_of("BETWEEN", "text", "{0} BETWEEN 'a' AND 'xz'"),
            *_of("IS NOT NULL", "text", "{0} IS NOT NULL"),
        ],
        [
            *_of("comparison", "text", "{0} = 'x'", "{0} > 'y'"),
            *_of("LIKE", "text", "{0} LIKE '%y'", "{0} LIKE 'é!%' ESCAPE '!'"),
            *_of("ILIKE", "text", "{0} ILIKE 'XY'"),
            *_of("IS NULL", "text", "{0} IS NULL"),
        ],
    ),
    "date": (
        [
            *_of("comparison", "date", "{0} >= DATE '2020-02-29'", "{0} < '2021-02-01'", "{0} <> DATE '2020-12-31'"),
            *_of("comparison", "date", "{0} < TIMESTAMP '2021-01-01 06:00:00'"),
            *_of("INTERVAL", "date", "{0} < DATE '2020-12-31' + INTERVAL '1 month'"),
            *_of("BETWEEN", "date", "{0} BETWEEN DATE '2020-01-01' AND DATE '2020-12-31'"),
            *_of("IN list", "date", "{0} IN (DATE '2020-02-29', DATE '2021-01-01')"),
        ],
        [
            *_of("comparison", "date", "{0} = DATE '2020-12-31'", "{0} > '2021-01-01'"),
            *_of("IS NULL", "date", "{0} IS NULL"),
        ],
    ),
    "timestamp": (
        [
            *_of("comparison", "timestamp", "{0} >= TIMESTAMP '2020-02-29 00:00:00'", "{0} < DATE '2021-03-31'"),
            *_of("IN list", "timestamp", "{0} NOT IN (TIMESTAMP '2020-12-31 00:00:00')"),
            *_of("IS NOT NULL", "timestamp", "{0} IS NOT NULL"),
        ],
        [
            *_of("comparison", "timestamp", "{0} = DATE '2020-02-29'", "{0} > '2021-01-01 12:00:00'"),
            *_of("IS NULL", "timestamp", "{0} IS NULL"),
        ],
    ),
    "bool": (
        [
            *_of("comparison", "bool", "{0}", "{0} = TRUE"),
            *_of("IS NOT NULL", "bool", "{0} IS NOT NULL"),
            *_of("IS DISTINCT FROM", "bool", "{0} IS DISTINCT FROM FALSE"),
            *_of("IS NULL", "bool", "({0} IS NULL OR {0})"),
        ],
        [
            *_of("NOT", "bool", "NOT {0}"),
            *_of("comparison", "bool", "{0} IS NOT TRUE", "{0} IS FALSE"),
            *_of("IS NULL", "bool", "{0} IS NULL"),
        ],
    ),
    "big": (
        [
            *_of("comparison", "big", "{0} >= 1", "{0} <> 2", "{0} < 9", "{0} > -1.5"),
            *_of("IS NOT NULL", "big", "{0} IS NOT NULL"),
            *_of("BETWEEN", "big", "{0} BETWEEN 0 AND 12"),
        ],
        [
            *_of("comparison", "big", "{0} = 2", "{0} <= 0", "{0} > 6"),
            *_of("IS NULL", "big", "{0} IS NULL"),
        ],
    ),
    # Rounded numbers only meet numbers that they cannot be.
    "mean": (_of("comparison", "mean", "{0} > 0.3812", "{0} < 2.7183"), _of("comparison", "mean", "{0} > 1.6181")),
    "rough": (_of("comparison", "rough", "{0} > -0.3812", "{0} < 2.7183"), _of("comparison", "rough", "{0} > 1.6181")),
}  # fmt: skip

# Pairs of kinds that compare, beside equal ones.
MEETING = {
    "int": ("int", "int", "int", "decimal", "float", "big"),
    "big": ("big", "int", "decimal"),
    "decimal": ("decimal", "decimal", "int", "float"),
    "float": ("float", "float", "int", "decimal"),
    "mean": ("int",),
    "text": ("text",),
    "date": ("date", "date", "timestamp"),
    "timestamp": ("timestamp", "timestamp", "date"),
    "bool": ("bool",),
    "rough": (),
}

# Aggregate → kinds it takes and the kind it gives ("same": that of its operand).
AGGREGATES: dict[str, tuple[tuple[str, ...], str]] = {
    "SUM": (("int", "decimal", "float", "big", "mean", "rough"), ""),
    "COUNT": ((*KINDS, "big"), "int"),
    "AVG": (("int", "decimal", "float", "big", "rough"), ""),
    "MIN": ((*KINDS, "big", "rough"), "same"),
    "MAX": ((*KINDS, "big", "rough"), "same"),
    "COUNT(DISTINCT)": ((*KINDS, "big"), "int"),
    "SUM(DISTINCT)": (("int", "decimal", "float"), ""),
    "AVG(DISTINCT)": (("int", "decimal", "float"), ""),
    "STDDEV_SAMP": (("int", "decimal", "float"), "rough"),
    "STDDEV_POP": (("int", "decimal", "float"), "rough"),
    "VAR_SAMP": (("int", "decimal", "float"), "rough"),
    "VAR_POP": (("int", "decimal", "float"), "rough"),
    "BOOL_AND": (("condition",), "bool"),
    "BOOL_OR": (("condition",), "bool"),
    "COUNT_IF": (("condition",), "big"),
}
CALLS = {f"{name}(DISTINCT)": f"{name}(DISTINCT {{0}})" for name in ("COUNT", "SUM", "AVG")}
_SUMS = {"int": "big", "decimal": "big", "big": "big", "float": "float"}


def result_kind(aggregate: str, operand: str) -> str:
    """Return the kind of an aggregate of an operand."""
    fixed = AGGREGATES[aggregate][1]
    if fixed:
        return operand if fixed == "same" else fixed
    if aggregate.startswith("AVG"):
        return "mean" if operand == "int" else "rough"
    return _SUMS.get(operand, "rough")
