"""A whole program as one Python module: a function per trigger, per `:=` map and per indexed map.

A trigger's function works in stages, so that every `+=` reads the state before the event:

1. what the statements add is computed, into variables (all keys bound) or dicts (loops);
2. statements that loop, cannot fail, and write a map that no statement still to be computed reads, add while they loop;
3. the changes of stage 1 are added.

Only stage 1 evaluates what can fail, and catches it where it fails: see `cumulus.engine.attempts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cumulus.algebra import terms
from cumulus.algebra.scalar_code import Code, Pool, canonical, may_raise
from cumulus.algebra.scope import maps_of, variables_of
from cumulus.algebra.terms import Apply, Cast, Range, Term, children
from cumulus.catalog.schema import Column
from cumulus.engine import floats
from cumulus.engine.attempts import FAILED, PROBLEM, bounded, report
from cumulus.engine.failures import Sites
from cumulus.engine.hidden import separated
from cumulus.engine.numbers import NumberKind, Value, product
from cumulus.engine.sources import CHANGES, Shared
from cumulus.engine.storage import Store
from cumulus.engine.values import Env, Fit, Setting, TermCoder
from cumulus.engine.writer import Writer, identifier
from cumulus.errors import ValidationError
from cumulus.m3.program import On, Program, Statement, Trigger

Line = tuple[str, Any]
_VERBS = {On.INSERT: "on_insert", On.DELETE: "on_delete", On.BATCH: "on_batch"}


@dataclass(slots=True)
class Module:
    """The generated module.

    Parameters
    ----------
    lines
        Its text, each line with the statement that it belongs to (or None).
    triggers
        (what fires, relation) → name of the function.
    assigned
        Map → name of the function that computes its `:=` statements, in the order in which they must run, with the
        value columns that they give.
    sites
        What the failures that the code reports concern.
    fallible
        The functions that report failures.
    """

    lines: list[Line] = field(default_factory=list)
    triggers: dict[tuple[On, str], str] = field(default_factory=dict)
    assigned: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    sites: Sites = field(default_factory=Sites)
    fallible: set[str] = field(default_factory=set)

    @property
    def source(self) -> str:
        """The text."""
        return "\n".join(text for text, _ in self.lines) + "\n"

    def add(self, name: str, head: str, writer: Writer, shared: Shared, about: Any = None) -> None:
        """Take a function, after those for the shared terms that it calls."""
        for shared_head, inner in shared.functions:
            self.lines += [(shared_head, about), *inner.written(), ("", None)]
        self.lines += [(head, None), *writer.written(), ("", None)]
        if any(
            FAILED in text for each in (writer, *(each for _, each in shared.functions)) for _, text, _ in each.lines
        ):
            self.fallible.add(name)


class ModuleCoder:
    """Writes the module of one program over given stores."""

    def __init__(self, program: Program, stores: Mapping[str, Store], pool: Pool) -> None:
        self._program = program
        self._stores = stores
        self._pool = pool
        self._kept = dict(program.kept)
        self._names: set[str] = set()
        self._taken = {CHANGES, PROBLEM}
        for store in stores.values():
            self._taken |= {store.name, f"{store.name}_undo", f"enter_{store.name}", f"leave_{store.name}"}

    def write(self) -> Module:
        """Return the module; stores receive the indexes that it uses."""
        before = self._indexes()
        module = self._write()
        if self._indexes() != before:
            # Only now is it known which maps have an index to keep right.
            module = self._write()
        return module

    def _indexes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, positions) for name, store in self._stores.items() for positions in store.indexes]

    def _write(self) -> Module:
        module = Module()
        self._names = set()
        for store in self._stores.values():
            _index_functions(store, module)
        for trigger in self._program.triggers:
            if (trigger.on, trigger.relation) in module.triggers:
                raise ValidationError(f"two triggers ON {trigger.on} {trigger.relation}", hint="Join their statements.")
            name = self._function_name(f"{_VERBS[trigger.on]}_{identifier(trigger.relation)}")
            module.triggers[trigger.on, trigger.relation] = name
            self._trigger(trigger, name, module)
        for target, statements in _assignments(self._program).items():
            name = self._function_name(f"assign_{identifier(target)}")
            module.assigned[target] = (name, self._assignment(target, statements, name, module))
        return module

    def _function_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def _setting(self, name: str, batch: dict[str, tuple[Column, ...]], module: Module) -> Setting:
        shared = Shared(name, bool(batch), module.sites)
        return Setting(self._pool, self._stores, self._kept, batch, shared, self._taken)

    def _columns(self, trigger: Trigger) -> tuple[Column, ...]:
        """Return the columns of the trigger's relation; unknown types if it is not declared."""
        for relation in self._program.relations:
            if relation.name == trigger.relation:
                if trigger.on is not On.BATCH and len(trigger.variables) != len(relation.columns):
                    raise ValidationError(
                        f"ON {trigger.on}{trigger.relation} has {len(trigger.variables)} variables, "
                        f"the relation {len(relation.columns)} columns",
                        hint="Name one variable for each column.",
                    )
                return relation.columns
        return tuple(Column(name) for name in trigger.variables)

    def _trigger(self, trigger: Trigger, name: str, module: Module) -> None:
        columns = self._columns(trigger)
        writer = Writer(self._taken)
        if trigger.on is On.BATCH:
            setting = self._setting(name, {trigger.relation: columns}, module)
            env: Env = {}
            head = f"def {name}({CHANGES}):"
        else:
            setting = self._setting(name, {}, module)
            env = {}
            for variable, column in zip(trigger.variables, columns, strict=True):
                text = writer.fresh(variable)
                env[variable] = Code(text, column.type, not column.not_null)
                if column.type is None or column.type.is_float:
                    writer.line(f"{text} = {self._pool.bind(canonical, 'canonical')}({text})")
            head = f"def {name}({', '.join(env[variable].text for variable in trigger.variables)}):"
        coder = _StatementCoder(TermCoder(setting, writer), module.sites, _all_exact(columns))
        coder.write([_separated(s, env) for s in trigger.statements if s.op == "+="], env)
        module.add(name, head, writer, setting.shared)

    def _assignment(self, target: str, statements: list[Statement], name: str, module: Module) -> tuple[int, ...]:
        """Write the function that returns the new contents of a `:=` map, one dict per value column."""
        setting = self._setting(name, {}, module)
        writer = Writer(self._taken)
        coder = TermCoder(setting, writer)
        statement_coder = _StatementCoder(coder, module.sites, False)
        store = coder.store(target)
        columns, groups = [], []
        for statement in (_separated(statement, {}) for statement in statements):
            statement_coder.begin(statement)
            fit = statement_coder.fit(statement)
            columns.append(store.definition.column_index(statement.column))
            groups.append(writer.fresh(statement.column or "groups"))
            writer.line(f"{groups[-1]} = {{}}")
            if statement.keys:
                coder.group_into(groups[-1], statement.term, statement.keys, {}, fit)
            else:
                value = coder.closed(statement.term, {}, fit=fit)
                writer.line(f"{groups[-1]}[()] = {value.text}")
        writer.line(f"return ({', '.join(groups)},)")
        module.add(name, f"def {name}():", writer, setting.shared, statements[0])
        return tuple(columns)


class _StatementCoder:
    """Writes the `+=` statements of one trigger."""

    def __init__(self, coder: TermCoder, sites: Sites, exact_columns: bool) -> None:
        self._coder = coder
        self._sites = sites
        self._writer = coder.writer
        self._pool = coder.pool
        self._exact_columns = exact_columns

    def begin(self, statement: Statement) -> None:
        """Say that the lines that follow belong to a statement."""
        self._writer.about = statement
        self._writer.site = self._site(statement.map, self._column(statement))

    def _site(self, target: str, column: int) -> int:
        return self._sites.of((target, self._coder.store(target).definition.values[column].name))

    def write(self, statements: list[Statement], env: Env) -> None:
        """Write the three stages."""
        direct = self._direct(statements, env)
        points: dict[tuple[str, tuple[str, ...]], dict[int, list[str]]] = {}
        later: list[tuple[Statement, str]] = []
        for statement in statements:
            if id(statement) in direct:
                continue
            self.begin(statement)
            if all(key in env for key in statement.keys):
                value = self._coder.closed(statement.term, env, hint="delta", fit=self.fit(statement))
                columns = points.setdefault((statement.map, statement.keys), {})
                columns.setdefault(self._column(statement), []).append(self._delta(statement, value))
            else:
                later.append((statement, self._buffered(statement, env)))
        for statement in statements:
            if id(statement) in direct:
                self.begin(statement)
                self._add_in_loop(statement, env)
        self._writer.about = None
        for (target, keys), columns in points.items():
            self._add_point(self._coder.store(target), keys, columns, env)
        for statement, groups in later:
            key, delta = self._writer.fresh("key"), self._writer.fresh("delta")
            with self._writer.block(f"for {key}, {delta} in {groups}.items():"), self._writer.block(f"if {delta}:"):
                self._add(self._coder.store(statement.map), key, {self._column(statement): delta})

    def _direct(self, statements: list[Statement], env: Env) -> set[int]:
        """Return (by identity) the statements that add while they loop: each binding is one entry of the target.

        By identity, since of two equal statements one may run before a loop that reads their target, and one not.
        """
        candidates = [
            statement
            for statement in statements
            if not all(key in env for key in statement.keys)
            and variables_of(statement.term) - env.keys() <= set(statement.keys)
            and self._is_total(statement)
        ]
        chosen: set[int] = set()
        read: set[str] = set()
        for statement in reversed(candidates):  # the last one to loop only has its own reads to respect
            if statement.map not in read | maps_of(statement.term):
                chosen.add(id(statement))
                read |= maps_of(statement.term)
        # What is chosen runs after everything else was computed, so only the chosen ones matter to each other.
        return chosen

    def _is_total(self, statement: Statement) -> bool:
        """Whether computing the statement and adding its values cannot fail."""
        stores = [self._coder.store(name) for name in (*maps_of(statement.term), statement.map)]
        return (
            self._exact_columns
            and not may_raise(statement.term)
            and not _has_scalar_numbers(statement.term)
            and not any(store.floats for store in stores)
            and all(_all_exact((*store.definition.keys, *store.definition.values)) for store in stores)
        )

    def _column(self, statement: Statement) -> int:
        return self._coder.store(statement.map).definition.column_index(statement.column)

    def fit(self, statement: Statement) -> Fit:
        """Return what makes a number fit the column that a statement adds to."""
        is_float = self._column(statement) in self._coder.store(statement.map).floats

        def fit(value: Value) -> Value:
            if value.kind is NumberKind.ANY and is_float:
                return Value(f"{self._pool.bind(floats.finite, 'finite')}({value.text})", NumberKind.FLOAT)
            if value.kind is NumberKind.ANY or (value.kind is NumberKind.FLOAT and not is_float):
                return value._replace(text=f"{self._pool.bind(floats.exact, 'exact')}({value.text})")
            return value

        return fit

    def _delta(self, statement: Statement, value: Value) -> str:
        """Return the name of what a statement adds, as a number of the column it goes to."""
        if self._as_column(statement, value.kind):
            self._writer.line(f"{value.text} = float({value.text})")
        return value.text

    def _as_column(self, statement: Statement, kind: NumberKind) -> bool:
        """Whether numbers of a kind must still be made floats for the column that they are added to."""
        if self._column(statement) in self._coder.store(statement.map).floats:
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
        store = self._coder.store(statement.map)

        def add(bound: Env, values: list[Value]) -> None:
            delta = self._writer.fresh("delta")
            self._writer.line(f"{delta} = {product(values, self._pool).text}")
            with self._writer.block(f"if {delta}:"):
                key = self._key(store, [bound[name].text for name in statement.keys])
                self._add(store, key, {self._column(statement): delta})

        self._coder.run([statement.term], env, add)

    def _add_point(self, store: Store, keys: tuple[str, ...], columns: dict[int, list[str]], env: Env) -> None:
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

    def _key(self, store: Store, parts: list[str]) -> str:
        """Return a name or constant for a packed key."""
        if len(parts) != store.width:
            raise ValidationError(f"map {store.definition.name} has {store.width} keys, not {len(parts)}")
        if len(parts) <= 1:
            return parts[0] if parts else "()"
        name = self._writer.fresh("key")
        self._writer.line(f"{name} = ({', '.join(parts)})")
        return name

    def _add(self, store: Store, key: str, deltas: dict[int, str]) -> None:
        """Write what adds `deltas` (by value column) to the entry at `key`."""
        write = self._writer.line
        old = self._writer.fresh("old")
        write(f"{old} = {store.name}.get({key})")
        write(f"{store.name}_undo.setdefault({key}, {old})")
        with self._writer.block(f"if {old} is None:"):
            for column in store.floats:
                if column in deltas:
                    self._told(store, column, deltas[column])
            write(f"{store.name}[{key}] = {self._first(store, deltas)}")
            if store.indexes:
                write(f"enter_{store.name}({key})")
        with self._writer.block("else:"):
            if store.flat:
                write(f"{old} += {deltas[0]}")
                kept, entry = old, old
            else:
                kept, entry = self._sums(store, old, deltas)
            with self._writer.block(f"if {kept}:"):
                write(f"{store.name}[{key}] = {entry}")
            with self._writer.block("else:"):
                write(f"del {store.name}[{key}]")
                if store.indexes:
                    write(f"leave_{store.name}({key})")

    def _first(self, store: Store, deltas: dict[int, str]) -> str:
        if store.flat:
            return deltas[0]
        parts = []
        for column in range(len(store.definition.values)):
            if column not in store.floats:
                parts.append(deltas.get(column, "0"))
            else:
                self._pool.names.setdefault("_ZERO_CELL", floats.ZERO_CELL)
                parts.append(self._cell("_ZERO_CELL", deltas[column]) if column in deltas else "_ZERO_CELL")
        return f"({', '.join(parts)},)"

    def _cell(self, cell: str, delta: str) -> str:
        return f"{self._pool.bind(floats.add_to_cell, 'add_to_cell')}({cell}, {delta})"

    def _told(self, store: Store, column: int, number: str) -> None:
        """Write that an overflow of a sum is reported; readers get an error until the entry is gone."""
        self._writer.site = self._site(store.definition.name, column)
        problem = self._pool.bind(floats.NOT_FINITE, "not_finite")
        self._writer.line(f"if not {bounded(number, self._pool)}: {report(self._writer, problem)}")

    def _sums(self, store: Store, old: str, deltas: dict[int, str]) -> tuple[str, str]:
        """Write the new value columns; return the test that the entry stays, and the entry."""
        names = [self._writer.fresh(column.name) for column in store.definition.values]
        self._writer.line(f"{', '.join(names)}, = {old}")
        for column, delta in deltas.items():
            name = names[column]
            if column in store.floats:
                self._writer.line(f"{name} = {self._cell(name, delta)}")
                self._told(store, column, f"{name}[0]")
            else:
                self._writer.line(f"{name} += {delta}")
        is_rest = self._pool.bind(floats.is_rest, "is_rest") if store.floats else ""
        first = [] if store.count is None else [store.count]
        order = [*first, *(column for column in range(len(names)) if column not in first)]
        tests = [f"not {is_rest}({names[i]})" if i in store.floats else names[i] for i in order]
        return " or ".join(tests), f"({', '.join(names)},)"


def _separated(statement: Statement, env: Env) -> Statement:
    return replace(statement, term=separated(statement.term, frozenset(env)))


def _all_exact(columns: tuple[Column, ...]) -> bool:
    return all(column.type is not None and not column.type.is_float for column in columns)


def _has_scalar_numbers(term: Term | Range) -> bool:
    """Whether a function or cast gives a number whose type only shows when it runs."""
    return isinstance(term, (Apply, Cast)) or any(_has_scalar_numbers(child) for child in children(term))


def _assignments(program: Program) -> dict[str, list[Statement]]:
    """Return the `:=` statements by map, a map before those that read it."""
    found: dict[str, dict[Statement, None]] = {}
    for trigger in program.triggers:
        for statement in trigger.statements:
            if statement.op == ":=":
                found.setdefault(statement.map, {})[statement] = None
    ordered: dict[str, list[Statement]] = {}

    def place(target: str, path: tuple[str, ...]) -> None:
        if target in ordered or target not in found:
            return
        if target in path:
            raise ValidationError(
                f"the := maps {', '.join((*path[path.index(target) :], target))} read each other",
                hint="A := map may read maps that += fills, and := maps before it.",
            )
        for statement in found[target]:
            for read in sorted(maps_of(statement.term)):
                place(read, (*path, target))
        ordered[target] = list(found[target])

    for target in found:
        place(target, ())
    return ordered


def _index_functions(store: Store, module: Module) -> None:
    """Write what keeps the indexes of a map right when an entry comes or goes."""
    if not store.indexes:
        return
    enter: list[Line] = [(f"def enter_{store.name}(key):", None)]
    leave: list[Line] = [(f"def leave_{store.name}(key):", None)]
    for positions in store.indexes:
        index = store.index_name(positions)
        part = f"key[{positions[0]}]" if len(positions) == 1 else f"({', '.join(f'key[{i}]' for i in positions)})"
        enter += [
            (f"    part = {part}", None),
            (f"    keys = {index}.get(part)", None),
            ("    if keys is None:", None),
            (f"        {index}[part] = {{key: None}}", None),
            ("    else:", None),
            ("        keys[key] = None", None),
        ]
        leave += [
            (f"    part = {part}", None),
            (f"    keys = {index}[part]", None),
            ("    del keys[key]", None),
            ("    if not keys:", None),
            (f"        del {index}[part]", None),
        ]
    module.lines += [*enter, ("", None), *leave, ("", None)]
