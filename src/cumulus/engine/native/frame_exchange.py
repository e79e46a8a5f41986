"""Rows of native maps as frames, and back.

Words of rows are numbers of texts and other values: in a frame of values of its own, in maps of those of a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.types import EXACT
from cumulus.engine.frames.frame import NO_TEXTS, MapFrame, Matrix, renumber
from cumulus.engine.frames.layout import FrameColumn, FrameLayout, check_can_be_cut, check_fits, layout_of
from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.code.frame_functions import RowMover
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.image import Image
from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.program import BASE, CodePlan, library
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.store.row_layout import LIVE
from cumulus.engine.native.transactions import Transactions
from cumulus.engine.native.values.columns import text_columns
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR
from cumulus.errors import UnknownNameError
from cumulus.m3.program import MapDef


class _Port:
    """Where the rows of a map go in and out."""

    def __init__(self, definition: MapDef, store: MapLayout, image: Image, function: Callable[..., Any]) -> None:
        self.definition = definition
        self.layout: FrameLayout = layout_of(definition)
        shape = store.shape
        assert (self.layout.key_words, self.layout.width) == (shape.keys, shape.keys + shape.values), "words in order"
        record = image.plan.context.record(store)
        self.live = (record + LIVE) >> 3
        """Where the words of the context say how many rows there are."""
        self.nothing = MapFrame(self.layout, np.zeros((0, self.layout.width), dtype=np.int64))
        mover = _mover(store)
        given = (image.at, store.number, image.at + record)
        head = (PTR, I64, PTR)
        self.take = partial(function(mover.take.name, I64, *head, PTR, I64, I64), *given)
        self.add = partial(function(mover.add.name, I64, *head, PTR, I64, I64), *given)
        self.cut = partial(function(mover.cut.name, I64, *head, *[I64] * 4), *given)


def _mover(store: MapLayout) -> RowMover:
    return RowMover(store.shape, store.values)


class NativeFrames:
    """The `cumulus.engine.protocol.FrameExchange` of machine code."""

    def __init__(self, code: CurrentCode, transactions: Transactions) -> None:
        self._code, self._dictionary, self._transactions = code, code.dictionary, transactions
        self._ports: dict[str, _Port] = {}
        self._written_for: CodePlan | None = None
        self._function: Callable[..., Any]
        self._maps = {each.name: each for each in code.program.maps}
        code.add_user(self._use)

    def _use(self, image: Image) -> None:
        """Move the rows of an image from now on."""
        self._cells = image.words.cells
        self._ports.clear()

    def _port(self, map: str) -> _Port:
        port = self._ports.get(map)
        if port is not None:
            return port
        if map not in self._maps:
            raise UnknownNameError(f"there is no map {map}", hint=f"Maps: {', '.join(self._maps)}.")
        image = self._code.image
        if image.plan is not self._written_for:
            self._load(image.plan)
        store = image.plan.context.stores[map]
        port = self._ports[map] = _Port(self._maps[map], store, image, self._function)
        return port

    def _load(self, plan: CodePlan) -> None:
        """Load what moves the rows of all maps."""
        movers = {mover.add.name: mover for mover in map(_mover, map(plan.context.stores.__getitem__, self._maps))}

        def write() -> list[Module]:
            shapes = {mover.shape.name: mover.shape for mover in movers.values()}
            functions = {each.name: each for mover in movers.values() for each in mover.functions()}
            return [BASE, *map(library, shapes.values()), Module([*functions.values()])]

        self._function = self._code.load_extra([*movers], write).function
        self._written_for = plan

    def copy(self, map: str) -> MapFrame:
        """Return all that is stored; see `Engine.copy`."""
        port = self._ports.get(map) or self._port(map)
        words = np.empty((self._cells[port.live], port.layout.width), dtype=np.int64)
        port.take(words.ctypes.data, 0, 0)
        return self._frame(port, words)

    def take(self, map: str) -> MapFrame:
        """Return all that is stored and leave the map empty; see `Engine.take`."""
        port = self._ports.get(map) or self._port(map)
        count = self._cells[port.live]
        if not count:
            return port.nothing
        words = np.empty((count, port.layout.width), dtype=np.int64)
        self._transactions.change(map, partial(port.take, words.ctypes.data, 1, int(self._transactions.is_open)))
        return self._frame(port, words)

    def _frame(self, port: _Port, words: Matrix) -> MapFrame:
        if port.layout.is_plain:
            return MapFrame(port.layout, words)
        return frame_of_rows(port.layout, words, self._dictionary)

    def take_all(self, maps: Iterable[str]) -> dict[str, MapFrame]:
        """Return what `take` does of the maps that have something; see `Engine.take_all`."""
        ports, cells = self._ports, self._cells
        return {map: self.take(map) for map in maps if cells[(ports.get(map) or self._port(map)).live]}

    def add(self, map: str, frame: MapFrame, sign: int = 1) -> None:
        """Add rows to those with the same keys; see `Engine.add`."""
        port = self._ports.get(map) or self._port(map)
        if frame.layout is not port.layout:
            check_fits(frame.layout, port.definition)
        if not frame.rows:
            return
        words = frame.words if frame.layout.is_plain else rows_of_frame(frame, sign, self._dictionary)
        if not words.flags.aligned:
            words = words.copy()
        self._transactions.change(map, partial(port.add, words.ctypes.data, frame.rows, sign))

    def cut(self, map: str, position: int, most: int) -> int:
        """Remove rows by a BIGINT key; see `Engine.cut`."""
        port = self._ports.get(map) or self._port(map)
        check_can_be_cut(port.definition, position)
        column = port.layout.keys[position]
        before = self._cells[port.live]
        sign = column.word + column.form.words - 1  # the word itself where no row has NULL
        is_open = int(self._transactions.is_open)
        if before and most >= NULL_WORD:
            cut = partial(port.cut, column.word, sign, min(most, -1 - NULL_WORD), is_open)
            self._transactions.change(map, cut)
        return before - self._cells[port.live]


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
