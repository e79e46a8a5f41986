"""Random calculus terms and databases for laws. Terms are well scoped: every input is bound to the left."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import (
    NULL_VALUE,
    AggSum,
    Apply,
    Atom,
    Compare,
    Exists,
    Extremum,
    Lift,
    Term,
    Var,
    number,
    product_of,
    sum_of,
)
from cumulus.catalog.events import Event

ARITIES = {"r": 2, "s": 2, "t": 1}
VARIABLES = ("x", "y", "z")
VALUES = st.one_of(st.integers(-2, 2), st.none())
ROWS = {name: st.tuples(*[VALUES] * arity) for name, arity in ARITIES.items()}

databases = st.fixed_dictionaries(
    {name: st.dictionaries(rows, st.integers(1, 2), max_size=4) for name, rows in ROWS.items()}
)
events = st.sampled_from(sorted(ARITIES)).flatmap(
    lambda name: st.builds(Event, st.sampled_from([1, -1]), st.just(name), ROWS[name])
)

atoms = st.sampled_from(sorted(ARITIES)).flatmap(
    lambda name: st.tuples(*[st.sampled_from(VARIABLES)] * ARITIES[name]).map(lambda v: Atom(name, v))
)
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([Decimal("0.5"), Decimal("-1.25")])).map(number)


def scalars(names: tuple[str, ...]) -> st.SearchStrategy[Term]:
    variables = st.sampled_from(names).map(Var)
    either = st.builds(lambda a, b: sum_of([Lift("u", a), Lift("u", b)]), variables, st.one_of(variables, numbers))
    return st.one_of(
        variables,
        numbers,
        st.builds(lambda a: Apply("coalesce", (a, number(1))), variables),
        st.builds(lambda end, term: Extremum(end, "u", term), st.sampled_from(["MIN", "MAX"]), either),
    )


def guards(names: tuple[str, ...]) -> st.SearchStrategy[Term]:
    side = scalars(names)
    return st.one_of(
        st.builds(Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), side, side),
        st.builds(lambda a: Compare("<>", a, NULL_VALUE), side),
        side,
        st.builds(lambda a, b: sum_of([a, b]), side, side),
    )


@st.composite
def products(draw: st.DrawFn, nested: bool = True) -> Term:
    """A join of one to three atoms with conditions, numbers, lifts and (if `nested`) nested aggregates."""
    parts: list[Term] = draw(st.lists(atoms, min_size=1, max_size=3))
    names = outputs(product_of(parts)) or ("x",)
    parts += draw(st.lists(guards(names), max_size=2))
    if draw(st.booleans()):
        parts.append(Lift("w", draw(scalars(names))))
    if nested and draw(st.booleans()):
        inner = draw(products(nested=False))
        kept = tuple(name for name in outputs(inner) if name in names and draw(st.booleans()))
        total = AggSum(kept, inner)
        parts.append(draw(st.sampled_from([Exists(total), total])))
    if nested and draw(st.booleans()):
        inner = draw(products(nested=False))
        parts += [Lift("v", AggSum((), inner)), draw(guards((*names, "v")))]
    return product_of(parts)


@st.composite
def terms(draw: st.DrawFn, nested: bool = True) -> Term:
    """A sum of products with the same output variables, possibly aggregated."""
    parts = draw(st.lists(products(nested=nested), min_size=1, max_size=2))
    common = [name for name in outputs(parts[0]) if all(name in outputs(part) for part in parts)]
    kept = tuple(name for name in common if draw(st.booleans()))
    return AggSum(kept, sum_of(AggSum(kept, part) for part in parts))
