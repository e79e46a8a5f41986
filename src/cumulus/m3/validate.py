"""Checks of a program: names, arity, scope and types; and what it says about the program's form.

`validate` raises one error that tells all it found. With the `Places` of the parser, errors carry line and column;
without, they name the trigger and statement. Triggers and their statements are checked here, and what `+=` and `:=` may
read; relations, maps and views in `declarations`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cumulus.algebra.scope import ahead_of, inputs, maps_of, outputs
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
    Sum,
    Term,
    Var,
)
from cumulus.catalog.types import SqlType
from cumulus.errors import ValidationError
from cumulus.m3.access import StatementAccess, accesses, stages, unrestricted
from cumulus.m3.dataflow import reachable
from cumulus.m3.declarations import declaration_problems, relation_problems
from cumulus.m3.infer import nodes
from cumulus.m3.parser import parse_with_places
from cumulus.m3.printer import print_statement
from cumulus.m3.problems import Problem, TypeChecker, column_problems, function_problems, read_problems, repeated
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger
from cumulus.m3.source_map import Part, Places


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a valid program is like: how each of its statements reads maps, and what they cost.

    If it is `restricted` M3 (Cumulus consistency paper, §2.1), every value written costs a constant number of
    operations; else `reason` has the statement that is not, and why.
    """

    restricted: bool
    reason: str
    accesses: tuple[StatementAccess, ...]


def validate(program: Program, places: Places | None = None, functions: Collection[str] = ()) -> ProgramReport:
    """Check `program` and report on its form.

    Parameters
    ----------
    places
        Where its parts stand in the text, from `parse_with_places`.
    functions
        Names of functions that are neither built in nor declared.

    Raises
    ------
    ValidationError
        At the first problem; the message tells them all.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> report = validate(parse("ON +R(a) { q[] += m[a]; m[a] += 1 }"))
    >>> report.restricted, [str(read) for read in report.accesses[0].reads]
    (True, ['m[=]'])
    """
    found = problems(program, functions)
    if found:
        raise _error(found, program, places)
    broken = unrestricted(program)
    reason = "" if broken is None else f"{_part_text(program, ('statement', *broken[:2]))}: {broken[2]}"
    return ProgramReport(broken is None, reason, accesses(program))


def read(text: str, name: str = "", functions: Collection[str] = ()) -> Program:
    """Parse and validate a text.

    Raises
    ------
    M3SyntaxError, ValidationError
        With line and column.
    """
    program, places = parse_with_places(text, name)
    validate(program, places, functions)
    return program


def problems(program: Program, functions: Collection[str] = ()) -> tuple[Problem, ...]:
    """Return everything that is wrong with `program`, in order; empty if it is valid."""
    known = {*functions, *(signature.name for signature in program.functions)}
    return (*declaration_problems(program, known), *statement_problems(program, known))


def _error(found: Iterable[Problem], program: Program, places: Places | None) -> ValidationError:
    placed: list[tuple[tuple[int, int], Problem]] = []
    for problem in found:
        found_at = places.find(problem.part, problem.word, in_term=problem.in_term) if places else (0, 0)
        placed.append((found_at, problem))
    placed.sort(key=lambda item: item[0])
    (line, column), first = placed[0]

    def message(place: tuple[int, int], problem: Problem) -> str:
        at = f"{place[0]}:{place[1]}: " if place[0] and place != (line, column) else ""
        return f"{at}{_part_text(program, problem.part)}: {problem.message}"

    others = [message(place, problem) for place, problem in placed[1:]]
    hint = "\n".join([*filter(None, [first.hint]), *(f"Also {other}" for other in others)])
    return ValidationError(
        message((line, column), first),
        line=line,
        column=column,
        text=places.text if places else "",
        name=places.name if places else "",
        hint=hint,
    )


def _part_text(program: Program, part: tuple[str | int, ...]) -> str:
    match part:
        case ("statement", int(index), int(place)):
            trigger = program.triggers[index]
            statement = print_statement(trigger.statements[place], program)
            return f"{_part_text(program, ('trigger', index))}, statement {place + 1} ({statement})"
        case ("trigger", int(index)):
            trigger = program.triggers[index]
            return f"ON {trigger.on.event(trigger.relation)}"
        case (kind, name):
            return f"{kind} {name}"
        case _:
            raise AssertionError(f"{part!r} is no part of a program")


def statement_problems(program: Program, functions: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong with the triggers of `program`."""
    checks = _Checks(program, functions)
    added, replaced = ({item.map for _, item in program.statements() if item.op == op} for op in ("+=", ":="))
    started = {definition.name for definition in program.maps if definition.initial}
    seen: set[tuple[On, str]] = set()
    for index, trigger in enumerate(program.triggers):
        part: Part = ("trigger", index)
        if (trigger.on, trigger.relation) in seen:
            yield Problem(part, "there are two triggers for this event", hint="Join their statements.")
        seen.add((trigger.on, trigger.relation))
        yield from checks.head(part, trigger)
        if stages(trigger.statements) is None:
            hint = "A map can be read as NEW or CHANGED by statements that it does not depend on."
            yield Problem(part, "its statements wait for each other's NEW or CHANGED maps", hint=hint)
        for place, statement in enumerate(trigger.statements):
            own: Part = ("statement", index, place)
            yield from checks.statement(own, trigger, statement)
            if statement.op == "+=":
                for name in sorted(maps_of(statement.term) & replaced):
                    hint = "Only views and other := maps may read it."
                    yield Problem(own, f"+= reads {name}, which := replaces", name, hint)
            elif statement.map in added:
                yield Problem(own, f"{statement.map} is both added to and replaced", statement.map)
            elif statement.map in started:
                yield Problem(own, f"{statement.map} is replaced, so it can have no START", statement.map)
    yield from _circular(program, replaced)


def _circular(program: Program, replaced: set[str]) -> Iterator[Problem]:
    """`:=` maps that read each other in a circle have no value."""
    graph: dict[str, set[str]] = {name: set() for name in replaced}
    at: dict[str, Part] = {}
    for index, trigger in enumerate(program.triggers):
        for place, statement in enumerate(trigger.statements):
            if statement.op == ":=":
                graph[statement.map] |= maps_of(statement.term) & replaced
                at.setdefault(statement.map, ("statement", index, place))
    for name in sorted(graph):
        if name in reachable(graph, graph[name]):
            yield Problem(at[name], f"{name} is made from itself", name, "A := map is computed from other maps.")


class _Checks:
    """Finds what is wrong with single triggers and statements of a program."""

    def __init__(self, program: Program, functions: Collection[str]) -> None:
        self._program = program
        self._functions = functions
        self._maps = {definition.name: definition for definition in program.maps}
        self._relations = {relation.name: relation for relation in program.relations}

    def head(self, part: Part, trigger: Trigger) -> Iterator[Problem]:
        """Yield what is wrong with the event of a trigger and its variables."""
        for name in repeated(trigger.variables):
            yield Problem(part, f"two event variables are called {name}", name)
        relation = self._relations.get(trigger.relation)
        if relation is None:
            yield Problem(part, f"there is no relation {trigger.relation}", trigger.relation)
            return
        if relation.static and trigger.on is not On.INSERT:
            hint = "Its rows are inserted before the stream begins, and stay."
            yield Problem(part, f"{relation.name} is STATIC: it has insertions only", relation.name, hint)
        given, needed = len(trigger.variables), len(relation.columns)
        if trigger.on is On.BATCH:
            if given:
                yield Problem(part, "a batch has no event variables", hint="Its rows are read as r(x, …).")
        elif given != needed:
            yield Problem(part, f"{given} event variables for the {needed} columns of {relation.name}")

    def statement(self, part: Part, trigger: Trigger, statement: Statement) -> Iterator[Problem]:
        """Yield what is wrong with a statement."""
        target, term = statement.map, statement.term
        definition = next((item for item in self._program.maps if item.name == target), None)
        if definition is None:
            yield Problem(part, f"there is no map {target}", target)
        else:
            if len(definition.keys) != len(statement.keys):
                counts = f"{len(definition.keys)} keys, not {len(statement.keys)}"
                yield Problem(part, f"map {target} has {counts}", target)
            yield from column_problems(part, definition, statement.column)
        events = set(trigger.variables) if statement.op == "+=" else set()
        hint = "A variable is bound by the event, or by something to its left in the product."
        if statement.op == ":=" and trigger.variables:
            hint = "A := statement runs after the whole transaction: it has no event variables."
        for name in sorted(inputs(term) - events):
            yield Problem(part, f"nothing binds {name}", name, hint, in_term=True)
        for name in statement.keys:
            if name not in events and name not in outputs(term) and name not in inputs(term):
                yield Problem(part, f"the term does not bind the key {name}", name, hint)
        for node in nodes(term):
            if isinstance(node, (Atom, Batch)):
                yield from self._relation_read(part, trigger, node)
        yield from read_problems(self._program, part, term)
        if statement.op == ":=":
            for name in sorted(ahead_of(term)):
                hint = f"A := statement runs after the whole transaction: {name}[…] is its last state already."
                yield Problem(part, f":= reads {name} as NEW or CHANGED", name, hint)
        yield from function_problems(part, term, self._functions)
        yield from self._type_problems(part, trigger, statement, definition)

    def _relation_read(self, part: Part, trigger: Trigger, node: Atom | Batch) -> Iterator[Problem]:
        if trigger.on is not On.BATCH:
            hint = "Statements read maps; keep its rows in one."
            yield Problem(part, f"it reads the relation {node.name}", node.name, hint)
        elif node.name != trigger.relation:
            yield Problem(part, f"it reads {node.name}, but the batch is of {trigger.relation}", node.name)
        else:
            yield from relation_problems(part, node, self._relations)

    def _type_problems(
        self, part: Part, trigger: Trigger, statement: Statement, definition: MapDef | None
    ) -> Iterator[Problem]:
        places = list(self._typed_places(trigger, statement))
        types: dict[str, SqlType | None] = {}
        for name, _, own in places:
            if types.get(name) is None:
                types[name] = own
        checker = TypeChecker(self._program, part, types)
        for name, place, own in places:
            checker.require_type(name, place, own)
        _values(statement.term, checker)
        if definition is not None:
            for name, column in zip(statement.keys, definition.keys, strict=False):
                checker.require_type(name, f"the key {column.name} of {definition.name}", column.type)
            yield from _float_into_exact(part, statement, definition, checker)
        yield from dict.fromkeys(checker.problems)

    def _typed_places(self, trigger: Trigger, statement: Statement) -> Iterator[tuple[str, str, SqlType | None]]:
        """Yield variable, place and declared type wherever a variable stands for a column."""
        relations = self._relations
        if trigger.relation in relations:
            for name, column in zip(trigger.variables, relations[trigger.relation].columns, strict=False):
                yield name, f"{trigger.relation}.{column.name}", column.type
        for node in nodes(statement.term):
            match node:
                case MapRead(name, _, keys) | MapExtremum(_, name, keys) if name in self._maps:
                    for key, column in zip(keys, self._maps[name].keys, strict=False):
                        if isinstance(key, Var):
                            yield key.name, f"the key {column.name} of {name}", column.type
                case Atom(name, variables) | Batch(name, variables) if name in relations:
                    for variable, column in zip(variables, relations[name].columns, strict=False):
                        yield variable, f"{name}.{column.name}", column.type
                case _:
                    pass


def _values(term: Term, checker: TypeChecker) -> None:
    """Check that what stands in value context is a number."""
    match term:
        case Sum(parts) | Product(parts):
            for part in parts:
                _values(part, checker)
        case Lift(_, (Var() | Const() | Apply() | Cast() | MapExtremum() | Extremum()) as inner):
            checker.scalar(inner)  # a variable may be bound to anything
        case AggSum(_, inner) | Exists(inner) | Lift(_, inner):
            _values(inner, checker)
        case Var() | Const() | Apply() | Cast() | MapExtremum() | Extremum():
            checker.number(term)
        case MapRead() | Compare():
            checker.scalar(term)
        case Atom() | Batch():
            pass


def _float_into_exact(part: Part, statement: Statement, definition: MapDef, checker: TypeChecker) -> Iterator[Problem]:
    try:
        column = definition.values[definition.column_index(statement.column)]
    except KeyError:
        return
    if column.type is not None and column.type.is_exact and _is_float(statement.term, checker):
        yield Problem(
            part,
            f"a DOUBLE is added to {definition.name}.{column.name}, which is {column.type}",
            definition.name,
            "Declare the column DOUBLE, with a COUNT column beside it.",
        )


def _is_float(term: Term, checker: TypeChecker) -> bool:
    match term:
        case Sum(parts) | Product(parts):
            return any(_is_float(part, checker) for part in parts)
        case AggSum(_, inner):
            return _is_float(inner, checker)
        case Var() | Const() | Apply() | Cast() | MapRead() | MapExtremum() | Extremum():
            found = checker.scalar(term)
            return found is not None and found.is_float
        case Atom() | Batch() | Lift() | Exists() | Compare():
            return False
