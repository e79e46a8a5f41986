"""A query as groups of rows: what is added up per group, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import ONE, Apply, Atom, Compare, Lift, Scalar, Term, Var, number, product_of
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, SumRelation
from cumulus.calculus.polynomial import monomials
from cumulus.m3.program import OrderItem
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
