"""Which queries may run in the server's own process: those whose values are no longer than what they read.

A function that makes long texts or lists, such as ``repeat('x', 2000000000)``, is not interrupted while it makes one,
and DuckDB's limit of memory does not count it. So a query with any function or operator but these runs in a process
apart.
"""

from __future__ import annotations

import re

_TEXT = re.compile(r"'(?:[^']|'')*'")
_NAME = r'(?:[^\W\d]\w*|"(?:[^"]|"")*")'
_CALL = re.compile(rf"({_NAME})\s*\(")
_ODD = re.compile(r"\|\||--|/\*|->|\$\$|\$\w*\$|[\\\[\]{}#]|\be'|\.\s*" + _NAME + r"\s*\(", re.IGNORECASE)
"""What may stand for, or hide, a function: lists, lambdas, escapes, comments, calls behind a dot."""
_FUNCTIONS = """
abs avg bool_and bool_or cast ceil ceiling coalesce count date_part date_trunc day dense_rank exp extract first_value
floor greatest ifnull isfinite isnan lag last_value lead least length ln log lower max measure median min mod month
ntile nullif percent_rank power quantile_cont rank round row_number sign sqrt stddev stddev_pop stddev_samp substr
substring sum trim try_cast upper var_pop var_samp variance week year
"""
_WORDS = """
all and any as between by case char cube date decimal distinct else except exists filter from group grouping having in
intersect interval is join lateral like ilike limit materialized not numeric offset on or order over partition recursive
rollup select set sets then timestamp union using values varchar when where with within
"""
_PLAIN = frozenset(_FUNCTIONS.split())
_BEFORE_BRACKETS = frozenset(_WORDS.split())


def is_plain(sql: str) -> bool:
    """Whether a query makes no value that is longer than those that it reads.

    Examples
    --------
    >>> is_plain("SELECT region, SUM(n) FROM sales WHERE region IN ('repeat(', 'b') GROUP BY region")
    True
    >>> [is_plain(each) for each in ("SELECT repeat('x', 9)", "SELECT s || s FROM v", 'SELECT "repeat"(s, 9) FROM v')]
    [False, False, False]
    """
    text = _TEXT.sub("''", sql)
    if _ODD.search(text) is not None or text.count('"') % 2:
        return False
    return all(_named(name) in _PLAIN or name.lower() in _BEFORE_BRACKETS for name in _CALL.findall(text))


def _named(name: str) -> str:
    return (name[1:-1].replace('""', '"') if name.startswith('"') else name).lower()


_SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*"
_OPTIONS = rf"(\({_SPACE}(?:ANALYZE|FORMAT)\b[\w\s,]*\))?"
_EXPLAIN = re.compile(rf"{_SPACE}EXPLAIN\b{_SPACE}(ANALYZE\b)?{_SPACE}{_OPTIONS}", re.IGNORECASE)


def split_explain(sql: str) -> tuple[str, str]:
    """Return EXPLAIN with its options, "" if a query has none, and the query.

    Examples
    --------
    >>> split_explain("explain (format json) SELECT 1")
    ('EXPLAIN (format json) ', ' SELECT 1')
    >>> split_explain("EXPLAIN ANALYZE (SELECT 1)")
    ('EXPLAIN ANALYZE ', '(SELECT 1)')
    >>> split_explain("SELECT 1")
    ('', 'SELECT 1')
    """
    found = _EXPLAIN.match(sql)
    if found is None:
        return "", sql
    words = ("EXPLAIN", found[1], found[2])  # without comments, of whose end there may be two opinions
    return " ".join(filter(None, words)) + " ", sql[found.end() :]
