"""Recursive materialisation: from what the views add up to maps and statements.

A work list of columns. A column is one number per key: the aggregate of a product of factors. For every relation that
it mentions and every kind of change, its delta is expanded to monomials; in each, the factors that share
variables not bound by the trigger form a component, and every component that holds a relation is a column of its
own, found among all columns of the whole program or added to the list. The degree falls with each step, so it ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial

from cumulus.algebra.scope import in_text_order, ordered, rename, variables_of
from cumulus.algebra.terms import Atom, Compare, Term, sum_of
from cumulus.calculus.delta import AFTER, RelationChange, aggregate, delta
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.calculus.polynomial import Monomial, count_split, monomials, split_scalars
from cumulus.calculus.simplify import simplify
from cumulus.catalog.names import folded
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.compiler.initial_rows import starts_empty
from cumulus.compiler.maps.canonical_forms import canonical, is_value
from cumulus.compiler.maps.columns import (
    HIDDEN,
    ColumnGroup,
    MaintainedNumber,
    MapRule,
    WiderGroups,
    nice_names,
    variable_types,
)
from cumulus.compiler.maps.trusted_keys import is_zero, without_lookups
from cumulus.compiler.options import CompilerOptions, ExcessError
from cumulus.compiler.statements.builder import evaluation, rules_of
from cumulus.compiler.statements.definitions import SpelledSums
from cumulus.compiler.statements.factors import bound_variables
from cumulus.compiler.tracing import traced
from cumulus.scalars.typing import number_type

MAX_COLUMNS = 2000
"""How many numbers a program may maintain. Without trusted keys a star join of n tables needs 2ⁿ of them."""
_WIDE = "Trust the keys of the joined tables (REFERENCES … RELY), or join fewer tables in a view."

MAX_ROWS = 1000
"""How often statements may look into a derived relation: each level of nested queries multiplies it."""
MAX_LOAD = 15_000
"""How many deltas of products may be taken, for the sums of all maps: one for each product of a sum, table in it, and
kind of change (insertion, deletion, batch); long products count as several. Each takes about half a millisecond."""
_LARGE = "Make several views of it: fewer grouping sets, sums, factors, conditions, branches or joined tables in each."

MAX_SPELLED = 8000
"""How many sums of sub-queries definitions may spell out: they are over base tables, so nesting multiplies them."""
_DEEP = "Nest fewer aggregated queries and outer joins, or compile the views in several scripts."


class Materializer:
    """Turns definitions into columns and rules; `columns` and `rules` are the result.

    Examples
    --------
    >>> from cumulus.algebra.terms import Atom
    >>> from cumulus.catalog.schema import Column as Named
    >>> from cumulus.catalog.types import INTEGER
    >>> from cumulus.compiler.options import PAPER
    >>> tables = {name: Table(name, (Named("a", INTEGER), Named("b", INTEGER))) for name in "rs"}
    >>> made = Materializer(tables, PAPER)
    >>> join = Monomial(1, (Atom("r", ("x", "y")), Atom("s", ("y", "z"))))
    >>> column, keys = made.add(("x",), [join])
    >>> made.run()
    >>> [[str(factor) for factor in column.body[0].factors] for column in made.columns]
    [['r(x, y)', 's(y, z)'], ['s(b, z)'], ['r(x, a)']]
    """

    def __init__(self, tables: Mapping[str, Table], options: CompilerOptions, derived: Registry | None = None) -> None:
        self.derived = derived or Registry()
        self.tables: Mapping[str, Table] = {
            **tables,
            **{each.name + mark: each.table(each.name + mark) for each in self.derived for mark in ("", AFTER)},
        }
        self._static = frozenset(name for name, table in tables.items() if table.static)
        self.options = options
        self.groups: list[ColumnGroup] = []
        self.columns: list[MaintainedNumber] = []
        self.rules: list[MapRule] = []
        self._by_form: dict[tuple[tuple[str, str], int | None], tuple[MaintainedNumber, tuple[str, ...]]] = {}
        self._by_skeleton: dict[tuple[str, int | None], ColumnGroup] = {}
        self.view = ""
        """For which columns are made now."""
        self._wider = WiderGroups()
        self._evaluation = cache(partial(evaluation, self))  # the same whatever has changed
        self._canonical = cache(canonical)  # triggers for +, - and batches ask for the same forms
        self._numbers: dict[tuple[str, str, int | None], tuple[MaintainedNumber, tuple[str, ...]]] = {}
        self._homes: dict[tuple[str, int | None], tuple[ColumnGroup, tuple[str, ...]]] = {}
        self._todo: deque[MaintainedNumber] = deque()
        self._rows = 0
        self._spelled = 0
        self._load = 0.0
        self._sums = SpelledSums(self.derived)
        self._work = Counter[str]()
        """How much of the limits each view has taken."""

    def add(
        self,
        keys: Iterable[str],
        body: list[Monomial],
        *,
        home: tuple[ColumnGroup, tuple[str, ...]] | None = None,
        near: tuple[ColumnGroup, tuple[str, ...]] | None = None,
        order: int | None = None,
        hint: str = "",
        in_wider_group: bool = False,
    ) -> tuple[MaintainedNumber, tuple[str, ...]]:
        """Return the column of a definition, and the caller's key variables in the order of the column's keys.

        Parameters
        ----------
        home
            The group that the column must live in, and the caller's key variables in the order of the group's
            keys; without it, the group of the definition's skeleton, or a new one.
        near
            The same, for a group that it lives in rather than in a new one.
        order
            How the column is kept; columns that are kept differently are not shared.
        hint
            A name for the column.
        in_wider_group
            Whether it may live in the group of the same join with fewer conditions.
        """
        wanted = ordered(keys)
        identity, skeleton, listed, body = self._form(wanted, body)
        found = self._by_form.get((identity, order))
        if found is not None and (home is None or found[0].group is home[0]):
            column, own = found
            column.group.views.add(self.view)
            mine = dict(zip(own, listed, strict=True))
            return column, tuple(mine[name] for name in column.keys)
        goes_there = in_wider_group and home is None and near is None and len(body) == 1 and self.options.payloads
        wider = None
        if goes_there and (skeleton, order) not in self._by_skeleton:
            wider = self._wider.find(wanted, body[0].factors, order, self.view)
        if wider is not None:
            group, key_order, _ = wider
        elif home is not None:
            group, key_order = home
        else:
            known = self._by_skeleton.get((skeleton, order)) if self.options.payloads else None
            group, key_order = near if near and not known else (known or ColumnGroup(len(listed), skeleton), listed)
            if not (known or near):
                self.groups.append(group)
                self._by_skeleton.setdefault((skeleton, order), group)
                if len(body) == 1:
                    self._wider.add(group, key_order, body[0].factors, order)
        group.views.add(self.view)
        # The marks of a trigger's neighbourhood go: a definition stands alone.
        factors = dict.fromkeys(f for m in body for f in m.factors)
        names = nice_names([*wanted, *(n for f in factors for n in sorted(variables_of(f)))], ())
        renamed = {f: rename(f, names) for f in factors}
        tidy = [Monomial(m.coefficient, tuple(renamed[f] for f in m.factors)) for m in body]
        self._spelled += self._sums.count(tidy)
        self._limit(len(self.columns) + 1, MAX_COLUMNS, "maps", self._advice)
        self._limit(self._spelled, MAX_SPELLED, "sums of sub-queries in the definitions of their maps")
        if order != 0:
            self._count_load(sum(map(self._load_of, tidy)))
        column = MaintainedNumber(
            tuple(names.get(n, n) for n in key_order), tidy, self._type(tidy), skeleton, group, hint, order, self.view
        )
        group.columns.append(column)
        self.columns.append(column)
        self._todo.append(column)
        self._by_form.setdefault((identity, order), (column, tuple(names.get(name, name) for name in listed)))
        if column.type.is_float and self.options.counts:
            # A float that looks like 0 does not say that its entry is gone; a count does.
            counted = [m.factors for m in tidy] if wider is None else [tuple(rename(f, names) for f in wider[2])]
            plain = [Monomial(1, tuple(f for f in factors if not is_value(f))) for factors in counted]
            self.add(column.keys, plain, home=(group, column.keys), order=order, hint="n")
        return column, key_order

    def find(self, keys: Iterable[str], body: list[Monomial], order: int | None) -> MaintainedNumber | None:
        """Return the column of a definition if there is one."""
        return self._by_form.get((self._form(ordered(keys), body)[0], order), (None,))[0]

    def _without_repetition(self, factors: tuple[Term, ...]) -> tuple[Term, ...]:
        """Leave out what is 1 or 0 and stands there already: conditions and rows of derived relations."""
        return tuple(
            factor
            for place, factor in enumerate(factors)
            if factor not in factors[:place] or not (isinstance(factor, Compare) or self.derived.of(factor))
        )

    def add_number(
        self, what: DerivedRelation, each: SumRelation | ExtremumRelation, names: Mapping[str, str], order: int | None
    ) -> tuple[MaintainedNumber, tuple[str, ...]]:
        """Return the column of a number of a derived relation without inputs, and what its keys are called.

        The sums of a relation live in the map of its count, but for those that are in another already.

        Parameters
        ----------
        names
            What the variables of the relation are called by the caller, whose names the column's keys get if it is new.
        """
        place = (what.name, each.name, order)
        own = (*what.keys, *((each.variable,) if isinstance(each, ExtremumRelation) else ()))
        if place not in self._numbers:
            given = {names.get(key, key): key for key in own}
            inside = names
            if len(given) < len(own):  # one value for two keys is a matter of the caller's
                inside, given = {}, {key: key for key in own}
            near = None
            if isinstance(each, SumRelation) and (what.name, order) in self._homes:
                group, listed = self._homes[what.name, order]
                near = group, tuple(inside.get(key, key) for key in listed)
            column, listed = self.add(given, monomials(rename(each.term, inside)), near=near, order=order)
            self._numbers[place] = column, tuple(given[key] for key in listed)
            is_own = column.skeleton == column.group.skeleton  # not in a group with rows that it leaves out
            if each is what.sums[0] and self.options.payloads and not column.group.of_view and is_own:
                column.counts = True
                self._homes.setdefault((what.name, order), (column.group, self._numbers[place][1]))
        column, listed = self._numbers[place]
        return column, tuple(names.get(key, key) for key in listed)

    def _form(
        self, keys: tuple[str, ...], body: list[Monomial]
    ) -> tuple[tuple[str, str], str, tuple[str, ...], list[Monomial]]:
        """Return what makes a definition equal to another: (identity, skeleton, keys in its order), and its body."""
        body = [Monomial(m.coefficient, self._without_repetition(m.factors)) for m in body]
        if len(body) == 1:
            factors = list(body[0].factors)
            if self.options.lookups:
                factors = without_lookups(keys, factors, self.tables)
            form = self._canonical(keys, tuple(factors))
            identity = (form.skeleton, f"{body[0].coefficient} {form.values}")
            return identity, form.skeleton, form.keys, [Monomial(body[0].coefficient, tuple(factors))]
        # A sum of joins is shared only where it is written alike.
        every = dict.fromkeys(factor for m in body for factor in m.factors)  # the same ones stand in many products
        names = {
            name: f"v{index}"
            for index, name in enumerate(ordered((*keys, *(n for f in every for n in in_text_order(f)))))
        }
        text = {factor: str(rename(factor, names)) for factor in every}
        joins = [" * ".join(text[f] for f in m.factors if not is_value(f)) for m in body]
        skeleton = f"[{','.join(names[key] for key in keys)}] {' + '.join(sorted(set(joins)))}"
        written = " + ".join(" * ".join((str(m.coefficient), *(text[f] for f in m.factors))) for m in body)
        return (skeleton, written), skeleton, keys, body

    def _type(self, body: list[Monomial]) -> SqlType:
        variables = variable_types([factor for monomial in body for factor in monomial.factors], self.tables)
        return number_type(sum_of(monomial.term() for monomial in body), variables)

    def _advice(self) -> str:
        """Return what makes a program of many maps smaller: the tables whose changes need most of them are named."""
        names = Counter(
            factor.name
            for column in self.columns
            for factor in column.body[0].factors
            if isinstance(factor, Atom) and self.derived.of(factor) is None and not self.tables[factor.name].static
        )
        often = [name for name, _ in names.most_common(4)]
        if len(often) < 2:
            return _WIDE
        told = f"Declare which of {', '.join(sorted(often))} is small and changes no more: WITH (static = true)."
        return f"{told} {_WIDE}"

    def count_row(self) -> None:
        """Count a statement's look into a derived relation; stop at programs that would not end."""
        self._rows += 1
        self._limit(self._rows, MAX_ROWS, "looks into sub-queries, level over level")

    def _limit(
        self, count: int, limit: int, what: str, hint: Callable[[], str] = lambda: _DEEP, order: int | None = None
    ) -> None:
        """Count work for the view that it is done for; raise ExcessError if `count` is over a limit."""
        self._work[self.view] += 1
        most = limit * self.options.size
        if count > most:
            size = max(2 * self.options.size, -(-count // limit))
            raise ExcessError(f"{most} {what}", hint(), self._work, size, order)

    def _load_of(self, monomial: Monomial) -> float:
        """Return how much work the deltas of a product are: one for each kind of change of each table in it."""
        bases = frozenset[str]().union(*map(self.derived.bases, monomial.factors))
        events = sum(1 if self.tables[name].static else 3 for name in bases)
        return events * _weight(monomial)

    def _count_load(self, load: float) -> None:
        """Count products whose deltas are to be taken, before they are."""
        self._load += load
        self._limit(int(self._load), MAX_LOAD, "deltas of products", lambda: _LARGE, order=0)

    def run(self) -> None:
        """Work the list off.

        Insertions come first, for all columns: deletions and batches need the same maps, so that a program that is too
        large is refused before they are looked at.
        """
        changes_of = cache(self._changes_of)
        later: deque[tuple[MaintainedNumber, RelationChange]] = deque()
        while self._todo or later:
            if not self._todo:
                self._add_rules(*later.popleft())
                continue
            column = self._todo.popleft()
            body = sum_of(monomial.term() for monomial in column.body)
            for relation in sorted(self.derived.bases(body)):
                insertion, *others = changes_of(relation)
                self._add_rules(column, insertion)
                later += ((column, change) for change in others)

    def _add_rules(self, column: MaintainedNumber, change: RelationChange) -> None:
        """Add the rules that keep a column while a table changes."""
        self.view = column.view
        if column.order == 0:
            self.rules.append(replace(self._evaluation(column), change=change))
            return
        moving = [m for m in column.body if any(change.relation in self.derived.bases(f) for f in m.factors)]
        names = {name: name + HIDDEN for monomial in moving for f in monomial.factors for name in variables_of(f)}
        keys = tuple(names.get(key, key) for key in column.keys)
        body = sum_of(monomial.term() for monomial in moving)
        about = aggregate(column.keys, body)
        bound = frozenset(change.variables)
        for monomial in self.delta_monomials(rename(body, names), change, frozenset(keys), bound, about):
            self.rules += rules_of(self, column, change, keys, monomial)

    def _changes_of(self, relation: str) -> list[RelationChange]:
        """Return the changes of a base table that maps must follow."""
        table, derived = self.tables[relation], self.derived.dependents(relation)
        signs = (+1,) if table.static else (+1, -1)
        lookups = self.derived.lookups() & derived
        changes = [
            RelationChange(relation, sign, tuple(map(folded, table.column_names)), derived, lookups) for sign in signs
        ]
        if self.options.batches and not table.static:
            changes.append(RelationChange(relation, 0, (), derived, lookups))
        return changes

    def delta_monomials(
        self, body: Term, change: RelationChange, keys: frozenset[str], bound: frozenset[str], about: Term | None = None
    ) -> list[Monomial]:
        """Return the delta of `body` as monomials, without what can only be zero; `about` is what a trace says."""
        result: list[Monomial] = []
        started = delta(body, change)
        trace = traced(self.options, about or body, change, started)
        for monomial in monomials(simplify(started, keys, bound, trace)):
            if is_zero(monomial.factors, change, self.tables):
                continue
            # Static tables are loaded before the first event: what needs a row of another table is empty by then.
            if self.tables[change.relation].static and any(
                starts_empty(factor, self.derived, self._static) for factor in monomial.factors
            ):
                continue
            there = bound_variables(monomial.factors, bound, self.derived)
            if (count := count_split(monomial, there)) > 1:
                self._count_load(count * _weight(monomial))
            result += split_scalars(monomial, there)
        return result


def _weight(monomial: Monomial) -> float:
    """Return as how many a product counts: 20 factors, or 200 variables, are as much work as a product itself."""
    return sum((1, *(0.05 + len(variables_of(factor)) / 200 for factor in monomial.factors)))
