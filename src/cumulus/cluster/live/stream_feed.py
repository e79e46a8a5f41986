"""A streaming DataFrame as rows of a running cluster: `feed`, exactly once.

Each batch is dealt to shards by a hash of its rows, and each shard is sent by the task that has it. Rows of a shard go
under a name made of the query and the shard, and the number of the batch: so a batch that Spark does again, by whatever
tasks, counts once. What is in a batch Spark's checkpoint says.

References
----------
Cumulus introduction, section 1.2: warehouses that are linked to where data comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cumulus.catalog.events import LACKING_COLUMN, OP_COLUMN, POSITION_COLUMN
from cumulus.catalog.names import fresh_column
from cumulus.catalog.schema import Relation
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.live.cluster_places import SCHEME, AgentPlace
from cumulus.epochs.folder_source import NONE, FolderSource
from cumulus.epochs.formats.parsed_rows import Rejected
from cumulus.epochs.intake.reading import read_table
from cumulus.errors import DataError, UsageError
from cumulus.spark.errors import carry_errors_through_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

SHARDS = 64
"""Rows of a batch are in one of so many shards by their hash, for the life of a query."""
_QUERY = "sql.streaming.queryId"
"""The property of a task with the name of its query, which Spark's checkpoint keeps."""
_SENT = "rows bigint"


def feed(
    frame: DataFrame,
    table: str,
    cluster: str,
    *,
    checkpoint: str,
    op: str = "",
    tasks: int = 0,
    secret_file: str = "",
    tls_ca: str = "",
    insecure: bool = False,
    timeout_s: float = 60.0,
    **trigger: Any,
) -> StreamingQuery:
    """Start a query that sends the rows of a streaming DataFrame to a table of a running cluster, each once.

    A batch is done when all of its rows are accepted, which is when they are on the disk of their switch. If the query
    is started again, with the same checkpoint, it goes on with the batch that was not done.

    Parameters
    ----------
    frame
        Its columns are those of the table, by name, and perhaps one that says what is done.
    table, cluster
        A table, and where the cluster is, as `cumulus.connect` takes it; seen by all of Spark's workers. A folder is
        seen by those of this computer.
    checkpoint
        Where Spark keeps what is done.
    op
        The column that says insert, delete or upsert, as in files; "op" if it is there and is none of the table's.
    tasks
        How many send at a time, at most; 0 leaves it to Spark.
    secret_file, tls_ca, insecure
        As in `cumulus.connect`; the files are on all workers.
    timeout_s
        How long a call may wait.
    trigger
        When batches begin, as `pyspark.sql.streaming.DataStreamWriter.trigger` takes it: ``availableNow=True``.

    Raises
    ------
    UsageError
        If the DataFrame is not a streaming one.
    UnknownNameError
        If there is no such table.
    NotRunningError
        If the cluster does not run.

    Notes
    -----
    A row that does not fit the table ends the query with an error that names it; nothing of its shard is sent.
    """
    if not frame.isStreaming:
        raise UsageError("the DataFrame is no stream", hint="Read it by spark.readStream, or insert it by a client.")
    place = _Place(cluster, secret_file, tls_ca, insecure, timeout_s)
    with place.client() as client:
        relation = client.relation(table)
    sender = _Sender(place, relation, FolderSource(relation.name, table, op=op, order=NONE), 0)
    write = partial(_send_batch, sender=sender, tasks=tasks)
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def _send_batch(rows: DataFrame, batch: int, sender: _Sender, tasks: int) -> None:
    """Send the rows of a batch; return when all are accepted."""
    from pyspark.sql import functions

    names = rows.columns
    sender = sender.of_batch(batch, fresh_column("shard", names))
    columns = [functions.col(f"`{name.replace('`', '``')}`") for name in names]
    dealt = rows.withColumn(sender.shard, functions.pmod(functions.xxhash64(*columns), functions.lit(SHARDS)))
    parts = [tasks, sender.shard] if tasks else [sender.shard]
    sorted_rows = dealt.repartition(*parts).sortWithinPartitions(sender.shard, *columns)
    sorted_rows.mapInArrow(sender, _SENT).collect()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a cluster is, as a task is told it: it reads the secret itself."""

    cluster: str
    secret_file: str
    tls_ca: str
    insecure: bool
    timeout_s: float

    def client(self) -> ClusterClient:
        """Return a client of the cluster."""
        place: str | AgentPlace = self.cluster
        if self.cluster.startswith(SCHEME):
            place = AgentPlace(self.cluster, self.secret_file, self.tls_ca, insecure=self.insecure)
        return ClusterClient(place, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends what a task has of a batch; Spark carries it to the task."""

    place: _Place
    relation: Relation
    source: FolderSource
    number: int
    shard: str = ""

    def of_batch(self, batch: int, shard: str) -> _Sender:
        """Return the sender of a batch, whose rows have their shards in a column."""
        return _Sender(self.place, self.relation, self.source, batch + 1, shard)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send rows that are sorted by their shards; yield how many."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        with carry_errors_through_spark():
            if not query:
                raise UsageError("the task belongs to no streaming query", hint="Call cumulus.spark.feed.")
            sent = 0
            client = None
            try:
                for shard, rows in shards_of(batches, self.shard):
                    client = client or self.place.client()
                    typed = self._typed(rows)
                    sent += client.send_typed(self.relation, typed, once=(f"{query}/{shard}", self.number)).rows
            finally:
                if client is not None:
                    client.close()
        yield pa.RecordBatch.from_pydict({"rows": pa.array([sent], pa.int64())})

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Return rows as the cluster takes them.

        Raises
        ------
        DataError
            If one does not fit the table.
        """
        reading = read_table(self.source, self.relation, rows, "a batch")
        if reading.rejected:
            raise _misfit(reading.rejected[0])
        if LACKING_COLUMN in reading.rows.column_names:
            raise DataError(
                f"{self.relation.name}: a row lacks values of columns", hint="Give each row all columns of the table."
            )
        return reading.rows.select([*self.relation.column_names, OP_COLUMN, POSITION_COLUMN])


def _misfit(row: Rejected) -> DataError:
    return DataError(
        f"{row.relation}: {row.reason}: {row.row[:200]}",
        hint="Filter such rows out of the stream, or mend them; the query goes on with this batch.",
    )


def shards_of(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each shard, without the column that says it; they come sorted by that.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "s": [0, 0, 7]})
    >>> [(shard, rows.to_pydict()) for shard, rows in shards_of([batch, batch.slice(2)], "s")]
    [(0, {'a': [1, 2]}), (7, {'a': [3, 3]})]
    """

    def pieces() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            shards = batch.column(column).to_pylist()
            begin = 0
            for shard, run in groupby(shards):
                count = sum(1 for _ in run)
                yield shard, batch.slice(begin, count)
                begin += count

    shard_of: Callable[[tuple[int, pa.RecordBatch]], int] = lambda piece: piece[0]  # noqa: E731
    for shard, found in groupby(pieces(), key=shard_of):
        yield shard, pa.Table.from_batches([piece for _, piece in found]).drop_columns([column])
