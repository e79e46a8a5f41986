"""Enforced references: the rows that are moved around a change of their parent.

A program whose references are enforced has no statements for a parent that changes while rows refer to it: they would
be zero if none did. So these rows go first, then the parent changes, then they come back; and with them the rows that
refer to them, as far as a map joins them with what has changed. Each map follows its definition at every step, whatever
the order of events, and the rows of all tables are in the end what they were.
"""

from __future__ import annotations

from typing import TypeAlias

from cumulus.catalog.events import Row
from cumulus.engine.integrity import Integrity, references
from cumulus.explain.moved_references import EnforcedReference, MovedReferences
from cumulus.m3.program import Program

MovedRows: TypeAlias = dict[str, dict[Row, int]]
"""Table → row → how often it is there; parents stand before their children."""


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
        self._places = {EnforcedReference(each.child.name, each.key): each for each in references(self.relations)}
        self._moved = MovedReferences(program)
        self.tables = self._moved.tables
        """Tables whose changes may move other rows."""

    def rows_to_move(self, relation: str, old: Row | None, new: Row | None) -> MovedRows:
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
        for moved in self._moved.along(relation, places):
            each = self._places[moved]
            for key in {each.of_parent(row) for row in found.get(each.parent.name, ())}:
                children = self._integrity.rows(each.child, each.child_places, key)
                found.setdefault(each.child.name, {}).update(children)
        del found[relation]
        return {name: found[name] for name in sorted(found, key=self._moved.order.__getitem__)}
