"""The chunks of TPC-H, and which of them each query reads: what `cumulus ring explain` says, at another scale factor.

The planner of the ring is given small tables and the row counts of large ones. Its scans name the columns that a query
reads; the catalogue of the small tables says how many bytes a row has in each of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from cumulus.catalog.names import folded
from cumulus.workloads import tpch
from cumulus.workloads.checks import views
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.nodes import EngineLimits, QueryPlan, open_engine, plan_query
from cumulus_ring.nodes.explain import PACKS, scan_requests
from cumulus_ring.nodes.planning import PlanOperator

SUITE = tuple(name for name in tpch.QUERIES if name not in ("q9", "q10", "q13", "q16"))
"""The queries that table II has."""

PLAN_SCALE = 0.01
"""Scale factor of the tables that are planned over."""

FIXED = ("region", "nation")
"""Tables that have as many rows at any scale factor."""


@dataclass(frozen=True, slots=True)
class ScaledTable:
    """A table as the planner sees it, with the rows of another scale factor."""

    name: str
    schema: pa.Schema
    rows: int


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """A column that a query reads, and how many bytes that is."""

    table: str
    column: str
    size: int


@dataclass(frozen=True, slots=True)
class SuiteChunks:
    """The chunks of all columns that the queries read.

    Parameters
    ----------
    sizes
        In bytes, by number.
    reads
        For each query of `SUITE` the chunks of each row group, in the order in which its plan scans tables, of each
        the first partition first; what several scans read comes once.
    """

    sizes: tuple[int, ...]
    reads: tuple[tuple[tuple[int, ...], ...], ...]


@lru_cache
def column_reads(scale_factor: float) -> tuple[tuple[ColumnRead, ...], ...]:
    """Return for each query of `SUITE` the columns that it reads, scan by scan, in the order in which they begin."""
    with tempfile.TemporaryDirectory(prefix="cumulus-suite-") as scratch:
        catalogue = read_source(tpch.generate(PLAN_SCALE, Path(scratch)))
        more = scale_factor / PLAN_SCALE
        tables = {
            folded(each.name): ScaledTable(
                each.name, each.schema, each.rows if each.name in FIXED else round(each.rows * more)
            )
            for each in catalogue.tables
        }
        with open_engine(EngineLimits(Path(scratch, "spill"))) as engine:
            plans = [plan_query(engine.cursor(), views(tpch.sql(name))[name], tables) for name in SUITE]
    return tuple(tuple(_reads(plan, catalogue)) for plan in plans)


def _reads(plan: QueryPlan, catalogue: Catalogue) -> Iterator[ColumnRead]:
    requests = scan_requests(plan, catalogue, ("node0",))
    for place in scan_order(plan.root):
        need, asked = plan.scans[place], requests[place]
        table = need.occurrence.table
        more = table.rows / catalogue.table(table.name).rows
        for column, size in zip(need.columns, asked.column_bytes, strict=True):
            yield ColumnRead(table.name, column, round(size * more))


def scan_order(operator: PlanOperator) -> list[int]:
    """Return the scans of a plan in the order in which they begin: a join reads one of its sides whole first."""
    own = [] if operator.scan is None else [operator.scan]
    first_last = PACKS.get(operator.name) == "right"
    children = reversed(operator.children) if first_last else operator.children
    return [*own, *(place for child in children for place in scan_order(child))]


def suite_chunks(scale_factor: float, chunk_mb: float) -> SuiteChunks:
    """Return the chunks: a table has so many partitions that none of its columns has a larger chunk than `chunk_mb`."""
    queries = column_reads(scale_factor)
    columns = {(each.table, each.column): each.size for reads in queries for each in reads}
    widest: dict[str, int] = {}
    for (table, _), size in columns.items():
        widest[table] = max(widest.get(table, 1), size)
    partitions = {table: -(-size // round(chunk_mb * 1_000_000)) for table, size in widest.items()}
    numbers: dict[tuple[str, str, int], int] = {}
    sizes: list[int] = []
    for (table, column), size in columns.items():
        for part in range(partitions[table]):
            numbers[table, column, part] = len(sizes)
            sizes.append(max(1, size * (part + 1) // partitions[table] - size * part // partitions[table]))
    return SuiteChunks(tuple(sizes), tuple(_row_groups(reads, partitions, numbers) for reads in queries))


def _row_groups(
    reads: tuple[ColumnRead, ...], partitions: dict[str, int], numbers: dict[tuple[str, str, int], int]
) -> tuple[tuple[int, ...], ...]:
    """Return the chunks of a query: row group by row group of one table after the other."""
    by_table: dict[str, dict[str, None]] = {}
    for each in reads:
        by_table.setdefault(each.table, {})[each.column] = None
    return tuple(
        tuple(numbers[table, column, part] for column in names)
        for table, names in by_table.items()
        for part in range(partitions[table])
    )
