"""Value context in the kernel: the loops, look-ups and conditions of one term.

The order of the factors is the interpreter's (`cumulus.engine.analysis.factor_order`), and so is what a failure means:
what cannot be evaluated is 0, and reported. Sums are kept in words of a type that is known before
(`cumulus.engine.native.code.typing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from cumulus.algebra import terms
from cumulus.algebra.scope import inputs, outputs
from cumulus.algebra.terms import AggSum, MapRead, Range, Sum, Term, Var, factors_of
from cumulus.engine.analysis.factor_order import is_shareable, next_factor
from cumulus.engine.analysis.intervals import KeyInterval, groups_of, interval_of
from cumulus.engine.native.code import loop_sources
from cumulus.engine.native.code.adders import add_to_scratch
from cumulus.engine.native.code.extrema import write_end, write_map_end
from cumulus.engine.native.code.loop_sources import LoopSource, Visit
from cumulus.engine.native.code.loops import Scanner
from cumulus.engine.native.code.numbers import Env, Evaluator, Then, number_lane, read_number
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.code.ranges import Intervals, KeptSums, firsts_of, kept_sums
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Lane, Number, Scalar, lane_of
from cumulus.engine.native.kernel.language import F64, select
from cumulus.engine.native.kernel.language import Immediate as Literal
from cumulus.engine.native.store.compensated_sums import CompensatedSum
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.errors import ValidationError
from cumulus.scalars.typing import Typed

NO_VISITS: Mapping[int, Visit] = {}


class TermEmitter:
    """Writes the code of terms into one function."""

    def __init__(self, writer: ProgramWriter, body: Body, types: Mapping[str, Typed], site: int) -> None:
        self.writer, self.body = writer, body
        self.evaluator = Evaluator(writer, body, types, site, self._leaf)
        self.scanner = Scanner(self.evaluator)

    def at_site(self, site: int) -> TermEmitter:
        """Return one that writes at the same place, but whose failures come from another site."""
        found = TermEmitter(self.writer, self.body, self.evaluator.types, site)
        found.evaluator.row = self.evaluator.row
        return found

    def closed(self, term: Term, env: Env) -> Number:
        """Write the sum that `term` is where `env` binds all its outputs, in the type in which it is kept."""
        lane = number_lane(self.evaluator.number_type(term))
        pair = CompensatedSum(self.body) if lane.held.kernel is F64 else None
        total = self.body.let(Literal(lane.held.kernel, 0), "total") if pair is None else pair.high

        def add(_: Env, numbers: list[Number]) -> None:
            with self.evaluator.summand(numbers, lane) as number:
                if pair is None:
                    self.evaluator.increase(total, number)
                else:
                    pair.add(number.value)

        kept_interval = self._kept(interval_of(term, env))
        if kept_interval is None:
            self.run([term], env, add)
        else:
            interval, sums = kept_interval
            found = Intervals(self.scanner, self.closed, interval, env).write(*sums, lambda number: add(env, [number]))
            with self.body.when(~found, likely=False):
                self.run([term.term if isinstance(term, AggSum) else term], env, add)
        return read_number(lane, total if pair is None else pair.value())

    def _kept(self, interval: KeyInterval | None) -> tuple[KeyInterval, KeptSums] | None:
        """Return a sum over an interval, and where the sums are kept; None if there is none, or it must loop."""
        if interval is None:
            return None
        # An interval has no NULL, and a loop does.
        if self.writer.store(interval.read.map).keys[interval.axis].nullable and not interval.excludes_null:
            return None
        sums = kept_sums(self.writer, interval)
        return None if sums is None else (interval, sums)

    def run(self, factors: Sequence[Term], env: Env, then: Then, visits: Mapping[int, Visit] = NO_VISITS) -> None:
        """Write the join of `factors`; `then` writes what happens for each binding, with the numbers to multiply.

        `then` must be additive: it may be reached several times for one binding, each time with a part of the value.

        Parameters
        ----------
        visits
            Places of reads among the factors, which are no products then: such a read gives no number, but says where
            its row is, if there is something to read.
        """
        flat = [part for factor in factors for part in factors_of(factor)]
        self._next(list(enumerate(flat)), env, [], then, visits)

    def _next(
        self, pending: list[tuple[int, Term]], env: Env, numbers: list[Number], then: Then, visits: Mapping[int, Visit]
    ) -> None:
        if not pending:
            then(env, numbers)
            return
        chosen = next_factor(pending, env, self.writer.batch)
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
            source = loop_sources.visit_source(self.writer, factor, visits[place])
            self.scanner.scan(source, factor.keys, env, lambda bound, _: go_on(bound, []))
        else:
            self._factor(factor, env, go_on, not rest)

    # --- one factor -------------------------------------------------------------------------------------------------

    def _factor(self, term: Term, env: Env, then: Then, last: bool) -> None:
        match term:
            case terms.Const(value, _) if not value and value is not False:
                return  # NULL and 0
            case terms.Const() | Var() | terms.Apply() | terms.Cast() | terms.MapExtremum() | terms.Extremum():
                with self.evaluator.evaluated(partial(self.evaluator.number, term, env)) as number:
                    self.evaluator.unless_zero(number, lambda: then(env, [number]))
            case terms.Compare():
                compute = partial(self.evaluator.scalar, term, env)
                with self.evaluator.evaluated(compute) as holds, self.body.when(holds.value):
                    then(env, [])
            case MapRead(keys=keys):
                self.scanner.scan(loop_sources.read_source(self.writer, term), keys, env, then)
            case terms.Batch(name, variables) | terms.Atom(name, variables):
                source = loop_sources.relation_source(self.writer, name, is_batch=isinstance(term, terms.Batch))
                self.scanner.scan(source, tuple(map(Var, variables)), env, then)
            case terms.Lift(variable, inner):
                self._lift(variable, inner, env, then)
            case terms.Exists(inner):
                self._exists(inner, env, then)
            case AggSum() | Sum():
                self._aggregate(term, env, then, last)
            case terms.Product():
                self.run([term], env, then)
            case _:
                assert_never(term)

    def _aggregate(self, term: AggSum | Sum, env: Env, then: Then, last: bool) -> None:
        """Write an inner sum: shared, in place if it stands last, else into a variable or a map of its own."""
        free = tuple(name for name in outputs(term) if name not in env)
        if not free and self._kept(interval_of(term, env)) is not None:
            number = self.closed(term, env)
            self.evaluator.unless_zero(number, lambda: then(env, [number]))
        elif free and self._by_group(term, free, env, then):
            pass
        elif is_shareable(term, env, self.writer.batch, self.scanner.open_loops > 0):
            self._shared(term, env, then)
        elif last:
            self._inline(term, env, then)
        elif not free:
            number = self.closed(term, env)
            self.evaluator.unless_zero(number, lambda: then(env, [number]))
        else:
            self.scanner.scan(self.grouped(term, free, env), tuple(map(Var, free)), env, then)

    def _by_group(self, term: AggSum | Sum, free: tuple[str, ...], env: Env, then: Then) -> bool:
        """Write a sum over an interval for each group of an order, if a term is that; return whether it is."""
        kept = self._kept(groups_of(term, free, env))
        if kept is None:
            return False
        interval, sums = kept
        for place in firsts_of(self.scanner, sums[0]):
            inner = dict(env)
            for position, key in enumerate(interval.read.keys):
                if position != interval.axis:
                    assert isinstance(key, Var)
                    inner[key.name] = self.scanner.key_at(sums[0].store, position, place)
            number = self.closed(term, inner)
            self.evaluator.unless_zero(number, partial(then, inner, [number]))
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
                with self.body.when(self.evaluator.compare("=", bound[variable], value)):
                    then(bound, [])
            else:
                then(bound | {variable: self._canonical(value)}, [])

        if isinstance(inner, (terms.Const, Var, terms.Apply, terms.Cast, terms.MapExtremum, terms.Extremum)):
            with self.evaluator.evaluated(partial(self.evaluator.scalar, inner, env)) as value:
                bind(env, value)
        elif not free:
            self._bind_number(self.closed(inner, env), inner, lambda value: bind(env, value))
        else:
            source = self.grouped(inner, free, env)

            def each(bound: Env, numbers: list[Number]) -> None:
                self._bind_number(numbers[0], inner, lambda value: bind(bound, value))

            self.scanner.scan(source, tuple(map(Var, free)), env, each)

    def _bind_number(self, number: Number, term: Term, bind: Callable[[Scalar], None]) -> None:
        bind(self.evaluator.scalar_of(number, self.evaluator.number_type(term)))

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
            self.evaluator.unless_zero(self.closed(inner, env), lambda: then(env, []))
        else:
            source = self.grouped(inner, free, env)
            self.scanner.scan(source, tuple(map(Var, free)), env, lambda bound, _: then(bound, []))

    # --- sums in maps of their own, shared terms --------------------------------------------------------------------

    def grouped(self, term: Term, free: tuple[str, ...], env: Env) -> LoopSource:
        """Write the sums of `term` by the variables in `free` into a map made for the moment."""
        types = (self.evaluator.number_type(term),)
        store = self.writer.scratch(("groups", self.writer.next_scratch()), free, self._free_lanes(free), types)
        self.body.call(store.shape.clear, self.writer.record(store))
        self.group_into(store, term, free, env)
        return loop_sources.column_source(store)

    def _free_lanes(self, free: Sequence[str]) -> tuple[Lane, ...]:
        types = self.evaluator.types
        return tuple(lane_of(types[name].type, types[name].nullable) for name in free)

    def group_into(self, store: MapLayout, term: Term, free: Sequence[str], env: Env) -> None:
        """Write the loops that add `term` by the variables in `free` to a map with one value column."""
        lane = store.values[0]

        def add(bound: Env, numbers: list[Number]) -> None:
            with self.evaluator.summand(numbers, lane) as number:
                add_to_scratch(self.scanner, store, [bound[name] for name in free], {0: number})

        if isinstance(term, (AggSum, Sum)):  # this is where it is computed, shared or not
            self._inline(term, env, add)
        else:
            self.run([term], env, add)

    def _shared(self, term: Term, env: Env, then: Then) -> None:
        free = tuple(outputs(term))

        def write(store: MapLayout, body: Body, site: int) -> None:
            TermEmitter(self.writer, body, self.evaluator.types, site).group_into(store, term, free, {})

        kept = self.evaluator.number_type(term)
        store, function, site = self.writer.shared(term, free, self._free_lanes(free), kept, write)
        self.writer.sites.used(site, self.evaluator.site)
        self.body.run(function, CONTEXT)
        self.scanner.scan(loop_sources.column_source(store), tuple(map(Var, free)), env, then)

    def _leaf(self, term: Term, env: Env) -> Scalar:
        """A node of value context inside a scalar is its number; an end is one of its values."""
        if isinstance(term, terms.MapExtremum):
            return write_map_end(term, env, self.scanner)
        if isinstance(term, terms.Extremum):
            return write_end(term, env, self.scanner, self.grouped)
        return self.evaluator.scalar_of(self.closed(term, env), self.evaluator.number_type(term))
