"""Sums over an interval of one key: what an engine that keeps rows in order answers without visiting them.

`SUM[](m[g, x].s * {x > a})` adds up what has a key above a. So does `m[g, > a].s`. And in

    m[x].n * (s := m[> x].s) * {t > s}

the condition holds from some x on, if no summand of s is negative, so that this is an interval, too: where it begins is
searched by trying. That is how the threshold of a running sum (VWAP) is found.

A condition is of one of two kinds. It holds from some x *up*, or from some x *down*: everywhere or nowhere, at worst.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from cumulus.algebra import terms
from cumulus.algebra.scope import inputs, outputs, scalar_inputs, variables_of
from cumulus.algebra.terms import AggSum, Apply, Cast, Compare, Const, Lift, MapRead, Product, Range, Sum, Term, Var
from cumulus.m3.infer import nodes

AXIS = "axis of an interval"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the axis.

    Parameters
    ----------
    compare
        What must hold.
    lifts
        What must be computed for it at a place on the axis: sums over intervals that begin or end there.
    is_up
        Whether it holds from some place up, not down; provided that nothing that `lifts` add is negative.
    valued
        What must not be NULL, a scalar that does not depend on the axis: it comes from `=`, which holds of two NULLs,
        while no interval has them.
    specials
        Those of `lifts`, by variable, that count infinities and NaN beside a sum of floats; provided that no -inf is
        among them. Then that sum grows, too: from a number to infinity, and to NaN, which is greatest.
    """

    compare: Compare
    lifts: tuple[Lift, ...]
    is_up: bool
    valued: Term | None = None
    specials: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyInterval:
    """A sum over an interval.

    Parameters
    ----------
    read
        What is added up, with `variable` as the key on the axis.
    axis
        Which key that is; the others have a value.
    conditions
        What makes the interval: at least one.
    """

    read: MapRead
    axis: int
    variable: str
    conditions: tuple[Condition, ...]

    @property
    def excludes_null(self) -> bool:
        """Whether a condition fails where the axis is NULL: no comparison with NULL holds, and sums that begin or end
        there are 0, which some conditions take.
        """
        return any(
            self.variable in variables_of(each.compare)
            or (each.compare.op == ">" and isinstance(each.compare.left, Var) and each.compare.right == terms.ZERO)
            for each in self.conditions
        )


def interval_of(term: Term, bound: Collection[str]) -> KeyInterval | None:
    """Return the sum over an interval that a term is where some variables have a value; None if it is not one.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> term = product_of([MapRead("m", "", (Var("x"),)), Compare(">", Var("a"), Var("x"))])
    >>> [(str(each.compare), each.is_up) for each in interval_of(term, {"a"}).conditions]
    [('{a > x}', False)]
    >>> interval_of(term, {"a", "x"}) is None
    True
    """
    if isinstance(term, AggSum):
        if any(name not in bound for name in outputs(term)):
            return None
        term = term.term
    factors = terms.factors_of(term)
    reads = [factor for factor in factors if isinstance(factor, MapRead)]
    if len(reads) != 1 or reads[0].state == "CHANGED":
        return None
    (read,) = reads
    if len(factors) == 1:
        return _of_range(read, bound)
    if any(isinstance(key, Range) for key in read.keys):
        return None
    free = [place for place, key in enumerate(read.keys) if not _has_value(key, bound)]
    axis = read.keys[free[0]] if len(free) == 1 else None
    if not isinstance(axis, Var):
        return None
    variable = axis.name
    conditions = _conditions([factor for factor in factors if factor is not read], variable, bound)
    return KeyInterval(read, free[0], variable, conditions) if conditions else None


def _of_range(read: MapRead, bound: Collection[str]) -> KeyInterval | None:
    ranges = [place for place, key in enumerate(read.keys) if isinstance(key, Range)]
    if len(ranges) != 1 or not all(_has_value(key, bound) for key in read.keys):
        return None
    (axis,) = ranges
    pattern = read.keys[axis]
    assert isinstance(pattern, Range)
    conditions = []
    for end, op in ((pattern.low, ">"), (pattern.high, "<")):
        if end is not None:
            compare = Compare(f"{op}=" if end[1] else op, Var(AXIS), end[0])
            conditions.append(Condition(compare, (), op == ">"))
    keys = (*read.keys[:axis], Var(AXIS), *read.keys[axis + 1 :])
    return KeyInterval(MapRead(read.map, read.column, keys, read.state), axis, AXIS, tuple(conditions))


def _has_value(key: Term | Range, bound: Collection[str]) -> bool:
    return all(name in bound for name in scalar_inputs(key))


# --- conditions -----------------------------------------------------------------------------------------------------


def _conditions(factors: Sequence[Term], variable: str, bound: Collection[str]) -> tuple[Condition, ...] | None:
    """Return what factors say of the variable; None if it is not that it is in an interval."""
    inner = OnAxis(variable, bound)
    found: list[Condition] = []
    for factor in factors:
        if isinstance(factor, Lift) and factor.variable not in bound and inner.add(factor):
            continue
        more = inner.conditions(factor) if isinstance(factor, Compare) else None
        if more is None:
            return None
        found += more
    return tuple(found)


class OnAxis:
    """What depends on the axis, which is a variable; `bound` are those that have a value outside."""

    def __init__(self, variable: str, bound: Collection[str]) -> None:
        self._variable = variable
        self._bound = bound
        self._scalars: dict[str, Term] = {}
        self._sums: dict[str, Lift] = {}

    def add(self, lift: Lift) -> bool:
        """Take in a variable that is computed from the axis; False if it is of no known kind."""
        name, term = lift.variable, lift.term
        if name in self._scalars or name in self._sums or name == self._variable:
            return False
        if isinstance(term, MapRead):
            if self._of_sum(term) is None:
                return False
            self._sums[name] = lift
        elif not isinstance(term, (Var, Const, Apply, Cast)) or not self._knows(term):
            return False
        else:
            self._scalars[name] = self._shown(term)
        return True

    def _knows(self, term: Term) -> bool:
        known = (self._variable, *self._scalars, *self._sums)
        return all(name in known or name in self._bound for name in variables_of(term)) and not _has_read(term)

    def _shown(self, term: Term) -> Term:
        """Return a scalar with what variables of the axis stand for."""
        if isinstance(term, Var):
            return self._scalars.get(term.name, term)
        shown: Term = terms.rebuild(term, lambda child: child if isinstance(child, Range) else self._shown(child))
        return shown

    def conditions(self, compare: Compare) -> list[Condition] | None:
        """Return the conditions that a comparison is; None if they are of no known kind."""
        if not self._knows(compare):
            return None
        return self._split(compare.op, self._shown(compare.left), self._shown(compare.right))

    def _split(self, op: str, left: Term, right: Term) -> list[Condition] | None:
        if op == "=":
            valued = next((each for each in (left, right) if self._is_free(each)), None)
            ends = [self._split(each, left, right) for each in (">=", "<=")]
            if valued is None or ends[0] is None or ends[1] is None:
                return None
            return [replace(each, valued=valued) for each in (*ends[0], *ends[1])]
        if op not in terms.MIRRORED:
            return None
        for side, other, turned in ((left, right, op), (right, left, terms.MIRRORED[op])):
            match side:
                # What has no rows has no sum: `CASE WHEN n = 0 THEN NULL ELSE s END`.
                case Apply("case", (Apply("eq", (Var(count), Const(0, _))), Const(None, _), value)) if (
                    count in self._sums
                ):
                    there = self._single(">", Var(count), terms.ZERO)
                    rest = self._split(turned, value, other)
                    return None if there is None or rest is None else [there, *rest]
        single = self._single(op, left, right)
        return None if single is None else [single]

    def _single(self, op: str, left: Term, right: Term) -> Condition | None:
        direction = self._direction(Apply("sub", (left, right)))
        if not direction:
            return None
        is_up = (direction > 0) is (op in (">", ">="))
        compare = Compare(op, left, right)
        names = variables_of(compare)
        lifts = tuple(lift for name, lift in self._sums.items() if name in names)
        return Condition(compare, lifts, is_up, specials=frozenset(_specials(compare)) & self._sums.keys())

    def _direction(self, term: Term) -> int | None:
        """Return 1 if a scalar grows with the axis or stays, -1 if it falls or stays, 0 if it stays; None else."""
        match term:
            case Var(name):
                if name == self._variable:
                    return 1
                return self._of_sum(self._sums[name].term) if name in self._sums else 0
            case _ if self._is_free(term):
                return 0
            case Apply("float_sum", (Var() as total, Var() as odd)):
                one, other = self._direction(total), self._direction(odd)
                return one if one == other else None
            case Cast(arg, target) if target.is_numeric or target.is_temporal:
                return self._direction(arg)
            case Apply("neg", (arg,)):
                return _turned(self._direction(arg), -1)
            case Apply("add" | "sub" as function, (left, right)):
                one, other = self._direction(left), self._direction(right)
                other = _turned(other, 1 if function == "add" else -1)
                if one is None or other is None or one * other < 0:
                    return None
                return one or other
            case Apply("mul", (Const(value, _), arg)) | Apply("mul", (arg, Const(value, _))) if value is not None:
                return _turned(self._direction(arg), (value > 0) - (value < 0))
            case _:
                return None

    def _is_free(self, term: Term) -> bool:
        """Whether a scalar does not depend on the axis."""
        return variables_of(term).isdisjoint((self._variable, *self._sums))

    def _of_sum(self, term: Term) -> int | None:
        """Return the direction of a sum that begins or ends on the axis, if nothing that it adds is negative."""
        if not isinstance(term, MapRead) or term.state == "CHANGED":
            return None
        ranges = [key for key in term.keys if isinstance(key, Range)]
        rest = [key for key in term.keys if not isinstance(key, Range)]
        if len(ranges) != 1 or not all(_has_value(key, self._bound) for key in rest):
            return None
        low, high = ranges[0].low, ranges[0].high
        if (low is None) == (high is None):
            return None
        end = low or high
        assert end is not None
        if not self._knows(end[0]) or not variables_of(end[0]).isdisjoint(self._sums):
            return None
        return _turned(self._direction(self._shown(end[0])), -1 if low is not None else 1)


def _specials(term: Term | Range) -> Iterator[str]:
    """Yield the variables that count what is no number beside a sum of floats."""
    match term:
        case Apply("float_sum", (_, Var(name))):
            yield name
        case _:
            for child in terms.children(term):
                yield from _specials(child)


def _turned(direction: int | None, sign: int) -> int | None:
    return None if direction is None else direction * sign


def _has_read(term: Term | Range) -> bool:
    """Whether a scalar has a node of value context in it."""
    return any(not isinstance(node, (Var, Const, Apply, Cast, Compare, Range)) for node in nodes(term))


# --- taking them out of products ------------------------------------------------------------------------------------


def with_intervals(term: Term, bound: Collection[str], needed: Collection[str]) -> Term:
    """Return a term whose products have sums over intervals as factors of their own, where they can.

    Parameters
    ----------
    term
        One whose inner sums are `cumulus.engine.analysis.separation.separated`.
    bound
        The variables that have a value.
    needed
        The variables that the term is asked for.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> reads = [MapRead("m", "", (Var("x"),)), MapRead("k", "", (Var("y"),))]
    >>> term = product_of([*reads, Compare(">", Var("a"), Var("x"))])
    >>> str(with_intervals(term, {"a"}, {"y"}))
    'SUM[](m[x] * {a > x}) * k[y]'
    """
    match term:
        case Product(parts):
            found = [with_intervals(part, bound, outputs(part)) for part in parts]
            for read in parts:
                if isinstance(read, MapRead) and read in found:
                    found = _taken_out(read, found, bound, needed)
            return terms.product_of(found)
        case AggSum(group, inner):
            return AggSum(group, with_intervals(inner, bound, group))
        case Sum(parts):
            return terms.sum_of(with_intervals(part, bound, needed) for part in parts)
        case Lift(variable, AggSum() | Product() | Sum() as inner):
            return Lift(variable, with_intervals(inner, bound, outputs(inner)))
        case terms.Exists(inner):
            return terms.Exists(with_intervals(inner, bound, outputs(inner)))
        case _:
            return term


def groups_of(term: Term, free: Collection[str], bound: Collection[str]) -> KeyInterval | None:
    """Return the sum over an interval that a term is for each value of some variables; None if it is not one.

    The variables are all keys of what is read but the axis.
    """
    interval = interval_of(term, {*bound, *free})
    if interval is None or interval.read.state != "OLD" or len(free) != len(interval.read.keys) - 1:
        return None
    keys = [key for place, key in enumerate(interval.read.keys) if place != interval.axis]
    return interval if {Var(name) for name in free} == {*keys} else None


def _taken_out(read: MapRead, parts: list[Term], bound: Collection[str], needed: Collection[str]) -> list[Term]:
    """Return the factors of a product with those together that only add up what a read loops over."""
    others = {name for part in parts if part is not read for name in outputs(part)}
    own = [name for name in outputs(read) if name not in bound and name not in others]
    shown, hidden = ([name for name in own if (name in needed) is is_shown] for is_shown in (True, False))
    if len(hidden) != 1 or parts.count(read) > 1 or (shown and (read.state != "OLD" or len(own) < len(read.keys))):
        return parts
    names = {*hidden}
    together: list[Term] = [read]
    for part in parts:
        if part is read or variables_of(part).isdisjoint(names):
            continue
        if isinstance(part, Lift) and part.variable not in needed and part.variable not in bound:
            names.add(part.variable)
        elif not isinstance(part, Compare):
            return parts
        together.append(part)
    rest = [part for part in parts if part not in together]
    if len(together) == 1 or any(not variables_of(part).isdisjoint(names) for part in rest):
        return parts
    outside = {*bound, *shown, *(name for part in rest for name in outputs(part))}
    inner = terms.product_of(part for part in parts if part in together)
    total = AggSum(tuple(name for name in outputs(inner) if name in outside), inner)
    if interval_of(total, outside) is None:
        return parts
    first = parts.index(read)
    known = {*bound}
    for place, part in enumerate(parts):
        if place >= first and inputs(total) <= known:
            break
        known.update(outputs(part) if part in rest else ())
    else:
        place = len(parts)
    earlier = {*bound, *(name for part in parts[:first] for name in outputs(part))}
    if place > first and any(name not in earlier and name not in hidden for name in outputs(read)):
        return parts  # what it binds is needed before
    return [*(part for part in parts[:place] if part in rest), total, *(part for part in parts[place:] if part in rest)]
