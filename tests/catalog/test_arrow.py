"""Tables as Arrow streams."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cumulus.catalog.arrow import from_ipc, to_ipc

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
