"""A query as groups of rows: their keys, what is added up per group, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import (
    ONE,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Lift,
    Scalar,
    Term,
    Var,
    children,
    number,
    product_of,
    rebuild,
)
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, SumRelation
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.types import INTEGER_BITS
from cumulus.m3.program import OrderItem
from cumulus.scalars.typing import Typed, in_its_type
from cumulus.sql.binding.branches import BranchScope
from cumulus.sql.binding.conditions import condition
from cumulus.sql.binding.scope import Branch, QueryRows, Scope, SubqueryLookup


@dataclass(slots=True)
class Grouped:
    """A query that is finished per group.

    Parameters
    ----------
    scope
        Its branches are settled.
    keys
        The variables of the group.
    sums, ends
        What is kept per group; the count of rows comes first.
    columns
        Name and scalar over keys, sums, ends and the columns of `after` for each column.
    having
        A condition over the same.
    repeat
        How often each row stands; None for once.
    after
        Sub-queries that are read per group.
    always
        There is a row for the only group even without rows: no GROUP BY.
    """

    scope: Scope
    keys: tuple[str, ...]
    sums: list[SumRelation]
    ends: list[ExtremumRelation]
    columns: list[tuple[str, Scalar]]
    having: Scalar | None = None
    repeat: Scalar | None = None
    order_by: tuple[OrderItem, ...] = ()
    limit: int | None = None
    offset: int = 0
    after: list[SubqueryLookup] = field(default_factory=list)
    always: bool = False

    @property
    def count(self) -> str:
        """The name of the count of rows."""
        return self.sums[0].name


def has_rows(count: str) -> Scalar:
    """Return the condition that a group has rows: what no key tells, where there is none but constants."""
    return Apply("gt", (Var(count), number(0)))


def is_bound(name: str, term: Term, scope: Scope) -> bool:
    """Whether every monomial of a term has an atom or a lift that binds a variable; a look-up does not."""
    for monomial in monomials(term):
        for factor in monomial.factors:
            if isinstance(factor, Lift) and factor.variable == name:
                break
            if isinstance(factor, Atom) and name in factor.variables:
                what = scope.context.derived.get(factor.name)
                if what is None or (not what.is_lookup and name not in what.split(factor)[1]):
                    break
        else:
            return False
    return True


def derive_relation(
    grouped: Grouped, columns: Iterable[tuple[str, Scalar]], where: Term, *, lookup: bool
) -> DerivedRelation:
    """Return the derived relation of a query's groups.

    Parameters
    ----------
    columns
        Variables and what they are, over keys, sums and ends.
    where
        When a row is there, over the same.
    lookup
        Whether there is a row for every key.
    """
    scope = grouped.scope
    bodies = [*(each.term for each in grouped.sums), *(each.term for each in grouped.ends)]
    shown = list(columns)
    mentioned = frozenset[str]().union(*(variables_of(body) for body in bodies), variables_of(where))
    mentioned = mentioned.union(*(variables_of(scalar) for _, scalar in shown))
    used = [name for name in scope.parameters.values() if name in mentioned]
    fixed = [name for name in used if all(is_bound(name, body, scope) for body in bodies)]
    inputs = tuple(name for name in used if name not in fixed and name not in grouped.keys)
    return scope.context.derived.add(
        lambda name: DerivedRelation(
            name=name,
            keys=ordered((*grouped.keys, *fixed)),
            inputs=inputs,
            sums=tuple(grouped.sums),
            ends=tuple(grouped.ends),
            where=where,
            columns=tuple(shown),
            variables=scope.variables,
            is_lookup=lookup,
        )
    )


def as_bag(grouped: Grouped, into: Scope) -> QueryRows:
    """Return the rows of a grouped query as rows of `into`, the scope of a query in FROM."""
    scope = grouped.scope
    names = [*(each.name for each in grouped.sums), *(each.name for each in grouped.ends)]
    lookup = grouped.always
    there = ONE if lookup else Compare(">", Var(grouped.count), number(0))
    simple = not grouped.after and grouped.repeat is None
    if simple:
        where = there if grouped.having is None else product_of([there, condition(grouped.having, scope.variables)])
        outputs = [
            (scope.new_variable(name if name.isidentifier() else "value", "of", scope.typed(scalar)), scalar)
            for name, scalar in grouped.columns
            if not (isinstance(scalar, Var) and scalar.name in grouped.keys)
        ]
        derived = derive_relation(grouped, outputs, where, lookup=lookup)
        out = {scalar: Var(variable) for variable, scalar in outputs}
        columns = [(name, out.get(scalar, scalar)) for name, scalar in grouped.columns]
    else:
        outputs = [(scope.new_variable(name, "of", scope.variables[name]), Var(name)) for name in names]
        derived = derive_relation(grouped, outputs, there, lookup=lookup)
        renamed: dict[str, Scalar] = {name: Var(variable) for name, (variable, _) in zip(names, outputs, strict=True)}
        columns = [(name, substitute(scalar, renamed)) for name, scalar in grouped.columns]
    branch = Branch(atoms=[Atom(derived.name, derived.parameters)])
    if not simple:
        into.lookups += [
            SubqueryLookup(each.derived, tuple(substitute(arg, renamed) for arg in each.args), each.outs)
            for each in grouped.after
        ]
        if grouped.having is not None:
            branch.where.append(substitute(grouped.having, renamed))
        if grouped.repeat is not None:
            repeat = substitute(grouped.repeat, renamed)
            variable = scope.new_variable("copies", "of", scope.typed(repeat))
            branch.values[variable] = repeat
            branch.copies.append(variable)
    into.branches = [branch]
    return QueryRows(into, columns)


class Keys:
    """The keys of a grouping: scalars and the variables that they are.

    `last` has what a scalar means of which there are several keys: the last of them, as in DuckDB.
    """

    def __init__(self, scope: Scope, branches: list[BranchScope]) -> None:
        self.scope = scope
        self.branches = branches
        self.names: dict[Scalar, str] = {}
        self.last: dict[Scalar, Scalar] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables, in order."""
        return tuple(dict.fromkeys(self.names.values()))

    def add(self, scalar: Scalar, name: str = "") -> None:
        """Make a scalar a key: a column is its own, anything else is lifted."""
        scalar = self.plain(scalar)
        if scalar in self.names or not variables_of(scalar):
            return
        if isinstance(scalar, Var):
            self.names[scalar] = scalar.name
            return
        wanted = name if name.isidentifier() else f"key_{len(self.names) + 1}"
        self.names[scalar] = self.scope.new_variable(wanted, "key", self.scope.typed(scalar))

    def column(self, scalar: Scalar, name: str, *, alike: bool) -> Scalar:
        """Return a scalar as a column that is told from those of the same value.

        Parameters
        ----------
        alike
            The scalar itself means this column, unless a later one takes its place.
        """
        wanted = name if name.isidentifier() else "column"
        variable = self.scope.new_variable(wanted, "of", self.scope.typed(scalar))
        for within in self.branches:
            within.branch.values[variable] = within.scalar(scalar)
        if alike:
            self.last[scalar] = Var(variable)
        return Var(variable)

    def plain(self, scalar: Scalar) -> Scalar:
        """Return a scalar as it stands among the keys: a column under a cast is another's variable, in a wider type.

        Any other cast may make one value of several, and is a key of its own.
        """
        if isinstance(scalar, Cast) and any(scalar in table.columns.values() for table in self.scope.tables):
            narrow, wide = self.scope.typed(scalar.arg).type.kind, scalar.type.kind
            if INTEGER_BITS.get(narrow, 1 << 10) <= INTEGER_BITS.get(wide, 0):
                return scalar.arg
        return scalar

    def after(self, scalar: Scalar) -> Scalar:
        """Return a scalar over rows as it is once they are grouped: over the variables of keys, where it has some."""
        scalar = self.last.get(scalar, scalar)
        if scalar in self.names:
            return Var(self.names[scalar])
        found: Scalar = rebuild(scalar, self.after) if children(scalar) else scalar
        return found

    def set_apart(self, scalars: Iterable[Scalar]) -> None:
        """Give keys that are NULL in some grouping set a variable that no atom binds, and that may be NULL."""
        for scalar in scalars:
            name = self.names[scalar]
            typed = Typed(self.scope.variables[name].type, True)
            if isinstance(scalar, Var) and name == scalar.name:
                self.names[scalar] = self.scope.new_variable(name, "key", typed)
            else:
                self.scope.variables[name] = typed

    def shown(self, scalar: Scalar) -> Scalar:
        """Return the variable of a key, or the constant that it is."""
        if scalar in self.names:
            return Var(self.names[scalar])
        if isinstance(scalar, Cast) and scalar.arg in self.names:
            return Cast(Var(self.names[scalar.arg]), scalar.type)
        return scalar

    def lifts(self, within: BranchScope, without: Iterable[Scalar] = ()) -> list[Term]:
        """Return what binds the keys in a branch; those in `without` are NULL."""
        absent = set(without)
        factors: list[Term] = []
        for scalar, variable in self.names.items():
            here = within.scalar(scalar)
            if scalar in absent:
                factors.append(Lift(variable, Const(None, self.scope.variables[variable].type)))
            elif here is not Var(variable):
                factors.append(Lift(variable, in_its_type(here, self.scope.variables)))
        return factors
