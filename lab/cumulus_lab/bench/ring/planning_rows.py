"""Planning on a ring: what a node does before it asks for the first chunk of a query."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from cumulus.catalog.names import folded
from cumulus_lab.bench.ring.query_rows import QUERIES
from cumulus_ring.chunks.fitting import check_fits
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.machine.messages import Groups, QueryEnded, QuerySubmitted, Reconfigured, SendRequests
from cumulus_ring.machine.node import RingNode
from cumulus_ring.nodes import EngineLimits, open_engine, plan_query
from cumulus_ring.process.settings import RingOptions
from cumulus_ring.process.wire import encode_requests

GOAL_MS = 20.0
"""For a query, at most."""


def planning_rows(source: Path, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each query: until its plan is known, then until its requests are what goes over a link.

    The node owns no chunk, so that all of them are asked for.
    """
    catalogue = read_source(source)
    tables = {folded(table.name): table for table in catalogue.tables}
    options = RingOptions(str(source), "")
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        engine = open_engine(EngineLimits(Path(scratch)))
        machine = RingNode("node1", options.machine(), random.Random(0))
        machine.step(_now(), Reconfigured(1, 2, {}, catalogue.version))
        number = 0
        for name, sql in QUERIES.items():
            planned: list[float] = []
            asked: list[float] = []
            for _ in range(repetitions + 1):  # the first is not counted
                number += 1
                began = time.thread_time()
                with engine.cursor() as cursor:
                    plan = plan_query(cursor, sql, tables)
                middle = time.thread_time()
                scans: list[Groups] = []
                for need in plan.scans:
                    groups = catalogue.table(need.occurrence.table.name).groups(need.columns, need.predicates)
                    check_fits(groups, options.largest_batch)
                    scans.append([tuple(chunk.id for chunk in group.chunks) for group in groups])
                for effect in machine.step(_now(), QuerySubmitted(number, scans)):
                    if isinstance(effect, SendRequests):
                        encode_requests(effect.requests)
                planned.append(middle - began)
                asked.append(time.thread_time() - middle)
                machine.step(_now(), QueryEnded(number))
            plan_ms, requests_ms = (round(median(each[1:]) * 1e3, 2) for each in (planned, asked))
            yield {
                "measure": "planning",
                "query": name,
                "plan_cpu_ms": plan_ms,
                "requests_cpu_ms": requests_ms,
                "scans": len(scans),
                "chunks": sum(len(group) for groups in scans for group in groups),
                "goal": GOAL_MS,
                "within": plan_ms + requests_ms <= GOAL_MS,
            }
        engine.close()


def _now() -> int:
    return time.monotonic_ns() // 1000
