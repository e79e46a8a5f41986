"""The tables of the star schema benchmark and where its queries are.

Source: O'Neil, O'Neil and Chen, "The Star Schema Benchmark", revision 3. Its table DATE is `dates` here.
"""

from __future__ import annotations

from pathlib import Path

from cumulus.catalog.types import BIGINT, DATE, INTEGER, VARCHAR
from cumulus.workloads.benchmark import Benchmark, relation

QUERIES = (
    *("q1_1", "q1_2", "q1_3"),
    *("q2_1", "q2_2", "q2_3"),
    *("q3_1", "q3_2", "q3_3", "q3_4"),
    *("q4_1", "q4_2", "q4_3"),
)
"""Flight and number: `q1_1` is Q1.1; each is one view of its own name."""

_TYPES = {"key": INTEGER, "int": INTEGER, "cents": BIGINT, "text": VARCHAR, "date": DATE}
# Every column is NOT NULL. The order of the tables is parents before children.
_COLUMNS = {
    "dates": "d_datekey key, d_date date, d_dayofweek text, d_month text, d_year int, d_yearmonthnum int, "
    "d_yearmonth text, d_daynuminweek int, d_daynuminmonth int, d_daynuminyear int, d_monthnuminyear int, "
    "d_weeknuminyear int, d_sellingseason text, d_lastdayinweekfl int, d_lastdayinmonthfl int, d_holidayfl int, "
    "d_weekdayfl int",
    "customer": "c_custkey key, c_name text, c_address text, c_city text, c_nation text, c_region text, c_phone text, "
    "c_mktsegment text",
    "supplier": "s_suppkey key, s_name text, s_address text, s_city text, s_nation text, s_region text, s_phone text",
    "part": "p_partkey key, p_name text, p_mfgr text, p_category text, p_brand1 text, p_color text, p_type text, "
    "p_size int, p_container text",
    "lineorder": "lo_orderkey key, lo_linenumber int, lo_custkey key, lo_partkey key, lo_suppkey key, "
    "lo_orderdate key, lo_orderpriority text, lo_shippriority text, lo_quantity int, lo_extendedprice cents, "
    "lo_ordtotalprice cents, lo_discount int, lo_revenue cents, lo_supplycost cents, lo_tax int, lo_commitdate key, "
    "lo_shipmode text",
}
_FOREIGN = {
    "lo_custkey": "customer c_custkey",
    "lo_partkey": "part p_partkey",
    "lo_suppkey": "supplier s_suppkey",
    "lo_orderdate": "dates d_datekey",
    "lo_commitdate": "dates d_datekey",
}

TABLES = {
    name: relation(
        name,
        columns,
        _TYPES,
        ("lo_orderkey", "lo_linenumber") if name == "lineorder" else (),
        _FOREIGN if name == "lineorder" else {},
    )
    for name, columns in _COLUMNS.items()
}
"""Name → relation, parents before children."""

BENCHMARK = Benchmark(TABLES, QUERIES, Path(__file__).with_name("queries"))
"""The star schema benchmark as `cumulus.workloads.benchmark` describes one."""
