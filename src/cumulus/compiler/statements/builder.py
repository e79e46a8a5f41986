"""Statements: a monomial of a delta becomes factors over maps, the event's variables and rows of derived relations.

Base tables stand in components that share no bound variable, and each component is read from a map. An atom of a
derived relation is looked into: its row at a key is made of the sums that its maps hold. Where the event changes the
relation, the statement visits the keys that may have changed (`ChangeLocator.keys`), adds what the new row gives and
takes away what the old one gave; the new row's sums are read from the maps as they will be (NEW).
"""

from __future__ import annotations

from collections.abc import Iterable

from cumulus.algebra.scope import outputs, rename, variables_of
from cumulus.algebra.terms import ZERO, Atom, Batch, Const, Exists, Extremum, Lift, Term, Var, factors_of, sum_of
from cumulus.calculus.delta import AFTER, RelationChange, aggregate
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, SumRelation
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.maps.columns import MaintainedNumber, MapRule, nice_names
from cumulus.compiler.statements.change_locator import ChangeLocator
from cumulus.compiler.statements.changed_keys import is_asked, numbers_asked
from cumulus.compiler.statements.components import ComponentSplitter
from cumulus.compiler.statements.definitions import FreshNames
from cumulus.compiler.statements.factors import Alternative, FactorBlock, Names, order_blocks, used_beside
from cumulus.compiler.statements.map_reads import MapReads, MapRequests, is_read_off_rows
from cumulus.compiler.statements.passes import STATEMENT_PASSES, SUM_PASSES, OrderedProduct, apply_passes


def rules_of(
    requests: MapRequests, column: MaintainedNumber, change: RelationChange, keys: tuple[str, ...], monomial: Monomial
) -> list[MapRule]:
    """Return the statements that one monomial of a column's delta is."""
    # A lifted key is another variable under its own name.
    lifts = [f for f in monomial.factors if isinstance(f, Lift) and isinstance(f.term, Var) and f.variable in keys]
    alias = {f.variable: f.term.name for f in lifts if isinstance(f.term, Var)}
    factors = [rename(f, alias) for f in monomial.factors if f not in lifts]
    target_keys = tuple(alias.get(key, key) for key in keys)
    rules: list[MapRule] = []
    build = StatementBuilder(requests, change, column.order)
    bound = frozenset(change.variables)
    for sign, blocks in build.alternatives(factors, bound, frozenset(target_keys)):
        product = apply_passes(OrderedProduct(order_blocks(blocks, bound), bound, target_keys), STATEMENT_PASSES)
        if ZERO in product.factors:  # a row of the event never meets itself, say
            continue
        seen = [*product.keys, *(n for f in product.factors for n in sorted(variables_of(f)))]
        names = nice_names(seen, change.variables)
        rules.append(
            MapRule(
                target=column,
                change=change,
                keys=tuple(names.get(key, key) for key in product.keys),
                coefficient=monomial.coefficient * sign,
                factors=tuple(rename(factor, names) for factor in product.factors),
                reads=tuple(build.reads.sources.items()),
            )
        )
    return rules


def evaluation(requests: MapRequests, column: MaintainedNumber) -> MapRule:
    """Return the statement that evaluates a column anew, at no change yet."""
    change = RelationChange("", 0, ())
    build = StatementBuilder(requests, change, 0)
    term = build.sum_over_maps(column.body, frozenset(), column.keys, "OLD")
    names = nice_names([*column.keys, *sorted(variables_of(term))], ())
    keys = tuple(names.get(key, key) for key in column.keys)
    return MapRule(column, change, keys, 1, (rename(term, names),), tuple(build.reads.sources.items()), ":=")


class StatementBuilder:
    """Writes one statement's terms; `reads` are the maps that they read."""

    def __init__(self, requests: MapRequests, change: RelationChange, order: int | None) -> None:
        self._requests = requests
        self._derived = requests.derived
        self._fresh = FreshNames(requests.derived)
        self._splitter = ComponentSplitter(requests, change, order, self._fresh)
        self.reads = MapReads(requests, order, self._fresh)
        self._locator = ChangeLocator(requests, change, self._fresh, self._splitter, self.reads)

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
            if isinstance(part, Batch) and (what := self._derived.get(part.name)) is not None:
                atom = Atom(part.name, part.variables)
                asked = numbers_asked(what, atom, used_beside(part, parts, wanted | bound))
                where = self._locator.keys(what, atom, bound, asked)
                if where is None:
                    return []
                changes[part] = where
                loose |= what.split(atom)[0].difference(bound, *(outputs(f) for block in where for f in block.factors))
        parts, inside = self._splitter.look_up(parts, bound, loose)
        own, groups, there = self._splitter.split(parts, bound, loose, inside)
        outside = wanted.union(there, *(variables_of(part) for part in own))
        reads = self.reads.of_components(groups, outside, state)
        found = [Alternative(1, tuple(FactorBlock((read,), frozenset(), 5) for read in reads))]
        for part in own:
            choices = self._choices(part, parts, wanted | bound, bound, state, changes.get(part, ()))
            found = [Alternative(one.sign * sign, (*one.blocks, *blocks)) for one in found for sign, blocks in choices]
        return found

    def _choices(
        self,
        part: Term,
        parts: list[Term],
        wanted: Names,
        bound: Names,
        state: str,
        where: tuple[FactorBlock, ...],
    ) -> list[Alternative]:
        """Return what a factor that stays in the statement is there; `wanted` is asked for outside of all `parts`."""
        match part:
            case Atom(name, variables) | Batch(name, variables) if (what := self._derived.get(name)) is not None:
                atom = Atom(name, variables)
                used = used_beside(part, parts, wanted)
                if isinstance(part, Batch):
                    return [
                        Alternative(1, (*where, *self._row(what, atom, used, bound, "NEW"))),
                        Alternative(-1, (*where, *self._row(what, atom, used, bound, "OLD"))),
                    ]
                state = "NEW" if name.endswith(AFTER) else state
                row = self._row(what, atom, used, bound, state)
                loop = what.inputs and not what.is_lookup and not what.split(atom)[0] <= bound
                return [Alternative(1, (*(self._candidates(what, atom, state) if loop else ()), *row))]
            case Batch():
                block = FactorBlock((part,), frozenset(), 2)
            case _:
                needs = variables_of(part.term if isinstance(part, Lift) else part)
                block = FactorBlock((part,), needs, 6 if is_value(part) else 0)
        return [Alternative(1, (block,))]

    def _row(self, what: DerivedRelation, atom: Atom, used: Names, bound: Names, state: str) -> tuple[FactorBlock, ...]:
        """Return the row at a key, before or after the change: 1 where it is there, binding its columns."""
        self._requests.count_row()
        names = self._fresh.inside(what, atom)
        columns = [(mine, names[mine], scalar) for mine, scalar in what.columns if is_asked(names[mine], atom, used)]
        asked = numbers_asked(what, atom, used)
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
        each: SumRelation | ExtremumRelation,
        names: dict[str, str],
        there: Names,
        state: str,
    ) -> Term:
        """Return a sum or an end of a row, over maps."""
        if what.inputs or is_read_off_rows(what, each, self._derived):
            own = (names[each.variable],) if isinstance(each, ExtremumRelation) else ()
            term = self.sum_over_maps(monomials(rename(each.term, names)), there, own, state)
        else:
            term = self.reads.of_number(what, each, names, state)
        return Extremum(each.end, names[each.variable], term) if isinstance(each, ExtremumRelation) else term

    def sum_over_maps(self, body: list[Monomial], bound: Names, group: tuple[str, ...], state: str) -> Term:
        """Return a sum of monomials over maps that binds `group` only."""
        parts: list[Term] = []
        for monomial in body:
            for sign, blocks in self.alternatives(monomial.factors, bound, frozenset(group), state):
                product = OrderedProduct(order_blocks(blocks, bound), bound, wanted=frozenset(group))
                factors = apply_passes(product, SUM_PASSES).factors
                part = Monomial(monomial.coefficient * sign, tuple(factors)).term()
                parts.append(part if set(outputs(part)) - bound <= set(group) else aggregate(group, part))
        return sum_of(parts)

    def _candidates(self, what: DerivedRelation, atom: Atom, state: str) -> tuple[FactorBlock, ...]:
        """Return a loop over all keys that a relation with inputs may have: maps have no inputs, which filter later."""
        parts = [Exists(read) for read in self.reads.of_keys(what, atom, state)]
        loop = parts[0] if len(parts) == 1 else Exists(sum_of(parts))
        return (FactorBlock((loop,), frozenset(), 5),)
