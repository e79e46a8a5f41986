"""The order of rows: SQL's, with NULL last both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.algebra.order import order_key
from cumulus.catalog.arrow import interval_of


class OrderColumn(NamedTuple):
    """A column that rows are ordered by."""

    values: pa.ChunkedArray | pa.Array
    descending: bool = False


def sorted_places(columns: Sequence[OrderColumn]) -> pa.Array:
    """Return the numbers of the rows in their order; equal rows stay as they stand.

    Examples
    --------
    >>> sorted_places([OrderColumn(pa.array([2.0, None, float("nan"), 1.0]), descending=True)]).to_pylist()
    [2, 0, 3, 1]
    """
    keys: list[tuple[Any, str]] = []
    for values, descending in columns:
        if pa.types.is_interval(values.type):
            spans = (None if span is None else order_key(interval_of(span)) for span in values.to_pylist())
            values = pa.array(list(spans), pa.decimal128(38, 0))
        way = "descending" if descending else "ascending"
        if pa.types.is_floating(values.type):
            keys.append((pc.is_nan(values), way))
        keys.append((values, way))
    table = pa.table([values for values, _ in keys], names=[str(place) for place in range(len(keys))])
    sort_keys = [(str(place), way) for place, (_, way) in enumerate(keys)]
    return pc.sort_indices(table, sort_keys=sort_keys)
