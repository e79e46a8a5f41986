"""Components that keys take apart: look-ups by primary key instead of a map of a cross product.

In TPC-H Q5 a line item brings an order and a supplier, and the component that it meets joins the orders of a nation's
customers with the nation's suppliers. As one map that is a cross product of orders and suppliers. But the supplier's
primary key says which nation it is, so two look-ups do: the supplier's, and the orders' at that nation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import permutations

from cumulus.algebra.scope import outputs, variables_of
from cumulus.algebra.terms import Atom, Compare, Term
from cumulus.calculus.polynomial import components
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.statements.factors import Names
from cumulus.explain.functional_dependencies import closure, dependencies


def split_by_conditions(group: list[Term], bound: Names) -> tuple[list[list[Term]], list[Term]]:
    """Return a component in parts that meet in conditions alone, if each is reached by a bound variable.

    One map of them would be a cross product; the statement loops over what it reaches of each, and checks.

    Returns
    -------
    groups, conditions
        As of `split_by_keys`.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> join = [Atom("r", ("k", "x")), Atom("s", ("l", "y")), Compare("<", Var("x"), Var("y"))]
    >>> for keys in ({"k", "l"}, {"k"}):
    ...     groups, conditions = split_by_conditions(join, frozenset(keys))
    ...     print([[str(factor) for factor in part] for part in groups], [str(one) for one in conditions])
    [['r(k, x)'], ['s(l, y)']] ['{x < y}']
    [['r(k, x)', 's(l, y)', '{x < y}']] []
    """
    parts = components([factor for factor in group if not isinstance(factor, Compare)], bound)
    if len(parts) < 2 or not all(_is_reached(part, bound) for part in parts):
        return [group], []
    names = [frozenset(name for factor in part for name in outputs(factor)) for part in parts]
    conditions: list[Term] = []
    for condition in group:
        if isinstance(condition, Compare):
            needs = variables_of(condition)
            home = next((part for part, mine in zip(parts, names, strict=True) if needs <= mine), conditions)
            home.append(condition)
    return parts, conditions


def _is_reached(part: list[Term], bound: Names) -> bool:
    return any(isinstance(factor, Atom) and not bound.isdisjoint(factor.variables) for factor in part)


@dataclass(slots=True)
class _Piece:
    factors: list[Term]
    keys: Names
    """The bound variables that it has."""
    visible: Names
    is_static: bool


def split_by_keys(group: list[Term], bound: Names, tables: Mapping[str, Table]) -> tuple[list[list[Term]], list[Term]]:
    """Return a component in parts that meet in variables which primary keys fix, if it were a cross product else.

    Returns
    -------
    groups, conditions
        The parts, each a map of its own, and the conditions that only the statement can check.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> customer = Table("c", (Column("ck"), Column("nk")), key=("ck",))
    >>> supplier = Table("s", (Column("sk"), Column("nk")), key=("sk",))
    >>> join = [Atom("c", ("ck", "nk")), Atom("s", ("sk", "nk"))]
    >>> for keys in ({"ck", "sk"}, {"ck"}):
    ...     groups, _ = split_by_keys(join, frozenset(keys), {"c": customer, "s": supplier})
    ...     print([[str(factor) for factor in part] for part in groups])
    [['c(ck, nk)'], ['s(sk, nk)']]
    [['c(ck, nk)', 's(sk, nk)']]
    """
    whole: tuple[list[list[Term]], list[Term]] = [group], []
    atoms = [factor for factor in group if isinstance(factor, Atom)]
    if len(atoms) < 2:
        return whole
    mine = frozenset[str]().union(*(variables_of(factor) for factor in group))
    fixed = closure(bound & mine, dependencies(group, tables)) & mine
    if fixed <= bound:
        return whole
    pieces = [
        _piece(part, bound, fixed, tables)
        for part in components([f for f in group if not _is_free(f, fixed)], bound | fixed)
    ]
    free = [factor for factor in group if _is_free(factor, fixed)]
    if not all(_is_whole(piece) for piece in pieces):
        return whole
    moving = _merge_reached([piece for piece in pieces if not piece.is_static])
    if len(moving) < 2:
        return whole
    still = _join_meeting([piece for piece in pieces if piece.is_static])
    parts = [*moving, *still]
    conditions = []
    for condition in free:
        home = next((part for part in parts if variables_of(condition) <= part.visible), None)
        if home is not None:
            home.factors.append(condition)
        elif is_value(condition):
            return whole
        else:
            conditions.append(condition)
    return [part.factors for part in parts], conditions


def _is_free(factor: Term, fixed: Names) -> bool:
    """Whether a condition or value can stand in any part or in the statement: its variables have one value."""
    return (
        not isinstance(factor, Atom)
        and (isinstance(factor, Compare) or is_value(factor))
        and (variables_of(factor) <= fixed)
    )


def _is_whole(piece: _Piece) -> bool:
    """Whether a piece has rows, and all that its conditions are about."""
    has_rows = any(isinstance(factor, Atom) for factor in piece.factors)
    inside = frozenset[str]().union(*(outputs(factor) for factor in piece.factors))
    return has_rows and all(variables_of(factor) <= inside for factor in piece.factors)


def _piece(factors: list[Term], bound: Names, fixed: Names, tables: Mapping[str, Table]) -> _Piece:
    visible = frozenset(name for factor in factors for name in outputs(factor))
    atoms = [factor for factor in factors if isinstance(factor, Atom)]
    is_static = bool(atoms) and all(tables[atom.name].static for atom in atoms)
    return _Piece(factors, visible & bound, visible & (bound | fixed), is_static)


def _merge_reached(pieces: Collection[_Piece]) -> list[_Piece]:
    """Join pieces that meet, where one is reached by keys of the other: that is no cross product."""
    found = list(pieces)
    while True:
        pairs = permutations(found, 2)
        pair = next(((a, b) for a, b in pairs if a.keys <= b.keys and a.visible & b.visible), None)
        if pair is None:
            return found
        found = [piece for piece in found if piece not in pair] + [_together(*pair)]


def _join_meeting(pieces: Collection[_Piece]) -> list[_Piece]:
    """Join pieces that meet."""
    found: list[_Piece] = []
    for piece in pieces:
        touching = [other for other in found if other.visible & piece.visible]
        for other in touching:
            piece = _together(piece, other)
        found = [other for other in found if other not in touching] + [piece]
    return found


def _together(one: _Piece, other: _Piece) -> _Piece:
    return _Piece(
        [*one.factors, *other.factors],
        one.keys | other.keys,
        one.visible | other.visible,
        one.is_static and other.is_static,
    )
