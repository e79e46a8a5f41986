"""The reference evaluator: what a term means, slowly and obviously.

A term is evaluated on a database (relation → multiset of rows) under bindings of some variables, to a multiset of
bindings of its other output variables: a variable that is bound already only filters. It shares no code with the
engines: it is what they are checked against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, TypeAlias, assert_never

from cumulus.algebra.scope import outputs
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
    Number,
    Product,
    Range,
    Scalar,
    Sum,
    Term,
    Var,
    add,
    multiply,
)
from cumulus.catalog.events import Row
from cumulus.catalog.types import Interval
from cumulus.errors import EvaluationError
from cumulus.scalars.registry import LAZY, call, cast_value

Database: TypeAlias = Mapping[str, Mapping[Row, int]]
"""Relation → row → multiplicity."""

Binding: TypeAlias = tuple[tuple[str, Any], ...]
"""Variables with their values, sorted by name."""

Multiset: TypeAlias = dict[Binding, Number]
"""Bindings with multiplicities that are not 0."""

_ZERO: Number = 0


def evaluate(
    term: Term,
    database: Database,
    bound: Mapping[str, Any] | None = None,
    batch: Database | None = None,
    *,
    failures_are_zero: bool = False,
) -> Multiset:
    """Return the value of `term`: output bindings → number, zeros left out.

    Parameters
    ----------
    bound
        Values of the input variables.
    batch
        What `Batch` atoms read.
    failures_are_zero
        Whether a factor that cannot be evaluated is 0, as hosts have it (docs/m3.md, "Meaning").

    Raises
    ------
    EvaluationError
        If a factor cannot be evaluated.

    Examples
    --------
    >>> from cumulus.algebra.terms import AggSum, Atom
    >>> evaluate(AggSum(("a",), Atom("r", ("a", "b"))), {"r": {(1, 2): 1, (1, 3): 2}})
    {(('a', 1),): 3}
    """
    return _Evaluator(database, batch or {}, failures_are_zero).value(term, dict(bound or {}))


class _Evaluator:
    def __init__(self, database: Database, batch: Database, failures_are_zero: bool) -> None:
        self.database = database
        self.batch = batch
        self.failures_are_zero = failures_are_zero

    def value(self, term: Term, bound: dict[str, Any]) -> Multiset:
        """Evaluate in value context: NULL counts as 0."""
        try:
            return self._value(term, bound)
        except EvaluationError:
            if self.failures_are_zero:
                return {}
            raise

    def _value(self, term: Term, bound: dict[str, Any]) -> Multiset:
        match term:
            case Const() | Var() | Apply() | Cast() | Extremum():
                number = self.scalar(term, bound)
                if self.failures_are_zero and isinstance(number, float) and not math.isfinite(number):
                    raise EvaluationError(f"{number} cannot be added", hint="Only finite numbers can be added.")
                return {(): number} if number else {}
            case Compare(op, left, right):
                holds = compare(op, self.scalar(left, bound), self.scalar(right, bound))
                return {(): 1} if holds else {}
            case Atom(name, variables):
                return self._atom(self.database.get(name, {}), variables, bound)
            case Batch(name, variables):
                return self._atom(self.batch.get(name, {}), variables, bound)
            case Lift(variable, inner):
                return self._lift(variable, inner, bound)
            case Exists(inner):
                return dict.fromkeys(self.value(inner, bound), 1)
            case AggSum(group, inner):
                kept = {name for name in group if name in outputs(inner)}
                return _gather(
                    (tuple(pair for pair in binding if pair[0] in kept), number)
                    for binding, number in self.value(inner, bound).items()
                )
            case Sum(parts):
                return _gather(item for part in parts for item in self.value(part, bound).items())
            case Product(parts):
                return self._product(parts, bound)
            case MapRead() | MapExtremum():
                raise TypeError(f"the reference evaluator has no maps: {term}")
            case _:
                assert_never(term)

    def _atom(self, rows: Mapping[Row, int], variables: tuple[str, ...], bound: dict[str, Any]) -> Multiset:
        result: list[tuple[Binding, Number]] = []
        for row, multiplicity in rows.items():
            seen = dict(bound)
            if all(seen.setdefault(name, item) == item for name, item in zip(variables, row, strict=True)):
                result.append((_binding({name: seen[name] for name in variables if name not in bound}), multiplicity))
        return _gather(result)

    def _lift(self, variable: str, inner: Term, bound: dict[str, Any]) -> Multiset:
        """Bind `variable` to a scalar, or to the value of a nested term (0 where it has no tuple)."""
        if isinstance(inner, (Const, Var, Apply, Cast, MapExtremum, Extremum)):
            cases: dict[Binding, Any] = {(): self.scalar(inner, bound)}
        else:
            cases = dict(self.value(inner, bound))
            if not [name for name in outputs(inner) if name not in bound]:
                cases = {(): reduce(add, cases.values(), _ZERO)}
        return _gather(
            (_binding({**dict(binding), **({} if variable in bound else {variable: value})}), 1)
            for binding, value in cases.items()
            if variable not in bound or bound[variable] == value
        )

    def _product(self, parts: tuple[Term, ...], bound: dict[str, Any]) -> Multiset:
        partial: list[tuple[dict[str, Any], Number]] = [({}, 1)]
        for part in parts:
            following: list[tuple[dict[str, Any], Number]] = []
            for binding, number in partial:
                for more, factor in self.value(part, {**bound, **binding}).items():
                    following.append(({**binding, **dict(more)}, multiply(number, factor)))
            partial = following
        return _gather((_binding(binding), number) for binding, number in partial)

    def scalar(self, term: Term | Range, bound: dict[str, Any]) -> Any:
        """Evaluate in scalar context: one SQL value."""
        match term:
            case Const(value, _):
                return value
            case Var(name):
                return bound[name]
            case Apply(function, args) if function in LAZY:
                return self._as_needed(function, args, bound)
            case Apply(function, args):
                return call(function, tuple(self.scalar(arg, bound) for arg in args))
            case Cast(arg, target):
                return cast_value(self.scalar(arg, bound), target)
            case Extremum(end, variable, inner):
                return self._end(end, variable, inner, bound)
            case Range() | MapExtremum() | MapRead():
                raise TypeError(f"the reference evaluator has no maps: {term}")
            case _:
                return reduce(add, self.value(term, bound).values(), _ZERO)

    def _as_needed(self, function: str, args: tuple[Scalar, ...], bound: dict[str, Any]) -> Any:
        """Evaluate a call whose arguments count from the left, only as far as the outcome needs."""
        match function:
            case "try":
                try:
                    return self.scalar(args[0], bound)
                except EvaluationError:
                    return None
            case "case" | "if":
                pairs = zip(args[:-1:2], args[1::2], strict=True)
                return self.scalar(next((v for test, v in pairs if self.scalar(test, bound)), args[-1]), bound)
            case "coalesce":
                values = (self.scalar(arg, bound) for arg in args)
                return next((value for value in values if value is not None), None)
            case _:
                found = []
                for arg in args:
                    found.append(self.scalar(arg, bound))
                    if found[-1] is (function == "or"):
                        return found[-1]
                return call(function, tuple(found))

    def _end(self, end: str, variable: str, inner: Term, bound: dict[str, Any]) -> Any:
        outside = {name: value for name, value in bound.items() if name != variable}
        sums = _gather((((variable, dict(found)[variable]),), n) for found, n in self.value(inner, outside).items())
        values = [binding[0][1] for binding in sums if binding[0][1] is not None]
        return (min if end == "MIN" else max)(values, key=_order, default=None)


def _order(value: Any) -> Any:
    """Return what Python orders as SQL orders `value`: NaN is the greatest number, 30 days are a month."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    if isinstance(value, Interval):
        return (value.months * 30 + value.days) * 86_400_000_000 + value.micros
    return value


def compare(op: str, left: Any, right: Any) -> bool:
    """Compare as `Compare` does: NULL equals NULL only, and is in no order with anything."""
    if op == "=":
        return bool(left == right) and (left is None) == (right is None)
    if op == "<>":
        return not compare("=", left, right)
    if left is None or right is None:
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _binding(values: Mapping[str, Any]) -> Binding:
    return tuple(sorted(values.items(), key=lambda pair: pair[0]))


def _gather(items: Iterable[tuple[Binding, Number]]) -> Multiset:
    result: Multiset = {}
    for binding, number in items:
        total = add(result.get(binding, 0), number)
        if total:
            result[binding] = total
        else:
            result.pop(binding, None)
    return result
