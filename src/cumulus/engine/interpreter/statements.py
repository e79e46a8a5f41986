"""The `+=` statements of one trigger as Python source.

A trigger's function works in steps, so that every `+=` reads the state before the event:

1. what the statements add is computed, into variables (all keys bound) or dicts (loops), in the order of
   `cumulus.m3.access`; to maps that others read as NEW or CHANGED it is added beside them
   (`cumulus.engine.interpreter.new_state`);
2. statements that loop, cannot fail, and write a map that no statement still to be computed reads, add while they loop;
3. the changes of step 1 are added.

Only step 1 evaluates what can fail, and catches it where it fails: see `cumulus.engine.interpreter.error_guards`.
"""

from __future__ import annotations

from cumulus.algebra import float_sums, terms
from cumulus.algebra.scope import ahead_of, maps_of
from cumulus.algebra.terms import Apply, Cast
from cumulus.catalog.schema import Column
from cumulus.engine.analysis.steps import Step, direct_statements
from cumulus.engine.failures import ErrorSites
from cumulus.engine.interpreter.error_guards import bounded, report
from cumulus.engine.interpreter.loops import ahead_name
from cumulus.engine.interpreter.numbers import Env, NumberKind, Value, product
from cumulus.engine.interpreter.store import DictMap
from cumulus.engine.interpreter.terms import Fit, TermCoder
from cumulus.engine.interpreter.writer import identifier
from cumulus.errors import ValidationError
from cumulus.m3.access import stages as in_stages
from cumulus.m3.infer import nodes
from cumulus.m3.program import Statement
from cumulus.scalars.python_code import may_raise


class StatementCoder:
    """Writes the `+=` statements of one trigger."""

    def __init__(self, coder: TermCoder, sites: ErrorSites, exact_columns: bool) -> None:
        self._coder = coder
        self._sites = sites
        self._writer = coder.writer
        self._pool = coder.pool
        self._exact_columns = exact_columns
        self._ahead: frozenset[str] = frozenset()
        """The maps that statements read as NEW or CHANGED."""

    def begin(self, statement: Statement) -> None:
        """Say that the lines that follow belong to a statement."""
        self._writer.about = statement
        self._writer.site = self._site(statement.map, self._column(statement))

    def _site(self, target: str, column: int) -> int:
        return self._sites.of((target, self._coder.sources.store(target).definition.values[column].name))

    def write(self, statements: list[Statement], env: Env) -> None:
        """Write the three steps."""
        stages = in_stages(statements)
        if stages is None:
            raise ValidationError("the statements of a trigger wait for each other's NEW or CHANGED maps")
        self._ahead = frozenset[str]().union(*(ahead_of(statement.term) for statement in statements))
        direct = direct_statements(statements, env, self._ahead, self._is_total)
        waiting: list[Step[str, str]] = []
        for stage in stages:
            step = self._computed([each for each in stage if id(each) not in direct], env)
            self._add_step(step.only(self._ahead), env)
            waiting.append(step.without(self._ahead))
        for statement in statements:
            if id(statement) in direct:
                self.begin(statement)
                self._add_in_loop(statement, env)
        self._writer.about = None
        for step in waiting:
            self._add_step(step, env)
        for name in sorted(self._ahead & {statement.map for statement in statements}):
            settle = self._pool.bind(self._coder.sources.store(name).settle, f"settle_{identifier(name)}")
            self._writer.line(f"{settle}()")

    def _computed(self, statements: list[Statement], env: Env) -> Step[str, str]:
        """Write what statements add."""
        step: Step[str, str] = Step({}, [])
        for statement in statements:
            self.begin(statement)
            if all(key in env for key in statement.keys):
                value = self._coder.closed(statement.term, env, hint="delta", fit=self.fit(statement))
                columns = step.points.setdefault((statement.map, statement.keys), {})
                columns.setdefault(self._column(statement), []).append(self._delta(statement, value))
            else:
                step.loops.append(((statement,), self._buffered(statement, env)))
        self._writer.about = None
        return step

    def _add_step(self, step: Step[str, str], env: Env) -> None:
        """Write the adding of what was computed."""
        for (target, keys), columns in step.points.items():
            self._add_point(self._coder.sources.store(target), keys, columns, env)
        for (statement,), groups in step.loops:
            key, delta = self._writer.fresh("key"), self._writer.fresh("delta")
            with self._writer.block(f"for {key}, {delta} in {groups}.items():"), self._writer.block(f"if {delta}:"):
                self._add(self._coder.sources.store(statement.map), key, {self._column(statement): delta})

    def _is_total(self, statement: Statement) -> bool:
        """Whether computing the statement and adding its values cannot fail."""
        stores = [self._coder.sources.store(name) for name in (*maps_of(statement.term), statement.map)]
        return (
            self._exact_columns
            and not may_raise(statement.term)
            # A function or cast may give a number whose type only shows when it runs.
            and not any(isinstance(node, (Apply, Cast)) for node in nodes(statement.term))
            and not any(store.floats for store in stores)
            and all(all_exact((*store.definition.keys, *store.definition.values)) for store in stores)
        )

    def _column(self, statement: Statement) -> int:
        return self._coder.sources.store(statement.map).definition.column_index(statement.column)

    def fit(self, statement: Statement) -> Fit:
        """Return what makes a number fit the column that a statement adds to."""
        is_float = self._column(statement) in self._coder.sources.store(statement.map).floats

        def fit(value: Value) -> Value:
            if value.kind is NumberKind.ANY and is_float:
                return Value(f"{self._pool.bind(float_sums.finite, 'finite')}({value.text})", NumberKind.FLOAT)
            if value.kind is NumberKind.ANY or (value.kind is NumberKind.FLOAT and not is_float):
                return value._replace(text=f"{self._pool.bind(float_sums.exact, 'exact')}({value.text})")
            return value

        return fit

    def _delta(self, statement: Statement, value: Value) -> str:
        """Return the name of what a statement adds, as a number of the column it goes to."""
        if self._as_column(statement, value.kind):
            self._writer.line(f"{value.text} = float({value.text})")
        return value.text

    def _as_column(self, statement: Statement, kind: NumberKind) -> bool:
        """Whether numbers of a kind must still be made floats for the column that they are added to."""
        if self._column(statement) in self._coder.sources.store(statement.map).floats:
            return kind is not NumberKind.FLOAT
        if kind is NumberKind.FLOAT:
            raise ValidationError(
                f"a DOUBLE is added to {statement.map}, whose column is exact",
                hint="Declare the value column DOUBLE, with a COUNT column beside it.",
            )
        return False

    def _buffered(self, statement: Statement, env: Env) -> str:
        """Compute a statement that loops into a dict; return its name."""
        groups = self._writer.fresh("groups")
        self._writer.line(f"{groups} = {{}}")
        source = self._coder.group_into(groups, statement.term, statement.keys, env, self.fit(statement))
        if self._as_column(statement, source.value("").kind):
            key, delta = self._writer.fresh("key"), self._writer.fresh("delta")
            with self._writer.block(f"for {key}, {delta} in {groups}.items():"):
                self._writer.line(f"{groups}[{key}] = float({delta})")
        return groups

    def _add_in_loop(self, statement: Statement, env: Env) -> None:
        store = self._coder.sources.store(statement.map)

        def add(bound: Env, values: list[Value]) -> None:
            delta = self._writer.fresh("delta")
            self._writer.line(f"{delta} = {product(values, self._pool).text}")
            with self._writer.block(f"if {delta}:"):
                key = self._key(store, [bound[name].text for name in statement.keys])
                self._add(store, key, {self._column(statement): delta})

        self._coder.run([statement.term], env, add)

    def _add_point(self, store: DictMap, keys: tuple[str, ...], columns: dict[int, list[str]], env: Env) -> None:
        """Write stage 3 for one entry, whose key the trigger binds."""
        deltas: dict[int, str] = {}
        for column, names in columns.items():
            deltas[column] = names[0]
            for name in names[1:]:
                plus = self._pool.bind(terms.add, "add")
                self._writer.line(f"{names[0]} = {plus}({names[0]}, {name})")
        with self._writer.block(f"if {' or '.join(deltas.values())}:"):
            key = self._key(store, [env[name].text for name in keys])
            self._add(store, key, deltas)

    def _key(self, store: DictMap, parts: list[str]) -> str:
        """Return a name or constant for a packed key."""
        if len(parts) != store.width:
            raise ValidationError(f"map {store.definition.name} has {store.width} keys, not {len(parts)}")
        if len(parts) <= 1:
            return parts[0] if parts else "()"
        name = self._writer.fresh("key")
        self._writer.line(f"{name} = ({', '.join(parts)})")
        return name

    def _add(self, store: DictMap, key: str, deltas: dict[int, str]) -> None:
        """Write what adds `deltas` (by value column) to the entry at `key`."""
        write = self._writer.line
        deltas = {column: self._finite(store, column, delta) for column, delta in deltas.items()}
        old = self._writer.fresh("old")
        is_ahead = store.definition.name in self._ahead

        def put(entry: str) -> None:
            write(f"{ahead_name(store)}.changed[{key}] = {entry}" if is_ahead else f"{store.name}[{key}] = {entry}")

        if is_ahead:
            write(f"{old} = {ahead_name(store)}.get({key})")
        else:
            write(f"{old} = {store.name}.get({key})")
            write(f"{store.name}_undo.setdefault({key}, {old})")
        with self._writer.block(f"if {old} is None:"):
            put(self._first(store, deltas))
            if store.indexes and not is_ahead:
                write(f"enter_{store.name}({key})")
        with self._writer.block("else:"):
            if store.flat:
                write(f"{old} += {deltas[0]}")
                kept, entry = old, old
            else:
                kept, entry = self._sums(store, old, deltas)
            with self._writer.block(f"if {kept}:"):
                put(entry)
            with self._writer.block("else:"):
                if is_ahead:
                    put("None")
                    return
                write(f"del {store.name}[{key}]")
                if store.indexes:
                    write(f"leave_{store.name}({key})")

    def _first(self, store: DictMap, deltas: dict[int, str]) -> str:
        if store.flat:
            return deltas[0]
        parts = []
        for column in range(len(store.definition.values)):
            if column not in store.floats:
                parts.append(deltas.get(column, "0"))
            else:
                self._pool.names.setdefault("_ZERO_CELL", float_sums.ZERO_CELL)
                parts.append(self._cell("_ZERO_CELL", deltas[column]) if column in deltas else "_ZERO_CELL")
        return f"({', '.join(parts)},)"

    def _finite(self, store: DictMap, column: int, delta: str) -> str:
        """Write that nothing is added, and why, if a number for a column of floats is a sum that is far itself."""
        if column not in store.floats:
            return delta
        name = self._writer.fresh("delta")
        self._writer.site = self._site(store.definition.name, column)
        problem = self._pool.bind(float_sums.NOT_FINITE, "not_finite")
        self._writer.line(f"{name} = {delta}")
        self._writer.line(f"if not {bounded(name, self._pool)}: {name} = {report(self._writer, problem)} or 0.0")
        return name

    def _cell(self, cell: str, delta: str) -> str:
        return f"{self._pool.bind(float_sums.add_to_cell, 'add_to_cell')}({cell}, {delta})"

    def _sums(self, store: DictMap, old: str, deltas: dict[int, str]) -> tuple[str, str]:
        """Write the new value columns; return the test that the entry stays, and the entry."""
        names = [self._writer.fresh(column.name) for column in store.definition.values]
        self._writer.line(f"{', '.join(names)}, = {old}")
        for column, delta in deltas.items():
            name = names[column]
            if column in store.floats:
                self._writer.line(f"{name} = {self._cell(name, delta)}")
            else:
                self._writer.line(f"{name} += {delta}")
        is_rest = self._pool.bind(float_sums.is_rest, "is_rest") if store.floats else ""
        first = [] if store.count is None else [store.count]
        order = [*first, *(column for column in range(len(names)) if column not in first)]
        tests = [f"not {is_rest}({names[i]})" if i in store.floats else names[i] for i in order]
        return " or ".join(tests), f"({', '.join(names)},)"


def all_exact(columns: tuple[Column, ...]) -> bool:
    """Whether all columns are known not to hold floats."""
    return all(column.type is not None and not column.type.is_float for column in columns)
