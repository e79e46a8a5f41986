"""Maps from words to words: rows side by side, found through slot tables.

Where a row and a record have what is in `cumulus.engine.native.store.row_layout`. Rows have numbers from 1 and keep
them until they are removed; then a new row takes the place (the newest free one first). A row whose values are all 0 is
none: whoever makes the last value 0 must remove it, and a new row's values are 0 until somebody adds. So walking over
all rows finds out which are there without another mark.

An index is on some of the key words. The rows that agree in them are a chain through the rows themselves, in no
particular order; a slot table leads to the first of each chain. What is in order is in
`cumulus.engine.native.store.ordered_index`. An index that sleeps has no slot table, and its links mean nothing, until
it is asked for.

Each function is written for a `RowLayout`, and knows nothing of types: what the words mean is the caller's business,
who must see to it that equal keys are equal words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial, reduce
from operator import and_, or_

from cumulus.engine.native.kernel.body import Body, WriteStatements, implement
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, U32, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.kernel.memory import MEMSET, grow_block, release_block
from cumulus.engine.native.store import hash_tables, ordered_index
from cumulus.engine.native.store import row_layout as layout
from cumulus.engine.native.store.hash_tables import ROW, entrance, slot
from cumulus.engine.native.store.row_layout import RowLayout, address, tag_of

MOST_ROWS = (1 << 31) - 1
_FEWEST = 16


@cache
def map_functions(shape: RowLayout) -> tuple[Function, ...]:
    """Return the functions of a shape."""
    keys = [f"k{word}" for word in range(shape.keys)]
    writers: list[tuple[Signature, list[str], WriteStatements]] = [
        (shape.new, ["memory", "map"], _new),
        (shape.free, ["map"], _free),
        (shape.clear, ["map"], _clear),
        (shape.find, ["map", *keys], _find if keys else _find_single),
    ]
    if keys:
        writers.append((_create(shape), ["map", "tag", "first", *keys], _make_row))
    writers += [
        (shape.put, ["map", *keys], _put if keys else _put_single),
        (shape.remove, ["map", "row"], _remove if keys else _remove_single),
        (shape.take_rows, ["map", "rows", "size", "count"], _adopt),
    ]
    for index, words in enumerate(shape.indexes):
        writers.append((shape.first(index), ["map", *(keys[word] for word in words)], partial(_first, index)))
        writers.append((_link(shape, index), ["map", "row"], partial(_write_link, index)))
        writers.append((_unlink(shape, index), ["map", "row"], partial(_write_unlink, index)))
    for index in shape.sleeping:
        writers.append((shape.wake(index), ["map"], partial(_wake, index)))
    found = [implement(signature, names, partial(write, shape), inline=False) for signature, names, write in writers]
    return (*found, *ordered_index.order_functions(shape))


def _create(shape: RowLayout) -> Signature:
    """Return the function `(map, hash, first row, key words…)` that makes a row, as `put` says.

    The hash leads to the first slot table; where that is the one of an index, the first row is that of the chain.
    """
    return shape.function("create", I64, I64, *[I64] * shape.keys)


def _row_keys(body: Body, place: Expr, words: Sequence[int]) -> list[Local]:
    return [body.load(I64, place, 8 * word, f"key{word}") for word in words]


def _new(shape: RowLayout, body: Body, memory: Local, map_: Local) -> None:
    body.store(PTR, map_, layout.MEMORY, memory)
    capacity = _FEWEST if shape.keys else 2
    rows = body.call(grow_block, memory, NOWHERE, 0, capacity * shape.row_size, hint="rows")
    body.leave_if(rows.eq(NOWHERE), 0, likely=False)
    body.call(MEMSET, rows, 0, capacity * shape.row_size)
    body.store(PTR, map_, layout.ROWS, rows)
    body.store(I64, map_, layout.CAPACITY, capacity)
    if not shape.keys:
        body.store(I64, map_, layout.LAST, 1)
    asleep = {shape.table(index) for index in shape.sleeping}
    for table in shape.tables:
        if table not in asleep:
            body.leave_if(body.call(hash_tables.new_table, memory, map_.at(table)).eq(0), 0, likely=False)
    body.leave(1)


def _free(shape: RowLayout, body: Body, map_: Local) -> None:
    memory = body.load(PTR, map_, layout.MEMORY, "memory")
    body.run(
        release_block, memory, body.load(PTR, map_, layout.ROWS), body.load(I64, map_, layout.CAPACITY) * shape.row_size
    )
    for table in shape.tables:
        body.run(hash_tables.free_table, memory, map_.at(table))


def _clear(shape: RowLayout, body: Body, map_: Local) -> None:
    body.leave_if(body.load(I64, map_, layout.LIVE).eq(0), 1)
    if not shape.keys:
        place = body.let(address(body, shape, map_, i64(1)), "place")
        for word in range(shape.values):
            body.store(I64, place, shape.value(word), 0)
    else:
        body.store(I64, map_, layout.LAST, 0)
        body.store(I64, map_, layout.FREE, 0)
        for table in shape.tables:
            body.leave_if(
                body.call(hash_tables.clear_table, body.load(PTR, map_, layout.MEMORY), map_.at(table)).eq(0),
                0,
                likely=False,
            )
        for number, order in enumerate(shape.orders):
            if not order.group:
                for offset in (layout.ROOT, layout.HELD, layout.IS_PARTIAL):
                    body.store(I64, map_, shape.tree(number) + offset, 0)
    body.store(I64, map_, layout.LIVE, 0)
    body.leave(1)


def _find_single(_: RowLayout, body: Body, map_: Local) -> None:
    """Write the look-up in a map without keys: its only row has the number 1."""
    body.leave(body.load(I64, map_, layout.LIVE))


def _put_single(_: RowLayout, body: Body, map_: Local) -> None:
    live = body.load(I64, map_, layout.LIVE, "live")
    body.store(I64, map_, layout.LIVE, 1)
    body.leave(select(live.eq(0), i64(layout.CREATED + 1), i64(1)))


def _remove_single(shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    place = body.let(address(body, shape, map_, row), "place")
    for word in range(shape.values):  # rests of floats
        body.store(I64, place, shape.value(word), 0)
    body.store(I64, map_, layout.LIVE, 0)


def _adopt(shape: RowLayout, body: Body, map_: Local, rows: Local, size: Local, count: Local) -> None:
    with body.counting(0, count) as number:
        place = body.let(rows.at(number * size), "place")
        values = [body.load(I64, place, shape.value(word), "value") for word in range(shape.values)]
        some = values[0]
        for value in values[1:]:
            some = body.let(some | value, "some")
        with body.when(some.ne(0), likely=True):
            row = body.call(shape.put, map_, *_row_keys(body, place, range(shape.keys)), hint="row")
            body.leave_if(row.eq(0), 0, likely=False)
            at = body.let(address(body, shape, map_, row & ROW), "at")
            ordered_index.tell_before(body, shape, map_, row & ROW)
            for word, value in enumerate(values):
                body.store(I64, at, shape.value(word), value)
            ordered_index.tell_changed(body, shape, map_, row & ROW)
    body.leave(1)


def _search(body: Body, shape: RowLayout, table: int, words: Sequence[int], keys: Sequence[Expr], tag: Expr) -> Local:
    """Write the probing for a row whose key words equal `keys`; return its number, 0 if there is none."""
    map_ = body.function.parameters[0]
    found = body.let(i64(0), "found")
    base, at, mask = entrance(body, map_.at(table), tag)
    rows = body.load(PTR, map_, layout.ROWS, "rows")
    with body.loop():
        word = slot(body, base, at)
        body.stop_if(word.eq(0))
        with body.when((word >> 32).eq(tag)):
            row = body.let(word & ROW, "row")
            place = body.let(rows.at(row * shape.row_size), "place")
            same = reduce(and_, map(Local.eq, _row_keys(body, place, words), keys))
            with body.when(same, likely=True):
                body.set(found, row)
                body.stop()
        body.set(at, (at + 1) & mask)
    return found


def _hashed(body: Body, shape: RowLayout, keys: Sequence[Expr]) -> tuple[list[Expr], Local]:
    """Write the hash that leads to the first slot table; return what is hashed, too."""
    part = [keys[word] for word in shape.hashed]
    return part, tag_of(body, part)


def _find(shape: RowLayout, body: Body, map_: Local, *keys: Local) -> None:
    part, tag = _hashed(body, shape, keys)
    found = _search(body, shape, layout.PRIMARY, shape.hashed, part, tag)
    if shape.is_by_index:
        _follow(body, shape, map_, found, keys)
        body.leave(0)
    body.leave(found)


def _follow(body: Body, shape: RowLayout, map_: Expr, first: Expr, keys: Sequence[Expr]) -> None:
    """Write the walk along a chain of the first index to the row with a whole key, which is returned if it is there."""
    others = [word for word in range(shape.keys) if word not in shape.hashed]
    row = body.let(first, "row")
    with body.loop():
        body.stop_if(row.eq(0))
        place = body.let(address(body, shape, map_, row), "place")
        body.leave_if(reduce(and_, map(Local.eq, _row_keys(body, place, others), [keys[word] for word in others])), row)
        body.set(row, body.load(U32, place, shape.link(0)))


def _first(index: int, shape: RowLayout, body: Body, _: Local, *keys: Local) -> None:
    words = shape.indexes[index]
    body.leave(_search(body, shape, shape.table(index), words, keys, tag_of(body, keys)))


def _put(shape: RowLayout, body: Body, map_: Local, *keys: Local) -> None:
    part, tag = _hashed(body, shape, keys)
    found = _search(body, shape, layout.PRIMARY, shape.hashed, part, tag)
    if shape.is_by_index:
        _follow(body, shape, map_, found, keys)
    else:
        body.leave_if(found.ne(0), found)
    body.leave(body.call(_create(shape), map_, tag, found, *keys))


def _make_row(shape: RowLayout, body: Body, map_: Local, tag: Local, first: Local, *keys: Local) -> None:
    """Make a row of a key that is not there; 0 if there is no memory, and then nothing has changed."""
    memory = body.load(PTR, map_, layout.MEMORY, "memory")
    row = body.load(I64, map_, layout.FREE, "row")
    is_new = body.let(row.eq(0), "is_new")
    with body.when(is_new):
        body.set(row, body.load(I64, map_, layout.LAST) + 1)
        _make_room(body, shape, row)
    if not shape.is_by_index:
        inserted = body.call(hash_tables.insert_slot, memory, map_.at(layout.PRIMARY), tag, row, hint="inserted")
        body.leave_if(inserted.eq(0), 0, likely=False)
    place = body.let(address(body, shape, map_, row), "place")
    free = body.load(I64, place, 0, "free")
    for word, key in enumerate(keys):
        body.store(I64, place, 8 * word, key)
    for word in range(shape.values):
        body.store(I64, place, shape.value(word), 0)
    done: list[int] = []

    def give_up() -> None:
        for earlier in reversed(done):
            body.run(_unlink(shape, earlier), map_, row)
        if not shape.is_by_index:
            body.run(hash_tables.remove_slot, map_.at(layout.PRIMARY), tag, row)
        body.store(I64, place, 0, free)
        body.leave(0)

    for index in range(len(shape.indexes)):
        if shape.is_by_index and index == 0:
            linked = _link_first(body, shape, map_, row, index, tag, first)
        else:
            linked = body.call(_link(shape, index), map_, row, hint="linked")
        with body.when(linked.eq(0), likely=False):
            give_up()
        done.append(index)
    ordered_index.tell_created(body, shape, map_, row, place)
    with body.when(is_new):
        body.store(I64, map_, layout.LAST, row)
    with body.otherwise():
        body.store(I64, map_, layout.FREE, free)
    body.store(I64, map_, layout.LIVE, body.load(I64, map_, layout.LIVE) + 1)
    body.leave(row + layout.CREATED)


def _make_room(body: Body, shape: RowLayout, row: Expr) -> None:
    """Write the making of room for a new row; 0 is returned if there is none."""
    map_ = body.function.parameters[0]
    memory = body.load(PTR, map_, layout.MEMORY, "memory")
    capacity = body.load(I64, map_, layout.CAPACITY, "capacity")
    with body.when(row >= capacity, likely=False):
        body.leave_if(row > MOST_ROWS, 0, likely=False)
        after = body.let(capacity + (capacity >> 1), "after")
        size = shape.row_size
        rows = body.load(PTR, map_, layout.ROWS, "rows")
        moved = body.call(grow_block, memory, rows, capacity * size, after * size, hint="moved")
        with body.when(moved.eq(NOWHERE), likely=False):
            body.set(after, capacity + (capacity >> 4))  # near the end of the budget, in small steps
            body.set(moved, body.call(grow_block, memory, rows, capacity * size, after * size))
        body.leave_if(moved.eq(NOWHERE), 0, likely=False)
        body.store(PTR, map_, layout.ROWS, moved)
        body.store(I64, map_, layout.CAPACITY, after)


def _link(shape: RowLayout, index: int) -> Signature:
    """Return the function `(map, row)` → 1, or 0 if there is no memory, that puts a row into its chain of an index."""
    return shape.function(f"chain{index}", I64)


def _unlink(shape: RowLayout, index: int) -> Signature:
    """Return the function `(map, row)` that takes a row out of its chain."""
    return shape.function(f"unchain{index}", I64, result=None)


def _is_asleep(body: Body, shape: RowLayout, map_: Expr, index: int) -> Expr:
    return body.load(I64, map_, shape.table(index) + hash_tables.CAPACITY, "capacity").eq(0)


def _write_link(index: int, shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    if index in shape.sleeping:
        body.leave_if(_is_asleep(body, shape, map_, index), 1)
    words = shape.indexes[index]
    part = _row_keys(body, body.let(address(body, shape, map_, row), "place"), words)
    tag = tag_of(body, part)
    first = _search(body, shape, shape.table(index), words, part, tag)
    body.leave(_link_first(body, shape, map_, row, index, tag, first))


def _link_first(body: Body, shape: RowLayout, map_: Expr, row: Expr, index: int, tag: Expr, first: Expr) -> Local:
    """Write the putting of a row before the first one of its chain; return 1, or 0 if there is no memory."""
    link, table = shape.link(index), map_.at(shape.table(index))
    rows = body.load(PTR, map_, layout.ROWS, "rows")
    place = body.let(rows.at(row * shape.row_size), "at")
    linked = body.let(i64(1), "linked")
    body.store(U32, place, link, first)
    body.store(U32, place, link + 4, 0)
    with body.when(first.ne(0)):
        body.store(U32, rows.at(first * shape.row_size), link + 4, row)
        body.run(hash_tables.rename_slot, table, tag, first, row)
    with body.otherwise():
        memory = body.load(PTR, map_, layout.MEMORY, "memory")
        body.set(linked, body.call(hash_tables.insert_slot, memory, table, tag, row))
    return linked


def _write_unlink(index: int, shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    if index in shape.sleeping:
        body.leave_if(_is_asleep(body, shape, map_, index))
    link, table = shape.link(index), map_.at(shape.table(index))
    rows = body.load(PTR, map_, layout.ROWS, "rows")
    place = body.let(rows.at(row * shape.row_size), "place")
    after, before = body.load(U32, place, link, "after"), body.load(U32, place, link + 4, "before")
    with body.when(after.ne(0)):
        body.store(U32, rows.at(after * shape.row_size), link + 4, before)
    with body.when(before.ne(0)):
        body.store(U32, rows.at(before * shape.row_size), link, after)
    with body.otherwise():
        tag = tag_of(body, _row_keys(body, place, shape.indexes[index]))
        with body.when(after.ne(0)):
            body.run(hash_tables.rename_slot, table, tag, row, after)
        with body.otherwise():
            body.run(hash_tables.remove_slot, table, tag, row)
    body.leave()


def _wake(index: int, shape: RowLayout, body: Body, map_: Local) -> None:
    """Make an index that sleeps, of all rows that have a value."""
    body.leave_if(~_is_asleep(body, shape, map_, index), 1, likely=True)
    memory, table = body.load(PTR, map_, layout.MEMORY, "memory"), map_.at(shape.table(index))
    body.leave_if(body.call(hash_tables.new_table, memory, table).eq(0), 0, likely=False)
    with body.counting(1, body.load(I64, map_, layout.LAST, "last") + 1, "row") as row:
        place = body.let(address(body, shape, map_, row), "place")
        values = [body.load(I64, place, shape.value(word), "value") for word in range(shape.values)]
        with (
            body.when(reduce(or_, values).ne(0), likely=True),
            body.when(body.call(_link(shape, index), map_, row).eq(0), likely=False),
        ):
            body.run(hash_tables.free_table, memory, table)
            body.leave(0)
    body.leave(1)


def _remove(shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    place = body.let(address(body, shape, map_, row), "place")
    ordered_index.tell_removed(body, shape, map_, row, place)
    for index in range(len(shape.indexes)):
        body.run(_unlink(shape, index), map_, row)
    if not shape.is_by_index:
        tag = tag_of(body, _row_keys(body, place, range(shape.keys)))
        body.run(hash_tables.remove_slot, map_.at(layout.PRIMARY), tag, row)
    for word in range(shape.values):
        body.store(I64, place, shape.value(word), 0)
    live = body.let(body.load(I64, map_, layout.LIVE) - 1, "live")
    body.store(I64, map_, layout.LIVE, live)
    body.store(I64, place, 0, body.load(I64, map_, layout.FREE))
    body.store(I64, map_, layout.FREE, row)
