"""The `+=` statements of one trigger in the kernel, in the steps of `cumulus.engine.adding`.

What the statements add is computed first, into variables or maps made for the moment; then statements that may add
while they loop run; then what was computed is added. Maps that others read as NEW or CHANGED are written beside
themselves before, and take that over at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.algebra.scope import ahead_of
from cumulus.algebra.typing import Typed
from cumulus.engine.native.body import Body
from cumulus.engine.native.host import CONTEXT, ProgramHost
from cumulus.engine.native.kernel import I64, Expr
from cumulus.engine.native.lanes import Number, Scalar, about, from_words
from cumulus.engine.native.layout import Status, Store
from cumulus.engine.native.numbers import Env, read_value
from cumulus.engine.native.terms import TermCoder
from cumulus.engine.steps import Step, direct_statements
from cumulus.errors import ValidationError
from cumulus.m3.program import Statement
from cumulus.m3.stages import stages as in_stages


class StatementCoder:
    """Writes the `+=` statements of one trigger.

    Parameters
    ----------
    host, body
        The program, and the trigger's function.
    known
        What is known of the event's variables.
    """

    def __init__(self, host: ProgramHost, body: Body, known: dict[str, Typed]) -> None:
        self._host = host
        self._body = body
        self._known = known
        self._ahead: frozenset[str] = frozenset()

    def write(self, statements: Sequence[Statement], env: Env) -> None:
        """Write the statements."""
        stages = in_stages(statements)
        if stages is None:
            raise ValidationError("the statements of a trigger wait for each other's NEW or CHANGED maps")
        self._ahead = frozenset[str]().union(*(ahead_of(statement.term) for statement in statements))
        # A failure leaves nothing half done: the journal has it.
        direct = direct_statements(statements, env, self._ahead)
        waiting: list[Step[Number, Store]] = []
        for stage in stages:
            step = self._computed([each for each in stage if id(each) not in direct], env)
            self._add_step(step.only(self._ahead), env)
            waiting.append(step.without(self._ahead))
        for statement in statements:
            if id(statement) in direct:
                with about(statement.map):
                    self._add_in_loop(statement, env)
        for step in waiting:
            self._add_step(step, env)
        for name in sorted(self._ahead & {statement.map for statement in statements}):
            self._settle(self._host.store(name))

    def _coder(self, statement: Statement) -> TermCoder:
        column = self._host.program.map(statement.map).values[self._column(statement)].name
        types = self._host.typing.variables(statement.term, self._known)
        return TermCoder(self._host, self._body, types, self._host.sites.of((statement.map, column)))

    def _column(self, statement: Statement) -> int:
        return self._host.column(statement.map, statement.column)

    def _kept(self, statement: Statement) -> Store:
        return self._host.store(statement.map)

    # --- computing --------------------------------------------------------------------------------------------------

    def _computed(self, statements: Sequence[Statement], env: Env) -> Step[Number, Store]:
        step: Step[Number, Store] = Step({}, [])
        for statement in statements:
            with about(statement.map):
                self._compute(statement, env, step)
        return step

    def _compute(self, statement: Statement, env: Env, step: Step[Number, Store]) -> None:
        coder = self._coder(statement)
        lane = self._kept(statement).values[self._column(statement)]
        assert lane.type is not None
        if all(key in env for key in statement.keys):
            number = coder.closed(statement.term, env, kept=lane.type)
            columns = step.points.setdefault((statement.map, statement.keys), {})
            columns.setdefault(self._column(statement), []).append(number)
            return
        free = tuple(dict.fromkeys(statement.keys))
        lanes = tuple(self._kept(statement).keys[statement.keys.index(name)] for name in free)
        groups = self._host.scratch(("added", self._host.next_scratch()), free, lanes, (lane.type,))
        self._body.call(groups.shape.clear, self._host.record(groups))
        coder.group_into(groups, statement.term, free, env)
        step.loops.append((statement, groups))

    # --- adding -----------------------------------------------------------------------------------------------------

    def _add_in_loop(self, statement: Statement, env: Env) -> None:
        coder = self._coder(statement)
        store, column = self._kept(statement), self._column(statement)

        def add(bound: Env, numbers: list[Number]) -> None:
            with coder.summand(numbers, store.values[column]) as number:
                self._add(coder, store, [bound[name] for name in statement.keys], {column: number})

        coder.run([statement.term], env, add)

    def _add_step(self, step: Step[Number, Store], env: Env) -> None:
        for (target, keys), columns in step.points.items():
            store = self._host.store(target)
            coder = TermCoder(self._host, self._body, self._known, 0)
            deltas = {column: self._summed(numbers, store) for column, numbers in columns.items()}
            some: Expr | None = None
            for delta in deltas.values():
                test = delta.value.ne(0.0 if delta.is_float else 0)
                some = test if some is None else some | test
            assert some is not None
            with self._body.when(some):
                self._add(coder, store, [env[name] for name in keys], deltas)
        for statement, groups in step.loops:
            self._add_groups(statement, groups, env)

    def _summed(self, numbers: list[Number], target: Store) -> Number:
        found = numbers[0]
        for number in numbers[1:]:
            if found.is_float:
                found = Number(self._body.let(found.value + number.value, "delta"))
                continue
            value, overflow = self._body.checked("add", found.value, number.value, "delta")
            with self._body.when(overflow, likely=False):
                self._host.useless(self._body, Status.OVERFLOW, target)
            found = Number(value, found.scale, found.bits)
        return found

    def _add_groups(self, statement: Statement, groups: Store, env: Env) -> None:
        """Write the adding of sums in a map made for the moment."""
        body, store = self._body, self._host.store(statement.map)
        coder = TermCoder(self._host, body, self._known, self._host.sites.of((statement.map, statement.column)))
        for place, _ in coder.rows_of(groups):
            delta = read_value(body, groups, 0, place)
            with body.when(delta.value.ne(0.0 if delta.is_float else 0)):
                parts = {
                    name: from_words(
                        body,
                        groups.keys[at],
                        [body.load(I64, place, 8 * word, "key") for word in groups.words_of(at)],
                    )
                    for at, name in enumerate(groups.key_names)
                }
                self._add(coder, store, [parts[name] for name in statement.keys], {self._column(statement): delta})

    def _add(self, coder: TermCoder, store: Store, keys: Sequence[Scalar], deltas: dict[int, Number]) -> None:
        """Write the adding of numbers (by value column) to one entry."""
        columns = tuple(sorted(deltas))
        adder = self._host.adder(store, columns, store.name in self._ahead)
        with coder.fitting(store, keys) as words:
            self._body.run(adder, CONTEXT, *words, *(deltas[column].value for column in columns))

    def _settle(self, store: Store) -> None:
        """Write the taking over of what stands beside a map."""
        body, ahead = self._body, self._host.ahead(store)
        coder = TermCoder(self._host, body, self._known, 0)
        setter = self._host.setter(store)
        for place, _ in coder.rows_of(ahead):
            keys = [body.load(I64, place, 8 * word, "key") for word in range(store.shape.keys)]
            values = [body.load(I64, place, ahead.shape.value(word), "value") for word in range(store.value_words)]
            body.run(setter, CONTEXT, *keys, *values)
        body.call(ahead.shape.clear, self._host.record(ahead))
