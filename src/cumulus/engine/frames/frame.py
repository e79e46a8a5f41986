"""Rows of a map as values: what an engine takes out of a map, and any engine adds to one with the same columns.

A frame is a matrix of words, a row each, with the texts and the other values that words are the numbers of. It belongs
to no engine: frames are divided, joined, and sent to other processes as bytes. They do not change.

Bytes are a header, the words, the texts and the other values; each of the two is the ends of its values, then their
UTF-8. Who reads them checks all lengths and all numbers, so bytes that nobody wrote are an error and never more.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from typing import Any, NoReturn, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.partition import bucket_of, buckets_of_words
from cumulus.catalog.types import Interval, Kind, SqlType, arrow_type, decimal
from cumulus.engine.frames.layout import ColumnForm, FrameColumn, FrameLayout
from cumulus.engine.frames.tagged_texts import from_text, to_text
from cumulus.engine.frames.value_words import NULL_WORD, is_wide, last_null_word, whole_of, word_decoder
from cumulus.engine.frames.word_arrays import decimal_array, key_array, null_flags
from cumulus.errors import EvaluationError, RemoteProtocolError

Matrix: TypeAlias = npt.NDArray[np.int64]
"""A row of words for each row."""
_HEADER = struct.Struct("<4sIQQQQQ")
_MAGIC = b"CuF1"
_LITTLE = np.dtype("<i8")
_FEW = 64
"""So many numbers are looked at one by one."""
NO_TEXTS = pa.Array.from_buffers(pa.large_binary(), 0, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])
"""No texts, made without `pyarrow.array`, which imports pandas."""
_SURROGATES = "surrogatepass"


class MapFrame:
    """Rows of a map.

    Parameters
    ----------
    layout
        Its columns.
    words
        A row of words for each row, in one piece of memory.
    texts
        The UTF-8 of texts that words are the numbers of, as Arrow's large_binary without NULLs or an offset.
    others
        The other values that words are the numbers of.
    """

    __slots__ = ("layout", "others", "rows", "texts", "words")

    def __init__(
        self, layout: FrameLayout, words: Matrix, texts: pa.Array = NO_TEXTS, others: Sequence[Any] = ()
    ) -> None:
        self.layout, self.words, self.texts, self.others = layout, words, texts, others
        self.rows = len(words)
        """How many there are."""

    # --- columns ----------------------------------------------------------------------------------------------------

    def key(self, place: int) -> pa.Array:
        """Return a key column as Arrow has it; whole numbers of 64 bits or less have 64, a text is in a dictionary.

        Raises
        ------
        EvaluationError
            If a value was computed beyond what Arrow has.
        """
        column = self.layout.keys[place]
        words = [self.words[:, column.word + part] for part in range(column.form.words)]
        if column.form is ColumnForm.TEXT:
            numbers = pa.array(words[0], mask=words[0] == NULL_WORD)
            return pa.DictionaryArray.from_arrays(numbers, self.texts.view(pa.large_string()))
        if column.form is ColumnForm.OTHER:
            return _array_of_others([None if at < 0 else self.others[at] for at in words[0].tolist()], column.type)
        assert column.type is not None
        found = key_array(words, _widest(column.type), nullable=column.nullable)
        if found is None:
            raise EvaluationError(
                f"a {column.type} key was computed beyond its type", hint="Cast it to a type that holds it."
            )
        return found

    def value(self, place: int) -> pa.Array:
        """Return a value column as Arrow has it; of a DOUBLE the sum.

        Raises
        ------
        EvaluationError
            If a sum is beyond what Arrow has, which is 38 digits.
        """
        column = self.layout.values[place]
        words = [np.ascontiguousarray(self.words[:, column.word + part]) for part in range(column.form.words)]
        match column.form:
            case ColumnForm.CELL:
                return pa.array(words[0].view(np.float64) + words[1].view(np.float64))
            case ColumnForm.WIDE:
                scale = 0 if column.type is None else column.type.scale
                found = decimal_array(words[0], words[1], pa.decimal128(38, scale), None)
                if found is None:
                    raise EvaluationError(
                        f"a sum of {column.type} has more than 38 digits", hint="Divide before adding."
                    )
                return found
            case ColumnForm.OTHER:
                return pa.array([self.others[at] for at in words[0].tolist()])
            case _:
                return pa.array(words[0])

    def buckets(self, place: int, count: int) -> npt.NDArray[np.int64]:
        """Return in which of some buckets the rows are by a key column: `cumulus.catalog.partition` says where."""
        column = self.layout.keys[place]
        words = self.words[:, column.word : column.word + column.form.words]
        if column.form is ColumnForm.TEXT:
            nulls = words[:, 0] == NULL_WORD
            hashed = np.array([*map(crc32, self.texts.to_pylist()), 0], dtype=np.int64)
            return buckets_of_words(hashed[np.where(nulls, -1, words[:, 0])], count, nulls)
        if column.type is not None and self._is_whole(column):
            nulls = null_flags(list(words.T), column.type) if column.nullable else None
            return buckets_of_words(words[:, 0], count, nulls)
        # Anything else is hashed in Python, each different value once.
        different, rows = np.unique(words, axis=0, return_inverse=True)
        found = [bucket_of(self._value(column, each), count) for each in different.tolist()]
        return np.array(found, dtype=np.int64)[rows.reshape(-1)]

    def _value(self, column: FrameColumn, words: Sequence[int]) -> Any:
        """Return a value of a key column that is no text."""
        if column.form is ColumnForm.OTHER:
            return None if words[0] == NULL_WORD else self.others[words[0]]
        assert column.type is not None
        if column.nullable and words[-1] == last_null_word(column.type):
            return None
        return word_decoder(column.type)(whole_of(words, column.type))

    def _is_whole(self, column: FrameColumn) -> bool:
        """Whether the first words of a column are whole numbers, and what `buckets_of` takes for them."""
        if column.type is None or column.type.scale:
            return False
        if is_wide(column.type):
            low, high = self.words[:, column.word], self.words[:, column.word + 1]
            is_short = (low >> 63 == high) | ((high == NULL_WORD) & (low == 0))
            return bool(is_short.all())
        return column.form in (ColumnForm.WORD, ColumnForm.SIGNED)

    def numbers(self, place: int) -> npt.NDArray[np.int64]:
        """Return a BIGINT NOT NULL key column, such as versions, as it is."""
        column = self.layout.keys[place]
        assert column.form is ColumnForm.WORD, "a column of whole numbers that are all there"
        return self.words[:, column.word]

    def with_numbers(self, place: int, numbers: npt.NDArray[np.int64]) -> MapFrame:
        """Return the frame with other values in a BIGINT key column."""
        words = self.words.copy()
        words[:, self.layout.keys[place].word] = numbers
        return MapFrame(self.layout, words, self.texts, self.others)

    def value_numbers(self, place: int) -> npt.NDArray[np.int64]:
        """Return a BIGINT value column as it is."""
        column = self.layout.values[place]
        assert column.form is ColumnForm.WORD, "a column of whole numbers"
        return self.words[:, column.word]

    def with_value_numbers(self, place: int, numbers: npt.NDArray[np.int64]) -> MapFrame:
        """Return the frame with other numbers in a BIGINT value column."""
        words = self.words.copy()
        words[:, self.layout.values[place].word] = numbers
        return MapFrame(self.layout, words, self.texts, self.others)

    # --- rows -------------------------------------------------------------------------------------------------------

    def take(self, places: npt.NDArray[np.int64]) -> MapFrame:
        """Return the rows at some places."""
        return MapFrame(self.layout, self.words.take(places, axis=0), self.texts, self.others)

    def filter(self, flags: npt.NDArray[np.bool_]) -> MapFrame:
        """Return the rows whose flag is set."""
        return MapFrame(self.layout, self.words.compress(flags, axis=0), self.texts, self.others)

    def without_key(self, place: int) -> MapFrame:
        """Return the rows without a key column; several may have the same key then."""
        column = self.layout.keys[place]
        words = np.delete(self.words, slice(column.word, column.word + column.form.words), axis=1)
        return MapFrame(self.layout.without_key(place), words, self.texts, self.others)

    # --- bytes ------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the frame as bytes, with the texts and other values that its rows have and no others."""
        layout, words, texts, others = self.layout, self.words, b"", b""
        text_count = other_count = 0
        if not layout.is_plain:
            words = words.copy()
            used = renumber(words, layout.texts)
            text_count, texts = len(used), _packed_texts(self.texts.take(pa.array(used)))
            used = renumber(words, layout.others)
            tagged = [(to_text(self.others[at]) or "").encode("utf-8", _SURROGATES) for at in used.tolist()]
            other_count, others = len(used), _packed_texts(pa.array(tagged, pa.large_binary()))
        head = _HEADER.pack(_MAGIC, layout.fingerprint, self.rows, text_count, len(texts), other_count, len(others))
        return b"".join((head, words.astype(_LITTLE, copy=False).data, texts, others))

    @staticmethod
    def fingerprint_of(data: bytes | memoryview) -> int:
        """Return the fingerprint of the layout that `to_bytes` has written; 0 if these are no bytes of a frame."""
        return int(_HEADER.unpack_from(data)[1]) if len(data) >= _HEADER.size else 0

    @staticmethod
    def of_bytes(layout: FrameLayout, data: bytes | memoryview) -> MapFrame:
        """Return the frame that `to_bytes` has written.

        Raises
        ------
        RemoteProtocolError
            If these are no bytes of a frame of this layout.
        """
        if len(data) < _HEADER.size:
            _refuse(f"{len(data)} bytes are no frame")
        magic, fingerprint, rows, text_count, text_bytes, other_count, other_bytes = _HEADER.unpack_from(data)
        if magic != _MAGIC or fingerprint != layout.fingerprint:
            _refuse(f"a frame has other columns than {layout}")
        end = _HEADER.size + 8 * rows * layout.width
        if len(data) != end + text_bytes + other_bytes:
            _refuse(f"a frame has {len(data)} bytes and says it has {end + text_bytes + other_bytes}")
        words = np.frombuffer(data, _LITTLE, rows * layout.width, _HEADER.size).reshape(rows, layout.width)
        if sys.byteorder != "little":
            words = words.astype(np.int64)
        for column in layout.signed:
            _check_signs(words, column)
        if layout.is_plain and not (text_count or text_bytes or other_count or other_bytes):
            return MapFrame(layout, words)
        view = memoryview(data)
        texts = _unpacked_texts(view[end : end + text_bytes], text_count)
        others = _unpacked_others(view[end + text_bytes :], other_count)
        for column in (*layout.texts, *layout.others):
            is_text, is_key = column.form is ColumnForm.TEXT, column.word < layout.key_words
            for number in _numbers_in(words, column, text_count if is_text else other_count):
                value = None if is_text else others[number]
                if not is_text and not (_is_key(value, column.type) if is_key else _is_number(value)):
                    _refuse(f"{value!r} of a frame is no {column.type}")
        return MapFrame(layout, words, texts, others)


def _check_signs(words: Matrix, column: FrameColumn) -> None:
    """Check the last word of a column that repeats the sign, or is NULL's with zeros before it."""
    *value, sign = (words[:, column.word + part] for part in range(column.form.words))
    is_null = sign == NULL_WORD
    for word in value:
        is_null &= word == 0
    if not (is_null | (sign == value[-1] >> 63)).all():
        _refuse(f"a frame has a {column.type} that is neither a number nor NULL")


def concat(frames: Sequence[MapFrame]) -> MapFrame:
    """Return the rows of some frames of one layout, at least one, in their order."""
    layout = frames[0].layout
    assert all(each.layout is layout for each in frames), "frames of one layout"
    if len(frames) == 1:
        return frames[0]
    words = np.concatenate([each.words for each in frames])
    if layout.is_plain:
        return MapFrame(layout, words)
    start, text_count, others = 0, 0, list[Any]()
    for each in frames:
        mine = words[start : start + each.rows]
        for columns, first in ((layout.texts, text_count), (layout.others, len(others))):
            for column in columns:
                numbers = mine[:, column.word]
                numbers[numbers != NULL_WORD] += first
        start += each.rows
        text_count += len(each.texts)
        others += each.others
    return MapFrame(layout, words, pa.concat_arrays([each.texts for each in frames]), others)


def renumber(words: Matrix, columns: Sequence[FrameColumn]) -> npt.NDArray[np.int64]:
    """Number anew what some columns name, from 0 on and without gaps; return the old numbers by the new ones."""
    if not columns:
        return np.zeros(0, dtype=np.int64)
    places = [column.word for column in columns]
    if len(words) * len(places) <= _FEW:
        known = {NULL_WORD: NULL_WORD}
        for row, place in product(words, places):
            row[place] = known.setdefault(int(row[place]), len(known) - 1)
        return np.array([*known][1:], dtype=np.int64)
    used, numbers = np.unique(words[:, places], return_inverse=True)
    numbers = numbers.reshape(len(words), len(places))
    if len(used) and used[0] == NULL_WORD:
        used, numbers = used[1:], numbers - 1
        numbers[numbers < 0] = NULL_WORD
    words[:, places] = numbers
    return used


def _widest(sql_type: SqlType) -> SqlType:
    """Return the type as which keys are told: the hash of a number does not depend on its width."""
    if sql_type.is_integer and sql_type.kind is not Kind.HUGEINT:
        return SqlType(Kind.BIGINT)
    return decimal(38, sql_type.scale) if sql_type.kind is Kind.DECIMAL and sql_type.precision > 18 else sql_type


def _array_of_others(values: list[Any], sql_type: SqlType | None) -> pa.Array:
    if sql_type is None or sql_type.kind is not Kind.INTERVAL:
        return pa.array(values)
    spans = [None if each is None else (each.months, each.days, each.micros * 1000) for each in values]
    return pa.array(spans, arrow_type(sql_type))


def _packed_texts(texts: pa.Array) -> bytes:
    """Return the ends of texts, then their bytes."""
    _, ends, data = texts.buffers()
    ends = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1] if ends else np.zeros(1, int)
    joined = b"" if data is None else memoryview(data)[ends[0] : ends[-1]]
    return b"".join(((ends[1:] - ends[0]).astype(_LITTLE, copy=False).data, joined))


def _unpacked_texts(data: memoryview, count: int) -> pa.Array:
    """Return what `_packed_texts` has written, checked."""
    size = len(data) - 8 * count
    if size < 0:
        _refuse("a frame has more texts than bytes of them")
    ends = np.zeros(count + 1, dtype=np.int64)
    ends[1:] = np.frombuffer(data, _LITTLE, count)
    if ends[-1] != size or (np.diff(ends) < 0).any():
        _refuse("the texts of a frame do not end where they should")
    bytes_ = pa.py_buffer(data[8 * count :])
    texts = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), bytes_])
    try:
        texts.view(pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        try:  # halves of characters are texts of Python's
            for each in texts.to_pylist():
                each.decode("utf-8", _SURROGATES)
        except UnicodeDecodeError:
            _refuse("a text of a frame is no UTF-8")
    return texts


def _unpacked_others(data: memoryview, count: int) -> list[Any]:
    try:
        tagged = _unpacked_texts(data, count).to_pylist()
        return [from_text(each.decode("utf-8", _SURROGATES)) for each in tagged]
    except (ValueError, TypeError, ArithmeticError, LookupError) as problem:
        _refuse(f"a value of a frame cannot be read: {problem}")


def _numbers_in(words: Matrix, column: FrameColumn, count: int) -> list[int]:
    """Return the numbers that a column has, each once, checked: there are so many values."""
    used = np.unique(words[:, column.word])
    if len(used) and used[0] == NULL_WORD and column.nullable:
        used = used[1:]
    if len(used) and not (used[0] >= 0 and used[-1] < count):
        _refuse("a frame names a value that it does not have")
    return list(used.tolist())


def _is_key(value: Any, sql_type: SqlType | None) -> bool:
    if sql_type is None:
        return value is not None
    return isinstance(value, Interval) if sql_type.kind is Kind.INTERVAL else _is_number(value)


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, Decimal) and value.is_finite())


def _refuse(what: str) -> NoReturn:
    raise RemoteProtocolError(what, hint="All processes must run the same program by the same release.")
