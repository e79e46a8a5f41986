"""Frames whose sums have no bound: the form that maps take where a sum leaves 128 bits.

Sums of whole numbers and decimals are two words in an ordinary frame. In an unbounded one they are numbers of Python's,
which frames carry as they carry those of BIGDECIMAL columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache

import numpy as np

from cumulus.catalog.types import BIGDECIMAL, EXACT, Kind
from cumulus.engine.frames.entries import Entry, frame_of
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import ColumnForm, FrameColumn, FrameLayout, layout_of
from cumulus.engine.frames.value_words import TOO_WIDE, joined, split
from cumulus.errors import EvaluationError
from cumulus.m3.program import MapDef, Program

_LIMIT = 1 << 127
_SPARE = 8
"""Bits that sums leave over where an engine goes back to words: the next rows shall not end that."""
_MOST_PATIENCE = 64
_KINDS = (Kind.HUGEINT, Kind.DECIMAL)


@cache
def unbounded_map(definition: MapDef) -> MapDef:
    """Return a map whose sums of whole numbers and decimals have no bound; the same map if it has none."""
    values = tuple(
        replace(column, type=BIGDECIMAL) if column.type is not None and column.type.kind in _KINDS else column
        for column in definition.values
    )
    return definition if values == definition.values else replace(definition, values=values)


def unbounded_program(program: Program) -> Program:
    """Return a program whose maps are unbounded, for an engine that has numbers of any length."""
    return replace(program, maps=tuple(map(unbounded_map, program.maps)))


def unbounded_frame(definition: MapDef, entries: Iterable[Entry]) -> MapFrame:
    """Return entries of a map as a frame whose sums have no bound."""
    return frame_of(layout_of(unbounded_map(definition)), entries)


def frame_of_bytes(definition: MapDef, data: bytes) -> MapFrame:
    """Return the frame of a map that `MapFrame.to_bytes` has written, in whichever of the two forms it has.

    Raises
    ------
    RemoteProtocolError
        If these are no bytes of such a frame.
    """
    unbounded = layout_of(unbounded_map(definition))
    is_unbounded = MapFrame.fingerprint_of(data) == unbounded.fingerprint
    return MapFrame.of_bytes(unbounded if is_unbounded else layout_of(definition), data)


def fitted(definition: MapDef, frames: Sequence[MapFrame]) -> list[MapFrame]:
    """Return frames of a map in one form: the bounded one if all their sums fit 128 bits."""
    bounded = layout_of(definition)
    try:
        return [narrowed(frame, bounded) for frame in frames]
    except EvaluationError:
        return [widened(frame, layout_of(unbounded_map(definition))) for frame in frames]


def bounded_frames(program: Program, stored: Callable[[str], Iterable[Entry]]) -> dict[str, MapFrame]:
    """Return what an engine without bounds has of each map of a program as frames, with room to spare in all sums.

    Raises
    ------
    EvaluationError
        If a number does not fit.
    """
    return {
        definition.name: narrowed(
            unbounded_frame(definition, stored(definition.name)), layout_of(definition), spare=_SPARE
        )
        for definition in program.maps
    }


class Patience:
    """Says at which commits it is looked whether all numbers fit words again: less and less often, as that is slow."""

    def __init__(self) -> None:
        self._commits = self._left = 1

    def begin(self) -> None:
        """Start to count: a number does not fit."""
        self._left = self._commits

    def is_over(self) -> bool:
        """Whether it is looked at this commit."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._commits = min(2 * self._commits, _MOST_PATIENCE)
        return True


def widened(frame: MapFrame, layout: FrameLayout) -> MapFrame:
    """Return a frame in an unbounded layout of the same map; the frame itself if that is its layout."""
    if frame.layout is layout:
        return frame
    others = list(frame.others)
    columns = [frame.words[:, : layout.key_words]]
    for old, new in zip(frame.layout.values, layout.values, strict=True):
        words = frame.words[:, old.word : old.word + old.form.words]
        if new.form is not ColumnForm.OTHER or old.form is ColumnForm.OTHER:
            columns.append(words)
            continue
        columns.append(np.arange(len(others), len(others) + frame.rows, dtype=np.int64).reshape(-1, 1))
        others += [_number(joined(*pair), old) for pair in words.tolist()]
    return MapFrame(layout, np.hstack(columns), frame.texts, others)


def narrowed(frame: MapFrame, layout: FrameLayout, spare: int = 0) -> MapFrame:
    """Return a frame in the bounded layout of the same map; the frame itself if that is its layout.

    Parameters
    ----------
    spare
        Bits of the 128 that must be left over.

    Raises
    ------
    EvaluationError
        If a sum is beyond these bits.
    """
    if frame.layout is layout:
        return frame
    columns = [frame.words[:, : layout.key_words]]
    for old, new in zip(frame.layout.values, layout.values, strict=True):
        words = frame.words[:, old.word : old.word + old.form.words]
        if old.form is ColumnForm.OTHER and new.form is ColumnForm.WIDE:
            found = [_words(frame.others[at], new, spare) for at in words[:, 0].tolist()]
            words = np.array(found, dtype=np.int64).reshape(frame.rows, 2)
        columns.append(words)
    return MapFrame(layout, np.hstack(columns), frame.texts, frame.others)


def _number(word: int, column: FrameColumn) -> int | Decimal:
    scale = _scale(column)
    return Decimal(word).scaleb(-scale, EXACT) if scale else word


def _words(number: int | Decimal, column: FrameColumn, spare: int) -> tuple[int, int]:
    word = int(Decimal(number).scaleb(_scale(column), EXACT))
    if not -_LIMIT <= word << spare < _LIMIT:
        raise EvaluationError(f"{number} does not fit the words of {column.type} sums", hint=TOO_WIDE)
    low, high = split(word)
    return low, high


def _scale(column: FrameColumn) -> int:
    return column.type.scale if column.type is not None and column.type.kind is Kind.DECIMAL else 0
