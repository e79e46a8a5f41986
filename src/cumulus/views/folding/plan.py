"""What folding a view takes: which numbers of which maps are put together, and how rows are made of them.

The rows of a folded view are finished by the view's own expressions, over a small program of its own: its first map has
the grouping columns that are left, and each end that the view reads is a map of the ends of the groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cumulus.algebra.float_sums import ZERO_CELL
from cumulus.algebra.terms import Apply, MapExtremum, Range, Scalar, Term, Var, children, rebuild
from cumulus.catalog.events import Row
from cumulus.catalog.names import folded, known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3.program import MapDef, Program, ViewDef
from cumulus.m3.view_reads import EntryRead, read_of
from cumulus.scalars.user import Functions
from cumulus.views.finishing import Finisher
from cumulus.views.folding.measures import DistinctColumn, MeasureKind, distinct_column, has_grouping_sets, sums_rows


@dataclass(frozen=True, slots=True)
class FoldedEnd:
    """An end that is put together.

    Parameters
    ----------
    map, end, axis, column
        What is read, as in `cumulus.m3.view_reads.EntryRead`.
    groups
        For each key of the view's maps, its place among the keys of this map.
    """

    map: str
    end: str
    axis: int
    column: int | None
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoldedNumber:
    """A value column that is put together: of which of the view's maps, which column, and which view columns show it.

    `distinct` is None for one that is added. `is_inner` says that no column shows it as it is: expressions compute with
    it, so it may be beyond the type of its column, as in a map of the interpreter.
    """

    place: int
    column: int
    type: Any
    shown: tuple[str, ...]
    distinct: DistinctColumn | None
    is_inner: bool = False

    @property
    def zero(self) -> Any:
        """What stands where there is no entry."""
        return ZERO_CELL if self.type is not None and self.type.is_float else 0


@dataclass(frozen=True)
class FoldPlan:
    """How some columns of a view are folded over some of its grouping columns.

    Plans that are equal make partials that can be added.

    Parameters
    ----------
    source
        The view's name.
    maps
        The view's maps, whose entries are its groups.
    count
        The value column of the first of them by which groups exist; None for a view without GROUP BY.
    keys
        The keys of its maps.
    by
        The places of those that are left.
    numbers, ends
        What is put together.
    shown
        The grouping columns that are left, as the view calls them.
    program, view
        What finishes it.
    kinds
        For each measure of `view`, in order, how it is folded.
    fixed
        The columns of the source's view that are shown as they are, since all grouping columns are left: groups that
        have them are not put together.
    nothing
        The row of all groups where there are none, if the program says what it is.
    """

    source: str
    maps: tuple[str, ...]
    count: int | None
    keys: tuple[Column, ...]
    by: tuple[int, ...]
    numbers: tuple[FoldedNumber, ...]
    ends: tuple[FoldedEnd, ...]
    shown: tuple[str, ...]
    program: Program
    view: ViewDef
    kinds: tuple[tuple[str, frozenset[MeasureKind]], ...]
    fixed: tuple[int, ...] = ()
    nothing: Row | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _FINISHER}

    @cached_property
    def added(self) -> tuple[FoldedNumber, ...]:
        """The numbers that are added."""
        return tuple(number for number in self.numbers if number.distinct is None)

    @cached_property
    def only_columns(self) -> tuple[int, ...] | None:
        """The value columns of `added` if they are all that is put together, and groups are keys as they stand."""
        types = [self.keys[place].type for place in self.by]
        floats = any(each is None or each.is_float for each in types)
        distinct = len(self.added) < len(self.numbers)
        if floats or distinct or self.ends or self.fixed or any(number.place for number in self.added):
            return None
        return tuple(number.column for number in self.added)

    @cached_property
    def count_place(self) -> int | None:
        """The place among `added` of the count by which groups exist."""
        if self.count is None:
            return None
        return [(number.place, number.column) for number in self.added].index((0, self.count))


_FINISHER = "finisher"
"""What a plan has kept beside its fields: no part of its value, and never pickled."""


class _NotFoldedError(Exception):
    """Why a column cannot be folded."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a view, or one of its columns, cannot be folded over some grouping columns.

    Parameters
    ----------
    column
        "" if it is all of them.
    """

    view: str
    column: str
    why: str
    hint: str

    def error(self) -> UsageError:
        """Return what is raised where no other view can answer."""
        what = f"column {self.column} of view {self.view}" if self.column else f"view {self.view}"
        return UsageError(f"{what} cannot be folded: {self.why}", hint=self.hint)


def plan_fold(finisher: Finisher, by: Sequence[str], columns: Sequence[str] | None) -> FoldPlan | Refusal:
    """Return how columns of a view are folded, or why not.

    Parameters
    ----------
    by
        The grouping columns that are left.
    columns
        The other columns that are wanted; None is all of them but those that tell of grouping columns that are not
        left.

    Raises
    ------
    UnknownNameError
        If the view has no such column.
    UsageError
        If the view is none that groups, or a name stands twice.
    """
    _check_view(finisher)
    return _Planner(finisher, by).plan(columns)


def measure_kinds(finisher: Finisher) -> dict[str, frozenset[MeasureKind]]:
    """Return how each column of a view that is not for grouping is put together.

    Raises
    ------
    UsageError
        If the view is none that groups.
    """
    found = {}
    grouping = finisher.grouping
    for column in finisher.view.columns:
        if column.name not in grouping:
            plan = plan_fold(finisher, (), [column.name])
            fixed = (column.name, frozenset({MeasureKind.FIXED}))
            name, kinds = fixed if isinstance(plan, Refusal) else plan.kinds[0]
            found[name] = kinds
    return found


def _is_shown_by(scalar: Any, name: str) -> bool:
    """Whether a value with this name is what an expression gives, at least in one of its cases."""
    match scalar:
        case Var(own):
            return own == name
        case Apply("case" | "if" | "coalesce", args):
            return any(_is_shown_by(each, name) for each in args)
        case _:
            return False


def _check_view(finisher: Finisher) -> None:
    view = finisher.view
    hint = "Fold a view that only groups: leave this out, and do it with the rows of the folded view."
    for has, what in (
        (view.where is not None, "HAVING leaves groups out, whose rows belong to larger groups"),
        (
            view.limit is not None or view.offset,
            "LIMIT or OFFSET leaves groups out, whose rows belong to larger groups",
        ),
        (view.repeat is not None, "it is no GROUP BY: its rows stand as often as they come"),
    ):
        if has:
            raise UsageError(f"view {view.name} cannot be folded: {what}", hint=hint)


def _is_of_sets(finisher: Finisher) -> Refusal | None:
    """Return why groups of the view may be totals of others; None if they are not."""
    if any(has_grouping_sets(each) or (each.initial and each.keys) for each in finisher.maps):
        return Refusal(
            finisher.view.name,
            "",
            "its groups are of several grouping sets, or it puts tables with constants of their own together, which "
            "looks the same",
            "Group by the finest set alone; folding it gives all the others.",
        )
    return None


def _is_of_groups(finisher: Finisher) -> Refusal | None:
    """Return why nothing of the view's groups may be added; None if it may."""
    view, first = finisher.view, finisher.maps[0]
    if not all(each.definitions for each in finisher.maps):
        return Refusal(
            view.name,
            "",
            f"its map {first.name} has no definition, so nobody knows what may be added",
            "Write the definition of the map, or make the view in SQL.",
        )
    count = _count_of(first)
    if first.keys and (count is None or not sums_rows(first.definitions[count])):
        return Refusal(
            view.name,
            "",
            "its FROM is made of groups of rows, and the program does not tell these from what it counts once",
            "Make a view that groups by fewer columns, or fold the rows in SQL: query().",
        )
    return None


def _count_of(map: MapDef) -> int | None:
    """Return the value column that says whether an entry exists, None if several do."""
    return map.column_index(map.count) if map.count else 0 if len(map.values) == 1 else None


class _Planner:
    """Makes a plan, column by column."""

    def __init__(self, finisher: Finisher, by: Sequence[str]) -> None:
        self._finisher, self._view = finisher, finisher.view
        self._first = finisher.maps[0]
        self._grouping = finisher.grouping
        if isinstance(by, str):
            raise UsageError(f"by={by!r} is a text", hint=f'Give a list of grouping columns, such as by=["{by}"].')
        self._by_columns = [self._grouping_column(name) for name in by]
        if len(set(self._by_columns)) < len(self._by_columns):
            raise UsageError(f"by={list(by)!r} has a grouping column twice", hint="Name each once.")
        # Columns that a join makes equal are one key.
        self._by = tuple(dict.fromkeys(self._grouping[name] for name in self._by_columns))
        self._keys = tuple(self._first.keys[place] for place in self._by)
        self._key_places = {key.name: place for place, key in enumerate(self._first.keys)}
        self._numbers: dict[tuple[int, int], DistinctColumn | None] = {}
        self._shown: dict[tuple[int, int], list[str]] = {}
        self._plain: set[tuple[int, int]] = set()
        """Numbers that a column shows as they are."""
        self._ends: dict[FoldedEnd, Column] = {}
        self._is_exact = len(self._by) == len(self._first.keys)
        self._fixed: list[int] = []

    def _grouping_column(self, name: str) -> str:
        try:
            return known_name(name, self._grouping, f"grouping column of {self._view.name}")
        except UnknownNameError as problem:
            raise UnknownNameError(
                problem.message, hint=f"Its grouping columns: {', '.join(self._grouping) or 'none'}."
            ) from None

    def plan(self, columns: Sequence[str] | None) -> FoldPlan | Refusal:
        """Return the plan for some columns, or why there is none."""
        if isinstance(columns, str):
            raise UsageError(f"columns={columns!r} is a text", hint=f'Give a list, such as columns=["{columns}"].')
        places = self._all_columns() if columns is None else self._named_columns(columns)
        select = [self._view.select[self._place_of(name)] for name in self._by_columns]
        shown = [self._view.columns[self._place_of(name)] for name in self._by_columns]
        kinds = []
        groups = _is_of_sets(self._finisher) or _is_of_groups(self._finisher)
        if groups is not None and not self._is_exact:
            return groups
        for place in places:
            column = self._view.columns[place]
            try:
                if groups is not None:
                    raise _NotFoldedError(groups.why)
                scalar, found = self._folded(self._view.select[place], column.name)
            except _NotFoldedError as problem:
                if not self._is_exact:
                    return self._refusal(column.name, str(problem), columns is None)
                scalar, found = Var(_fixed_name(len(self._fixed))), frozenset({MeasureKind.FIXED})
                self._fixed.append(place)
            select.append(scalar)
            shown.append(column)
            kinds.append((column.name, found))
        count = _count_of(self._first) if self._first.keys and groups is None else None
        if count is not None:
            self._numbers.setdefault((0, count), None)
        view = replace(self._view, columns=tuple(shown), maps=self._maps_used(), select=tuple(select), order_by=())
        return FoldPlan(
            self._view.name,
            tuple(each.name for each in self._finisher.maps),
            count,
            self._first.keys,
            self._by,
            tuple(self._number(place, column) for place, column in sorted(self._numbers)),
            tuple(self._ends),
            tuple(self._by_columns),
            Program(
                maps=(*self._folded_maps(), *(self._end_map(n, axis) for n, axis in enumerate(self._ends.values()))),
                functions=self._finisher.program.functions,
            ),
            view,
            tuple(kinds),
            tuple(self._fixed),
        )

    # --- which columns ----------------------------------------------------------------------------------------------

    def _place_of(self, name: str) -> int:
        return next(place for place, column in enumerate(self._view.columns) if column.name == name)

    def _all_columns(self) -> list[int]:
        """Return the columns that are not for grouping, but for what is made of keys alone that are not left."""
        left = {key.name for key in self._keys}
        found = []
        for place, (scalar, column) in enumerate(zip(self._view.select, self._view.columns, strict=True)):
            names = set(_names(scalar))
            only_keys = bool(names) and names <= self._key_places.keys() and not _has_read(self._finisher, scalar)
            if column.name not in self._grouping and not (only_keys and not names <= left):
                found.append(place)
        return found

    def _named_columns(self, columns: Sequence[str]) -> list[int]:
        known = [column.name for column in self._view.columns]
        found = [known_name(name, known, f"column of {self._view.name}") for name in columns]
        for name in found:
            if name in self._grouping:
                raise UsageError(
                    f"{name} is a grouping column of view {self._view.name}", hint="Name it in by, not in columns."
                )
        if len(set(found)) < len(found):
            raise UsageError(f"columns={list(columns)!r} has a column twice", hint="Name each once.")
        return [known.index(name) for name in found]

    def _refusal(self, name: str, why: str, all_were_wanted: bool) -> Refusal:
        ways = "Make a view of it that groups by fewer columns"
        ways += ", and fold the others: columns=[…]." if all_were_wanted else "."
        return Refusal(self._view.name, name, why, ways)

    # --- one column -------------------------------------------------------------------------------------------------

    def _folded(self, scalar: Scalar, shown: str) -> tuple[Scalar, frozenset[MeasureKind]]:
        """Return an expression over what is put together, and how that is done."""
        kinds = set[MeasureKind]()

        def change(node: Any) -> Any:
            read = read_of(self._finisher.program, node)
            if read is None:
                return rebuild(node, change)
            kinds.add(MeasureKind.END)
            return self._folded_end(read)

        made = change(scalar)
        left = {key.name for key in self._keys}
        for name in _names(made):
            if name in self._finisher.values:
                number = self._finisher.values[name]
                kinds.add(self._use(number, shown))
                if _is_shown_by(made, name):
                    self._plain.add(number)
            elif name not in left:
                raise _NotFoldedError(f"it needs the grouping column {name}, which is not in by")
        return made, frozenset(kinds)

    def _use(self, number: tuple[int, int], shown: str) -> MeasureKind:
        place, column = number
        if number not in self._numbers:
            map = self._finisher.maps[place]
            distinct = None
            if not sums_rows(map.definitions[column]):
                distinct = distinct_column(self._finisher.program, map, column)
                if distinct is None:
                    raise _NotFoldedError("it is made of numbers of each group that do not add up")
            self._numbers[number] = distinct
        self._shown.setdefault(number, []).append(shown)
        return MeasureKind.ADDITIVE if self._numbers[number] is None else MeasureKind.DISTINCT

    def _folded_end(self, read: EntryRead) -> Term:
        places: dict[str, int] = {}
        for place, key in enumerate(read.keys):
            if isinstance(key, Var) and key.name in self._key_places:
                places.setdefault(key.name, place)
        if not read.end or len(places) < len(read.keys) - 1 or places.keys() != self._key_places.keys():
            raise _NotFoldedError("it reads numbers that are not of its group")
        groups = tuple(places[key.name] for key in self._first.keys)
        end = FoldedEnd(read.map.name, read.end, read.axis, read.column, groups)
        self._ends.setdefault(end, read.map.keys[read.axis])
        keys = (*(Var(key.name) for key in self._keys), None)
        return MapExtremum(read.end, _end_name(list(self._ends).index(end)), keys)

    # --- what finishes it -------------------------------------------------------------------------------------------

    def _number(self, place: int, column: int) -> FoldedNumber:
        number = place, column
        value = self._finisher.maps[place].values[column]
        shown = tuple(dict.fromkeys(self._shown.get(number, ())))
        is_inner = bool(shown) and number not in self._plain
        return FoldedNumber(place, column, value.type, shown, self._numbers[number], is_inner)

    def _maps_used(self) -> tuple[str, ...]:
        return tuple(
            each.name
            for place, each in enumerate(self._finisher.maps)
            if place == 0 or any(number[0] == place for number in self._numbers)
        )

    def _folded_maps(self) -> Iterable[MapDef]:
        for place, each in enumerate(self._finisher.maps):
            values = tuple(each.values[column] for at, column in sorted(self._numbers) if at == place)
            if place == 0:
                fixed = (self._view.columns[column] for column in self._fixed)
                values += tuple(replace(column, name=_fixed_name(n)) for n, column in enumerate(fixed))
            if place == 0 or values:
                counted = place == 0 and each.keys and (0, _count_of(each)) in self._numbers
                count = each.values[_count_of(each) or 0].name if counted else ""
                yield MapDef(each.name, self._keys, values, count)

    def _end_map(self, number: int, axis: Column) -> MapDef:
        name = "value"
        while any(folded(key.name) == name for key in self._keys):
            name += "_"
        return MapDef(_end_name(number), (*self._keys, replace(axis, name=name)), (Column("n", BIGINT),))


def finisher_of(plan: FoldPlan, functions: Functions | None) -> Finisher:
    """Return what makes the rows of a folded view; it is made once for a plan."""
    made: Finisher | None = plan.__dict__.get(_FINISHER)
    if made is None or made.functions is not functions:
        made = plan.__dict__[_FINISHER] = Finisher(plan.program, plan.view, functions)
    return made


def end_maps(plan: FoldPlan) -> list[str]:
    """Return the names of the maps of ends, in the order of the plan's ends."""
    return [_end_name(number) for number in range(len(plan.ends))]


def _fixed_name(number: int) -> str:
    return f"fixed {number}"


def _end_name(number: int) -> str:
    return f"end {number}"


def _names(node: Term | Range) -> set[str]:
    own = {node.name} if isinstance(node, Var) else set[str]()
    return own.union(*(_names(child) for child in children(node)))


def _has_read(finisher: Finisher, node: Term | Range) -> bool:
    return read_of(finisher.program, node) is not None or any(_has_read(finisher, child) for child in children(node))
