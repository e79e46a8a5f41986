"""Where the columns of a map stand in the rows of a frame: key words, then value words, in the order of the columns.

Native maps lay their rows out in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeAlias
from zlib import crc32

from cumulus.catalog.types import BIGINT, Kind, SqlType
from cumulus.engine.frames.value_words import has_sign_word, is_wide
from cumulus.errors import UsageError
from cumulus.m3.program import MapDef


class ColumnForm(Enum):
    """How a column is written in the words of a row."""

    WORD = "a word"
    WIDE = "a whole number of 128 bits, the low word first"
    SIGNED = "a whole number of 64 bits, and its sign or NULL"
    SIGNED_WIDE = "a whole number of 128 bits, and its sign or NULL"
    FLOAT = "the bits of a float"
    CELL = "a sum of floats, its compensation and its size (`cumulus.algebra.float_sums`)"
    TEXT = "the number of a text of the frame"
    OTHER = "the number of another value of the frame"

    def __init__(self, _: str) -> None:
        self.words = {"WIDE": 2, "SIGNED": 2, "SIGNED_WIDE": 3, "CELL": 3}.get(self.name, 1)


class FrameColumn(NamedTuple):
    """A column: its SQL type, None if it has none, whether it can be NULL, its form, its first word."""

    type: SqlType | None
    nullable: bool
    form: ColumnForm
    word: int


Keys: TypeAlias = tuple[tuple[SqlType | None, bool], ...]
"""The types of key columns, and whether they can be NULL."""


class FrameLayout:
    """The columns of frames that can be added to the same maps; there is one for all that have the same.

    Parameters
    ----------
    keys, values
        The types of key columns, and whether they can be NULL; the types of value columns.
    """

    def __init__(self, keys: Keys, values: tuple[SqlType | None, ...]) -> None:
        self._keys, self._values = keys, values
        columns: list[FrameColumn] = []
        word = 0
        for sql_type, nullable, form in (
            *((sql_type, nullable, _key_form(sql_type, nullable)) for sql_type, nullable in keys),
            *((sql_type, False, _value_form(sql_type)) for sql_type in values),
        ):
            columns.append(FrameColumn(sql_type, nullable, form, word))
            word += form.words
        self.keys, self.values = tuple(columns[: len(keys)]), tuple(columns[len(keys) :])
        self.width = word
        """Words of a row."""
        self.key_words = self.values[0].word if self.values else word
        self.texts = tuple(each for each in columns if each.form is ColumnForm.TEXT)
        self.others = tuple(each for each in columns if each.form is ColumnForm.OTHER)
        self.signed = tuple(each for each in columns if each.form in (ColumnForm.SIGNED, ColumnForm.SIGNED_WIDE))
        """Columns whose last word is a sign or NULL."""
        self.is_plain = not self.texts and not self.others
        """Whether its rows are words alone."""
        self.fingerprint = crc32(repr((keys, values)).encode())
        """32 bits that other layouts hardly have."""

    def without_key(self, place: int) -> FrameLayout:
        """Return the layout without a key column."""
        return _layout((*self._keys[:place], *self._keys[place + 1 :]), self._values)

    def __repr__(self) -> str:
        keys = ", ".join(f"{sql_type}{'' if nullable else ' NOT NULL'}" for sql_type, nullable in self._keys)
        return f"[{keys}]({', '.join(map(str, self._values))})"


def layout_of(definition: MapDef) -> FrameLayout:
    """Return the layout of the rows of a map."""
    keys: Sequence[tuple[SqlType | None, bool]] = [(each.type, not each.not_null) for each in definition.keys]
    return _layout(tuple(keys), tuple(each.type for each in definition.values))


@cache
def _layout(keys: Keys, values: tuple[SqlType | None, ...]) -> FrameLayout:
    return FrameLayout(keys, values)


def _key_form(sql_type: SqlType | None, nullable: bool) -> ColumnForm:
    if sql_type is None or sql_type.kind in (Kind.INTERVAL, Kind.BIGDECIMAL, Kind.NULL):
        return ColumnForm.OTHER
    if sql_type.kind is Kind.VARCHAR:
        return ColumnForm.TEXT
    if sql_type.is_float:
        return ColumnForm.FLOAT
    if has_sign_word(sql_type, nullable=nullable):
        return ColumnForm.SIGNED_WIDE if is_wide(sql_type) else ColumnForm.SIGNED
    return ColumnForm.WIDE if is_wide(sql_type) else ColumnForm.WORD


def _value_form(sql_type: SqlType | None) -> ColumnForm:
    if sql_type is None or sql_type.kind is Kind.BIGDECIMAL:
        return ColumnForm.OTHER
    if sql_type.is_float:
        return ColumnForm.CELL
    return ColumnForm.WIDE if sql_type.kind in (Kind.HUGEINT, Kind.DECIMAL) else ColumnForm.WORD


def check_fits(layout: FrameLayout, definition: MapDef) -> None:
    """Check that frames of a layout can be added to a map.

    Raises
    ------
    UsageError
        If its columns are others.
    """
    wanted = layout_of(definition)
    if layout is not wanted:
        raise UsageError(
            f"a frame of {layout} does not fit map {definition.name}, which is {wanted}",
            hint="Add frames to maps whose columns have the same types, NOT NULL included.",
        )


def check_can_be_cut(definition: MapDef, position: int) -> None:
    """Check that a map can be cut by one of its key columns.

    Raises
    ------
    UsageError
        If that is no BIGINT.
    """
    column = definition.keys[position]
    if column.type != BIGINT:
        raise UsageError(
            f"map {definition.name} cannot be cut by {column.name}, which is {column.type}", hint="Name a BIGINT key."
        )
