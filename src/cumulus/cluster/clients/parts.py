"""What a node answers to clients that fold: the parts of the groups that it owns, as new as it has them.

A node folds its own entries, and the client adds: what travels is as large as what is asked for. Parts are sent as
entries of maps, first of the groups, whose values are the numbers that are added, then one of each end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.cluster.clients.reads import MOST_BYTES, PART_BYTES
from cumulus.cluster.messages import PartsRead, ReadParts, RequestRefused
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.engine.frame_columns import FrameColumns
from cumulus.engine.frames.entries import entries_of
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.frames.tagged_texts import from_text, to_text
from cumulus.engine.snapshot import column_names, entries_of_table, table_of_entries
from cumulus.errors import CumulusError, RemoteProtocolError, StoreError, UsageError
from cumulus.m3.program import MapDef
from cumulus.scalars.python_code import canonical
from cumulus.views.consistency import Consistency
from cumulus.views.entries import Key, Values
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Between, Bound, Choice, Partial
from cumulus.views.folding.access import Stored, WantedKeys
from cumulus.views.folding.partial import keep_end
from cumulus.views.folding.plan import FoldPlan, end_maps, plan_fold
from cumulus.views.folding.reading import fold_by_plan

_COMMITTED = 'Read it committed: read="committed".'


# --- what is asked --------------------------------------------------------------------------------------------------


def bounds_sent(bounds: Iterable[Bound]) -> bytes:
    """Return bounds with values of their columns' types as they are sent; `bounds_received` is the inverse."""
    told = [
        [bound.column, "between", to_text(bound.within.low), to_text(bound.within.high)]
        if isinstance(bound.within, Between)
        else [bound.column, "in", *map(to_text, bound.within)]
        for bound in bounds
    ]
    return json.dumps(told).encode()


def bounds_received(data: bytes) -> list[Bound]:
    """Return what `bounds_sent` has written.

    Raises
    ------
    RemoteProtocolError
        If it is none.
    """
    try:
        found = []
        for column, how, *texts in json.loads(data):
            values = tuple(map(from_text, texts))
            found.append(Bound(str(column), Between(*values) if how == "between" else values))
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as problem:
        raise RemoteProtocolError(f"what has come are no bounds: {type(problem).__name__}: {problem}") from None
    return found


def nodes_to_ask(layout: ClusterLayout, plan: FoldPlan, selection: WantedKeys) -> list[int]:
    """Return the nodes that may own an entry that is wanted.

    Raises
    ------
    UsageError
        If the nodes cannot fold it each for itself.
    """
    names = list(dict.fromkeys([plan.maps[0], *(plan.maps[number.place] for number in plan.added)]))
    owners = {layout.regions[name] for name in names}
    if layout.nodes > 1 and (len(owners) > 1 or plan.fixed):
        why = "its columns are not of one kind" if plan.fixed else f"{' and '.join(names)} lie on different nodes"
        raise UsageError(f"the nodes cannot fold {plan.source} each for itself: {why}", hint=_COMMITTED)
    every = tuple(range(len(plan.keys)))
    found: set[int] = set()
    for name, groups in ((plan.maps[0], every), *((end.map, end.groups) for end in plan.ends)):
        found |= _owners(layout, name, groups, selection)
    return sorted(found) or [0]


def _owners(layout: ClusterLayout, name: str, groups: Sequence[int], selection: WantedKeys) -> set[int]:
    """Return the nodes that own entries of a map whose keys at `groups` are those of the view."""
    known = {group: selection.values[place] for place, group in enumerate(groups) if place in selection.values}
    return layout.regions[name].nodes_with(known)


# --- what is answered -----------------------------------------------------------------------------------------------


def forms(plan: FoldPlan) -> list[MapDef]:
    """Return the maps as whose entries the parts of a plan are sent: groups, then each end."""
    keys = tuple(replace(plan.keys[place], name=f"key {place}") for place in plan.by)
    numbers = (Column(f"number {at}", number.type) for at, number in enumerate(plan.added))
    ends = (plan.program.map(name) for name in end_maps(plan))
    return [MapDef("groups", keys, (Column("there", BIGINT), *numbers)), *ends]


def part_answers(
    part: SpreadMaps | None, asked: ReadParts, most: int | None = None
) -> Iterator[PartsRead | RequestRefused]:
    """Yield what a node answers, of so many bytes at most; None: of what a client may take."""
    try:
        tables, entries_read = _parts(part, asked)
    except CumulusError as problem:
        yield RequestRefused(asked.number, problem.message, problem.hint or _COMMITTED)
        return
    except (pa.ArrowException, ArithmeticError) as problem:  # a sum of parts is beyond what Arrow has
        yield RequestRefused(asked.number, f"{asked.view}: {problem}", _COMMITTED)
        return
    size = sum(table.nbytes for table in tables)
    if size > (MOST_BYTES if most is None else most):
        yield RequestRefused(
            asked.number,
            f"{asked.view} has parts of {size / 1e6:.1f} MB on a node, more than a tentative read may take",
            'Fold it by fewer columns, bound more of them, or read="committed".',
        )
        return
    sent = [
        (form, table.slice(begin, rows))
        for form, table in enumerate(tables)
        for rows in [max(table.num_rows * PART_BYTES // max(table.nbytes, 1), 1)]
        for begin in range(0, max(table.num_rows, 1), rows)
    ]
    for left, (form, table) in zip(reversed(range(len(sent))), sent, strict=True):
        yield PartsRead(asked.number, left, form, to_ipc(table), entries_read)


def _parts(part: SpreadMaps | None, asked: ReadParts) -> tuple[list[pa.Table], int]:
    views = {} if part is None else {view.name: view for view in part.program.views}
    if part is None or asked.view not in views:
        raise UsageError(f"there is no spread view {asked.view}", hint="Connect again.")
    for name in views[asked.view].reads:
        part.failed.check(name)
    finisher = Finisher(part.program, views[asked.view])
    plan = plan_fold(finisher, asked.by, asked.columns)
    if not isinstance(plan, FoldPlan):
        raise plan.error()
    if plan.fixed or any(number.distinct is not None for number in plan.numbers):
        raise UsageError(f"the nodes cannot fold {asked.view} each for itself", hint=_COMMITTED)
    found = fold_by_plan(plan, finisher, _OwnedMaps(part), bounds_received(asked.where), Choice(asked.view, ()), None)
    groups, *ends = forms(plan)
    tables = [table_of_entries(groups, ((group, (1, *numbers)) for group, numbers in found.groups.items()))]
    for form, held in zip(ends, found.ends, strict=True):
        tables.append(table_of_entries(form, (((*group, value), (1,)) for group, value in held.items())))
    return tables, found.entries_read


class _OwnedMaps:
    """What a node owns; a `cumulus.views.folding.StoredMaps`."""

    def __init__(self, part: SpreadMaps) -> None:
        self._part, self._engine = part, part.maps.engine
        self._owned: dict[str, MapFrame] = {}

    def _frame(self, map: str) -> MapFrame:
        if map not in self._owned:
            self._owned[map] = self._part.owned(map)
        return self._owned[map]

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored."""
        return entries_of(self._frame(map))

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        return ((key, values) for key, values in self._engine.items(map) if self._part.owns(map, key))

    def stored_count(self, map: str) -> int:
        """Return how many entries there are; as long as they are not read, with those that others own."""
        return self._owned[map].rows if map in self._owned else self._engine.stored_count(map)

    def stored_at(self, map: str, key: Key) -> Stored | None:
        """Return what is stored under a key."""
        return self._engine.stored_at(map, key) if self._part.owns(map, key) else None

    def indexes(self, map: str) -> Sequence[tuple[int, ...]]:
        """Return nothing: slices have what others own, too."""
        return ()

    def stored_slice(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Stored]]:
        """Iterate over what is stored with some values."""
        raise AssertionError(f"{map} has no index by {positions}")

    def fold_columns(self, map: str) -> FrameColumns | None:
        """Return everything that is stored as columns; None where a sum has no words."""
        definition, frame = self._part.program.map(map), self._frame(map)
        return FrameColumns(definition, frame) if frame.layout is layout_of(definition) else None

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> None:
        """Return None: what is kept in order has what others own, too."""


# --- what comes of it -----------------------------------------------------------------------------------------------


def partial_of(plan: FoldPlan, choice: Choice, answers: Sequence[PartsRead]) -> Partial:
    """Return the parts that a node has answered.

    Raises
    ------
    RemoteProtocolError
        If they are not those of the plan.
    """
    groups: dict[Key, list[Any]] = {}
    ends: list[dict[Key, Any]] = [{} for _ in plan.ends]
    expected = forms(plan)
    for answer in answers:
        if not 0 <= answer.form < len(expected):
            raise RemoteProtocolError(f"there are no parts {answer.form} of {plan.source}")
        form = expected[answer.form]
        for key, values in _received(form, answer.rows):
            key = tuple(map(canonical, key))
            if answer.form:
                keep_end(ends[answer.form - 1], key[:-1], key[-1], plan.ends[answer.form - 1].end)
            else:
                groups[key] = list(values[1:])
    entries_read = answers[0].entries_read if answers else 0
    return Partial(plan, groups, tuple(ends), {}, None, plan.maps[0], entries_read, None, choice, Consistency.TENTATIVE)


def _received(form: MapDef, data: bytes) -> Iterator[tuple[Key, Stored]]:
    try:
        table = from_ipc(data)
        if table.column_names != column_names(form):
            raise StoreError(f"the columns are {table.column_names}")
        return entries_of_table(form, table)
    except (pa.ArrowException, OSError, StoreError) as problem:
        raise RemoteProtocolError(f"what has come are no parts: {problem}") from None
