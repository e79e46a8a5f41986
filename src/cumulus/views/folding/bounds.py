"""Which groups are wanted: values, lists and ranges that bound the grouping columns of a view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cumulus.algebra.order import order_key
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Interval, coerce
from cumulus.errors import UsageError
from cumulus.scalars.python_code import canonical


@dataclass(frozen=True, slots=True)
class Between:
    """All values from `low` to `high`, both included; None leaves an end open. NULL is in no range."""

    low: Any = None
    high: Any = None


def between(low: Any = None, high: Any = None) -> Between:
    """Return the range of values from `low` to `high`, both included, for `fold(where=…)`; None leaves an end open.

    Examples
    --------
    >>> between(1, 5)
    Between(low=1, high=5)
    """
    return Between(low, high)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a grouping column must be: in a range, or one of some values, of which None is NULL."""

    column: str
    within: Between | tuple[Any, ...]

    def typed(self, view: str, column: Column) -> Bound:
        """Return the bound with values of a column's type, each once.

        Raises
        ------
        UsageError
            If a value is not of that type.
        """

        def made(value: Any) -> Any:
            try:
                return canonical(value if column.type is None else coerce(value, column.type))
            except (TypeError, ValueError) as problem:
                raise UsageError(
                    f"{view}.{column.name}: {problem}",
                    hint=f"It is a {column.type}; give a value, a list of values, or cumulus.between(low, high).",
                ) from None

        if isinstance(self.within, tuple):
            return Bound(column.name, tuple(dict.fromkeys(map(made, self.within))))
        low, high = (None if end is None else made(end) for end in (self.within.low, self.within.high))
        return Bound(column.name, Between(low, high))

    def test(self) -> Callable[[Any], bool]:
        """Return the function that tells which values of its column are meant by a bound that is `typed`."""
        if isinstance(self.within, tuple):
            wanted = frozenset(self.within)
            return lambda value: canonical(value) in wanted
        low, high = (None if end is None else order_key(end) for end in (self.within.low, self.within.high))

        def lies_between(value: Any) -> bool:
            if value is None:
                return False
            place = order_key(value)
            return (low is None or low <= place) and (high is None or place <= high)

        return lies_between


def column_tests(
    view: str, columns: Sequence[Column], where: Sequence[Bound]
) -> list[tuple[int, Callable[[Any], bool]]]:
    """Return for each bound of a view's columns the place of its column, and what tells which values are wanted.

    Raises
    ------
    UnknownNameError, UsageError
        If there is no such column, or a value is not of its type.
    """
    names = [column.name for column in columns]
    places = [names.index(known_name(bound.column, names, f"column of {view}")) for bound in where]
    return [(place, bound.typed(view, columns[place]).test()) for place, bound in zip(places, where, strict=True)]


def bounds_of(where: Mapping[str, Any] | Iterable[Bound]) -> tuple[Bound, ...]:
    """Return bounds as they are, or made of column → value, list of values, or `between`.

    Examples
    --------
    >>> bounds_of({"a": 1, "b": ["x", None]})
    (Bound(column='a', within=(1,)), Bound(column='b', within=('x', None)))
    """
    if not isinstance(where, Mapping):
        return tuple(where)
    found = []
    for column, value in where.items():
        if isinstance(value, Between):
            found.append(Bound(column, value))
        elif isinstance(value, (list, tuple, set, frozenset)) and not isinstance(value, Interval):
            found.append(Bound(column, tuple(value)))
        else:
            found.append(Bound(column, (value,)))
    return tuple(found)
