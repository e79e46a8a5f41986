"""What a view's keys and numbers mean, as texts that are equal where the meaning is.

A map's definition is reduced to some of its keys, simplified, and each of its monomials is put into canonical form.
The keys are pinned by atoms that only they have, so that equal forms agree on which key is which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from cumulus.algebra.scope import ordered, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Lift,
    MapExtremum,
    Scalar,
    Term,
    Var,
)
from cumulus.calculus.polynomial import monomials
from cumulus.calculus.simplify import simplify
from cumulus.compiler.maps.canonical_forms import canonical
from cumulus.m3.program import MapDef, Program, ViewDef

MAX_PAIRINGS = 720
"""How many ways to pair grouping columns of a query with those of a view are tried."""

Pins = Mapping[str, str]
"""Keys that are compared, by name, and what each is called in both definitions."""


def form_of(term: Term, pins: Pins) -> str:
    """Return the form of a definition, summed over all keys but the pinned ones.

    Examples
    --------
    >>> one = AggSum(("a", "b"), Atom("r", ("a", "b", "c")))
    >>> two = AggSum(("x",), Atom("r", ("x", "y", "z")))
    >>> form_of(one, {"a": "key"}) == form_of(two, {"x": "key"})
    True
    """
    body = term.term if isinstance(term, AggSum) else term
    pinned = [Atom(f"\N{PUSHPIN}{label}", (name,)) for name, label in pins.items()]
    reduced = simplify(body, frozenset(pins), frozenset())
    found = []
    for each in monomials(reduced):
        inner = _without_names(each.factors, pins)
        form = canonical(ordered(pins), [*inner, *pinned])
        found.append(f"{each.coefficient!r} {form.skeleton} * {form.values}")
    return " + ".join(_GROUPS.sub(_in_order, text) for text in sorted(found))


_GROUPS = re.compile(r"SUM\[(v\d+(?:, v\d+)*)\]")


def _in_order(group: re.Match[str]) -> str:
    """Write the variables that an inner sum groups by in one order: they are a set."""
    return f"SUM[{', '.join(sorted(group[1].split(', ')))}]"


def _without_names(factors: Iterable[Term], pins: Pins) -> list[Term]:
    """Return factors without names that nobody reads, and with comparisons in one direction."""
    left = [_directed(each) for each in factors]
    while True:
        unread = next(
            (
                each
                for each in left
                if isinstance(each, Lift)
                and each.variable not in pins
                and isinstance(each.term, (Var, Const, Apply, Cast))
                and not any(each.variable in variables_of(other) for other in left if other is not each)
            ),
            None,
        )
        if unread is None:
            return left
        left.remove(unread)


def _directed(factor: Term) -> Term:
    if isinstance(factor, Compare) and factor.op in _DIRECTIONS:
        return Compare(_DIRECTIONS[factor.op], factor.right, factor.left)
    if isinstance(factor, Compare) and factor.op in ("=", "<>") and isinstance(factor.left, Const):
        return Compare(factor.op, factor.right, factor.left)
    return factor


_DIRECTIONS = {">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Meaning:
    """A view of a program, with what its numbers mean.

    Parameters
    ----------
    program, view
        Where it stands.
    """

    program: Program
    view: ViewDef

    @property
    def main(self) -> MapDef:
        """The map whose entries are the rows."""
        return self.program.map(self.view.maps[0])

    @property
    def keys(self) -> tuple[str, ...]:
        """The grouping columns, by what the map calls them."""
        return tuple(key.name for key in self.main.keys)

    def column_of(self, key: str) -> int | None:
        """Return the place of the view's column that shows a key as it is."""
        return next((place for place, each in enumerate(self.view.select) if each is Var(key)), None)

    def count_form(self, pins: Pins) -> str | None:
        """Return the form of the number of rows in a group; None if it is not kept or not known."""
        return self._number(self.main, self.main.count, pins) if self.main.count else None

    def places(self, key: str) -> tuple[str, ...]:
        """Return where a key stands in tables: what two keys must share to mean the same."""
        if not self.main.definitions:
            return ()
        found: set[str] = set()
        for each in monomials(_body(self.main.definitions[self.main.column_index(self.main.count)])):
            for factor in each.factors:
                if isinstance(factor, Atom):
                    found |= {f"{factor.name} {n}" for n, name in enumerate(factor.variables) if name == key}
        return tuple(sorted(found))

    def scalar_form(self, scalar: Scalar, pins: Pins) -> str | None:
        """Return the form of an expression of the view; None if it reads what is not compared."""
        match scalar:
            case Const():
                return f"{scalar} {scalar.type}"
            case Var():
                return f"key {pins[scalar.name]}" if scalar.name in pins else self._variable(scalar.name, pins)
            case Cast():
                inner = self.scalar_form(scalar.arg, pins)
                return None if inner is None else f"cast({inner}, {scalar.type})"
            case Apply() | Compare():
                parts = (scalar.left, scalar.right) if isinstance(scalar, Compare) else scalar.args
                forms = [self.scalar_form(each, pins) for each in parts]
                called = scalar.op if isinstance(scalar, Compare) else scalar.function
                return None if None in forms else f"{called}({', '.join(map(str, forms))})"
            case MapExtremum():
                return self._end(scalar, pins)
        return None

    def _variable(self, name: str, pins: Pins) -> str | None:
        for number, each in enumerate(self.view.maps):
            held = self.program.map(each)
            column = name.removeprefix(f"{each}.") if name.startswith(f"{each}.") else name
            if (column == name or number) and column in (value.name for value in held.values):
                at = {key.name: mine for key, mine in zip(held.keys, self.keys, strict=True)}
                return self._number(held, column, {key: pins[mine] for key, mine in at.items() if mine in pins})
        return None

    def _number(self, held: MapDef, column: str, pins: Pins) -> str | None:
        if not held.definitions:
            return None
        return f"[{form_of(held.definitions[held.column_index(column)], pins)}]"

    def _end(self, end: MapExtremum, pins: Pins) -> str | None:
        held = self.program.map(end.map)
        inner: dict[str, str] = {}
        for key, given in zip(held.keys, end.keys, strict=True):
            if given is None:
                inner[key.name] = "end"
            elif isinstance(given, Var) and given.name in self.keys:
                if given.name in pins:
                    inner[key.name] = pins[given.name]
            else:
                return None
        if not held.definitions or len(held.values) != 1:
            return None
        return f"{end.end}[{form_of(held.definitions[0], inner)}]"


def _body(term: Term) -> Term:
    return term.term if isinstance(term, AggSum) else term


def pairings(wanted: Meaning, keys: tuple[str, ...], view: Meaning) -> Iterator[dict[str, str]]:
    """Iterate over ways to pair keys of a query with different ones of a view, which stand at the same places."""
    types = {key.name: key.type for key in (*wanted.main.keys,)}
    theirs = [(key.name, key.type, view.places(key.name)) for key in view.main.keys]
    choices = [
        [name for name, kind, places in theirs if kind == types[key] and places == wanted.places(key)] for key in keys
    ]
    for chosen in islice(product(*choices), MAX_PAIRINGS):
        if len(set(chosen)) == len(chosen):
            yield dict(zip(keys, chosen, strict=True))
