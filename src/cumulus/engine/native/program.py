"""A program of M3 as a module of the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from cumulus.algebra.scope import variables_of
from cumulus.catalog.events import UPSERT
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import INTEGER, VARCHAR
from cumulus.engine.analysis.assignments import assignments
from cumulus.engine.analysis.intervals import with_intervals
from cumulus.engine.analysis.missing_triggers import come_one_by_one
from cumulus.engine.analysis.separation import separated
from cumulus.engine.analysis.signs import SIGN, joined_triggers
from cumulus.engine.native.code.adders import adder_of
from cumulus.engine.native.code.assignments import assign_function
from cumulus.engine.native.code.numbers import Env
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.code.statements import StatementEmitter
from cumulus.engine.native.code.undo_log import journal_functions, notes_function, touched_function, undo_function
from cumulus.engine.native.intake import python_rows
from cumulus.engine.native.intake.builtin import builtin_function
from cumulus.engine.native.intake.key_checks import KeyChecks
from cumulus.engine.native.intake.streams import fetch_functions, stream_function
from cumulus.engine.native.intake.upserts import UPSERT_ROWS, UPSERTS, upsert_function, upserts_function
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import NotNativeError, Scalar, about, from_words
from cumulus.engine.native.kernel.language import I64, PTR, Function, Module, Type, i64
from cumulus.engine.native.kernel.memory import MEMORY_FUNCTIONS
from cumulus.engine.native.scalars.python_functions import PythonFunction
from cumulus.engine.native.store.compensated_sums import FAR_FUNCTIONS
from cumulus.engine.native.store.hash_tables import TABLE_FUNCTIONS
from cumulus.engine.native.store.maps import map_functions
from cumulus.engine.native.store.memory_layout import STATUS, ContextLayout, EventLane, event_words, lanes_of
from cumulus.engine.native.store.row_layout import RowLayout
from cumulus.engine.native.store.text_table import TEXT_FUNCTIONS
from cumulus.explain.lineage import Place
from cumulus.m3.program import On, Program, Statement, Trigger
from cumulus.m3.view_reads import reads_of, top_of
from cumulus.scalars.typing import Typed
from cumulus.scalars.user import UserFunction

_SPARE = 64
"""So many rows more than twice those that a view shows are kept in its order, so that all are rarely looked at."""
_VERBS = {On.INSERT: "insert", On.DELETE: "delete", On.BATCH: "batch"}


@dataclass(frozen=True, slots=True)
class CodePlan:
    """What must be known of a program's code to run it.

    Parameters
    ----------
    context
        Where its data lie.
    triggers
        (what fires, relation) → the function's name: `(context, words of the event)` → the status.
    assigns
        Map → the function that runs its `:=` statements, in the order in which they must run.
    batches
        Relation → the function that adds a row to its net change, and the number of the store that this is in.
    events
        Relation → the columns of its events.
    python_functions
        The Python functions that it calls, in the order of their numbers.
    places
        What its reports concern, by site.
    checked
        The relations whose rows are kept and whose events code checks before it takes them.
    upserted
        Those of them that code takes upserts of.
    """

    context: ContextLayout
    triggers: dict[tuple[On, str], str]
    assigns: dict[str, str]
    batches: dict[str, tuple[str, int]]
    events: dict[str, tuple[EventLane, ...]]
    python_functions: tuple[PythonFunction, ...]
    places: tuple[frozenset[Place], ...]
    checked: frozenset[str]
    upserted: frozenset[str]

    def number(self, relation: str) -> int:
        """Return the number of a relation, which names the functions that take its events."""
        return list(self.events).index(relation)


BASE = Module([*MEMORY_FUNCTIONS, *TABLE_FUNCTIONS, *TEXT_FUNCTIONS, *FAR_FUNCTIONS, builtin_function])


@cache
def library(shape: RowLayout) -> Module:
    """Return what a shape of map needs, beside `BASE`."""
    return Module([*map_functions(shape), *journal_functions(shape)])


_MOST_WORDS = 1000
"""Of an event or of an entry: ctypes has a limit of 1,024 arguments."""


def write_program(
    program: Program, functions: Mapping[str, UserFunction], indexes: Mapping[str, Sequence[tuple[int, ...]]]
) -> tuple[CodePlan, tuple[Module, ...]]:
    """Return a program as code: what all programs have, what all have that use a shape of map, and its own.

    A batch trigger becomes code only where single ones cannot stand for it: it would be as much code as both of them,
    and is no quicker.

    Parameters
    ----------
    indexes
        Map → key columns, of indexes that are wanted beside those that triggers use.

    Raises
    ------
    NotNativeError
        If a part of it can only be interpreted.
    """
    single = come_one_by_one(program)
    triggers = (each for each in program.triggers if each.on is not On.BATCH or each.relation not in single)
    program = replace(program, triggers=tuple(triggers))
    context = ContextLayout()
    before: object = None
    while True:
        # The code tells which stores and indexes there are, and they tell where the code finds them.
        module = _ModuleWriter(program, functions, context, indexes)
        for name, wanted in indexes.items():
            for places in wanted:
                context.stores[name].want_index(places)
        for read in {read: None for view in program.views for read in reads_of(program, view) if read.end}:
            others = tuple(place for place in range(len(read.keys)) if place != read.axis)
            context.stores[read.map.name].order(others, read.axis)
        for view in program.views:
            top = top_of(program, view)
            if top is not None:
                assert view.limit is not None
                context.stores[view.maps[0]].want_first(*top, _SPARE + 2 * (view.offset + view.limit))
        for store in context.stores.values():
            if store.shape.keys + store.shape.values > _MOST_WORDS:
                raise NotNativeError("more columns than machine code takes", (store.name,))
        found = module.write()
        if context.state == before:
            return found
        before = context.state
        context.place_records()


class _ModuleWriter:
    def __init__(
        self,
        program: Program,
        functions: Mapping[str, UserFunction],
        context: ContextLayout,
        indexes: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        self._program = program
        self._indexes = indexes
        self._writer = ProgramWriter(program, functions, context)
        self._numbered = frozenset(context.numbered)
        self._lanes: dict[str, tuple[EventLane, ...]] = {}
        self._signed = _signed_triggers(program)
        self._either: dict[str, Function] = {}
        """What the single triggers of these relations call, once it is written."""

    def write(self) -> tuple[CodePlan, tuple[Module, ...]]:
        triggers: dict[tuple[On, str], str] = {}
        functions: list[Function] = []
        for number, trigger in enumerate(self._program.triggers):
            name = f"on_{_VERBS[trigger.on]}_{number}"
            triggers[trigger.on, trigger.relation] = name
            with about(*(statement.map for statement in trigger.statements)):
                functions += self._trigger(trigger, name)
        assigns: dict[str, str] = {}
        for number, (target, statements) in enumerate(assignments(self._program).items()):
            assigns[target] = f"assign_{number}"
            with about(target):
                functions.append(assign_function(self._writer, assigns[target], statements))
        functions += [touched_function, notes_function]
        batches: dict[str, tuple[str, int]] = {}
        for relation in {trigger.relation: None for trigger in self._program.triggers if trigger.on is On.BATCH}:
            store = self._writer.batch_store(relation)
            batches[relation] = (adder_of(self._writer, store, (0,), is_ahead=False).name, store.number)
        events = {relation.name: self._event_lanes(relation) for relation in self._program.relations}
        for name, columns in events.items():
            if event_words(columns) > _MOST_WORDS:
                raise NotNativeError(f"more columns of {name} than machine code takes")
        checks = KeyChecks(self._writer, events, self._indexes)
        functions += checks.functions()
        functions += self._entrances(events, triggers, {each.name: each for each in functions}, checks)
        context = self._writer.context
        shapes = {store.shape.name: store.shape for store in context.stores.values()}
        plan = CodePlan(
            context,
            triggers,
            assigns,
            batches,
            events,
            tuple(self._writer.python_functions),
            tuple(self._writer.sites.places()),
            frozenset(checks.tables),
            frozenset(name for name, table in checks.tables.items() if table.key is not None),
        )
        return plan, (BASE, *map(library, shapes.values()), Module([*self._writer.functions, *functions]))

    def _event_lanes(self, relation: Relation) -> tuple[EventLane, ...]:
        """Return the columns of a relation, and which of them its single triggers use."""
        if relation.name not in self._lanes:
            self._lanes[relation.name] = self._lanes_of(relation)
        return self._lanes[relation.name]

    def _lanes_of(self, relation: Relation) -> tuple[EventLane, ...]:
        used: set[int] = set()
        for trigger in self._program.triggers:
            if trigger.relation == relation.name and trigger.on is not On.BATCH:
                names = {name for each in trigger.statements for name in (*each.keys, *variables_of(each.term))}
                used |= {place for place, name in enumerate(trigger.variables) if name in names}
        lanes = lanes_of(relation.columns)
        texts = {place for place in used if lanes[place].type == VARCHAR}
        texts -= {place for name, place in self._numbered if name == relation.name}
        return tuple(EventLane(lane, place in used, place in texts) for place, lane in enumerate(lanes))

    def _entrances(
        self,
        events: Mapping[str, tuple[EventLane, ...]],
        triggers: Mapping[tuple[On, str], str],
        functions: Mapping[str, Function],
        checks: KeyChecks,
    ) -> Iterator[Function]:
        """Yield what takes events from outside: see `cumulus.engine.native.intake.python_rows`."""
        undo = undo_function(self._writer, [self._writer.store(definition.name) for definition in self._program.maps])
        yield undo
        fetches: dict[str, tuple[Function, Function]] = {}
        for number, (relation, columns) in enumerate(events.items()):
            single = [each for each in self._program.triggers if each.relation == relation and each.on is not On.BATCH]
            fetches[relation] = fetch_functions(
                self._writer, str(number), columns, single[:1], checks.lookups(relation)
            )
            yield from fetches[relation]
        takes: dict[tuple[int, str], Function] = {}
        rows: dict[str, Function] = {}
        for number, (relation, columns) in enumerate(events.items()):
            mine = [on for on, name in triggers if name == relation]
            for sign, on in ((1, On.INSERT), (-1, On.DELETE)):
                trigger = functions[triggers[on, relation]] if on in mine else None
                name = f"take_{_VERBS[on]}_{number}"
                takes[sign, relation] = (
                    python_rows.take_function(
                        self._writer, name, (sign, relation), columns, trigger, undo.signature, checks
                    )
                    if mine or relation in checks.tables
                    else python_rows.nothing_function(name)
                )
                yield takes[sign, relation]
            both = {sign: takes[sign, relation] for sign in (1, -1)}
            rows[relation] = python_rows.row_function(
                self._writer, f"row_{number}", relation, columns, both, fetches[relation]
            )
            yield rows[relation]
            yield python_rows.single_function(self._writer, f"{python_rows.SINGLE}{number}", relation, rows[relation])
            yield python_rows.rows_function(self._writer, f"{python_rows.ROWS}{number}", rows[relation])
            if relation in checks.tables and checks.tables[relation].key is not None:
                upsert = upsert_function(self._writer, f"upsert_{number}", relation, both, undo.signature, checks)
                row = python_rows.row_function(
                    self._writer, f"upsert_row_{number}", relation, columns, {UPSERT: upsert}, fetches[relation]
                )
                yield from (upsert, row, python_rows.rows_function(self._writer, f"{UPSERT_ROWS}{number}", row))
                yield upserts_function(f"{UPSERTS}{number}", columns, upsert, fetches[relation])
        yield python_rows.changes_function(self._writer, python_rows.CHANGES, [*rows.values()])
        yield stream_function(list(events.items()), takes, fetches)

    def _trigger(self, trigger: Trigger, name: str) -> Iterator[Function]:
        """Yield the function of a trigger, and what it calls that is not written yet."""
        if trigger.relation not in self._writer.relations:
            raise NotNativeError(f"the relation {trigger.relation}, which is not declared")
        if trigger.on is On.BATCH:
            self._writer.begin(name, {trigger.relation: self._writer.relations[trigger.relation]})
            with define(name, [("context", PTR)], I64) as body:
                self._statements(trigger.statements, body, {}, {})
            yield body.function
            return
        if trigger.relation not in self._signed:
            yield self._single(name, trigger, trigger.statements, is_signed=False)
            return
        either = self._either.get(trigger.relation)
        if either is None:
            either = self._single(f"either_{name}", trigger, self._signed[trigger.relation], is_signed=True)
            self._either[trigger.relation] = either
            yield either
        with define(name, [("context", PTR), *self._parameters(trigger.relation)], I64) as body:
            sign = i64(1 if trigger.on is On.INSERT else -1)
            context, *words = body.function.parameters
            body.leave(body.call(either.signature, context, sign, *words))
        yield body.function

    def _parameters(self, relation: str) -> list[tuple[str, Type]]:
        """Return the words of a relation's events that its triggers get."""
        lanes = self._event_lanes(self._program.relation(relation))
        return [(f"event{place}_{word}", I64) for place, each in enumerate(lanes) for word in range(each.words)]

    def _single(self, name: str, trigger: Trigger, statements: Sequence[Statement], *, is_signed: bool) -> Function:
        """Return the function of an event: `(context, its sign if that is wanted, its words)` → the status."""
        self._writer.begin(name, {})
        sign: list[tuple[str, Type]] = [("sign", I64)] if is_signed else []
        parameters = [("context", PTR), *sign, *self._parameters(trigger.relation)]
        with define(name, parameters, I64, inline=True if is_signed else None, is_public=not is_signed) as body:
            env: Env = {}
            known: dict[str, Typed] = {}
            if is_signed:
                env[SIGN.name] = Scalar(INTEGER, body.parameter("sign"), None, bits=1)
                known[SIGN.name] = Typed(INTEGER, False)
            columns = self._writer.relations[trigger.relation]
            used = self._event_lanes(self._program.relation(trigger.relation))
            for place, (variable, each, column) in enumerate(zip(trigger.variables, used, columns, strict=True)):
                if not each.is_used:
                    continue
                words = [body.parameter(f"event{place}_{word}") for word in range(each.words)]
                if each.is_text:
                    env[variable] = self._writer.event_text(body, trigger.relation, place, each.lane, words)
                else:
                    env[variable] = from_words(body, each.lane, words)
                assert column.type is not None
                known[variable] = Typed(column.type, not column.not_null)
            self._statements(statements, body, env, known)
        return body.function

    def _statements(self, written: Sequence[Statement], body: Body, env: Env, known: dict[str, Typed]) -> None:
        statements = [
            replace(
                statement,
                term=with_intervals(separated(statement.term, frozenset(env)), frozenset(env), statement.keys),
            )
            for statement in written
        ]
        with body.branch(CONTEXT.eq(CONTEXT)) as start:
            pass
        StatementEmitter(self._writer, body, known).write([each for each in statements if each.op == "+="], env)
        with body.inside(start):
            self._writer.forget_shared(body)
        body.leave(body.load(I64, CONTEXT, STATUS))


def _signed_triggers(program: Program) -> dict[str, tuple[Statement, ...]]:
    """Return the relations whose single triggers differ in signs alone, and the statements of both."""
    triggers = {(trigger.on, trigger.relation): trigger for trigger in program.triggers}
    pairs = {
        relation: joined_triggers(insertion, triggers[On.DELETE, relation])
        for (on, relation), insertion in triggers.items()
        if on is On.INSERT and (On.DELETE, relation) in triggers
    }
    return {relation: statements for relation, statements in pairs.items() if statements is not None}
