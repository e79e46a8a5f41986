"""The maps that a statement reads, under tokens while they have no names, and what it asks of the program around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cumulus.algebra.scope import ordered, outputs, rename, variables_of
from cumulus.algebra.terms import Atom, MapRead, Term, Var
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.catalog.schema import Relation
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.maps.columns import ColumnGroup, MaintainedNumber
from cumulus.compiler.options import CompilerOptions
from cumulus.compiler.statements.changed_keys import join_for_all
from cumulus.compiler.statements.definitions import FreshNames
from cumulus.compiler.statements.factors import Names


@dataclass(frozen=True, slots=True)
class MapReads:
    """Requests maps for one statement, whose column has an `order`; `sources` are the columns by their tokens."""

    requests: MapRequests
    order: int | None
    fresh: FreshNames
    sources: dict[str, MaintainedNumber] = field(default_factory=dict)

    @property
    def _inner(self) -> int | None:
        """The order of the sub-queries that a column reads: where it has a lower one than full, they have order 1."""
        return None if self.order is None else 1

    def group_of(self, read: MapRead) -> ColumnGroup:
        """Return the map of a read."""
        return self.sources[read.map].group

    def of_sum(self, keys: Iterable[str], body: list[Monomial], state: str) -> MapRead:
        """Return the read of a sum of monomials by keys; it may live with the same join without guards."""
        nested = any(self.requests.derived.of(factor) is not None for m in body for factor in m.factors)
        source, listed = self.requests.add(keys, body, order=self._inner if nested else None, in_wider_group=True)
        return self._add(source, listed, state)

    def of_components(self, groups: list[list[Term]], outside: Names, state: str) -> list[MapRead]:
        """Return the reads of components, each with what the statement or another component needs of it as keys."""
        every = [frozenset[str]().union(*(variables_of(factor) for factor in group)) for group in groups]
        reads = []
        for index, group in enumerate(groups):
            wanted = outside.union(*(names for place, names in enumerate(every) if place != index))
            needed = [name for factor in group for name in outputs(factor) if name in wanted]
            reads.append(self.of_sum(needed, [Monomial(1, tuple(group))], state))
        return reads

    def of_number(
        self, what: DerivedRelation, each: SumRelation | ExtremumRelation, names: dict[str, str], state: str
    ) -> MapRead:
        """Return the read of the map of a number that needs no inputs; an end's has the values as a key."""
        return self._add(*self.requests.add_number(what, each, names, self._inner), state)

    def of_keys(self, what: DerivedRelation, atom: Atom, state: str) -> list[MapRead]:
        """Return reads of the maps that have all keys of a relation with inputs."""
        names = self.fresh.inside(what, atom)
        keys = ordered(names[key] for key in what.keys)
        given = frozenset(names[name] for name in what.inputs) - frozenset(keys)
        return [
            self.of_sum(keys, [Monomial(1, join_for_all(given, monomial.factors, self.requests.derived))], state)
            for monomial in monomials(rename(what.sums[0].term, names))
        ]

    def _add(self, source: MaintainedNumber, keys: Iterable[str], state: str) -> MapRead:
        token = f"#{len(self.sources)}"
        self.sources[token] = source
        return MapRead(token, "", tuple(map(Var, keys)), state)


def is_read_off_rows(what: DerivedRelation, each: SumRelation | ExtremumRelation, derived: Registry) -> bool:
    """Whether a number is read off rows of other derived relations whose keys are its own, and needs no map."""
    atoms = [factor for monomial in monomials(each.term) for factor in monomial.factors if not is_value(factor)]
    rows = [(derived.of(atom), atom) for atom in atoms if isinstance(atom, Atom)]
    if not rows or any(row is None or row.inputs for row, _ in rows):
        return False
    keys = frozenset[str]().union(*(row.split(atom)[0] for row, atom in rows if row is not None))
    return keys == set(what.keys)


class MapRequests(Protocol):
    """Takes requests for maps; `cumulus.compiler.materialize` has the work list."""

    derived: Registry
    tables: Mapping[str, Relation]
    """The base tables and the derived relations, by name."""
    options: CompilerOptions

    def add(
        self, keys: Iterable[str], body: list[Monomial], *, order: int | None = None, in_wider_group: bool = False
    ) -> tuple[MaintainedNumber, tuple[str, ...]]:
        """Return the column of a definition, and the caller's key variables in the order of the column's keys."""

    def add_number(
        self, what: DerivedRelation, each: SumRelation | ExtremumRelation, names: Mapping[str, str], order: int | None
    ) -> tuple[MaintainedNumber, tuple[str, ...]]:
        """Return the column of a number of a derived relation without inputs, and what its keys are called."""

    def count_row(self) -> None:
        """Count a statement's look into a derived relation; refuse programs that would not end."""

    def delta_monomials(
        self, body: Term, change: RelationChange, keys: frozenset[str], bound: frozenset[str]
    ) -> list[Monomial]:
        """Return the delta of `body` as monomials, without what can only be zero."""
