"""What to write instead: of statements that no script takes, of aggregates that no view keeps, of types there are not.

Names are those that DuckDB's users write.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from cumulus.scalars.registry import FUNCTIONS

_QUERY = "Name it, to keep it: CREATE VIEW name AS SELECT …; or ask once with query()."
_ROWS = "Rows go in by insert(), delete(), update() and upsert(), or from files by cumulus run --from."
_SETTING = "Leave it out: settings are arguments of the Warehouse, or options of the command."
_LOOK = (
    "Leave it out; explain(view) says what a view costs, cumulus explain does for a file, tables and views list both."
)
_TRANSACTION = "Leave it out: a script is compiled as a whole. Rows go in together inside transaction()."
_FILES = "Leave it out: files are read by cumulus run --from, or with Warehouse.fill()."

STATEMENTS = {
    **dict.fromkeys(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT"), _QUERY),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "REPLACE", "UPSERT"), _ROWS),
    **dict.fromkeys(("COPY", "IMPORT", "EXPORT", "LOAD", "INSTALL", "ATTACH", "DETACH"), _FILES),
    **dict.fromkeys(("EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SUMMARIZE", "ANALYZE"), _LOOK),
    **dict.fromkeys(("BEGIN", "COMMIT", "ROLLBACK", "START", "END", "ABORT"), _TRANSACTION),
    **dict.fromkeys(("SET", "RESET", "PRAGMA", "USE", "VACUUM", "CHECKPOINT", "GRANT", "REVOKE", "COMMENT"), _SETTING),
    **dict.fromkeys(("CALL", "EXECUTE", "PREPARE", "DEALLOCATE"), "A script calls nothing: leave it out."),
    "ALTER": "A table is what it was declared: write its CREATE TABLE anew, in a new warehouse.",
}
"""The first words of statements that no script takes, with the way out."""
_FUNCTION = "A function of your own is given as functions=[f], or --functions FILE.py (docs/functions.md)."
_INDEX = "Leave it out: what a view looks up is found by itself."
KINDS = {
    **dict.fromkeys(("INDEX", "UNIQUE"), _INDEX),
    **dict.fromkeys(("FUNCTION", "MACRO", "AGGREGATE", "PROCEDURE"), _FUNCTION),
    **dict.fromkeys(("SCHEMA", "DATABASE"), "There are no schemas: give each table a name of its own."),
    "SEQUENCE": "Give the rows their numbers before they are inserted.",
    "TYPE": "Write the type itself for each column; an ENUM is a VARCHAR here.",
    "TRIGGER": "A view is kept by itself; subscribe() tells its changes.",
    "SECRET": _SETTING,
}
"""What else is created in SQL, with the way out."""
_TEMPORARY = "Nothing is temporary here: leave the word out, and drop a view that is not wanted any more."
MODIFIERS = {
    **dict.fromkeys(("TEMP", "TEMPORARY", "LOCAL", "GLOBAL"), _TEMPORARY),
    **dict.fromkeys(("UNLOGGED", "PERSISTENT", "EXTERNAL", "TRANSIENT"), "Leave the word out."),
    "RECURSIVE": "A view does not read itself.",
}
"""Words between CREATE and what it creates that are refused, with the way out."""
QUERIES = {
    **dict.fromkeys(
        ("PIVOT", "PIVOT_WIDER"),
        "Write a column for each value: SUM(x) FILTER (WHERE k = 'a') AS a; or use PIVOT in query().",
    ),
    **dict.fromkeys(
        ("UNPIVOT", "PIVOT_LONGER"), "Write a SELECT for each column, with UNION ALL; or use UNPIVOT in query()."
    ),
    **dict.fromkeys(("DESCRIBE", "SHOW", "SUMMARIZE", "EXPLAIN"), "A view is a SELECT."),
    "VALUES": "Put the rows into a table of their own: CREATE TABLE t (…) WITH (static = true), and insert().",
}
"""The first words of what may stand behind AS in DuckDB and not here, with the way out."""

_ORDERED = "Keep the rows in a view (SELECT … without GROUP BY), and aggregate them in query()."
_ONE_OF = "MIN or MAX say which one; or put the column into GROUP BY."
_ROW_OF = "Write the rows that have it: WHERE x = (SELECT MAX(i.x) FROM t i WHERE i.g = t.g)."
_LISTED = "Keep the rows in a view (SELECT … without GROUP BY), and put them together in query()."
_MOMENTS = "It is made of sums: keep SUM(x * y), SUM(x), SUM(y) and COUNT(*), and compute it from them."
_COUNTS = "Keep the counts: SELECT x, COUNT(*) … GROUP BY x, and compute it from them in query()."
AGGREGATES = {
    **dict.fromkeys(
        (
            "median", "quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc", "mad",
            "approx_quantile", "reservoir_quantile", "lttb", "skewness", "kurtosis", "kurtosis_pop", "product",
            "bit_xor", "bit_and", "bit_or", "bitstring_agg", "geomean", "geometric_mean", "sem",
        ),
        _ORDERED,
    ),
    **dict.fromkeys(("mode", "entropy", "histogram", "histogram_exact", "approx_top_k"), _COUNTS),
    **dict.fromkeys(("any_value", "arbitrary", "first", "last", "first_value", "last_value"), _ONE_OF),
    **dict.fromkeys(
        ("max_by", "min_by", "arg_max", "arg_min", "argmax", "argmin", "arg_max_null", "arg_min_null"), _ROW_OF
    ),
    **dict.fromkeys(
        ("string_agg", "group_concat", "listagg", "list", "array_agg", "map", "json_group_array", "json_group_object"),
        _LISTED,
    ),
    **dict.fromkeys(
        (
            "corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count", "regr_avgx",
            "regr_avgy", "regr_sxx", "regr_sxy", "regr_syy",
        ),
        _MOMENTS,
    ),
    **dict.fromkeys(("fsum", "kahan_sum", "sumkahan", "sum_no_overflow", "favg"), "SUM and AVG add exactly: use them."),
    "approx_count_distinct": "COUNT(DISTINCT x) is exact, and kept by changes alone.",
}  # fmt: skip
"""Aggregates that no view keeps, with the way out."""
WINDOWS = frozenset(
    ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value")
)
"""Functions that want OVER (…)."""

_NESTED = "Give its parts columns of their own, or its elements rows of a table of their own."
TYPES = {
    "UUID": "Keep it as VARCHAR.",
    **dict.fromkeys(("JSON", "JSONB", "XML"), "Keep it as VARCHAR, or give what views read columns of its own."),
    **dict.fromkeys(("ENUM", "BIT", "BITSTRING", "BLOB", "BYTEA", "BINARY", "VARBINARY"), "Keep it as VARCHAR."),
    **dict.fromkeys(("TIME", "TIMETZ"), "Keep it as INTERVAL since midnight, or with its day as TIMESTAMP."),
    "UTINYINT": "SMALLINT holds all its values.",
    "USMALLINT": "INTEGER holds all its values.",
    "UINTEGER": "BIGINT holds all its values.",
    "UBIGINT": "HUGEINT holds all its values.",
    "UHUGEINT": "DECIMAL(38,0) holds most of its values.",
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "TIMESTAMP has microseconds."),
    **dict.fromkeys(("ARRAY", "LIST", "STRUCT", "MAP", "UNION", "ROW", "OBJECT"), _NESTED),
    **dict.fromkeys(("DECIMAL", "NUMERIC"), "DECIMAL(p,s) has 1 to 38 digits, up to all of them after the point."),
    **dict.fromkeys(
        ("SERIAL", "BIGSERIAL"), "BIGINT holds them; give the rows their numbers before they are inserted."
    ),
    "MONEY": "Keep it as DECIMAL(p,s).",
}
"""Types that are known elsewhere, with the way out."""
_TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "DECIMAL", "NUMERIC", "REAL", "FLOAT",
    "DOUBLE", "VARCHAR", "TEXT", "STRING", "CHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME", "INTERVAL",
)  # fmt: skip
ALL_TYPES = (
    "Use BOOLEAN, TINYINT … HUGEINT, DECIMAL(p,s), REAL, DOUBLE, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ or INTERVAL."
)


def type_advice(name: str, written: str) -> str:
    """Return the way out of a type that there is not.

    Parameters
    ----------
    name
        As sqlglot calls it, in upper case; "" for a type that nobody knows.
    written
        As it is written.
    """
    word = written.split("(")[0].split("[")[0].strip().upper()
    if name in TYPES or word in TYPES:
        return TYPES.get(name) or TYPES[word]
    return did_you_mean(word, _TYPES) or ALL_TYPES


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> str:
    """Return "Did you mean …?" of the names most like one, "" if none is."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=most, cutoff=cutoff)
    return f"Did you mean {' or '.join(close)}?" if close else ""


def function_advice(name: str, others: Iterable[str]) -> str:
    """Return the way out of a function that there is not; `others` are the names that there are besides."""
    if name in AGGREGATES:
        return AGGREGATES[name]
    if name in WINDOWS:
        return "It is a window function: aggregate in the view, and apply the window in query()."
    told = "docs/functions.md lists them. One of yours is given as functions=[f], or --functions FILE.py."
    alike = did_you_mean(name, [*FUNCTIONS, *others], most=2, cutoff=0.7)
    return f"{alike} {told}" if alike else told
