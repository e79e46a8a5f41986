"""Whether what a query reads fits: an engine needs all columns of a slice at once, wherever the chunks of it lie."""

from __future__ import annotations

from collections.abc import Iterable

from cumulus.errors import RingError
from cumulus_ring.chunks.catalogue import ChunkGroup


def check_fits(groups: Iterable[ChunkGroup], limit: int) -> None:
    """Refuse a scan before it runs if one of its batches is larger than all that queries may hold at a node.

    Parameters
    ----------
    groups
        What the scan reads.
    limit
        Bytes of chunks that the queries of a node may hold.

    Raises
    ------
    RingError
        For the largest batch. Sizes are the catalogue's, so texts may turn out otherwise.
    """
    widest = max(groups, key=_size, default=None)
    if widest is None or _size(widest) <= limit:
        return
    columns = sum(len(chunk.columns) for chunk in widest.chunks)
    last = widest.first_row + widest.rows - 1
    rows = f"rows {widest.first_row} to {last} of row group {widest.row_group.number} of {widest.file.name}"
    raise RingError(
        f"a batch of table {widest.chunks[0].table} has {_size(widest):,} bytes in the {columns} columns that come "
        f"with what is asked for ({rows}), and a node has {limit:,} for what its queries read",
        hint="Ask for fewer columns, give nodes more with --storage, or write the file with smaller row groups.",
    )


def _size(group: ChunkGroup) -> int:
    return sum(chunk.size for chunk in group.chunks)
