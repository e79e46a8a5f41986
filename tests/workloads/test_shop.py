"""The first example has to be small, whole and alive."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cumulus.workloads import changes, checks, shop


def test_the_folder_holds_five_epochs_of_three_tables(tmp_path: Path) -> None:
    assert shop.write(tmp_path) == shop.EPOCHS
    assert changes.read(tmp_path) == shop.epochs()
    assert shop.epochs(seed=1) != shop.epochs()


def test_revenue_is_what_a_loop_says(tmp_path: Path) -> None:
    nations: dict[int, str] = {}
    orders: dict[int, tuple[object, ...]] = {}
    items: list[tuple[object, ...]] = []
    deletions = 0
    for epoch in changes.events(shop.epochs(), {}):
        for sign, relation, row in epoch:
            deletions += sign < 0
            if relation == "customers":
                nations[row[0]] = row[1]
            elif relation == "orders":
                assert (row[1] in orders) == (sign < 0)
                if sign > 0:
                    orders[row[1]] = row
                else:
                    del orders[row[1]]
            elif sign > 0:
                items.append(row)
            else:
                items.remove(row)
    assert deletions > shop.EPOCHS * 3
    expected: dict[str, object] = {}
    for oid, price in items:
        cid, _, discount = orders[oid]  # an item without its order would fail here
        expected[nations[cid]] = expected.get(nations[cid], 0) + discount * price
    assert len(expected) == len(shop.NATIONS)
    keys = {"customers": ("cid",), "orders": ("oid",), "lineitem": ("oid", "price")}
    got = checks.recompute(checks.views(shop.sql())["revenue"], changes.replay(shop.epochs(), keys))
    assert dict(zip(*got.to_pydict().values(), strict=True)) == expected
    assert got.schema.field("revenue").type == pa.decimal128(38, 4)


@pytest.mark.parametrize("name", ["shop", "flights"])
def test_examples_are_the_packaged_files(name: str) -> None:
    root = Path(__file__).parents[2]
    example = root / "examples" / f"{name}.sql"
    assert example.read_text() == (root / "src/cumulus/workloads" / f"{name}.sql").read_text()
    assert example.is_symlink()
