"""What is repeated is dropped: by machine code as by Python, across dumps of either."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cumulus.catalog import Column, Relation
from cumulus.catalog.events import OP_COLUMN, ORDER_COLUMN, POSITION_COLUMN
from cumulus.catalog.types import BIGINT, VARCHAR
from cumulus.epochs.bucket.net_changes import changes_of, drop_repeated
from cumulus.epochs.bucket.positions import Positions
from cumulus.epochs.intake.packing import Payload

TABLE = Relation("t", (Column("a", BIGINT), Column("x", BIGINT), Column("s", VARCHAR)), key=("a", "s"))


def payload(choose: random.Random, source: str) -> Payload:
    count = choose.randrange(1, 30)
    rows = pa.table(
        {
            "a": pa.array([choose.randrange(3) for _ in range(count)], pa.int64()),
            "x": pa.array([choose.randrange(100) for _ in range(count)], pa.int64()),
            "s": pa.array([choose.choice(["", "é"]) for _ in range(count)], pa.string()),
            OP_COLUMN: pa.array([choose.choice([1, -1]) for _ in range(count)], pa.int8()),
            POSITION_COLUMN: pa.array(range(count), pa.int64()),
            ORDER_COLUMN: pa.array([choose.randrange(-20, 60) for _ in range(count)], pa.int64()),
        }
    )
    return Payload("t", source, count, rows)


def by_rows(positions: Positions, payloads: list[Payload]) -> set[tuple]:
    changes, seen, _ = drop_repeated(changes_of(payloads, 1)["t"], TABLE.key_positions, positions.get)
    positions.update(seen)
    return {(change.source, change.position) for change in changes}


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_rows_leave_the_same(seed: int) -> None:
    choose = random.Random(seed)
    native, plain = Positions(TABLE, is_native=True), Positions(TABLE, is_native=False)
    for epoch in range(5):
        payloads = [payload(choose, f"{epoch}-{part}") for part in range(2)]
        expected = by_rows(plain, payloads)
        if choose.random() < 0.3:  # an epoch that goes row by row
            assert by_rows(native, payloads) == expected
        else:
            newer = native.newer(payloads)
            assert newer is not None
            found = {(each.source, place) for each in newer for place in each.rows.column(POSITION_COLUMN).to_pylist()}
            assert found == expected
        native_again, plain_again = Positions(TABLE, is_native=True), Positions(TABLE, is_native=False)
        native_again.load(choose.choice([plain, native]).dump())
        plain_again.load(native.dump())
        native, plain = native_again, plain_again
    keys = [(a, s) for a in range(3) for s in ("", "é")]
    assert [native.get(key) for key in keys] == [plain.get(key) for key in keys]


def test_what_has_no_room_in_a_word_goes_row_by_row() -> None:
    native = Positions(TABLE, is_native=True)
    native.update({(1, "x"): (1 << 62, 1), (2, "x"): (5, 0)})
    assert native.get((1, "x")) == (1 << 62, 1)
    assert native.get((2, "x")) == (5, 0)
    assert native.newer([payload(random.Random(0), "f")]) is None
    again = Positions(TABLE, is_native=True)
    again.load(native.dump())
    assert again.get((1, "x")) == (1 << 62, 1)


def test_without_an_order_nothing_is_dropped() -> None:
    rows = payload(random.Random(1), "f")
    plain = Payload("t", "f", rows.count, rows.rows.drop_columns([ORDER_COLUMN]))
    native = Positions(TABLE, is_native=True)
    assert native.newer([plain]) == [plain]
    assert native.newer([plain, rows]) is None
