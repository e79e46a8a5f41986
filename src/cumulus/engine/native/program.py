"""A program of M3 as a module of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from cumulus.algebra.typing import Typed
from cumulus.algebra.user import UserFunction
from cumulus.catalog.schema import Column
from cumulus.engine.failures import Sites
from cumulus.engine.hidden import separated
from cumulus.engine.native.adders import note_function
from cumulus.engine.native.body import Body, define
from cumulus.engine.native.calls import builtin_functions
from cumulus.engine.native.host import CONTEXT, Outside, ProgramHost
from cumulus.engine.native.kernel import I64, PTR, Function, Module
from cumulus.engine.native.lanes import Lane, NotNativeError, about, from_words
from cumulus.engine.native.layout import STATUS, Context, lanes_of
from cumulus.engine.native.maps import Shape, map_functions
from cumulus.engine.native.memory import GROW, RELEASE
from cumulus.engine.native.numbers import Env
from cumulus.engine.native.statements import StatementCoder
from cumulus.engine.native.tables import TABLE_FUNCTIONS
from cumulus.m3.program import On, Program, Trigger

_VERBS = {On.INSERT: "insert", On.DELETE: "delete", On.BATCH: "batch"}


@dataclass(slots=True)
class Written:
    """A program as code.

    Parameters
    ----------
    modules
        What all programs have, what all have that use a shape of map, and its own.
    context
        Where its data lie.
    triggers
        (what fires, relation) → the function's name: `(context, words of the event)` → the status.
    batches
        Relation → the function that adds a row to its net change, and the number of the store that this is in.
    events
        Relation → the lanes of an event's columns.
    outside
        The Python functions that it calls, in the order of their numbers.
    sites
        What its reports concern.
    """

    modules: tuple[Module, ...]
    context: Context
    triggers: dict[tuple[On, str], str]
    batches: dict[str, tuple[str, int]]
    events: dict[str, tuple[Lane, ...]]
    outside: list[Outside]
    sites: Sites


_BASE = Module([GROW, RELEASE, *TABLE_FUNCTIONS])


@cache
def _library(shape: Shape) -> Module:
    """Return what a shape of map needs."""
    return Module([*map_functions(shape), note_function(shape)])


def written(
    program: Program, functions: Mapping[str, UserFunction], indexes: Mapping[str, Sequence[tuple[int, ...]]]
) -> Written:
    """Return a program as code.

    Parameters
    ----------
    indexes
        Map → key columns, of indexes that are wanted beside those that triggers use.

    Raises
    ------
    NotNativeError
        If a part of it can only be interpreted.
    """
    context = Context()
    before: object = None
    while True:
        # The code tells which stores and indexes there are, and they tell where the code finds them.
        writer = _Writer(program, functions, context)
        for name, wanted in indexes.items():
            for places in wanted:
                context.stores[name].index(places)
        found = writer.write()
        if context.state == before:
            return found
        before = context.state
        context.settle()


class _Writer:
    def __init__(self, program: Program, functions: Mapping[str, UserFunction], context: Context) -> None:
        self._program = program
        self._host = ProgramHost(program, functions, context)

    def write(self) -> Written:
        triggers: dict[tuple[On, str], str] = {}
        functions: list[Function] = []
        for number, trigger in enumerate(self._program.triggers):
            for statement in trigger.statements:
                if statement.op != "+=":
                    raise NotNativeError("a := statement", (statement.map,))
            name = f"on_{_VERBS[trigger.on]}_{number}"
            triggers[trigger.on, trigger.relation] = name
            with about(*(statement.map for statement in trigger.statements)):
                functions.append(self._trigger(trigger, name))
        single = {
            (1 if trigger.on is On.INSERT else -1, trigger.relation): function
            for trigger, function in zip(self._program.triggers, functions, strict=True)
            if trigger.on is not On.BATCH
        }
        lanes = {relation.name: lanes_of(relation.columns) for relation in self._program.relations}
        for number, (relation, columns) in enumerate(lanes.items()):
            mine = {sign: function for (sign, name), function in single.items() if name == relation}
            functions += builtin_functions(self._host, number, relation, columns, mine)
        batches: dict[str, tuple[str, int]] = {}
        for relation in {trigger.relation: None for trigger in self._program.triggers if trigger.on is On.BATCH}:
            store = self._host.batch_store(relation)
            batches[relation] = (self._host.adder(store, (0,), False).name, store.number)
        context = self._host.context
        shapes = {store.shape.name: store.shape for store in context.stores.values()}
        return Written(
            (_BASE, *map(_library, shapes.values()), Module([*self._host.functions, *functions])),
            context,
            triggers,
            batches,
            lanes,
            self._host.outside,
            self._host.sites,
        )

    def _trigger(self, trigger: Trigger, name: str) -> Function:
        columns = self._host.relations[trigger.relation]
        if trigger.on is On.BATCH:
            return self._batch(trigger, name, columns)
        self._host.begin(name, {})
        lanes = lanes_of(columns)
        parameters = [(f"event{place}_{word}", I64) for place, lane in enumerate(lanes) for word in range(lane.words)]
        with define(name, [("context", PTR), *parameters], I64) as body:
            env: Env = {}
            known: dict[str, Typed] = {}
            for place, (variable, lane, column) in enumerate(zip(trigger.variables, lanes, columns, strict=True)):
                words = [body.parameter(f"event{place}_{word}") for word in range(lane.words)]
                env[variable] = from_words(body, lane, words)
                assert column.type is not None
                known[variable] = Typed(column.type, not column.not_null)
            self._statements(trigger, body, env, known)
        return body.function

    def _batch(self, trigger: Trigger, name: str, columns: tuple[Column, ...]) -> Function:
        self._host.begin(name, {trigger.relation: columns})
        with define(name, [("context", PTR)], I64) as body:
            self._statements(trigger, body, {}, {})
        return body.function

    def _statements(self, trigger: Trigger, body: Body, env: Env, known: dict[str, Typed]) -> None:
        statements = [
            replace(statement, term=separated(statement.term, frozenset(env))) for statement in trigger.statements
        ]
        with body.branch(CONTEXT.eq(CONTEXT)) as start:
            pass
        StatementCoder(self._host, body, known).write(statements, env)
        with body.inside(start):
            self._host.forget_shared(body)
        body.leave(body.load(I64, CONTEXT, STATUS))
