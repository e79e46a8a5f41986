"""What a node answers to clients that read: entries that it owns, as new as it has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import from_strange_ipc, rows_equal, table_of, to_ipc
from cumulus.catalog.schema import Column, Relation
from cumulus.cluster.messages import EntriesRead, ReadEntries, RequestRefused
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.unbounded import fitted, unbounded_frame
from cumulus.engine.rows_in import arrow_rows
from cumulus.errors import DataError, EvaluationError, RemoteProtocolError
from cumulus.m3.program import MapDef

PART_BYTES = 4 << 20
"""What is sent at once."""
MOST_BYTES = 64 << 20
"""A client that asks for more at once is refused: it would have to take all of it before anything else."""


def key_sent(definition: MapDef, places: Sequence[int], values: Sequence[Any]) -> bytes:
    """Return values of some keys of a map as they are sent; `key_received` is its inverse."""
    return to_ipc(table_of(_columns(definition, places), [tuple(values)])) if places else b""


def key_received(definition: MapDef, places: Sequence[int], data: bytes) -> tuple[Any, ...]:
    """Return what `key_sent` has written.

    Raises
    ------
    RemoteProtocolError
        If it is no key.
    """
    if not places:
        return ()
    try:
        if any(not 0 <= place < len(definition.keys) for place in places):
            raise ValueError(f"there is no key {max(places)}")
        (row,) = arrow_rows(Relation("key", _columns(definition, places)), from_strange_ipc(data, MOST_BYTES))
    except (pa.ArrowException, OSError, ValueError, DataError) as problem:
        raise RemoteProtocolError(f"{definition.name}: what has come is no key: {problem}") from None
    return row


def _columns(definition: MapDef, places: Sequence[int]) -> tuple[Column, ...]:
    return tuple(Column(f"k{place}", definition.keys[place].type) for place in places)


def answers(
    part: SpreadMaps | None, asked: ReadEntries, most: int | None = None
) -> Iterator[EntriesRead | RequestRefused]:
    """Yield what a node answers, of so many bytes at most; None: of what a client may take."""
    most = MOST_BYTES if most is None else most
    if part is None or not 0 <= asked.map < len(part.names):
        yield RequestRefused(asked.number, f"there is no spread map {asked.map}", "Connect again.")
        return
    name = part.names[asked.map]
    definition = part.maps.definition(name)
    try:
        values = key_received(definition, asked.places, asked.key)
    except RemoteProtocolError as problem:
        yield RequestRefused(asked.number, problem.message, "Connect again.")
        return
    try:
        frame = _entries(part, definition, asked.places, values)
    except EvaluationError as problem:
        yield RequestRefused(asked.number, problem.message, problem.hint)
        return
    size = 8 * frame.rows * frame.layout.width
    if size <= most and not frame.layout.is_plain:
        size = len(frame.to_bytes())  # with the texts
    if size > most:
        yield RequestRefused(
            asked.number,
            f"{name} has {frame.rows:,} entries of {size / 1e6:.1f} MB on a node, more than a tentative read may take",
            'Read a slice or a key of the view, or read="committed".',
        )
        return
    versions = part.seen_versions()
    rows = max(frame.rows * PART_BYTES // max(size, 1), 1)
    begins = range(0, frame.rows, rows) if frame.rows else range(1)
    for left, begin in zip(reversed(range(len(begins))), begins, strict=True):
        some = frame.take(np.arange(begin, min(begin + rows, frame.rows)))
        yield EntriesRead(asked.number, left, some.to_bytes(), versions)


def _entries(part: SpreadMaps, definition: MapDef, places: Sequence[int], values: tuple[Any, ...]) -> MapFrame:
    """Return the entries that a node owns and that have some values at some keys; one is found without the others."""
    name = definition.name
    part.failed.check(name)
    if definition.keys and sorted(places) == list(range(len(definition.keys))):
        key = tuple(value for _, value in sorted(zip(places, values, strict=True)))
        found = part.maps.engine.read(name, key)
        is_float = [column.type is not None and column.type.is_float for column in definition.values]
        stored = [
            tuple((each, 0.0, abs(each)) if floats else each for each, floats in zip(found, is_float, strict=True))
            for found in ([] if found is None else [found])
        ]
        [frame] = fitted(definition, [unbounded_frame(definition, [(key, each) for each in stored])])
        return frame
    frame = part.owned(name)
    for place, value in zip(places, values, strict=True):
        column = frame.key(place)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        frame = frame.filter(rows_equal(column, value).to_numpy(zero_copy_only=False))
    return frame
