"""The map library beside dicts: growth, removal, collisions, chains, refused memory."""

from __future__ import annotations

import ctypes
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cumulus.engine.native.kernel import memory
from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.kernel.llvm import to_llvm
from cumulus.engine.native.kernel.loaded_code import LEVELS, MachineCode, system_functions, to_object
from cumulus.engine.native.store import row_layout
from cumulus.engine.native.store.hash_tables import TABLE_FUNCTIONS
from cumulus.engine.native.store.maps import map_functions
from cumulus.engine.native.store.row_layout import FEW, LEFT, MOST_CHAINED, RIGHT, OrderedIndex, RowLayout
from cumulus.engine.native.values.inspection import MapView
from support.tiers import sampled

SHAPES = [
    RowLayout(0, 2),
    RowLayout(1, 1),
    RowLayout(2, 1, ((0,), (1,))),
    RowLayout(3, 2, ((0, 2),)),
    RowLayout(1, 1, (), (OrderedIndex((), ((0, "s"),)),)),
    RowLayout(
        2,
        3,
        ((1,), (0,)),
        (OrderedIndex((0,), ((1, "s"),), ((0, "i"), (1, "w"))), OrderedIndex((), ((1, "s"), (0, "s")))),
    ),
    RowLayout(
        1,
        2,
        (),
        (
            OrderedIndex((), ((1, "s"), (0, "s")), most=40),
            OrderedIndex((), ((2, "s"), (1, "u"), (0, "s")), most=5, best=LEFT),
        ),
    ),
    RowLayout(
        2,
        1,
        ((0,),),
        (
            OrderedIndex((), ((0, "s"), (1, "s")), most=7),
            OrderedIndex((), ((1, "s"), (0, "s")), most=30, best=LEFT),
            OrderedIndex((), ((2, "s"), (0, "s"), (1, "s")), most=9),
        ),
    ),
    RowLayout(
        3, 1, ((0, 1), (1,)), (OrderedIndex((1,), ((2, "s"), (0, "u"))), OrderedIndex((0, 1), ((2, "f"),), ((0, "i"),)))
    ),
    RowLayout(2, 2, ((1,),), sleeping=(0,)),
    RowLayout(3, 1, ((0, 2), (1,)), is_by_index=True),
    RowLayout(3, 1, ((1,), (0,), (2,)), (OrderedIndex((0,), ((2, "s"), (1, "s"))),), is_by_index=True, sleeping=(2,)),
]
I64, PTR = ctypes.c_int64, ctypes.c_void_p


def code_for(shapes: list[RowLayout], level: int) -> MachineCode:
    functions = [*memory.MEMORY_FUNCTIONS, *TABLE_FUNCTIONS]
    for shape in shapes:
        functions += map_functions(shape)
    return MachineCode([to_object(to_llvm(Module(functions)), level)])


@pytest.fixture(scope="module", params=LEVELS)
def code(request: pytest.FixtureRequest) -> MachineCode:
    return code_for(SHAPES, request.param)


class NativeMap:
    """A map of words as a test uses it."""

    def __init__(self, code: MachineCode, shape: RowLayout, budget: int = 1 << 40, system: int = 0) -> None:
        def function(signature: Any, *parameters: Any, result: Any = I64) -> Any:
            return code.function(signature.name, result, *parameters)

        keys = [I64] * shape.keys
        self.shape = shape
        self.memory = (I64 * 4)(0, budget, 0, system)
        self.record = ctypes.create_string_buffer(shape.record_size)
        self.at = ctypes.addressof(self.record)
        self.view = MapView(shape, self.at)
        self._find, self._put = function(shape.find, PTR, *keys), function(shape.put, PTR, *keys)
        self._remove = function(shape.remove, PTR, I64, result=None)
        self._clear, self._free = function(shape.clear, PTR), function(shape.free, PTR, result=None)
        self._first = [
            function(shape.first(index), PTR, *[I64] * len(words)) for index, words in enumerate(shape.indexes)
        ]
        self.wake = {index: function(shape.wake(index), PTR) for index in shape.sleeping}
        self._changed = function(shape.changed, PTR, I64, result=None) if shape.is_told else None
        self._leave = function(shape.leave, PTR, I64, result=None) if shape.has_moving else None
        orders = range(len(shape.orders))
        self._edge = [function(shape.edge(each), PTR, I64, I64) for each in orders]
        self._neighbour = [function(shape.neighbour(each), PTR, I64, I64, I64) for each in orders]
        self._plant = {
            each: function(shape.plant(each), PTR, I64, I64, result=None) for each in orders if shape.orders[each].group
        }
        self.refill = {
            each: function(shape.refill(each), PTR, result=None) for each in orders if shape.is_limited(each)
        }
        assert function(shape.new, PTR, PTR)(ctypes.addressof(self.memory), self.at)

    def entries(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Return the value words of each key's words; no key has two rows."""
        rows = self.view.matrix().tolist()
        found = {tuple(row[: self.shape.keys]): tuple(row[self.shape.keys :]) for row in rows}
        assert len(found) == len(rows)
        return found

    def _place(self, row: int) -> int:
        rows = I64.from_address(self.at + row_layout.ROWS).value
        return rows + row * self.shape.row_size

    def add(self, key: tuple[int, ...], values: tuple[int, ...]) -> bool:
        """Add to the values of a key, as triggers do; False if memory was refused."""
        row = self._put(self.at, *key)
        if not row:
            return False
        place = self._place(row & 0xFFFFFFFF)
        if self._leave:
            self._leave(self.at, row & 0xFFFFFFFF)
        new = []
        for word, value in enumerate(values):
            cell = I64.from_address(place + self.shape.value(word))
            assert not row & row_layout.CREATED or cell.value == 0
            cell.value += value
            new.append(cell.value)
        if not any(new):
            self._remove(self.at, row & 0xFFFFFFFF)
        elif self._changed:
            self._changed(self.at, row & 0xFFFFFFFF)
        return True

    def get(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
        row = self._find(self.at, *key)
        if not row:
            return None
        words = (I64 * self.shape.values).from_address(self._place(row) + self.shape.value(0))
        return tuple(words)

    def chain(self, index: int, part: tuple[int, ...]) -> set[tuple[int, ...]]:
        found: set[tuple[int, ...]] = set()
        assert index not in self.wake or self.wake[index](self.at)
        row = self._first[index](self.at, *part)
        while row:
            key = tuple((I64 * self.shape.keys).from_address(self._place(row)))
            assert key not in found
            found.add(key)
            row = ctypes.c_uint32.from_address(self._place(row) + self.shape.link(index)).value
        return found

    def _group(self, order: int, group: tuple[int, ...]) -> int:
        chain = self.shape.chain(order)
        return 0 if chain is None else self._first[chain](self.at, *group)

    def root(self, order: int, group: tuple[int, ...]) -> int:
        """Return the root of a group, 0 if it is no tree."""
        return self.view.root(order, self._group(order, group))

    def plant(self, order: int, group: tuple[int, ...], most: int) -> None:
        """Make a group of more rows a tree, as who reads it does."""
        if not self.root(order, group):
            self._plant[order](self.at, self._group(order, group), most)

    def in_order(self, order: int, group: tuple[int, ...], side: int) -> list[tuple[int, ...]]:
        """Return the keys of a group, beginning at one end."""
        start = self.root(order, group) or self._group(order, group)
        found = []
        row = start and self._edge[order](self.at, start, side)
        while row:
            found.append(tuple((I64 * self.shape.keys).from_address(self._place(row))))
            row = self._neighbour[order](self.at, start, row, RIGHT - side)
        return found

    def clear(self) -> None:
        assert self._clear(self.at)

    def free(self) -> int:
        self._free(self.at)
        return self.memory[0]


@pytest.mark.parametrize("shape", sampled(SHAPES, of=2), ids=lambda shape: shape.name)
@pytest.mark.parametrize("seed", sampled(range(3), of=3))
def test_a_map_is_a_dict(code: MachineCode, shape: RowLayout, seed: int) -> None:
    """Thousands of additions and removals: few keys, many keys, keys that differ in few bits."""
    choose = random.Random(seed)
    native = NativeMap(code, shape)
    model: dict[tuple[int, ...], tuple[int, ...]] = {}
    spread = choose.choice([3, 50, 2000])
    stride = choose.choice([1, 1 << 32, 1 << 50, -7])

    def a_key() -> tuple[int, ...]:
        return tuple(choose.randrange(spread) * stride for _ in range(shape.keys))

    for step in range(2000):
        if model and choose.random() < (0.3 if step % 1000 < 500 else 0.7):
            key = choose.choice(list(model)) if len(model) < 50 or choose.random() < 0.1 else next(iter(model))
            values = tuple(-value for value in model[key])
        else:
            key, values = a_key(), tuple(choose.randrange(-2, 3) for _ in range(shape.values))
        assert native.add(key, values)
        added = tuple(one + other for one, other in zip(model.pop(key, (0,) * shape.values), values, strict=True))
        if any(added):
            model[key] = added
        wanted = a_key()
        assert native.get(wanted) == model.get(wanted)
        if step % 500 == 499:
            assert native.entries() == model
            assert native.view.problems() == []
            for index, words in enumerate(shape.indexes):
                chains: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
                for each in model:
                    chains[tuple(each[word] for word in words)].add(each)
                for part, members in chains.items():
                    assert native.chain(index, part) == members
                assert native.chain(index, (5 + spread * 7,) * len(words)) == set()
            for number, order in enumerate(shape.orders):
                part = tuple(a_key()[word] for word in order.group)
                members = [key for key in model if tuple(key[word] for word in order.group) == part]
                words = {key: [word % (1 << 64) for word in (*key, *model[key])] for key in members}
                for at, how in reversed(order.words):
                    turned = 0 if how == "u" else 1 << 63
                    members.sort(key=lambda key, at=at, turned=turned, words=words: words[key][at] ^ turned)
                if order.most:
                    native.refill[number](native.at)
                    assert native.view.problems() == []
                    best = members[::-1] if order.best == RIGHT else members
                    assert native.in_order(number, (), order.best) == best[: order.most]
                elif all(kind == "s" for _, kind in order.words):
                    assert native.in_order(number, part, LEFT) == members
                    assert native.in_order(number, part, RIGHT) == members[::-1]
        if choose.random() < 0.0005:
            native.clear()
            model.clear()
    assert native.free() == 0


@pytest.mark.parametrize("reads", [0, 0.02, 0.5], ids=["unread", "seldom read", "often read"])
@pytest.mark.parametrize("sums", [(), ((0, "i"),)], ids=["no sums", "sums"])
def test_a_group_is_a_chain_then_a_tree_then_nothing(reads: float, sums: tuple[tuple[int, str], ...]) -> None:
    """Growing, shrinking at both ends of the chain and in its middle, emptying, growing again; looked at each time."""
    shape = RowLayout(2, 1, ((0,),), (OrderedIndex((0,), ((1, "s"),), sums),))
    code = code_for([shape], 0)  # it goes when nobody names it
    native = NativeMap(code, shape)
    choose = random.Random(len(sums))
    there: list[int] = []
    rises, seen = True, set()
    for _ in range(700):
        rises = not there or (rises and len(there) < 2 * MOST_CHAINED)
        if choose.random() < (0.9 if rises else 0.2):
            there.append(choose.randrange(-(10**6), 10**6))
            assert native.add((5, there[-1]), (1,))
        elif there:
            at = choose.choice([0, -1, choose.randrange(len(there))])
            assert native.add((5, there.pop(at)), (-1,))
        if there and choose.random() < reads:
            native.plant(0, (5,), FEW)
            assert native.root(0, (5,)) or len(there) <= FEW
        assert native.view.problems() == []
        assert native.in_order(0, (5,), LEFT) == [(5, x) for x in sorted(there)]
        assert native.in_order(0, (5,), RIGHT) == [(5, x) for x in sorted(there, reverse=True)]
        assert native.root(0, (5,)) or len(there) <= MOST_CHAINED
        if there:
            seen.add(bool(native.root(0, (5,))))
    assert seen == {False, True}


def test_a_chain_is_counted_before_it_becomes_a_tree() -> None:
    """Many rows may come and go: what counts is how many are there."""
    shape = RowLayout(2, 1, ((0,),), (OrderedIndex((0,), ((1, "s"),)),))
    code = code_for([shape], 0)
    native = NativeMap(code, shape)
    for number in range(5 * MOST_CHAINED):
        assert native.add((5, number), (1,))
        if number >= FEW:
            assert native.add((5, number - FEW), (-1,))
        native.plant(0, (5,), FEW)
        assert native.view.problems() == []
        assert not native.root(0, (5,))


def test_a_table_splits_many_times(code: MachineCode) -> None:
    shape = RowLayout(2, 1, ((0,), (1,)))
    native = NativeMap(code, shape, system=system_functions())
    for number in range(30_000):
        assert native.add((number, number % 97), (1,))
    assert native.view.problems() == []
    assert native.get((29_999, 29_999 % 97)) == (1,)
    assert len(native.chain(1, (96,))) == len(range(96, 30_000, 97))
    for number in range(0, 30_000, 3):
        assert native.add((number, number % 97), (-1,))
    assert native.view.problems() == []
    assert len(native.entries()) == 20_000
    native.clear()
    assert native.view.problems() == []
    assert native.add((1, 2), (3,))
    assert native.entries() == {(1, 2): (3,)}
    assert native.free() == 0


@pytest.mark.skipif(not system_functions(), reason="large blocks are mapped on Linux only")
def test_blocks_keep_their_bytes_when_they_grow_and_give_all_back(code: MachineCode) -> None:
    record = (I64 * 4)(0, 1 << 40, 0, system_functions())
    at = ctypes.addressof(record)
    grow = code.function(memory.grow_block.name, PTR, PTR, PTR, I64, I64)
    release = code.function(memory.release_block.name, None, PTR, PTR, I64)
    mappings = len(Path("/proc/self/maps").read_text().splitlines())
    sizes = (100, 50_000, memory.LARGE - 1, memory.LARGE, 5_000_001, 77_000_003, 6_000_000, 9_000_000, 4_000)
    for _ in range(20):
        block, before = None, 0
        for number, size in enumerate(sizes):
            block = grow(at, block, before, size)
            assert block
            seen = (ctypes.c_char * size).from_address(block)
            for place in {0, min(before, size) // 2, min(before, size) - 1} if before else ():
                assert seen[place] == bytes([number])
            ctypes.memset(block, number + 1, size)
            assert record[0] == size
            before = size
        release(at, block, before)
        assert record[0] == 0
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= mappings + 3


def test_an_index_sleeps_until_somebody_asks_for_it(code: MachineCode) -> None:
    shape = SHAPES[-1]
    native = NativeMap(code, shape)
    for number in range(3000):
        assert native.add((number % 7, number, number % 100), (1,))
    asleep = native.view.bytes
    assert native.add((1, 1, 1), (-1,))
    assert native.view.problems() == []
    assert len(native.chain(2, (5,))) == 30
    assert native.view.bytes > asleep
    assert native.add((4, 11, 11), (-1,))
    assert native.add((4, 5000, 5), (1,))
    assert len(native.chain(2, (5,))) == 31
    assert len(native.chain(2, (11,))) == 29
    assert native.view.problems() == []
    native.clear()
    assert native.chain(2, (5,)) == set()
    assert native.free() == 0


def test_an_index_that_does_not_fit_goes_on_sleeping(code: MachineCode) -> None:
    shape = SHAPES[-1]
    native = NativeMap(code, shape)
    for number in range(9000):
        assert native.add((number % 7, number, number), (1,))
    native.memory[1] = native.memory[0] + 50_000
    used, entries = native.memory[0], native.entries()
    assert not native.wake[2](native.at)
    assert native.memory[0] == used
    assert native.view.problems() == []
    assert native.entries() == entries
    native.memory[1] = 1 << 40
    assert native.chain(2, (77,)) == {(0, 77, 77)}
    assert native.view.problems() == []


def test_rows_that_agree_where_they_are_found_are_told_apart(code: MachineCode) -> None:
    """A key that nobody checks may stand more than once."""
    native = NativeMap(code, SHAPES[-2])
    rows = [(1, number, 2) for number in range(20)]
    for row in rows:
        assert native.add(row, (1,))
    assert native.chain(0, (1, 2)) == set(rows)
    for row in rows[::2]:
        assert native.add(row, (-1,))
    assert native.view.problems() == []
    assert native.chain(0, (1, 2)) == set(rows[1::2])
    assert [native.get(row) for row in rows[:3]] == [None, (1,), None]


@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[5]], ids=lambda shape: shape.name)
def test_what_there_is_no_memory_for_changes_nothing(code: MachineCode, shape: RowLayout) -> None:
    native = NativeMap(code, shape, budget=20_000)
    model = {}
    one, less = ((number,) + (0,) * (shape.values - 1) for number in (1, -1))
    for number in range(10_000):
        if native.add((number, number % 7), one):
            model[number, number % 7] = one
    assert 50 < len(model) < 1000
    assert native.memory[2] > 0
    assert native.view.problems() == []
    assert native.entries() == model
    for key in list(model):
        assert native.add(key, less)
    assert native.view.problems() == []
    assert native.free() == 0
