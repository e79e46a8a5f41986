"""Two statements that differ only in when they read a threshold, taken together.

Where a condition compares what a loop visits with something that the firing changes, there is a pair of statements:

    q[g] += (t := NEW a[]) * m[g, x] * {x > t}
    q[g] += -(t := a[]) * m[g, x] * {x > t}

All that both visit cancels out, so only the x between the old and the new t matter: rows in order, mostly few. The same
holds where what is compared is a running sum, `(t := NEW a[> x]) * {t < 3}`: if nothing that it adds is negative, it
turns at one x. So the first rows of a group, which a correlated count tells, cost no look at the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from cumulus.algebra.scope import inputs, outputs, variables_of
from cumulus.algebra.terms import Compare, Const, Lift, MapRead, Range, Term, Var, factors_of, rebuild
from cumulus.engine.analysis.intervals import OnAxis
from cumulus.m3.program import Statement


@dataclass(frozen=True, slots=True)
class StatementPair:
    """A pair of statements.

    Parameters
    ----------
    statement
        The one that reads what the firing has changed.
    outer
        Factors of both that come before everything else.
    new, old
        The lifts on which the condition depends, as each of them has them.
    running
        Those of them that depend on the axis, as each of them has them: sums that begin or end there, none of whose
        summands may be negative, and what is computed from these.
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
    running: tuple[tuple[Lift, ...], tuple[Lift, ...]]
    read: MapRead
    axis: int
    compare: Compare
    is_up: bool
    inner: tuple[Term, ...]


def statement_pairs(
    statements: Sequence[Statement], bound: Collection[str], may: Callable[[StatementPair], bool] = lambda pair: True
) -> tuple[dict[int, StatementPair], list[Statement]]:
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
    >>> pairs, rest = statement_pairs(program.triggers[0].statements, {"a"})
    >>> [(str(each.read), str(each.compare), each.is_up) for each in pairs.values()], len(rest)
    ([('m[x, y].n', '{x > h}', True)], 2)
    """
    pairs: dict[int, StatementPair] = {}
    gone: set[int] = set()
    alike: dict[object, list[Statement]] = {}
    for statement in statements:
        alike.setdefault((statement.map, statement.column, statement.keys, statement.op), []).append(statement)
    for group in alike.values():
        for new, old in permutations(group, 2):
            if not {id(new), id(old)} & (pairs.keys() | gone):
                pair = _pair(new, old, bound)
                if pair is not None and may(pair):
                    pairs[id(new)] = pair
                    gone.add(id(old))
    return pairs, [statement for statement in statements if id(statement) not in gone]


def _pair(new: Statement, old: Statement, bound: Collection[str]) -> StatementPair | None:
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
) -> StatementPair | None:
    lifts: list[Lift] = []
    depending: set[str] = set()
    for factor in factors:
        if factor in changed or (isinstance(factor, Lift) and not variables_of(factor.term).isdisjoint(depending)):
            if not isinstance(factor, Lift) or factor.variable in bound:
                return None
            lifts.append(factor)
            depending.add(factor.variable)
    rest = [factor for factor in factors if factor not in lifts]
    tests = [factor for factor in rest if not variables_of(factor).isdisjoint(depending)]
    compare = tests[0] if len(tests) == 1 else None
    if not isinstance(compare, Compare) or not depending.isdisjoint(statement.keys):
        return None
    rest.remove(compare)
    outer, valued = _before(rest, bound)
    names = {*variables_of(compare), *(name for lift in lifts for name in inputs(lift))} - depending - valued
    axes = [Var(name) for name in names]
    reads = [each for each in rest if isinstance(each, MapRead) and each.state == "OLD" and {*axes} & {*each.keys}]
    if len(axes) != 1 or len(reads) != 1 or reads[0] in outer or reads[0].keys.count(axes[0]) != 1:
        return None
    own = {name for name in outputs(reads[0]) if name not in valued}
    inner: list[Term] = []
    for factor in (each for each in rest if each is not reads[0] and each not in outer):
        if variables_of(factor).isdisjoint(own):
            outer.append(factor)
            valued.update(outputs(factor))
        else:
            inner.append(factor)
            own.update(name for name in outputs(factor) if name not in valued)
    known = {*valued}
    closed: list[Lift] = []
    for lift in lifts:
        if known.issuperset((*inputs(lift), *outputs(lift.term))):
            closed.append(lift)
            known.add(lift.variable)
    running = [lift for lift in lifts if lift not in closed]
    sums = OnAxis(axes[0].name, known)
    conditions = sums.conditions(compare) if all(sums.add(_bare(lift, known)) for lift in running) else None
    if conditions is None or len(conditions) != 1 or not valued.isdisjoint(own) or not inputs(reads[0]) <= valued:
        return None
    return StatementPair(
        statement,
        (*outer,),
        (*closed,),
        _as_they_were(closed, changed),
        ((*running,), _as_they_were(running, changed)),
        reads[0],
        reads[0].keys.index(axes[0]),
        compare,
        conditions[0].is_up,
        (*inner,),
    )


def _bare(lift: Lift, known: Collection[str]) -> Lift:
    """Return a lift without conditions that the axis has no part in: where one fails, the sum is 0 everywhere."""
    parts = factors_of(lift.term)
    rest = [part for part in parts if not (isinstance(part, Compare) and variables_of(part) <= {*known})]
    return Lift(lift.variable, rest[0]) if len(rest) == 1 and len(parts) > 1 else lift


def _before(factors: Iterable[Term], bound: Collection[str]) -> tuple[list[Term], set[str]]:
    """Return the factors that come before the first loop over a map, and the variables that have a value there."""
    outer: list[Term] = []
    given = {*bound}
    for factor in factors:
        if isinstance(factor, MapRead) or not inputs(factor) <= given:
            break
        outer.append(factor)
        given.update(outputs(factor))
    return outer, given


def _as_they_were(lifts: Iterable[Lift], changed: dict[Term, Term]) -> tuple[Lift, ...]:
    return tuple(lift for each in lifts if isinstance(lift := changed.get(each, each), Lift))
