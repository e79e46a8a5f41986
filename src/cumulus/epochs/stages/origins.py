"""Where rows that have changed came from: the last place in the input with their key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.events import DELETE, OP_COLUMN, ORDER_COLUMN
from cumulus.epochs.intake.packing import Payload


def last_places(
    names: Sequence[str], payloads: Sequence[Payload], rows: pa.Table
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of the last input rows that have the values of changed rows, and which these are.

    Parameters
    ----------
    names
        The columns that are compared: a primary key, or all.
    payloads
        The input; its rows are numbered through.
    rows
        The changed rows.
    """
    given = sum(payload.rows.num_rows for payload in payloads)
    codes = np.zeros(given + rows.num_rows, np.int64)
    for name in names:
        parts = [payload.rows.column(name) for payload in payloads]
        try:
            parts.append(rows.column(name).cast(parts[0].type))
            column = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
            found = column.combine_chunks().dictionary_encode(null_encoding="encode")
        except pa.ArrowException:  # no two columns of types that Arrow compares
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        # Codes stay below the number of rows, so that no product is too large.
        codes = codes * (len(found.dictionary) + 1) + found.indices.to_numpy()
        if len(names) > 1:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    last = np.full(int(codes.max(initial=0)) + 1, -1, np.int64)
    order = _order(payloads)
    last[codes[:given][order]] = order  # of several the last one stays
    wanted = last[codes[given:]]
    at = np.flatnonzero(wanted >= 0)
    return wanted[at], at


def _order(payloads: Sequence[Payload]) -> npt.NDArray[np.int64]:
    """Return the numbers of input rows in the order in which they count: those without a position first."""
    count = sum(payload.rows.num_rows for payload in payloads)
    if not any(ORDER_COLUMN in payload.rows.column_names for payload in payloads):
        return np.arange(count)
    least = np.iinfo(np.int64).min
    orders = [
        payload.rows.column(ORDER_COLUMN).fill_null(least).to_numpy()
        if ORDER_COLUMN in payload.rows.column_names
        else np.full(payload.rows.num_rows, least)
        for payload in payloads
    ]
    operations = np.concatenate([payload.rows.column(OP_COLUMN).to_numpy() for payload in payloads])
    return np.lexsort((operations != DELETE, np.concatenate(orders)))
