"""The layout of maps: where a row has its words, where a record has its tables, what the functions are called.

A row is `keys | values | for each index: next, previous | for each order: a node`, in words; the two links of an index
share one. A record is a head of fixed places, then the slot tables, of whole keys and of the indexes, then the roots of
orders without groups.

Where some of the key words tell rows apart as well as all of them do, an index on these is enough: whole keys have no
table of their own then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import I64, PTR, Expr, Local, Signature, Type
from cumulus.engine.native.store import hash_tables
from cumulus.engine.native.store.hash_tables import FIRST_FACTOR, SECOND_FACTOR, MemoryBlock, Record, table_blocks

# The record of a map, as offsets in bytes.
ROWS = 0
"""Row 0 is there and unused."""
LAST = 8
"""The greatest number that a row ever had."""
CAPACITY = 16
"""For how many rows there is room, row 0 included."""
FREE = 24
"""The newest free row; its first key word names the next one. 0 is none."""
LIVE = 32
"""How many rows there are."""
MEMORY = 40
PRIMARY = 48
"""The first slot table: of whole keys, if these have one; those of the indexes stand behind it."""

CREATED = 1 << 32
"""What `put` adds to the number of a row that it has made."""

LONGEST_PATH = 48
"""More rows than a path from a root can have: AVL trees of 2**31 rows are at most 45 high."""

# A node of an order, as offsets in bytes from where it begins in the row.
LEFT = 0
RIGHT = 4
MARKS = 8
"""The height of the tree; from `FLAGS` on, bit n: a row of it has a negative n-th sum. 0: the row is in no tree."""
HEIGHT = (1 << 8) - 1
"""Which bits of the marks are the height."""
COMING = HEIGHT
"""The marks of a new row that a tree with sums takes in when its values are there."""
FLAGS = 8
"""Where in the marks the flags begin."""
MOST_SUMS = 22
"""How many sums have a flag."""
SPOILED = 1 << MOST_SUMS
"""The flag behind them: a sum does not fit 128 bits."""
LOSSY = SPOILED << 1
"""The flag behind that: a sum of floats is not exact (`cumulus.engine.native.store.compensated_sums`)."""
GROUP = 12
"""Of the first row of a group's chain: the root of the group's tree; while it has none, how many rows there are, with
those that have gone since they were counted."""
SUMS = 16

MOST_CHAINED = 64
"""How many rows, with those that have gone since they were counted, a group may have that is no tree."""
FEW = 8
"""How many it may have when an event reads it in order."""

# What the record has of an order without a group, as offsets in bytes from where it begins there.
ROOT = 0
HELD = 8
"""Of an order that holds only the best rows: how many these are."""
IS_PARTIAL = 16
"""Whether there are others: none of them is better than the worst that it holds."""
_TREE_SIZE = 24


@dataclass(frozen=True, slots=True)
class OrderedIndex:
    """An ordered index on the rows of a map; see `cumulus.engine.native.store.ordered_index`.

    Parameters
    ----------
    group
        The key words that divide the rows; an index is on them.
    words
        By which words of the row it is sorted, most significant first, and how these are compared: "s" with the sign,
        "u" without, "f" as the bits of a float, "c" with the word behind as a sum of floats and its compensation. The
        last ones are all other key words, so no two rows are equal.
    sums
        The first value word of each column that is added up, and what it is: "i" an integer of one word, "w" of two,
        "f" a sum of floats and its compensation. A node has two words for each sum.
    few
        How many rows a group may have that is no tree when an event reads it.
    most, best
        How many rows it holds, those nearest to one side, LEFT or RIGHT; 0 if it holds all.

    Examples
    --------
    >>> order = OrderedIndex((0,), ((1, "s"),), ((0, "i"), (1, "w")))
    >>> order.name, order.node_words, order.sum(1)
    ('o0f8b1st0i1w', 6, 32)
    """

    group: tuple[int, ...]
    words: tuple[tuple[int, str], ...]
    sums: tuple[tuple[int, str], ...] = ()
    few: int = FEW
    most: int = 0
    best: int = RIGHT

    @property
    def name(self) -> str:
        """What tells it from other orders."""
        words, sums = ("".join(f"{word}{kind}" for word, kind in each) for each in (self.words, self.sums))
        ends = f"m{self.most}_{self.best}" if self.most else ""
        group = "_".join(map(str, self.group)) + (f"f{self.few}" if self.group else "")
        return f"o{group}b{words}t{sums}{ends}"

    @property
    def node_words(self) -> int:
        """Words that a row has for it."""
        return self.sum(len(self.sums)) // 8

    def sum(self, number: int) -> int:
        """Return where a sum stands in a node."""
        return SUMS + 16 * number


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of the rows of a map.

    Parameters
    ----------
    keys, values
        How many words.
    indexes
        The key words of each index, ascending; at least one, not all.
    orders
        The orders in which rows can be visited.
    is_by_index
        Whether whole keys have no slot table: the chain of the first index is looked through.
    sleeping
        The indexes that are made when somebody first asks for them: until then they have no table, and no chains.

    Examples
    --------
    >>> shape = RowLayout(2, 1, ((1,),))
    >>> shape.name, shape.row_size, shape.record_size
    ('k2v1i1', 32, 160)
    >>> shape = RowLayout(2, 1, ((1,), (0,)), is_by_index=True, sleeping=(1,))
    >>> shape.name, shape.row_size, shape.record_size
    ('k2v1xi1s0', 40, 160)
    """

    keys: int
    values: int
    indexes: tuple[tuple[int, ...], ...] = ()
    orders: tuple[OrderedIndex, ...] = ()
    is_by_index: bool = False
    sleeping: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What tells it from other shapes."""
        indexes = "".join(
            ("s" if number in self.sleeping else "i") + "_".join(map(str, each))
            for number, each in enumerate(self.indexes)
        )
        by_index = "x" if self.is_by_index else ""
        return f"k{self.keys}v{self.values}{by_index}{indexes}{''.join(order.name for order in self.orders)}"

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return self.node(len(self.orders))

    @property
    def record_size(self) -> int:
        """Bytes of the map's record."""
        return self.path + (8 * LONGEST_PATH if self.orders else 0)

    def value(self, word: int) -> int:
        """Return where a value word stands in a row."""
        return 8 * (self.keys + word)

    def link(self, index: int) -> int:
        """Return where a row says who is next in the chain of an index; who is before stands 4 bytes behind."""
        return 8 * (self.keys + self.values + index)

    def table(self, index: int) -> int:
        """Return where the slot table of an index stands in the record."""
        return PRIMARY + hash_tables.TABLE_SIZE * (index + (not self.is_by_index))

    def node(self, order: int) -> int:
        """Return where a row has the node of an order."""
        words = sum(each.node_words for each in self.orders[:order])
        return 8 * (self.keys + self.values + len(self.indexes) + words)

    def chain(self, order: int) -> int | None:
        """Return which index has the chains of an order's groups; None if all rows are one group."""
        group = self.orders[order].group
        return self.indexes.index(group) if group else None

    def tree(self, order: int) -> int:
        """Return where the record has the root of an order without a group."""
        return self.table(len(self.indexes)) + _TREE_SIZE * order

    @property
    def tables(self) -> list[int]:
        """Where slot tables stand in the record, the one of whole keys first if there is one; none without keys."""
        whole = [] if self.is_by_index or not self.keys else [PRIMARY]
        return [*whole, *(self.table(index) for index in range(len(self.indexes)))]

    @property
    def hashed(self) -> Sequence[int]:
        """The key words that lead to the first slot table."""
        return self.indexes[0] if self.is_by_index else range(self.keys)

    def blocks(self, record: Record) -> list[MemoryBlock]:
        """Return the blocks of a map: rows, then what belongs to its slot tables.

        Parameters
        ----------
        record
            Gives the word at an offset of the map's record.
        """
        size = self.row_size
        used = (record(LAST) + 1) * size if self.keys else 2 * size
        found = [MemoryBlock(ROWS, record(CAPACITY) * size, used)]
        for table in self.tables:
            found += table_blocks(record, table) if record(table + hash_tables.CAPACITY) else []
        return found

    @property
    def path(self) -> int:
        """Where the record has the rows on the way to one, while an order is changed."""
        return self.tree(len(self.orders))

    def is_limited(self, order: int) -> bool:
        """Whether an order holds only the best rows."""
        return self.orders[order].most > 0

    def moves(self, order: int) -> bool:
        """Whether an order holds rows as long as their values do not change: the best by a value."""
        return self.is_limited(order) and any(word >= self.keys for word, _ in self.orders[order].words)

    @property
    def has_moving(self) -> bool:
        """Whether an order holds rows as long as their values do not change."""
        return any(map(self.moves, range(len(self.orders))))

    @property
    def is_told(self) -> bool:
        """Whether an order depends on values, so that it must be told when they change."""
        return self.has_moving or any(order.sums for order in self.orders)

    def function(self, verb: str, *parameters: Type, result: Type | None = I64) -> Signature:
        """Return the signature of one of the functions of the shape, whose first parameter is an address: the map's."""
        return Signature(f"cu_{self.name}_{verb}", (PTR, *parameters), result)

    @property
    def find(self) -> Signature:
        """`(map, key words…)` → the row, 0 if there is none."""
        return self.function("find", *[I64] * self.keys)

    @property
    def put(self) -> Signature:
        """`(map, key words…)` → the row, plus `CREATED` if it was not there; 0 if there is no memory."""
        return self.function("put", *[I64] * self.keys)

    @property
    def remove(self) -> Signature:
        """`(map, row)`: remove a row."""
        return self.function("remove", I64, result=None)

    def first(self, index: int) -> Signature:
        """`(map, key words of the index…)` → the first row of the chain, 0 if there is none."""
        return self.function(f"first{index}", *[I64] * len(self.indexes[index]))

    def wake(self, index: int) -> Signature:
        """`(map)` → 1, or 0 if there is no memory: make an index that sleeps; nothing is done if it is awake."""
        return self.function(f"wake{index}")

    @property
    def new(self) -> Signature:
        """`(memory, map)` → 1, or 0 if there is no memory: make a record of zeros an empty map."""
        return self.function("new", PTR)

    @property
    def free(self) -> Signature:
        """`(map)`: give back all memory."""
        return self.function("free", result=None)

    @property
    def take_rows(self) -> Signature:
        """`(map, rows, bytes of one, how many)` → 1, or 0 if there is no memory: put rows that have a value.

        `rows` is the address of the first; each begins with key words and value words, no two with one key.
        """
        return self.function("adopt", PTR, I64, I64)

    @property
    def clear(self) -> Signature:
        """`(map)` → 1, or 0 if there is no memory: remove all rows."""
        return self.function("clear")

    @property
    def leave(self) -> Signature:
        """`(map, row)`: take a row out of all orders that move, for its values will change; only if there are some."""
        return self.function("leave", I64, result=None)

    @property
    def changed(self) -> Signature:
        """`(map, row)`: say that the values of a row are others now; only if the shape `is_told`."""
        return self.function("changed", I64, result=None)

    def edge(self, order: int) -> Signature:
        """`(map, start, LEFT or RIGHT)` → the first row of a group, or the last.

        The group starts with the root of its tree, or with the first row of its chain if it is no tree.
        """
        return self.function(f"edge{order}", I64, I64)

    def neighbour(self, order: int) -> Signature:
        """`(map, start, row, LEFT or RIGHT)` → the row before another one of its group, or behind it; 0 if none."""
        return self.function(f"beside{order}", I64, I64, I64)

    def plant(self, order: int) -> Signature:
        """`(map, first row of a chain, number)`: make a group a tree if it has more rows; it is none yet."""
        return self.function(f"plant{order}", I64, I64, result=None)

    def refill(self, order: int) -> Signature:
        """`(map)`: let an order that holds only the best rows hold as many as it can."""
        return self.function(f"refill{order}", result=None)

    def link_row(self, order: int) -> Signature:
        """`(map, row)`: put a row into an order; where there are groups, one that was put first into its chain."""
        return self.function(f"link{order}", I64, result=None)

    def unlink_row(self, order: int) -> Signature:
        """`(map, row)`: take a row out of an order, before it leaves its chain."""
        return self.function(f"unlink{order}", I64, result=None)


def address(body: Body, shape: RowLayout, map_: Expr, row: Expr) -> Expr:
    """Write the reading of where a row stands; it moves when any row is put."""
    return body.load(PTR, map_, ROWS, "rows").at(row * shape.row_size)


def tag_of(body: Body, words: Sequence[Expr]) -> Local:
    """Write the hash of some words: 32 bits."""
    mixed = body.let(words[0] * FIRST_FACTOR, "mixed")
    for word in words[1:]:
        body.set(mixed, ((mixed ^ (mixed >> 32)) + word) * FIRST_FACTOR)
    return body.let(((mixed ^ (mixed >> 32)) * SECOND_FACTOR) >> 32, "tag")
