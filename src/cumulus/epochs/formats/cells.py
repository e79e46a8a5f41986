"""Cells of files as values of their columns: whole columns by Arrow where that is right, else one by one.

A cell that cannot be a value becomes NULL and a problem of its row.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import array_of, check_arrow_holds, numbers_of_text
from cumulus.catalog.arrow_cells import decoded, plain_cells, shown_cell
from cumulus.catalog.column_casts import converted, is_text
from cumulus.catalog.events import DELETE, INSERT, LACKING_COLUMN, OP_COLUMN, ORDER_COLUMN, POSITION_COLUMN, TRUNCATE
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.text_values import is_null, value_of
from cumulus.catalog.types import EXACT, Kind, SqlType, coerce
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.encodings import Encoding, way_out
from cumulus.epochs.formats.parsed_rows import OPERATIONS, RawRows, Values
from cumulus.epochs.formats.unavailable import Placeholder, lacking_reason
from cumulus.errors import InputError

Problems = dict[int, str]
"""Index of a row → the first thing that is wrong with it."""

_STEP = 16
_FEW = 64
"""So few values are looked at one by one, where a column as a whole was not of its type."""

_LONGEST_REASON = 300


def typed_rows(source: FolderSource, relation: Relation, found: RawRows, place: str) -> tuple[pa.Table, Problems]:
    """Return rows with the types of `relation`, then operations, positions and, if they have one, their order.

    Rows with problems are in the table, too. An order that is not there is NULL, and no problem yet.

    Raises
    ------
    InputError
        If a column is of a type that cannot be right.
    """
    problems: Problems = {}
    encodings = found.encodings or [None] * len(relation.columns)
    values_found, lacking = _without_placeholders(found, source)
    columns = [
        _column(values, _Reader(column, source, encoding), relation, place, problems)
        for values, column, encoding in zip(values_found, relation.columns, encodings, strict=True)
    ]
    operations = (
        pa.array(np.full(len(found.positions), INSERT, np.int8))
        if found.operations is None
        else _operations(found.operations, problems)
    )
    columns += [operations, pa.array(found.positions, pa.int64())]
    names = [*relation.column_names, OP_COLUMN, POSITION_COLUMN]
    if found.orders is not None:
        columns.append(_orders(found.orders, place, ".".join(source.order_path()), problems))
        names.append(ORDER_COLUMN)
    if lacking:
        _find_lacking(relation, operations, lacking, problems)
        places = [lacking.get(index) for index in range(len(found.positions))]
        columns.append(pa.array(places, pa.list_(pa.int32())))
        names.append(LACKING_COLUMN)
    _find_nulls(relation, columns, problems, lacking)
    return pa.table(columns, names=names), {index: reason[:_LONGEST_REASON] for index, reason in problems.items()}


def _without_placeholders(found: RawRows, source: FolderSource) -> tuple[list[Values], dict[int, Sequence[int]]]:
    """Return columns with NULL for what is unavailable, and index of a row → the places of its columns that are."""
    lacking = dict(found.lacking)
    placeholder = Placeholder(source.placeholder())
    columns = list(found.columns)
    for place, values in enumerate(columns if placeholder.texts and not found.lacking else ()):
        if isinstance(values, list):
            continue  # of records, which were looked at
        values = _unchunked(decoded(values))
        where = placeholder.places_in(values)
        if len(where):
            mask = np.zeros(len(values), np.bool_)
            mask[where] = True
            columns[place] = pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
            for index in where.tolist():
                lacking[index] = (*lacking.get(index, ()), place)
    return columns, lacking


def _find_lacking(
    relation: Relation, operations: pa.Array, lacking: Mapping[int, Sequence[int]], problems: Problems
) -> None:
    """Find rows that lack values which no kept row has: new rows, keys, deletions without a key."""
    keys = set(relation.key_positions)
    for index, places in lacking.items():
        operation = operations[index].as_py()
        if operation == INSERT or not keys.isdisjoint(places) or (operation == DELETE and not keys):
            problems.setdefault(index, lacking_reason(relation, places))


def _find_nulls(
    relation: Relation, columns: list[Any], problems: Problems, lacking: Mapping[int, Sequence[int]]
) -> None:
    """Find NULLs in keys and NOT NULL columns; a deletion need only carry the key, a truncation nothing."""
    operations = columns[len(relation.columns)]
    for place, (column, values) in enumerate(zip(relation.columns, columns, strict=False)):
        in_key = column.name in relation.key
        if not (column.not_null or in_key) or not values.null_count:
            continue
        for index in pc.indices_nonzero(values.is_null()).to_pylist():
            operation = operations[index].as_py()
            if place in lacking.get(index, ()):
                continue
            if operation != TRUNCATE and (in_key or not relation.key or operation != DELETE):
                problems.setdefault(index, f"{column.name} is NULL")


class _Reader:
    """How the cells of one column are read."""

    def __init__(self, column: Column, source: FolderSource, encoding: Encoding | None) -> None:
        assert column.type is not None, f"{column.name} has no type"
        self.column = column
        self.type: SqlType = column.type
        self.encoding = encoding
        self._source = source

    def value(self, value: Any) -> Any:
        """Return one cell as the column's type wants it."""
        if is_null(value, self.type):
            return None
        given = value
        try:
            if self.encoding is not None:
                value = self.encoding.decode(value, self.type)
            if isinstance(value, str) and self.type.kind is not Kind.VARCHAR:
                value = value_of_text(value.strip(), self.type)
            elif isinstance(value, Decimal) and self.type.is_numeric:
                value = _sized(value, self.type)
            value = coerce(value, self.type)
            check_arrow_holds(value, self.type)
            return value
        except (TypeError, ValueError, ArithmeticError) as problem:
            raise ValueError(f"{problem}{way_out(given, self.type, self._source)}") from None

    def values(self, cells: Sequence[Any], first: int, problems: Problems) -> list[Any]:
        """Return cells as values; None and a problem for what cannot be one."""
        found = []
        for index, cell in enumerate(cells, first):
            try:
                found.append(self.value(cell))
            except ValueError as problem:
                problems.setdefault(index, f"{self.column.name}: {problem}")
                found.append(None)
        return found

    def whole(self, values: Any) -> Any:
        """Return an Arrow array as one of the column's type; None if each value must be looked at."""
        try:
            if self.encoding is not None:
                if self.type.kind is Kind.VARCHAR and not is_text(values.type):
                    return None  # not the digits of a time
                made = self.encoding.decoded(values)
                if made is not None:
                    values = made
                elif pa.types.is_nested(values.type):
                    return None
        except (pa.ArrowException, ValueError, ArithmeticError, TypeError):
            return None
        return converted(values, self.type)


def _column(values: Values, reader: _Reader, relation: Relation, place: str, problems: Problems) -> pa.Array:
    """Return a column of the declared type."""
    if isinstance(values, list):
        return array_of(reader.values(values, 0, problems), reader.type)
    values = _unchunked(decoded(values))
    if not _may_become(values.type, reader.type) and not (
        reader.encoding is not None and values.type == reader.encoding.parsed_type()
    ):
        raise InputError(
            f"{place}: column {reader.column.name!r} is {values.type}, table {relation.name!r} says {reader.type}",
            hint="Write the file with that type, or correct CREATE TABLE.",
        )
    made = _parts(values, reader, 0, problems)
    return made[0] if len(made) == 1 else pa.concat_arrays(made)


def _parts(values: Any, reader: _Reader, first: int, problems: Problems) -> list[pa.Array]:
    """Return a column in parts: those that Arrow can read whole, and small ones with a value that it cannot."""
    made = reader.whole(values)
    if made is not None:
        return [_unchunked(made)]
    count = len(values)
    if count <= _FEW:
        return [array_of(reader.values(_plain(values, reader.column, first, problems), first, problems), reader.type)]
    size = -(-count // _STEP)
    return [
        part
        for begin in range(0, count, size)
        for part in _parts(values.slice(begin, size), reader, first + begin, problems)
    ]


def value_of_text(text: str, wanted: SqlType) -> Any:
    """Return what a text says in a column that is none of texts; times stay texts, which `coerce` reads.

    Raises
    ------
    ValueError
        If it says nothing of that type.

    Examples
    --------
    >>> from cumulus.catalog.types import BOOLEAN, INTEGER
    >>> value_of_text("7.0", INTEGER), value_of_text("F", BOOLEAN)
    (Decimal('7.0'), False)
    """
    value = value_of(text, wanted)
    return _sized(value, wanted) if isinstance(value, Decimal) else value


def _sized(number: Decimal, wanted: SqlType) -> Decimal:
    """Return a decimal that is of a size to compute with: 1e999999999 has a billion digits as a whole number."""
    if number.is_finite() and number:
        if wanted.is_exact and not -400 < number.adjusted() < 400:
            shown = str(number) if len(number.as_tuple().digits) < 50 else f"{number:.10e}"
            raise ValueError(f"{shown} does not fit {wanted}")
        if wanted.is_integer and number != number.to_integral_value():
            raise ValueError(f"{number.normalize(EXACT)} is not an integer")
        if wanted.is_float and math.isinf(float(number)):
            raise ValueError(f"{number:.10e} does not fit {wanted}")
    elif wanted.is_exact and number.is_finite():
        return Decimal(0)
    return number


def _plain(values: Any, column: Column, first: int, problems: Problems) -> list[Any]:
    """Return the values as Python's; None and a problem where it has none."""
    found, wrong = plain_cells(values)
    for index, reason in wrong.items():
        problems.setdefault(first + index, f"{column.name}: {shown_cell(values, index)!r} {reason}")
    return found


def cell_of(column: Values, index: int) -> Any:
    """Return one cell as it may be shown."""
    return column[index] if isinstance(column, list) else shown_cell(column, index)


def text_of(columns: dict[str, Values]) -> Callable[[int], str]:
    """Return the function that shows a row of columns as found."""

    def text(index: int) -> str:
        return json.dumps(
            {name: cell_of(column, index) for name, column in columns.items()}, default=str, ensure_ascii=False
        )

    return text


def _unchunked(values: Any) -> Any:
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _may_become(found: Any, wanted: SqlType) -> bool:
    has_texts = is_text(found)
    if pa.types.is_null(found):
        return True
    if wanted.is_numeric:
        is_number = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
        return bool(is_number or has_texts)
    match wanted.kind:
        case Kind.VARCHAR:
            return has_texts
        case Kind.BOOLEAN:
            return bool(pa.types.is_boolean(found) or has_texts)
        case _ if wanted.is_temporal:
            is_moment = pa.types.is_timestamp(found) and not (wanted.kind is Kind.DATE and found.tz is not None)
            return bool(pa.types.is_date(found) or is_moment or has_texts)
        case Kind.INTERVAL:
            return bool(pa.types.is_duration(found) or pa.types.is_interval(found) or has_texts)
        case _:
            return False


def _operations(values: Values, problems: Problems) -> pa.Array:
    """Return the operation codes; NULL means insert, since that is what a row without a word says."""
    column = None if isinstance(values, list) else _unchunked(decoded(values))
    if column is None or not _has_words(column.type):
        words, wrong = (values, {}) if column is None else plain_cells(column)
        told = [None if word is None else _word(word) for word in words]
        for index in wrong:
            told[index] = "?"  # NULL would be an insertion
        column = pa.array(told, pa.string())
    words = pc.unique(column)
    codes = [INSERT if not word.is_valid else OPERATIONS.get(str(_scalar(word)).strip().lower(), 0) for word in words]
    result = pa.array(codes, pa.int8()).take(pc.index_in(column, value_set=words))
    if 0 in codes:
        for index in pc.indices_nonzero(pc.equal(result, 0)).to_pylist():
            problems.setdefault(index, f"unknown operation {str(cell_of(values, index))[:100]!r}")
    return result


def _has_words(kind: pa.DataType) -> bool:
    """Whether Arrow finds equal values of a type, which are words or numbers."""
    is_plain_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_plain_text or pa.types.is_integer(kind) or pa.types.is_null(kind))


def _word(word: Any) -> str:
    return str(word).encode("utf-8", "backslashreplace").decode()


def _scalar(word: Any) -> Any:
    try:
        return word.as_py()
    except (ValueError, OverflowError):
        return ""


def _orders(values: Values, place: str, name: str, problems: Problems) -> pa.Array:
    """Return the source's order as int64, so that positions of all files compare."""
    if isinstance(values, list):
        return pa.array(_order_values(values, name, problems), pa.int64())
    column = _unchunked(decoded(values))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        try:
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        except pa.ArrowException:
            moments, wrong = plain_cells(column)
            for index, reason in wrong.items():
                problems.setdefault(index, f"{name}: {shown_cell(column, index)!r} {reason}")
            return pa.array(_order_values(moments, name, problems), pa.int64())
    elif is_text(column.type):
        try:
            column = numbers_of_text(column, _WHOLE)
        except pa.ArrowException:
            column = None
        if column is None:
            texts = [_scalar(value) for value in values]
            return pa.array(_order_values(texts, name, problems), pa.int64())
    if pa.types.is_decimal(column.type):
        return pa.array(_order_values(column.to_pylist(), name, problems), pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise InputError(
            f"{place}: the order column {name!r} must hold whole numbers or times", hint="Choose another: order=COLUMN."
        )
    try:
        return _unchunked(column.cast(pa.int64()))
    except pa.ArrowException:
        return pa.array(_order_values(column.to_pylist(), name, problems), pa.int64())


_WHOLE = SqlType(Kind.BIGINT)
_MOMENT = SqlType(Kind.TIMESTAMP)
_ZERO = dt.datetime(1970, 1, 1)


def _order_values(values: Sequence[Any], name: str, problems: Problems) -> list[int | None]:
    found: list[int | None] = []
    for index, value in enumerate(values):
        number = None if value is None else _order_value(value)
        if number is None and value is not None:
            problems.setdefault(index, f"{name}: {str(value)[:100]!r} is not a whole number or a time")
        found.append(number)
    return found


def _order_value(value: Any) -> int | None:
    """Return a whole number of 64 bits, or the microseconds of a time; None if it is neither."""
    try:
        if isinstance(value, str):
            try:
                value = value_of_text(value.strip(), _WHOLE)
            except ValueError:
                value = coerce(value.strip(), _MOMENT)
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        if isinstance(value, dt.datetime):
            return (value.replace(tzinfo=None) - _ZERO) // dt.timedelta(microseconds=1)
        number: int = coerce(_sized(value, _WHOLE) if isinstance(value, Decimal) else value, _WHOLE)
        return number
    except (TypeError, ValueError, ArithmeticError):
        return None
