"""docs/costs.md says what the compiler does: the class of an event for every query and table of the benchmarks.

`CUMULUS_GOLDEN=write pytest tests/docs/test_costs.py` writes the tables.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.explain.cost import CostClass, cost_classes
from cumulus_lab.workloads import queries
from support.tiers import sampled

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
STATIC = {"tpch": ("nation", "region"), "ssb": (), "orderbook": ()}


@cache
def classes(workload: str) -> dict[str, dict[str, CostClass]]:
    scripts = queries(workload, keys="primary", static=STATIC[workload])
    return {name: next(iter(cost_classes(compile_sql(script)).values())) for name, script in scripts.items()}


def table(found: dict[str, dict[str, CostClass]]) -> str:
    lines = ["| query | O(1) | O(log n) | O(slice) | O(n) |", "|---|---|---|---|---|"]
    for query, tables in found.items():
        columns = [
            ", ".join(sorted(name for name, cost in tables.items() if cost is wanted)) or "–"
            for wanted in (CostClass.CONSTANT, CostClass.LOGARITHMIC, CostClass.SLICE, CostClass.SCAN)
        ]
        lines.append(f"| {query} | {' | '.join(columns)} |")
    return "\n".join(lines)


@pytest.mark.parametrize("workload", sampled(STATIC, of=2))
def test_the_page_says_what_the_compiler_does(workload: str) -> None:
    found = classes(workload)
    assert all(cost is not CostClass.REEVALUATION for tables in found.values() for cost in tables.values())
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(rf"<!-- {workload} -->\n(.*?)(?=\n## |\Z)", re.DOTALL)
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        PAGE.write_text(pattern.sub(lambda _: f"<!-- {workload} -->\n\n{table(found)}\n", page), encoding="utf-8")
    else:
        [written] = pattern.findall(page)
        assert written.strip() == table(found)


@pytest.mark.slow
def test_the_page_argues_for_every_scan() -> None:
    told = PAGE.read_text(encoding="utf-8").split("## TPC-H", 1)[0]
    names = {"q22": "TPC-H 22", "vwap": "VWAP", "mst": "missed trades", "psp": "price spread"}
    for workload in STATIC:
        for query, tables in classes(workload).items():
            for name, cost in tables.items():
                if cost is CostClass.SCAN:
                    [row] = [line for line in told.splitlines() if names[query] in line]
                    assert name in row
