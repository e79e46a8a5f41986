"""Sums over an interval of one key (`cumulus.engine.analysis.intervals`), from the sums that an order keeps.

The rows of a large group are a tree (`cumulus.engine.native.store.ordered_index`). A condition that holds from some
place on tells at each node on which side the place is; so an interval's ends are found on two paths, and what lies
between them is added from the sums of whole trees. That takes O(log n) evaluations of the conditions, and as many
additions. The few rows of a small group are looked at one by one.

A condition on a running sum turns only once if nothing that it adds is negative. A node knows that; where something is,
and where a condition fails, or a sum does not fit, all rows are visited instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.algebra.order import all_but
from cumulus.algebra.scope import inputs
from cumulus.algebra.terms import Lift, MapRead, Range, Term, Var, factors_of
from cumulus.engine.analysis.intervals import Condition, KeyInterval, interval_of
from cumulus.engine.native.code.loop_sources import LoopSource, column_source
from cumulus.engine.native.code.loops import Scanner, SortedGroup
from cumulus.engine.native.code.numbers import Env, read_value
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Number, Scalar
from cumulus.engine.native.kernel.language import (
    F64,
    FALSE,
    I64,
    I128,
    TRUE,
    U32,
    Expr,
    Immediate,
    Local,
    Type,
    absolute,
    i64,
    select,
)
from cumulus.engine.native.store.compensated_sums import CompensatedSum
from cumulus.engine.native.store.hash_tables import ROW, slots_of
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, ValueLane
from cumulus.engine.native.store.row_layout import FLAGS, LEFT, LOSSY, MARKS, RIGHT, SPOILED
from cumulus.scalars.arithmetic import MINUS_UNIT


@dataclass(frozen=True, slots=True)
class PrefixSums:
    """Prefix sums in an ordered index that replace the loop of a read."""

    store: MapLayout
    order: int
    sum: int
    column: int

    @property
    def node(self) -> int:
        """Where the node stands in a row."""
        return self.store.shape.node(self.order)

    @property
    def total(self) -> int:
        """Where the sum of a tree stands in its root."""
        return self.node + self.store.shape.orders[self.order].sum(self.sum)

    @property
    def kind(self) -> Type:
        """The type of the sum."""
        return F64 if self.lane.held is ColumnStorage.CELL else I128

    @property
    def lane(self) -> ValueLane:
        """The value column."""
        return self.store.values[self.column]


Closed: TypeAlias = Callable[[Term, Env], Number]
"""Writes the sum that a term is where all its outputs are bound."""
Total: TypeAlias = Local | CompensatedSum
"""What a sum over an interval is added up in."""
_MOST_CANCELLED = 2.0**40
"""So much larger than a sum may be what is subtracted from one that is not exact: two floats have 2**106."""
KeptSums: TypeAlias = tuple[PrefixSums, list[tuple[MapRead, PrefixSums]]]
"""What an interval adds up, and the running sums that its conditions read, by the reads."""


class Intervals:
    """Writes one sum over an interval."""

    def __init__(self, scanner: Scanner, closed: Closed, interval: KeyInterval, env: Env) -> None:
        self._scanner, self._evaluator = scanner, scanner.evaluator
        self._body: Body = scanner.body
        self._closed = closed
        self._interval = interval
        self._env = env
        self._sure = self._body.let(TRUE, "sure")
        """Whether everything went well so far."""
        self._plain: dict[MapRead, Local] = {}
        """For each read that counts what is infinite: whether nothing is, so that it need not be read."""

    def write(
        self, kept: PrefixSums, guards: Sequence[tuple[MapRead, PrefixSums]], then: Callable[[Number], None]
    ) -> Local:
        """Write the sum, with what `then` makes of it; return whether it could be found."""
        for valued in dict.fromkeys(each.valued for each in self._interval.conditions if each.valued is not None):
            self._check_valued(valued)
        self.guarded(guards)
        keys, body = self._interval.read.keys, self._body
        with body.when(self._sure), self._scanner.bound(kept.store, keys, self._env) as bound:
            group = self._scanner.group(kept.store, kept.order, bound)
            total = CompensatedSum(body) if kept.kind is F64 else body.let(Immediate(kept.kind, 0), "total")
            with body.when(group.root.ne(0)):
                self._none(self._flags(kept, group.root), SPOILED)
                if isinstance(total, CompensatedSum):
                    lossy = (self._flags(kept, group.root) & LOSSY).ne(0)
                    body.set(total.is_lossy, lossy)
                self._search(kept, group.root, total)
            if group.chain is not None:
                with body.otherwise():
                    self._visit(kept, group, total)
            if self._interval.read.state == "NEW":
                self._add_changes(kept, total)
            number = self._number(kept, total)
            with self._body.when(self._sure):
                then(number)
        return self._sure

    def guarded(self, guards: Sequence[tuple[MapRead, PrefixSums]]) -> Local:
        """Write the checks of running sums alone; return whether nothing that they add is negative."""
        specials = {
            lift.term for each in self._interval.conditions for lift in each.lifts if lift.variable in each.specials
        }
        for read, guard in guards:
            self._guard(read, guard, has_infinite=read in specials)
        return self._sure

    # --- what makes it sure -----------------------------------------------------------------------------------------

    def _fails(self, condition: Expr) -> None:
        with self._body.when(condition, likely=False):
            self._body.set(self._sure, FALSE)

    def _none(self, flags: Expr, mask: int) -> None:
        self._fails((flags & mask).ne(0))

    def _place(self, store: MapLayout, row: Expr) -> Local:
        return self._body.let(self._scanner.place_of(store, row), "place")

    def _flags(self, kept: PrefixSums, row: Expr) -> Local:
        return self._body.let(self._body.load(U32, self._place(kept.store, row), kept.node + MARKS) >> FLAGS, "flags")

    def _check_valued(self, term: Term) -> None:
        """Write the check that a scalar is not NULL."""
        scalars = self._evaluator.scalars(self._env)
        with scalars.arithmetic.attempt() as outcome:
            found = scalars.code(term)
        failed = outcome()
        for reason in (failed, found.null):
            if reason is not None:
                self._fails(reason)

    def _guard(self, read: MapRead, kept: PrefixSums, *, has_infinite: bool) -> None:
        """Write the check that nothing that a running sum adds is negative, nor, where that is counted, -inf."""
        body = self._body
        if has_infinite:
            self._plain[read] = body.let(TRUE, "plain")

        def check_own(own: Expr) -> None:
            self._fails(own < (0.0 if own.type is F64 else 0))
            if has_infinite:
                self._fails(own.to(I128) > MINUS_UNIT - 1)
                with body.when(own.ne(0), likely=False):
                    body.set(self._plain[read], FALSE)

        with self._scanner.bound(kept.store, read.keys, self._env) as bound:
            group = self._scanner.group(kept.store, kept.order, bound)
            self._none(self._flags(kept, group.root), (1 << kept.sum) | SPOILED)
            if has_infinite:
                check_own(body.load(kept.kind, self._place(kept.store, group.root), kept.total, "odd"))
            if group.chain is not None:
                with body.when(group.root.eq(0)):
                    for place in self._rows_of(kept, group):
                        check_own(_own(kept, body, place))
        if read.state == "NEW":
            ahead = self._scanner.writer.ahead(kept.store)
            keys = tuple(Var("any") if isinstance(key, Range) else key for key in read.keys)

            def check(bound: Env, numbers: list[Number]) -> None:
                del bound
                check_own(numbers[0].value)

            self._scanner.scan(column_source(ahead, kept.column), keys, self._env, check)

    # --- searching --------------------------------------------------------------------------------------------------

    def _rows_of(self, kept: PrefixSums, group: SortedGroup) -> Iterator[Local]:
        """Write a loop over where the rows of a chain stand."""
        assert group.chain is not None
        row = self._body.let(group.first, "row")
        with self._body.loop_while(row.ne(0)):
            place = self._place(kept.store, row)
            yield place
            self._body.set(row, self._scanner.next_of(kept.store, group.chain, place))

    def _visit(self, kept: PrefixSums, group: SortedGroup, total: Total) -> None:
        """Write the adding of the rows of a chain that lie in the interval."""
        for place in self._rows_of(kept, group):
            here = self._scanner.key_at(kept.store, self._interval.axis, place)
            inside = self._body.let(TRUE, "inside")
            self._all(inside, self._interval.conditions, here, here.null is not None)
            with self._body.when(inside):
                self._add(total, _own(kept, self._body, place))

    def _search(self, kept: PrefixSums, root: Expr, total: Total) -> None:
        """Write the search in a tree, and the adding of what lies in the interval.

        It goes from the root to the first row that is inside, from there to where the interval begins, then to where it
        ends. Where one end is open, there is only one way.
        """
        body, store = self._body, kept.store
        lane = store.keys[self._interval.axis]
        ups = [each for each in self._interval.conditions if each.is_up]
        downs = [each for each in self._interval.conditions if not each.is_up]
        nulls = (FALSE, FALSE)
        if lane.nullable:
            nulls = (FALSE, TRUE) if lane.type.is_float else (TRUE, FALSE)
        opened = not downs and nulls[1] is FALSE, not ups and nulls[0] is FALSE
        stage = body.let(i64(1 if opened[0] else 2 if opened[1] else 0), "stage")
        row, top = body.let(root, "row"), body.let(i64(0), "top")
        with body.loop():
            with body.when(row.eq(0)):
                body.set(stage, stage + 1)
                body.stop_if(stage.ne(2))
                body.set(row, body.load(U32, self._place(store, top), kept.node + RIGHT, "right"))
                body.stop_if(row.eq(0))
            place = self._place(store, row)
            here = self._scanner.key_at(store, self._interval.axis, place)
            up, down = body.let(TRUE, "up"), body.let(TRUE, "down")
            # Where NULL is last, it is above whatever an interval begins with.
            with body.when(stage.ne(2) & ~here.null if here.null is not None and lane.type.is_float else stage.ne(2)):
                self._all(up, ups, here, nulls[0] is TRUE)
            with body.when(stage.ne(1) & up):
                self._all(down, downs, here, nulls[1] is TRUE)
            body.stop_if(~self._sure, likely=False)
            goes_left = body.let(up, "left")
            with body.when(up & down):
                self._add(total, _own(kept, self._body, place))
                with body.when(stage.eq(0)):
                    body.set(top, row)
                    body.set(stage, 1)
                with body.otherwise():
                    other = select(stage.eq(1), i64(RIGHT), i64(LEFT))
                    tree = body.load(U32, place.at(other), kept.node, "tree")
                    self._add_tree(kept, total, self._place(store, tree))
                    body.set(goes_left, stage.eq(1))
            following = select(goes_left, i64(LEFT), i64(RIGHT))
            body.set(row, body.load(U32, place.at(following), kept.node, "row"))

    def _all(self, holds: Local, conditions: Sequence[Condition], here: Scalar, no_null: bool) -> None:
        """Write whether conditions hold at a place of the axis."""
        if no_null:
            assert here.null is not None
            self._body.set(holds, ~here.null)
        for condition in conditions:
            with self._body.when(holds):
                self._body.set(holds, self._holds(condition, here))

    def _holds(self, condition: Condition, here: Scalar) -> Local:
        env = self._env | {self._interval.variable: here}
        for lift in condition.lifts:
            assert isinstance(lift.term, MapRead)
            number = self._running(lift.term, env)
            env[lift.variable] = self._evaluator.scalar_of(number, self._evaluator.number_type(lift.term))
        scalars = self._evaluator.scalars(env)
        with scalars.arithmetic.attempt() as outcome:
            found = scalars.code(condition.compare)
        failed = outcome()
        if failed is not None:
            self._fails(failed)
        return self._body.let(found.value, "holds")

    def _running(self, read: MapRead, env: Env) -> Number:
        """Write a running sum; one that counts what is infinite only where something is."""
        plain = self._plain.get(read)
        if plain is None:
            return self._closed(read, env)
        count = self._body.let(Immediate(I128, 0), "count")
        with self._body.when(~plain, likely=False):
            self._body.set(count, self._closed(read, env).value.to(I128))
        return Number(count, bits=127)

    def _add_tree(self, kept: PrefixSums, total: Total, place: Expr) -> None:
        """Write the adding of the sum that stands at the root of a tree."""
        more = self._body.load(kept.kind, place, kept.total, "sum")
        if isinstance(total, CompensatedSum):
            total.add(more, self._body.load(F64, place, kept.total + 8, "rest"))
        else:
            self._add(total, more)

    def _add(self, total: Total, more: Expr) -> None:
        if isinstance(total, CompensatedSum):
            total.add(more)
            return
        found, overflow = self._body.checked("add", total, more, "total")
        self._fails(overflow)
        self._body.set(total, found)

    # --- what the firing has changed ----------------------------------------------------------------------------------

    def _add_changes(self, kept: PrefixSums, total: Total) -> None:
        """Write the adding of what the firing has changed in the interval.

        What a float has lost in a sum does not come back by subtracting. So where a sum is not exact, and little is
        left of it without what is subtracted, that is not sure.
        """
        scanner, body = self._scanner, self._body
        ahead = scanner.writer.ahead(kept.store)
        before, after = body.let(Immediate(kept.kind, 0), "old"), body.let(Immediate(kept.kind, 0), "new")
        most = body.let(Immediate(F64, 0.0), "most")

        def note(body: Body, place: Expr) -> Number:
            keys = [body.load(I64, place, 8 * word) for word in range(kept.store.shape.keys)]
            row = body.call(kept.store.shape.find, scanner.writer.record(kept.store), *keys, hint="before")
            body.set(before, _own(kept, body, self._place(kept.store, row)))  # of row 0, all 0, if there was none
            body.set(after, _own(kept, body, place))
            return Number(body.let(after.ne(before).to(I64), "changed"))

        def visit(bound: Env, numbers: list[Number]) -> None:
            del numbers
            with ExitStack() as tests:
                for condition in self._interval.conditions:
                    tests.enter_context(body.when(self._holds(condition, bound[self._interval.variable])))
                if not isinstance(total, CompensatedSum):
                    self._add(total, after - before)
                    return
                total.add(after)
                total.add(-before)
                with body.when(absolute(before) > most):
                    body.set(most, absolute(before))

        scanner.scan(LoopSource(ahead, note), self._interval.read.keys, self._env, visit)
        if isinstance(total, CompensatedSum):
            self._fails(total.is_lossy & ~(most <= absolute(total.value()) * _MOST_CANCELLED))

    def _number(self, kept: PrefixSums, total: Total) -> Number:
        lane = kept.lane
        if isinstance(total, CompensatedSum):
            return Number(total.value(), is_sum=True)
        if lane.held is ColumnStorage.COUNT:
            self._fails(total.ne(total.to(I64).to(I128)))
            return Number(self._body.let(total.to(I64), "sum"), lane.scale, 63)
        return Number(total, lane.scale, 127)


def _own(kept: PrefixSums, body: Body, place: Expr) -> Expr:
    """Write the reading of what a row adds."""
    value = read_value(body, kept.store, kept.column, place).value
    return value if value.type is F64 else body.let(value.to(I128), "own")


def kept_sums(writer: ProgramWriter, interval: KeyInterval) -> KeptSums | None:
    """Return where the sums are kept that an interval and its conditions need; None if one is not."""
    own = _kept(writer, interval.read, interval.axis)
    guards = []
    for condition in interval.conditions:
        for lift in condition.lifts:
            assert isinstance(lift.term, MapRead)
            axis = next(place for place, key in enumerate(lift.term.keys) if isinstance(key, Range))
            kept = _kept(writer, lift.term, axis)
            if kept is None:
                return None
            guards.append((lift.term, kept))
    if own is not None and guards:
        own.store.search(own.order)
    return None if own is None else (own, list(dict(guards).items()))


def _kept(writer: ProgramWriter, read: MapRead, axis: int) -> PrefixSums | None:
    store, column = writer.store(read.map), writer.column(read.map, read.column)
    order = store.order(all_but(axis, len(store.keys)), axis)
    number = None if order is None else store.order_sum(order, column)
    return None if order is None or number is None else PrefixSums(store, order, number, column)


def running_sums(writer: ProgramWriter, lifts: Sequence[Lift]) -> list[tuple[MapRead, PrefixSums]] | None:
    """Return where the sums are kept that begin or end at a place that is searched; None if one is not."""
    found: list[tuple[MapRead, PrefixSums]] = []
    for read in (part for lift in lifts for part in factors_of(lift.term) if isinstance(part, MapRead)):
        kept = _kept(writer, read, next(place for place, key in enumerate(read.keys) if isinstance(key, Range)))
        if kept is None:
            return None
        found.append((read, kept))
    return found


def turn_once(scanner: Scanner, closed: Closed, sums: Sequence[tuple[MapRead, PrefixSums]], env: Env) -> Local:
    """Write whether conditions on running sums turn at one place each: whether nothing that these add is negative."""
    interval = interval_of(sums[0][0], {*env, *inputs(sums[0][0])})
    assert interval is not None
    return Intervals(scanner, closed, interval, env).guarded(sums)


def firsts_of(scanner: Scanner, kept: PrefixSums) -> Iterator[Local]:
    """Write a loop over where a row of each group stands, in no particular order."""
    body, shape = scanner.body, kept.store.shape
    chain = shape.chain(kept.order)
    assert chain is not None, "there is more than one group"
    with slots_of(body, scanner.writer.record(kept.store).at(shape.table(chain))) as word:
        yield body.let(scanner.place_of(kept.store, word & ROW), "first")
