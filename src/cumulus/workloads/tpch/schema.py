"""The tables of TPC-H and the text of the queries, with as many keys and columns as one wants."""

from __future__ import annotations

from pathlib import Path

from cumulus.catalog.types import BIGINT, DATE, INTEGER, VARCHAR, decimal
from cumulus.workloads.benchmark import Benchmark, relation

QUERIES = tuple(f"q{number}" for number in range(1, 23))
"""The queries, in the specification's numbering, with its validation values; each is one view of its own name."""

_TYPES = {"key": BIGINT, "int": INTEGER, "num": decimal(15, 2), "text": VARCHAR, "date": DATE}
# Every column is NOT NULL. The order of the tables is parents before children.
_COLUMNS = {
    "region": "r_regionkey key, r_name text, r_comment text",
    "nation": "n_nationkey key, n_name text, n_regionkey key, n_comment text",
    "part": "p_partkey key, p_name text, p_mfgr text, p_brand text, p_type text, p_size int, p_container text, "
    "p_retailprice num, p_comment text",
    "supplier": "s_suppkey key, s_name text, s_address text, s_nationkey key, s_phone text, s_acctbal num, "
    "s_comment text",
    "partsupp": "ps_partkey key, ps_suppkey key, ps_availqty int, ps_supplycost num, ps_comment text",
    "customer": "c_custkey key, c_name text, c_address text, c_nationkey key, c_phone text, c_acctbal num, "
    "c_mktsegment text, c_comment text",
    "orders": "o_orderkey key, o_custkey key, o_orderstatus text, o_totalprice num, o_orderdate date, "
    "o_orderpriority text, o_clerk text, o_shippriority int, o_comment text",
    "lineitem": "l_orderkey key, l_partkey key, l_suppkey key, l_linenumber int, l_quantity num, "
    "l_extendedprice num, l_discount num, l_tax num, l_returnflag text, l_linestatus text, l_shipdate date, "
    "l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text",
}
_PRIMARY = {  # the others: their first column
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
_FOREIGN = {
    "nation": {"n_regionkey": "region r_regionkey"},
    "supplier": {"s_nationkey": "nation n_nationkey"},
    "partsupp": {"ps_partkey": "part p_partkey", "ps_suppkey": "supplier s_suppkey"},
    "customer": {"c_nationkey": "nation n_nationkey"},
    "orders": {"o_custkey": "customer c_custkey"},
    "lineitem": {
        "l_orderkey": "orders o_orderkey",
        "l_partkey": "part p_partkey",
        "l_suppkey": "supplier s_suppkey",
        "l_partkey l_suppkey": "partsupp ps_partkey ps_suppkey",
    },
}

TABLES = {
    name: relation(name, columns, _TYPES, _PRIMARY.get(name, ()), _FOREIGN.get(name, {}))
    for name, columns in _COLUMNS.items()
}
"""Name → relation, parents before children."""

BENCHMARK = Benchmark(TABLES, QUERIES, Path(__file__).with_name("queries"))
"""TPC-H as `cumulus.workloads.benchmark` describes one."""

sql, query_columns = BENCHMARK.sql, BENCHMARK.query_columns
