"""Rows in order: balanced trees through the rows of a map, with sums.

An order divides the rows of a map into groups by some key words, and sorts those of a group by the others. The rows of
a group are the nodes of an AVL tree, so a path has at most 45 rows; a slot table leads from the group to the root. A
node knows its height, the sums of some value columns over the rows below it, and whether one of them is negative. So a
row is found, put, removed and changed in O(log n) for a group of n rows, and so are the ends of a group and the sums
over an interval of it (`cumulus.engine.native.ranges`).

An order that moves holds only the best rows, for who reads the first ones of a view. A row leaves it before its values
change, and comes back if it is not worse than the worst; when there are too many, the worst goes. So most changes cost
one comparison. When too few are left, whoever reads asks for a refill, which looks at all rows.

Row 0 stands for no child: its height and its sums are 0. Sums are never subtracted from, always added up anew, so that
nothing is left of a large float that has gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cumulus.engine.native.body import Body, define
from cumulus.engine.native.kernel import F64, I64, I128, PTR, U32, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.shapes import (
    FLAGS,
    HEIGHT,
    HELD,
    IS_PARTIAL,
    LAST,
    LEFT,
    MEMORY,
    RIGHT,
    ROOT,
    SPOILED,
    Shape,
    address,
    tag_of,
)
from cumulus.engine.native.tables import TABLE_INSERT, TABLE_REMOVE, TABLE_RENAME

_LARGEST = (1 << 63) - 1


def order_functions(shape: Shape) -> Iterator[Function]:
    """Yield the functions of all orders of a shape."""
    for number in range(len(shape.orders)):
        yield from _Writer(shape, number).functions()
    if shape.is_told:
        yield _changed(shape)
    if shape.has_moving:
        yield _leave(shape)


def _changed(shape: Shape) -> Function:
    with define(shape.changed.name, [("map", PTR), ("row", I64)], inline=False) as body:
        for number, order in enumerate(shape.orders):
            if shape.moves(number):
                body.run(_come(shape, number), *body.function.parameters)
            elif order.sums:
                body.run(_renew(shape, number), *body.function.parameters)
    return body.function


def _leave(shape: Shape) -> Function:
    with define(shape.leave.name, [("map", PTR), ("row", I64)], inline=False) as body:
        map_, row = body.function.parameters
        place = body.let(address(body, shape, map_, row), "place")
        for number in filter(shape.moves, range(len(shape.orders))):
            with body.when(body.load(U32, place, shape.node(number) + HEIGHT).ne(0)):
                body.run(_go(shape, number), map_, row)
    return body.function


def tell_before(body: Body, shape: Shape, map_: Expr, row: Expr) -> None:
    """Write that the values of a row will change."""
    if shape.has_moving:
        body.run(shape.leave, map_, row)


def tell_changed(body: Body, shape: Shape, map_: Expr, row: Expr) -> None:
    """Write that the values of a row have changed."""
    if shape.is_told:
        body.run(shape.changed, map_, row)


def in_order(mine: Sequence[Expr], theirs: Sequence[Expr], words: Sequence[tuple[int, str]]) -> Expr:
    """Write whether some words come before others."""
    found: Expr | None = None
    for one, other, (_, kind) in reversed(list(zip(mine, theirs, words, strict=True))):
        less = one.below(other) if kind == "u" else _sortable(one, kind) < _sortable(other, kind)
        found = less if found is None else less | (one.eq(other) & found)
    assert found is not None, "an order has words"
    return found


def _sortable(word: Expr, kind: str) -> Expr:
    """Return the bits of a float as an integer of the same order; any other word as it is."""
    return word ^ ((i64(0) - (word >> 63)) & _LARGEST) if kind in ("f", "c") else word


class _Writer:
    """Writes the functions of one order."""

    def __init__(self, shape: Shape, number: int) -> None:
        self._shape = shape
        self._number = number
        self._order = shape.orders[number]
        self._node = shape.node(number)
        self._gathering = shape.function(f"gather{number}", PTR, I64, result=None)
        self._settling = shape.function(f"settle{number}", PTR, I64)

    def _leaning(self, side: int) -> Signature:
        return self._shape.function(f"lean{self._number}_{side}", PTR, I64)

    def functions(self) -> Iterator[Function]:
        yield self._gather()
        yield self._lean(LEFT)
        yield self._lean(RIGHT)
        yield self._settle()
        yield self._link()
        yield self._unlink()
        if self._order.sums:
            yield self._renew()
        yield self._edge()
        yield self._beside()
        if self._order.most:
            yield self._going()
            yield self._coming()
            yield self._refill()

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _at(self, body: Body, row: Expr) -> Local:
        return body.let(address(body, self._shape, body.function.parameters[0], row), "place")

    def _child(self, body: Body, place: Expr, side: int, hint: str = "child") -> Local:
        return body.load(U32, place, self._node + side, hint)

    def _height(self, body: Body, row: Expr) -> Local:
        return body.load(U32, self._at(body, row), self._node + HEIGHT, "height")

    def _keys(self, body: Body, place: Expr) -> list[Expr]:
        return [
            _own(body, place.at(8 * word), "f").bits() if kind == "c" else body.load(I64, place, 8 * word, "key")
            for word, kind in self._order.words
        ]

    def _root(self, body: Body, place: Expr) -> Local:
        """Write the finding of the root of a row's group."""
        group = [body.load(I64, place, 8 * word, "group") for word in self._order.group]
        return body.call(self._shape.root(self._number), body.function.parameters[0], *group, hint="root")

    def _set_root(self, body: Body, place: Expr, root: Expr, to: Expr) -> None:
        """Write the change of the root of a row's group, which has one."""
        table = body.function.parameters[0].at(self._shape.tree(self._number))
        if self._order.group:
            with body.when(to.ne(root)):
                body.run(TABLE_RENAME, table, self._tag(body, place), root, to)
        else:
            body.store(I64, table, ROOT, to)

    def _tag(self, body: Body, place: Expr) -> Local:
        return tag_of(body, [body.load(I64, place, 8 * word, "group") for word in self._order.group])

    def _push(self, body: Body, depth: Local, row: Expr) -> None:
        body.store(I64, body.function.parameters[0].at(depth << 3), self._shape.path, row)
        body.set(depth, depth + 1)

    def _descend(self, body: Body, place: Expr, root: Expr, row: Expr) -> Local:
        """Write the way from the root to a row, which is put where it belongs if it is not there.

        Return how many rows lead to it; these are the path now.
        """
        keys = self._keys(body, place)
        at, depth = body.let(root, "at"), body.let(i64(0), "depth")
        with body.loop():
            with body.when(at.eq(row)):
                body.stop()
            self._push(body, depth, at)
            here = self._at(body, at)
            before = body.let(in_order(keys, self._keys(body, here), self._order.words), "before")
            side = body.let(here.at(select(before, i64(LEFT), i64(RIGHT))), "side")
            body.set(at, body.load(U32, side, self._node, "following"))
            with body.when(at.eq(0)):
                body.store(U32, side, self._node, row)
                body.stop()
        return depth

    # --- functions --------------------------------------------------------------------------------------------------

    def _gather(self) -> Function:
        """Add up what a row and the trees below it have."""
        with define(self._gathering.name, [("map", PTR), ("row", I64)]) as body:
            place = self._at(body, body.function.parameters[1])
            below = [self._at(body, self._child(body, place, side)) for side in (LEFT, RIGHT)]
            heights = [body.load(U32, each, self._node + HEIGHT, "height") for each in below]
            height = select(heights[0] > heights[1], *heights) + 1
            marks = [body.load(U32, each, self._node + FLAGS, "flags") for each in below]
            flags = body.let(marks[0] | marks[1], "flags")
            for number, (word, kind) in enumerate(self._order.sums):
                at = self._node + self._order.sum(number)
                own = _own(body, place.at(self._shape.value(word)), kind)
                body.set(flags, flags | ((own < (0.0 if kind == "f" else 0)).to(I64) << number))
                total = own
                for each in below:
                    more = body.load(own.type, each, at, "more")
                    if own.type is F64:
                        total = body.let(total + more, "total")
                        continue
                    total, overflow = body.checked("add", total, more, "total")
                    body.set(flags, flags | select(overflow, i64(SPOILED), i64(0)))
                body.store(own.type, place, at, total)
            body.store(I64, place, self._node + HEIGHT, height | (flags << 32))
        return body.function

    def _lean(self, side: int) -> Function:
        """Rotate a tree that is too high on one side; return its new root."""
        other = RIGHT - side
        with define(self._leaning(side).name, [("map", PTR), ("row", I64)], I64) as body:
            map_, row = body.function.parameters
            place = self._at(body, row)
            child = self._child(body, place, side)
            near = self._at(body, child)
            inner, outer = self._child(body, near, other, "inner"), self._child(body, near, side, "outer")
            with body.when(self._height(body, inner) > self._height(body, outer)):
                top = self._at(body, inner)
                body.store(U32, near, self._node + other, self._child(body, top, side))
                body.store(U32, top, self._node + side, child)
                body.run(self._gathering, map_, child)
                body.set(child, inner)
                body.set(near, top)
            body.store(U32, place, self._node + side, self._child(body, near, other))
            body.store(U32, near, self._node + other, row)
            body.run(self._gathering, map_, row)
            body.run(self._gathering, map_, child)
            body.leave(child)
        return body.function

    def _settle(self) -> Function:
        """Bring the rows of the path in order again, from below; return the root."""
        name = self._settling.name
        with define(name, [("map", PTR), ("depth", I64)], I64, inline=False) as body:
            map_, depth = body.function.parameters
            at, top = body.let(depth, "at"), body.let(i64(0), "top")
            with body.loop():
                with body.when(at.eq(0)):
                    body.leave(top)
                body.set(at, at - 1)
                step = body.let(map_.at(at << 3), "step")
                row = body.load(I64, step, self._shape.path, "row")
                place = self._at(body, row)
                before = body.load(U32, place, self._node + HEIGHT, "before")
                left, right = (self._height(body, self._child(body, place, side)) for side in (LEFT, RIGHT))
                body.set(top, row)
                with body.when(left > right + 1, likely=False):
                    body.set(top, body.call(self._leaning(LEFT), map_, row))
                with body.when(right > left + 1, likely=False):
                    body.set(top, body.call(self._leaning(RIGHT), map_, row))
                with body.when(top.eq(row), likely=True):
                    body.run(self._gathering, map_, row)
                with body.otherwise(), body.when(at.ne(0)):
                    self._replace(body, body.load(I64, step, self._shape.path - 8, "parent"), row, top)
                if not self._order.sums:  # what is above knows only how high it is
                    with body.when(at.ne(0) & self._height(body, top).eq(before)):
                        body.leave(body.load(I64, map_, self._shape.path, "first"))
        return body.function

    def _replace(self, body: Body, parent: Expr, row: Expr, by: Expr) -> None:
        place = self._at(body, parent)
        side = select(self._child(body, place, LEFT).eq(row), i64(LEFT), i64(RIGHT))
        body.store(U32, place.at(side), self._node, by)

    def _link(self) -> Function:
        """Put a row into the tree of its group; 1, or 0 if there is no memory."""
        with define(self._shape.link_row(self._number).name, [("map", PTR), ("row", I64)], I64, inline=False) as body:
            map_, row = body.function.parameters
            place = self._at(body, row)
            body.store(I64, place, self._node, 0)
            body.run(self._gathering, map_, row)
            root = self._root(body, place)
            with body.when(root.eq(0)):
                table = map_.at(self._shape.tree(self._number))
                if self._order.group:
                    memory = body.load(PTR, map_, MEMORY, "memory")
                    body.leave(body.call(TABLE_INSERT, memory, table, self._tag(body, place), row))
                else:
                    body.store(I64, table, 0, row)
                    body.leave(1)
            depth = self._descend(body, place, root, row)
            top = body.call(self._settling, map_, depth, hint="top")
            self._set_root(body, place, root, top)
            body.leave(1)
        return body.function

    def _unlink(self) -> Function:
        """Take a row out of the tree of its group."""
        with define(self._shape.unlink_row(self._number).name, [("map", PTR), ("row", I64)], inline=False) as body:
            map_, row = body.function.parameters
            place = self._at(body, row)
            root = self._root(body, place)
            depth = self._descend(body, place, root, row)
            left, right = (self._child(body, place, side) for side in (LEFT, RIGHT))
            above = body.let(depth, "above")
            by = body.let(left | right, "by")
            with body.when(left.ne(0) & right.ne(0)):
                self._push(body, depth, row)
                body.set(by, self._successor(body, place, right, depth))
                body.store(U32, self._at(body, by), self._node + HEIGHT, self._height(body, row))
                body.store(I64, map_.at(above << 3), self._shape.path, by)
            with body.when(above.ne(0)):
                self._replace(body, body.load(I64, map_.at(above << 3), self._shape.path - 8, "parent"), row, by)
            with body.when(depth.eq(0)):
                if self._order.group:
                    with body.when(by.eq(0)):
                        body.run(TABLE_REMOVE, map_.at(self._shape.tree(self._number)), self._tag(body, place), row)
                        body.leave()
                self._set_root(body, place, root, by)
                body.leave()
            top = body.call(self._settling, map_, depth, hint="top")
            self._set_root(body, place, root, top)
        return body.function

    def _successor(self, body: Body, place: Expr, right: Expr, depth: Local) -> Local:
        """Write the taking of the row that follows one with two children, and give it these; return it."""
        found = body.let(right, "next")
        with body.loop():
            lower = self._child(body, self._at(body, found), LEFT, "lower")
            with body.when(lower.eq(0)):
                body.stop()
            self._push(body, depth, found)
            body.set(found, lower)
        here = self._at(body, found)
        with body.when(found.ne(right)):
            parent = body.load(I64, body.function.parameters[0].at(depth << 3), self._shape.path - 8, "parent")
            body.store(U32, self._at(body, parent), self._node + LEFT, self._child(body, here, RIGHT))
            body.store(U32, here, self._node + RIGHT, right)
        body.store(U32, here, self._node + LEFT, self._child(body, place, LEFT))
        return found

    def _renew(self) -> Function:
        """Add up anew what the values of a row are part of."""
        with define(_renew(self._shape, self._number).name, [("map", PTR), ("row", I64)], inline=False) as body:
            map_, row = body.function.parameters
            place = self._at(body, row)
            depth = self._descend(body, place, self._root(body, place), row)
            self._push(body, depth, row)
            body.call(self._settling, map_, depth)
        return body.function

    def _edge(self) -> Function:
        """Return the first row of a tree, or the last."""
        name = self._shape.edge(self._number).name
        with define(name, [("map", PTR), ("root", I64), ("side", I64)], I64, inline=False) as body:
            _, root, side = body.function.parameters
            at = body.let(root, "at")
            with body.loop():
                following = body.load(U32, self._at(body, at).at(side), self._node, "following")
                with body.when(following.eq(0)):
                    body.leave(at)
                body.set(at, following)
        return body.function

    def _going(self) -> Function:
        """Take a row out of an order that moves."""
        with define(_go(self._shape, self._number).name, [("map", PTR), ("row", I64)], inline=False) as body:
            map_, row = body.function.parameters
            at = self._shape.tree(self._number)
            body.run(self._shape.unlink_row(self._number), map_, row)
            body.store(U32, self._at(body, row), self._node + HEIGHT, 0)
            body.store(I64, map_, at + HELD, body.load(I64, map_, at + HELD) - 1)
        return body.function

    def _coming(self) -> Function:
        """Put a row into an order that moves, if it is good enough."""
        with define(_come(self._shape, self._number).name, [("map", PTR), ("row", I64)], inline=False) as body:
            map_, row = body.function.parameters
            at = self._shape.tree(self._number)
            place = self._at(body, row)
            body.store(U32, place, self._node + HEIGHT, 0)
            with body.when(body.load(I64, map_, at + IS_PARTIAL).ne(0), likely=True):
                root = body.load(I64, map_, at + ROOT, "root")
                with body.when(root.eq(0)):
                    body.leave()
                mine, worst = (self._keys(body, each) for each in (place, self._at(body, self._worst(body, root))))
                if self._order.best == LEFT:
                    mine, worst = worst, mine
                with body.when(in_order(mine, worst, self._order.words), likely=True):
                    body.leave()
            body.call(self._shape.link_row(self._number), map_, row)  # without a group that needs no memory
            held = body.let(body.load(I64, map_, at + HELD) + 1, "held")
            body.store(I64, map_, at + HELD, held)
            with body.when(held > self._order.most):
                body.store(I64, map_, at + IS_PARTIAL, 1)
                body.run(_go(self._shape, self._number), map_, self._worst(body, body.load(I64, map_, at + ROOT)))
        return body.function

    def _worst(self, body: Body, root: Expr) -> Local:
        edge = self._shape.edge(self._number)
        return body.call(edge, body.function.parameters[0], root, RIGHT - self._order.best, hint="worst")

    def _refill(self) -> Function:
        with define(self._shape.refill(self._number).name, [("map", PTR)], inline=False) as body:
            (map_,) = body.function.parameters
            for offset in (ROOT, HELD, IS_PARTIAL):
                body.store(I64, map_, self._shape.tree(self._number) + offset, 0)
            with body.counting(1, body.load(I64, map_, LAST, "last") + 1, "row") as row:
                place = self._at(body, row)
                some: Expr = i64(0)
                for word in range(self._shape.values):
                    some = some | body.load(I64, place, self._shape.value(word))
                with body.when(some.ne(0)):
                    body.run(_come(self._shape, self._number), map_, row)
        return body.function

    def _beside(self) -> Function:
        """Return the row behind another one of its group, or the one before; 0 if there is none."""
        name = self._shape.beside(self._number).name
        with define(name, [("map", PTR), ("row", I64), ("side", I64)], I64, inline=False) as body:
            _, row, side = body.function.parameters
            place = self._at(body, row)
            keys = self._keys(body, place)
            found, at = body.let(i64(0), "found"), self._root(body, place)
            with body.loop():
                with body.when(at.eq(0)):
                    body.leave(found)
                here = self._at(body, at)
                theirs = self._keys(body, here)
                beyond = body.let(
                    select(
                        side.eq(RIGHT),
                        in_order(keys, theirs, self._order.words),
                        in_order(theirs, keys, self._order.words),
                    ),
                    "beyond",
                )
                with body.when(beyond):
                    body.set(found, at)
                inward = body.let(select(beyond, i64(RIGHT) - side, side), "inward")
                body.set(at, body.load(U32, here.at(inward), self._node, "following"))
        return body.function


def _come(shape: Shape, order: int) -> Signature:
    return shape.function(f"come{order}", PTR, I64, result=None)


def _go(shape: Shape, order: int) -> Signature:
    return shape.function(f"go{order}", PTR, I64, result=None)


def _own(body: Body, place: Expr, kind: str) -> Expr:
    """Write the reading of a value column as its sums are kept."""
    match kind:
        case "i":
            return body.load(I64, place, 0, "own").to(I128)
        case "w":
            return body.load(I128, place, 0, "own")
        case _:
            return body.let(body.load(F64, place, 0) + body.load(F64, place, 8), "own")


def _renew(shape: Shape, order: int) -> Signature:
    return shape.function(f"renew{order}", PTR, I64, result=None)
