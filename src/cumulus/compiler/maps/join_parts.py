"""How many maps the joins of a view need, counted before any of them is made.

A map is made for each part of a join that is left when some of its tables have changed: an event binds the variables
of its row, and what no longer hangs together falls apart. Tables in a chain have few such parts, n around one have 2ⁿ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cumulus.algebra.terms import Atom, Term
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.maps.trusted_keys import children_of

Join = frozenset[Atom]


def count_join_parts(terms: Iterable[Term], derived: Registry, tables: Mapping[str, Table], limit: int) -> int:
    """Return how many parts of joins need maps beside the joins themselves; if more than `limit`, a number beyond it.

    Parameters
    ----------
    terms
        What is added up.
    derived
        The sub-queries and outer joins that the terms read: their own joins are counted, too.
    tables
        `cumulus.compiler.maps.trusted_keys.trusting`.

    Examples
    --------
    >>> from cumulus.algebra.terms import product_of
    >>> tables = {name: Table(name, ()) for name in "fabc"}
    >>> star = [Atom("f", ("x", "y", "z")), Atom("a", ("x",)), Atom("b", ("y",)), Atom("c", ("z",))]
    >>> count_join_parts([product_of(star)], Registry(), tables, 100)
    10
    """
    whole = frozenset(_joins(terms, derived, tables))
    seen: set[Join] = set(whole)
    waiting = [part for join in whole for part in _parts(join, tables)]
    while waiting and len(seen) - len(whole) <= limit:
        join = waiting.pop()
        if join not in seen:
            seen.add(join)
            waiting += _parts(join, tables)
    return len(seen) - len(whole)


def _joins(terms: Iterable[Term], derived: Registry, tables: Mapping[str, Table]) -> Iterator[Join]:
    """Yield the tables that are joined, of the terms and of the derived relations that they read."""
    read: set[str] = set()
    waiting = list(terms)
    while waiting:
        for monomial in monomials(waiting.pop()):
            atoms = [factor for factor in monomial.factors if isinstance(factor, Atom)]
            yield frozenset(atom for atom in atoms if atom.name in tables)
            for atom in atoms:
                what = derived.get(atom.name)
                if what is not None and atom.name not in read:
                    read.add(atom.name)
                    waiting += what.bodies


def _parts(join: Join, tables: Mapping[str, Table]) -> Iterator[Join]:
    """Yield what is left of a join when one of its tables changes, in pieces that share no variable."""
    for changed in join:
        others = join - {changed}
        if tables[changed.name].static or any(children_of(changed, others, tables)):
            continue
        bound = frozenset(changed.variables)
        while others:
            piece, names = set[Atom](), frozenset[str]()
            found = {next(iter(others))}
            while found:
                piece |= found
                names |= frozenset(name for atom in found for name in atom.variables) - bound
                found = {atom for atom in others - piece if not names.isdisjoint(atom.variables)}
            yield frozenset(piece)
            others -= piece
