"""From one file or frame to typed rows with operations and positions; what does not fit is told, not lost.

A file that cannot be read at all is an InputError and stops the run; a row that does not fit its table becomes a
`Rejected`.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cumulus.catalog.arrow import array_of, typed
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import Kind, SqlType, arrow_type, coerce
from cumulus.epochs.sources import FolderSource
from cumulus.errors import InputError

INSERT, DELETE, UPSERT = 1, -1, 2
OPERATIONS = {
    **dict.fromkeys(("i", "+", "c", "r", "insert", "1", "+1"), INSERT),
    **dict.fromkeys(("d", "-", "delete", "-1"), DELETE),
    **dict.fromkeys(("u", "update", "upsert"), UPSERT),
}


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row for the quarantine: why, of which table, from where (1-based position in the source), and what it said."""

    reason: str
    relation: str
    source: str
    position: int
    row: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file gave.

    Parameters
    ----------
    rows
        The relation's columns with its types, then `_op` (int8), `_position` (int64) and, where the source has an
        order, `_seq`.
    source
        A label for the file.
    rejected
        What did not fit.
    """

    relation: str
    rows: pa.Table
    source: str
    rejected: tuple[Rejected, ...]


RowGroups: TypeAlias = "tuple[int, int]"
"""A part of a Parquet file: the first row group, and the one after the last."""

PART_ROWS = 200_000
"""A file is read in parts of so many rows at least: a task for less costs more than it saves."""

Values: TypeAlias = "pa.ChunkedArray | list[Any]"


@dataclass(slots=True)
class Raw:
    """A file's columns as found, the 1-based positions of their rows, and what was rejected already."""

    columns: dict[str, Values]
    positions: Sequence[int]
    rejected: list[Rejected]
    place: str  # how to call the file in an error
    label: str  # how to call it in the quarantine


def parts_of(source: FolderSource, path: str, most: int) -> list[RowGroups | None]:
    """Return the parts, `most` at most, in which tasks can read a file side by side; None is all of it.

    A file that cannot be read is one part: who reads it tells.
    """
    if source.format_of(path) != "parquet":
        return [None]
    try:
        found = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return [None]
    count = min(most, found.num_rows // PART_ROWS, found.num_row_groups)
    if count < 2:
        return [None]
    ends = np.cumsum([found.row_group(group).num_rows for group in range(found.num_row_groups)])
    cuts = [0, *(int(np.searchsorted(ends, found.num_rows * cut / count)) + 1 for cut in range(1, count + 1))]
    return [(begin, end) for begin, end in pairwise(cuts) if begin < end]


def read_file(
    source: FolderSource, relation: Relation, path: str, label: str, part: RowGroups | None = None
) -> Reading:
    """Read one file of `source`, or a part of it.

    Raises
    ------
    InputError
        If the file is truncated, is not of its format, or lacks a column or has one of a type that cannot be right.
    """
    match source.format_of(path):
        case "csv":
            raw = _read_csv(path, relation, label)
        case "json":
            raw = _read_json(path, relation, label)
        case _:
            raw = _counted(*_read_parquet(path, part), path, label)
    return _reading(source, relation, raw)


def read_table(source: FolderSource, relation: Relation, table: pa.Table, label: str) -> Reading:
    """Give a table (of a streaming DataFrame) the types of `relation`; see `read_file`."""
    return _reading(source, relation, _counted(table, 1, label, label))


def _reading(source: FolderSource, relation: Relation, raw: Raw) -> Reading:
    if source.format == "debezium":
        from cumulus.epochs.debezium import unfold

        unfold(raw, relation, source)
    return _typed_rows(source, relation, raw)


def _counted(table: pa.Table, first: int, place: str, label: str) -> Raw:
    columns: dict[str, Values] = {name: table.column(name) for name in table.column_names}
    return Raw(columns, range(first, first + table.num_rows), [], place, label)


def _read_parquet(path: str, part: RowGroups | None) -> tuple[pa.Table, int]:
    """Return the rows, and the position of the first."""
    try:
        if part is None:
            return pq.read_table(path, partitioning=None), 1
        with pq.ParquetFile(path) as file:
            before = sum(file.metadata.row_group(group).num_rows for group in range(part[0]))
            return file.read_row_groups(range(*part)), before + 1
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"{path}: not a whole Parquet file: {str(problem).splitlines()[0]}",
            hint="Write the file again (under another name first, then rename it) and start the run again: it resumes.",
        ) from None


def _read_csv(path: str, relation: Relation, label: str) -> Raw:
    rejected: list[Rejected] = []
    bad_rows: list[int] = []

    def skip(row: Any) -> str:
        reason = f"{row.actual_columns} columns instead of {row.expected_columns}"
        number = row.number - 1 if row.number is not None else 0  # the header is row 1
        bad_rows.append(number)
        rejected.append(Rejected(reason, relation.name, label, number, row.text))
        return "skip"

    try:
        with open(path, newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
        table = pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=False),  # rows are numbered only without threads
            parse_options=pa_csv.ParseOptions(invalid_row_handler=skip, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", "NULL"],
            ),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(
            f"{path}: not a CSV file with a header: {problem}", hint="The first line names the columns."
        ) from None
    skipped = set(bad_rows)
    numbers = [number for number in range(1, table.num_rows + len(skipped) + 1) if number not in skipped]
    return Raw({name: table.column(name) for name in table.column_names}, numbers, rejected, path, label)


def _read_json(path: str, relation: Relation, label: str) -> Raw:
    rejected: list[Rejected] = []
    rows: list[dict[str, Any]] = []
    positions: list[int] = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line, parse_float=Decimal)
                except json.JSONDecodeError as problem:
                    rejected.append(Rejected(f"not JSON: {problem}", relation.name, label, number, line.rstrip("\n")))
                    continue
                if not isinstance(row, dict):
                    rejected.append(Rejected("not a JSON object", relation.name, label, number, line.rstrip("\n")))
                    continue
                rows.append(row)
                positions.append(number)
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: not a file of JSON lines: {problem}", hint="One object a line, UTF-8.") from None
    names = dict.fromkeys(name for row in rows for name in row)
    if not rows or not names.keys().isdisjoint(relation.column_names):
        # A field that is not written is NULL; a file without any column of the table is of another.
        names |= dict.fromkeys(relation.column_names)
    # Values keep their JSON types and are typed one by one.
    columns: dict[str, Values] = {name: [row.get(name) for row in rows] for name in names}
    return Raw(columns, positions, rejected, path, label)


def _typed_rows(source: FolderSource, relation: Relation, raw: Raw) -> Reading:
    count = len(raw.positions)
    for name in relation.column_names:
        if name not in raw.columns:
            raise InputError(
                f"{raw.place}: table {relation.name!r} needs a column {name!r}; "
                f"found: {', '.join(raw.columns) or 'none'}",
                hint="Rename the column in the file, or correct CREATE TABLE.",
            )
    problems: dict[int, str] = {}
    columns = [_typed(raw.columns[column.name], column, relation, raw.place, problems) for column in relation.columns]
    names = list(relation.column_names)
    op = None if source.op in relation.column_names else raw.columns.get(source.op)
    if op is None:
        columns.append(pa.array([INSERT], pa.int8()).take(pa.nulls(count, pa.int32()).fill_null(0)))
    else:
        columns.append(_operations(op, problems))
    at = raw.positions
    columns.append(pa.array(np.arange(at.start, at.stop) if isinstance(at, range) else at, pa.int64()))
    names += ["_op", "_position"]
    seq = raw.columns.get(source.order)
    if seq is not None:
        columns.append(_order(seq, raw.place, source.order, problems))
        names.append("_seq")
    _find_nulls(relation, columns, problems)
    rows = pa.table(columns, names=names)
    if problems:
        rejected = [_rejected(index, problems[index], relation, raw) for index in sorted(problems)]
        rows = rows.filter(pa.array([index not in problems for index in range(count)], pa.bool_()))
        raw.rejected.extend(rejected)
    return Reading(relation.name, rows, raw.label, tuple(sorted(raw.rejected, key=lambda item: item.position)))


def _rejected(index: int, reason: str, relation: Relation, raw: Raw) -> Rejected:
    values = {name: _cell(column, index) for name, column in raw.columns.items()}
    text = json.dumps(values, default=str, ensure_ascii=False)
    return Rejected(reason, relation.name, raw.label, raw.positions[index], text)


def _cell(column: Values, index: int) -> Any:
    if isinstance(column, list):
        return column[index]
    try:
        return column[index].as_py()
    except UnicodeDecodeError:
        return column[index].as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):  # a time that Python does not have
        return column.slice(index, 1).cast(pa.string())[0].as_py()


def _find_nulls(relation: Relation, columns: list[Any], problems: dict[int, str]) -> None:
    """Reject NULLs in keys and NOT NULL columns; a deletion need only carry the key."""
    operations = columns[len(relation.columns)]
    for column, values in zip(relation.columns, columns, strict=False):
        in_key = column.name in relation.key
        if not (column.not_null or in_key) or not values.null_count:
            continue
        for index in pc.indices_nonzero(values.is_null()).to_pylist():
            if in_key or not relation.key or operations[index].as_py() != DELETE:
                problems.setdefault(index, f"{column.name} is NULL")


def _typed(values: Values, column: Column, relation: Relation, place: str, problems: dict[int, str]) -> Any:
    """Return `values` as one Arrow column of the declared type; what does not fit becomes NULL and a problem."""
    assert column.type is not None, f"{relation.name}.{column.name} has no type"
    if not isinstance(values, list):
        values = _undictionaried(values)
        if not _may_become(values.type, column.type):
            raise InputError(
                f"{place}: column {column.name!r} is {values.type}, table {relation.name!r} says {column.type}",
                hint="Write the file with that type, or correct CREATE TABLE.",
            )
        try:
            made = typed(values.cast(arrow_type(column.type.computed), safe=True), column.type)
        except pa.ArrowException:
            made = None
        if made is not None:
            return _unchunked(made)
        values = _plain(values, column, problems)
    return array_of([_value(value, column, index, problems) for index, value in enumerate(values)], column.type)


_UNPLAIN = {
    OverflowError: "is beyond the years 1 to 9999",
    UnicodeDecodeError: "is not UTF-8",
    ValueError: "is more precise than a microsecond",
}


def _plain(values: Any, column: Column, problems: dict[int, str]) -> list[Any]:
    """Return the values as Python's; None and a problem where it has none."""
    try:
        plain: list[Any] = values.to_pylist()
    except (ValueError, OverflowError):
        plain = [None] * len(values)
        for index, value in enumerate(values):
            try:
                plain[index] = value.as_py()
            except (ValueError, OverflowError) as problem:
                reason = next(reason for kind, reason in _UNPLAIN.items() if isinstance(problem, kind))
                problems.setdefault(index, f"{column.name}: {_cell(values, index)!r} {reason}")
    return plain


def _undictionaried(values: Any) -> Any:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _unchunked(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _may_become(found: Any, wanted: SqlType) -> bool:
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    if pa.types.is_null(found):
        return True
    if wanted.is_numeric:
        is_number = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
        return bool(is_number or is_text)
    match wanted.kind:
        case Kind.VARCHAR:
            return bool(is_text)
        case Kind.BOOLEAN:
            return bool(pa.types.is_boolean(found) or is_text)
        case Kind.DATE | Kind.TIMESTAMP:
            is_time = pa.types.is_date(found) or (pa.types.is_timestamp(found) and found.tz in (None, "UTC"))
            return bool(is_time or is_text)
        case Kind.INTERVAL:
            return bool(pa.types.is_duration(found) or pa.types.is_interval(found))
        case _:
            return False


def _value(value: Any, column: Column, index: int, problems: dict[int, str]) -> Any:
    """Return one value as `column` wants it; None and a problem if it cannot be."""
    wanted = column.type
    assert wanted is not None
    if value is None:
        return None
    try:
        if isinstance(value, str) and wanted.kind is not Kind.VARCHAR:
            value = _from_text(value.strip(), wanted)
        elif isinstance(value, dt.datetime) and value.tzinfo is not None:
            value = value.replace(tzinfo=None)  # only UTC comes here
        return coerce(value, wanted)
    except (TypeError, ValueError, ArithmeticError) as problem:
        problems.setdefault(index, f"{column.name}: {problem}")
        return None


def _from_text(text: str, wanted: SqlType) -> Any:
    if wanted.is_integer:
        return int(text)
    if wanted.kind is Kind.DECIMAL:
        try:
            return Decimal(text)
        except ArithmeticError:
            raise ValueError(f"{text!r} is not a {wanted}") from None
    if wanted.is_float:
        return float(text)
    if wanted.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false", "t", "f"):
            raise ValueError(f"{text!r} is not a BOOLEAN")
        return text.lower().startswith("t")
    return text


def _operations(values: Values, problems: dict[int, str]) -> pa.Array:
    """Return the operation codes; NULL means insert, since that is what a row without a word says."""
    if isinstance(values, list) or pa.types.is_nested(values.type):
        texts = values if isinstance(values, list) else values.to_pylist()
        column = pa.array([None if text is None else str(text) for text in texts], pa.string())
    else:
        column = _undictionaried(values)
    words = pc.unique(column)
    codes = [INSERT if word is None else OPERATIONS.get(str(word).strip().lower(), 0) for word in words.to_pylist()]
    result = pa.array(codes, pa.int8()).take(pc.index_in(column, value_set=words))
    if 0 in codes:
        for index in pc.indices_nonzero(pc.equal(result, 0)).to_pylist():
            problems.setdefault(index, f"unknown operation {_cell(values, index)!r}")
    return result


def _order(values: Values, place: str, name: str, problems: dict[int, str]) -> pa.Array:
    """Return the source's order as int64, so that positions of all files compare."""
    column = pa.array(values) if isinstance(values, list) else values
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_temporal(column.type):
        try:
            column = column.cast(pa.int64() if pa.types.is_string(column.type) else pa.timestamp("us")).cast(pa.int64())
        except pa.ArrowException:
            column = None
    if column is None or not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise InputError(
            f"{place}: the order column {name!r} must hold whole numbers or times", hint="Choose another: order=COLUMN."
        )
    column = _unchunked(column.cast(pa.int64()))
    for index in pc.indices_nonzero(column.is_null()).to_pylist():
        problems.setdefault(index, f"{name} is NULL")
    return column
