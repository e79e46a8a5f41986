"""Value context as Python source: the loops, look-ups and conditions of one term.

A product is a join. Its factors are put in an order in which every one finds its inputs bound: conditions and look-ups
as early as possible, then the net change of a batch, then slices of maps, whole maps last. What can fail (a division, a
cast) never moves before a factor that stood left of it, and where it fails the combination is 0
(`cumulus.engine.interpreter.error_guards`). Innermost stands the continuation, usually "add the product".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from cumulus.algebra import terms
from cumulus.algebra.float_sums import float_total
from cumulus.algebra.scope import inputs, outputs
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    factors_of,
)
from cumulus.catalog.schema import Column
from cumulus.engine.analysis.factor_order import is_shareable, next_factor
from cumulus.engine.interpreter.error_guards import assigned, holding, summand
from cumulus.engine.interpreter.extrema import ExtremumCoder
from cumulus.engine.interpreter.loops import DictSource, LoopCoder, LoopSources, Shared, Then
from cumulus.engine.interpreter.numbers import (
    Accumulator,
    Env,
    EnvScalars,
    NumberKind,
    Value,
    number_of,
    product,
    scalar_of,
)
from cumulus.engine.interpreter.store import DictMap
from cumulus.engine.interpreter.writer import Writer
from cumulus.errors import ValidationError
from cumulus.scalars import python_code
from cumulus.scalars.python_code import NamePool, PythonCode

Fit: TypeAlias = Callable[[Value], Value]
"""What makes a number fit the column that it is added to."""


@dataclass(frozen=True, slots=True)
class EmitContext:
    """Context of the emitted code of a term: what it may refer to.

    Parameters
    ----------
    kept
        Relation name → map that keeps its rows.
    batch
        The columns of the relation whose net change the trigger is fired with, by its name; empty for single events.
    shared
        Sub-terms that are evaluated once per firing.
    """

    pool: NamePool
    stores: Mapping[str, DictMap]
    kept: Mapping[str, str]
    batch: Mapping[str, tuple[Column, ...]]
    shared: Shared


class TermCoder:
    """Writes the code of terms into one function."""

    def __init__(self, setting: EmitContext, writer: Writer) -> None:
        self.setting = setting
        self.writer = writer
        self.pool = setting.pool
        self.sources = LoopSources(setting.stores, setting.pool, writer)
        self._scalars = EnvScalars(setting.pool, self._leaf)
        self._loops = LoopCoder(writer, setting.pool, self._scalars)
        self._ends = ExtremumCoder(writer, self.sources, self._scalars, self.grouped)

    # --- entry points -----------------------------------------------------------------------------------------------

    def closed(
        self, term: Term, env: Env, *, hint: str = "value", inline: bool = False, fit: Fit | None = None
    ) -> Value:
        """Write the code of the number that `term` is where `env` binds all its outputs; return it.

        `inline`: an inner sum is written here, shared or not. `fit` is applied to what is added.
        """
        name = self.writer.fresh(hint)
        start = self.writer.reserve()
        places: list[tuple[int, int]] = []
        sums = Accumulator(
            self.writer,
            lambda text, simple: f"{name} += {text}" if simple else f"{name} = {self._plus()}({name}, {text})",
            lambda text: f"{name}.append({text})",
        )

        def add(_: Env, values: list[Value]) -> None:
            with self._summand(values, fit) as value:
                sums.add(value)
                places.append((self.writer.depth, self._loops.depth))

        loops = self._loops.depth
        self._added(term, env, add, inline)
        if places == [(self.writer.depth, loops)]:  # a plain expression
            ((place, value),) = sums.lines
            self.writer.fill(place, f"{name} = {value.text}")
            return value._replace(text=name)
        kind = sums.finish()
        self.writer.fill(start, f"{name} = []" if kind is NumberKind.FLOAT else f"{name} = 0")
        if kind is NumberKind.FLOAT:
            self.writer.line(f"{name} = {self.pool.bind(float_total, 'float_total')}({name})")
        return Value(name, kind, sums.type)

    def _summand(self, values: list[Value], fit: Fit | None) -> AbstractContextManager[Value]:
        """Write what one combination adds."""
        value = product(values, self.pool)
        return summand(self.writer, self.pool, fit(value) if fit else value)

    def _added(self, term: Term, env: Env, then: Then, inline: bool) -> None:
        if inline and isinstance(term, (AggSum, Sum)):
            self._inline(term, env, then)
        else:
            self.run([term], env, then)

    def run(self, factors: Sequence[Term], env: Env, then: Then) -> None:
        """Write the join of `factors`; `then` writes what happens for each binding, with the values to multiply.

        `then` must be additive: it may be reached several times for one binding, each time with a part of the value.
        """
        flat: list[Term] = []
        for factor in factors:
            flat.extend(factors_of(factor))
        self._next(list(enumerate(flat)), env, [], then)

    # --- order of factors -------------------------------------------------------------------------------------------

    def _next(self, pending: list[tuple[int, Term]], env: Env, values: list[Value], then: Then) -> None:
        if not pending:
            then(env, values)
            return
        chosen = next_factor(pending, env, self.setting.batch)
        if chosen is None:
            missing = sorted(inputs(pending[0][1]) - env.keys())
            raise ValidationError(
                f"{', '.join(missing)} is not bound in {pending[0][1]}",
                hint="A variable must be bound by the trigger or by a factor to the left.",
            )
        rest = [candidate for candidate in pending if candidate is not chosen]
        if isinstance(chosen[1], Compare):
            # One `if` for all conditions that follow each other: Python allows a hundred levels of indentation.
            tests = [chosen[1]]
            while True:
                following = next_factor(rest, env, self.setting.batch)
                if following is None or not isinstance(following[1], Compare):
                    break
                tests.append(following[1])
                rest = [candidate for candidate in rest if candidate is not following]
            coder = self._scalars.coder(env)
            conditions = [coder.condition(test) for test in tests]
            with self._loops.when(
                " and ".join(f"({each})" for each in conditions) if tests[1:] else conditions[0], env
            ):
                self._next(rest, env, values, then)
            return
        self._factor(chosen[1], env, lambda bound, more: self._next(rest, bound, values + more, then), not rest)

    # --- one factor -------------------------------------------------------------------------------------------------

    def _factor(self, term: Term, env: Env, then: Then, last: bool) -> None:
        match term:
            case Const(value, _) if not value and value is not False:
                return  # NULL and 0
            case Const() | Var():
                then(env, [number_of(self._scalars.code(term, env), self.pool)])
            case Apply() | Cast() | MapExtremum() | Extremum():
                value = number_of(self._scalars.code(term, env), self.pool)
                name = self.writer.fresh("value")
                with holding(self.writer, self.pool, value.text, name=name):
                    then(env, [value._replace(text=name)])
            case Compare():
                raise AssertionError("`_next` writes conditions, all that follow each other at once")
            case MapRead(keys=keys):
                self._loops.scan(self.sources.of_read(term), keys, env, then)
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
        """Write an inner sum: shared, in place if it stands last, else into a variable or a dict."""
        free = [name for name in outputs(term) if name not in env]
        if is_shareable(term, env, self.setting.batch, self._loops.depth > 0):
            self._shared(term, env, then)
        elif last:
            self._inline(term, env, then)
        elif not free:
            value = self.closed(term, env)
            with self._loops.when(value.text):
                then(env, [value])
        else:
            self._loops.scan(self.grouped(term, free, env), tuple(map(Var, free)), env, then)

    def _inline(self, term: AggSum | Sum, env: Env, then: Then) -> None:
        """Write an inner sum where it stands: its bindings are added one by one."""
        if isinstance(term, Sum):
            for part in term.parts:
                self.run([part], env, then)
            return
        group = term.group

        def outside(bound: Env, values: list[Value]) -> None:
            then({name: code for name, code in bound.items() if name in env or name in group}, values)

        self.run([term.term], env, outside)

    def _lift(self, variable: str, inner: Term, env: Env, then: Then) -> None:
        free = [name for name in outputs(inner) if name not in env]

        if variable in env and inner is Var(variable):  # only says that the variable is needed (`hidden`)
            then(env, [])
            return

        def bind(bound: Env, code: PythonCode) -> None:
            if variable in bound:
                with self._loops.when(self._scalars.coder(bound).compare("=", bound[variable], code)):
                    then(bound, [])
                return
            name = self.writer.fresh(variable)
            text = code.text
            if code.type is None:
                text = f"{self.pool.bind(python_code.canonical_key, 'canonical_key')}({text})"
            elif code.type.is_float:
                text = f"{self.pool.bind(python_code.canonical, 'canonical')}({text})"
            with assigned(self.writer, self.pool, name, text):
                then(bound | {variable: code._replace(text=name)}, [])

        if isinstance(inner, (Const, Var, Apply, Cast, MapExtremum, Extremum)):
            bind(env, self._scalars.code(inner, env))
        elif not free:
            bind(env, scalar_of(self.closed(inner, env), self.pool))
        else:
            source = self.grouped(inner, free, env)
            self._loops.scan(
                source, tuple(map(Var, free)), env, lambda bound, values: bind(bound, scalar_of(values[0], self.pool))
            )

    def _exists(self, inner: Term, env: Env, then: Then) -> None:
        free = [name for name in outputs(inner) if name not in env]
        if isinstance(inner, MapRead) and not any(isinstance(key, Range) for key in inner.keys):
            self._factor(inner, env, lambda bound, _: then(bound, []), False)
        elif not free:
            with self._loops.when(self.closed(inner, env).text):
                then(env, [])
        else:
            source = self.grouped(inner, free, env)
            self._loops.scan(source, tuple(map(Var, free)), env, lambda bound, _: then(bound, []))

    def _base(self, name: str, variables: tuple[str, ...], is_batch: bool, env: Env, then: Then) -> None:
        keys = tuple(map(Var, variables))
        if name in self.setting.batch:
            self._loops.scan(self.sources.of_batch(self.setting.batch[name]), keys, env, then)
        elif not is_batch and name in self.setting.kept:
            self._loops.scan(self.sources.of_map(self.sources.store(self.setting.kept[name]), ""), keys, env, then)
        else:
            raise ValidationError(
                f"a statement reads the relation {name}",
                hint="Statements read maps; only ON BATCH triggers see the net change of their own relation.",
            )

    # --- sums in dicts, shared terms --------------------------------------------------------------------------------

    def grouped(self, term: Term, free: Sequence[str], env: Env) -> DictSource:
        """Write the sums of `term` by the variables in `free` into a dict."""
        name = self.writer.fresh("groups")
        self.writer.line(f"{name} = {{}}")
        return self.group_into(name, term, free, env)

    def group_into(self, name: str, term: Term, free: Sequence[str], env: Env, fit: Fit | None = None) -> DictSource:
        """Write the loops that add `term` by the variables in `free` to the dict `name`; `fit` as in `closed`."""
        codes: dict[str, PythonCode] = {}
        keys: list[str] = []

        def render(text: str, simple: bool) -> str:
            key = keys.pop(0)
            before = f"{name}.get({key}, 0)"
            return f"{name}[{key}] = " + (f"{before} + {text}" if simple else f"{self._plus()}({before}, {text})")

        sums = Accumulator(self.writer, render)

        def add(bound: Env, values: list[Value]) -> None:
            for variable in free:
                before = codes.get(variable)
                here = bound[variable]
                same = before is None or before.type == here.type
                codes[variable] = PythonCode(
                    "", here.type if same else None, here.nullable or bool(before and before.nullable)
                )
            texts = [bound[variable].text for variable in free]
            with self._summand(values, fit) as value:
                keys.append(texts[0] if len(texts) == 1 else f"({', '.join(texts)})")
                sums.add(value)

        self._added(term, env, add, True)
        kind = sums.finish()
        columns = tuple(
            Column(variable, codes[variable].type, not codes[variable].nullable)
            if variable in codes
            else Column(variable)
            for variable in free
        )
        return self.sources.of_sums(name, columns, kind)

    def _shared(self, term: Term, env: Env, then: Then) -> None:
        free = outputs(term)
        source = self.setting.shared.source(
            term, self.writer, self.sources, lambda writer: TermCoder(self.setting, writer)._shared_body(term, free)
        )
        if free:
            self._loops.scan(source, tuple(map(Var, free)), env, then)
            return
        value = source.value(source.text)
        with self._loops.when(value.text):
            then(env, [value])

    def _shared_body(self, term: Term, free: tuple[str, ...]) -> tuple[tuple[Column, ...], NumberKind]:
        """Write a function that returns the sums of a term by its outputs, or the number that it is."""
        if free:
            source = self.grouped(term, free, {})
            self.writer.line(f"return {source.text}")
            return source.columns, source.value("").kind
        value = self.closed(term, {}, inline=True)
        self.writer.line(f"return {value.text}")
        return (), value.kind

    def _leaf(self, term: Term, env: Env) -> PythonCode:
        """A node of value context inside a scalar is its number; an end is one of its values."""
        if isinstance(term, MapExtremum):
            return self._ends.map_end(term, env)
        if isinstance(term, Extremum):
            return self._ends.end(term, env)
        return scalar_of(self.closed(term, env), self.pool)

    def _plus(self) -> str:
        return self.pool.bind(terms.add, "add")
