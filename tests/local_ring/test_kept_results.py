"""The bound of partial results that are kept, and which of them go first."""

from __future__ import annotations

import pyarrow as pa

from cumulus_ring.process.splits.kept_results import KeptResults


def group(*numbers: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((b"file", number) for number in numbers)


def rows(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def test_results_cover_row_groups_once() -> None:
    kept = KeptResults(1_000_000)
    kept.keep("f", group(1, 2), rows(3))
    kept.keep("f", group(2, 3), rows(4))
    kept.keep("f", group(4), rows(5))
    kept.keep("other", group(3), rows(6))
    found, left = kept.find("f", group(1, 2, 3, 4, 5))
    assert sorted(each.num_rows for each in found) == [3, 5]
    assert left == group(3, 5)
    assert kept.find("f", group(1))[0] == []
    assert kept.find("none", group(1)) == ([], group(1))


def test_what_is_used_stays_and_what_was_used_long_ago_goes() -> None:
    kept = KeptResults(10_000)
    for number in range(40):
        kept.keep("f", group(number), rows(50))
        if number < 20:
            kept.find("f", group(0))
        assert kept.bytes <= 10_000
        if number == 19:
            assert kept.find("f", group(0), is_use=False)[1] == group()
    for number in range(40, 400):
        kept.keep("f", group(number), rows(50))
    assert kept.find("f", group(0))[1] == group(0)
    assert kept.find("f", group(399))[1] == group()


def test_what_is_too_large_is_not_kept() -> None:
    kept = KeptResults(10_000)
    kept.keep("f", group(1), rows(400))
    assert kept.bytes == 0
    nothing = KeptResults(0)
    nothing.keep("f", group(1), rows(1))
    assert nothing.find("f", group(1)) == ([], group(1))
