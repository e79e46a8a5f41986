"""How many rows, and bytes in the types of a table, a body may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.schema import Relation
from cumulus.catalog.types import arrow_type
from cumulus.errors import LimitError

_SEVERAL = "Send them in several requests, or start the server with a higher --limit"
_TEXT_BYTES, _UNTYPED_BYTES = 4, 16
"""Of a value: the offset of a text, and what has a type of its own."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """The limits of one body.

    Parameters
    ----------
    rows, bytes
        The largest number of rows, and of bytes when they are of the table's types.
    columns
        How many columns the table has.
    row_bytes
        Of a row in the table's types, without the characters of its texts.
    """

    rows: int
    bytes: int
    columns: int
    row_bytes: int

    @classmethod
    def of(cls, relation: Relation, rows: int, size: int) -> BodyBounds:
        """Return the bounds of a body with rows of a table."""
        widths = [_UNTYPED_BYTES if each.type is None else _width(arrow_type(each.type)) for each in relation.columns]
        return cls(rows, size, len(widths), sum(widths))

    @property
    def values(self) -> int:
        """The largest number of values, each row counting as one, too."""
        return self.rows * (self.columns + 1) + 1

    def check_rows(self, count: int) -> None:
        """Raise LimitError for too many rows, or for rows that take too much whatever their texts are."""
        if count > self.rows:
            raise LimitError(
                f"the body has {count:,} rows, more than the {self.rows:,} of a request", hint=f"{_SEVERAL} body_rows."
            )
        self.check_bytes(count * self.row_bytes)

    def check_bytes(self, size: int) -> None:
        """Raise LimitError for too many bytes."""
        if size > self.bytes:
            raise LimitError(
                f"the rows take {size:,} bytes unpacked, more than the {self.bytes:,} of a request",
                hint=f"{_SEVERAL} body_bytes.",
            )

    def check_columns(self, batch: pa.RecordBatch) -> int:
        """Return how many bytes the rows of a batch take in the table's types; LimitError if that is too many.

        A column that says one value for many rows is not written out for that.
        """
        size = batch.num_rows * self.row_bytes + sum(_characters(column) for column in batch.columns)
        self.check_bytes(size)
        return int(size)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_string(kind):
        return _TEXT_BYTES
    return max(1, int(kind.bit_width) // 8)


def _characters(array: Any) -> int:
    """Return how many bytes the texts of a column have when each row has its own."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = _lengths(array.dictionary)
        if lengths is None:
            return 0
        counts = pc.value_counts(array.indices)
        taken = lengths[counts.field("values").fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)]
        return _sum(taken * counts.field("counts").to_numpy() * counts.field("values").is_valid().to_numpy(False))
    if pa.types.is_run_end_encoded(kind):
        first = array.find_physical_offset()
        lengths = _lengths(array.values.slice(first, array.find_physical_length()))
        if lengths is None:
            return 0
        return _sum(lengths * _run_lengths(array))
    lengths = _lengths(array)
    return 0 if lengths is None else _sum(lengths)


def _run_lengths(array: Any) -> Any:
    """Return how many rows each run has, of those that the array shows."""
    first = array.find_physical_offset()
    ends = array.run_ends.to_numpy()[first : first + array.find_physical_length()].astype(np.int64) - array.offset
    return np.diff(np.minimum(ends, len(array)), prepend=0)


def _lengths(array: Any) -> Any:
    """Return the bytes of each text, None where there are no texts."""
    kind = array.type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return np.full(len(array), _characters(array))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1] or b"", np.int32)[::4]
        return views[array.offset : array.offset + len(array)].astype(np.int64)
    if any(test(kind) for test in _TEXTS):
        return pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return None


def _sum(numbers: Any) -> int:
    return int(numbers.sum(dtype=np.float64)) if len(numbers) else 0


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
