"""Definitions in full: the atoms of derived relations spelled out as lifts of sums over base tables."""

from __future__ import annotations

from collections.abc import Iterable

from cumulus.algebra.scope import inputs, ordered, outputs, rename
from cumulus.algebra.terms import Atom, Extremum, Lift, Term, factors_of, sum_of
from cumulus.calculus.delta import aggregate
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.compiler.maps.columns import HIDDEN


def spell_out(keys: tuple[str, ...], body: Iterable[Monomial], derived: Registry) -> list[Term]:
    """Return what adds up to the sum of monomials by `keys`, over base tables only: a term for each of them.

    Examples
    --------
    >>> from cumulus.algebra.terms import ONE, Var, product_of
    >>> from cumulus.scalars.typing import Typed
    >>> from cumulus.catalog.types import INTEGER
    >>> total = SumRelation("total", product_of([Atom("r", ("a", "b")), Var("b")]), INTEGER)
    >>> known = {name: Typed(INTEGER, False) for name in ("a", "b", "total", "x")}
    >>> query = DerivedRelation("q", ("a",), (), (total,), (), ONE, (("x", Var("total")),), known, is_lookup=True)
    >>> body = [Monomial(1, (Atom("s", ("k", "a")), Atom("q", ("a", "x"))))]
    >>> print(*(str(part).replace(HIDDEN, "'") for part in spell_out(("k", "x"), body, Registry([query]))))
    SUM[k, x](s(k, a) * ("total'1" := SUM[a](r(a, "b'1") * "b'1")) * (x := "total'1"))
    """
    return [aggregate(keys, _Closing(derived).product(monomial, frozenset())) for monomial in body]


class SpelledSums:
    """How many sums of derived relations `spell_out` spells out; each one counts as often as it is written."""

    def __init__(self, derived: Registry) -> None:
        self._derived = derived
        self._inside: dict[str, int] = {}

    def count(self, body: Iterable[Monomial]) -> int:
        """Return the number for a sum of monomials, without writing it: that takes time in what is shared only."""
        return sum(self._row(what) for m in body for f in m.factors if (what := self._derived.of(f)) is not None)

    def _row(self, what: DerivedRelation) -> int:
        if what.name not in self._inside:
            self._inside[what.name] = sum(1 + self.count(monomials(each.term)) for each in numbers_needed(what))
        return self._inside[what.name]


def numbers_needed(what: DerivedRelation) -> list[SumRelation | ExtremumRelation]:
    """Return the numbers of a relation that its rows need: the count binds the keys of one that is not a look-up."""
    found = what.numbers_in(scalar for _, scalar in what.columns)
    count = what.numbers[0]
    return found if what.is_lookup or count in found else [count, *found]


def in_binding_order(factors: Iterable[Term], bound: frozenset[str], derived: Registry) -> list[Term]:
    """Return factors in an order in which each finds its variables bound."""
    waiting = list(factors)
    there = set(bound)
    result: list[Term] = []
    while waiting:
        chosen = next((factor for factor in waiting if variables_needed(factor, derived) <= there), waiting[0])
        waiting.remove(chosen)
        result.append(chosen)
        there.update(outputs(chosen))
    return result


def variables_needed(factor: Term, derived: Registry) -> frozenset[str]:
    """Return the variables that must have a value before a factor is reached."""
    what = derived.of(factor)
    if what is None or not isinstance(factor, Atom):
        return inputs(factor)
    keys, given, _ = what.split(factor)
    return keys | given if what.is_lookup else given


class FreshNames:
    """New names for variables: each has a number that no other name of the same statement has."""

    def __init__(self, derived: Registry) -> None:
        self._derived = derived
        self._count = 0

    def key(self) -> str:
        """Return a name for a key."""
        self._count += 1
        return f"key{HIDDEN}{self._count}"

    def inside(self, what: DerivedRelation, atom: Atom) -> dict[str, str]:
        """Return what the variables of a relation are called where its atom is looked into once more."""
        self._count += 1
        fresh = {name: f"{name.split(HIDDEN)[0]}{HIDDEN}{self._count}" for name in self._derived.locals_of(what)}
        return fresh | dict(zip(what.parameters, atom.variables, strict=True))


class _Closing:
    def __init__(self, derived: Registry) -> None:
        self._derived = derived
        self._fresh = FreshNames(derived)

    def product(self, monomial: Monomial, bound: frozenset[str]) -> Term:
        """Return a monomial with each factor where its variables are bound."""
        there = set(bound)
        result: list[Term] = []
        for factor in in_binding_order(monomial.factors, bound, self._derived):
            if isinstance(factor, Atom) and (what := self._derived.of(factor)) is not None:
                result += self._row(what, factor, frozenset(there))
            else:
                result.append(factor)
            there.update(outputs(factor))
        return Monomial(monomial.coefficient, tuple(result)).term()

    def _row(self, what: DerivedRelation, atom: Atom, bound: frozenset[str]) -> list[Term]:
        names = self._fresh.inside(what, atom)
        factors: list[Term] = []
        keys = ordered(names[key] for key in what.keys)
        there = bound | set(keys) | {names[name] for name in what.inputs}
        for each in numbers_needed(what):
            # The count of rows binds the keys of a relation that is there only where there are rows.
            near = bound if each is what.numbers[0] else there
            factors.append(Lift(names[each.name], self._number(each, names, keys, near)))
        factors += factors_of(rename(what.where, names))
        return [*factors, *(Lift(names[mine], rename(scalar, names)) for mine, scalar in what.columns)]

    def _number(
        self, each: SumRelation | ExtremumRelation, names: dict[str, str], keys: tuple[str, ...], bound: frozenset[str]
    ) -> Term:
        own = (names[each.variable],) if isinstance(each, ExtremumRelation) else ()
        body = [self.product(m, bound) for m in monomials(rename(each.term, names))]
        total = sum_of(aggregate((*keys, *own), part) for part in body)
        return Extremum(each.end, names[each.variable], total) if isinstance(each, ExtremumRelation) else total
