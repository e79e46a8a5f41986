"""Enforced references: the rows that are moved around a change of their parent.

A program whose references are enforced has no statements for a parent that changes while rows refer to it: they would
be zero if none did. So these rows go first, then the parent changes, then they come back; and with them the rows that
refer to them, as far as a map joins them with what has changed. Each map follows its definition at every step, whatever
the order of events, and the rows of all tables are in the end what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from typing import TypeAlias

from cumulus.algebra.terms import AggSum, Atom, Lift, Range, Term, Var
from cumulus.catalog.events import Row
from cumulus.engine.integrity import Integrity, Reference, references
from cumulus.m3.infer import nodes
from cumulus.m3.program import Program

MovedRows: TypeAlias = dict[str, dict[Row, int]]
"""Table → row → how often it is there; parents stand before their children."""


@dataclass(frozen=True, slots=True)
class _Use:
    """What a map reads of a table: places of columns, and the references along which it joins other tables with it."""

    places: frozenset[int]
    references: frozenset[Reference]


class ReferringRows:
    """Finds the rows that refer to a row that changes, as far as maps join them.

    Parameters
    ----------
    program
        Says which references are enforced, and what its maps join.
    integrity
        Has the kept rows.
    """

    def __init__(self, program: Program, integrity: Integrity) -> None:
        self._integrity = integrity
        kept = dict(program.kept)
        self.relations = {each.name: each for each in program.relations if each.name in kept}
        enforced = [each for each in references(self.relations) if each.key.enforced]
        self._order = _places_by_parents(enforced)
        self._references = sorted(enforced, key=lambda each: self._order[each.parent.name])
        self._uses: dict[str, list[_Use]] = {each.parent.name: [] for each in self._references}
        maps = [each for each in program.maps if each.name not in kept.values()] if self._references else []
        for definition in maps:
            for term in definition.definitions:
                self._note(term, {key.name for key in definition.keys})
        self.tables = frozenset(name for name, uses in self._uses.items() if uses)
        """Tables whose changes may move other rows."""
        self._moving = cache(self._references_from)

    def _note(self, term: Term, keys: set[str]) -> None:
        """Note what a definition reads of the tables that others refer to."""
        atoms = [node for node in nodes(term) if isinstance(node, Atom)]
        counts = Counter(name for node in nodes(term) for name in _names(node))
        names = {atom.name for atom in atoms}
        for atom in atoms:
            reached, along = {atom.name}, set()
            for each in self._references:
                if each.parent.name in reached and each.child.name in names:
                    reached.add(each.child.name)
                    along.add(each)
            if along:
                read = (place for place, name in enumerate(atom.variables) if name in keys or counts[name] > 1)
                self._uses[atom.name].append(_Use(frozenset(read), frozenset(along)))

    def around(self, relation: str, old: Row | None, new: Row | None) -> MovedRows:
        """Return the rows to take away before a row changes, children first, and to put back then, parents first.

        Parameters
        ----------
        relation
            One of `tables`.
        old, new
            The row before and after the change, None if there is none.
        """
        places = None
        if old is not None and new is not None:
            places = frozenset(place for place, value in enumerate(old) if value != new[place])
        found: MovedRows = {relation: dict.fromkeys((row for row in (old, new) if row is not None), 1)}
        for each in self._moving(relation, places):
            for row in list(found.get(each.parent.name, ())):
                children = self._integrity.rows(each.child, each.child_places, each.of_parent(row))
                found.setdefault(each.child.name, {}).update(children)
        del found[relation]
        return {name: found[name] for name in sorted(found, key=self._order.__getitem__)}

    def _references_from(self, relation: str, places: frozenset[int] | None) -> tuple[Reference, ...]:
        """Return the references along which rows move when columns of a table change, None for all of them."""
        uses = [use for use in self._uses[relation] if places is None or use.places & places]
        moving = frozenset[Reference]().union(*(use.references for use in uses))
        return tuple(each for each in self._references if each in moving)


def _places_by_parents(enforced: Iterable[Reference]) -> dict[str, int]:
    """Return the places of tables in an order in which parents come first; references make no circle."""
    order = TopologicalSorter[str]()
    for each in enforced:
        order.add(each.child.name, each.parent.name)
    return {name: place for place, name in enumerate(order.static_order())}


def _names(node: Term | Range) -> Iterable[str]:
    """Return the variables that a node names itself."""
    match node:
        case Atom(_, variables) | AggSum(variables, _):
            return variables
        case Var(name) | Lift(name, _):
            return (name,)
        case _:
            return ()
