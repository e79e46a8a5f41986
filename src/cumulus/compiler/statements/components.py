"""Which factors of a product stand in a statement, and which are components, whose sums maps hold.

Equalities are looked up: what the event says binds a key, or the value of an expression that is made a key. In
`b.x % 10 = s.key` an event of b says the key of s. An event of s says the value of an expression over b: the map of b
that it meets gets that value as a key. Otherwise every entry would be compared.

Components that keys take apart are looked up by primary key, instead of in a map of a cross product. In TPC-H Q5 a line
item brings an order and a supplier, and the component that it meets joins the orders of a nation's customers with the
nation's suppliers. As one map that is a cross product of orders and suppliers. But the supplier's primary key says
which nation it is, so two look-ups do: the supplier's, and the orders' at that nation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from cumulus.algebra.scope import outputs, variables_of
from cumulus.algebra.terms import Atom, Batch, Compare, Lift, Term, Var
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.polynomial import components
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.maps.columns import variable_types
from cumulus.compiler.statements.definitions import FreshNames
from cumulus.compiler.statements.factors import Names, bound_variables
from cumulus.compiler.statements.map_reads import MapRequests
from cumulus.explain.functional_dependencies import closure, dependencies
from cumulus.scalars.typing import Typed, scalar_type


@dataclass(frozen=True, slots=True)
class ComponentSplitter:
    """Splits the products of one statement; of a column of `order` 1 only rows are kept."""

    requests: MapRequests
    change: RelationChange
    order: int | None
    fresh: FreshNames

    def look_up(self, parts: list[Term], bound: Names, loose: Names) -> tuple[list[Term], list[Lift]]:
        """Return factors in which equalities bind keys, and those of them that say what a new key of a map is."""
        there = bound_variables(parts, bound, self.requests.derived, loose)
        late = self._late(parts, there)
        free: set[str] = set()
        for part in parts:
            if isinstance(part, Atom) and not self._stays(part, there, late):
                what = self.requests.derived.of(part)
                free |= set(part.variables) if what is None else what.split(part)[0]
        if not free - there - late:
            return parts, []
        tables = self.requests.tables
        event = variable_types([Atom(self.change.relation, self.change.variables)] if self.change.sign else [], tables)
        fresh = None if self.order is not None else self.fresh.key
        return bind_by_equalities(
            parts, there, frozenset(free) - there - late, variable_types(parts, tables, event), fresh
        )

    def split(
        self, parts: list[Term], bound: Names, loose: Names = frozenset(), inside: Sequence[Term] = ()
    ) -> tuple[list[Term], list[list[Term]], Names]:
        """Return the factors that stand in the statement, the components that maps hold, and what has one value.

        The factors `inside` belong to components.
        """
        there = bound_variables(parts, bound, self.requests.derived, loose)
        late = self._late(parts, there)
        own: list[Term] = []
        inner: list[Term] = []
        for part in parts:
            (own if part not in inside and self._stays(part, there, late) else inner).append(part)
        if self.order is not None:  # only rows are kept
            own += [part for part in inner if not isinstance(part, Atom)]
            return own, [[part] for part in inner if isinstance(part, Atom)], there
        groups: list[list[Term]] = []
        for whole in components(inner, there):
            if not self.requests.options.splits:
                groups.append(whole)
                continue
            reached, conditions = split_by_conditions(whole, there)
            own += conditions
            for group in reached:
                pieces, conditions = split_by_keys(group, there, self.requests.tables)
                groups += pieces
                own += conditions
        return own, groups, there

    def _late(self, parts: list[Term], there: Names) -> Names:
        """Return the variables that only the statement has: lifts, and columns of look-ups whose keys it loops over."""
        lifted = (part for part in parts if isinstance(part, Lift) and not variables_of(part.term).isdisjoint(there))
        late = {lift.variable for lift in lifted} - there
        for part in parts:
            if isinstance(part, (Atom, Batch)) and (what := self.requests.derived.get(part.name)) is not None:
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
            what = self.requests.derived.get(part.name)
            return what is not None and (what.is_lookup or bool(what.inputs) or what.split(part)[0] <= there)
        names = variables_of(part)
        return bool(names & (there | late)) or not names


def bind_by_equalities(
    factors: Iterable[Term],
    there: Names,
    free: Names,
    types: Mapping[str, Typed],
    fresh: Callable[[], str] | None,
) -> tuple[list[Term], list[Lift]]:
    """Return factors with lifts for equalities between what has a value and what is looked for.

    Parameters
    ----------
    there
        Variables that have a value.
    free
        Variables of what is looked for.
    types
        Those of variables; an equality of types whose equal values are not one value stays as it is.
    fresh
        Names a variable for an expression that is made a key; None if none may be.

    Returns
    -------
    factors, inside
        `inside` are those of the factors that say what a new key is: they belong to what is looked for.

    Examples
    --------
    >>> from cumulus.algebra.terms import Apply, number
    >>> from cumulus.catalog.types import BIGINT
    >>> types = {name: Typed(BIGINT, False) for name in "xy"}
    >>> remainder = Compare("=", Apply("mod", (Var("x"), number(10))), Var("y"))
    >>> for there, free in (("x", "y"), ("y", "x")):
    ...     found = bind_by_equalities([remainder], frozenset(there), frozenset(free), types, lambda: "k")
    ...     print([[str(factor) for factor in part] for part in found])
    [['(y := mod(x, 10))'], []]
    [['(y := mod(x, 10))'], ['(y := mod(x, 10))']]
    """
    known, result, inside = set(there), list(factors), list[Lift]()
    are_bound = False  # first all variables that get a value: what a new key is made of must not be one of them
    while True:
        for place, factor in enumerate(result):
            if not isinstance(factor, Compare) or factor.op != "=":
                continue
            for given, wanted in ((factor.left, factor.right), (factor.right, factor.left)):
                sides = variables_of(given), variables_of(wanted)
                if not (all(sides) and sides[0] <= known and sides[1] <= free - known and _alike(given, wanted, types)):
                    continue
                if isinstance(wanted, Var):
                    result[place] = Lift(wanted.name, given)
                    known.add(wanted.name)
                    break
                if fresh is not None and are_bound:
                    is_name = isinstance(given, Var) and all(lift.variable != given.name for lift in inside)
                    name = given.name if isinstance(given, Var) and is_name else fresh()
                    inside.append(Lift(name, wanted))
                    result[place : place + 1] = [inside[-1]] if is_name else [Lift(name, given), inside[-1]]
                    break
            else:
                continue
            break
        else:
            if are_bound:
                return result, inside
            are_bound = True


def _alike(left: Term, right: Term, types: Mapping[str, Typed]) -> bool:
    """Whether equal values of two scalars are one value, so that the one finds the other as a key."""
    if not variables_of(left) | variables_of(right) <= types.keys():
        return False
    one, other = _type(left, types), _type(right, types)
    return one is not None and other is not None and (one == other or (one.is_integer and other.is_integer))


def _type(scalar: Term, types: Mapping[str, Typed]) -> SqlType | None:
    try:
        return scalar_type(scalar, types)
    except TypeError:
        return None


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
