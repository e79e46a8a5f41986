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
from functools import partial

from cumulus.engine.native.kernel.body import Body, implement
from cumulus.engine.native.kernel.language import (
    F64,
    I64,
    I128,
    U32,
    Expr,
    Function,
    Local,
    Signature,
    i64,
    select,
)
from cumulus.engine.native.store.compensated_sums import CompensatedSum
from cumulus.engine.native.store.row_layout import FLAGS, HEIGHT, LEFT, LOSSY, MARKS, RIGHT, SPOILED, RowLayout, address

_LARGEST = (1 << 63) - 1


def comes_before(mine: Sequence[Expr], theirs: Sequence[Expr], words: Sequence[tuple[int, str]]) -> Expr:
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


class TreeNodes:
    """Reads the nodes that the rows of a map are in the trees of one order."""

    def __init__(self, shape: RowLayout, number: int) -> None:
        self.shape = shape
        self.number = number
        self.order = shape.orders[number]
        self.offset = shape.node(number)
        """Where the node stands in a row."""

    def place(self, body: Body, row: Expr) -> Local:
        """Write where a row of the map stands, which the function at hand has as its first parameter."""
        return body.let(address(body, self.shape, body.function.parameters[0], row), "place")

    def child(self, body: Body, place: Expr, side: int, hint: str = "child") -> Local:
        """Write the reading of the row below a node on a side, 0 if there is none."""
        return body.load(U32, place, self.offset + side, hint)

    def marks(self, body: Body, place: Expr) -> Local:
        """Write the reading of a node's height and flags; 0 if the row is in no tree."""
        return body.load(U32, place, self.offset + MARKS, "marks")

    def height(self, body: Body, row: Expr) -> Local:
        """Write the reading of the height of the tree below a row."""
        return body.let(self.marks(body, self.place(body, row)) & HEIGHT, "height")

    def keys(self, body: Body, place: Expr) -> list[Expr]:
        """Write the reading of the words that sort a row."""
        return [
            _own(body, place.at(8 * word), "f").bits() if kind == "c" else body.load(I64, place, 8 * word, "key")
            for word, kind in self.order.words
        ]


class Trees:
    """Writes the functions that change the trees of one order: `join`, `part` and `renew` from outside.

    Each goes from the root to a row, notes the rows that lead to it (the path), changes what hangs there, and then
    goes the path back up to rebalance.
    """

    def __init__(self, nodes: TreeNodes) -> None:
        shape, number = nodes.shape, nodes.number
        self._nodes, self._shape, self._order, self._offset = nodes, shape, nodes.order, nodes.offset
        self._gathering = shape.function(f"gather{number}", I64, result=None)
        self._rebalancing = shape.function(f"settle{number}", I64)
        self.join = shape.function(f"join{number}", I64, I64)
        """`(map, root, row)` → the root, after a row was put into a tree."""
        self.part = shape.function(f"part{number}", I64, I64)
        """`(map, root, row)` → the root, after a row was taken out of a tree."""
        self.renew = shape.function(f"renew{number}", I64, I64, result=None)
        """`(map, root, row)`: the values of a row of a tree have changed."""

    def functions(self) -> Iterator[Function]:
        """Yield the functions."""
        yield implement(self._gathering, ("map", "row"), self._gather)
        for side in (LEFT, RIGHT):
            yield implement(self._rotation(side), ("map", "row"), partial(self._rotate, side))
        yield implement(self._rebalancing, ("map", "depth"), self._rebalance, inline=False)
        yield implement(self.join, ("map", "root", "row"), self._join, inline=False)
        yield implement(self.part, ("map", "root", "row"), self._part, inline=False)
        if self._order.sums:
            yield implement(self.renew, ("map", "root", "row"), self._renew, inline=False)

    def _push(self, body: Body, depth: Local, row: Expr) -> None:
        body.store(I64, body.function.parameters[0].at(depth << 3), self._shape.path, row)
        body.set(depth, depth + 1)

    def _descend(self, body: Body, place: Expr, root: Expr, row: Expr) -> Local:
        """Write the way from the root to a row, which is put where it belongs if it is not there.

        Return how many rows lead to it; these are the path now.
        """
        keys = self._nodes.keys(body, place)
        at, depth = body.let(root, "at"), body.let(i64(0), "depth")
        with body.loop():
            body.stop_if(at.eq(row))
            self._push(body, depth, at)
            here = self._nodes.place(body, at)
            before = body.let(comes_before(keys, self._nodes.keys(body, here), self._order.words), "before")
            side = body.let(here.at(select(before, i64(LEFT), i64(RIGHT))), "side")
            body.set(at, body.load(U32, side, self._offset, "following"))
            with body.when(at.eq(0)):
                body.store(U32, side, self._offset, row)
                body.stop()
        return depth

    def _replace(self, body: Body, parent: Expr, row: Expr, by: Expr) -> None:
        place = self._nodes.place(body, parent)
        side = select(self._nodes.child(body, place, LEFT).eq(row), i64(LEFT), i64(RIGHT))
        body.store(U32, place.at(side), self._offset, by)

    # --- sums and heights -------------------------------------------------------------------------------------------

    def _gather(self, body: Body, _: Local, row: Local) -> None:
        """Add up what a row and the trees below it have."""
        place = self._nodes.place(body, row)
        below = [self._nodes.place(body, self._nodes.child(body, place, side)) for side in (LEFT, RIGHT)]
        marks = [self._nodes.marks(body, each) for each in below]
        heights = [each & HEIGHT for each in marks]
        height = select(heights[0] > heights[1], *heights) + 1
        flags = body.let((marks[0] | marks[1]) >> FLAGS, "flags")
        for number, (word, kind) in enumerate(self._order.sums):
            at = self._offset + self._order.sum(number)
            own = _own(body, place.at(self._shape.value(word)), kind)
            body.set(flags, flags | ((own < (0.0 if kind == "f" else 0)).to(I64) << number))
            if own.type is F64:
                pair = CompensatedSum(body)
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
        body.store(U32, place, self._offset + MARKS, height | (flags << FLAGS))

    def _rotation(self, side: int) -> Signature:
        return self._shape.function(f"lean{self._nodes.number}_{side}", I64)

    def _rotate(self, side: int, body: Body, map_: Local, row: Local) -> None:
        """Rotate a tree that is higher by two on one side; return its new root.

        `(left node right)` stands for a tree here, which leans to the left; the other side is the mirror image. If
        `inner` is no higher than `outer`, one rotation makes ``((outer child inner) row c)`` into
        ``(outer child (inner row c))``. Else `inner` is rotated above `child` first, which is a double rotation from
        ``((outer child (b inner c)) row d)`` to ``((outer child b) inner (c row d))``.
        """
        other = RIGHT - side
        place = self._nodes.place(body, row)
        child = self._nodes.child(body, place, side)
        near = self._nodes.place(body, child)
        inner, outer = self._nodes.child(body, near, other, "inner"), self._nodes.child(body, near, side, "outer")
        with body.when(self._nodes.height(body, inner) > self._nodes.height(body, outer)):
            top = self._nodes.place(body, inner)
            body.store(U32, near, self._offset + other, self._nodes.child(body, top, side))
            body.store(U32, top, self._offset + side, child)
            body.run(self._gathering, map_, child)
            body.set(child, inner)
            body.set(near, top)
        body.store(U32, place, self._offset + side, self._nodes.child(body, near, other))
        body.store(U32, near, self._offset + other, row)
        body.run(self._gathering, map_, row)
        body.run(self._gathering, map_, child)
        body.leave(child)

    def _rebalance(self, body: Body, map_: Local, depth: Local) -> None:
        """Rebalance the trees of the rows of the path, from below; return the root.

        Below the end of the path all is as it must be. Where a rotation has given a tree another root, its parent is
        told; where a tree is as high as before, none above it changes, unless there are sums, which go up to the root.
        """
        at, top = body.let(depth, "at"), body.let(i64(0), "top")
        with body.loop():
            body.leave_if(at.eq(0), top)
            body.set(at, at - 1)
            step = body.let(map_.at(at << 3), "step")
            row = body.load(I64, step, self._shape.path, "row")
            place = self._nodes.place(body, row)
            before = body.let(self._nodes.marks(body, place) & HEIGHT, "before")
            left, right = (self._nodes.height(body, self._nodes.child(body, place, side)) for side in (LEFT, RIGHT))
            body.set(top, row)
            with body.when(left > right + 1, likely=False):
                body.set(top, body.call(self._rotation(LEFT), map_, row))
            with body.when(right > left + 1, likely=False):
                body.set(top, body.call(self._rotation(RIGHT), map_, row))
            with body.when(top.eq(row), likely=True):
                body.run(self._gathering, map_, row)
            with body.otherwise(), body.when(at.ne(0)):
                self._replace(body, body.load(I64, step, self._shape.path - 8, "parent"), row, top)
            if not self._order.sums:  # what is above knows only how high it is
                with body.when(at.ne(0) & self._nodes.height(body, top).eq(before)):
                    body.leave(body.load(I64, map_, self._shape.path, "first"))

    # --- rows that come, go and change ------------------------------------------------------------------------------

    def _join(self, body: Body, map_: Local, root: Local, row: Local) -> None:
        """Put a row into a tree, which may be empty; return its new root."""
        place = self._nodes.place(body, row)
        body.store(I64, place, self._offset, 0)
        if self._order.sums:
            body.run(self._gathering, map_, row)
        else:
            body.store(U32, place, self._offset + MARKS, 1)
        body.leave_if(root.eq(0), row)
        depth = self._descend(body, place, root, row)
        body.leave(body.call(self._rebalancing, map_, depth))

    def _part(self, body: Body, map_: Local, root: Local, row: Local) -> None:
        """Take a row out of a tree; return its new root, 0 if it was the only one.

        A row with one child at most is replaced by that. One with two is replaced by the next in order, which has no
        left child: so what must be rebalanced begins at that one's old parent, and the path goes down to there.
        """
        place = self._nodes.place(body, row)
        depth = self._descend(body, place, root, row)
        left, right = (self._nodes.child(body, place, side) for side in (LEFT, RIGHT))
        above = body.let(depth, "above")
        by = body.let(left | right, "by")
        with body.when(left.ne(0) & right.ne(0)):
            self._push(body, depth, row)
            body.set(by, self._successor(body, place, right, depth))
            body.store(U32, self._nodes.place(body, by), self._offset + MARKS, self._nodes.marks(body, place))
            body.store(I64, map_.at(above << 3), self._shape.path, by)
        with body.when(above.ne(0)):
            self._replace(body, body.load(I64, map_.at(above << 3), self._shape.path - 8, "parent"), row, by)
        body.leave_if(depth.eq(0), by)
        body.leave(body.call(self._rebalancing, map_, depth))

    def _successor(self, body: Body, place: Expr, right: Expr, depth: Local) -> Local:
        """Write the taking of the row that follows one with two children, and give it these; return it."""
        found = body.let(right, "next")
        with body.loop():
            lower = self._nodes.child(body, self._nodes.place(body, found), LEFT, "lower")
            body.stop_if(lower.eq(0))
            self._push(body, depth, found)
            body.set(found, lower)
        here = self._nodes.place(body, found)
        with body.when(found.ne(right)):
            parent = body.load(I64, body.function.parameters[0].at(depth << 3), self._shape.path - 8, "parent")
            body.store(U32, self._nodes.place(body, parent), self._offset + LEFT, self._nodes.child(body, here, RIGHT))
            body.store(U32, here, self._offset + RIGHT, right)
        body.store(U32, here, self._offset + LEFT, self._nodes.child(body, place, LEFT))
        return found

    def _renew(self, body: Body, map_: Local, root: Local, row: Local) -> None:
        """Add up anew what the values of a row of a tree are part of."""
        depth = self._descend(body, self._nodes.place(body, row), root, row)
        self._push(body, depth, row)
        body.call(self._rebalancing, map_, depth)


def _own(body: Body, place: Expr, kind: str) -> Expr:
    """Write the reading of a value column as its sums are kept."""
    match kind:
        case "i":
            return body.load(I64, place, 0, "own").to(I128)
        case "w":
            return body.load(I128, place, 0, "own")
        case _:
            return body.let(body.load(F64, place, 0) + body.load(F64, place, 8), "own")
