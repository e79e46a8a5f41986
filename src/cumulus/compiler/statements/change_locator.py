"""Where a change is: the keys at which rows of a derived relation may have changed."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.algebra.scope import ordered, outputs, relations_of, rename, variables_of
from cumulus.algebra.terms import Atom, Compare, Lift, MapRead, Term, product_of
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, SumRelation
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.statements import changed_keys
from cumulus.compiler.statements.changed_keys import KeyBinding, complete_place, numbers_asked
from cumulus.compiler.statements.components import ComponentSplitter
from cumulus.compiler.statements.definitions import FreshNames
from cumulus.compiler.statements.factors import FactorBlock, Names, used_beside
from cumulus.compiler.statements.map_reads import MapReads, MapRequests, is_read_off_rows


@dataclass(frozen=True, slots=True)
class ChangeLocator:
    """Finds the keys that one change of a base table concerns, in the event and in maps that have changed."""

    requests: MapRequests
    change: RelationChange
    fresh: FreshNames
    splitter: ComponentSplitter
    reads: MapReads

    def keys(
        self,
        what: DerivedRelation,
        atom: Atom,
        bound: Names,
        asked: list[SumRelation | ExtremumRelation],
        around: Names = frozenset(),
    ) -> tuple[FactorBlock, ...] | None:
        """Return factors that bind the keys at which some numbers of a relation may have changed, each key once.

        More keys than that do no harm: their rows are the same before and after. None if there is no change at all.

        Parameters
        ----------
        around
            Variables that are given to the relation that this one is inside of.
        """
        names = self.fresh.inside(what, atom)
        keys = ordered(names[key] for key in what.keys)
        given = frozenset(names[name] for name in what.inputs) - frozenset(keys)
        given |= around
        there = bound | given
        found: dict[tuple[object, ...], KeyBinding] = {}
        for each in asked:
            if not self._moves(each.term):
                continue
            places = self._event_places(rename(each.term, names), keys, there)
            if places is None:
                places = self._changed_places(what, atom, names, each, bound, there)
            if places is None:
                return ()
            for place in places:
                found.setdefault(self._place_form(place.factors), place)
        every = [set(form) for form in found]
        least = [place for form, place in found.items() if not any(other < set(form) for other in every)]
        if not least:
            return None
        factors = changed_keys.merge_places([place.factors for place in least], keys, there)
        free = tuple(key for key in keys if key not in there)
        wide = changed_keys.merge_wider([place.wider for place in least], free, bound)
        needed = given & frozenset[str]().union(*(variables_of(factor) for factor in factors))
        return (FactorBlock(factors, needed, 3, wide),) if factors else ()

    def _place_form(self, place: tuple[Term, ...]) -> tuple[object, ...]:
        """Return what makes a place equal to another: columns of one map change together."""
        return tuple(
            (id(self.reads.group_of(f)), f.keys) if isinstance(f, MapRead) and f.state == "CHANGED" else f
            for f in place
        )

    def _event_places(self, body: Term, keys: tuple[str, ...], there: Names) -> list[KeyBinding] | None:
        """Return factors that bind the keys to what the event says; None if the event alone does not say it."""
        if self.change.sign == 0 or relations_of(body) & self.change.derived:
            return None
        found = []
        for monomial in self.requests.delta_monomials(body, self.change, frozenset(keys), there):
            place = changed_keys.event_place(monomial.factors, keys, there)
            if place is None:
                return None
            found.append(KeyBinding(place, place))
        return found

    def _changed_places(
        self,
        what: DerivedRelation,
        atom: Atom,
        names: dict[str, str],
        each: SumRelation | ExtremumRelation,
        bound: Names,
        there: Names,
    ) -> list[KeyBinding] | None:
        """Return factors that bind the keys whose entries have changed in the maps that a number is read from.

        None if the keys of a look-up cannot be told: then it may have changed everywhere.
        """
        is_row = is_read_off_rows(what, each, self.requests.derived)
        if not what.inputs and not is_row:
            read = (self.reads.of_number(what, each, names, "CHANGED"),)
            return [KeyBinding(read, read)]
        keys = frozenset(names[key] for key in what.keys)
        # There may be as many values as before, and others.
        own = {names[each.variable]} if isinstance(each, ExtremumRelation) else set()
        places: list[KeyBinding] = []
        for monomial in monomials(rename(each.term, names)):
            starts, loops, tests = self._starts(monomial, keys | own, bound, there, is_row)
            for start in starts:
                place = complete_place(start.factors, loops, tests, keys, there)
                wider = None if start.wider is None else complete_place(start.wider, loops, tests, keys, there)
                if place is None:
                    if what.is_lookup:
                        return None
                    place = wider = tuple(map(changed_keys.old_or_changed, self.reads.of_keys(what, atom, "CHANGED")))
                places.append(KeyBinding(place, wider))
        return places

    def _starts(
        self, monomial: Monomial, keys: Names, bound: Names, there: Names, is_row: bool
    ) -> tuple[list[KeyBinding], list[MapRead], list[Term]]:
        """Return what in a product has changed, all that it loops over, and its conditions."""
        parts = [factor for factor in monomial.factors if not is_value(factor)]
        own, groups, near = self.splitter.split(parts, there | keys if is_row else there)
        valued, several = changed_keys.place_values(groups, filter(is_value, monomial.factors), near)
        outside = keys.union(near, several, *(variables_of(part) for part in own))
        loops: list[MapRead] = []
        starts: list[KeyBinding] = []
        for read, group, values in zip(
            self.reads.of_components(groups, outside, "CHANGED"), groups, valued, strict=True
        ):
            if not self._moves(product_of(group)):
                loops.append(MapRead(read.map, "", read.keys))
                continue
            loops.append(read)
            starts.append(KeyBinding((read,), (read,)))
            if len(values) > len(group):
                sums = self.reads.of_sum(outputs(read), [Monomial(1, tuple(values))], "CHANGED")
                if self.reads.group_of(sums) is not self.reads.group_of(read):
                    starts.append(KeyBinding((sums,), (sums,)))
        for part in own:
            what = self.requests.derived.of(part)
            if what is None or not isinstance(part, Atom):
                continue
            if what.inputs and not what.is_lookup and not what.split(part)[0] <= there:
                loops += self.reads.of_keys(what, part, "CHANGED")
            if self._moves(part):
                atom = Atom(what.name, part.variables)
                asked = numbers_asked(what, atom, used_beside(part, monomial.factors, keys | there))
                blocks = self.keys(what, atom, bound, asked, there - bound)
                if blocks is not None:
                    starts.append(changed_keys.place_of_blocks(blocks))
        return starts, loops, [part for part in own if isinstance(part, (Lift, Compare))]

    def _moves(self, term: Term) -> bool:
        """Whether the change can change a term."""
        return self.change.relation in self.requests.derived.bases(term)
