"""Ordered indexes: a group of rows is a linked list while it is small, then an AVL tree with subtree sums.

An order divides the rows of a map into groups by some key words, and sorts those of a group by the others. The rows of
a group are a chain, that of the index on the same key words, and at first they are nothing else: who writes has nothing
to do. When an event reads a group of more than a few rows, all of them become a tree
(`cumulus.engine.native.store.avl`) as well, for following a chain through cold memory takes longer than a tree does. So
they do when they are so many that making a tree of more would be a pause. The tree stays until the last row has gone.
The first row of the chain knows the root, or how many rows there are. Where all rows of a map are one group there is no
chain, and a tree from the first row on.

For who reads the first rows of a view, an order holds only the best rows. By keys, a row comes into it when it is
made, if it is not worse than the worst; when there are too many, the worst goes. By values, it moves: a row leaves
before its values change, and comes back like a new one. So most changes cost one comparison or none. When too few
are left, whoever reads asks for a refill, which looks at all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from operator import or_

from cumulus.engine.native.kernel.body import Body, implement
from cumulus.engine.native.kernel.language import I64, U32, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.store import row_layout as layout
from cumulus.engine.native.store.avl import TreeNodes, Trees, comes_before
from cumulus.engine.native.store.row_layout import LEFT, MARKS, RIGHT, RowLayout, address


def order_functions(shape: RowLayout) -> Iterator[Function]:
    """Yield the functions of all orders of a shape."""
    for number in range(len(shape.orders)):
        yield from _OrderedIndex(shape, number).functions()
    if shape.is_told:
        yield implement(shape.changed, ("map", "row"), partial(_changed, shape), inline=False)
    if shape.has_moving:
        yield implement(shape.leave, ("map", "row"), partial(_leave, shape), inline=False)


def _changed(shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    for number, order in enumerate(shape.orders):
        if shape.moves(number):
            body.run(_come(shape, number), map_, row)
        elif order.sums:
            body.run(_take(shape, number), map_, row)


def _leave(shape: RowLayout, body: Body, map_: Local, row: Local) -> None:
    place = body.let(address(body, shape, map_, row), "place")
    for number in filter(shape.moves, range(len(shape.orders))):
        with body.when(body.load(U32, place, shape.node(number) + MARKS).ne(0)):
            body.run(_go(shape, number), map_, row)


def tell_created(body: Body, shape: RowLayout, map_: Expr, row: Expr, place: Expr) -> None:
    """Write that a row was made, at a place; all its values are 0."""
    for number in range(len(shape.orders)):
        if shape.moves(number):
            body.store(U32, place, shape.node(number) + MARKS, 0)
        else:
            body.run(_come(shape, number) if shape.is_limited(number) else shape.link_row(number), map_, row)


def tell_removed(body: Body, shape: RowLayout, map_: Expr, row: Expr, place: Expr) -> None:
    """Write that a row goes; what moves it has left."""
    for number in range(len(shape.orders)):
        if not shape.is_limited(number):
            body.run(shape.unlink_row(number), map_, row)
        elif not shape.moves(number):
            with body.when(body.load(U32, place, shape.node(number) + MARKS).ne(0)):
                body.run(_go(shape, number), map_, row)


def tell_before(body: Body, shape: RowLayout, map_: Expr, row: Expr) -> None:
    """Write that the values of a row will change."""
    if shape.has_moving:
        body.run(shape.leave, map_, row)


def tell_changed(body: Body, shape: RowLayout, map_: Expr, row: Expr) -> None:
    """Write that the values of a row have changed."""
    if shape.is_told:
        body.run(shape.changed, map_, row)


def root_of(body: Body, shape: RowLayout, order: int, map_: Expr, first: Expr) -> Local:
    """Write the reading of the root of a group whose chain begins with a row, which becomes a tree unless it is small.

    Return 0 if it is small.
    """
    few = shape.orders[order].few
    node = body.let(address(body, shape, map_, first).at(shape.node(order)), "node")
    root = body.load(U32, node, layout.GROUP, "root")
    with body.when(body.load(U32, node, MARKS).eq(0)):
        with body.when(root > few, likely=False):
            body.run(shape.plant(order), map_, first, few)
        body.set(root, select(body.load(U32, node, MARKS).eq(0), i64(0), body.load(U32, node, layout.GROUP)))
    return root


class _OrderedIndex:
    """Writes the functions of one order."""

    def __init__(self, shape: RowLayout, number: int) -> None:
        self._shape, self._number, self._order = shape, number, shape.orders[number]
        self._nodes = TreeNodes(shape, number)
        self._offset = self._nodes.offset
        self._trees = Trees(self._nodes)
        chain = shape.chain(number)
        self._link = 0 if chain is None else shape.link(chain)

    def functions(self) -> Iterator[Function]:
        """Yield the functions."""
        yield from self._trees.functions()
        shape, number = self._shape, self._number
        yield implement(shape.edge(number), ("map", "start", "side"), self._edge, inline=False)
        yield implement(shape.neighbour(number), ("map", "start", "row", "side"), self._neighbour, inline=False)
        if self._order.group:
            yield implement(shape.plant(number), ("map", "first", "most"), self._plant, inline=False)
        yield implement(shape.link_row(number), ("map", "row"), self._link_row)
        yield implement(shape.unlink_row(number), ("map", "row"), self._unlink_row)
        if self._order.sums:
            yield implement(_take(shape, number), ("map", "row"), self._take)
        if self._order.most:
            yield from _TopRows(self._nodes).functions()

    # --- groups -----------------------------------------------------------------------------------------------------

    def _first(self, body: Body, place: Expr) -> Local:
        """Write the finding of the first row of the chain that a row is in."""
        chain = self._shape.chain(self._number)
        assert chain is not None, "there is more than one group"
        group = [body.load(I64, place, 8 * word, "group") for word in self._order.group]
        return body.call(self._shape.first(chain), body.function.parameters[0], *group, hint="first")

    def _root(self, body: Body, place: Expr) -> Local:
        """Write the finding of the root of the tree that a row is in."""
        if self._order.group:
            return body.load(
                U32, self._nodes.place(body, self._first(body, place)), self._offset + layout.GROUP, "root"
            )
        return body.load(I64, body.function.parameters[0].at(self._shape.tree(self._number)), layout.ROOT, "root")

    def _link_row(self, body: Body, map_: Local, row: Local) -> None:
        place = self._nodes.place(body, row)
        if not self._order.group:
            self._come_into(body, place, row)
            return
        body.store(U32, place, self._offset + MARKS, 0)
        second = self._nodes.place(body, body.load(U32, place, self._link, "second"))
        group = body.load(U32, second, self._offset + layout.GROUP, "group")  # 0 of row 0
        with body.when(self._nodes.marks(body, second).ne(0)):
            body.store(U32, place, self._offset + layout.GROUP, group)
            self._come_into(body, place, row)
        with body.otherwise():
            body.store(U32, place, self._offset + layout.GROUP, group + 1)
            with body.when(group >= layout.MOST_CHAINED, likely=False):
                body.run(self._shape.plant(self._number), map_, row, layout.MOST_CHAINED // 2)

    def _come_into(self, body: Body, place: Expr, row: Expr) -> None:
        """Write the putting of a new row, the first of its chain, into a tree; where sums are kept that waits."""
        if self._order.sums:
            body.store(U32, place, self._offset + MARKS, layout.COMING)
        else:
            self._enter(body, place, row)

    def _enter(self, body: Body, place: Expr, row: Expr) -> None:
        """Write the putting of a row, the first of its chain, into the tree of its group."""
        map_ = body.function.parameters[0]
        if self._order.group:
            root = body.load(U32, place, self._offset + layout.GROUP, "root")
            body.store(U32, place, self._offset + layout.GROUP, body.call(self._trees.join, map_, root, row))
        else:
            to = map_.at(self._shape.tree(self._number))
            body.store(I64, to, layout.ROOT, body.call(self._trees.join, map_, self._root(body, place), row))

    def _plant(self, body: Body, map_: Local, first: Local, most: Local) -> None:
        """Count the rows of a chain, and make them a tree if they are more than a number."""
        at, count = body.let(first, "at"), body.let(i64(0), "count")
        with body.loop_while(at.ne(0)):
            body.set(count, count + 1)
            body.set(at, self._next(body, self._nodes.place(body, at)))
        with body.when(count <= most):
            body.store(U32, self._nodes.place(body, first), self._offset + layout.GROUP, count)
            body.leave()
        root = body.let(i64(0), "root")
        body.set(at, first)
        with body.loop_while(at.ne(0)):
            body.set(root, body.call(self._trees.join, map_, root, at))
            body.set(at, self._next(body, self._nodes.place(body, at)))
        body.store(U32, self._nodes.place(body, first), self._offset + layout.GROUP, root)

    def _unlink_row(self, body: Body, map_: Local, row: Local) -> None:
        place = self._nodes.place(body, row)
        marks = self._nodes.marks(body, place)
        is_in = body.let(marks.ne(0) & marks.ne(layout.COMING), "is_in")
        if not self._order.group:
            with body.when(is_in):
                to = map_.at(self._shape.tree(self._number))
                body.store(I64, to, layout.ROOT, body.call(self._trees.part, map_, self._root(body, place), row))
            return
        following, before = (body.load(U32, place, self._link + side, "beside") for side in (0, 4))
        body.leave_if(~is_in & before.ne(0))
        first = body.let(row, "first")
        with body.when(before.ne(0)):
            body.set(first, self._first(body, place))
        group = body.load(U32, self._nodes.place(body, first), self._offset + layout.GROUP, "group")
        with body.when(is_in):
            body.set(group, body.call(self._trees.part, map_, group, row))
        with body.when(marks.eq(0)):
            body.set(group, group - 1)
        with body.when(before.eq(0)):
            body.set(first, following)
        with body.when(first.ne(0)):
            body.store(U32, self._nodes.place(body, first), self._offset + layout.GROUP, group)

    def _take(self, body: Body, map_: Local, row: Local) -> None:
        """Take the values of a row, which are others now, into the sums of its tree, if it is in one."""
        place = self._nodes.place(body, row)
        marks = self._nodes.marks(body, place)
        with body.when(marks.eq(layout.COMING)):
            self._enter(body, place, row)
        with body.otherwise(), body.when(marks.ne(0)):
            body.run(self._trees.renew, map_, self._root(body, place), row)

    # --- walking ----------------------------------------------------------------------------------------------------

    def _next(self, body: Body, place: Expr) -> Local:
        return body.load(U32, place, self._link, "next")

    def _lies(self, side: Expr, mine: Sequence[Expr], theirs: Sequence[Expr]) -> Expr:
        """Write whether some keys lie on a side of others."""
        words = self._order.words
        return select(side.eq(RIGHT), comes_before(mine, theirs, words), comes_before(theirs, mine, words))

    def _edge(self, body: Body, _: Local, start: Local, side: Local) -> None:
        at = body.let(start, "at")
        if self._order.group:
            with body.when(self._nodes.marks(body, self._nodes.place(body, start)).eq(0)):
                self._edge_of_chain(body, at, side)
        with body.loop():
            following = body.load(U32, self._nodes.place(body, at).at(side), self._offset, "following")
            body.leave_if(following.eq(0), at)
            body.set(at, following)

    def _edge_of_chain(self, body: Body, first: Expr, side: Expr) -> None:
        best, at = body.let(first, "best"), body.let(first, "at")
        with body.loop_while(at.ne(0)):
            here = self._nodes.place(body, at)
            with body.when(
                self._lies(side, self._nodes.keys(body, self._nodes.place(body, best)), self._nodes.keys(body, here))
            ):
                body.set(best, at)
            body.set(at, self._next(body, here))
        body.leave(best)

    def _neighbour(self, body: Body, _: Local, start: Local, row: Local, side: Local) -> None:
        keys = self._nodes.keys(body, self._nodes.place(body, row))
        found, at = body.let(i64(0), "found"), body.let(start, "at")
        if self._order.group:
            with body.when(self._nodes.marks(body, self._nodes.place(body, start)).eq(0)):
                self._beside_in_chain(body, at, side, keys, found)
        with body.loop_while(at.ne(0)):
            here = self._nodes.place(body, at)
            beyond = body.let(self._lies(side, keys, self._nodes.keys(body, here)), "beyond")
            with body.when(beyond):
                body.set(found, at)
            inward = body.let(select(beyond, i64(RIGHT) - side, side), "inward")
            body.set(at, body.load(U32, here.at(inward), self._offset, "following"))
        body.leave(found)

    def _beside_in_chain(self, body: Body, at: Local, side: Expr, keys: Sequence[Expr], found: Local) -> None:
        with body.loop_while(at.ne(0)):
            here = self._nodes.place(body, at)
            theirs = self._nodes.keys(body, here)
            nearer = body.let(self._lies(side, keys, theirs), "nearer")
            with body.when(nearer & found.ne(0)):
                body.set(nearer, self._lies(side, theirs, self._nodes.keys(body, self._nodes.place(body, found))))
            with body.when(nearer):
                body.set(found, at)
            body.set(at, self._next(body, here))
        body.leave(found)


class _TopRows:
    """Writes the functions of an order that holds only the best rows."""

    def __init__(self, nodes: TreeNodes) -> None:
        self._shape, self._number, self._order = nodes.shape, nodes.number, nodes.order
        self._nodes = nodes

    def functions(self) -> Iterator[Function]:
        """Yield the functions."""
        shape, number = self._shape, self._number
        yield implement(_go(shape, number), ("map", "row"), self._going, inline=False)
        yield implement(_come(shape, number), ("map", "row"), self._coming, inline=False)
        yield implement(shape.refill(number), ("map",), self._refill, inline=False)

    def _going(self, body: Body, map_: Local, row: Local) -> None:
        """Take a row out of an order that holds only the best."""
        at = self._shape.tree(self._number)
        body.run(self._shape.unlink_row(self._number), map_, row)
        body.store(U32, self._nodes.place(body, row), self._nodes.offset + MARKS, 0)
        body.store(I64, map_, at + layout.HELD, body.load(I64, map_, at + layout.HELD) - 1)

    def _coming(self, body: Body, map_: Local, row: Local) -> None:
        """Put a row into an order that holds only the best, if it is good enough."""
        at = self._shape.tree(self._number)
        place = self._nodes.place(body, row)
        body.store(U32, place, self._nodes.offset + MARKS, 0)
        with body.when(body.load(I64, map_, at + layout.IS_PARTIAL).ne(0), likely=True):
            root = body.load(I64, map_, at + layout.ROOT, "root")
            body.leave_if(root.eq(0))
            mine, worst = (
                self._nodes.keys(body, each) for each in (place, self._nodes.place(body, self._worst(body, root)))
            )
            if self._order.best == LEFT:
                mine, worst = worst, mine
            body.leave_if(comes_before(mine, worst, self._order.words), likely=True)
        body.run(self._shape.link_row(self._number), map_, row)
        held = body.let(body.load(I64, map_, at + layout.HELD) + 1, "held")
        body.store(I64, map_, at + layout.HELD, held)
        with body.when(held > self._order.most):
            body.store(I64, map_, at + layout.IS_PARTIAL, 1)
            body.run(_go(self._shape, self._number), map_, self._worst(body, body.load(I64, map_, at + layout.ROOT)))

    def _worst(self, body: Body, root: Expr) -> Local:
        edge = self._shape.edge(self._number)
        return body.call(edge, body.function.parameters[0], root, RIGHT - self._order.best, hint="worst")

    def _refill(self, body: Body, map_: Local) -> None:
        for offset in (layout.ROOT, layout.HELD, layout.IS_PARTIAL):
            body.store(I64, map_, self._shape.tree(self._number) + offset, 0)
        with body.counting(1, body.load(I64, map_, layout.LAST, "last") + 1, "row") as row:
            place = self._nodes.place(body, row)
            values = [body.load(I64, place, self._shape.value(word)) for word in range(self._shape.values)]
            some: Expr = reduce(or_, values, i64(0))
            with body.when(some.ne(0)):
                body.run(_come(self._shape, self._number), map_, row)


def _take(shape: RowLayout, order: int) -> Signature:
    return shape.function(f"take{order}", I64, result=None)


def _come(shape: RowLayout, order: int) -> Signature:
    return shape.function(f"come{order}", I64, result=None)


def _go(shape: RowLayout, order: int) -> Signature:
    return shape.function(f"go{order}", I64, result=None)
