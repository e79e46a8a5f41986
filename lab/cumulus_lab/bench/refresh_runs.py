"""Queries of TPC-H together on Spark while all their tables change: every epoch beside DuckDB, programs beside others.

The stream is that of `cumulus_lab.workloads.tpch.refresh`, as folders of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.output.query import query
from cumulus.epochs.progress import Epoch
from cumulus.workloads import changes, checks
from cumulus.workloads.benchmark import one_of
from cumulus_lab.workloads.tpch import TABLES, Refreshes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = {"full": None, "1": 1, "0": 0}
"""Orders of materialisation, as the compiler is told them."""

_COLD = 1
"""Epochs that do not count for medians: the first loads the tables."""


@dataclass(frozen=True, slots=True)
class WrittenStream:
    """A stream in folders, and what DuckDB says about it.

    Parameters
    ----------
    upserts, pairs
        Input folders: updates as upserts, for tables whose keys are checked, and as deletions and insertions.
    changes
        By operation: `i`, `u`, `d`, for each epoch.
    expected
        For each epoch, view → rows; none if nothing is to be compared.
    """

    stream: Refreshes
    upserts: Path
    pairs: Path
    changes: Sequence[Mapping[str, int]]
    expected: Sequence[Mapping[str, pa.Table]]

    def folder(self, keys: str) -> Path:
        """Return the input folder for tables that declare `keys`."""
        return self.upserts if keys in ("primary", "foreign") else self.pairs

    def count(self, op: str) -> int:
        """Return how many changes of a kind there are, in all epochs."""
        return sum(each[op] for each in self.changes)


def write_stream(stream: Refreshes, folder: Path, *, check: bool) -> WrittenStream:
    """Write a stream below `folder` in both forms; with `check`, let DuckDB compute each epoch's views from the files.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cumulus_lab.workloads import tpch
    >>> stream = tpch.refreshes(tpch.sample(orders=80), queries=("q9",), epochs=3)
    >>> with TemporaryDirectory() as folder:
    ...     written = write_stream(stream, Path(folder), check=True)
    >>> [sorted(views) for views in written.expected]
    [['q9'], ['q9'], ['q9']]
    """
    upserts, pairs = folder / "upserts", folder / "pairs"
    changes.write(upserts, stream.epochs())
    changes.write(pairs, stream.epochs(upserts=False))
    epochs = changes.read(upserts)
    counts = [_operations(epoch) for epoch in epochs]
    return WrittenStream(stream, upserts, pairs, counts, [*_recomputed(stream, epochs)] if check else [])


def _operations(epoch: changes.Epoch) -> dict[str, int]:
    ops = pa.chunked_array([chunk for table in epoch.values() for chunk in table["op"].chunks], pa.string())
    found = {each["values"]: each["counts"] for each in pc.value_counts(ops).to_pylist()}
    return {op: found.get(op, 0) for op in "iud"}


def _recomputed(stream: Refreshes, epochs: Sequence[changes.Epoch]) -> Iterator[dict[str, pa.Table]]:
    selects = checks.views(stream.sql("none"))
    keys = {name: TABLES[name].key for name in stream.columns}
    for count in range(1, len(epochs) + 1):
        tables = changes.replay(epochs[:count], keys)
        yield {view: checks.recompute(select, tables) for view, select in selects.items()}


@dataclass
class Comparison:
    """Views of committed epochs beside what DuckDB has said; one is called as `on_epoch` of a host."""

    written: WrittenStream
    epochs: list[Epoch] = field(default_factory=list)
    compared: int = 0
    different: list[str] = field(default_factory=list)
    """A line for each view of an epoch that is not DuckDB's."""

    def __call__(self, epoch: Epoch) -> None:
        """Compare the views of an epoch; one that follows the last files, for deletions alone, has the same views."""
        self.epochs.append(epoch)
        if not self.written.expected:
            return
        for view, expected in self.written.expected[min(epoch.number, len(self.written.expected)) - 1].items():
            self.compared += 1
            found = checks.differences(expected, query(epoch.out, f'FROM "{view}"', epoch.number), limit=2)
            if found:
                self.different.append(f"{view} in epoch {epoch.number}: {'; '.join(found)}")


def measure(
    spark: SparkSession, written: WrittenStream, out: Path, *, keys: str, layout: str, buckets: int, order: str
) -> tuple[dict[str, Any], Comparison]:
    """Maintain all queries of a stream in one program; return figures, and what was compared.

    Rates are by changes of the stream, of which an update is one in either form, and without the time that comparing
    takes. `written` may be a small stream of the same queries, too: then Java is warm afterwards, and the program's
    machine code is there.

    Parameters
    ----------
    keys
        What the tables declare, one of `KEYS`.
    order
        One of `ORDERS`.

    Returns
    -------
    tuple
        A row of figures, the medians over all epochs but the first and one that may follow the last files; and what
        was compared.
    """
    from cumulus.spark.pipeline import maintain

    one_of(order, tuple(ORDERS), "order")
    program = compile_sql(written.stream.sql(keys), rely=False, order=ORDERS[order])
    found = Comparison(written)
    run = maintain(spark, program, str(written.folder(keys)), out, on_epoch=found, layout=layout, buckets=buckets)
    plan, epochs = run.identity.plan, found.epochs
    counts = [sum(each.values()) for each in written.changes]
    totals = epochs[-1].totals
    warm = [epoch for epoch in epochs if epoch.number <= len(counts)][_COLD:]
    seconds = sum(epoch.seconds for epoch in epochs)
    return {
        "keys": keys,
        "buckets": plan.buckets,
        "layout": plan.why,
        "spread": dict(plan.partitioned),
        "order": order,
        "maps": len(program.maps),
        "enforced": sum(key.enforced for relation in program.relations for key in relation.foreign_keys),
        "kept": len(program.kept),
        "epochs": len(epochs),
        "compared": found.compared,
        "different": len(found.different),
        "changes_per_s": round(sum(counts) / seconds),
        "load_changes_per_s": round(counts[0] / epochs[0].seconds),
        "epoch_changes_per_s": round(
            median(count / epoch.seconds for count, epoch in zip(counts[_COLD:], warm, strict=True))
        ),
        "epoch_ms": round(median(epoch.seconds for epoch in warm) * 1000, 1),
        "engine_ms": round(median(epoch.parts["engine"] for epoch in warm) * 1000, 1),
        "engine_s": round(sum(epoch.parts["engine"] for epoch in epochs), 2),
        "seconds": round(seconds, 2),
        "events": totals["events"],
        "applied": totals["applied"],
        "quarantined": totals["quarantined"],
        "waiting": epochs[-1].counts["waiting"],
        "view_errors": sum(epochs[-1].view_error_totals.values()),
    }, found
