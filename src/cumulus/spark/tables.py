"""The views of an output as tables of Spark: `spark.read.format("cumulus")`, and their changes as a stream.

`register` gives a session two formats: ``cumulus`` reads the rows of a view after an epoch, a task per file;
``cumulus-changes`` streams the rows that each epoch took away and brought, so that `writeStream` into Delta, Iceberg or
Kafka is exactly once by Spark's own means: the offset is the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StringType, StructField, StructType

from cumulus.catalog.arrow import table_of
from cumulus.catalog.names import known_name
from cumulus.durable.store import Storage, Store, absolute, read_parquet, store_of
from cumulus.epochs.bucket.view_errors import SCHEMA as ERRORS
from cumulus.epochs.bucket.view_errors import VIEW_ERRORS
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, newest_manifest
from cumulus.epochs.committed.program_text import written_program
from cumulus.epochs.output.publish import QUARANTINE_SCHEMA
from cumulus.epochs.output.query import changed_rows, manifest_of
from cumulus.epochs.view_folders import QUARANTINE
from cumulus.errors import HistoryError, StoreError, UsageError
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.views.row_changes import CHANGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = "epoch"
_OWN = ("path", "view", "epoch", "since")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_BATCH = 65_536
"""Rows that are handed over at once."""


def register(spark: SparkSession) -> None:
    """Give a session the formats ``cumulus`` and ``cumulus-changes``; more than once does no harm.

    Parameters
    ----------
    spark
        The session.

    Examples
    --------
    >>> import cumulus.spark
    >>> cumulus.spark.register(spark)  # doctest: +SKIP
    >>> spark.read.format("cumulus").option("view", "revenue").load("out/").show()  # doctest: +SKIP
    """
    takes_filters = spark.conf.get(_PUSHDOWN, "false") == "true"  # where not, Spark refuses a reader that takes them
    spark.dataSource.register(FilteredViewTable if takes_filters else ViewTable)
    spark.dataSource.register(ViewStream)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a view is: an output, how it is reached, and the names of the view and of its output."""

    out: str
    storage: Storage
    view: str

    def store(self) -> Store:
        return store_of(self.out, self.storage)

    def files(self, manifest: Manifest) -> list[str]:
        """Return the files of an epoch."""
        match self.view:
            case name if name in manifest.views:
                return manifest.files(name)
            case name if name == QUARANTINE:
                return manifest.quarantine
            case _:
                return [path for paths in manifest.view_errors.values() for path in paths]


def _place_of(options: Mapping[str, str]) -> _Place:
    """Return the place that the options of a read name.

    Raises
    ------
    UsageError
        If there is no output, or no view of the name.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "path" not in given or "view" not in given:
        raise UsageError(
            "the format cumulus needs a view and an output",
            hint='Such as spark.read.format("cumulus").option("view", "revenue").load("out/").',
        )
    storage = Storage({name: value for name, value in given.items() if name not in _OWN})
    if storage.secrets:
        raise UsageError(
            f"{storage.secrets[0]}: Spark's workers are not sent credentials",
            hint="Give them in the environment of the driver and the workers, in a profile, or by their role.",
        )
    out = absolute(given["path"])
    program = written_program(store_of(out, storage))
    names = [view.name for view in program.shown_views]
    wanted = given["view"]
    view = wanted if wanted in (QUARANTINE, VIEW_ERRORS) and wanted not in names else known_name(wanted, names, "view")
    return _Place(out, storage, view)


def _number(options: Mapping[str, str], name: str) -> int | None:
    found = next((value for each, value in options.items() if each.lower() == name), None)
    if found is None:
        return None
    if not found.isdigit():
        raise UsageError(f"{name}={found!r}", hint=f"{name} is the number of an epoch.")
    return int(found)


def _arrow_schema(place: _Place) -> pa.Schema:
    """Return names and types of a view's rows, as the run writes them."""
    if place.view == QUARANTINE:
        return QUARANTINE_SCHEMA
    if place.view == VIEW_ERRORS:
        return ERRORS
    store = place.store()
    manifest = newest_manifest(store)
    files = [] if manifest is None else place.files(manifest)
    if files:
        return pq.read_schema(store.open(files[0]))
    return table_of(written_program(store).view(place.view).columns, []).schema


def _spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema as Spark has it; what Spark has no type for is text."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    fields = []
    for field in schema:
        try:
            kind = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        except PySparkTypeError:
            kind = StringType()
        fields.append(StructField(field.name, kind))
    return StructType(fields)


def _batches(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield a table as Spark's schema has it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [
        column.cast(field.type) if column.type != field.type else column
        for column, field in zip(table.columns, wanted, strict=True)
    ]
    yield from pa.Table.from_arrays(columns, schema=wanted).to_batches(_BATCH)


class ViewTable(DataSource):
    """The rows of a view after an epoch."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "cumulus"

    def schema(self) -> StructType:
        """Return the columns of the view."""
        with carry_errors_through_spark():
            return _spark_schema(_arrow_schema(_place_of(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads it."""
        with carry_errors_through_spark():
            return _TableReader(_place_of(self.options), _number(self.options, "epoch") or 0, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Refuse a stream: it has other columns."""
        with carry_errors_through_spark():
            raise UsageError(
                "the format cumulus is read, not streamed",
                hint='The changes of a view are spark.readStream.format("cumulus-changes").',
            )


@dataclass
class _ViewFile(InputPartition):
    path: str
    epoch: int


class _TableReader(DataSourceReader):
    """Reads the files of a view, a task for each."""

    def __init__(self, place: _Place, epoch: int, schema: StructType) -> None:
        self._place, self._epoch, self._schema = place, epoch, schema
        self._wanted: list[tuple[str, str, Any]] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the epoch."""
        with carry_errors_through_spark():
            manifest = manifest_of(self._place.store(), self._epoch)
            return [_ViewFile(path, manifest.epoch) for path in self._place.files(manifest)] or [_ViewFile("", 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        assert isinstance(partition, _ViewFile)
        if not partition.path:
            return
        with carry_errors_through_spark():
            try:
                table = read_parquet(self._place.store(), partition.path, filters=self._filter())
            except (OSError, pa.ArrowException) as problem:
                raise StoreError(
                    f"{self._place.out}: a file of epoch {partition.epoch} cannot be read: {problem}",
                    hint="Has the run dropped that epoch meanwhile? Let it keep more: --keep.",
                ) from None
            yield from _batches(table, self._schema)

    def _filter(self) -> pc.Expression | None:
        found: pc.Expression | None = None
        for column, sign, value in self._wanted:
            each = _COMPARED[sign](pc.field(column), value)
            found = each if found is None else found & each
        return found


_COMPARED = {
    "=": lambda field, value: field == value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
    "in": lambda field, value: field.isin(list(value)),
    "null": lambda field, value: field.is_null(),
    "there": lambda field, value: field.is_valid(),
}


def _condition(given: Filter) -> tuple[str, str, Any] | None:
    """Return a filter as column, sign and value, where Arrow compares as Spark does: whole numbers and texts."""
    signs = {EqualTo: "=", LessThan: "<", LessThanOrEqual: "<=", GreaterThan: ">", GreaterThanOrEqual: ">="}
    if isinstance(given, (IsNull, IsNotNull)) and len(given.attribute) == 1:
        return given.attribute[0], "null" if isinstance(given, IsNull) else "there", None
    sign = signs.get(type(given), "in" if isinstance(given, In) else "")
    if not sign or len(given.attribute) != 1:  # type: ignore[attr-defined]
        return None
    value = given.value  # type: ignore[attr-defined]
    plain = all(type(each) in (int, str) for each in (value if sign == "in" else (value,)))
    return (given.attribute[0], sign, value) if plain else None  # type: ignore[attr-defined]


class _FilteringReader(_TableReader):
    """Leaves out rows that Parquet can tell are not wanted."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters that Parquet can tell of; Spark looks again at all of them."""
        self._wanted = [found for each in filters if (found := _condition(each)) is not None]
        return filters


class FilteredViewTable(ViewTable):
    """The rows of a view after an epoch, in a session that gives filters to sources."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads it."""
        with carry_errors_through_spark():
            return _FilteringReader(_place_of(self.options), _number(self.options, "epoch") or 0, schema)


class ViewStream(DataSource):
    """The rows of a view that each epoch took away and brought."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "cumulus-changes"

    def schema(self) -> StructType:
        """Return the columns of the view, `change` (how often the row came, below 0: left) and `epoch`."""
        with carry_errors_through_spark():
            schema = _arrow_schema(_place_of(self.options))
            taken = {CHANGE, EPOCH} & {*schema.names}
            if taken:
                raise UsageError(
                    f"the view has a column {sorted(taken)[0]!r} of its own", hint="Give that column another name."
                )
            return _spark_schema(schema.append(pa.field(CHANGE, pa.int64())).append(pa.field(EPOCH, pa.int64())))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads it."""
        with carry_errors_through_spark():
            place = _place_of(self.options)
            if place.view in (QUARANTINE, VIEW_ERRORS):
                raise UsageError(f"{place.view} is read, not streamed", hint="Use the format cumulus.")
            return _ChangesReader(place, _number(self.options, "since") or 0, schema)


@dataclass
class _EpochChanges(InputPartition):
    epoch: int
    is_whole: bool


class _ChangesReader(DataSourceStreamReader):
    """Reads the changes of epochs, a task for each.

    Epochs that are not kept any more cannot be read: a new stream begins with the whole view after the first epoch that
    is kept, as rows that came; one that was at work ends with an error.
    """

    def __init__(self, place: _Place, since: int, schema: StructType) -> None:
        self._place, self._since, self._schema = place, since, schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return after which epoch a new stream begins."""
        return {"epoch": self._since}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return that all epochs there are make a batch."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the last committed epoch."""
        with carry_errors_through_spark():
            epochs = committed_epochs(self._place.store())
        return {"epoch": max(epochs[-1] if epochs else 0, int(start["epoch"]))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the epochs after one, up to another."""
        first, last = int(start["epoch"]), int(end["epoch"])
        with carry_errors_through_spark():
            kept = committed_epochs(self._place.store())
            missing = [epoch for epoch in range(max(first, 1), last) if epoch not in kept]
            if first and missing:
                raise HistoryError(
                    f"{self._place.out}: the changes after epoch {first} are not kept any more, only those after "
                    f"{kept[0]}",
                    hint="Let the run keep more epochs (--keep), and begin anew with a new checkpoint and table.",
                )
            begin = first + 1 if first else kept[0]
        return [_EpochChanges(epoch, not first and epoch == begin) for epoch in range(begin, last + 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an epoch; of the first one that is kept, all rows."""
        assert isinstance(partition, _EpochChanges)
        with carry_errors_through_spark():
            store, epoch = self._place.store(), partition.epoch
            table = self._whole(store, epoch) if partition.is_whole else changed_rows(store, epoch, self._place.view)
            yield from _batches(table.append_column(EPOCH, pa.array([epoch] * len(table), pa.int64())), self._schema)

    def _whole(self, store: Store, epoch: int) -> pa.Table:
        files = self._place.files(manifest_of(store, epoch))
        tables = [read_parquet(store, path) for path in files]
        whole = pa.concat_tables(tables) if tables else _arrow_schema(self._place).empty_table()
        return whole.append_column(CHANGE, pa.array([1] * len(whole), pa.int64()))
