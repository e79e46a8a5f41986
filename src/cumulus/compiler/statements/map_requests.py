"""What a statement that is being written asks of the program around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from cumulus.algebra.terms import Term
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.calculus.polynomial import Monomial
from cumulus.catalog.schema import Relation
from cumulus.compiler.maps.columns import MaintainedNumber
from cumulus.compiler.options import CompilerOptions


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
