"""Which factors of a product stand in a statement, and which are components, whose sums maps hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Atom, Batch, Lift, Term
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.polynomial import components
from cumulus.compiler.maps.columns import variable_types
from cumulus.compiler.statements.cross_products import split_by_conditions, split_by_keys
from cumulus.compiler.statements.definitions import FreshNames
from cumulus.compiler.statements.equalities import bind_by_equalities
from cumulus.compiler.statements.factors import Names, bound_variables
from cumulus.compiler.statements.map_requests import MapRequests


@dataclass(frozen=True, slots=True)
class ComponentSplitter:
    """Splits the products of one statement; of a column of `order` 1 only rows are kept."""

    requests: MapRequests
    change: RelationChange
    order: int | None
    fresh: FreshNames

    def look_up(self, parts: list[Term], bound: Names, loose: Names) -> tuple[list[Term], list[Lift]]:
        """Return factors in which equalities bind keys, and those of them that say what a new key of a map is."""
        there = bound_variables(parts, bound, self.requests.derived, loose)
        late = self._late(parts, there)
        free: set[str] = set()
        for part in parts:
            if isinstance(part, Atom) and not self._stays(part, there, late):
                what = self.requests.derived.of(part)
                free |= set(part.variables) if what is None else what.split(part)[0]
        if not free - there - late:
            return parts, []
        tables = self.requests.tables
        event = variable_types([Atom(self.change.relation, self.change.variables)] if self.change.sign else [], tables)
        fresh = None if self.order is not None else self.fresh.key
        return bind_by_equalities(
            parts, there, frozenset(free) - there - late, variable_types(parts, tables, event), fresh
        )

    def split(
        self, parts: list[Term], bound: Names, loose: Names = frozenset(), inside: Sequence[Term] = ()
    ) -> tuple[list[Term], list[list[Term]], Names]:
        """Return the factors that stand in the statement, the components that maps hold, and what has one value.

        The factors `inside` belong to components.
        """
        there = bound_variables(parts, bound, self.requests.derived, loose)
        late = self._late(parts, there)
        own: list[Term] = []
        inner: list[Term] = []
        for part in parts:
            (own if part not in inside and self._stays(part, there, late) else inner).append(part)
        if self.order is not None:  # only rows are kept
            own += [part for part in inner if not isinstance(part, Atom)]
            return own, [[part] for part in inner if isinstance(part, Atom)], there
        groups: list[list[Term]] = []
        for whole in components(inner, there):
            if not self.requests.options.splits:
                groups.append(whole)
                continue
            reached, conditions = split_by_conditions(whole, there)
            own += conditions
            for group in reached:
                pieces, conditions = split_by_keys(group, there, self.requests.tables)
                groups += pieces
                own += conditions
        return own, groups, there

    def _late(self, parts: list[Term], there: Names) -> Names:
        """Return the variables that only the statement has: lifts, and columns of look-ups whose keys it loops over."""
        lifted = (part for part in parts if isinstance(part, Lift) and not variables_of(part.term).isdisjoint(there))
        late = {lift.variable for lift in lifted} - there
        for part in parts:
            if isinstance(part, (Atom, Batch)) and (what := self.requests.derived.get(part.name)) is not None:
                keys, _, columns = what.split(Atom(part.name, part.variables))
                late |= (columns if what.is_lookup else keys | columns if what.inputs else frozenset()) - there
        while True:
            lifts = [part for part in parts if isinstance(part, Lift) and part.variable not in late]
            more = {lift.variable for lift in lifts if not variables_of(lift.term).isdisjoint(late)}
            if not more:
                return frozenset(late)
            late |= more

    def _stays(self, part: Term, there: Names, late: Names) -> bool:
        """Whether a factor stands in the statement, rather than in the definition of a map that it reads."""
        if isinstance(part, Batch):
            return True
        if isinstance(part, Atom):
            what = self.requests.derived.get(part.name)
            return what is not None and (what.is_lookup or bool(what.inputs) or what.split(part)[0] <= there)
        names = variables_of(part)
        return bool(names & (there | late)) or not names
