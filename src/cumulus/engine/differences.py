"""Two statements that differ only in when they read a threshold, taken together.

Where a condition compares what a loop visits with something that the firing changes, there is a pair of statements:

    q[g] += (t := NEW a[]) * m[g, x] * {x > t}
    q[g] += -(t := a[]) * m[g, x] * {x > t}

All that both visit cancels out, so only the x between the old and the new t matter: rows in order, mostly few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import permutations

from cumulus.algebra.scope import inputs, outputs, variables_of
from cumulus.algebra.terms import Compare, Const, Lift, MapRead, Range, Term, Var, factors_of, rebuild
from cumulus.engine.intervals import direction_of
from cumulus.m3.program import Statement


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair of statements.

    Parameters
    ----------
    statement
        The one that reads what the firing has changed.
    outer
        Factors of both that come before everything else.
    new, old
        The lifts on which the condition depends, as each of them has them.
    read, axis
        What both loop over, and which of its keys the condition is about.
    compare
        The condition; the axis is one variable of it.
    is_up
        Whether it holds from some place up, not down.
    inner
        The other factors of both.
    """

    statement: Statement
    outer: tuple[Term, ...]
    new: tuple[Lift, ...]
    old: tuple[Lift, ...]
    read: MapRead
    axis: int
    compare: Compare
    is_up: bool
    inner: tuple[Term, ...]


def differences(
    statements: Sequence[Statement], bound: Collection[str], may: Callable[[Difference], bool] = lambda pair: True
) -> tuple[dict[int, Difference], list[Statement]]:
    """Return the pairs among statements, by the identity of the one that stands for both, and all but the other ones.

    Parameters
    ----------
    bound
        The variables that the trigger binds.
    may
        Whether an engine can make use of a pair.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse('''RELATION r(a BIGINT); MAP m[x BIGINT, y BIGINT](n BIGINT); MAP q[y BIGINT](n BIGINT);
    ... MAP t[](n BIGINT);
    ... ON +r(a) { t[] += a; q[y] += (h := NEW t[]) * m[x, y] * {x > h}; q[y] += -(h := t[]) * m[x, y] * {x > h} }''')
    >>> pairs, rest = differences(program.triggers[0].statements, {"a"})
    >>> [(str(each.read), str(each.compare), each.is_up) for each in pairs.values()], len(rest)
    ([('m[x, y].n', '{x > h}', True)], 2)
    """
    found: dict[int, Difference] = {}
    gone: set[int] = set()
    alike: dict[object, list[Statement]] = {}
    for statement in statements:
        alike.setdefault((statement.map, statement.column, statement.keys, statement.op), []).append(statement)
    for group in alike.values():
        for new, old in permutations(group, 2):
            if not {id(new), id(old)} & (found.keys() | gone):
                pair = _pair(new, old, bound)
                if pair is not None and may(pair):
                    found[id(new)] = pair
                    gone.add(id(old))
    return found, [statement for statement in statements if id(statement) not in gone]


def _pair(new: Statement, old: Statement, bound: Collection[str]) -> Difference | None:
    mine, theirs = factors_of(new.term), factors_of(old.term)
    if not _is_minus(theirs[0]) or _is_minus(mine[0]) or len(mine) != len(theirs) - 1:
        return None
    lifts = [(one, other) for one, other in zip(mine, theirs[1:], strict=True) if one is not other]
    if not lifts or not all(
        isinstance(one, Lift) and isinstance(other, Lift) and _as_old(one) is other for one, other in lifts
    ):
        return None
    return _difference(new, list(mine), dict(lifts), bound)


def _is_minus(term: Term) -> bool:
    return isinstance(term, Const) and term.value == -1


def _as_old(term: Term | Range) -> Term | Range:
    """Return a term that reads everything as it was."""
    found: Term | Range = rebuild(term, _as_old)
    if isinstance(found, MapRead) and found.state == "NEW":
        return MapRead(found.map, found.column, found.keys)
    return found


def _difference(
    statement: Statement, factors: list[Term], changed: dict[Term, Term], bound: Collection[str]
) -> Difference | None:
    new: list[Lift] = []
    depending: set[str] = set()
    for factor in factors:
        if factor in changed or (isinstance(factor, Lift) and not variables_of(factor.term).isdisjoint(depending)):
            if not isinstance(factor, Lift) or factor.variable in bound or not _is_closed(factor, bound, depending):
                return None
            new.append(factor)
            depending.add(factor.variable)
    rest = [factor for factor in factors if factor not in new]
    tests = [factor for factor in rest if not variables_of(factor).isdisjoint(depending)]
    compare = tests[0] if len(tests) == 1 else None
    if not isinstance(compare, Compare) or not depending.isdisjoint(statement.keys):
        return None
    rest.remove(compare)
    axes = [Var(name) for name in variables_of(compare) if name not in bound and name not in depending]
    reads = [each for each in rest if isinstance(each, MapRead) and each.state == "OLD" and {*axes} & {*each.keys}]
    if len(axes) != 1 or len(reads) != 1 or reads[0].keys.count(axes[0]) != 1:
        return None
    direction = direction_of(compare, axes[0].name)
    own = {name for name in outputs(reads[0]) if name not in bound}
    rest.remove(reads[0])
    inner: list[Term] = []
    for factor in rest:
        if not variables_of(factor).isdisjoint(own):
            inner.append(factor)
            own.update(name for name in outputs(factor) if name not in bound)
    outer = [factor for factor in rest if factor not in inner]
    given = {*bound, *(name for factor in outer for name in outputs(factor))}
    if direction is None or not given.isdisjoint(own) or not inputs(reads[0]) <= given:
        return None
    old = tuple(lift for each in new if isinstance(lift := changed.get(each, each), Lift))
    axis = reads[0].keys.index(axes[0])
    return Difference(statement, (*outer,), (*new,), old, reads[0], axis, compare, direction > 0, (*inner,))


def _is_closed(lift: Lift, bound: Collection[str], depending: Collection[str]) -> bool:
    """Whether a lift binds its variable once, from what is known before the loop."""
    return all(name in bound or name in depending for name in (*inputs(lift), *outputs(lift.term)))
