"""Which variables a term needs and which it binds, and renaming them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Scalar,
    Sum,
    Term,
    Var,
    children,
    memoised,
    rebuild,
)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return `names` without repetition, in first-seen order."""
    return tuple(dict.fromkeys(names))


@memoised
def outputs(term: Term) -> tuple[str, ...]:
    """Return the variables that `term` can bind, in order of appearance.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> outputs(product_of([Atom("r", ("x", "y")), Lift("z", Var("x"))]))
    ('x', 'y', 'z')
    """
    match term:
        case Const() | Var() | Apply() | Cast() | Compare() | MapExtremum() | Extremum():
            return ()
        case Atom(_, variables) | Batch(_, variables):
            return ordered(variables)
        case MapRead(_, _, keys):
            return ordered(key.name for key in keys if isinstance(key, Var))
        case Lift(variable, inner):
            return ordered((*outputs(inner), variable))
        case Exists(inner):
            return outputs(inner)
        case AggSum(group, inner):
            bound = set(outputs(inner))
            return tuple(name for name in group if name in bound)
        case Sum(parts):
            # A sum binds what each of its parts binds.
            common = set.intersection(*(set(outputs(part)) for part in parts))
            return tuple(name for name in outputs(parts[0]) if name in common)
        case Product(parts):
            return ordered(name for part in parts for name in outputs(part))
        case _:
            assert_never(term)


@memoised
def inputs(term: Term) -> frozenset[str]:
    """Return the variables that must be bound from outside for `term` to have a value.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> sorted(inputs(product_of([Atom("r", ("x",)), Compare("<", Var("x"), Var("y"))])))
    ['y']
    """
    match term:
        case Const() | Atom() | Batch():
            return frozenset()
        case Var(name):
            return frozenset((name,))
        case Apply() | Cast() | Compare() | MapExtremum():
            return scalar_inputs(term)
        case MapRead(_, _, keys):
            return frozenset(name for key in keys if not isinstance(key, Var) for name in scalar_inputs(key))
        case Extremum(_, variable, inner):
            return inputs(inner) - {variable}
        case Lift(_, inner) | Exists(inner):
            return inputs(inner)
        case AggSum(group, inner):
            # A group variable that the inner term does not bind is an input of the whole.
            return inputs(inner) | (frozenset(group) - frozenset(outputs(inner)))
        case Sum(parts):
            common = set(outputs(term))
            needed = frozenset(name for part in parts for name in inputs(part))
            # What only some parts bind, the others take from outside.
            partial = frozenset(name for part in parts for name in outputs(part)) - common
            return needed | partial
        case Product(parts):
            bound: set[str] = set()
            free: set[str] = set()
            for part in parts:
                free |= inputs(part) - bound
                bound |= set(outputs(part))
            return frozenset(free)
        case _:
            assert_never(term)


@memoised
def scalar_inputs(scalar: Scalar | Range) -> frozenset[str]:
    """Return the variables that a scalar needs: all that occur in it, for nothing loops there, but not those of ends.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> most = Extremum("MAX", "x", product_of([MapRead("m", "", (Var("x"),)), Var("y")]))
    >>> sorted(scalar_inputs(Apply("add", (most, Var("z")))))
    ['y', 'z']
    """
    if isinstance(scalar, Extremum):
        return inputs(scalar)
    return frozenset(_own_variables(scalar)).union(*(scalar_inputs(child) for child in children(scalar)))


@memoised
def variables_of(term: Term | Range) -> frozenset[str]:
    """Return every variable that occurs in `term`, bound or free."""
    return frozenset(_own_variables(term)).union(*(variables_of(child) for child in children(term)))


def _own_variables(term: Term | Range) -> tuple[str, ...]:
    match term:
        case Var(name):
            return (name,)
        case Atom(_, variables) | Batch(_, variables):
            return variables
        case Lift(variable, _) | Extremum(_, variable, _):
            return (variable,)
        case AggSum(group, _):
            return group
        case _:
            return ()


@memoised
def relations_of(term: Term | Range) -> frozenset[str]:
    """Return the names of the base relations in `term`."""
    own = {term.name} if isinstance(term, Atom) else set()
    return frozenset(own).union(*(relations_of(child) for child in children(term)))


@memoised
def maps_of(term: Term | Range) -> frozenset[str]:
    """Return the names of the maps that `term` reads."""
    own = {term.map} if isinstance(term, (MapRead, MapExtremum)) else set()
    return frozenset(own).union(*(maps_of(child) for child in children(term)))


@memoised
def ahead_of(term: Term | Range) -> frozenset[str]:
    """Return the names of the maps that `term` reads as NEW or CHANGED."""
    own = {term.map} if isinstance(term, MapRead) and term.state != "OLD" else set()
    return frozenset(own).union(*(ahead_of(child) for child in children(term)))


def substitute(scalar: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """Return a scalar with variables replaced by scalars.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> str(substitute(Compare("=", Var("x"), Var("y")), {"x": number(2)}))
    '{2 = y}'
    """
    if isinstance(scalar, Var):
        return values.get(scalar.name, scalar)
    if values.keys().isdisjoint(variables_of(scalar)):  # goes through the smaller of both
        return scalar
    result: Scalar = rebuild(scalar, lambda child: substitute(child, values))
    return result


def rename(term: Term, names: Mapping[str, str]) -> Term:
    """Return `term` with every occurrence of the variables in `names` renamed, binding places included."""
    if names.keys().isdisjoint(variables_of(term)):  # goes through the smaller of both
        return term
    match term:
        case Var(name):
            return Var(names.get(name, name))
        case Atom(relation, variables) | Batch(relation, variables):
            return type(term)(relation, tuple(names.get(name, name) for name in variables))
        case Lift(variable, inner):
            return Lift(names.get(variable, variable), rename(inner, names))
        case AggSum(group, inner):
            return AggSum(ordered(names.get(name, name) for name in group), rename(inner, names))
        case Extremum(end, variable, inner):
            if variable in names.values() and variable not in names:
                # The end's own variable steps aside for what gets its name.
                return rename(own_variable(term, frozenset((*names, *names.values()))), names)
            return Extremum(end, names.get(variable, variable), rename(inner, names))
        case _:
            renamed: Term = rebuild(term, lambda child: rename(child, names))
            return renamed


def own_variable(term: Extremum, taken: Collection[str]) -> Extremum:
    """Return an end with another name for its variable, if that is in `taken`.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> str(own_variable(Extremum("MIN", "x", MapRead("m", "", (Var("x"),))), {"x"}))
    'MIN[x_1](m[x_1])'
    """
    if term.variable not in taken:
        return term
    avoided, count = variables_of(term).union(taken), 1
    while f"{term.variable}_{count}" in avoided:
        count += 1
    name = f"{term.variable}_{count}"
    return Extremum(term.end, name, rename(term.term, {term.variable: name}))


def in_text_order(part: Term | Range) -> tuple[str, ...]:
    """Return the variables of a term in the order in which its text names them, repetitions included."""
    return (*_own_variables(part), *(name for child in children(part) for name in in_text_order(child)))
