"""Keys of maps that are never NULL: what a definition says of its variables.

Machine code keeps such a key in fewer words, and need not look whether it is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cumulus.algebra.terms import AggSum, Atom, Batch, Compare, Const, Exists, Lift, Product, Sum, Term, Var
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import NULL
from cumulus.scalars.typing import Typed, is_nullable

_THERE, _UNKNOWN = Typed(NULL, False), Typed(NULL, True)


class _Known(dict[str, Typed]):
    """Variables that are not NULL; any other one may be."""

    def __missing__(self, name: str) -> Typed:
        return _UNKNOWN


def never_null(definitions: Iterable[Term], tables: Mapping[str, Relation]) -> frozenset[str]:
    """Return the variables that are not NULL wherever one of some terms, at least one, is not 0.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT
    >>> table = Relation("r", (Column("a", BIGINT, True), Column("b", BIGINT)))
    >>> sorted(never_null([Atom("r", ("x", "y"))], {"r": table}))
    ['x']
    """
    found = [_never_null(each, frozenset(), tables) for each in definitions]
    return frozenset.intersection(*found)


def _never_null(term: Term, known: frozenset[str], tables: Mapping[str, Relation]) -> frozenset[str]:
    """Return the variables that are not NULL where the term is not 0, if some that are bound before it are not."""
    match term:
        case Atom(name, variables) | Batch(name, variables):
            columns = zip(variables, tables[name].columns, strict=True)
            return frozenset(variable for variable, column in columns if column.not_null)
        case Product(parts):
            found = frozenset[str]()
            asked = frozenset(name for part in parts for name in _not_zero(part))
            for part in parts:
                found |= _never_null(part, known | found, tables)
                if isinstance(part, Lift) and part.variable in asked:  # a nested sum that is not 0
                    found |= _never_null(part.term, known | found, tables)
            return found
        case Sum(parts):
            return frozenset.intersection(*(_never_null(part, known, tables) for part in parts))
        case AggSum(group, inner):
            return _never_null(inner, known, tables).intersection(group)
        case Exists(inner):
            return _never_null(inner, known, tables)
        case Lift(variable, inner) if not is_nullable(inner, _Known(dict.fromkeys(known, _THERE))):
            return frozenset((variable,))
        case Compare("<>", Var(name), Const(None, _)):
            return frozenset((name,))
        case _:
            return frozenset()


def _not_zero(factor: Term) -> Iterable[str]:
    """Return the variable that is a number other than 0 where a factor is not 0, if there is one."""
    match factor:
        case Var(name) | Compare(">" | "<>", Var(name), Const(0, _)):
            return (name,)
        case _:
            return ()
