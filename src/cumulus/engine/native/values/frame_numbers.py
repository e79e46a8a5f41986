"""What words of rows are the numbers of: in a frame, values of its own; in maps, those of a dictionary."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import EXACT
from cumulus.engine.frames.frame import NO_TEXTS, MapFrame, renumber
from cumulus.engine.frames.layout import FrameColumn, FrameLayout
from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.values.columns import text_columns
from cumulus.engine.native.values.dictionary import Dictionary

Matrix = npt.NDArray[np.int64]


def frame_of_rows(layout: FrameLayout, words: Matrix, dictionary: Dictionary) -> MapFrame:
    """Return rows of a map as a frame, which takes the matrix."""
    texts, others = NO_TEXTS, list[Any]()
    if layout.texts:
        texts = dictionary.array(renumber(words, layout.texts)).view(pa.large_binary())
    for column in layout.others:
        given = dictionary.values_of if column.word < layout.key_words else dictionary.boxes
        used = renumber(words, [column])
        _replace(words, column, np.arange(len(others), len(others) + len(used)))
        others += [given[number] for number in used.tolist()]
    return MapFrame(layout, words, texts, others)


def rows_of_frame(frame: MapFrame, sign: int, dictionary: Dictionary) -> Matrix:
    """Return the rows of a frame with the numbers that its texts and other values have in a dictionary.

    Values of any length get boxes of what is to be added: they have the sign already.
    """
    layout, words = frame.layout, frame.words.copy()
    if layout.texts:
        numbers = np.empty(len(frame.texts), dtype=np.int64)
        dictionary.number_all(*text_columns(frame.texts.view(pa.large_string())), numbers)
        for column in layout.texts:
            _replace(words, column, numbers)
    for column in layout.others:
        used = [frame.others[at] for at in renumber(words, [column]).tolist()]
        if column.word < layout.key_words:
            found = [dictionary[value] for value in used]
        else:
            found = [dictionary.boxes.put(EXACT.multiply(Decimal(value), sign)) for value in used]
        _replace(words, column, np.array(found, dtype=np.int64))
    return words


def _replace(words: Matrix, column: FrameColumn, numbers: Matrix) -> None:
    """Put in place of what a column has, which are places, what stands there; NULL stays."""
    mine = words[:, column.word]
    there = mine != NULL_WORD
    mine[there] = numbers[mine[there]]
