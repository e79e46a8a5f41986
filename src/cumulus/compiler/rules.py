"""Statements: a monomial of a delta becomes factors over maps, the event's variables and rows of derived relations.

Base tables stand in components that share no bound variable, and each component is read from a map. An atom of a
derived relation is looked into: its row at a key is made of the sums that its maps hold. Where the event changes the
relation, the statement visits the keys that may have changed (`_Builder.changed_keys`), adds what the new row gives and
takes away what the old one gave; the new row's sums are the old ones plus their own deltas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cumulus.algebra.scope import inputs, ordered, outputs, rename, variables_of
from cumulus.algebra.terms import (
    ONE,
    AggSum,
    Batch,
    Compare,
    Const,
    End,
    Exists,
    Lift,
    MapRead,
    Product,
    Range,
    Relation,
    Sum,
    Term,
    Var,
    children,
    number,
    product_of,
    rebuild,
    sum_of,
)
from cumulus.calculus.delta import AFTER, Change, aggregate
from cumulus.calculus.derived import Derived, Ended, Registry, Summed
from cumulus.calculus.polynomial import Monomial, components, monomials
from cumulus.calculus.simplify import fold
from cumulus.compiler.columns import HIDDEN, Column, Rule, nice_names
from cumulus.compiler.share import is_value

if TYPE_CHECKING:
    from cumulus.compiler.materialize import Materializer

Names = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Factors that stay together, in order: a row of a derived relation, the keys that changed, or one factor."""

    factors: tuple[Term, ...]
    needs: Names
    rank: int
    """What goes first among blocks whose needs are there."""


class Alternative(NamedTuple):
    """One of the products whose sum a monomial is."""

    sign: int
    blocks: tuple[Block, ...]


def known(factors: Iterable[Term], bound: Names, derived: Registry) -> Names:
    """Return the variables that have one value, or are looped over first: the trigger's, and what follows from them."""
    found = set(bound)
    rest = list(factors)
    while True:
        before = len(found)
        for factor in rest:
            match factor:
                case Batch(name, variables):
                    what = derived.get(name)
                    found |= set(variables)
                    if what is not None:
                        found -= what.split(Relation(name, variables))[1] - bound
                case Lift(variable, inner) if variables_of(inner) <= found:
                    found.add(variable)
                case Relation() if (what := derived.of(factor)) is not None:
                    keys, given, columns = what.split(factor)
                    if keys | given <= found:
                        found |= columns
                case _:
                    pass
        if len(found) == before:
            return frozenset(found)


def rules_of(
    materializer: Materializer, column: Column, change: Change, keys: tuple[str, ...], monomial: Monomial
) -> list[Rule]:
    """Return the statements that one monomial of a column's delta is."""
    # A lifted key is another variable under its own name.
    lifts = [f for f in monomial.factors if isinstance(f, Lift) and isinstance(f.term, Var) and f.variable in keys]
    alias = {f.variable: f.term.name for f in lifts if isinstance(f.term, Var)}
    factors = [rename(f, alias) for f in monomial.factors if f not in lifts]
    target_keys = tuple(alias.get(key, key) for key in keys)
    rules: list[Rule] = []
    build = _Builder(materializer, change)
    bound = frozenset(change.variables)
    for sign, blocks in build.alternatives(factors, bound, frozenset(target_keys)):
        ordered_factors = in_order(blocks, bound if change.variables else frozenset())
        inlined, shown_keys = _inlined(ordered_factors, target_keys, bound)
        body = _pre_aggregated(_certain(inlined), shown_keys)
        seen = [*shown_keys, *(n for f in body for n in sorted(variables_of(f)))]
        names = nice_names(seen, change.variables)
        rules.append(
            Rule(
                target=column,
                change=change,
                keys=tuple(names.get(key, key) for key in shown_keys),
                coefficient=monomial.coefficient * sign,
                factors=tuple(rename(factor, names) for factor in body),
                reads=tuple(build.reads),
            )
        )
    return rules


class _Builder:
    """Writes one statement's terms; `reads` are the columns that they read, by token."""

    def __init__(self, materializer: Materializer, change: Change) -> None:
        self._materializer = materializer
        self._derived = materializer.derived
        self._change = change
        self.reads: list[tuple[str, Column]] = []
        self._fresh = 0

    # --- a product --------------------------------------------------------------------------------------------------

    def alternatives(self, factors: Iterable[Term], bound: Names, wanted: Names) -> list[Alternative]:
        """Return a product of factors over maps.

        Parameters
        ----------
        bound
            Variables that have a value.
        wanted
            Variables that are asked for.
        """
        parts = list(factors)
        there = known(parts, bound, self._derived)
        late = self._late(parts, there)
        own: list[Term] = []
        inner: list[Term] = []
        for part in parts:
            (own if self._stays(part, there, late) else inner).append(part)
        outside = wanted.union(there, *(variables_of(part) for part in own))
        found = [Alternative(1, tuple(self._read_block(group, outside, there) for group in components(inner, there)))]
        for part in own:
            used = wanted.union(bound, *(variables_of(other) for other in parts if other is not part))
            choices = self._choices(part, used, bound)
            found = [Alternative(one.sign * sign, (*one.blocks, *blocks)) for one in found for sign, blocks in choices]
        return found

    def _late(self, parts: list[Term], there: Names) -> Names:
        """Return the variables that only the statement has: columns of look-ups whose key it loops over."""
        late: set[str] = set()
        for part in parts:
            what = self._derived.of(part)
            if what is not None and isinstance(part, Relation):
                keys, _, columns = what.split(part)
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
        if isinstance(part, Relation):
            what = self._derived.get(part.name)
            return what is not None and (what.is_lookup or bool(what.inputs) or what.split(part)[0] <= there)
        names = variables_of(part)
        return bool(names & (there | late)) or not names

    def _read_block(self, group: list[Term], outside: Names, there: Names) -> Block:
        inside = frozenset[str]().union(*(variables_of(factor) for factor in group))
        needed = [name for factor in group for name in outputs(factor) if name in outside & inside]
        return Block((self._read(needed, [Monomial(1, tuple(group))]),), frozenset(), 5)

    def _read(self, keys: Iterable[str], body: list[Monomial]) -> MapRead:
        source, order = self._materializer.add(keys, body)
        token = f"#{len(self.reads)}"
        self.reads.append((token, source))
        return MapRead(token, "", tuple(Var(name) for name in order))

    def _choices(self, part: Term, used: Names, bound: Names) -> list[Alternative]:
        """Return what a factor that stays in the statement is there."""
        if isinstance(part, (Batch, Relation)):
            what = self._derived.get(part.name)
            if what is not None:
                atom = Relation(part.name, part.variables)
                if isinstance(part, Relation):
                    row = self._row(what, atom, used, bound, new=part.name.endswith(AFTER))
                    loop = what.inputs and not what.is_lookup and not what.split(atom)[0] <= bound
                    return [Alternative(1, (*(self._candidates(what, atom) if loop else ()), *row))]
                where = self.changed_keys(what, atom, bound)
                if where is None:
                    return []
                return [
                    Alternative(1, (*where, *self._row(what, atom, used, bound, new=True))),
                    Alternative(-1, (*where, *self._row(what, atom, used, bound, new=False))),
                ]
            return [Alternative(1, (Block((part,), frozenset(), 2),))]
        needs = variables_of(part.term) if isinstance(part, Lift) else variables_of(part)
        return [Alternative(1, (Block((part,), needs, 6 if is_value(part) else 0),))]

    # --- rows of derived relations ----------------------------------------------------------------------------------

    def _row(self, what: Derived, atom: Relation, used: Names, bound: Names, *, new: bool) -> tuple[Block, ...]:
        """Return the row at a key, before or after the change: 1 where it is there, binding its columns."""
        self._materializer.count_row()
        names = self._renamed(what, atom)
        columns = [(mine, names[mine], scalar) for mine, scalar in what.columns if names[mine] in used]
        mentioned = variables_of(what.where).union(*(variables_of(scalar) for _, _, scalar in columns))
        given: set[str] = set()
        # A column that is a sum needs no name of its own.
        for _, outer, scalar in columns:
            if isinstance(scalar, Var) and scalar.name not in given | set(what.keys) | set(what.inputs):
                names[scalar.name] = outer
                given.add(scalar.name)
        keys = tuple(names[key] for key in what.keys)
        there = bound | set(keys) | {names[name] for name in what.inputs}
        factors: list[Term] = [
            Lift(names[each.name], self._number(what, each, names, keys, there, new=new))
            for each in what.numbers
            if each.name in mentioned
        ]
        where = rename(what.where, names)
        factors += where.parts if isinstance(where, Product) else () if isinstance(where, Const) else (where,)
        factors += [
            Lift(outer, rename(scalar, names))
            for _, outer, scalar in columns
            if not (isinstance(scalar, Var) and names.get(scalar.name) == outer)
        ]
        if not factors:
            return ()
        needs = frozenset(keys) | {names[name] for name in what.inputs}
        return (Block(tuple(factors), needs, 4),)

    def _number(
        self,
        what: Derived,
        each: Summed | Ended,
        names: dict[str, str],
        keys: tuple[str, ...],
        there: Names,
        *,
        new: bool,
    ) -> Term:
        """Return a sum or an end of a row, over maps."""
        body = rename(each.term, names)
        own: tuple[str, ...] = (names[each.variable],) if isinstance(each, Ended) else ()
        term: Term
        if what.inputs:
            term = self._closed(monomials(body), there, own)
        else:
            term = self._read(ordered((*keys, *own)), monomials(body))
        if new:
            more = self._materializer.changed(body, self._change, frozenset(own), there)
            term = sum_of([term, self._closed(more, there, own)])
        return End(each.end, own[0], term) if isinstance(each, Ended) else term

    def _closed(self, body: list[Monomial], bound: Names, group: tuple[str, ...] = ()) -> Term:
        """Return a sum of monomials over maps that binds `group` only."""
        parts: list[Term] = []
        for monomial in body:
            for sign, blocks in self.alternatives(monomial.factors, bound, frozenset(group)):
                factors, _ = _inlined(in_order(blocks, bound), (), bound, frozenset(group))
                part = product_of([number(monomial.coefficient * sign), *_certain(factors)])
                parts.append(part if set(outputs(part)) - bound <= set(group) else aggregate(group, part))
        return sum_of(parts)

    def _renamed(self, what: Derived, atom: Relation) -> dict[str, str]:
        """Return new names for everything inside a derived relation."""
        self._fresh += 1
        names = {name: f"{name.split(HIDDEN)[0]}{HIDDEN}{self._fresh}" for name in self._derived.locals_of(what)}
        return names | dict(zip(what.parameters, atom.variables, strict=True))

    def _candidates(self, what: Derived, atom: Relation) -> tuple[Block, ...]:
        """Return a loop over all keys that a relation with inputs may have: maps have no inputs, which filter later."""
        names = self._renamed(what, atom)
        keys = ordered(names[key] for key in what.keys)
        given = frozenset(names[name] for name in what.inputs)
        parts: list[Term] = []
        for monomial in monomials(rename(what.sums[0].term, names)):
            rows = tuple(f for f in monomial.factors if not is_value(f) and variables_of(f).isdisjoint(given))
            parts.append(Exists(self._read(keys, [Monomial(1, rows)])))
        loop = parts[0] if len(parts) == 1 else Exists(sum_of(parts))
        return (Block((loop,), frozenset(), 5),)

    # --- where a change is ------------------------------------------------------------------------------------------

    def changed_keys(self, what: Derived, atom: Relation, bound: Names) -> tuple[Block, ...] | None:
        """Return factors that bind the keys at which the relation may have changed, each key once.

        More keys than that do no harm: their rows are the same before and after. None if there is no change at all.
        """
        names = self._renamed(what, atom)
        keys = ordered(names[key] for key in what.keys)
        given = frozenset(names[name] for name in what.inputs)
        found: dict[frozenset[Term], tuple[Term, ...]] = {}
        there = bound | given
        for body in what.bodies:
            for monomial in self._materializer.changed(rename(body, names), self._change, frozenset(keys), there):
                join = tuple(factor for factor in monomial.factors if not is_value(factor))
                for _, blocks in self.alternatives(join, bound | given, frozenset(keys)):
                    place = _place(in_order(blocks, bound | given), frozenset(keys), bound | given)
                    found.setdefault(frozenset(place), place)
        places = [place for form, place in found.items() if not any(other < form for other in found)]
        if not places:
            return None
        if len(places) == 1:
            free = {name for factor in places[0] for name in outputs(factor)} - bound - given
            if free <= set(keys):
                if not places[0]:
                    return ()
                needs = given & frozenset[str]().union(*(variables_of(f) for f in places[0]))
                return (Block(places[0], needs, 3),)
        total = sum_of(aggregate(keys, product_of(place)) for place in places)
        everywhere = Exists(total)
        return (Block((everywhere,), given & variables_of(total), 3),)


def _place(factors: list[Term], keys: Names, bound: Names) -> tuple[Term, ...]:
    """Return the factors of a delta that say for which keys it may be other than 0."""
    needed = set(keys)
    kept: list[Term] = []
    for factor in reversed(factors):
        if isinstance(factor, Compare):
            continue
        if not needed.isdisjoint(set(outputs(factor)) - bound):
            kept.insert(0, factor)
            needed |= inputs(factor)
            needed |= variables_of(factor) if isinstance(factor, (Lift, Exists, MapRead)) else set()
    there = bound.union(*(outputs(factor) for factor in kept))
    result: list[Term] = []
    for factor in factors:
        if factor in kept:
            result.append(Exists(factor) if isinstance(factor, MapRead) else factor)
        elif isinstance(factor, Compare) and variables_of(factor) <= there:
            result.append(factor)
    return tuple(dict.fromkeys(result))


def in_order(blocks: Iterable[Block], bound: Names) -> list[Term]:
    """Order blocks so that each finds its variables bound: conditions as early as they can stand, values last."""
    waiting = list(blocks)
    there = set(bound)
    result: list[Term] = []

    def rank(block: Block) -> tuple[bool, int, int]:
        free = sum(len(set(variables_of(f)) - there) for f in block.factors) if block.rank == 5 else 0
        # A look-up in a map goes with the conditions.
        return not block.needs <= there, 1 if block.rank == 5 and not free else block.rank, free

    while waiting:
        chosen = min(waiting, key=rank)
        waiting.remove(chosen)
        result += chosen.factors
        there.update(name for factor in chosen.factors for name in outputs(factor))
    return result


def _certain(factors: list[Term]) -> list[Term]:
    """Leave conditions out of sums that stand behind the same conditions."""
    tests: set[Term] = set()

    def without(term: Term | Range) -> Term | Range:
        if term in tests:
            return ONE
        return rebuild(term, without) if children(term) else term

    result: list[Term] = []
    for factor in factors:
        if isinstance(factor, Lift) and tests and isinstance(factor.term, (Sum, Product, Compare, AggSum)):
            factor = Lift(factor.variable, without(factor.term))  # type: ignore[arg-type]
        elif isinstance(factor, Compare):
            tests.add(factor)
        result.append(factor)
    return result


def _inlined(
    factors: list[Term], keys: tuple[str, ...], bound: Names, wanted: Names = frozenset()
) -> tuple[list[Term], tuple[str, ...]]:
    """Put the event's variables in the place of those that are only other names of them, and decide what follows.

    The variables in `wanted` keep their names.
    """
    for factor in factors:
        if not isinstance(factor, Lift) or not isinstance(factor.term, Var) or factor.variable in bound | wanted:
            continue
        if factor.term.name in bound:
            names = {factor.variable: factor.term.name}
            rest = [fold(rename(f, names), frozenset(), bound) for f in factors if f is not factor]
            rest = [
                f
                for place, f in enumerate(rest)
                if f is not ONE and not (isinstance(f, (Compare, Exists)) and f in rest[:place])
            ]
            return _inlined(rest, tuple(names.get(key, key) for key in keys), bound, wanted)
    return factors, keys


def _pre_aggregated(factors: list[Term], keys: tuple[str, ...]) -> list[Term]:
    """Add a batch up to the columns that the rest of the statement needs, before it meets any map."""
    batches = [factor for factor in factors if isinstance(factor, Batch)]
    if len(batches) != 1:
        return factors
    mine = set(batches[0].variables)
    for factor in factors:
        if isinstance(factor, Lift) and variables_of(factor.term) <= mine:
            mine.add(factor.variable)
    inner = [f for f in factors if not isinstance(f, MapRead) and variables_of(f) <= mine]
    rest = [factor for factor in factors if factor not in inner]
    needed = ordered(
        name
        for factor in inner
        for name in outputs(factor)
        if name in keys or any(name in variables_of(f) for f in rest)
    )
    return [aggregate(needed, product_of(inner)), *rest]
