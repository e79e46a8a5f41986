"""The insert and the delete trigger of a relation as one, which is told the sign of the event.

What a row adds when it comes it takes away when it goes, so the two triggers differ in signs only: where one has a
product of c, the other has one of -c, be it deep inside. Both together are the trigger of `sign` times the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cumulus.algebra import terms
from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import AggSum, Compare, Exists, Lift, Number, Product, Sum, Term, Var
from cumulus.m3.program import Statement, Trigger

SIGN = Var("#sign")
"""The variable that is 1 when a row comes and -1 when it goes."""


def joined_triggers(insertion: Trigger, deletion: Trigger) -> tuple[Statement, ...] | None:
    """Return the statements of both triggers, with `SIGN`; None if they differ in something else.

    None, too, if they have a variable of that name, as columns may be called anything.

    Time and space are linear in the size of the terms.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse('''RELATION r(a INT, b INT); MAP m[a INT](n INT);
    ... ON +r(a, b) { m[a] += 2 * b * SUM[](m[b] * {b > 1}) } ON -r(a, b) { m[a] += -2 * b * SUM[](m[b] * {b > 1}) }''')
    >>> print(joined_triggers(*program.triggers)[0].term)
    2 * "#sign" * b * SUM[](m[b].n * {b > 1})
    """
    if insertion.variables != deletion.variables or len(insertion.statements) != len(deletion.statements):
        return None
    found: list[Statement] = []
    for one, other in zip(insertion.statements, deletion.statements, strict=True):
        term = _both(one.term, other.term)
        if term is None or replace(one, term=other.term) != other or SIGN.name in (*one.keys, *variables_of(one.term)):
            return None
        found.append(replace(one, term=term))
    return tuple(found)


def _both(one: Term, other: Term) -> Term | None:
    """Return a term of value context that is `one` where the sign is 1, and `other` where it is -1."""
    if one is other:
        return one
    (mine, rest), (theirs, other_rest) = terms.split_coefficient(one), terms.split_coefficient(other)
    if mine not in (theirs, -theirs) or (rest is None) != (other_rest is None):
        return None
    factors: list[Term] = [_coefficient(mine, theirs)]
    if rest is not None and other_rest is not None:
        inside = _both_inside(rest, other_rest)
        if inside is None:
            return None
        factors.append(inside)
    return terms.product_of(factors)


def _coefficient(mine: Number, theirs: Number) -> Term:
    return terms.number(mine) if mine == theirs else terms.product_of([terms.number(mine), SIGN])


def _both_inside(one: Term, other: Term) -> Term | None:
    """Do as `_both` for terms that have no coefficient, or are scalars."""
    if one is other:
        return one
    match one, other:
        case Lift(name, term), Lift(second, other_term) if name == second:
            found = _both(term, other_term)
            return None if found is None else Lift(name, found)
        case AggSum(group, term), AggSum(second_group, other_term) if group == second_group:
            found = _both(term, other_term)
            return None if found is None else AggSum(group, found)
        case Exists(term), Exists(other_term):
            found = _both(term, other_term)
            return None if found is None else Exists(found)
        case Compare(op, left, right), Compare(second_op, other_left, other_right) if op == second_op:
            sides = _each(_both_inside, (left, right), (other_left, other_right))
            return None if sides is None else Compare(op, *sides)
        case Product(parts), Product(other_parts):
            factors = _each(_both_inside, parts, other_parts)
            return None if factors is None else terms.product_of(factors)
        case Sum(parts), Sum(other_parts):
            summands = _each(_both, parts, other_parts)
            return None if summands is None else terms.sum_of(summands)
        case _:
            return None


def _each(
    join: Callable[[Term, Term], Term | None], parts: Sequence[Term], other_parts: Sequence[Term]
) -> list[Term] | None:
    """Return what `join` makes of each pair, or None if it makes nothing of one."""
    if len(parts) != len(other_parts):
        return None
    found: list[Term] = []
    for part, other_part in zip(parts, other_parts, strict=True):
        both = join(part, other_part)
        if both is None:
            return None
        found.append(both)
    return found
