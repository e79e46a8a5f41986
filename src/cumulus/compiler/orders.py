"""In which order each view is kept: what it says, or a lower one than full where that would be too large.

How many maps the joins of a view need is counted before any of them is made: one for each part of a join that is left
when some of its tables have changed, since an event binds the variables of its row, and what no longer hangs together
falls apart. Tables in a chain have few such parts, n around one have 2ⁿ.

What sub-queries and outer joins need shows only while it is made: where a program outgrows its limits, it is made again
with lower orders for the views that took most of it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping

from cumulus.algebra.terms import Atom, Term
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.declarations import Declarations
from cumulus.compiler.maps.trusted_keys import children_of
from cumulus.compiler.options import CompilerOptions, ExcessError
from cumulus.errors import LowerOrderWarning, UnsupportedError
from cumulus.sql.ast import CreateView
from cumulus.sql.binding.translation import BoundView

MAX_JOIN_PARTS = 40
"""How many parts of joins a view may need maps for in full order, before a lower one is chosen for it."""

_INSTEAD = {
    1: "Its rows are joined at each event instead, as WITH (order = 1) does.",
    0: "It is evaluated again after each transaction instead, as WITH (order = 0) does.",
}


class ViewOrders:
    """The order of each view; `of` are those that hold, by the views' names.

    Raises
    ------
    UnsupportedError
        If a STRICT view would need a lower one.
    """

    def __init__(self, declared: Declarations, options: CompilerOptions) -> None:
        words = {"": options.order, "full": None, "0": 0, "1": 1}
        self._views = {str(view.name): view for view in declared.views.values()}
        self._source = declared.source
        self._given = options.order is not None
        self._size = options.size
        self._told: dict[str, str] = {}
        self.of: dict[str, int | None] = {name: words[view.order] for name, view in self._views.items()}

    def lower_wide(self, bound: list[BoundView], derived: Registry, tables: Mapping[str, Table]) -> None:
        """Lower the order of views that join too many tables for full order."""
        limit = MAX_JOIN_PARTS * self._size
        for view in bound:
            terms = [*(each.term for each in view.sums), *(each.term for each in view.ends)]
            if self._is_free(view.name) and count_join_parts(terms, derived, tables, limit) > limit:
                self._lower(
                    self._views[view.name],
                    f"joins so many tables that may change at any time that it would need more than {limit} maps",
                    "Declare the keys of its tables and the references between them, or which tables are static",
                    "a wide join without keys",
                )

    def lower_largest(self, excess: ExcessError) -> None:
        """Lower the order of the views that took more than their share of a program that is too large.

        Raises
        ------
        UnsupportedError
            If there is none whose order may be lowered, at the view that took most.
        """
        share = excess.work.total() / len(self._views)
        large = [name for name, work in excess.work.items() if work >= share and self._is_free(name)]
        large = [name for name in large if self.of[name] != 0]
        if not large:
            raise self._refusal(excess)
        for name in large:
            self._lower(
                self._views[name], f"would need more than {excess.limit}", excess.hint.rstrip("."), order=excess.order
            )

    def warn(self) -> None:
        """Say which orders are lower than they might be."""
        for text in self._told.values():
            warnings.warn(text, LowerOrderWarning, stacklevel=_depth_of_caller())

    def _is_free(self, name: str) -> bool:
        return not self._views[name].order and not self._given

    def _lower(
        self,
        view: CreateView,
        what: str,
        way_out: str,
        feature: str = "a program of this size",
        order: int | None = None,
    ) -> None:
        name = str(view.name)
        lower = (1 if self.of[name] is None else 0) if order is None else order
        if view.strict:
            instead = ", or say WITH (order = 1)" if lower else ""  # order 0 is never STRICT
            raise UnsupportedError(
                f"view {view.name} {what}, and is STRICT",
                feature=feature,
                hint=f"{way_out}; or leave out STRICT{instead}.",
                **self._source.place(view.at),
            )
        self.of[name] = lower
        self._told[name] = f"view {name} {what}. {_INSTEAD[lower]} {way_out}; WITH (order = full) keeps the maps."

    def _refusal(self, excess: ExcessError) -> UnsupportedError:
        most = max(self._views, key=lambda name: excess.work[name])
        several = len(self._views) > 1
        who = f"these views need more than {excess.limit}, most of them for {most}"
        return UnsupportedError(
            who if several else f"view {most} needs more than {excess.limit}",
            feature="a program of this size",
            hint=f"{excess.hint} Or allow larger programs: Warehouse(…, size={excess.size}); "
            f"cumulus compile FILE --size {excess.size} prints one that the other commands take.",
            **self._source.place(self._views[most].at),
        )


def _depth_of_caller() -> int:
    """Return how far up the stack whoever called this package is."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("cumulus", "contextlib"):
        frame, depth = frame.f_back, depth + 1
    return depth


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
