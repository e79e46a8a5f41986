"""The `+=` statements of one trigger in the kernel, in the steps of `cumulus.engine.interpreter.statements`.

What the statements add is computed first, into variables or maps made for the moment; then statements that may add
while they loop run; then what was computed is added. Maps that others read as NEW or CHANGED are written beside
themselves before, and take that over at the end.

Statements that loop alike are written as one loop. The value columns of a map come from terms that differ in little:
`q[g].n += m[x, g].n`, `q[g].s += m[x, g].s * p`. Both visit the same rows of `m`, and both change the same entries of
`q`; so what they have in common is written once, and inside it what each of them adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TypeGuard

from cumulus.algebra.scope import ahead_of
from cumulus.algebra.terms import Apply, Cast, Const, MapRead, Term, Var, factors_of
from cumulus.catalog.types import SqlType
from cumulus.engine.analysis.steps import Step, direct_statements
from cumulus.engine.analysis.thresholds import StatementPair, statement_pairs
from cumulus.engine.native.code.adders import add_to_scratch, adder_of, setter_of
from cumulus.engine.native.code.loop_sources import Visit
from cumulus.engine.native.code.numbers import Env, number_lane, read_number, read_value
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.code.ranges import running_sums
from cumulus.engine.native.code.terms import TermEmitter
from cumulus.engine.native.code.thresholds import write_difference
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Number, Scalar, about, from_words
from cumulus.engine.native.kernel.language import I64, NOWHERE, Expr, Immediate, Local
from cumulus.engine.native.store.memory_layout import MapLayout, Status, ValueLane
from cumulus.engine.native.values.codec import BoxOp
from cumulus.errors import ValidationError
from cumulus.m3.access import stages as in_stages
from cumulus.m3.program import Statement
from cumulus.scalars.python_code import may_raise
from cumulus.scalars.typing import Typed


class StatementEmitter:
    """Writes the `+=` statements of one trigger."""

    def __init__(self, writer: ProgramWriter, body: Body, known: dict[str, Typed]) -> None:
        self._writer = writer
        self._body = body
        self._known = known
        self._ahead: frozenset[str] = frozenset()
        self._pairs: dict[int, StatementPair] = {}
        """By the identity of the statement that stands for both."""

    def write(self, statements: Sequence[Statement], env: Env) -> None:
        """Write the statements."""
        self._ahead = frozenset[str]().union(*(ahead_of(statement.term) for statement in statements))
        self._pairs, statements = statement_pairs(statements, env, self._is_ordered)
        stages = in_stages(statements)
        if stages is None:
            raise ValidationError("the statements of a trigger wait for each other's NEW or CHANGED maps")
        # A failure leaves nothing half done: the journal has it.
        direct = direct_statements(statements, env, self._ahead)
        waiting: list[Step[Number, MapLayout]] = []
        for stage in stages:
            step = self._computed([each for each in stage if id(each) not in direct], env)
            self._add_step(step.only(self._ahead), env)
            waiting.append(step.without(self._ahead))
        for group in self._fused([each for each in statements if id(each) in direct]):
            with about(group.map):
                self._add_in_loop(group, env)
        for step in waiting:
            self._add_step(step, env)
        for name in sorted(self._ahead & {statement.map for statement in statements}):
            self._take_over(self._writer.store(name))

    def _is_ordered(self, pair: StatementPair) -> bool:
        are_kept = all(running_sums(self._writer, lifts) is not None for lifts in pair.running)
        return are_kept and self._writer.store(pair.read.map).keys[pair.axis].is_ordered

    def _fused(self, statements: Sequence[Statement]) -> list[FusedStatements]:
        """Return statements that loop alike in groups; a pair stays alone."""
        groups = [group for each in statements if id(each) in self._pairs for group in fuse_loops([each])]
        return [*groups, *fuse_loops(each for each in statements if id(each) not in self._pairs)]

    def _site(self, statement: Statement) -> int:
        column = self._writer.program.map(statement.map).values[self._column(statement)].name
        return self._writer.sites.of((statement.map, column))

    def _coder(self, group: FusedStatements) -> TermEmitter:
        """Return a coder for what statements have in common; what fails there is wrong in all of them."""
        site = self._site(group.statements[0])
        if len(group.statements) > 1:
            site = self._writer.sites.shared()
            for statement in group.statements:
                self._writer.sites.used(site, self._site(statement))
        types: dict[str, Typed] = {}
        for statement in group.statements:
            types |= self._writer.typing.variables(statement.term, self._known)
        return TermEmitter(self._writer, self._body, types, site)

    def _column(self, statement: Statement) -> int:
        return self._writer.column(statement.map, statement.column)

    # --- computing --------------------------------------------------------------------------------------------------

    def _computed(self, statements: Sequence[Statement], env: Env) -> Step[Number, MapLayout]:
        step: Step[Number, MapLayout] = Step({}, [])
        for group in self._fused(statements):
            with about(group.map):
                self._compute(group, env, step)
        return step

    def _compute(self, group: FusedStatements, env: Env, step: Step[Number, MapLayout]) -> None:
        coder, store = self._coder(group), self._writer.store(group.map)
        columns = {self._column(each): number_lane(self._type(store, each)) for each in group.statements}
        if all(key in env for key in group.keys):
            totals = {column: self._zero(lane, "total") for column, lane in columns.items()}

            def increase(_: Env, numbers: dict[int, Number]) -> None:
                for column, number in numbers.items():
                    coder.evaluator.increase(totals[column], number)

            self._run(group, coder, env, columns, increase)
            point = step.points.setdefault((group.map, group.keys), {})
            for column, total in totals.items():
                point.setdefault(column, []).append(read_number(columns[column], total))
            return
        free = tuple(dict.fromkeys(group.keys))
        lanes = tuple(store.keys[group.keys.index(name)] for name in free)
        types = [self._type(store, each) for each in group.statements]
        groups = self._writer.scratch(("added", self._writer.next_scratch()), free, lanes, types)
        self._body.call(groups.shape.clear, self._writer.record(groups))

        def add(bound: Env, numbers: dict[int, Number]) -> None:
            add_to_scratch(coder.scanner, groups, [bound[name] for name in free], dict(enumerate(numbers.values())))

        self._run(group, coder, env, columns, add)
        step.loops.append((group.statements, groups))

    def _type(self, store: MapLayout, statement: Statement) -> SqlType:
        found = store.values[self._column(statement)].type
        assert found is not None
        return found

    def _zero(self, lane: ValueLane, hint: str) -> Local:
        return self._body.let(Immediate(lane.held.kernel, 0), hint)

    def _run(
        self,
        group: FusedStatements,
        coder: TermEmitter,
        env: Env,
        lanes: Mapping[int, ValueLane],
        then: Callable[[Env, dict[int, Number]], None],
    ) -> None:
        """Write the loops of a group; `then` writes what happens at each binding with what it adds to each column."""
        body = self._body
        visits = [self._visit(reads) for reads in zip(*group.reads, strict=True)]
        rows = [number for number, factor in enumerate(group.common) if is_row(factor)] if visits else []

        def leaf(bound: Env, numbers: list[Number]) -> None:
            deltas: dict[int, Number] = {}
            for statement, reads, scalars in zip(group.statements, group.reads, group.scalars, strict=True):
                column = self._column(statement)
                delta = self._zero(lanes[column], "delta")
                mine = coder.at_site(self._site(statement)).evaluator
                own = [self._value(read, visit.place) for read, visit in zip(reads, visits, strict=True)]
                own += [mine.number(scalar, bound) for scalar in scalars]
                with mine.all_but_zero(own), mine.summand([*numbers, *own], lanes[column]) as number:
                    if len(group.statements) == 1:
                        then(bound, {column: number})
                    body.set(delta, number.value)
                deltas[column] = read_number(lanes[column], delta)
            if len(group.statements) > 1:
                then(bound, deltas)

        pair = self._pairs.get(id(group.statements[0]))
        if pair is not None:
            write_difference(coder, pair, env, leaf)
            return
        coder.run(group.common, env, leaf, dict(zip(rows, visits, strict=True)))

    def _visit(self, reads: Iterable[MapRead]) -> Visit:
        """Return the visit of a row of which some statements read a column each."""
        columns = dict.fromkeys(self._writer.column(read.map, read.column) for read in reads)
        return Visit(self._body.let(NOWHERE, "visited"), tuple(columns))

    def _value(self, read: MapRead, place: Expr) -> Number:
        return read_value(self._body, self._writer.store(read.map), self._writer.column(read.map, read.column), place)

    # --- adding -----------------------------------------------------------------------------------------------------

    def _add_in_loop(self, group: FusedStatements, env: Env) -> None:
        coder, store = self._coder(group), self._writer.store(group.map)
        lanes = {self._column(each): store.values[self._column(each)] for each in group.statements}

        def add(bound: Env, numbers: dict[int, Number]) -> None:
            with self._body.when(_any_differs(numbers.values())):
                self._add(coder, store, [bound[name] for name in group.keys], numbers)

        self._run(group, coder, env, lanes, add)

    def _add_step(self, step: Step[Number, MapLayout], env: Env) -> None:
        for (target, keys), columns in step.points.items():
            store = self._writer.store(target)
            coder = TermEmitter(self._writer, self._body, self._known, 0)
            deltas = {column: self._summed(numbers, store) for column, numbers in columns.items()}
            with self._body.when(_any_differs(deltas.values())):
                self._add(coder, store, [env[name] for name in keys], deltas)
        for statements, groups in step.loops:
            self._add_groups(statements, groups)

    def _summed(self, numbers: list[Number], target: MapLayout) -> Number:
        found = numbers[0]
        for number in numbers[1:]:
            if found.is_float:
                found = Number(self._body.let(found.value + number.value, "delta"))
                continue
            if found.is_boxed:
                box = self._writer.box(self._body, BoxOp.ADD, found.value, number.value)
                found = Number(box, is_boxed=True)
                continue
            value, overflow = self._body.checked("add", found.value, number.value, "delta")
            with self._body.when(overflow, likely=False):
                self._writer.emit_abort(self._body, Status.OVERFLOW, target)
            found = Number(value, found.scale, found.bits)
        return found

    def _add_groups(self, statements: Sequence[Statement], groups: MapLayout) -> None:
        """Write the adding of sums in a map made for the moment."""
        body, store = self._body, self._writer.store(statements[0].map)
        coder = TermEmitter(self._writer, body, self._known, self._site(statements[0]))
        for place, _ in coder.scanner.rows_of(groups):
            deltas = {
                self._column(statement): read_value(body, groups, number, place)
                for number, statement in enumerate(statements)
            }
            with body.when(_any_differs(deltas.values())):
                parts = {
                    name: from_words(
                        body,
                        groups.keys[at],
                        [body.load(I64, place, 8 * word, "key") for word in groups.words_of(at)],
                    )
                    for at, name in enumerate(groups.key_names)
                }
                self._add(coder, store, [parts[name] for name in statements[0].keys], deltas)

    def _add(self, coder: TermEmitter, store: MapLayout, keys: Sequence[Scalar], deltas: dict[int, Number]) -> None:
        """Write the adding of numbers (by value column) to one entry."""
        columns = tuple(sorted(deltas))
        adder = adder_of(self._writer, store, columns, is_ahead=store.name in self._ahead)
        with coder.scanner.fitting(store, keys) as words:
            self._body.run(adder, CONTEXT, *words, *(deltas[column].value for column in columns))

    def _take_over(self, store: MapLayout) -> None:
        """Write the taking over of what stands beside a map."""
        body, ahead = self._body, self._writer.ahead(store)
        coder = TermEmitter(self._writer, body, self._known, 0)
        setter = setter_of(self._writer, store)
        for place, _ in coder.scanner.rows_of(ahead):
            keys = [body.load(I64, place, 8 * word, "key") for word in range(store.shape.keys)]
            values = [body.load(I64, place, ahead.shape.value(word), "value") for word in range(store.value_words)]
            body.run(setter, CONTEXT, *keys, *values)
        body.call(ahead.shape.clear, self._writer.record(ahead))


def _any_differs(numbers: Iterable[Number]) -> Expr:
    """Return whether a number is not 0."""
    return reduce(or_, (number.differs_from_zero for number in numbers))


@dataclass(frozen=True, slots=True)
class FusedStatements:
    """Statements that add to different value columns of the same entries of one map.

    Parameters
    ----------
    common
        The factors of all of them; a read of a map stands for the row that it visits.
    reads, scalars
        For each statement what it reads of these rows, in the order of the reads in `common`; and its own factors,
        which cannot fail.
    """

    statements: tuple[Statement, ...]
    common: tuple[Term, ...]
    reads: tuple[tuple[MapRead, ...], ...]
    scalars: tuple[tuple[Term, ...], ...]

    @property
    def map(self) -> str:
        """What is added to."""
        return self.statements[0].map

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the entries."""
        return self.statements[0].keys


def fuse_loops(statements: Iterable[Statement]) -> list[FusedStatements]:
    """Return statements in groups, each as large as it can be, in the order of their first ones.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse('''RELATION r(a INT); MAP m[a INT, b INT](n INT, s INT); MAP q[b INT](n INT, s INT, t INT);
    ... ON +r(a) { q[b].n += m[a, b].n; q[b].s += m[a, b].s * a; q[b].t += m[a, b].s * m[b, a].n }''')
    >>> [[each.column for each in group.statements] for group in fuse_loops(program.triggers[0].statements)]
    [['n', 's'], ['t']]
    """
    groups: dict[object, list[list[Statement]]] = {}
    order: list[list[Statement]] = []
    for statement in statements:
        similar = groups.setdefault(_skeleton(statement), [])
        for group in similar:
            if statement.column not in {each.column for each in group}:
                group.append(statement)
                break
        else:
            similar.append([statement])
            order.append(similar[-1])
    return [_fused(group) for group in order]


def _skeleton(statement: Statement) -> object:
    """Return what two statements share if they can be fused."""
    parts: list[object] = []
    for factor in factors_of(statement.term):
        if is_row(factor):
            parts.append((factor.map, factor.keys, factor.state))
        elif not _is_own(factor):
            parts.append(factor)
    return (statement.map, statement.keys, tuple(parts))


def is_row(factor: Term) -> TypeGuard[MapRead]:
    """Whether a factor stands for a number in a row."""
    return isinstance(factor, MapRead) and factor.state != "CHANGED"


def _is_own(factor: Term) -> bool:
    """Whether a factor is a number that only its statement needs to know, and that can always be computed."""
    return isinstance(factor, (Const, Var, Apply, Cast)) and not may_raise(factor)


def _fused(group: Sequence[Statement]) -> FusedStatements:
    if len(group) == 1:
        return FusedStatements(tuple(group), tuple(factors_of(group[0].term)), ((),), ((),))
    factors = [factors_of(statement.term) for statement in group]
    return FusedStatements(
        tuple(group),
        tuple(factor for factor in factors[0] if not _is_own(factor)),
        tuple(tuple(filter(is_row, each)) for each in factors),
        tuple(tuple(factor for factor in each if _is_own(factor)) for each in factors),
    )
