"""Tables of changes: the form in which a stream is written to an input folder and read back.

A table of changes has the columns `op` (``i`` insert, ``u`` the new row under its key, ``d`` delete) and `seq` (the
place in one total order over all tables, from 0), then the columns of its relation. An epoch is a mapping from
table to changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cumulus.catalog import DELETE, INSERT, Event, Row
from cumulus.durable.files import written_aside
from cumulus.durable.parquet_writing import write_parquet_table
from cumulus.workloads.checks import recompute, rows

Epoch: TypeAlias = Mapping[str, pa.Table]

ROW_GROUP_ROWS = 131_072
"""Rows in a row group of a written file: tasks that read Parquet themselves share a file by row groups."""


def events(epochs: Iterable[Epoch], keys: Mapping[str, tuple[str, ...]]) -> Iterator[list[Event]]:
    """Yield, for each epoch, its events in the order of `seq`.

    A ``u`` becomes the deletion of the row that stood under its key and the insertion of the new one; only tables that
    have such changes need memory for their rows: `keys` are the primary keys of these.
    """
    standing: dict[str, dict[Row, Row]] = {name: {} for name in keys}
    for epoch in epochs:
        told: list[tuple[int, str, str, Row]] = []
        places: dict[str, list[int]] = {}
        for name, changes in epoch.items():
            columns = changes.drop_columns(["op", "seq"])
            if name in keys:
                places[name] = [columns.schema.names.index(column) for column in keys[name]]
            ops, seqs = changes["op"].to_pylist(), changes["seq"].to_pylist()
            told.extend((seq, op, name, row) for seq, op, row in zip(seqs, ops, rows(columns), strict=True))
        told.sort(key=lambda change: change[0])
        found: list[Event] = []
        for _, op, name, row in told:
            if name in standing:
                key = tuple(row[place] for place in places[name])
                if op == "u":
                    found.append(Event(DELETE, name, standing[name][key]))
                if op == "d":
                    standing[name].pop(key, None)
                else:
                    standing[name][key] = row
            found.append(Event(DELETE if op == "d" else INSERT, name, row))
        yield found


def epochs(told: Sequence[Event], schemas: Mapping[str, pa.Schema], batch: int) -> Iterator[dict[str, pa.Table]]:
    """Yield the epochs of a list of events, `batch` in each, the rest in the last; every table is in every epoch.

    The first event has the `seq` 0. The schemas are without `op` and `seq`.

    Examples
    --------
    >>> told = [Event(INSERT, "r", (7,)), Event(DELETE, "r", (7,)), Event(INSERT, "r", (8,))]
    >>> [epoch["r"].to_pylist() for epoch in epochs(told, {"r": pa.schema([("a", pa.int64())])}, 2)][1]
    [{'op': 'i', 'seq': 2, 'a': 8}]
    """
    for start in range(0, len(told), batch):
        rows_of: dict[str, list[tuple[object, ...]]] = {name: [] for name in schemas}
        for seq, (sign, name, row) in enumerate(told[start : start + batch], start):
            rows_of[name].append(("d" if sign == DELETE else "i", seq, *row))
        yield {name: _table_of_changes(rows_of[name], schema) for name, schema in schemas.items()}


def _table_of_changes(told: list[tuple[object, ...]], columns: pa.Schema) -> pa.Table:
    schema = pa.schema([("op", pa.string()), ("seq", pa.int64()), *columns])
    if not told:
        return schema.empty_table()
    return pa.table([list(column) for column in zip(*told, strict=True)], schema=schema)


def write(folder: Path, epochs: Iterable[Epoch]) -> int:
    """Write a stream as an input folder, ``folder/<table>/<epoch>.parquet``; return the number of epochs."""
    count = 0
    for number, epoch in enumerate(epochs):
        write_epoch(folder, number, epoch)
        count = number + 1
    return count


def write_epoch(folder: Path, number: int, epoch: Epoch) -> None:
    """Write the files of one epoch; `number` counts from 0 and names them.

    The i-th file of a table belongs to epoch i, so a table without changes needs an empty file as long as later epochs
    have changes of it. Each file is written aside and renamed: a host that watches the folder never sees half of one.
    """
    for name, changes in epoch.items():
        target = folder / name / f"{number:06d}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(target) as aside:
            write_parquet_table(changes, aside, row_group_size=ROW_GROUP_ROWS)


def read(folder: Path) -> list[dict[str, pa.Table]]:
    """Return the epochs of an input folder that `write` wrote."""
    epochs: dict[int, dict[str, pa.Table]] = defaultdict(dict)
    for path in sorted(folder.glob("*/*.parquet")):
        epochs[int(path.stem)][path.parent.name] = pq.read_table(path)
    return [epochs[number] for number in sorted(epochs)]


def replay(epochs: Iterable[Epoch], keys: Mapping[str, tuple[str, ...]]) -> dict[str, pa.Table]:
    """Return the tables that a stream leaves behind.

    Within a primary key, changes count in the order of `seq`; an insertion of a key that is there is left out, as
    the quarantine does.

    Returns
    -------
    dict
        Table → its rows without `op` and `seq`, in the order of their keys' last change.
    """
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for epoch in epochs:
        for name, changes in epoch.items():
            parts[name].append(changes)
    return {name: _last_rows(pa.concat_tables(pieces), keys[name]) for name, pieces in parts.items()}


def _last_rows(changes: pa.Table, key: tuple[str, ...]) -> pa.Table:
    columns = ", ".join(f'"{name}"' for name in key)
    # Only keys go through DuckDB: the windows would copy whole rows.
    last = recompute(
        f"""
        WITH told AS (
          SELECT *, lag(op) OVER (PARTITION BY {columns} ORDER BY seq) AS op_before FROM changes
        ), valid AS (
          SELECT * FROM told WHERE NOT (op = 'i' AND COALESCE(op_before, 'd') <> 'd')
        ), last AS (
          SELECT seq, op FROM valid QUALIFY row_number() OVER (PARTITION BY {columns} ORDER BY seq DESC) = 1
        )
        SELECT seq FROM last WHERE op <> 'd'
        """,
        {"changes": changes.select(["op", "seq", *key])},
    )
    rows_left = changes.filter(pc.is_in(changes["seq"], value_set=last["seq"]))
    if not pc.all(pc.less_equal(rows_left["seq"][:-1], rows_left["seq"][1:])).as_py():
        rows_left = rows_left.sort_by("seq")
    return rows_left.drop_columns(["op", "seq"])
