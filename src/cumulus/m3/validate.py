"""Checks of a program: names, arity, scope and types; and what it says about the program's form.

`validate` raises one error that tells all it found. With the `Places` of the parser, errors carry line and column;
without, they name the trigger and statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cumulus.errors import ValidationError
from cumulus.m3.access import StatementAccess, accesses, unrestricted
from cumulus.m3.declarations import declaration_problems
from cumulus.m3.parser import parse_with_places
from cumulus.m3.printer import print_statement
from cumulus.m3.problems import Problem
from cumulus.m3.program import Program
from cumulus.m3.source_map import Places
from cumulus.m3.statements import statement_problems


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
