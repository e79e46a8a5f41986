"""The rows of tables beside the views: for each epoch a file of rows that came and one of rows that went.

A data file has the columns of the table and the number of its epoch, a file of gone rows the primary key and that
number, or without a key all columns and the number, once for each time that a row went. The table after an epoch is
what the data files have without the rows whose key went in a later epoch than that of their file; without a key, rows
are counted.

When gone rows weigh more than a tenth, or there are many files, a bucket writes its rows anew. It has them in memory,
so it needs nothing but the manifest of the epoch before: what stands there says what is due.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.catalog.arrow import table_of, typed
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind
from cumulus.durable.store import Place, Store, store_of
from cumulus.engine import snapshot
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.table_changes import TableChange
from cumulus.epochs.committed.manifest import Manifest, Written, read_manifest
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.view_folders import data_path
from cumulus.errors import StoreError, UsageError
from cumulus.m3.program import Program

ALL, NONE = "all", "none"
_FILES, _MOST_FILES, _ROWS_A_FILE = 64, 512, 20_000
"""A bucket's rows of a table are written anew beyond so many files, and one more for so many rows, up to so many."""


def tables_to_publish(program: Program, asked: Sequence[str], newest: Manifest | None) -> tuple[str, ...]:
    """Return the tables whose rows a run writes, in the order of the program.

    Parameters
    ----------
    asked
        Names of tables, also as one text with commas; or ``all`` whose rows are kept, or ``none``. Nothing: those of
        the last epoch.
    newest
        The manifest of the last epoch.

    Raises
    ------
    UnknownNameError
        If there is no such table.
    UsageError
        If the rows of one are not kept.
    """
    asked = [each.strip() for each in asked.split(",")] if isinstance(asked, str) else asked
    kept = dict(program.kept)
    names = {each.name: each for each in program.relations}
    if not asked:
        wanted = set() if newest is None else set(newest.tables) & kept.keys()
    elif list(asked) == [NONE] and NONE not in names:
        wanted = set()
    elif list(asked) == [ALL] and ALL not in names:
        wanted = set(kept)
        if not kept:
            raise UsageError(
                "no table can be published: the rows of none are kept",
                hint="Give tables primary keys, or declare them WITH (keep = all).",
            )
    else:
        wanted = {known_name(each, names, "table") for each in asked}
    for name in sorted(wanted - kept.keys()):
        raise UsageError(
            f"table {name} cannot be published: its rows are not kept",
            hint=f"Give it a primary key, or declare it WITH (keep = all). Kept: {', '.join(kept) or 'none'}.",
        )
    for name in sorted(wanted):
        types = {column.name: column.type for column in names[name].columns}
        for column, kind in types.items():
            if kind is None or kind.kind is Kind.INTERVAL:
                why = "has no type" if kind is None else "is an INTERVAL, which Parquet does not have"
                raise UsageError(
                    f"table {name} cannot be published: its column {column} {why}",
                    hint="Name the tables that are to be published.",
                )
    return tuple(name for name in names if name in wanted)


class TablePublisher:
    """Writes a bucket's rows of the tables that a run publishes.

    Parameters
    ----------
    program, plan, index
        Of the bucket; the program is that of the run.
    tables
        Those that the run publishes. Of one that all buckets have whole, the first writes the rows.
    """

    def __init__(self, program: Program, plan: BucketPlan, index: int, tables: Collection[str]) -> None:
        self._index = index
        self._relations = [
            each for each in program.relations if each.name in tables and (index == 0 or each.name in plan.partitioned)
        ]
        self._layouts = {each.name: _layout_of(plan, each.name) for each in self._relations}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of which this bucket writes rows."""
        return tuple(each.name for each in self._relations)

    def write(
        self,
        engine: Engine,
        kept: Mapping[str, str],
        changes: Sequence[TableChange],
        epoch: int,
        attempt: str,
        out: Place,
    ) -> dict[str, Any]:
        """Write what an epoch has changed; return table → what `Written.tables` says of it.

        Parameters
        ----------
        engine, kept
            The bucket's maps, and table → the map of its rows.
        changes
            What the epoch has changed in the tables.
        epoch, attempt, out
            As of `cumulus.epochs.output.publish.write_outputs`.
        """
        if not self._relations:
            return {}
        store = store_of(out)
        before = _before(store, epoch)
        changed = {each.relation.name: each for each in changes}
        return {
            each.name: self._write(
                each, engine, kept[each.name], before, changed.get(each.name), (epoch, attempt, store)
            )
            for each in self._relations
        }

    def _write(
        self,
        relation: Relation,
        engine: Engine,
        map: str,
        before: Mapping[str, Any],
        change: TableChange | None,
        place: tuple[int, str, Store],
    ) -> dict[str, Any]:
        layout = self._layouts[relation.name]
        there = before.get(relation.name, {})
        files = there.get("buckets", {}).get(str(self._index)) if there.get("layout") == layout else None
        found: dict[str, Any] = {"layout": layout, "whole": files is None or _is_heavy(files)}
        none = table_of(relation.columns, [])
        came, gone = (none, none) if change is None else (change.came, change.gone)
        known = 0 if files is None else files["rows"]
        if found["whole"] and place[0] > 1:  # in the first epoch all rows have just come
            came, gone, known = _kept_rows(engine, relation, map), none, 0
        self._put(found, "data", relation, came, place)
        self._put(found, "gone", relation, gone, place)
        found["rows"] = engine.size(map) if relation.key else known + came.num_rows - gone.num_rows
        return found

    def _put(
        self, found: dict[str, Any], kind: str, relation: Relation, rows: pa.Table, place: tuple[int, str, Store]
    ) -> None:
        """Write rows, if there are some or the table is written whole, and note their file."""
        if not (rows.num_rows or (found["whole"] and kind == "data")):
            return
        epoch, attempt, store = place
        path = data_path(relation.name, f"{epoch}-{self._index}-{attempt}.{kind}.parquet")
        shaped = _shaped(relation, rows)
        numbers = pa.array(np.full(rows.num_rows, epoch, np.int64))
        store.write_new(path, shaped.append_column(epoch_column(relation), numbers))
        found[kind] = [path, epoch, rows.num_rows]


def add_tables(before: Manifest, reports: Sequence[Written]) -> dict[str, Any]:
    """Return the files of published tables after an epoch, as `Manifest.tables` has them.

    Parameters
    ----------
    before
        The manifest of the epoch before.
    reports
        What the buckets wrote. Tables that none of them names are published no more.
    """
    found: dict[str, Any] = {}
    for report in reports:
        for name, told in report.tables.items():
            old = before.tables.get(name, {})
            mine = found.setdefault(name, {"layout": told["layout"], "buckets": {}})
            bucket = str(report.bucket)
            files = {} if told["whole"] else old.get("buckets", {}).get(bucket, {})
            mine["buckets"][bucket] = {
                kind: [*files.get(kind, ()), *([told[kind]] if kind in told else [])] for kind in ("data", "gone")
            } | {"rows": told["rows"]}
    return found


def rows_of_table(table: Mapping[str, Any]) -> int:
    """Return how many rows a table has, by what its manifest says of its files."""
    return sum(int(bucket["rows"]) for bucket in table["buckets"].values())


def files_schemas(relation: Relation) -> dict[str, pa.Schema]:
    """Return the columns of the two kinds of files of a table: ``data`` and ``gone``."""
    epoch, rows = pa.field(epoch_column(relation), pa.int64()), table_of(relation.columns, []).schema
    gone = pa.schema([rows.field(name) for name in relation.key]) if relation.key else rows
    return {"data": rows.append(epoch), "gone": gone.append(epoch)}


def select_of_table(relation: Relation, data: str, gone: str | None) -> str:
    """Return SQL for the rows of a published table, over those of its files.

    Parameters
    ----------
    relation
        The table.
    data, gone
        What to read the files of rows that came, and went, from; None if no row went.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT
    >>> orders = Relation("orders", (Column("oid", BIGINT), Column("price", BIGINT)), ("oid",))
    >>> select_of_table(orders, "came", None)
    'SELECT "oid", "price" FROM came'
    """
    epoch = quoted(epoch_column(relation))
    names = ", ".join(map(quoted, relation.column_names))
    if gone is None:
        return f"SELECT {names} FROM {data}"
    if not relation.key:
        count = quoted(_unlike("count", relation))
        counted = f"SELECT {names}, 1 AS {count} FROM {data} UNION ALL SELECT {names}, -1 FROM {gone}"
        summed = f"SELECT {names}, CAST(sum({count}) AS BIGINT) AS {count} FROM ({counted}) GROUP BY ALL"
        return f"SELECT {names} FROM ({summed} HAVING sum({count}) > 0) AS summed, range(summed.{count})"
    keys = ", ".join(map(quoted, relation.key))
    last = f"SELECT {keys}, max({epoch}) AS {epoch} FROM {gone} GROUP BY ALL"
    same = " AND ".join(f"came.{name} IS NOT DISTINCT FROM went.{name}" for name in map(quoted, relation.key))
    return f"SELECT {names} FROM {data} AS came ANTI JOIN ({last}) AS went ON {same} AND came.{epoch} < went.{epoch}"


def epoch_column(relation: Relation) -> str:
    """Return what files of a table call the number of an epoch: no column of the table."""
    return _unlike("epoch", relation)


def _unlike(name: str, relation: Relation) -> str:
    names = {each.casefold() for each in relation.column_names}
    while name in names:
        name += "_"
    return name


def _before(store: Store, epoch: int) -> Mapping[str, Any]:
    """Return the files of the epoch before; nothing if it is gone, or there is none."""
    if epoch == 1:
        return {}
    try:
        return read_manifest(store, epoch - 1).tables
    except StoreError:  # an epoch that is done once more, whose files nobody will list
        return {}


def _is_heavy(files: Mapping[str, Any]) -> bool:
    """Whether rows are to be written anew."""
    rows, gone = (sum(file[2] for file in files[kind]) for kind in ("data", "gone"))
    count = len(files["data"]) + len(files["gone"])
    return bool(gone * 10 > rows) or count > min(_FILES + rows // _ROWS_A_FILE, _MOST_FILES)


def _layout_of(plan: BucketPlan, table: str) -> str:
    """Return what decides which bucket has which rows of a table; files of another layout are not gone on with."""
    columns = plan.partitioned.get(table)
    told = json.dumps([plan.buckets, list(columns)] if columns else [])
    return hashlib.blake2b(told.encode(), digest_size=6).hexdigest()


def _kept_rows(engine: Engine, relation: Relation, map: str) -> pa.Table:
    """Return the rows of a table that a map counts, each as often as it is there."""
    table = snapshot.dump(engine, map)
    counts = np.maximum(table.column(table.num_columns - 1).to_numpy().astype(np.int64), 0)
    rows = table.select(range(table.num_columns - 1)).rename_columns(relation.column_names)
    return rows if (counts == 1).all() else rows.take(pa.array(np.repeat(np.arange(rows.num_rows), counts)))


def _shaped(relation: Relation, rows: pa.Table) -> pa.Table:
    """Return rows with the types that files of the table have."""
    wanted = table_of(relation.columns, []).schema
    types = {column.name: column.type for column in relation.columns}
    arrays, names = [], []
    for name in rows.column_names:
        column = rows.column(name)
        kind = types.get(name)
        if kind is not None:
            # `typed` takes an infinite REAL for one that came in too large.
            found = decoded(column).cast(pa.float32()) if kind.kind is Kind.REAL else typed(column, kind)
            assert found is not None, f"kept values of {relation.name}.{name} are not of its type"
            column = found if found.type == wanted.field(name).type else found.cast(wanted.field(name).type)
        arrays.append(column)
        names.append(name)
    return pa.table(arrays, names=names)
