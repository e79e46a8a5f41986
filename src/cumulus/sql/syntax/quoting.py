"""Names that Cumulus takes as they are and DuckDB only in double quotes."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from cumulus.sql.syntax.dialect import CumulusSql

_WORDS = frozenset((
    "anti", "asof", "at", "authorization", "binary", "by", "collation", "concurrently", "freeze", "full", "is",
    "isnull", "left", "natural", "overlaps", "right", "semi", "similar", "unpack", "verbose",
))  # fmt: skip
"""Words that DuckDB takes as the name of a function or type, and of a column only in quotes or behind a dot."""


def for_duckdb(query: str) -> str:
    """Return a query of a view, which has been read before, as DuckDB takes it.

    Examples
    --------
    >>> for_duckdb("SELECT left(name, 1) AS l, MAX(at) AS last FROM clicks")
    'SELECT left(name, 1) AS l, MAX("at") AS last FROM clicks'
    """
    if not any(word in query.lower() for word in _WORDS):
        return query
    names = {
        (name.meta["start"], name.meta["end"] + 1)
        for name in sqlglot.parse_one(query, read=CumulusSql).find_all(exp.Identifier)
        if not name.quoted and "start" in name.meta and name.name.lower() in _WORDS
    }
    for start, end in sorted(names, reverse=True):
        query = f'{query[:start]}"{query[start:end]}"{query[end:]}'
    return query
