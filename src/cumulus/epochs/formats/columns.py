"""Many JSON lines at a time, as Arrow columns, where that says the same as one line after the other would.

Arrow's reader takes whole numbers, decimals and texts exactly, and refuses a block that has anything else. What it
takes in another way than the careful reader does is found before or after, and left to that one: lines that are no
single object, names in another case, NaN by another name, texts that are not UTF-8, deep nesting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from cumulus.catalog.arrow import widest_decimal
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind, SqlType, arrow_type
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.content import is_utf8, readable
from cumulus.epochs.formats.encodings import Encoding, Encodings, encodings_of
from cumulus.epochs.formats.json_values import MOST_LEVELS, parse
from cumulus.epochs.formats.names import AmbiguousNameError, find_names
from cumulus.epochs.formats.parsed_rows import RawRows
from cumulus.epochs.formats.unavailable import Placeholder

Read = tuple[RawRows | None, list[int]]
"""The rows of most lines, and the indexes of the lines that somebody else must look at."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_NOWHERE = np.array([], np.int64)

SAMPLE = 32
"""Lines that tell how a file writes its columns."""


class ColumnReader(Protocol):
    """Reads lines at a time."""

    def read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> Read | None:
        """Return what the lines say, None if they cannot be read together; never all of the lines back."""
        ...


_NUMBERS = bytes.maketrans(b"123456789.E", b"0000000000e")
_LONG = b"0" * 29
_EXPONENTS = (b"0e00", b"0e-00", b"0e+00")
_FAR = re.compile(rb"[0-9][eE](?:\+?0*[1-9][0-9]|-0*(?:[3-9][0-9]|[1-9][0-9]{2}))")
"""An exponent of 10 or more, or of -30 or less: with 28 digits and any scale, others are within 76 digits."""
_WORDS = re.compile(rb"[:\[,\s]-?(?:Inf|NaN)")
_ESCAPED_KEY = re.compile(rb'\\u00[4-7][0-9a-fA-F](?:[^"\\]|\\.)*"\s*:')


def is_plain(line: bytes) -> bool:
    """Whether a stripped line may be one object, and of no great depth."""
    if line[0] != 123 or line[-1] != 125:
        return False
    return len(line) <= 2 * MOST_LEVELS or line.count(b"{") + line.count(b"[") <= MOST_LEVELS


def plain_lines(lines: Sequence[bytes]) -> Sequence[int]:
    """Return the indexes of the lines that `is_plain` likes."""
    if len(max(lines, key=len)) <= 2 * MOST_LEVELS:
        fine = [line[0] == 123 and line[-1] == 125 for line in lines]
    else:
        fine = [is_plain(line) for line in lines]
    return range(len(lines)) if all(fine) else [at for at, is_fine in enumerate(fine) if is_fine]


def parse_block(lines: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, bytes] | None:
    """Return plain lines as a table with one row for each, and as one text; None if they are not what `schema` says."""
    block = b"\n".join(lines)
    if not is_utf8(block):
        return None
    if (b"Inf" in block or b"NaN" in block) and _WORDS.search(block):
        return None
    if any(pa.types.is_decimal(kind) for kind in _leaves(schema)) and not _is_exact(block):
        return None
    try:
        table = pa_json.read_json(
            pa.BufferReader(block),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    # Each line begins and ends an object: as many objects as lines means one in each.
    if table.num_rows != len(lines) or any(map(_has_infinity, table.columns)):
        return None
    return table, block


def _has_infinity(values: Any) -> bool:
    """Whether a number was too large: Arrow reads 1e400 as an infinity."""
    if pa.types.is_struct(values.type):
        return any(map(_has_infinity, values.flatten()))
    return bool(pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py())


def _leaves(schema: Iterable[pa.Field]) -> Iterator[pa.DataType]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type)
        else:
            yield field.type


def _is_exact(block: bytes) -> bool:
    """Whether no number is so long that Arrow would make another decimal of it; see `catalog.arrow.widest_decimal`."""
    numbers = block.translate(_NUMBERS)
    if _LONG in numbers:
        return False
    return not any(each in numbers for each in _EXPONENTS) or _FAR.search(block) is None


class Spellings:
    """Whether a block writes names in one case only."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._lower = b""
        self._escaped: bool | None = None

    def is_one(self, name: str, values: pa.Array, wanted: str) -> bool:
        """Whether the block has no key that is `wanted` in another case than `name`.

        Where each row has `wanted` itself, none would matter.
        """
        if name == wanted and not values.null_count:
            return True
        if self._escaped is None:
            self._lower = self._block.lower()
            self._escaped = b"\\u00" in self._lower and _ESCAPED_KEY.search(self._block) is not None
        if self._escaped or not name.isascii():
            return False
        key = b'"' + name.encode() + b'"'
        if self._lower.count(key.lower()) == self._block.count(key):
            return True
        keys = re.findall(b'"(' + re.escape(name.encode()) + rb')"\s*:', self._block, re.IGNORECASE)
        return all(each == name.encode() for each in keys)

    def has(self, name: str) -> bool:
        """Whether something is called `name`."""
        return b'"' + name.encode() + b'"' in self._block


def parsed_type(wanted: SqlType, encoding: Encoding | None, sample: Any) -> pa.DataType | None:
    """Return the Arrow type as which JSON is to be read for a column, of which a value was found; None if none is."""
    if encoding is not None and (sample is None or isinstance(sample, _WRITTEN_AS[encoding.what])):
        return encoding.parsed_type()
    if isinstance(sample, str):
        return widest_decimal(wanted.scale) if wanted.kind is Kind.DECIMAL else pa.string()
    match wanted.kind:
        case Kind.DECIMAL | Kind.HUGEINT:
            return widest_decimal(wanted.scale)
        case Kind.REAL | Kind.DOUBLE:
            return pa.float64()
        case Kind.INTERVAL:
            return None
        case _ if wanted.is_integer and isinstance(sample, Decimal):
            return widest_decimal(4)  # pandas writes whole numbers beside NULLs as 7.0
        case _ if wanted.is_temporal:
            return pa.string()
        case _:
            return arrow_type(wanted)


_WRITTEN_AS: Mapping[str, type] = {
    "moment": int,
    "clock": int,
    "span": int,
    "unscaled": str,
    "interval": str,
    "scaled": dict,
}


def word_type(sample: Any) -> pa.DataType:
    """Return the Arrow type for an operation or an order."""
    return pa.int64() if isinstance(sample, int) and not isinstance(sample, bool) else pa.string()


def sample_of(records: Iterable[Mapping[str, Any]], name: str) -> Any:
    """Return the first value of a field that is not NULL."""
    return next((each[name] for each in records if each.get(name) is not None), None)


def parsed_sample(lines: Iterable[bytes]) -> list[Any]:
    """Return what some lines say, those that are JSON."""
    found = []
    for line in lines:
        try:
            found.append(parse(line.decode()))
        except ValueError:
            continue
    return found


def texts_of(lines: Sequence[bytes], rows: Sequence[int] | None = None) -> Any:
    """Return the function that gives the line of a row."""
    return lambda index: readable(lines[index if rows is None else rows[index]])


def is_all_null(columns: Sequence[pa.Array]) -> Mask | None:
    """Return which rows have no value at all; None if each has one."""
    if any(not column.null_count for column in columns):
        return None
    nothing = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
    return nothing if nothing.any() else None


@dataclass(frozen=True, slots=True)
class LineShape:
    """How lines write the columns of a table, the operation and the order; None where there can be none."""

    columns: tuple[str, ...]
    operation: str | None
    order: str | None
    schema: pa.Schema


def shape_of(
    source: FolderSource, relation: Relation, records: Sequence[Mapping[str, Any]], encodings: Encodings
) -> LineShape | None:
    """Return how records write a table; what they do not have is looked for as the table calls it."""
    try:
        names = find_names([name for record in records for name in record], relation, source)
    except AmbiguousNameError:
        return None
    fields: dict[str, pa.DataType] = {}
    columns = tuple(name or column for name, column in zip(names.columns, relation.column_names, strict=True))
    for column, name, encoding in zip(relation.columns, columns, encodings, strict=True):
        assert column.type is not None, f"{column.name} has no type"
        found = parsed_type(column.type, encoding, sample_of(records, name))
        if found is None:
            return None
        fields[name] = found
    operation = names.operation or source.operation_column(relation)
    order = names.order or source.order_column(relation)
    for word in (operation, order):
        if word is not None and word not in fields:
            sample = sample_of(records, word)
            fields[word] = pa.int64() if word == order and sample is None else word_type(sample)
    return LineShape(columns, operation, order, pa.schema(list(fields.items())))


class PlainColumns:
    """Reads lines with a field for each column of a table; see `ColumnReader`."""

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._source, self._relation = source, relation
        self._encodings = encodings_of(source, relation)
        self._shape: LineShape | None = None
        self._placeholder = Placeholder(source.placeholder())

    def read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> Read | None:
        """Return the rows of plain lines, and the indexes of all others."""
        plain = plain_lines(lines)
        if not plain:
            return None
        kept = [lines[at] for at in plain] if len(plain) < len(lines) else lines
        parsed = None if self._shape is None else parse_block(kept, self._shape.schema)
        if parsed is None:
            before = self._shape
            records = [each for each in parsed_sample(kept[:SAMPLE]) if isinstance(each, dict)]
            self._shape = shape_of(self._source, self._relation, records, self._encodings)
            if self._shape is None or self._shape == before:
                return None
            parsed = parse_block(kept, self._shape.schema)
        if parsed is None or self._shape is None:
            return None
        rows = self._rows(self._shape, *parsed)
        if rows is None:
            return None
        found, mask = rows
        taken = plain if mask is None else [at for at, is_row in zip(plain, mask.tolist(), strict=True) if is_row]
        if not taken:
            return None
        found.positions = np.array(numbers if len(taken) == len(lines) else [numbers[at] for at in taken], np.int64)
        found.text = texts_of(lines, taken)
        rest = set(range(len(lines))).difference(taken) if len(taken) < len(lines) else ()
        return found, sorted(rest)

    def _rows(self, shape: LineShape, table: pa.Table, block: bytes) -> tuple[RawRows, Mask | None] | None:
        """Return the rows of a block without their positions, and which of its lines they are if not all."""
        fields = {name: table.column(name).chunk(0) for name in table.column_names}
        spellings = Spellings(block)
        wanted = (self._source.operation_column(self._relation), self._source.order_column(self._relation))
        pairs = zip(
            (*self._relation.column_names, *wanted), (*shape.columns, shape.operation, shape.order), strict=True
        )
        for name, called in pairs:
            if name is not None and called is not None and not spellings.is_one(called, fields[called], name):
                return None
        order = None if shape.order is None else fields[shape.order]
        if order is not None and shape.order is not None and order.null_count == len(order):
            if spellings.has(shape.order):
                return None  # there without a value, it is a problem of the rows
            order = None
        columns = [fields[name] for name in shape.columns]
        if any(len(self._placeholder.places_in(column)) for column in columns):
            return None
        operations = None if shape.operation is None else fields[shape.operation]
        if operations is not None and operations.null_count == len(operations):
            operations = None
        nothing = is_all_null(columns)
        mask = None
        if nothing is not None:
            mask = ~nothing
            kept = pa.array(mask)
            columns = [column.filter(kept) for column in columns]
            operations = None if operations is None else operations.filter(kept)
            order = None if order is None else order.filter(kept)
        return RawRows([*columns], operations, order, _NOWHERE, str, self._encodings), mask
