"""Which definitions DuckDB computes as the engines do, errors and all.

Where an expression fails, a view has an error and the row counts as nothing. DuckDB fails there as well, and then the
rows are replayed; but it gives NULL for what is divided by 0, and knows dates that Python does not. So what is not
known to be alike is not computed by SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import AggSum, Apply, Atom, Cast, Compare, Const, Range, Sum, Term, Var, children, factors_of
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import INTEGER_BITS, Kind
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef
from cumulus.scalars.python_code import TOTAL_FUNCTIONS

_ARITHMETIC = frozenset({"add", "sub", "mul", "neg"})
_EXACT = frozenset({*INTEGER_BITS, Kind.DECIMAL, Kind.NULL})
_ALIKE = TOTAL_FUNCTIONS | {
    "in", "like", "ilike", "starts_with", "ends_with", "contains", "left", "substring", "length",
    "year", "month", "day",
}  # fmt: skip
"""Functions that never fail, or of which DuckDB says so."""


def difference_in_sql(definition: MapDef, tables: Mapping[str, Table]) -> str:
    """Return what of a map DuckDB may compute otherwise than the engines, "" if nothing.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT, INTEGER
    >>> table = Table("r", (Column("a", INTEGER),))
    >>> def made(function):
    ...     term = Apply(function, (Var("x"), Const(0, INTEGER)))
    ...     return MapDef("m", (), (Column("v", BIGINT),), definitions=(Atom("r", ("x",)), term))
    >>> difference_in_sql(made("mul"), {"r": table}), difference_in_sql(made("div"), {"r": table})
    ('', 'div, which SQL may not refuse where it fails')
    """
    if any(
        column.type is None or column.type.is_float or column.type.kind not in _EXACT for column in definition.values
    ):
        return "sums that are not exact"
    kinds: dict[str, Kind] = {}
    for node in chain.from_iterable(map(nodes, definition.definitions)):
        if isinstance(node, Atom):
            for name, column in zip(node.variables, tables[node.name].columns, strict=True):
                if column.type is None or column.type.kind is Kind.INTERVAL:
                    return "a column whose values SQL compares otherwise"
                kinds[name] = column.type.kind
    return next(_faults(definition.definitions, kinds), "")


def compares_rows(term: Term) -> bool:
    """Whether a definition compares columns of two tables otherwise than for being equal: DuckDB takes all pairs then.

    Examples
    --------
    >>> from cumulus.algebra.terms import AggSum, Compare, product_of
    >>> r, s = Atom("r", ("k", "x")), Atom("s", ("k", "y"))
    >>> term = AggSum(("k",), product_of([r, s, Compare("<", Var("x"), Var("y"))]))
    >>> compares_rows(term), compares_rows(AggSum(("k",), product_of([r, s])))
    (True, False)
    """
    if isinstance(term, Sum | AggSum):
        return any(compares_rows(part) for part in children(term) if not isinstance(part, Range))
    factors = factors_of(term)
    tables = [set(factor.variables) for factor in factors if isinstance(factor, Atom)]
    return any(
        bool(variables_of(factor) & one and variables_of(factor) & other)
        for factor in factors
        if isinstance(factor, Compare)
        for one, other in combinations(tables, 2)
        if not (variables_of(factor) <= one or variables_of(factor) <= other)
    )


def _faults(terms: tuple[Term | Range, ...], kinds: Mapping[str, Kind]) -> Iterator[str]:
    for term in terms:
        match term:
            case Apply("case", (Apply("eq", (tested, Const(0))), Const(None), Apply("div", (above, below)))) if (
                tested == below and _are_exact((above, below), kinds)
            ):
                continue  # AVG
            case Apply(function, args) if function in _ARITHMETIC:
                if not _are_exact(args, kinds):
                    yield f"{function} of what is not exact"
            case Apply(function) if function not in _ALIKE:
                yield f"{function}, which SQL may not refuse where it fails"
            case Cast(arg, target):
                if not (target.is_float or target.kind in _EXACT) or not _are_exact((arg,), kinds):
                    yield f"a cast to {target}"
        yield from _faults(tuple(children(term)), kinds)


def _are_exact(terms: tuple[Term, ...], kinds: Mapping[str, Kind]) -> bool:
    """Whether the columns and literals in terms are exact numbers; a literal DOUBLE is as good."""
    for node in chain.from_iterable(map(nodes, terms)):
        if isinstance(node, Var) and kinds.get(node.name, Kind.DECIMAL) not in _EXACT:
            return False
        if isinstance(node, Const) and not (node.type.kind in _EXACT or node.type.is_float):
            return False
    return True
