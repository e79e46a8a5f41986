"""Statements: a monomial of a delta becomes factors over maps, the event's variables and rows of derived relations.

Base tables stand in components that share no bound variable, and each component is read from a map. An atom of a
derived relation is looked into: its row at a key is made of the sums that its maps hold. Where the event changes the
relation, the statement visits the keys that may have changed (`_Builder.changed_keys`), adds what the new row gives and
takes away what the old one gave; the new row's sums are read from the maps as they will be (NEW).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cumulus.algebra.scope import ordered, outputs, relations_of, rename, variables_of
from cumulus.algebra.terms import (
    ZERO,
    Atom,
    Batch,
    Compare,
    Const,
    End,
    Exists,
    Lift,
    MapRead,
    Term,
    Var,
    factors_of,
    number,
    product_of,
    sum_of,
)
from cumulus.calculus.delta import AFTER, RelationChange, aggregate
from cumulus.calculus.derived_relations import DerivedRelation, Ended, Summed
from cumulus.calculus.polynomial import Monomial, components, monomials
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.maps.columns import HIDDEN, MaintainedNumber, MapRule, nice_names
from cumulus.compiler.statements.changed_keys import (
    KeyBinding,
    asked_of,
    bound_place,
    event_place,
    is_asked,
    one_place,
    place_of,
    touched,
    widest,
    with_values,
    without,
)
from cumulus.compiler.statements.cross_products import Apart, apart
from cumulus.compiler.statements.definitions import inside as names_inside
from cumulus.compiler.statements.equalities import looked_up, types_of
from cumulus.compiler.statements.factors import (
    Alternative,
    FactorBlock,
    Names,
    certain,
    in_order,
    inlined,
    known,
    pre_aggregated,
    ranged,
)
from cumulus.scalars.typing import Typed

if TYPE_CHECKING:
    from cumulus.compiler.materialize import Materializer


def rules_of(
    materializer: Materializer,
    column: MaintainedNumber,
    change: RelationChange,
    keys: tuple[str, ...],
    monomial: Monomial,
) -> list[MapRule]:
    """Return the statements that one monomial of a column's delta is."""
    # A lifted key is another variable under its own name.
    lifts = [f for f in monomial.factors if isinstance(f, Lift) and isinstance(f.term, Var) and f.variable in keys]
    alias = {f.variable: f.term.name for f in lifts if isinstance(f.term, Var)}
    factors = [rename(f, alias) for f in monomial.factors if f not in lifts]
    target_keys = tuple(alias.get(key, key) for key in keys)
    rules: list[MapRule] = []
    build = _Builder(materializer, change, column.order)
    bound = frozenset(change.variables)
    for sign, blocks in build.alternatives(factors, bound, frozenset(target_keys)):
        ordered_factors = in_order(blocks, bound if change.variables else frozenset())
        shown, shown_keys = inlined(ordered_factors, target_keys, bound)
        if ZERO in shown:  # a row of the event never meets itself, say
            continue
        body = pre_aggregated(certain(shown), shown_keys)
        seen = [*shown_keys, *(n for f in body for n in sorted(variables_of(f)))]
        names = nice_names(seen, change.variables)
        rules.append(
            MapRule(
                target=column,
                change=change,
                keys=tuple(names.get(key, key) for key in shown_keys),
                coefficient=monomial.coefficient * sign,
                factors=tuple(rename(factor, names) for factor in body),
                reads=tuple(build.reads),
            )
        )
    return rules


def evaluation(materializer: Materializer, column: MaintainedNumber, change: RelationChange) -> MapRule:
    """Return the statement that evaluates a column anew."""
    build = _Builder(materializer, change, 0)
    term = build.closed(column.body, frozenset(), column.keys, "OLD")
    names = nice_names([*column.keys, *sorted(variables_of(term))], ())
    keys = tuple(names.get(key, key) for key in column.keys)
    return MapRule(column, change, keys, 1, (rename(term, names),), tuple(build.reads), ":=")


class _Builder:
    """Writes one statement's terms; `reads` are the columns that they read, by token."""

    def __init__(self, materializer: Materializer, change: RelationChange, order: int | None) -> None:
        self._materializer = materializer
        self._derived = materializer.derived
        self._change = change
        self._order = order
        self.reads: list[tuple[str, MaintainedNumber]] = []
        self._fresh = 0

    # --- a product --------------------------------------------------------------------------------------------------

    def alternatives(
        self, factors: Iterable[Term], bound: Names, wanted: Names, state: str = "OLD"
    ) -> list[Alternative]:
        """Return a product of factors over maps.

        Parameters
        ----------
        bound
            Variables that have a value.
        wanted
            Variables that are asked for.
        state
            "OLD" or "NEW": whether maps are read as they are before the event or as they will be.
        """
        parts = list(factors)
        changes: dict[Term, tuple[FactorBlock, ...]] = {}
        loose: Names = frozenset()
        for part in parts:
            what = self._derived.get(part.name) if isinstance(part, Batch) else None
            if what is None or not isinstance(part, Batch):
                continue
            atom = Atom(part.name, part.variables)
            where = self.changed_keys(what, atom, bound, asked_of(what, atom, self._used(part, parts, wanted | bound)))
            if where is None:
                return []
            changes[part] = where
            loose |= what.split(atom)[0] - bound.union(
                *(outputs(factor) for block in where for factor in block.factors)
            )
        parts, inside = self._looked_up(parts, bound, loose)
        own, groups, there = self._apart(parts, bound, loose, inside)
        outside = wanted.union(there, *(variables_of(part) for part in own))
        reads = self._components(groups, outside, state)
        found = [Alternative(1, tuple(FactorBlock((read,), frozenset(), 5) for read in reads))]
        for part in own:
            choices = self._choices(part, self._used(part, parts, wanted | bound), bound, state, changes.get(part, ()))
            found = [Alternative(one.sign * sign, (*one.blocks, *blocks)) for one in found for sign, blocks in choices]
        return found

    @staticmethod
    def _used(part: Term, parts: list[Term], wanted: Names) -> Names:
        """Return the variables that matter besides a part itself, which may stand there twice."""
        others = list(parts)
        others.remove(part)
        return wanted.union(*(variables_of(other) for other in others))

    def _looked_up(self, parts: list[Term], bound: Names, loose: Names) -> tuple[list[Term], list[Lift]]:
        """Return factors in which equalities bind keys, and those of them that say what a new key of a map is."""
        there = known(parts, bound, self._derived, loose)
        late = self._late(parts, there)
        free: set[str] = set()
        for part in parts:
            if isinstance(part, Atom) and not self._stays(part, there, late):
                what = self._derived.of(part)
                free |= set(part.variables) if what is None else what.split(part)[0]
        if not free - there - late:
            return parts, []
        tables = self._materializer.tables
        given = zip(self._change.variables, tables[self._change.relation].columns, strict=False)
        event = {name: Typed(column.type, not column.not_null) for name, column in given if column.type is not None}
        fresh = None if self._order is not None else self._fresh_key
        return looked_up(parts, there, frozenset(free) - there - late, types_of(parts, tables, event), fresh)

    def _fresh_key(self) -> str:
        self._fresh += 1
        return f"key{HIDDEN}{self._fresh}"

    def _apart(
        self, parts: list[Term], bound: Names, loose: Names = frozenset(), inside: Sequence[Term] = ()
    ) -> tuple[list[Term], list[list[Term]], Names]:
        """Return the factors that stand in the statement, the components that maps hold, and what has one value.

        The factors `inside` belong to components.
        """
        there = known(parts, bound, self._derived, loose)
        late = self._late(parts, there)
        own: list[Term] = []
        inner: list[Term] = []
        for part in parts:
            (own if part not in inside and self._stays(part, there, late) else inner).append(part)
        if self._order is not None:  # only rows are kept
            own += [part for part in inner if not isinstance(part, Atom)]
            return own, [[part] for part in inner if isinstance(part, Atom)], there
        groups: list[list[Term]] = []
        for group in components(inner, there):
            found = (
                apart(group, there, self._materializer.tables) if self._materializer.options.splits else Apart([group])
            )
            groups += found.groups
            own += found.conditions
        return own, groups, there

    def _late(self, parts: list[Term], there: Names) -> Names:
        """Return the variables that only the statement has: lifts, and columns of look-ups whose keys it loops over."""
        lifted = (part for part in parts if isinstance(part, Lift) and not variables_of(part.term).isdisjoint(there))
        late = {lift.variable for lift in lifted} - there
        for part in parts:
            what = self._derived.get(part.name) if isinstance(part, (Atom, Batch)) else None
            if what is not None and isinstance(part, (Atom, Batch)):
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
            what = self._derived.get(part.name)
            return what is not None and (what.is_lookup or bool(what.inputs) or what.split(part)[0] <= there)
        names = variables_of(part)
        return bool(names & (there | late)) or not names

    def _components(self, groups: list[list[Term]], outside: Names, state: str) -> list[MapRead]:
        """Return the reads of components, each with what the statement or another component needs of it as keys."""
        every = [frozenset[str]().union(*(variables_of(factor) for factor in group)) for group in groups]
        reads = []
        for index, group in enumerate(groups):
            wanted = outside.union(*(names for place, names in enumerate(every) if place != index))
            needed = [name for factor in group for name in outputs(factor) if name in wanted]
            reads.append(self._read(needed, [Monomial(1, tuple(group))], state))
        return reads

    def _read(self, keys: Iterable[str], body: list[Monomial], state: str) -> MapRead:
        source, order = self._materializer.add(keys, body, guest=True)
        return self._read_of(source, order, state)

    def _read_of(self, source: MaintainedNumber, keys: Iterable[str], state: str) -> MapRead:
        token = f"#{len(self.reads)}"
        self.reads.append((token, source))
        return MapRead(token, "", tuple(map(Var, keys)), state)

    def _choices(
        self, part: Term, used: Names, bound: Names, state: str, where: tuple[FactorBlock, ...]
    ) -> list[Alternative]:
        """Return what a factor that stays in the statement is there."""
        if isinstance(part, (Batch, Atom)):
            what = self._derived.get(part.name)
            if what is not None:
                atom = Atom(part.name, part.variables)
                if isinstance(part, Atom):
                    state = "NEW" if part.name.endswith(AFTER) else state
                    row = self._row(what, atom, used, bound, state)
                    loop = what.inputs and not what.is_lookup and not what.split(atom)[0] <= bound
                    return [Alternative(1, (*(self._candidates(what, atom, state) if loop else ()), *row))]
                return [
                    Alternative(1, (*where, *self._row(what, atom, used, bound, "NEW"))),
                    Alternative(-1, (*where, *self._row(what, atom, used, bound, "OLD"))),
                ]
            return [Alternative(1, (FactorBlock((part,), frozenset(), 2),))]
        needs = variables_of(part.term) if isinstance(part, Lift) else variables_of(part)
        return [Alternative(1, (FactorBlock((part,), needs, 6 if is_value(part) else 0),))]

    # --- rows of derived relations ----------------------------------------------------------------------------------

    def _row(self, what: DerivedRelation, atom: Atom, used: Names, bound: Names, state: str) -> tuple[FactorBlock, ...]:
        """Return the row at a key, before or after the change: 1 where it is there, binding its columns."""
        self._materializer.count_row()
        names = self._renamed(what, atom)
        columns = [(mine, names[mine], scalar) for mine, scalar in what.columns if is_asked(names[mine], atom, used)]
        asked = asked_of(what, atom, used)
        given: set[str] = set()
        # A column that is a sum needs no name of its own.
        for _, outer, scalar in columns:
            if isinstance(scalar, Var) and scalar.name not in given | set(what.keys) | set(what.inputs):
                names[scalar.name] = outer
                given.add(scalar.name)
        keys = tuple(names[key] for key in what.keys)
        there = bound | set(keys) | {names[name] for name in what.inputs}
        factors: list[Term] = [Lift(names[each.name], self._number(what, each, names, there, state)) for each in asked]
        where = rename(what.where, names)
        factors += () if isinstance(where, Const) else factors_of(where)
        factors += [
            Lift(outer, rename(scalar, names))
            for _, outer, scalar in columns
            if not (isinstance(scalar, Var) and names.get(scalar.name) == outer)
        ]
        if not factors:
            return ()
        needs = frozenset(keys) | {names[name] for name in what.inputs}
        return (FactorBlock(tuple(factors), needs, 4),)

    def _number(
        self,
        what: DerivedRelation,
        each: Summed | Ended,
        names: dict[str, str],
        there: Names,
        state: str,
    ) -> Term:
        """Return a sum or an end of a row, over maps."""
        if what.inputs or self._is_row(what, each):
            own = (names[each.variable],) if isinstance(each, Ended) else ()
            term = self.closed(monomials(rename(each.term, names)), there, own, state)
        else:
            term = self._number_read(what, each, names, state)
        return End(each.end, names[each.variable], term) if isinstance(each, Ended) else term

    def _is_row(self, what: DerivedRelation, each: Summed | Ended) -> bool:
        """Whether a number is read off rows of other derived relations whose keys are its own, and needs no map."""
        atoms = [factor for monomial in monomials(each.term) for factor in monomial.factors if not is_value(factor)]
        rows = [(self._derived.of(atom), atom) for atom in atoms if isinstance(atom, Atom)]
        if not rows or any(row is None or row.inputs for row, _ in rows):
            return False
        keys = frozenset[str]().union(*(row.split(atom)[0] for row, atom in rows if row is not None))
        return keys == set(what.keys)

    def _number_read(self, what: DerivedRelation, each: Summed | Ended, names: dict[str, str], state: str) -> MapRead:
        """Return the read of the map of a number that needs no inputs; an end's has the values as a key."""
        return self._read_of(*self._materializer.add_number(what, each, names, self._order or None), state)

    def closed(self, body: list[Monomial], bound: Names, group: tuple[str, ...], state: str) -> Term:
        """Return a sum of monomials over maps that binds `group` only."""
        parts: list[Term] = []
        for monomial in body:
            for sign, blocks in self.alternatives(monomial.factors, bound, frozenset(group), state):
                factors, _ = inlined(in_order(blocks, bound), (), bound, frozenset(group))
                factors = ranged(certain(factors), bound, frozenset(group))
                part = product_of([number(monomial.coefficient * sign), *factors])
                parts.append(part if set(outputs(part)) - bound <= set(group) else aggregate(group, part))
        return sum_of(parts)

    def _renamed(self, what: DerivedRelation, atom: Atom) -> dict[str, str]:
        """Return new names for everything inside a derived relation."""
        self._fresh += 1
        return names_inside(what, atom, self._derived, self._fresh)

    def _candidates(self, what: DerivedRelation, atom: Atom, state: str) -> tuple[FactorBlock, ...]:
        """Return a loop over all keys that a relation with inputs may have: maps have no inputs, which filter later."""
        parts = [Exists(read) for read in self._rows(what, atom, state)]
        loop = parts[0] if len(parts) == 1 else Exists(sum_of(parts))
        return (FactorBlock((loop,), frozenset(), 5),)

    def _rows(self, what: DerivedRelation, atom: Atom, state: str) -> list[MapRead]:
        """Return reads of the maps that have all keys of a relation with inputs."""
        names = self._renamed(what, atom)
        keys = ordered(names[key] for key in what.keys)
        given = frozenset(names[name] for name in what.inputs) - frozenset(keys)
        return [
            self._read(keys, [Monomial(1, without(given, monomial.factors, self._derived))], state)
            for monomial in monomials(rename(what.sums[0].term, names))
        ]

    # --- where a change is ------------------------------------------------------------------------------------------

    def changed_keys(
        self, what: DerivedRelation, atom: Atom, bound: Names, asked: list[Summed | Ended], around: Names = frozenset()
    ) -> tuple[FactorBlock, ...] | None:
        """Return factors that bind the keys at which some numbers of a relation may have changed, each key once.

        More keys than that do no harm: their rows are the same before and after. None if there is no change at all.

        Parameters
        ----------
        around
            Variables that are given to the relation that this one is inside of.
        """
        names = self._renamed(what, atom)
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
        factors = one_place([place.factors for place in least], keys, there)
        wide = widest([place.wider for place in least], tuple(key for key in keys if key not in there), bound)
        needed = given & frozenset[str]().union(*(variables_of(factor) for factor in factors))
        return (FactorBlock(factors, needed, 3, wide),) if factors else ()

    def _place_form(self, place: tuple[Term, ...]) -> tuple[object, ...]:
        """Return what makes a place equal to another: columns of one map change together."""
        sources = dict(self.reads)
        return tuple(
            (id(sources[f.map].group), f.keys) if isinstance(f, MapRead) and f.state == "CHANGED" else f for f in place
        )

    def _event_places(self, body: Term, keys: tuple[str, ...], there: Names) -> list[KeyBinding] | None:
        """Return factors that bind the keys to what the event says; None if the event alone does not say it."""
        if self._change.sign == 0 or relations_of(body) & self._change.derived:
            return None
        found = []
        for monomial in self._materializer.changed(body, self._change, frozenset(keys), there):
            place = event_place(monomial.factors, keys, there)
            if place is None:
                return None
            found.append(KeyBinding(place, place))
        return found

    def _changed_places(
        self, what: DerivedRelation, atom: Atom, names: dict[str, str], each: Summed | Ended, bound: Names, there: Names
    ) -> list[KeyBinding] | None:
        """Return factors that bind the keys whose entries have changed in the maps that a number is read from.

        None if the keys of a look-up cannot be told: then it may have changed everywhere.
        """
        is_row = self._is_row(what, each)
        if not what.inputs and not is_row:
            read = (self._number_read(what, each, names, "CHANGED"),)
            return [KeyBinding(read, read)]
        keys = frozenset(names[key] for key in what.keys)
        # There may be as many values as before, and others.
        own = {names[each.variable]} if isinstance(each, Ended) else set()
        places: list[KeyBinding] = []
        for monomial in monomials(rename(each.term, names)):
            starts, loops, tests = self._starts(monomial, keys | own, bound, there, is_row)
            for start in starts:
                place = bound_place(start.factors, loops, tests, keys, there)
                wider = None if start.wider is None else bound_place(start.wider, loops, tests, keys, there)
                if place is None:
                    if what.is_lookup:
                        return None
                    place = wider = tuple(touched(read) for read in self._rows(what, atom, "CHANGED"))
                places.append(KeyBinding(place, wider))
        return places

    def _starts(
        self, monomial: Monomial, keys: Names, bound: Names, there: Names, is_row: bool
    ) -> tuple[list[KeyBinding], list[MapRead], list[Term]]:
        """Return what in a product has changed, all that it loops over, and its conditions."""
        parts = [factor for factor in monomial.factors if not is_value(factor)]
        own, groups, near = self._apart(parts, there | keys if is_row else there)
        valued, several = with_values(groups, filter(is_value, monomial.factors), near)
        outside = keys.union(near, several, *(variables_of(part) for part in own))
        loops: list[MapRead] = []
        starts: list[KeyBinding] = []
        for read, group, values in zip(self._components(groups, outside, "CHANGED"), groups, valued, strict=True):
            if not self._moves(product_of(group)):
                loops.append(MapRead(read.map, "", read.keys))
                continue
            loops.append(read)
            starts.append(KeyBinding((read,), (read,)))
            if len(values) > len(group):
                sums = self._read(outputs(read), [Monomial(1, tuple(values))], "CHANGED")
                sources = dict(self.reads)
                if sources[sums.map].group is not sources[read.map].group:
                    starts.append(KeyBinding((sums,), (sums,)))
        for part in own:
            what = self._derived.of(part)
            if what is None or not isinstance(part, Atom):
                continue
            if what.inputs and not what.is_lookup and not what.split(part)[0] <= there:
                loops += self._rows(what, part, "CHANGED")
            if self._moves(part):
                atom = Atom(what.name, part.variables)
                asked = asked_of(what, atom, self._used(part, list(monomial.factors), keys | there))
                blocks = self.changed_keys(what, atom, bound, asked, there - bound)
                if blocks is not None:
                    starts.append(place_of(blocks))
        return starts, loops, [part for part in own if isinstance(part, (Lift, Compare))]

    def _moves(self, term: Term) -> bool:
        """Whether the change can change a term."""
        return self._change.relation in self._derived.bases(term)
