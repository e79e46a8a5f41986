"""Value context in the kernel: the loops, look-ups and conditions of one term.

The order of the factors is the interpreter's (`cumulus.engine.analysis.factor_order`), and so is what a failure means:
what cannot be evaluated is 0, and reported. Sums are kept in words of a type that is known before
(`cumulus.engine.native.code.typing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import assert_never

from cumulus.algebra.scope import inputs, outputs
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    End,
    Exists,
    Lift,
    MapEnd,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    factors_of,
)
from cumulus.catalog.types import SqlType
from cumulus.engine.analysis.factor_order import is_shareable, next_factor
from cumulus.engine.analysis.intervals import KeyInterval, groups_of, interval_of
from cumulus.engine.native.code.ends import write_end, write_map_end
from cumulus.engine.native.code.loops import LoopSource, Scanner
from cumulus.engine.native.code.numbers import ONE, Env, Then, number_lane, read_number, read_value
from cumulus.engine.native.code.ranges import Intervals, KeptSums, firsts_of, kept_sums
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Lane, Number, Scalar, lane_of
from cumulus.engine.native.kernel.language import F64, I64, Expr, Local, i64, select
from cumulus.engine.native.kernel.language import Immediate as Literal
from cumulus.engine.native.store.compensated_sums import Pair, two_sum
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, Reason
from cumulus.engine.native.values.long_numbers import BoxOp
from cumulus.errors import ValidationError

NO_VISITS: Mapping[int, Local] = {}


class TermEmitter(Scanner):
    """Writes the code of terms into one function."""

    # --- entry points -----------------------------------------------------------------------------------------------

    def at_row_of(self, other: TermEmitter) -> TermEmitter:
        """Return this coder, at the row of the batch that another one is at."""
        self._row = other._row
        return self

    def own_number(self, term: Term, env: Env) -> Number:
        """Write a scalar that cannot fail, as a number."""
        return self.number_of(self.plain(env).code(term))

    @contextmanager
    def all_but_zero(self, numbers: Sequence[Number]) -> Iterator[None]:
        """Write what happens where none of some numbers is 0; without floats it does not matter where."""
        with ExitStack() as tests:
            if any(number.is_float for number in numbers):
                for number in numbers:
                    tests.enter_context(self.body.when(number.value.ne(0.0 if number.is_float else 0)))
            yield

    def closed(self, term: Term, env: Env, *, kept: SqlType | None = None) -> Number:
        """Write the sum that `term` is where `env` binds all its outputs, in the type in which it is `kept`."""
        lane = number_lane(kept or self.host.typing.number(term, self.types))
        pair = Pair(self.body) if lane.held.kernel is F64 else None
        total = self.body.let(Literal(lane.held.kernel, 0), "total") if pair is None else pair.high

        def add(_: Env, numbers: list[Number]) -> None:
            with self.summand(numbers, lane) as number:
                if pair is None:
                    self.increase(total, number)
                else:
                    pair.add(number.value)

        kept_interval = self._kept_interval(term, env)
        if kept_interval is None:
            self.run([term], env, add)
            return read_number(lane, total if pair is None else pair.value())
        interval, sums = kept_interval
        found = Intervals(self, interval, env).write(*sums, lambda number: add(env, [number]))
        with self.body.when(~found, likely=False):
            self.run([term.term if isinstance(term, AggSum) else term], env, add)
        return read_number(lane, total if pair is None else pair.value())

    def _kept_interval(self, term: Term, env: Env) -> tuple[KeyInterval, KeptSums] | None:
        """Return the sum over an interval that a term is, and where the sums are kept; None if it must loop."""
        interval = interval_of(term, env)
        sums = None if interval is None else kept_sums(self, interval)
        return None if interval is None or sums is None else (interval, sums)

    def run(self, factors: Sequence[Term], env: Env, then: Then, visits: Mapping[int, Local] = NO_VISITS) -> None:
        """Write the join of `factors`; `then` writes what happens for each binding, with the numbers to multiply.

        `then` must be additive: it may be reached several times for one binding, each time with a part of the value.

        Parameters
        ----------
        visits
            Places of reads among the factors, which are no products then: such a read gives no number, but sets the
            variable to where its row is.
        """
        flat = [part for factor in factors for part in factors_of(factor)]
        self._next(list(enumerate(flat)), env, [], then, visits)

    def _next(
        self, pending: list[tuple[int, Term]], env: Env, numbers: list[Number], then: Then, visits: Mapping[int, Local]
    ) -> None:
        if not pending:
            then(env, numbers)
            return
        chosen = next_factor(pending, env, self.host.batch)
        if chosen is None:
            missing = sorted(inputs(pending[0][1]) - env.keys())
            raise ValidationError(
                f"{', '.join(missing)} is not bound in {pending[0][1]}",
                hint="A variable must be bound by the trigger or by a factor to the left.",
            )
        rest = [candidate for candidate in pending if candidate is not chosen]
        place, factor = chosen

        def go_on(bound: Env, more: list[Number]) -> None:
            self._next(rest, bound, numbers + more, then, visits)

        if place in visits:
            assert isinstance(factor, MapRead)
            self.scan(self._visit(factor, visits[place]), factor.keys, env, go_on)
        else:
            self._factor(factor, env, go_on, not rest)

    # --- one factor -------------------------------------------------------------------------------------------------

    def _factor(self, term: Term, env: Env, then: Then, last: bool) -> None:
        match term:
            case Const(value, _) if not value and value is not False:
                return  # NULL and 0
            case Const() | Var() | Apply() | Cast() | MapEnd() | End():
                with self.evaluated(lambda coder: self.number_of(self.scalar(term, env, coder))) as number:
                    self._unless_zero(number, lambda: then(env, [number]))
            case Compare():
                compute = partial(self.scalar, term, env)
                with self.evaluated(compute) as holds, self.body.when(holds.value):
                    then(env, [])
            case MapRead(keys=keys):
                self.scan(self.read_source(term), keys, env, then)
            case Batch(name, variables) | Atom(name, variables):
                self._base(name, variables, isinstance(term, Batch), env, then)
            case Lift(variable, inner):
                self._lift(variable, inner, env, then)
            case Exists(inner):
                self._exists(inner, env, then)
            case AggSum() | Sum():
                self._aggregate(term, env, then, last)
            case Product():
                self.run([term], env, then)
            case _:
                assert_never(term)

    def _aggregate(self, term: AggSum | Sum, env: Env, then: Then, last: bool) -> None:
        """Write an inner sum: shared, in place if it stands last, else into a variable or a map of its own."""
        free = tuple(name for name in outputs(term) if name not in env)
        if not free and self._kept_interval(term, env) is not None:
            number = self.closed(term, env)
            self._unless_zero(number, lambda: then(env, [number]))
        elif free and self._by_group(term, free, env, then):
            pass
        elif is_shareable(term, env, self.host.batch, self._loops > 0):
            self._shared(term, env, then)
        elif last:
            self._inline(term, env, then)
        elif not free:
            number = self.closed(term, env)
            self._unless_zero(number, lambda: then(env, [number]))
        else:
            self.scan(self.grouped(term, free, env), tuple(map(Var, free)), env, then)

    def _by_group(self, term: AggSum | Sum, free: tuple[str, ...], env: Env, then: Then) -> bool:
        """Write a sum over an interval for each group of an order, if a term is that; return whether it is."""
        interval = groups_of(term, free, env)
        sums = None if interval is None else kept_sums(self, interval)
        if interval is None or sums is None:
            return False
        for place in firsts_of(self, sums[0]):
            inner = dict(env)
            for position, key in enumerate(interval.read.keys):
                if position != interval.axis:
                    assert isinstance(key, Var)
                    inner[key.name] = self.key_at(sums[0].store, position, place)
            number = self.closed(term, inner)
            self._unless_zero(number, partial(then, inner, [number]))
        return True

    def _inline(self, term: AggSum | Sum, env: Env, then: Then) -> None:
        """Write an inner sum where it stands: its bindings are added one by one."""
        if isinstance(term, Sum):
            for part in term.parts:
                self.run([part], env, then)
            return
        group = term.group

        def outside(bound: Env, numbers: list[Number]) -> None:
            then({name: code for name, code in bound.items() if name in env or name in group}, numbers)

        self.run([term.term], env, outside)

    def _lift(self, variable: str, inner: Term, env: Env, then: Then) -> None:
        free = tuple(name for name in outputs(inner) if name not in env)
        if variable in env and inner is Var(variable):  # only says that the variable is needed (`hidden`)
            then(env, [])
            return

        def bind(bound: Env, value: Scalar) -> None:
            if variable in bound:
                with self.body.when(self.plain(bound).comparisons.compare("=", bound[variable], value)):
                    then(bound, [])
            else:
                then(bound | {variable: self._canonical(value)}, [])

        if isinstance(inner, (Const, Var, Apply, Cast, MapEnd, End)):
            with self.evaluated(partial(self.scalar, inner, env)) as value:
                bind(env, value)
        elif not free:
            self._bind_number(self.closed(inner, env), inner, lambda value: bind(env, value))
        else:
            source = self.grouped(inner, free, env)

            def each(bound: Env, numbers: list[Number]) -> None:
                self._bind_number(numbers[0], inner, lambda value: bind(bound, value))

            self.scan(source, tuple(map(Var, free)), env, each)

    def _bind_number(self, number: Number, term: Term, bind: Callable[[Scalar], None]) -> None:
        bind(self.scalar_of(number, self.host.typing.number(term, self.types)))

    def _canonical(self, value: Scalar) -> Scalar:
        """Return a scalar that is a key now: floats have one NaN and one zero."""
        if value.value.type is not F64:
            return value
        number = select(value.value.ne(value.value), Literal(F64, float("nan")), value.value + 0.0)
        return Scalar(value.type, self.body.let(number, "float"), value.null)

    def _exists(self, inner: Term, env: Env, then: Then) -> None:
        free = tuple(name for name in outputs(inner) if name not in env)
        if isinstance(inner, MapRead) and not any(isinstance(key, Range) for key in inner.keys):
            self._factor(inner, env, lambda bound, _: then(bound, []), False)
        elif not free:
            self._unless_zero(self.closed(inner, env), lambda: then(env, []))
        else:
            source = self.grouped(inner, free, env)
            self.scan(source, tuple(map(Var, free)), env, lambda bound, _: then(bound, []))

    def _base(self, name: str, variables: tuple[str, ...], is_batch: bool, env: Env, then: Then) -> None:
        keys = tuple(map(Var, variables))
        if name in self.host.batch:
            store = self.host.batch_store(name)
            source = LoopSource(store, self._reader(store, 0), is_batch=True)
        elif not is_batch and name in self.host.kept:
            store = self.host.store(self.host.kept[name])
            source = LoopSource(store, self._reader(store, 0))
        else:
            raise ValidationError(
                f"a statement reads the relation {name}",
                hint="Statements read maps; only ON BATCH triggers see the net change of their own relation.",
            )
        self.scan(source, keys, env, then)

    def read_source(self, read: MapRead) -> LoopSource:
        """Return what a read of a map loops over or looks up in."""
        store = self.host.store(read.map)
        if read.state == "CHANGED":
            return LoopSource(self.host.ahead(store), lambda body, place: self._differs(store, place))
        value = self._reader(store, self.host.column(read.map, read.column))
        return LoopSource(store, value, self.host.ahead(store) if read.state == "NEW" else None)

    def _visit(self, read: MapRead, visited: Local) -> LoopSource:
        """Return the source of a read that only sets a variable to where its row is."""
        store = self.host.store(read.map)

        def note(body: Body, place: Expr) -> Number:
            body.set(visited, place)
            return ONE

        return LoopSource(store, note, self.host.ahead(store) if read.state == "NEW" else None)

    def _reader(self, store: MapLayout, column: int) -> Callable[[Body, Expr], Number]:
        return lambda body, place: read_value(body, store, column, place)

    def _differs(self, store: MapLayout, place: Expr) -> Number:
        """Write whether an entry that the firing has written differs from what it was before."""
        body, shape = self.body, store.shape
        words = [body.load(I64, place, 8 * word) for word in range(shape.keys)]
        before = self.place_of(store, body.call(shape.find, self._record(store), *words, hint="before"))
        differs = body.let(i64(0), "differs")
        # Where there was none, row 0 stands in, whose values are 0.
        for word in range(store.value_words):
            offset = shape.value(word)
            body.set(differs, differs | (body.load(I64, place, offset) ^ body.load(I64, before, offset)))
        return Number(body.let(differs.ne(0).to(I64), "changed"))

    # --- sums in maps of their own, shared terms --------------------------------------------------------------------

    def grouped(self, term: Term, free: tuple[str, ...], env: Env) -> LoopSource:
        """Write the sums of `term` by the variables in `free` into a map made for the moment."""
        store = self.host.scratch(
            ("groups", self.host.next_scratch()),
            free,
            self._free_lanes(free),
            (self.host.typing.number(term, self.types),),
        )
        self.body.call(store.shape.clear, self._record(store))
        self.group_into(store, term, free, env)
        return LoopSource(store, self._reader(store, 0))

    def _free_lanes(self, free: Sequence[str]) -> tuple[Lane, ...]:
        return tuple(lane_of(self.types[name].type, self.types[name].nullable) for name in free)

    def group_into(self, store: MapLayout, term: Term, free: Sequence[str], env: Env) -> None:
        """Write the loops that add `term` by the variables in `free` to a map with one value column."""
        lane = store.values[0]

        def add(bound: Env, numbers: list[Number]) -> None:
            with self.summand(numbers, lane) as number:
                self.add_to_scratch(store, [bound[name] for name in free], {0: number})

        if isinstance(term, (AggSum, Sum)):  # this is where it is computed, shared or not
            self._inline(term, env, add)
        else:
            self.run([term], env, add)

    def add_to_scratch(self, store: MapLayout, keys: Sequence[Scalar], numbers: Mapping[int, Number]) -> None:
        """Write the adding of numbers to value columns of an entry of a map made for the moment."""
        body = self.body
        with self.fitting(store, keys) as words:
            row = body.call(store.shape.put, self._record(store), *words, hint="row")
            with body.when(row.eq(0), likely=False):
                self.host.no_memory(body, store)
            with body.otherwise():
                place = body.let(self.place_of(store, row & ROW), "place")
                if store.marks:
                    body.store(I64, place, store.shape.value(store.value_words), 1)
                for column, number in numbers.items():
                    lane = store.values[column]
                    self._add_at(place, store.shape.value(lane.word), lane.held, number)

    def _add_at(self, place: Expr, offset: int, held: ColumnStorage, number: Number) -> None:
        body, kernel = self.body, held.kernel
        before = body.load(kernel, place, offset, "before")
        if kernel is F64:
            total, rest = two_sum(body, before, number.value)
            body.store(F64, place, offset, total)
            body.store(F64, place, offset + 8, body.load(F64, place, offset + 8) + rest)
            return
        if held is ColumnStorage.BOXED:
            body.store(I64, place, offset, self.host.box(body, BoxOp.ADD, before, number.value))
            return
        after, overflow = body.checked("add", before, number.value, "after")
        with body.when(overflow, likely=False):
            self.report(Reason.OVERFLOW)
        with body.otherwise():
            body.store(kernel, place, offset, after)

    def _shared(self, term: Term, env: Env, then: Then) -> None:
        free = tuple(outputs(term))
        kept = self.host.typing.number(term, self.types)
        store = self.host.shared(term, free, self._free_lanes(free), kept, self)
        source = LoopSource(store, self._reader(store, 0))
        self.scan(source, tuple(map(Var, free)), env, then)

    def _leaf(self, term: Term, env: Env) -> Scalar:
        """A node of value context inside a scalar is its number; an end is one of its values."""
        if isinstance(term, (MapEnd, End)):
            return write_map_end(term, env, self) if isinstance(term, MapEnd) else write_end(term, env, self)
        return self.scalar_of(self.closed(term, env), self.host.typing.number(term, self.types))
