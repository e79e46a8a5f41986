"""How statements read maps: which keys are bound, which loop, which are ranges or ends; and restricted M3.

All statements of a trigger read the state before the event, but for `NEW m[…]` and `CHANGED m[…]`: these read what the
trigger's own statements make of m. So they come in stages: who reads a map as it will be comes after who adds to it. A
program in which maps wait for each other in a circle is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from cumulus.algebra.scope import ahead_of, maps_of, outputs, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Compare,
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
    children,
    factors_of,
)
from cumulus.m3.infer import nodes
from cumulus.m3.program import On, Program, Statement, Trigger


class Pattern(StrEnum):
    """How one key of a read is given."""

    BOUND = "="
    LOOP = "loop"
    RANGE = ".."
    END = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """A read of `map` (its value `column`; "" for an end) with a pattern for every key, as `MapRead.state` says."""

    map: str
    column: str
    patterns: tuple[Pattern, ...]
    state: str = "OLD"

    def __str__(self) -> str:
        return f"{'' if self.state == 'OLD' else f'{self.state} '}{self.map}[{', '.join(self.patterns)}]"


@dataclass(frozen=True, slots=True)
class StatementAccess:
    """The reads of one statement, by the indices of its trigger and of itself."""

    trigger: int
    statement: int
    reads: tuple[Access, ...]


def accesses(program: Program) -> tuple[StatementAccess, ...]:
    """Return how every statement of `program` reads maps, in order.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> [found] = accesses(parse("ON +R(a) { q[b] += m[a, b] * s[b, >= a] }"))
    >>> [str(read) for read in found.reads]
    ['m[=, loop]', 's[=, ..]']
    """
    return tuple(
        StatementAccess(index, place, reads_of(trigger, statement))
        for index, trigger in enumerate(program.triggers)
        for place, statement in enumerate(trigger.statements)
    )


def reads_of(trigger: Trigger, statement: Statement) -> tuple[Access, ...]:
    """Return how one statement reads maps, in the order of its term."""
    bound = frozenset(trigger.variables) if statement.op == "+=" else frozenset()
    return tuple(_reads(statement.term, bound))


def _reads(term: Term, bound: frozenset[str], axis: str | None = None) -> Iterator[Access]:
    """Yield the reads of a term in value context; `axis` is the variable whose end is looked for."""
    match term:
        case MapRead(name, column, keys, state):
            patterns = []
            for key in keys:
                if isinstance(key, Range):
                    patterns.append(Pattern.RANGE)
                elif isinstance(key, Var) and key.name not in bound:
                    patterns.append(Pattern.END if key.name == axis else Pattern.LOOP)
                    bound |= {key.name}
                else:
                    patterns.append(Pattern.BOUND)
            yield Access(name, column, tuple(patterns), state)
            for key in keys:
                if not isinstance(key, Var):
                    yield from _scalar_reads(key, bound)
        case Product(parts):
            for part in parts:
                yield from _reads(part, bound, axis)
                bound |= set(outputs(part))
        case Sum(parts):
            for part in parts:
                yield from _reads(part, bound, axis)
        case AggSum(_, inner):
            yield from _reads(inner, bound, axis)
        case Exists(inner) | Lift(_, inner):
            yield from _reads(inner, bound)
        case _:
            yield from _scalar_reads(term, bound)


def _scalar_reads(scalar: Term | Range, bound: frozenset[str]) -> Iterator[Access]:
    """Yield the reads inside a scalar, where nothing loops but ends."""
    match scalar:
        case MapRead(name, column, keys, state):
            scalar_patterns = tuple(Pattern.RANGE if isinstance(key, Range) else Pattern.BOUND for key in keys)
            yield Access(name, column, scalar_patterns, state)
        case MapExtremum(_, name, ends):
            yield Access(name, "", tuple(Pattern.END if key is None else Pattern.BOUND for key in ends))
        case Extremum(_, variable, inner):
            yield from _reads(inner, bound - {variable}, variable)
            return
        case _:
            pass
    for child in children(scalar):
        yield from _scalar_reads(child, bound)


def unrestricted(program: Program) -> tuple[int, int, str] | None:
    """Return the first statement that is not restricted M3 and why, or None if the whole program is.

    The three rules of the Cumulus consistency paper, §2.1: every loop variable stands on both sides, it is a key of
    exactly one map on the right, and there are no conditions; and terms are monomials. Anything computed from event
    variables alone counts as a constant. Batch triggers, which the paper does not have, are not looked at.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> unrestricted(parse("ON +R(A) { m1[B] += m2[A, B] }")) is None
    True
    >>> unrestricted(parse("ON +R(A) { m1[] += m2[A, B] }"))
    (0, 0, 'the loop variable B does not stand on the left')
    """
    for index, trigger in enumerate(program.triggers):
        if trigger.on is On.BATCH:
            continue
        for place, statement in enumerate(trigger.statements):
            reason = _broken_rule(statement, frozenset(trigger.variables))
            if reason:
                return index, place, reason
    return None


def _broken_rule(statement: Statement, events: frozenset[str]) -> str:
    if statement.op == ":=":
        return "it replaces a map"
    if any(isinstance(node, Compare) for node in nodes(statement.term)):
        return "it has a condition"
    if ahead_of(statement.term):
        return f"it reads {sorted(ahead_of(statement.term))[0]} as NEW or CHANGED"
    factors = factors_of(statement.term)
    used: dict[str, int] = {}
    for factor in factors:
        if isinstance(factor, MapRead):
            if not all(isinstance(key, Var) or not variables_of(key) - events for key in factor.keys) or any(
                isinstance(key, Range) for key in factor.keys
            ):
                return f"it reads {factor.map} by something other than variables and constants"
            loops = {key.name for key in factor.keys if isinstance(key, Var)} - events
            for name in loops:
                used[name] = used.get(name, 0) + 1
        elif maps_of(factor) or isinstance(factor, (Exists, Lift, AggSum)):
            return "its term is not a product of map reads and values"
    for name in sorted(used):
        if name not in statement.keys:
            return f"the loop variable {name} does not stand on the left"
        if used[name] > 1:
            return f"the loop variable {name} joins {used[name]} maps on the right"
    for key in statement.keys:
        if key not in events and key not in used:
            return f"the loop variable {key} does not stand on the right"
    return ""


def stages(statements: Iterable[Statement]) -> tuple[tuple[Statement, ...], ...] | None:
    """Return the `+=` statements of a trigger in stages: those of a stage read ahead only of maps of earlier ones.

    Within a stage they have the order of the trigger. None if maps wait for each other in a circle.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +R(a) { q[] += NEW m[a]; m[a] += 1; p[a] += m[a] }")
    >>> [[each.map for each in stage] for stage in stages(program.triggers[0].statements)]
    [['m', 'p'], ['q']]
    """
    added = [statement for statement in statements if statement.op == "+="]
    targets = {statement.map for statement in added}
    waits: dict[str, set[str]] = {name: set() for name in targets}
    for statement in added:
        waits[statement.map] |= ahead_of(statement.term) & targets
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError:
        return None
    found: list[tuple[Statement, ...]] = []
    while ready := sorter.get_ready():
        found.append(tuple(statement for statement in added if statement.map in ready))
        sorter.done(*ready)
    return tuple(found)
