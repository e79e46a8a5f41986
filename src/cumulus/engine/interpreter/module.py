"""A whole program as one Python module: a function per trigger, per `:=` map and per indexed map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cumulus.catalog.schema import Column
from cumulus.engine.analysis.assignments import assignments
from cumulus.engine.analysis.separation import separated
from cumulus.engine.failures import ErrorSites
from cumulus.engine.interpreter.error_guards import FAILED, PROBLEM
from cumulus.engine.interpreter.loops import CHANGES, Shared, ahead_name
from cumulus.engine.interpreter.numbers import Env
from cumulus.engine.interpreter.statements import StatementCoder, all_exact
from cumulus.engine.interpreter.store import DictMap
from cumulus.engine.interpreter.terms import EmitContext, TermCoder
from cumulus.engine.interpreter.writer import Writer, identifier, unused_name
from cumulus.errors import ValidationError
from cumulus.m3.program import On, Program, Statement, Trigger
from cumulus.scalars.python_code import NamePool, PythonCode, canonical

Line = tuple[str, Any]
_VERBS = {On.INSERT: "on_insert", On.DELETE: "on_delete", On.BATCH: "on_batch"}


@dataclass(slots=True)
class GeneratedModule:
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
    sites: ErrorSites = field(default_factory=ErrorSites)
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

    def __init__(self, program: Program, stores: Mapping[str, DictMap], pool: NamePool) -> None:
        self._program = program
        self._stores = stores
        self._pool = pool
        self._kept = dict(program.kept)
        self._taken = {CHANGES, PROBLEM}
        for store in stores.values():
            self._taken |= {store.name, ahead_name(store)}
            self._taken |= {f"{store.name}_undo", f"enter_{store.name}", f"leave_{store.name}"}

    def write(self) -> GeneratedModule:
        """Return the module; stores receive the indexes that it uses."""
        before = self._indexes()
        module = self._write()
        if self._indexes() != before:
            # Only now is it known which maps have an index to keep right.
            module = self._write()
        return module

    def _indexes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, positions) for name, store in self._stores.items() for positions in store.indexes]

    def _write(self) -> GeneratedModule:
        module = GeneratedModule()
        names: set[str] = set()
        for store in self._stores.values():
            _index_functions(store, module)
        for trigger in self._program.triggers:
            if (trigger.on, trigger.relation) in module.triggers:
                raise ValidationError(f"two triggers ON {trigger.on} {trigger.relation}", hint="Join their statements.")
            name = unused_name(f"{_VERBS[trigger.on]}_{identifier(trigger.relation)}", names)
            module.triggers[trigger.on, trigger.relation] = name
            self._trigger(trigger, name, module)
        for target, statements in assignments(self._program).items():
            name = unused_name(f"assign_{identifier(target)}", names)
            module.assigned[target] = (name, self._assignment(target, statements, name, module))
        return module

    def _setting(self, name: str, batch: dict[str, tuple[Column, ...]], module: GeneratedModule) -> EmitContext:
        shared = Shared(name, CHANGES if batch else "", module.sites, self._taken)
        return EmitContext(self._pool, self._stores, self._kept, batch, shared)

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

    def _trigger(self, trigger: Trigger, name: str, module: GeneratedModule) -> None:
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
                env[variable] = PythonCode(text, column.type, not column.not_null)
                if column.type is None or column.type.is_float:
                    writer.line(f"{text} = {self._pool.bind(canonical, 'canonical')}({text})")
            head = f"def {name}({', '.join(env[variable].text for variable in trigger.variables)}):"
        coder = StatementCoder(TermCoder(setting, writer), module.sites, all_exact(columns))
        coder.write([_separated(s, env) for s in trigger.statements if s.op == "+="], env)
        module.add(name, head, writer, setting.shared)

    def _assignment(
        self, target: str, statements: list[Statement], name: str, module: GeneratedModule
    ) -> tuple[int, ...]:
        """Write the function that returns the new contents of a `:=` map, one dict per value column."""
        setting = self._setting(name, {}, module)
        writer = Writer(self._taken)
        coder = TermCoder(setting, writer)
        statement_coder = StatementCoder(coder, module.sites, False)
        store = coder.sources.store(target)
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


def _separated(statement: Statement, env: Env) -> Statement:
    return replace(statement, term=separated(statement.term, frozenset(env)))


def _index_functions(store: DictMap, module: GeneratedModule) -> None:
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
