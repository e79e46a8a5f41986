"""Sums of DOUBLE over two tables, taken apart: of `f(a) - g(b)` each side is added up for itself, and nothing is lost.

Sums of floats would lose the difference in what the sides add up to. So each side is cut into numbers that add up
exactly: a whole number, a multiple of 2⁻⁸⁰, and a rest that nearly all floats between 10⁻⁸ and 10²⁴ do not have. Only
rows that have one, or NaN or an infinity, are kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import FALSE, Apply, Compare, Scalar, Term, negate, product_of, sum_of
from cumulus.catalog.types import BIGDECIMAL, HUGEINT, SqlType
from cumulus.sql.binding.branches import BranchScope
from cumulus.sql.binding.conditions import is_not_null


@dataclass(frozen=True, slots=True)
class FloatSumColumn:
    """One of the sums that a sum of floats is made of.

    Parameters
    ----------
    hint, type
        A name for it, and its type.
    function
        What is added up of a float.
    is_rare
        Whether it is 0 for a float that `float_fits`, so that most rows need not be kept.
    """

    hint: str
    function: str
    type: SqlType
    is_rare: bool


COLUMNS = (
    FloatSumColumn("s", "float_whole", HUGEINT, False),
    FloatSumColumn("f", "float_fraction", HUGEINT, False),
    FloatSumColumn("r", "float_rest", BIGDECIMAL, True),
)
"""What `float_total` makes the sum of."""


def is_summed_by_sides(within: BranchScope, arg: Scalar) -> bool:
    """Whether a float is the sum or difference of two that come from tables which no column joins.

    Where a column does, an event meets the few rows that have its value, and one sum of them costs less than three. It
    is of two only: a float that is rounded more than once may differ from its exact value by more than a part of
    itself.
    """
    match within.scalar(arg):
        case Apply("add" | "sub", (left, right)):
            tables = [frozenset(atom.variables) for atom in within.branch.atoms]
            sides = [_joined_columns(variables_of(side), tables) for side in (left, right)]
            return None not in sides and sides[0] != sides[1]
        case _:
            return False


def _joined_columns(names: frozenset[str], tables: list[frozenset[str]]) -> frozenset[str] | None:
    """Return the columns of all tables that are joined with the one that has some columns; None if none has them."""
    found = next((table for table in tables if names <= table), None) if names else None
    while found is not None:
        more = found.union(*(table for table in tables if not found.isdisjoint(table)))
        if more == found:
            break
        found = more
    return found


def column_summand(within: BranchScope, arg: Scalar, column: FloatSumColumn) -> Term:
    """Return the term that adds up one column of a float: of each side by itself where it is taken apart."""
    scalar = within.scalar(arg)
    if not is_summed_by_sides(within, arg):
        return _part(scalar, column)
    assert isinstance(scalar, Apply), "it is a sum or a difference"
    left, right = scalar.args
    there = is_not_null(scalar, within.variables, expand=True)
    return product_of([there, sum_of([_part(left, column), _part(right, column, minus=scalar.function == "sub")])])


def _part(scalar: Scalar, column: FloatSumColumn, *, minus: bool = False) -> Term:
    if not column.is_rare:
        number = Apply(column.function, (scalar,))
        return negate(number) if minus else number
    # A minus inside: what counts an infinity is another number then, not less.
    given = Apply("neg", (scalar,)) if minus else scalar
    return product_of([Compare("=", Apply("float_fits", (scalar,)), FALSE), Apply(column.function, (given,))])
