"""Parts of a folded view: what a share of its groups gives, to be added to the parts of other shares, and finished."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cumulus.algebra.float_sums import ZERO_CELL, add_cells, add_to_cell, finite, read_cell, ring
from cumulus.algebra.order import order_key
from cumulus.algebra.terms import Term
from cumulus.catalog.types import EXACT, Kind, coerce
from cumulus.errors import EvaluationError, UsageError
from cumulus.scalars.python_code import NamePool, PythonCode, ScalarCoder
from cumulus.scalars.user import Functions
from cumulus.views.batches import ColumnsAlone, MapColumns
from cumulus.views.column_finishing import Columnar
from cumulus.views.consistency import Consistency
from cumulus.views.entries import Key, Values
from cumulus.views.folding.choice import Choice
from cumulus.views.folding.group_columns import EndColumns, GroupColumns
from cumulus.views.folding.measures import CountedValues, DistinctColumn, MeasureKind
from cumulus.views.folding.plan import FoldedNumber, FoldPlan, end_maps, finisher_of
from cumulus.views.vectors import NotColumnarError


@dataclass(frozen=True, slots=True, repr=False)
class Partial:
    """What a share of a view's groups gives, folded over some of its grouping columns.

    `Partial + Partial` puts two shares together, in any order; `finish` makes the rows. A share may be a selection of
    groups (`where`), or what another warehouse holds of the same tables. Adding what two shares both have counts it
    twice.

    Parameters
    ----------
    plan
        What is folded; only partials of equal plans are added.
    groups
        Group → the numbers that are added, in the order of `plan.added`; a sum of DOUBLE as the pair of a sum and its
        compensation, with its size.
    ends
        For each of `plan.ends`, group → the least or greatest value.
    pairs
        Map → group → value → how many rows have it: what is counted once.
    functions
        The user's functions that the view calls.
    map
        The map whose entries were read as groups.
    entries_read
        How many entries of maps were read.
    at
        The number of the transaction after which they were read; None for a sum of parts whose numbers differ.
    choice
        Which map answered, and why no other.
    consistency
        Whether a later correction may change it.
    """

    plan: FoldPlan
    groups: Mapping[Key, list[Any]]
    ends: tuple[Mapping[Key, Any], ...]
    pairs: Mapping[CountedValues, Mapping[Key, Mapping[Key, int]]]
    functions: Functions | None
    map: str
    entries_read: int
    at: int | None
    choice: Choice
    consistency: Consistency = Consistency.COMMITTED

    @property
    def by(self) -> tuple[str, ...]:
        """The grouping columns that are left."""
        return self.plan.shown

    @property
    def kinds(self) -> dict[str, frozenset[MeasureKind]]:
        """How each measure is folded."""
        return dict(self.plan.kinds)

    def __repr__(self) -> str:
        groups = f"{len(self.groups)} group{'' if len(self.groups) == 1 else 's'}"
        return f"<parts of {_said(self.plan)}: {groups} of {self.entries_read} entries read>"

    def __add__(self, other: Partial) -> Partial:
        """Return the parts of both shares.

        Raises
        ------
        UsageError
            If they are not of one view, folded in one way.
        """
        if not isinstance(other, Partial):
            return NotImplemented
        if self.plan != other.plan:
            this, that = _said(self.plan), _said(other.plan)
            if this == that:
                this, that = f"{this} from {self.map}", f"{that} from {other.map}"
            raise UsageError(
                f"parts of {this} and of {that} do not add up",
                hint="Add parts of one map, folded by the same grouping columns, with the same columns.",
            )
        whole = self._plus_columns(other)
        if whole is not None:
            return whole
        groups = {group: list(numbers) for group, numbers in self.groups.items()}
        adder = Adder(self.plan)
        if self.plan.fixed and not groups.keys().isdisjoint(other.groups):
            names = ", ".join(name for name, kinds in self.plan.kinds if MeasureKind.FIXED in kinds)
            raise UsageError(
                f"two shares of {_said(self.plan)} have the same groups, and {names} does not add up",
                hint="Leave it out: columns=[…]; or add shares with different groups.",
            )
        with decimal.localcontext(EXACT):
            for group, numbers in other.groups.items():
                adder.add(groups, group, numbers)
        ends = []
        for end, mine, theirs in zip(self.plan.ends, self.ends, other.ends, strict=True):
            best = dict(mine)
            for group, value in theirs.items():
                keep_end(best, group, value, end.end)
            ends.append(best)
        pairs: dict[CountedValues, dict[Key, dict[Key, int]]] = {
            counted: {group: dict(values) for group, values in held.items()} for counted, held in self.pairs.items()
        }
        for counted, held in other.pairs.items():
            for group, values in held.items():
                mine_here = pairs[counted].setdefault(group, {})
                for value, count in values.items():
                    mine_here[value] = mine_here.get(value, 0) + count
        return self._whole(other, groups, tuple(ends), pairs)

    def _plus_columns(self, other: Partial) -> Partial | None:
        """Return the parts of both shares if they are columns of numbers."""
        mine, theirs = self.groups, other.groups
        if not (isinstance(mine, GroupColumns) and isinstance(theirs, GroupColumns)) or self.ends or self.pairs:
            return None
        groups = mine.plus(theirs)
        return None if groups is None else self._whole(other, groups, (), {})

    def _whole(self, other: Partial, groups: Any, ends: tuple[Any, ...], pairs: Any) -> Partial:
        at = self.at if self.at == other.at else None
        entries_read = self.entries_read + other.entries_read
        told = self.consistency if self.consistency == other.consistency else Consistency.TENTATIVE
        return replace(self, groups=groups, ends=ends, pairs=pairs, entries_read=entries_read, at=at, consistency=told)

    def finish(self) -> pa.Table:
        """Return the rows: the columns of `by`, then the measures, by the expressions of the view.

        They stand in no particular order. Without grouping columns it is one row of all groups. If there are none, it
        is what a level of the cube without grouping columns says of no rows, and none where the program has no such
        level: 0 as a count, or NULL as a sum, is not in the expressions of a view that groups.

        Raises
        ------
        EvaluationError
            If a number is beyond its type, or an expression cannot be computed.
        """
        finisher = finisher_of(self.plan, self.functions)
        if isinstance(self.groups, GroupColumns) and not self.pairs:
            try:
                return Columnar(finisher, _Columns(self)).table()
            except NotColumnarError:
                pass
        with decimal.localcontext(EXACT):
            items: dict[str, list[tuple[Key, Values]]] = {name: [] for name in self.plan.maps}
            distinct = (number.distinct for number in self.plan.numbers)
            weighers = {each: weigher(each) for each in distinct if each is not None}
            for group, numbers in self._existing():
                for name, values in self._values(group, numbers, weighers).items():
                    items[name].append((group, tuple(values)))
            for name, ends in zip(end_maps(self.plan), self.ends, strict=True):
                items[name] = [((*group, value), (1,)) for group, value in ends.items()]
        if self.plan.keys and not items[self.plan.maps[0]]:
            return finisher.to_arrow([] if self.plan.nothing is None else [self.plan.nothing])
        return finisher.to_arrow(finisher.rows(items.__getitem__))

    def _existing(self) -> Iterator[tuple[Key, list[Any]]]:
        """Iterate over the groups that there are: negative ones may be healed by other shares, and are not shown."""
        count = self.plan.count_place
        for group, numbers in self.groups.items():
            if count is None or numbers[count] > 0:
                yield group, numbers

    def _values(
        self, group: Key, numbers: list[Any], weighers: Mapping[DistinctColumn, Callable[[Key], Any]]
    ) -> dict[str, list[Any]]:
        """Return the values of a group as the view's maps would have them."""
        found: dict[str, list[Any]] = {name: [] for name in self.plan.view.maps}
        added = iter(numbers)
        for number in self.plan.numbers:
            if number.distinct is None:
                value = next(added)
            else:
                values = self.pairs[number.distinct.counted].get(group, {})
                value = _distinct_total(number, values, weighers[number.distinct])
            found[self.plan.maps[number.place]].append(self._checked(group, number, value))
        found[self.plan.maps[0]] += added  # what is fixed comes last
        return found

    def _checked(self, group: Key, number: FoldedNumber, value: Any) -> Any:
        """Return a number as its column has it."""
        kind = number.type
        if kind is None or kind.kind is Kind.BIGDECIMAL:
            return value
        try:
            return read_cell(value) if kind.is_float else coerce(value, kind)
        except (ValueError, EvaluationError) as problem:
            if number.is_inner and isinstance(value, int):
                return value
            names = ", ".join(number.shown) or "its count of rows"
            what = problem.message if isinstance(problem, EvaluationError) else f"{problem}"
            raise EvaluationError(
                f"view {self.plan.source} folded by ({', '.join(self.by)}), {names} at {group!r}: {what}",
                view=self.plan.source,
                hint="Fold by more grouping columns, or leave the column out: columns=[…].",
            ) from None


class _Columns(ColumnsAlone):
    """The maps of a folded view, of columns: a `cumulus.views.entries.MapSource`."""

    def __init__(self, partial: Partial) -> None:
        names = [partial.plan.maps[0], *end_maps(partial.plan)]
        self._maps = dict(zip(names, (partial.groups, *partial.ends), strict=True))

    def columns(self, map: str) -> MapColumns | None:
        """Return the entries of a map as columns."""
        found = self._maps[map]
        return found if isinstance(found, (GroupColumns, EndColumns)) else None

    def stored_count(self, map: str) -> int:
        """Return how many entries a map has."""
        return len(self._maps[map])


class Adder:
    """Adds the numbers of a share of a group to those of another."""

    def __init__(self, plan: FoldPlan) -> None:
        floats = [number.type is not None and number.type.is_float for number in plan.added]
        self._floats = tuple(place for place, is_float in enumerate(floats) if is_float)
        self._exact = tuple(place for place, is_float in enumerate(floats) if not is_float)

    def add(self, groups: dict[Key, list[Any]], group: Key, numbers: list[Any]) -> None:
        """Add to a group's numbers, or begin with a copy of these."""
        held = groups.get(group)
        if held is None:
            groups[group] = list(numbers)
            return
        for place in self._exact:
            held[place] += numbers[place]
        for place in self._floats:
            held[place] = add_cells(held[place], numbers[place], 1)


def keep_end(best: dict[Key, Any], group: Key, value: Any, end: str) -> None:
    """Keep the least or greatest value of a group."""
    if group not in best or (
        order_key(value) < order_key(best[group]) if end == "MIN" else order_key(value) > order_key(best[group])
    ):
        best[group] = value


def weigher(column: DistinctColumn) -> Callable[[Key], Any]:
    """Return the function from a distinct value to what it adds."""
    if column.weight is None:
        return lambda value: 1
    names = {key.name: PythonCode(f"v{place}", key.type, not key.not_null) for place, key in enumerate(column.keys)}
    pool = NamePool()

    def no_read(term: Term) -> PythonCode:
        raise AssertionError(f"{term} is no scalar")

    text = ScalarCoder(pool, names.__getitem__, no_read).code(column.weight).text
    exec(
        f"def weigh(value):\n    {', '.join(code.text for code in names.values())}, = value\n    return {text}",
        pool.names,
    )
    made: Callable[[Key], Any] = pool.names["weigh"]
    return made


def _distinct_total(number: FoldedNumber, values: Mapping[Key, int], weigh: Callable[[Key], Any]) -> Any:
    """Return what the values that some row has add up to."""
    there = [weigh(value) for value, count in values.items() if count > 0]
    if number.type is None or not number.type.is_float:
        return sum(map(ring, there))
    cell = ZERO_CELL
    for each in there:
        cell = add_to_cell(cell, finite(each))
    return cell


def _said(plan: FoldPlan) -> str:
    return f"{plan.source} by ({', '.join(plan.shown)})"
