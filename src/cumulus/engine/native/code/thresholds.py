"""Loops over what lies between an old threshold and a new one (`cumulus.engine.analysis.thresholds`), in the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cumulus.algebra.terms import Lift
from cumulus.engine.analysis.thresholds import StatementPair
from cumulus.engine.native.code.loop_sources import read_source
from cumulus.engine.native.code.numbers import Env, Then
from cumulus.engine.native.code.ranges import running_sums, turn_once
from cumulus.engine.native.code.terms import TermEmitter
from cumulus.engine.native.kernel.lanes import Number, Scalar
from cumulus.engine.native.kernel.language import BOOL, FALSE, TRUE, U32, Expr, Local, i64, select
from cumulus.engine.native.store.row_layout import LEFT, RIGHT


def write_difference(coder: TermEmitter, pair: StatementPair, env: Env, then: Then) -> None:
    """Write what both statements of a pair add, without what cancels out."""

    def inside(bound: Env, numbers: list[Number]) -> None:
        _Between(coder, pair, bound).write(lambda inner, more: then(inner, numbers + more))

    coder.run(pair.outer, env, inside)


class _Between:
    def __init__(self, coder: TermEmitter, pair: StatementPair, env: Env) -> None:
        self._coder, self._scanner, self._body = coder, coder.scanner, coder.body
        self._pair, self._env = pair, env
        self._sides = [self._computed(lifts) for lifts in (pair.new, pair.old)]
        self._store = coder.writer.store(pair.read.map)

    def _computed(self, lifts: Sequence[Lift]) -> tuple[Local, Env]:
        """Write a threshold; return whether there is one, and the variables with those that it consists of."""
        body = self._body
        there = body.let(FALSE, "there")
        found = dict(self._env)

        def take(bound: Env, numbers: list[Number]) -> None:
            del numbers
            body.set(there, TRUE)
            for lift in lifts:
                scalar = bound[lift.variable]
                null = None if scalar.null is None else body.let(scalar.null, "null")
                found[lift.variable] = Scalar(scalar.type, body.let(scalar.value, "threshold"), null, scalar.bits)

        self._coder.run(lifts, self._env, take)
        return there, found

    def write(self, then: Then) -> None:
        body, scanner, pair, store = self._body, self._scanner, self._pair, self._store
        with scanner.bound(store, pair.read.keys, self._env) as bound:
            order = store.order(tuple(sorted(bound)), pair.axis)
            assert order is not None
            record, node = scanner.writer.record(store), store.shape.node(order)
            group = scanner.group(store, order, bound)
            sure = self._turns_once()
            row, first = body.let(group.root, "row"), body.let(i64(0), "first")
            with body.loop_while(row.ne(0)):
                place = body.let(scanner.place_of(store, row), "place")
                new, old, is_before = self._at(place)
                with body.when(new ^ old):
                    body.set(first, row)
                if sure is not None:  # all rows, then, from the first in order
                    is_before = is_before & sure
                    with body.when(~sure, likely=False):
                        body.set(first, row)
                side = select(is_before, i64(RIGHT), i64(LEFT))
                body.set(row, body.load(U32, place.at(side), node, "following"))
            is_tree = body.let(group.root.ne(0), "is_tree")
            body.set(row, select(is_tree, first, group.first))
            with body.loop_while(row.ne(0)), scanner.looping():
                place = body.let(scanner.place_of(store, row), "place")
                following = (
                    body.let(i64(0), "following") if group.chain is None else scanner.next_of(store, group.chain, place)
                )
                new, old, _ = self._at(place)
                if sure is not None:
                    with body.when(is_tree & ~sure, likely=False):
                        body.set(following, body.call(store.shape.neighbour(order), record, group.root, row, RIGHT))
                with body.when(new ^ old):
                    sign = Number(body.let(select(new, i64(1), i64(-1)), "sign"))

                    def visit(inner: Env, numbers: list[Number], sign: Number = sign) -> None:
                        self._coder.run(pair.inner, inner, lambda all_, more: then(all_, [sign, *numbers, *more]))

                    with body.when(is_tree):
                        body.set(following, body.call(store.shape.neighbour(order), record, group.root, row, RIGHT))
                    scanner.entry(read_source(scanner.writer, pair.read), pair.read.keys, row, place, self._env, visit)
                with body.otherwise(), body.when(is_tree if sure is None else is_tree & sure):
                    body.stop()
                body.set(row, following)

    def _turns_once(self) -> Local | None:
        """Write whether the condition turns at one place with each threshold; None if it does anyway."""
        sums = [running_sums(self._coder.writer, lifts) or [] for lifts in self._pair.running]
        if not any(sums):
            return None
        (_, new), _ = self._sides
        return turn_once(self._scanner, self._coder.closed, [each for side in sums for each in side], new)

    def _at(self, place: Expr) -> tuple[Local, Local, Expr]:
        """Write at a row whether the condition holds with each threshold, and whether the row is before both."""
        body, pair, evaluator = self._body, self._pair, self._coder.evaluator
        key = pair.read.keys[pair.axis]
        here = self._scanner.key_at(self._store, pair.axis, place)
        holds = []
        for (there, env), running in zip(self._sides, pair.running, strict=True):
            held = body.local(BOOL, "holds")
            body.set(held, FALSE)
            with body.when(there):
                bound = env | {str(key): here}
                if running:
                    self._coder.run((*running, pair.compare), bound, lambda *_, held=held: body.set(held, TRUE))
                    holds.append(held)
                    continue
                with evaluator.evaluated(partial(evaluator.scalar, pair.compare, bound)) as found:
                    body.set(held, found.value)
            holds.append(held)
        new, old = holds
        before = ~(new | old) if pair.is_up else new & old
        if here.null is not None:  # NULL is first, or last
            before = before & ~here.null if self._store.keys[pair.axis].type.is_float else before | here.null
        return new, old, before
