"""What maps hold before the first event: the rows that queries have over empty tables.

`SELECT COUNT(*) FROM (SELECT MAX(c) FROM r)` is 1 while r is empty, and ROLLUP has its total. Maps are kept by adding
changes, so they must start with what their definitions are over empty tables. Most start empty, and that is seen
without evaluating anything: a factor is a table, or a derived relation that is made of one.
"""

from __future__ import annotations

import decimal
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cumulus.algebra.terms import Apply, Atom, Batch, Number, Term, sum_of
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.evaluate import evaluate
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.types import EXACT, SqlType
from cumulus.errors import UnsupportedError
from cumulus.m3.infer import nodes
from cumulus.m3.program import Entry
from cumulus.scalars.python_code import canonical
from cumulus.scalars.registry import FUNCTIONS


def starts_empty(factor: Term, derived: Registry, loaded: Collection[str] = ()) -> bool:
    """Whether a factor is 0 before the first event.

    Parameters
    ----------
    loaded
        Tables that may have rows by then.
    """
    if not isinstance(factor, (Atom, Batch)):
        return False
    what = derived.get(factor.name)
    if what is None:
        return factor.name not in loaded
    return not what.is_lookup and all(
        any(starts_empty(inner, derived, loaded) for inner in monomial.factors)
        for monomial in monomials(what.sums[0].term)
    )


def initial_entries(
    keys: tuple[str, ...], columns: Iterable[tuple[Sequence[Term], SqlType | None]]
) -> tuple[Entry, ...]:
    """Return the entries of a map over empty tables.

    Parameters
    ----------
    keys
        The key variables of all definitions.
    columns
        What adds up to each value column and does not start empty, over base tables; and the column's type.

    Raises
    ------
    UnsupportedError
        If a function of the user's would be needed for it: its code is not known here.

    Examples
    --------
    >>> from cumulus.algebra.terms import number
    >>> from cumulus.catalog.types import BIGINT
    >>> initial_entries((), [([], BIGINT)]), initial_entries((), [([number(2)], BIGINT)])
    ((), (((), (2,)),))
    """
    found: dict[tuple[Any, ...], list[Number]] = {}
    listed = list(columns)
    for place, (parts, sql_type) in enumerate(listed):
        for key, number in _entries_of(keys, sum_of(parts)).items() if parts else ():
            entry = found.setdefault(key, [0] * len(listed))
            entry[place] = float(number) if sql_type is not None and sql_type.is_float else number
    return tuple((key, tuple(numbers)) for key, numbers in found.items())


def _entries_of(keys: tuple[str, ...], term: Term) -> dict[tuple[Any, ...], Number]:
    for node in nodes(term):
        if isinstance(node, Apply) and node.function not in FUNCTIONS:
            raise UnsupportedError(
                f"a view has rows while its tables are empty, and they depend on {node.function}, a function of yours",
                feature="a function of yours over an aggregate without rows",
                hint="Call it beside the aggregate, as in SELECT f(COUNT(*)) FROM r, or GROUP BY a column.",
            )
    with decimal.localcontext(EXACT):
        entries = evaluate(term, {}, failures_are_zero=True)
    return {tuple(canonical(dict(binding)[key]) for key in keys): number for binding, number in entries.items()}
