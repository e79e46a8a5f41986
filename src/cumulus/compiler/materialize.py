"""Recursive materialisation: from what the views add up to maps and statements.

A work list of columns. A column is one number per key: the aggregate of a product of factors. For every relation that
it mentions and every kind of change, its delta is expanded to monomials; in each, the factors that share
variables not bound by the trigger form a component, and every component that holds a relation is a column of its
own, found among all columns of the whole program or added to the list. The degree falls with each step, so it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cumulus.algebra.scope import ordered, outputs, relations_of, rename, variables_of
from cumulus.algebra.terms import (
    Batch,
    Lift,
    MapRead,
    Number,
    Relation,
    Term,
    Var,
    product_of,
    sum_of,
)
from cumulus.algebra.typing import Typed, number_type, scalar_type
from cumulus.calculus.delta import Change, aggregate, delta
from cumulus.calculus.polynomial import Monomial, components, monomials, split_scalars
from cumulus.calculus.simplify import simplify
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.compiler.keys import is_zero, without_lookups
from cumulus.compiler.options import Options
from cumulus.compiler.share import Canonical, canonical, is_value
from cumulus.errors import UnsupportedError

HIDDEN = "\0"
"""Marks a definition's variables while they stand beside a trigger's; no column's name has it, so they never meet."""


MAX_COLUMNS = 2000
"""How many numbers a program may maintain. Without trusted keys a star join of n tables needs 2ⁿ of them."""


@dataclass(slots=True, eq=False)
class Group:
    """Columns that live in one map because their entries are the same: one key, one join, several numbers."""

    arity: int
    skeleton: str
    columns: list[Column] = field(default_factory=list)
    name: str = ""
    of_view: bool = False


@dataclass(slots=True, eq=False)
class Column:
    """One number per key.

    Parameters
    ----------
    keys
        The definition's key variables, in the order of the group's keys.
    body
        The definition: factors over the keys and other variables.
    group
        The map it lives in.
    hint
        What to call it if nothing else does.
    """

    keys: tuple[str, ...]
    body: list[Monomial]
    type: SqlType
    skeleton: str
    group: Group
    hint: str = ""

    @property
    def definition(self) -> Term:
        """Return the column as a calculus term over its keys."""
        return aggregate(self.keys, sum_of(monomial.term() for monomial in self.body))


@dataclass(frozen=True, slots=True)
class Rule:
    """One statement before maps have names: `target[keys] += term`, reading columns by number."""

    target: Column
    change: Change
    keys: tuple[str, ...]
    coefficient: Number
    factors: tuple[Term, ...]
    reads: tuple[tuple[str, Column], ...]


class Materializer:
    """Turns definitions into columns and rules; `columns` and `rules` are the result."""

    def __init__(self, tables: Mapping[str, Table], options: Options) -> None:
        self.tables = tables
        self.options = options
        self.groups: list[Group] = []
        self.columns: list[Column] = []
        self.rules: list[Rule] = []
        self._by_form: dict[tuple[str, str], tuple[Column, tuple[str, ...]]] = {}
        self._by_skeleton: dict[str, Group] = {}
        self._forms: dict[tuple[tuple[str, ...], tuple[Term, ...]], Canonical] = {}
        self._todo: list[Column] = []

    def add(
        self,
        keys: Iterable[str],
        body: list[Monomial],
        *,
        home: tuple[Group, tuple[str, ...]] | None = None,
        hint: str = "",
    ) -> tuple[Column, tuple[str, ...]]:
        """Return the column of a definition, and the caller's key variables in the order of the column's keys.

        Parameters
        ----------
        keys
            The key variables.
        body
            Monomials over them and other variables.
        home
            The group that the column must live in, and the caller's key variables in the order of the group's
            keys; without it, the group of the definition's skeleton, or a new one.
        hint
            A name for the column.
        """
        wanted = ordered(keys)
        identity, skeleton, order, body = self._form(wanted, body)
        found = self._by_form.get(identity)
        if found is not None and (home is None or found[0].group is home[0]):
            column, own = found
            mine = dict(zip(own, order, strict=True))
            return column, tuple(mine[name] for name in column.keys)
        if home is not None:
            group, key_order = home
        else:
            known = self._by_skeleton.get(skeleton) if self.options.payloads else None
            group, key_order = known or Group(len(order), skeleton), order
            if known is None:
                self.groups.append(group)
                self._by_skeleton.setdefault(skeleton, group)
        # The marks of a trigger's neighbourhood go: a definition stands alone.
        names = _nice_names([*wanted, *(n for m in body for f in m.factors for n in sorted(variables_of(f)))], ())
        tidy = [Monomial(m.coefficient, tuple(rename(f, names) for f in m.factors)) for m in body]
        if len(self.columns) >= MAX_COLUMNS:
            raise UnsupportedError(
                f"these views need more than {MAX_COLUMNS} maps",
                feature="wide join",
                hint="Trust the keys of the joined tables (REFERENCES … RELY), or join fewer tables in a view.",
            )
        column = Column(tuple(names.get(n, n) for n in key_order), tidy, self._type(tidy), skeleton, group, hint)
        group.columns.append(column)
        self.columns.append(column)
        self._todo.append(column)
        self._by_form.setdefault(identity, (column, tuple(names.get(name, name) for name in order)))
        if column.type.is_float and self.options.counts:
            # A float that looks like 0 does not say that its entry is gone; a count does.
            plain = [Monomial(1, tuple(f for f in m.factors if not is_value(f))) for m in tidy]
            self.add(column.keys, plain, home=(group, column.keys), hint="n")
        return column, key_order

    def _form(
        self, keys: tuple[str, ...], body: list[Monomial]
    ) -> tuple[tuple[str, str], str, tuple[str, ...], list[Monomial]]:
        """Return what makes a definition equal to another: (identity, skeleton, keys in its order), and its body."""
        if len(body) == 1:
            factors = list(body[0].factors)
            if self.options.lookups and self.options.rely:
                factors = without_lookups(keys, factors, self.tables)
            form = self._canonical(keys, tuple(factors))
            identity = (form.skeleton, f"{body[0].coefficient} {form.values}")
            return identity, form.skeleton, form.keys, [Monomial(body[0].coefficient, tuple(factors))]
        # A sum of joins: rare, and shared only when it is written alike.
        names = {name: f"v{index}" for index, name in enumerate(keys)}
        skeleton = f"[{','.join(names.values())}] {sum_of(rename(m.term(), names) for m in body)}"
        return (skeleton, "1"), skeleton, keys, body

    def _canonical(self, keys: tuple[str, ...], factors: tuple[Term, ...]) -> Canonical:
        """Return the canonical form; triggers for +, - and batches ask for the same ones."""
        if (keys, factors) not in self._forms:
            self._forms[keys, factors] = canonical(keys, factors)
        return self._forms[keys, factors]

    def _type(self, body: list[Monomial]) -> SqlType:
        variables = variable_types([factor for monomial in body for factor in monomial.factors], self.tables)
        return number_type(sum_of(monomial.term() for monomial in body), variables)

    def run(self) -> None:
        """Work the list off."""
        while self._todo:
            column = self._todo.pop(0)
            for relation in sorted(relations_of(column.definition)):
                for change in self._changes(relation, column):
                    self._derive(column, change)

    def _changes(self, relation: str, column: Column) -> list[Change]:
        table = self.tables[relation]
        if table.static:
            # Static tables are loaded before the first event: only maps of nothing else have entries by then.
            others = relations_of(column.definition)
            if any(not self.tables[other].static for other in others):
                return []
        signs = (+1,) if table.static else (+1, -1)
        changes = [Change(relation, sign, table.column_names) for sign in signs]
        if self.options.batches and not table.static:
            changes.append(Change(relation, 0))
        return changes

    def _derive(self, column: Column, change: Change) -> None:
        """Add the rules of one column for one change."""
        names = {name: name + HIDDEN for monomial in column.body for f in monomial.factors for name in variables_of(f)}
        keys = tuple(names.get(key, key) for key in column.keys)
        body = rename(sum_of(monomial.term() for monomial in column.body), names)
        bound = frozenset(change.variables)
        changed = simplify(delta(body, change), frozenset(keys), bound)
        for monomial in monomials(changed):
            if self.options.rely and is_zero(monomial.factors, change, self.tables):
                continue
            for part in split_scalars(monomial, self._bound(monomial, change)):
                self.rules.append(self._rule(column, change, keys, part))

    def _bound(self, monomial: Monomial, change: Change) -> frozenset[str]:
        """Return the variables that the trigger binds: the event's, the batch's, and what follows from them."""
        bound = set(change.variables)
        for factor in monomial.factors:
            if isinstance(factor, Batch):
                bound |= set(factor.variables)
        for factor in monomial.factors:
            if isinstance(factor, Lift) and variables_of(factor.term) <= bound:
                bound.add(factor.variable)
        return frozenset(bound)

    def _rule(self, column: Column, change: Change, keys: tuple[str, ...], monomial: Monomial) -> Rule:
        bound = self._bound(monomial, change)
        # A lifted key is the event's variable under another name.
        alias = {f.variable: f.term.name for f in monomial.factors if isinstance(f, Lift) and isinstance(f.term, Var)}
        factors = [f for f in monomial.factors if not (isinstance(f, Lift) and isinstance(f.term, Var))]
        own: list[Term] = []
        inner: list[Term] = []
        for factor in factors:
            stays = isinstance(factor, Batch) or not _has_relation(factor)
            free = variables_of(factor) - bound
            stays = stays and (isinstance(factor, Batch) or bool(variables_of(factor) & bound) or not free)
            (own if stays else inner).append(factor)
        outside = frozenset(keys).union(*(variables_of(factor) for factor in own)) | bound
        reads: list[tuple[str, Column]] = []
        atoms: list[Term] = []
        for group in components(inner, bound):
            inside = frozenset[str]().union(*(variables_of(factor) for factor in group))
            needed = [name for factor in group for name in outputs(factor) if name in outside & inside]
            source, order = self.add(needed, [Monomial(1, tuple(group))])
            token = f"#{len(reads)}"
            reads.append((token, source))
            atoms.append(MapRead(token, "", tuple(Var(name) for name in order)))
        target_keys = tuple(alias.get(key, key) for key in keys)
        body = _pre_aggregated(_in_order([*own, *atoms], bound if change.variables else frozenset()), target_keys)
        names = _nice_names([*target_keys, *(n for f in body for n in sorted(variables_of(f)))], change.variables)
        return Rule(
            target=column,
            change=change,
            keys=tuple(names.get(key, key) for key in target_keys),
            coefficient=monomial.coefficient,
            factors=tuple(rename(factor, names) for factor in body),
            reads=tuple(reads),
        )


def _has_relation(factor: Term) -> bool:
    return bool(relations_of(factor))


def variable_types(factors: Iterable[Term], tables: Mapping[str, Table]) -> dict[str, Typed]:
    """Return the types of the variables that factors bind, from the columns and lifts that bind them."""
    types: dict[str, Typed] = {}
    lifts: list[Lift] = []
    for factor in factors:
        if isinstance(factor, Relation):
            for name, column in zip(factor.variables, tables[factor.name].columns, strict=True):
                assert column.type is not None, "SQL declares every type"
                known = types.get(name)
                nullable = not column.not_null and (known is None or known.nullable)
                types[name] = Typed(known.type if known else column.type, nullable)
        elif isinstance(factor, Lift):
            lifts.append(factor)
    for lift in lifts:
        types[lift.variable] = Typed(scalar_type(lift.term, types), True)
    return types


def _in_order(factors: list[Term], bound: frozenset[str]) -> list[Term]:
    """Order factors so that each finds its variables bound: conditions as early as they can stand."""
    waiting = list(factors)
    known = set(bound)
    result: list[Term] = []

    def ready(factor: Term) -> bool:
        if isinstance(factor, (MapRead, Batch)):
            return False
        needed = variables_of(factor.term) if isinstance(factor, Lift) else variables_of(factor)
        return needed <= known

    while waiting:
        chosen = next((f for f in waiting if ready(f) and not is_value(f)), None)
        if chosen is None:
            chosen = next((f for f in waiting if isinstance(f, Batch)), None)
        if chosen is None:
            # The map with the most bound keys first: a look-up before a loop.
            reads = [f for f in waiting if isinstance(f, MapRead)]
            chosen = min(reads, key=lambda f: len(variables_of(f) - known)) if reads else None
        if chosen is None:
            chosen = waiting[0]
        waiting.remove(chosen)
        result.append(chosen)
        known |= set(outputs(chosen))
    return result


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


def _nice_names(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return names without the hidden mark, none of which is taken or stands among `names` already."""
    every = ordered(names)
    used = {*taken, *(name for name in every if not name.endswith(HIDDEN))}
    result: dict[str, str] = {}
    for name in every:
        if not name.endswith(HIDDEN):
            continue
        base = name.rstrip(HIDDEN)
        nice, count = base, 2
        while nice in used:
            nice, count = f"{base}_{count}", count + 1
        used.add(nice)
        result[name] = nice
    return result
