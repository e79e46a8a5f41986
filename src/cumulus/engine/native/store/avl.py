"""Balanced trees through the rows of a map, with sums.

The rows are the nodes of AVL trees, so a path has at most 45 rows. A node knows its height, the sums of some value
columns over the rows below it, and whether one of them is negative. So a row is found, put, removed and changed in
O(log n), and so are the sums over an interval of a tree (`cumulus.engine.native.code.ranges`). Which rows are a tree,
and where its root is written down, is the business of `cumulus.engine.native.store.ordered_index`.

Row 0 stands for no child: its height and its sums are 0. Sums are never subtracted from, always added up anew, so that
nothing is left of a large float that has gone. Those of floats are pairs
(`cumulus.engine.native.store.compensated_sums`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.language import (
    F64,
    I64,
    I128,
    PTR,
    U32,
    Expr,
    Function,
    Local,
    Signature,
    i64,
    select,
)
from cumulus.engine.native.store.compensated_sums import Pair
from cumulus.engine.native.store.row_layout import FLAGS, HEIGHT, LEFT, LOSSY, MARKS, RIGHT, SPOILED, Shape, address

_LARGEST = (1 << 63) - 1


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


class Trees:
    """Writes the functions of the trees of one order.

    Parameters
    ----------
    shape, number
        The layout of the map, and which of its orders.
    """

    def __init__(self, shape: Shape, number: int) -> None:
        self._shape = shape
        self._number = number
        self._order = shape.orders[number]
        self._node = shape.node(number)
        self._gathering = shape.function(f"gather{number}", PTR, I64, result=None)
        self._settling = shape.function(f"settle{number}", PTR, I64)
        self._joining = shape.function(f"join{number}", PTR, I64, I64)
        self._parting = shape.function(f"part{number}", PTR, I64, I64)
        self._renewing = shape.function(f"renew{number}", PTR, I64, I64, result=None)

    def functions(self) -> Iterator[Function]:
        """Yield the functions."""
        yield self._gather()
        yield self._lean(LEFT)
        yield self._lean(RIGHT)
        yield self._settle()
        yield self._join()
        yield self._part()
        if self._order.sums:
            yield self._renew()

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _at(self, body: Body, row: Expr) -> Local:
        return body.let(address(body, self._shape, body.function.parameters[0], row), "place")

    def _child(self, body: Body, place: Expr, side: int, hint: str = "child") -> Local:
        return body.load(U32, place, self._node + side, hint)

    def _marks(self, body: Body, place: Expr) -> Local:
        return body.load(U32, place, self._node + MARKS, "marks")

    def _height(self, body: Body, row: Expr) -> Local:
        return body.let(self._marks(body, self._at(body, row)) & HEIGHT, "height")

    def _keys(self, body: Body, place: Expr) -> list[Expr]:
        return [
            _own(body, place.at(8 * word), "f").bits() if kind == "c" else body.load(I64, place, 8 * word, "key")
            for word, kind in self._order.words
        ]

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

    def _replace(self, body: Body, parent: Expr, row: Expr, by: Expr) -> None:
        place = self._at(body, parent)
        side = select(self._child(body, place, LEFT).eq(row), i64(LEFT), i64(RIGHT))
        body.store(U32, place.at(side), self._node, by)

    # --- sums and heights -------------------------------------------------------------------------------------------

    def _gather(self) -> Function:
        """Add up what a row and the trees below it have."""
        with define(self._gathering.name, [("map", PTR), ("row", I64)]) as body:
            place = self._at(body, body.function.parameters[1])
            below = [self._at(body, self._child(body, place, side)) for side in (LEFT, RIGHT)]
            marks = [self._marks(body, each) for each in below]
            heights = [each & HEIGHT for each in marks]
            height = select(heights[0] > heights[1], *heights) + 1
            flags = body.let((marks[0] | marks[1]) >> FLAGS, "flags")
            for number, (word, kind) in enumerate(self._order.sums):
                at = self._node + self._order.sum(number)
                own = _own(body, place.at(self._shape.value(word)), kind)
                body.set(flags, flags | ((own < (0.0 if kind == "f" else 0)).to(I64) << number))
                if own.type is F64:
                    pair = Pair(body)
                    pair.add(own)
                    for each in below:
                        pair.add(body.load(F64, each, at, "more"), body.load(F64, each, at + 8, "rest"))
                    body.set(flags, flags | select(pair.is_lossy, i64(LOSSY), i64(0)))
                    body.store(F64, place, at, pair.high)
                    body.store(F64, place, at + 8, pair.low)
                    continue
                total = own
                for each in below:
                    more = body.load(own.type, each, at, "more")
                    total, overflow = body.checked("add", total, more, "total")
                    body.set(flags, flags | select(overflow, i64(SPOILED), i64(0)))
                body.store(own.type, place, at, total)
            body.store(U32, place, self._node + MARKS, height | (flags << FLAGS))
        return body.function

    def _leaning(self, side: int) -> Signature:
        return self._shape.function(f"lean{self._number}_{side}", PTR, I64)

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
                before = body.let(self._marks(body, place) & HEIGHT, "before")
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

    # --- rows that come, go and change ------------------------------------------------------------------------------

    def _join(self) -> Function:
        """Put a row into a tree, which may be empty; return its new root."""
        with define(self._joining.name, [("map", PTR), ("root", I64), ("row", I64)], I64, inline=False) as body:
            map_, root, row = body.function.parameters
            place = self._at(body, row)
            body.store(I64, place, self._node, 0)
            if self._order.sums:
                body.run(self._gathering, map_, row)
            else:
                body.store(U32, place, self._node + MARKS, 1)
            with body.when(root.eq(0)):
                body.leave(row)
            depth = self._descend(body, place, root, row)
            body.leave(body.call(self._settling, map_, depth))
        return body.function

    def _part(self) -> Function:
        """Take a row out of a tree; return its new root, 0 if it was the only one."""
        with define(self._parting.name, [("map", PTR), ("root", I64), ("row", I64)], I64, inline=False) as body:
            map_, root, row = body.function.parameters
            place = self._at(body, row)
            depth = self._descend(body, place, root, row)
            left, right = (self._child(body, place, side) for side in (LEFT, RIGHT))
            above = body.let(depth, "above")
            by = body.let(left | right, "by")
            with body.when(left.ne(0) & right.ne(0)):
                self._push(body, depth, row)
                body.set(by, self._successor(body, place, right, depth))
                body.store(U32, self._at(body, by), self._node + MARKS, self._marks(body, place))
                body.store(I64, map_.at(above << 3), self._shape.path, by)
            with body.when(above.ne(0)):
                self._replace(body, body.load(I64, map_.at(above << 3), self._shape.path - 8, "parent"), row, by)
            with body.when(depth.eq(0)):
                body.leave(by)
            body.leave(body.call(self._settling, map_, depth))
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
        """Add up anew what the values of a row of a tree are part of."""
        with define(self._renewing.name, [("map", PTR), ("root", I64), ("row", I64)], inline=False) as body:
            map_, root, row = body.function.parameters
            depth = self._descend(body, self._at(body, row), root, row)
            self._push(body, depth, row)
            body.call(self._settling, map_, depth)
        return body.function


def _own(body: Body, place: Expr, kind: str) -> Expr:
    """Write the reading of a value column as its sums are kept."""
    match kind:
        case "i":
            return body.load(I64, place, 0, "own").to(I128)
        case "w":
            return body.load(I128, place, 0, "own")
        case _:
            return body.let(body.load(F64, place, 0) + body.load(F64, place, 8), "own")
