"""Every workload compiles, and its views promise the columns that DuckDB computes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cumulus.catalog.types import arrow_type
from cumulus.compiler.pipeline import compile_sql
from cumulus.workloads import checks, flights, shop, tpch
from cumulus_lab.workloads import BENCHMARKS, queries
from support.benchmarks import NOT_YET
from support.tiers import sampled

WORKLOADS = {"flights": flights.sql(), "shop": shop.sql()} | {
    f"{benchmark} {query}": script
    for benchmark in BENCHMARKS
    for query, script in queries(benchmark).items()
    if query not in NOT_YET[benchmark]
}


@pytest.mark.parametrize("workload", sampled(WORKLOADS, of=3))
def test_a_view_has_the_oracles_columns_and_types(workload: str) -> None:
    sql = WORKLOADS[workload]
    empty = {name: table.schema.empty_table() for name, table in checks.declared(sql).items()}
    program = compile_sql(sql)
    assert [view.name for view in program.views] == list(checks.views(sql))
    for view in program.views:
        wanted = checks.recompute(checks.views(sql)[view.name], empty).schema
        promised = pa.schema([(column.name, arrow_type(column.type)) for column in view.columns if column.type])
        assert promised == wanted, view.name


@pytest.mark.slow
@pytest.mark.parametrize("keys", sampled(["none", "primary", "foreign", "rely"], of=4))
def test_tpch_compiles_with_all_keys_and_static_tables(keys: str) -> None:
    for query in tpch.QUERIES:
        if query in NOT_YET["tpch"]:
            continue
        program = compile_sql(tpch.sql(query, keys=keys, static=("region", "nation")))
        assert [relation.name for relation in program.relations] == list(tpch.query_columns(query))
        for relation in program.relations:
            assert relation.static == (relation.name in ("region", "nation"))
            assert relation.key == (() if keys == "none" else tpch.TABLES[relation.name].key)
            assert relation.key_rely == (keys == "rely")
            assert len(relation.foreign_keys) == (
                0 if keys in ("none", "primary") else expected_parents(relation.name, query)
            )


def expected_parents(table: str, query: str) -> int:
    return sum(key.parent in tpch.query_columns(query) for key in tpch.TABLES[table].foreign_keys)
