"""Which rows move when a row changes that others refer to: read off the definitions of the maps.

A program whose references are enforced has no statements for a parent that changes while rows refer to it
(`cumulus.engine.referring_rows` takes these out and puts them back). What has to move is what maps join with the
changed columns: the children in such a join, and their children in it.

A row that moves is the same before and after, so where it is only joined, what refers to it may stay: the statements
that are left out would add nothing in the end. Where a nested term, such as the count of an outer join, reads it with
its children, some statements of a change are left out and others are not, and they must all find no child. So what such
a term reads moves together, whatever column has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from cumulus.algebra.terms import AggSum, Atom, Exists, Lift, Range, Term, Var
from cumulus.catalog.schema import ForeignKey
from cumulus.m3.dataflow import parents_first
from cumulus.m3.infer import nodes
from cumulus.m3.program import Program


class EnforcedReference(NamedTuple):
    """A foreign key of the table `child` that a program counts on."""

    child: str
    key: ForeignKey


@dataclass(frozen=True, slots=True)
class _Use:
    """What a map reads of a table: places of columns, and the references along which it joins other tables with it.

    Parameters
    ----------
    places
        None where rows move whatever has changed.
    """

    places: frozenset[int] | None
    references: frozenset[EnforcedReference]


class MovedReferences:
    """The references along which rows move, for the maps of a program or some of them.

    Parameters
    ----------
    maps
        The names of those that count; all but the kept rows if None.
    """

    def __init__(self, program: Program, maps: Collection[str] | None = None) -> None:
        enforced = [
            EnforcedReference(each.name, key) for each in program.relations for key in each.foreign_keys if key.enforced
        ]
        self.order = {relation.name: place for place, relation in enumerate(parents_first(program))}
        """Table → its place among all, parents first."""
        self._references = sorted(enforced, key=lambda each: self.order[each.key.parent])
        self._widths = {relation.name: len(relation.columns) for relation in program.relations}
        self._uses: dict[str, list[_Use]] = {each.key.parent: [] for each in enforced}
        kept = dict(program.kept).values()
        for definition in program.maps if enforced else ():
            if definition.name not in kept if maps is None else definition.name in maps:
                for term in definition.definitions:
                    self._note(term, {key.name for key in definition.keys})
        self.tables = frozenset(name for name, uses in self._uses.items() if uses)
        """Tables whose changes may move rows of others."""
        self.along = cache(self._along)

    def _note(self, term: Term, keys: set[str]) -> None:
        """Note what a definition reads of the tables that others refer to."""
        atoms = [node for node in nodes(term) if isinstance(node, Atom)]
        counts = Counter(name for node in nodes(term) for name in _names(node))
        names = {atom.name for atom in atoms}
        is_nested = any(
            isinstance(node, (Lift, Exists)) and any(isinstance(inner, Atom) for inner in nodes(node.term))
            for node in nodes(term)
        )
        for atom in atoms:
            reached, along = {atom.name}, set()
            for each in self._references:
                if each.key.parent in reached and each.child in names:
                    reached.add(each.child)
                    along.add(each)
            if along:
                read = (place for place, name in enumerate(atom.variables) if name in keys or counts[name] > 1)
                self._uses[atom.name].append(_Use(None if is_nested else frozenset(read), frozenset(along)))

    def places(self, table: str) -> frozenset[int]:
        """Return the places of the columns of a table whose changes move rows."""
        every = frozenset(range(self._widths[table]))
        return frozenset[int]().union(*(every if use.places is None else use.places for use in self._uses[table]))

    def _along(self, table: str, places: frozenset[int] | None) -> tuple[EnforcedReference, ...]:
        """Return the references along which rows move when columns of a table change, parents first; None: all."""
        uses = self._uses.get(table, ())
        if places is not None:
            uses = [use for use in uses if use.places is None or use.places & places]
        moving = frozenset[EnforcedReference]().union(*(use.references for use in uses))
        for each in tuple(moving):
            moving |= frozenset(self.along(each.child, frozenset()))
        return tuple(each for each in self._references if each in moving)


def _names(node: Term | Range) -> Iterable[str]:
    """Return the variables that a node names itself."""
    match node:
        case Atom(_, variables) | AggSum(variables, _):
            return variables
        case Var(name) | Lift(name, _):
            return (name,)
        case _:
            return ()
