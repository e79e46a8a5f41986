"""Tables as Arrow streams."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cumulus.catalog.arrow import from_ipc, from_strange_ipc, to_ipc

LARGE = 64 << 10


@pytest.mark.parametrize("rows", [0, 1, 100, LARGE // 8, LARGE])
def test_a_table_comes_back_and_a_large_one_is_compressed(rows: int) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64()), "town": pa.array(["x", None] * rows)[:rows]})
    data = to_ipc(table)
    assert from_ipc(data).equals(table)
    assert (len(data) < table.nbytes) == (table.nbytes >= LARGE)


def test_of_a_slice_nothing_else_is_written() -> None:
    table = pa.table({"n": range(LARGE)})
    assert len(to_ipc(table.slice(10, 5))) < 1000


def test_streams_of_strangers_have_few_batches_and_are_one_piece() -> None:
    """Whoever takes rows does something for each batch."""
    pieces = pa.table({"n": pa.chunked_array([[each] for each in range(9_000)])})
    whole = from_strange_ipc(to_ipc(pieces), 1 << 20)
    assert whole.column("n").num_chunks == 1
    assert whole.equals(pieces.combine_chunks())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pieces.schema) as writer:
        for batch in pieces.to_batches():
            writer.write_batch(batch)
    with pytest.raises(ValueError, match="more than 4,096 batches: put them together"):
        from_strange_ipc(sink.getvalue(), 1 << 30)
