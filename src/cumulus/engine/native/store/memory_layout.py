"""Where everything of a program lies: the maps' rows, the records, the context that code gets as its only argument.

The context is one block of words: a head of fixed places, then texts and intervals that the program names, then a
record for each map, kept or made for a moment. Code reaches everything from its address, so it holds no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind, SqlType
from cumulus.engine.native.kernel.lanes import Lane, NotNativeError, lane_of
from cumulus.engine.native.kernel.language import F64, I64, I128, PTR, Type
from cumulus.engine.native.store.row_layout import FEW, LEFT, MOST_SUMS, RIGHT, OrderedIndex, RowLayout
from cumulus.m3.program import MapDef

# The head of the context, as offsets in bytes.
MEMORY = 0
"""The `cumulus.engine.native.kernel.memory` record of all maps."""
STATUS = 32
"""What made the firing useless: a `Status`."""
CULPRIT = 40
"""The number of the map that it is about, or `THE_JOURNAL`."""
THE_JOURNAL = -1
JOURNAL = 48
"""The block of the journal: for every change of a row the map's number, its key words and its value words before."""
JOURNAL_USED = 56
JOURNAL_SIZE = 64
"""Bytes."""
CALL = 72
"""The address of what calls a Python function: (its number, frame) → 0 a value, 1 NULL, 2 a failure."""
REPORT = 80
"""The address of what is told of failures: (site, reason, row of the batch or 0)."""
BOX = 88
"""The address of what does with boxes what is asked for: see `cumulus.engine.native.values.codec.BoxOp`."""
TEXTS = 96
"""The address of the `cumulus.engine.native.store.text_table` record."""
FRAME = 104
"""Words of arguments, and of the result."""
FRAME_WORDS = 64
LITERALS = FRAME + 8 * FRAME_WORDS


class Status(Enum):
    """Why a transaction cannot be kept."""

    NO_MEMORY = 1
    OVERFLOW = 2


class Reason(Enum):
    """What is reported as failed."""

    RAISED = 0
    """The Python function that was called last raised an exception."""
    NOT_FINITE = 1
    OVERFLOW = 2


class ColumnStorage(Enum):
    """How a value column is kept."""

    COUNT = "a whole number of 64 bits"
    WIDE = "a whole number of 128 bits, of units at the last digit"
    CELL = "a sum of floats, its compensation and its size (`cumulus.algebra.float_sums`)"
    FLOAT = "a sum of floats that lives for a moment, and its compensation"
    BOXED = "the number of a box (`cumulus.engine.native.values.codec`)"

    def __init__(self, _: str) -> None:
        self.words = {"WIDE": 2, "CELL": 3, "FLOAT": 2}.get(self.name, 1)
        """How many words of a row it takes."""
        self.kernel = {"WIDE": I128, "CELL": F64, "FLOAT": F64}.get(self.name, I64)
        """The type of what is added to it; of a box, its number."""


_SUM_KINDS = {ColumnStorage.COUNT: "i", ColumnStorage.WIDE: "w", ColumnStorage.CELL: "f"}
"""What of `ColumnStorage` an order can add up, and how a shape calls it."""
_SORT_KINDS = {ColumnStorage.COUNT: "s", ColumnStorage.WIDE: "s", ColumnStorage.CELL: "c"}
"""By what of `ColumnStorage` an order can sort, and how a shape calls that of its most significant word."""
Sorted: TypeAlias = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class TopKIndex:
    """Top-k index: the first rows of a map by a key column or, with numbers behind the keys, a value column."""

    axis: int
    descends: bool
    most: int


@dataclass(frozen=True, slots=True)
class ValueLane:
    """A value column: how it is kept, its first word among the value words, its digits behind the point."""

    held: ColumnStorage
    word: int
    scale: int
    type: SqlType | None


@dataclass(frozen=True, slots=True)
class EventLane:
    """A column of a relation as events have it.

    Parameters
    ----------
    lane
        Of its values.
    is_used
        Whether triggers use it: what they do not use they do not get.
    is_text
        Whether triggers only look at it: then they get its address and its length, below 0 for NULL, and no number.
    """

    lane: Lane
    is_used: bool
    is_text: bool = False

    @property
    def words(self) -> int:
        """How many words triggers get."""
        return 0 if not self.is_used else 2 if self.is_text else self.lane.words


def words_of(columns: Sequence[EventLane]) -> list[range]:
    """Return for each column of a relation which words of an event are its value: none where triggers do not use it."""
    found: list[range] = []
    for column in columns:
        first = found[-1].stop if found else 0
        found.append(range(first, first + column.words))
    return found


def event_words(columns: Sequence[EventLane]) -> int:
    """Return how many words of an event triggers get."""
    return sum(map(len, words_of(columns)))


def event_parameters(columns: Sequence[EventLane]) -> list[tuple[str, Type]]:
    """Return the parameters of a function that takes an event: the context, and words."""
    return [("context", PTR), *((f"w{word}", I64) for word in range(event_words(columns)))]


@dataclass(slots=True)
class MapLayout:
    """A map as code sees it.

    Parameters
    ----------
    name
        Of the map; of one made for a moment, one that begins with #.
    number
        Of its record.
    keys
        Names and lanes of its key columns.
    count
        The value column that says whether an entry exists; None if any does.
    indexes
        Key columns, in the order in which code asked for them.
    sleeping
        Those of them that are made when somebody first looks there.
    is_by_index
        Whether its rows are found by the columns of the first index: hardly two of them agree in these.
    orders
        Key columns that divide the rows, and the one by which these are sorted, with the value columns to be added up.
    searched
        Those of them where it costs much to look at a row: what an event reads is a tree.
    first_rows
        Of what orders only the best rows are wanted.
    marks
        Words behind the values that say that a row is there even if all values are 0.
    """

    name: str
    number: int
    key_names: tuple[str, ...]
    keys: tuple[Lane, ...]
    values: tuple[ValueLane, ...]
    count: int | None = None
    indexes: list[tuple[int, ...]] = field(default_factory=list)
    orders: dict[Sorted, list[int]] = field(default_factory=dict)
    searched: set[Sorted] = field(default_factory=set)
    first_rows: list[TopKIndex] = field(default_factory=list)
    marks: int = 0
    sleeping: set[tuple[int, ...]] = field(default_factory=set)
    is_by_index: bool = False
    _shape: RowLayout | None = None
    _value_words: int = -1

    @property
    def is_scratch(self) -> bool:
        """Whether it holds something for a moment only."""
        return self.name.startswith("#")

    @property
    def value_words(self) -> int:
        """How many words all value columns take."""
        if self._value_words < 0:
            self._value_words = sum(value.held.words for value in self.values)
        return self._value_words

    @property
    def shape(self) -> RowLayout:
        """The layout of its rows as words."""
        if self._shape is None:
            self._shape = RowLayout(
                sum(lane.words for lane in self.keys),
                self.value_words + self.marks,
                tuple(tuple(word for place in places for word in self.words_of(place)) for places in self.indexes),
                (
                    *(self._order(places, axis, columns) for (places, axis), columns in self.orders.items()),
                    *map(self._moving, self.first_rows),
                ),
                self.is_by_index,
                tuple(number for number, places in enumerate(self.indexes) if places in self.sleeping),
            )
        return self._shape

    def _order(self, places: tuple[int, ...], axis: int, columns: Sequence[int]) -> OrderedIndex:
        lane = self.keys[axis]
        first, *low = reversed(self.words_of(axis))
        words = [(first, "f" if lane.type.is_float else "s"), *((word, "u") for word in low)]
        rest = (place for place in range(len(self.keys)) if place != axis and place not in places)
        return OrderedIndex(
            tuple(word for place in places for word in self.words_of(place)),
            (*words, *((word, "s") for place in rest for word in self.words_of(place))),
            tuple((self.values[column].word, _SUM_KINDS[self.values[column].held]) for column in columns),
            0 if (places, axis) in self.searched else FEW,
        )

    def _moving(self, first: TopKIndex) -> OrderedIndex:
        best = RIGHT if first.descends else LEFT
        if first.axis < len(self.keys):
            return replace(self._order((), first.axis, ()), most=first.most, best=best)
        value = self.values[first.axis - len(self.keys)]
        keys = sum(lane.words for lane in self.keys)
        at = keys + value.word
        words = [(at + 1, "s"), (at, "u")] if value.held is ColumnStorage.WIDE else [(at, _SORT_KINDS[value.held])]
        return OrderedIndex((), (*words, *((word, "s") for word in range(keys))), most=first.most, best=best)

    def words_of(self, place: int) -> range:
        """Return the key words of a key column."""
        first = sum(lane.words for lane in self.keys[:place])
        return range(first, first + self.keys[place].words)

    def index(self, places: tuple[int, ...]) -> int:
        """Return the number of the index on some key columns, which is made if there is none."""
        if places not in self.indexes:
            self.indexes.append(places)
            self._shape = None
        elif places in self.sleeping:
            self.sleeping.remove(places)
            self._shape = None
        return self.indexes.index(places)

    def want_index(self, places: tuple[int, ...]) -> None:
        """Have an index on some key columns that is made when somebody first looks there, if there is none."""
        if places not in self.indexes:
            self.index(places)
            self.sleeping.add(places)

    def find_by(self, places: tuple[int, ...]) -> None:
        """Let rows be found by some of their key columns, in which hardly two of them agree."""
        if not self.indexes and 0 < len(places) < len(self.keys):
            self.index(places)
            self.is_by_index = True

    def order(self, places: tuple[int, ...], axis: int) -> int | None:
        """Return the number of the order by one key column of the rows that agree in others, made if there is none.

        None if its values have no order that code knows.
        """
        if not self.keys[axis].is_ordered:
            return None
        if (places, axis) not in self.orders:
            self.orders[places, axis] = []
            self._shape = None
            if places:
                self.index(places)  # small groups are chains
        return list(self.orders).index((places, axis))

    def search(self, order: int) -> None:
        """Let every group of an order that an event reads be a tree: looking at a row costs much."""
        wanted = list(self.orders)[order]
        if wanted[0] and wanted not in self.searched:
            self.searched.add(wanted)
            self._shape = None

    def want_first(self, axis: int, descends: bool, most: int) -> None:
        """Keep the first rows by a key column or a value column, if code knows its order."""
        known = (
            self.keys[axis].is_ordered
            if axis < len(self.keys)
            else self.values[axis - len(self.keys)].held in _SORT_KINDS
        )
        wanted = TopKIndex(axis, descends, most)
        if known and self.keys and wanted not in self.first_rows:
            self.first_rows.append(wanted)
            self._shape = None

    def order_sum(self, order: int, column: int) -> int | None:
        """Return the number of the sum of a value column in an order, added up from now on; None if it cannot be."""
        if self.values[column].held not in _SUM_KINDS:
            return None
        columns = list(self.orders.values())[order]
        if column not in columns:
            if len(columns) == MOST_SUMS:
                return None
            columns.append(column)
            self._shape = None
        return columns.index(column)


def lanes_of(columns: Sequence[Column]) -> tuple[Lane, ...]:
    """Return the lanes of columns; NotNativeError if one has none."""
    return tuple(lane_of(column.type, not column.not_null) for column in columns)


def value_lanes(types: Sequence[SqlType | None], *, is_scratch: bool = False) -> tuple[ValueLane, ...]:
    """Return the lanes of value columns, of a map or of sums for a moment; NotNativeError if one has none."""
    found: list[ValueLane] = []
    word = 0
    for sql_type in types:
        held = _held(sql_type)
        if held is ColumnStorage.CELL and is_scratch:
            held = ColumnStorage.FLOAT
        scale = sql_type.scale if sql_type is not None and sql_type.kind is Kind.DECIMAL else 0
        found.append(ValueLane(held, word, scale, sql_type))
        word += held.words
    return tuple(found)


def _held(sql_type: SqlType | None) -> ColumnStorage:
    if sql_type is None:
        raise NotNativeError("a value column without a declared type")
    match sql_type.kind:
        case Kind.BIGDECIMAL:
            return ColumnStorage.BOXED
        case Kind.REAL | Kind.DOUBLE:
            return ColumnStorage.CELL
        case Kind.HUGEINT | Kind.DECIMAL:
            return ColumnStorage.WIDE
        case _:
            return ColumnStorage.COUNT


def store_of(definition: MapDef, number: int) -> MapLayout:
    """Return a map of a program; NotNativeError if it cannot be laid out."""
    return MapLayout(
        definition.name,
        number,
        tuple(column.name for column in definition.keys),
        lanes_of(definition.keys),
        value_lanes([column.type for column in definition.values]),
        definition.column_index(definition.count) if definition.count else None,
    )


@dataclass(slots=True)
class ContextLayout:
    """The layout of the context, which grows while code is written.

    Code is written twice: only then is it known how many records there are, and which indexes they have.
    """

    stores: dict[Any, MapLayout] = field(default_factory=dict)
    literals: dict[tuple[Any, ...], int] = field(default_factory=dict)
    words: dict[Any, int] = field(default_factory=dict)
    """Single words, which code uses to remember something during a firing."""
    numbered: set[tuple[str, int]] = field(default_factory=set)
    """Relation and column of the texts of events whose numbers code has asked for."""
    _records: list[int] = field(default_factory=list)

    def add(self, key: Any, store: MapLayout) -> MapLayout:
        """Return the store for a key, the given one if there is none yet."""
        return self.stores.setdefault(key, store)

    def literal(self, value: Any, sql_type: SqlType) -> int:
        """Return the offset of the word for a text or interval."""
        place = self.literals.setdefault((sql_type, value), len(self.literals))
        return LITERALS + 8 * place

    def word(self, key: Any) -> int:
        """Return the offset of a word of the firing."""
        place = self.words.setdefault(key, len(self.words))
        return self._words_at + 8 * place

    def place_records(self) -> None:
        """Give every record its place; to be called when all stores and indexes are known."""
        self._records = []
        at = self._words_at + 8 * len(self.words)
        for store in self.stores.values():
            self._records.append(at)
            at += store.shape.record_size
        self._records.append(at)

    def record(self, store: MapLayout) -> int:
        """Return the offset of the record of a store; anything before `place_records`."""
        return self._records[store.number] if store.number < len(self._records) else 0

    @property
    def size(self) -> int:
        """Bytes of the context."""
        return self._records[-1]

    @property
    def state(self) -> tuple[Any, ...]:
        """What the places of everything depend on."""
        return (
            len(self.literals),
            len(self.words),
            len(self.numbered),
            *((each.shape, each.number) for each in self.stores.values()),
        )

    @property
    def _words_at(self) -> int:
        return LITERALS + 8 * len(self.literals)
