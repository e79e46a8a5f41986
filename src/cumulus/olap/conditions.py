"""Which groups a selection takes: values, ranges and patterns of levels, and members of dimensions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from cumulus.algebra.order import order_key
from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Interval, Kind
from cumulus.errors import UsageError
from cumulus.olap.shape import CubeShape, Dimension
from cumulus.scalars.text import like as is_like
from cumulus.views.folding import Between, Bound


@dataclass(frozen=True, slots=True)
class Like:
    """Texts that a pattern of LIKE describes: ``%`` is any text, ``_`` any character. NULL is none of them."""

    pattern: str


def like(pattern: str) -> Like:
    """Return the texts that a pattern of LIKE describes, for `slice` and `dice`.

    Examples
    --------
    >>> like("A%")
    Like(pattern='A%')
    """
    return Like(pattern)


@dataclass(frozen=True, slots=True)
class Matching:
    """A level whose texts a pattern describes."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Below:
    """Members of a dimension, with all that is below them: paths from its coarsest level on."""

    dimension: str
    paths: tuple[tuple[Any, ...], ...]


Condition: TypeAlias = Bound | Matching | Below


def condition_of(shape: CubeShape, name: str, wanted: Any) -> Condition:
    """Return what `slice(name=wanted)` says.

    Raises
    ------
    UsageError
        If there is no such level or dimension, or it has no such values.
    """
    if find_name(name, [each.name for each in shape.columns]) is None:
        dimension = next((each for each in shape.dimensions if find_name(name, [each.name]) is not None), None)
        if dimension is not None:
            paths = wanted if isinstance(wanted, (list, set, frozenset)) else [wanted]
            return below(shape, dimension, paths)
    column = shape.column(name)
    if isinstance(wanted, Like):
        if column.type is None or column.type.kind is not Kind.VARCHAR:
            raise UsageError(
                f"{shape.name}.{column.name} is a {column.type}, which has no pattern", hint="Give values or a range."
            )
        return Matching(column.name, wanted.pattern)
    if isinstance(wanted, Between):
        ends = (None if end is None else shape.value(column, end) for end in (wanted.low, wanted.high))
        return Bound(column.name, Between(*ends))
    several = isinstance(wanted, (list, tuple, set, frozenset)) and not isinstance(wanted, Interval)
    return Bound(column.name, _set([shape.value(column, each) for each in (wanted if several else [wanted])]))


def below(shape: CubeShape, dimension: Dimension, paths: Iterable[Any]) -> Condition:
    """Return the condition that a group lies below one of some members.

    Raises
    ------
    UsageError
        If a path is longer than the dimension has levels, or empty.
    """
    columns = {each.name: each for each in shape.columns}
    found = []
    for path in paths:
        values = path if isinstance(path, (list, tuple)) and not isinstance(path, Interval) else (path,)
        if not 0 < len(values) <= len(dimension.levels):
            raise UsageError(
                f"{path!r} is no member of {dimension.name}",
                hint=f"A member is a path of one to {len(dimension.levels)} values: {', '.join(dimension.levels)}.",
            )
        found.append(
            tuple(shape.value(columns[level], value) for level, value in zip(dimension.levels, values, strict=False))
        )
    if all(len(path) == 1 for path in found):
        return Bound(dimension.levels[0], _set([value for (value,) in found]))
    return Below(dimension.name, _set(found))


def _set(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return different values in one order, so that equal sets are equal."""
    return tuple(sorted(dict.fromkeys(values), key=_place))


def _place(value: Any) -> Any:
    if isinstance(value, tuple) and not isinstance(value, Interval):
        return tuple(map(_place, value))
    return (value is not None, 0 if value is None else order_key(value))


def bounds_for(shape: CubeShape, conditions: Iterable[Condition]) -> tuple[Bound, ...]:
    """Return bounds of single columns that every wanted group is in; with `test_for` they are all that is wanted."""
    found: list[Bound] = []
    for each in conditions:
        match each:
            case Bound():
                found.append(each)
            case Below(name, paths):
                levels = shape.dimension(name).levels
                for place in range(min(map(len, paths), default=0)):
                    found.append(Bound(levels[place], _set(path[place] for path in paths)))
            case Matching():
                pass
    return tuple(found)


def alternatives_of(
    shape: CubeShape, conditions: Iterable[Condition], values: Callable[[str], Iterable[Any]]
) -> list[tuple[Bound, ...]]:
    """Return what is wanted as lists of bounds, of which one must be met whole.

    Parameters
    ----------
    values
        From a level to its values, which patterns are held against.
    """
    found: list[tuple[Bound, ...]] = [()]
    for each in conditions:
        ways: list[tuple[Bound, ...]]
        match each:
            case Bound():
                ways = [(each,)]
            case Matching(column, pattern):
                is_wanted = _pattern_test(pattern)
                ways = [(Bound(column, tuple(value for value in values(column) if is_wanted((value,)))),)]
            case Below(name, paths):
                levels = shape.dimension(name).levels
                ways = [
                    tuple(Bound(level, (value,)) for level, value in zip(levels, path, strict=False)) for path in paths
                ]
        found = [(*bounds, *way) for bounds in found for way in ways]
    return found


def test_for(
    shape: CubeShape, conditions: Iterable[Condition]
) -> tuple[tuple[str, ...], Callable[[tuple[Any, ...]], bool]] | None:
    """Return the columns that must be known of a group to tell more than bounds do, and what tells it of their values.

    None if bounds say all.
    """
    known = {each.name: each for each in shape.columns}
    tests: list[tuple[tuple[str, ...], Callable[[tuple[Any, ...]], bool]]] = []
    for each in conditions:
        match each:
            case Matching(column, pattern):
                tests.append(((column,), _pattern_test(pattern)))
            case Below(name, paths) if len(paths) > 1:
                levels = shape.dimension(name).levels[: max(map(len, paths))]
                tests.append((levels, _path_test(shape.name, [known[level] for level in levels], paths)))
            case _:
                pass
    if not tests:
        return None
    columns = tuple(dict.fromkeys(column for levels, _ in tests for column in levels))
    places = [tuple(columns.index(level) for level in levels) for levels, _ in tests]

    def is_wanted(values: tuple[Any, ...]) -> bool:
        return all(
            test(tuple([values[place] for place in where])) for where, (_, test) in zip(places, tests, strict=True)
        )

    return columns, is_wanted


def _pattern_test(pattern: str) -> Callable[[tuple[Any, ...]], bool]:
    return lambda values: values[0] is not None and is_like(values[0], pattern)


def _path_test(
    name: str, columns: list[Column], paths: tuple[tuple[Any, ...], ...]
) -> Callable[[tuple[Any, ...]], bool]:
    tests = [
        [Bound(column.name, (value,)).typed(name, column).test() for column, value in zip(columns, path, strict=False)]
        for path in paths
    ]
    return lambda values: any(all(test(value) for test, value in zip(each, values, strict=False)) for each in tests)


def as_json(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON has it."""
    match condition:
        case Bound(column, Between(low, high)):
            return {"level": column, "between": [written(low), written(high)]}
        case Bound(column, values):
            assert isinstance(values, tuple)
            return {"level": column, "in": list(map(written, values))}
        case Matching(column, pattern):
            return {"level": column, "like": pattern}
        case Below(dimension, paths):
            return {"dimension": dimension, "below": [list(map(written, path)) for path in paths]}


def from_json(shape: CubeShape, given: Mapping[str, Any]) -> Condition:
    """Return the condition that `as_json` has written.

    Raises
    ------
    UsageError
        If it is none.
    """
    match given:
        case {"level": str(name), "between": [low, high], **others} if not others:
            return condition_of(shape, shape.column(name).name, Between(low, high))
        case {"level": str(name), "in": list(values), **others} if not others:
            return condition_of(shape, shape.column(name).name, values)
        case {"level": str(name), "like": str(pattern), **others} if not others:
            return condition_of(shape, shape.column(name).name, Like(pattern))
        case {"dimension": str(name), "below": list(paths), **others} if not others:
            return below(shape, shape.dimension(name), paths)
    raise UsageError(
        f"{given!r} is no condition",
        hint='One of {"level": …, "in": […]}, {"level": …, "between": [low, high]}, {"level": …, "like": …}, '
        '{"dimension": …, "below": [[…], …]}.',
    )


def written(value: Any) -> Any:
    """Return a value as JSON has it: texts for what JSON has not; the column's type makes values of them again."""
    match value:
        case Interval(months, days, micros):
            return f"{months} months {days} days {micros} microseconds"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return str(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
    raise UsageError(f"{value!r} has no JSON", hint="Give numbers, texts, truth values, times.")
