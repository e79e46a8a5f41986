"""The one term tree: calculus terms, and the terms of M3.

A term denotes a generalised multiset relation: a function from tuples over its output variables to numbers,
zero almost everywhere. Information flows left to right through a product: a variable is an input until something to
its left binds it. There are two contexts:

*value context* (statements, definitions)
    `Sum` and `Product` are the ring operations, `Const` and `Var` are numbers, and NULL counts as 0.
*scalar context* (inside `Compare`, `Apply` and `Cast`, keys, the expressions of a view)
    a term is one SQL value, arithmetic is `Apply("add", …)` and so on, and NULL propagates as in SQL.

`Compare` is where they meet: it is 1 or 0. Its equality takes NULL for an ordinary value (equal to itself and to
nothing else); its order comparisons with NULL are 0. The SQL translation adds what SQL wants on top.

Nodes are interned: two equal terms are one object, so equality is identity, hashing is constant, and a function
of terms is memoised on the node (`memoised`). Build sums and products with `sum_of` and `product_of` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from cumulus.catalog.types import BIGINT, BOOLEAN, DOUBLE, EXACT, HUGEINT, INTEGER, NULL, SqlType, decimal

Number: TypeAlias = int | Decimal | float

_NODES: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


class _Interned(type):
    """Makes `Node(...)` return the one node with these parts."""

    if not TYPE_CHECKING:

        def __call__(cls, *parts: Any) -> Any:
            if len(parts) < len(cls.__match_args__):
                fields = cls.__dataclass_fields__
                parts = (*parts, *(fields[name].default for name in cls.__match_args__[len(parts) :]))
            key = (cls, *parts) if cls is not Const else (cls, type(parts[0]), repr(parts[0]), *parts[1:])
            node = _NODES.get(key)
            if node is None:
                node = super().__call__(*parts)
                _NODES[key] = node
            return node


class Node(metaclass=_Interned):
    """The base of all terms: identity is equality."""

    __slots__ = ("__weakref__", "_memo")
    _memo: dict[Any, Any]

    def __str__(self) -> str:
        from cumulus.algebra.printing import print_node

        return print_node(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Node):
    """A literal. `value` is the plain Python object of `type`, None for NULL."""

    value: Any
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Var(Node):
    """A variable: an event variable, a loop variable, or a column."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Node):
    """A scalar function of `cumulus.scalars.registry`, or a user's; atomic for the calculus."""

    function: str
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Node):
    """SQL's CAST of a scalar."""

    arg: Term
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Node):
    """1 if `left op right`, else 0; both sides are scalars. `op` is one of = <> < <= > >=."""

    op: str
    left: Term
    right: Term


MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparison that orders → the one that says the same with its sides exchanged."""


@dataclass(frozen=True, slots=True, eq=False)
class Atom(Node):
    """The multiplicity of a tuple in a base table; equal names join.

    In a statement of an `ON BATCH r` trigger, the multiplicity in the batch's net change.
    """

    name: str
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Node):
    """The net change of a relation in a block: what the calculus calls the delta of `Atom`."""

    name: str
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lift(Node):
    """Binds `variable` to the value of `term`: 1 where they agree. Nested aggregates live here."""

    variable: str
    term: Term


@dataclass(frozen=True, slots=True, eq=False)
class Exists(Node):
    """1 where `term` is not 0."""

    term: Term


@dataclass(frozen=True, slots=True, eq=False)
class AggSum(Node):
    """Projects `term` to the variables of `group`, adding.

    A variable that is bound to the left of the aggregate is the same variable inside (a correlation); one that is bound
    later, or nowhere else, only has the same name.
    """

    group: tuple[str, ...]
    term: Term


@dataclass(frozen=True, slots=True, eq=False)
class Sum(Node):
    """The sum of `parts`; build with `sum_of`."""

    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Product(Node):
    """The natural join of `parts`: multiplicities multiply; build with `product_of`."""

    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """A key pattern: all keys between two ends, each absent or (scalar, whether the end belongs)."""

    low: tuple[Term, bool] | None
    high: tuple[Term, bool] | None


@dataclass(frozen=True, slots=True, eq=False)
class MapRead(Node):
    """A value column of a materialised map.

    A key is a scalar, or a `Range`. An unbound `Var` key loops over the slice and is bound by it; a range sums over the
    entries that it holds. `column` "" means the map's only value column; in a canonical program
    (`cumulus.m3.canonical`, and what `cumulus.m3.parse` returns) it is always the column's name.

    `state` says when: "OLD" is before the trigger fires, "NEW" is when its statements have added to the map, "CHANGED"
    is 1 for a key whose entry differs between the two (`column` is "" then).
    """

    map: str
    column: str
    keys: tuple[Term | Range, ...]
    state: str = "OLD"


@dataclass(frozen=True, slots=True, eq=False)
class MapExtremum(Node):
    """Extremum of a slice: its least (`end` "MIN") or greatest ("MAX") key, NULL if the slice is empty.

    Exactly one of `keys` is None: the axis that is searched (`*` in the text). A scalar.
    """

    end: str
    map: str
    keys: tuple[Term | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Extremum(Node):
    """MIN or MAX (`end`) of the values of `variable` at which `term` is not 0; NULL if there is none.

    `term` is in value context. What is bound to the left of it is bound inside, too; everything else that the term
    binds is summed over, but for `variable`, which is its own. Values are in SQL's order, NULL is none of them.
    A scalar.
    """

    end: str
    variable: str
    term: Term


Term: TypeAlias = (
    Const
    | Var
    | Apply
    | Cast
    | Compare
    | Atom
    | Batch
    | Lift
    | Exists
    | AggSum
    | Sum
    | Product
    | MapRead
    | MapExtremum
    | Extremum
)

Scalar: TypeAlias = Term
"""A term in scalar context."""

ZERO = Const(0, INTEGER)
ONE = Const(1, INTEGER)
TRUE = Const(True, BOOLEAN)
FALSE = Const(False, BOOLEAN)
NULL_VALUE = Const(None, NULL)

Result = TypeVar("Result")


def memoised(function: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Make a function of one term remember its result on the term itself."""

    @wraps(function)
    def remembered(term: Any) -> Result:
        try:
            memo = term._memo
        except AttributeError:
            memo = {}
            object.__setattr__(term, "_memo", memo)
        if function not in memo:
            memo[function] = function(term)
        found: Result = memo[function]
        return found

    return remembered


def number(value: Number) -> Const:
    """Return the literal of a number, typed as DuckDB types it.

    Examples
    --------
    >>> str(number(3).type), str(number(Decimal("0.25")).type)
    ('INTEGER', 'DECIMAL(2,2)')
    """
    if isinstance(value, float):
        return Const(value, DOUBLE)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "a literal decimal is finite"
        scale = max(-exponent, 0)
        return Const(value, decimal(max(len(digits) + max(exponent, 0), scale, 1), scale))
    if -(1 << 31) <= value < 1 << 31:
        return Const(value, INTEGER)
    return Const(value, BIGINT if -(1 << 63) <= value < 1 << 63 else HUGEINT)


def is_number(term: Term) -> bool:
    """Whether `term` is a numeric literal."""
    return isinstance(term, Const) and term.type.is_numeric and term.value is not None


def multiply(left: Number, right: Number) -> Number:
    """Multiply two numbers of any kinds, exactly where both are exact."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left) * float(right)
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return EXACT.multiply(Decimal(left), Decimal(right))


def add(left: Number, right: Number) -> Number:
    """Add two numbers of any kinds, exactly where both are exact."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left) + float(right)
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return EXACT.add(Decimal(left), Decimal(right))


def factors_of(term: Term) -> tuple[Term, ...]:
    """Return the factors of a product, or a term that is none as its only factor.

    Examples
    --------
    >>> [str(factor) for factor in factors_of(product_of([Var("x"), Var("y")]))], len(factors_of(Var("x")))
    (['x', 'y'], 1)
    """
    return term.parts if isinstance(term, Product) else (term,)


def product_of(parts: Iterable[Term]) -> Term:
    """Return the product of `parts`: flat, one leading literal at most, ZERO if any part is.

    Examples
    --------
    >>> str(product_of([number(2), Var("x"), product_of([number(3), Var("y")])]))
    '6 * x * y'
    """
    factor: Number = 1
    rest: list[Term] = []
    for part in parts:
        for item in factors_of(part):
            if isinstance(item, Const) and is_number(item):
                if not item.value:
                    return ZERO
                factor = multiply(factor, item.value)
            else:
                rest.append(item)
    if not factor:  # floats may underflow
        return ZERO
    if factor != 1 or not rest:
        rest.insert(0, number(factor))
    return rest[0] if len(rest) == 1 else Product(tuple(rest))


def sum_of(parts: Iterable[Term]) -> Term:
    """Return the sum of `parts`: flat, equal terms counted together, no zeros.

    Examples
    --------
    >>> str(sum_of([Var("x"), number(2), negate(Var("x")), number(1)]))
    '3'
    """
    coefficients: dict[Term | None, Number] = {}
    for part in parts:
        for item in part.parts if isinstance(part, Sum) else (part,):
            factor, rest = split_coefficient(item)
            coefficients[rest] = add(coefficients.get(rest, 0), factor)
    terms = [
        number(factor) if rest is None else product_of([number(factor), rest])
        for rest, factor in coefficients.items()
        if factor
    ]
    if not terms:
        return ZERO
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def split_coefficient(term: Term) -> tuple[Number, Term | None]:
    """Split a term into its literal coefficient and the rest; None for a bare number."""
    if isinstance(term, Const) and is_number(term):
        return term.value, None
    if isinstance(term, Product):
        head = term.parts[0]
        if isinstance(head, Const) and is_number(head):
            tail = term.parts[1:]
            return head.value, tail[0] if len(tail) == 1 else Product(tail)
    return 1, term


def negate(term: Term) -> Term:
    """Return -term."""
    return product_of([number(-1), term])


def children(term: Term | Range) -> tuple[Term | Range, ...]:
    """Return the direct sub-terms, key patterns included."""
    match term:
        case Apply(_, args):
            return args
        case Cast(arg, _) | Lift(_, arg) | Exists(arg) | AggSum(_, arg) | Extremum(_, _, arg):
            return (arg,)
        case Compare(_, left, right):
            return (left, right)
        case Sum(parts) | Product(parts):
            return parts
        case MapRead(keys=keys):
            return keys
        case MapExtremum(_, _, keys):
            return tuple(key for key in keys if key is not None)
        case Range(low, high):
            return tuple(end[0] for end in (low, high) if end is not None)
        case _:
            return ()


def rebuild(term: Any, change: Callable[[Any], Any]) -> Any:
    """Return `term` with `change` applied to its direct sub-terms (smart constructors are used)."""
    match term:
        case Apply(function, args):
            return Apply(function, tuple(change(arg) for arg in args))
        case Cast(arg, target):
            return Cast(change(arg), target)
        case Compare(op, left, right):
            return Compare(op, change(left), change(right))
        case Lift(variable, inner):
            return Lift(variable, change(inner))
        case Exists(inner):
            return Exists(change(inner))
        case AggSum(group, inner):
            return AggSum(group, change(inner))
        case Sum(parts):
            return sum_of(change(part) for part in parts)
        case Product(parts):
            return product_of(change(part) for part in parts)
        case MapRead(name, column, keys, state):
            return MapRead(name, column, tuple(change(key) for key in keys), state)
        case MapExtremum(end, name, keys):
            return MapExtremum(end, name, tuple(None if key is None else change(key) for key in keys))
        case Extremum(end, variable, inner):
            return Extremum(end, variable, change(inner))
        case Range(low, high):
            ends = [None if end is None else (change(end[0]), end[1]) for end in (low, high)]
            return Range(ends[0], ends[1])
        case _:
            return term
