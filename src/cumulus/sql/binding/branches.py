"""Branches to terms: equal columns become one variable, conditions become factors, sub-queries become look-ups."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping

from cumulus.algebra.scope import rename, substitute, variables_of
from cumulus.algebra.terms import (
    NULL_VALUE,
    ONE,
    ZERO,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Lift,
    Scalar,
    Term,
    Var,
    factors_of,
    number,
    product_of,
    sum_of,
)
from cumulus.catalog.types import INTEGER_BITS, SqlType
from cumulus.scalars.typing import Typed, is_nullable, scalar_type, typed
from cumulus.sql.binding.conditions import condition, conjuncts
from cumulus.sql.binding.scalar_calls import fold_constants
from cumulus.sql.binding.scope import Branch, Scope

MAX_BRANCHES = 512
"""How many branches a FROM clause may have: each outer join may double them."""


NEVER = Compare("=", number(0), number(1))
"""A condition that nothing meets, and that is not simplified away with what it stands beside."""


class BranchScope:
    """Scope of one branch of a condition: its variables, and scalars as they are there."""

    def __init__(self, scope: Scope, branch: Branch) -> None:
        self.scope = scope
        self.branch = branch
        # Both may grow: sub-queries are bound later, too.
        self.variables: Mapping[str, Typed] = ChainMap(branch.known, scope.variables)

    def scalar(self, scalar: Scalar) -> Scalar:
        """Return a scalar of the scope as it is here."""
        changed = substitute(scalar, self.branch.values)
        return scalar if changed is scalar else fold_constants(changed, self.variables)

    def condition(self, scalar: Scalar) -> Term:
        """Return the term that is 1 where a condition of the scope is TRUE here."""
        return condition(self.scalar(scalar), self.variables)

    def product(self, factors: Iterable[Term], wanted: Iterable[str] = ()) -> Term:
        """Return the rows of the branch times `factors`, with the look-ups that they or the `wanted` variables need."""
        tests = [part for scalar in self.branch.where for part in factors_of(condition(scalar, self.variables))]
        own: list[Term] = [*self.branch.atoms, *dict.fromkeys([*self.branch.guards, *tests])]
        own += [self.scalar(Var(name)) for name in self.branch.copies]
        own += [part for factor in factors for part in factors_of(factor)]
        own = [part for part in own if part is not ONE]
        if any(part is ZERO for part in own):
            return ZERO
        used = frozenset(wanted).union(self._equated(), *(variables_of(part) for part in own))
        ahead: list[Term] = []
        for lookup in reversed(self.scope.lookups):
            outs = [self.branch.values.get(name, Var(name)) for name in lookup.outs]
            assert all(isinstance(out, Var | Const) for out in outs), "what a look-up gives is never cast"
            if used.isdisjoint(out.name for out in outs if isinstance(out, Var)):
                continue
            # What is absent in this branch is no column of the look-up.
            names = [
                out.name if isinstance(out, Var) else self.scope.new_variable(name, "of", self.variables[name])
                for out, name in zip(outs, lookup.outs, strict=True)
            ]
            lifts: list[Term] = []
            args: list[str] = []
            for arg in map(self.scalar, lookup.args):
                if not isinstance(arg, Var):
                    variable = self.scope.new_variable("k", "key", typed(arg, self.variables))
                    lifts.append(Lift(variable, arg))
                    arg = Var(variable)
                args.append(arg.name)
            atom = Atom(lookup.derived.name, (*args, *names))
            used = used.union(args, *(variables_of(lift) for lift in lifts))
            ahead = [atom, *lifts, *ahead]
        atoms = [factor for factor in ahead if isinstance(factor, Atom)]
        return product_of([*atoms, *own, *(factor for factor in ahead if factor not in atoms)])

    def _equated(self) -> set[str]:
        """Return what look-ups give that must equal a parameter or each other: such a look-up is a condition."""
        outs = [self.branch.values.get(name, Var(name)) for lookup in self.scope.lookups for name in lookup.outs]
        counts = Counter(out.name for out in outs if isinstance(out, Var))
        given = set(self.scope.parameters.values())
        return {name for name, count in counts.items() if count > 1 or name in given}


def settle_branches(scope: Scope, *, merging: bool = True) -> list[BranchScope]:
    """Turn the branches of a scope, to which all conditions have been added, to their final form.

    A branch whose conditions cannot hold is dropped, unless it is the last.

    Parameters
    ----------
    merging
        Whether the names of columns that are equal in the only branch mean one variable from now on, and what is known
        of it there is known of it everywhere.
    """
    alive: list[Branch] = []
    for branch in scope.branches:
        if _settle_branch(scope, branch) or (not alive and branch is scope.branches[-1]):
            alive.append(branch)
    scope.branches[:] = alive
    if len(alive) == 1 and merging:
        scope.replace_everywhere(alive[0].values)
        scope.variables.update(alive[0].known)
    return [BranchScope(scope, branch) for branch in alive]


def sum_branches(products: Iterable[tuple[BranchScope, list[Term]]], keys: tuple[str, ...]) -> Term:
    """Return the sum of branches, each times its factors, binding `keys`; never without a relation."""
    given = list(products)
    total = sum_of(within.product(factors, keys) for within, factors in given)
    if total is ZERO:
        # What is never there must not swallow the tables that it stands with.
        within, factors = given[0]
        lifts = (part for factor in factors for part in factors_of(factor) if isinstance(part, Lift))
        never: list[Term] = [*lifts, NEVER]
        found = within.product(never, keys)
        return product_of([*within.branch.atoms, *never]) if found is ZERO else found
    return total


def _settle_branch(scope: Scope, branch: Branch) -> bool:
    variables = {**scope.variables, **branch.known}
    where = [substitute(scalar, branch.values) for scalar in branch.where]
    where = [part for scalar in where for part in conjuncts(fold_constants(scalar, variables))]
    where = _with_parameters(scope, where, variables)
    while True:
        # What columns have become may make others equal: COALESCE(x, x) = y.
        rest = _unify_columns(scope, branch, where)
        variables = {**scope.variables, **branch.known}
        rest = [part for scalar in rest for part in conjuncts(fold_constants(scalar, variables))]
        if rest == where:
            break
        where = rest
    branch.where[:] = _lift_parameters(scope, branch, where)
    dead = [part for part in branch.where if isinstance(part, Const) and part.value is not True]
    branch.where[:] = [part for part in branch.where if not isinstance(part, Const)]
    if dead:
        branch.guards.append(NEVER)
    return not dead


def _with_parameters(scope: Scope, where: list[Scalar], variables: Mapping[str, Typed]) -> list[Scalar]:
    """Make one parameter of what stands outside in `inside = f(outside)`, so that it can be looked up."""
    outer = {variable: outside for outside, variable in scope.parameters.items()}
    result: list[Scalar] = []
    for scalar in where:
        match scalar:
            case Apply("eq", (left, right)):
                sides = []
                for side, other in ((left, right), (right, left)):
                    names = variables_of(side)
                    outside = names and names <= outer.keys() and not isinstance(side, Var) and variables_of(other)
                    alike = outside and _are_one_value(scalar_type(side, variables), scalar_type(other, variables))
                    sides.append(scope.parameter(substitute(side, outer)) if alike else side)
                result.append(Apply("eq", (sides[0], sides[1])))
            case _:
                result.append(scalar)
    return result


def _unify_columns(scope: Scope, branch: Branch, where: list[Scalar]) -> list[Scalar]:
    """Make one variable of columns that are equal; return the other conditions."""
    leader: dict[str, str] = {}
    variables = {**scope.variables, **branch.known}
    parameters = set(scope.parameters.values())
    outs = {name for lookup in scope.lookups for name in lookup.outs}
    stand_ins = [branch.values.get(name) for name in outs]
    outs |= {scalar.name for scalar in stand_ins if isinstance(scalar, Var)}

    def find(name: str) -> str:
        while leader.get(name, name) != name:
            name = leader[name]
        return name

    def mergeable(left: str, right: str) -> bool:
        ends = {find(left), find(right)}
        members = {left, right, *ends, *(name for name in leader if find(name) in ends)}
        return _can_merge(members, variables, outs)

    rest: list[Scalar] = []
    for scalar in where:
        match scalar:
            case Apply("eq", (Var(left), Var(right))) if left == right:
                rest.append(Apply("not", (Apply("is_null", (Var(left),)),)))
            case Apply("eq", (Var(left), Var(right))) if mergeable(left, right):
                first, second = find(left), find(right)
                if first == second:
                    continue
                if first in parameters and second in parameters:
                    rest.append(scalar)
                    continue
                if second in parameters or (
                    first not in parameters
                    and (
                        (first in outs and second not in outs)
                        or _bits(variables[second].type) < _bits(variables[first].type)
                    )
                ):
                    first, second = second, first
                leader[second] = first
            case _:
                rest.append(scalar)
    names = {name: find(name) for name in variables if find(name) != name}
    values = _merge_columns(branch, names, variables)
    return [substitute(scalar, values) for scalar in rest]


def _lift_parameters(scope: Scope, branch: Branch, where: list[Scalar]) -> list[Scalar]:
    """Let the branch bind parameters that equal what is computed of its columns; return the other conditions."""
    variables = {**scope.variables, **branch.known}
    parameters = set(scope.parameters.values())
    bound = {name for atom in branch.atoms for name in atom.variables}
    lifted: set[str] = set()
    rest: list[Scalar] = []
    for scalar in where:
        match scalar:
            case Apply("eq", (Var(name), other)) | Apply("eq", (other, Var(name))) if (
                name in parameters
                and name not in lifted
                and name not in bound
                and variables_of(other)
                and variables_of(other).isdisjoint(parameters)
                and variables_of(other) <= bound
                and _are_one_value(scalar_type(other, variables), variables[name].type)
            ):
                lifted.add(name)
                branch.guards.append(Lift(name, other))
                if variables[name].nullable or is_nullable(other, variables):
                    branch.guards.append(Compare("<>", Var(name), NULL_VALUE))
            case _:
                rest.append(scalar)
    return rest


def _merge_columns(branch: Branch, names: Mapping[str, str], variables: Mapping[str, Typed]) -> dict[str, Scalar]:
    """Put the first of equal columns in the place of the others in a branch; return what each of them is now."""
    for kept in dict.fromkeys(names.values()):
        members = [kept, *(name for name, target in names.items() if target == kept)]
        if all(variables[name].nullable for name in members):
            branch.guards.append(Compare("<>", Var(kept), NULL_VALUE))
        # The join drops the NULLs.
        branch.known[kept] = Typed(variables[kept].type, False)
    # The narrowest type leads, so that no cast back to a column's own type can fail.
    values: dict[str, Scalar] = {
        name: Var(kept) if variables[name].type == variables[kept].type else Cast(Var(kept), variables[name].type)
        for name, kept in names.items()
    }
    if values:
        branch.values = {name: substitute(scalar, values) for name, scalar in branch.values.items()} | values
        branch.atoms = [
            Atom(atom.name, tuple(names.get(name, name) for name in atom.variables)) for atom in branch.atoms
        ]
        branch.copies = [names.get(name, name) for name in branch.copies]
        branch.guards = [rename(guard, names) for guard in branch.guards]
    return values


def _can_merge(names: set[str], variables: Mapping[str, Typed], outs: set[str]) -> bool:
    """Whether one variable can stand for all of `names`; what a look-up gives is never cast."""
    types = [variables[name].type for name in sorted(names)]
    if not names.isdisjoint(outs):
        return len(set(types)) == 1
    return all(_are_one_value(types[0], found) for found in types)


def _are_one_value(left: SqlType, right: SqlType) -> bool:
    """Whether equal values of two types are one value everywhere, so that one variable can stand for both."""
    return left == right or (left.is_integer and right.is_integer)


def _bits(found: SqlType) -> int:
    return INTEGER_BITS.get(found.kind, 0)
