"""The tables of TPC-H and the text of the queries, with as many keys and columns as one wants."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from cumulus.catalog import Column, ForeignKey, Relation
from cumulus.catalog.types import BIGINT, DATE, INTEGER, VARCHAR, decimal
from cumulus.errors import UnknownNameError, UsageError

QUERIES = ("q1", "q3", "q5", "q6", "q10", "q12", "q14", "q19")
"""The queries, in the specification's numbering, with its validation values; each is one view of its own name."""

KEYS = ("none", "primary", "foreign", "rely")
"""What `sql` may declare: no keys, primary keys, foreign keys too, or both trusted."""

COLUMNS = ("all", "used")
"""Which columns a table has: the specification's, or those that the query reads and the primary key."""

_MONEY = decimal(15, 2)
_TYPES = {"key": BIGINT, "int": INTEGER, "num": _MONEY, "text": VARCHAR, "date": DATE}
# Every column is NOT NULL. The order of the tables is parents before children.
_COLUMNS = {
    "region": "r_regionkey key, r_name text, r_comment text",
    "nation": "n_nationkey key, n_name text, n_regionkey key, n_comment text",
    "part": "p_partkey key, p_name text, p_mfgr text, p_brand text, p_type text, p_size int, p_container text, "
    "p_retailprice num, p_comment text",
    "supplier": "s_suppkey key, s_name text, s_address text, s_nationkey key, s_phone text, s_acctbal num, "
    "s_comment text",
    "customer": "c_custkey key, c_name text, c_address text, c_nationkey key, c_phone text, c_acctbal num, "
    "c_mktsegment text, c_comment text",
    "orders": "o_orderkey key, o_custkey key, o_orderstatus text, o_totalprice num, o_orderdate date, "
    "o_orderpriority text, o_clerk text, o_shippriority int, o_comment text",
    "lineitem": "l_orderkey key, l_partkey key, l_suppkey key, l_linenumber int, l_quantity num, "
    "l_extendedprice num, l_discount num, l_tax num, l_returnflag text, l_linestatus text, l_shipdate date, "
    "l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text",
}
_PRIMARY = {"lineitem": ("l_orderkey", "l_linenumber")}  # the others: their first column
_FOREIGN = {
    "nation": {"n_regionkey": "region"},
    "supplier": {"s_nationkey": "nation"},
    "customer": {"c_nationkey": "nation"},
    "orders": {"o_custkey": "customer"},
    "lineitem": {"l_orderkey": "orders", "l_partkey": "part", "l_suppkey": "supplier"},
}


def _relation(name: str) -> Relation:
    columns = tuple(
        Column(column, _TYPES[kind], not_null=True)
        for column, kind in (text.split() for text in _COLUMNS[name].split(", "))
    )
    foreign = tuple(
        ForeignKey((column,), parent, (_COLUMNS[parent].split()[0],))
        for column, parent in _FOREIGN.get(name, {}).items()
    )
    return Relation(name, columns, key=_PRIMARY.get(name, (columns[0].name,)), foreign_keys=foreign)


TABLES = {name: _relation(name) for name in _COLUMNS}
"""Name → relation, parents before children; partsupp is in none of the eight queries and left out."""


@lru_cache(maxsize=len(QUERIES))
def view(query: str) -> str:
    """Return the CREATE VIEW statement of `query`, with its comment.

    Raises
    ------
    UnknownNameError
        `query` is not one of `QUERIES`.
    """
    if query not in QUERIES:
        raise UnknownNameError(f"there is no query {query!r}", hint=f"There are {', '.join(QUERIES)}.")
    return Path(__file__).with_name("queries").joinpath(f"{query}.sql").read_text(encoding="utf-8")


def query_columns(query: str, columns: str = "all") -> dict[str, tuple[str, ...]]:
    """Return table → columns for the tables that `query` reads, in `TABLES`' order.

    Parameters
    ----------
    query
        One of `QUERIES`.
    columns
        One of `COLUMNS`.

    Examples
    --------
    >>> query_columns("q14", "used")["part"]
    ('p_partkey', 'p_type')
    """
    _one_of(columns, COLUMNS, "columns")
    words = set(re.findall(r"\w+", view(query)))
    found = {}
    for name, relation in TABLES.items():
        read = [column for column in relation.column_names if column in words]
        if read:
            wanted = relation.column_names if columns == "all" else {*read, *relation.key}
            found[name] = tuple(column for column in relation.column_names if column in wanted)
    return found


def sql(query: str, *, columns: str = "all", keys: str = "primary", static: tuple[str, ...] = ()) -> str:
    """Return a whole SQL file for `query`: CREATE TABLE for what it reads, and its view.

    Parameters
    ----------
    query
        One of `QUERIES`.
    columns
        One of `COLUMNS`.
    keys
        One of `KEYS`. ``foreign`` and ``rely`` hold only for streams that bring parents first.
    static
        Tables declared static: loaded before the stream (`nation` and `region`, say). Those that the query does
        not read are passed over.

    Examples
    --------
    >>> print(sql("q6", columns="used", keys="rely").split(chr(10) * 2)[0])
    CREATE TABLE lineitem (
      l_orderkey BIGINT NOT NULL,
      l_linenumber INTEGER NOT NULL,
      l_quantity DECIMAL(15,2) NOT NULL,
      l_extendedprice DECIMAL(15,2) NOT NULL,
      l_discount DECIMAL(15,2) NOT NULL,
      l_shipdate DATE NOT NULL,
      PRIMARY KEY (l_orderkey, l_linenumber) RELY
    );
    """
    _one_of(keys, KEYS, "keys")
    for name in static:
        _one_of(name, tuple(TABLES), "static")
    used = query_columns(query, columns)
    tables = [_create(TABLES[name], used, keys, name in static) for name in used]
    return "\n\n".join([*tables, view(query)])


def _create(relation: Relation, used: dict[str, tuple[str, ...]], keys: str, static: bool) -> str:
    rely = " RELY" if keys == "rely" else ""
    lines = [
        f"{column.name} {column.type} NOT NULL" for column in relation.columns if column.name in used[relation.name]
    ]
    if keys != "none":
        lines.append(f"PRIMARY KEY ({', '.join(relation.key)}){rely}")
    if keys in ("foreign", "rely"):
        lines.extend(
            f"FOREIGN KEY ({key.columns[0]}) REFERENCES {key.parent} ({key.parent_columns[0]}){rely}"
            for key in relation.foreign_keys
            if key.parent in used and key.columns[0] in used[relation.name]
        )
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {relation.name} (\n  {body}\n){' WITH (static = true)' if static else ''};"


def _one_of(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise UsageError(f"{name} is {value!r}", hint=f"It can be {', '.join(choices)}.")
