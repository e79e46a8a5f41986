"""What clients send that is too much, too late, or made to harm: a switch refuses it and goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import INSERT
from cumulus.cluster import codec
from cumulus.cluster.clients.client_sessions import MOST_BYTES
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.messages import (
    ClientRows,
    EpochCommit,
    RequestRefused,
    RowsAccepted,
    RowsHeld,
    StatusAsked,
    StatusTold,
)
from cumulus.machine import Perform, Received
from support.one_switch import PROGRAM, amounts, ended, sent, sent_rows, switch_of
from support.tiers import examples


def test_rows_that_wait_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room is to be sent again; the status tells it."""
    size = len(sent_rows(1, 10).message.rows)
    monkeypatch.setattr("cumulus.cluster.clients.client_queue.MOST_BYTES", 3 * size)
    switch = switch_of(tmp_path, open_bytes=1)
    assert sent(switch.step([sent_rows(1, 10)]), RowsAccepted)  # and the credit is spent
    held = switch.step([sent_rows(number, 20) for number in range(2, 8)])
    assert [(each.number, each.is_dropped) for each in sent(held, RowsHeld)] == [
        *((number, False) for number in (2, 3, 4)),
        *((number, True) for number in (5, 6, 7)),
    ]
    again = switch.step([sent_rows(2, 20)])  # it waits already
    assert [each.is_dropped for each in sent(again, RowsHeld)] == [False]
    told = switch.step([Received("client", StatusAsked(9))])
    facts = sent(told, StatusTold)[0].facts
    assert (facts["waiting"], facts["waiting_bytes"], facts["sent_away"]) == (3, 3 * size, 3)
    taken = ended(switch, 1) + switch.step([Received("publisher", EpochCommit(1))])
    assert [each.number for each in sent(taken, RowsAccepted)] == [2]


def test_a_message_larger_than_all_that_may_wait_has_room_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cumulus.cluster.clients.client_queue.MOST_BYTES", 1)
    switch = switch_of(tmp_path, open_bytes=1)
    switch.step([sent_rows(1, 10)])
    assert [each.is_dropped for each in sent(switch.step([sent_rows(2, 10), sent_rows(3, 10)]), RowsHeld)] == [
        False,
        True,
    ]


def test_who_was_forgotten_and_sends_again_is_refused_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch remembers so many clients; who is none of them may have sent its rows, or not."""
    monkeypatch.setattr("cumulus.cluster.clients.client_sessions.MOST_CLIENTS", 3)

    def from_client(number: int, amount: int, again_after: int = -1) -> Received:
        message = replace(sent_rows(1, amount).message, again_after=again_after)
        return Received(f"client{number}", message)

    switch: Any = switch_of(tmp_path)
    taken = switch.step([from_client(0, 7)]) + ended(switch, 1)
    for number in range(1, 5):
        taken += switch.step([from_client(number, number)])
    again = switch.step([from_client(0, 7, 0)])
    (refused,) = sent(again, RequestRefused)
    assert "whether they are in is not known any more" in refused.reason
    assert not sent(again, RowsAccepted)
    known = switch.step([from_client(4, 4, 0), from_client(9, 9), from_client(8, 8, 2)])
    assert [each.number for each in sent(known, RowsAccepted)] == [1, 1, 1]  # 4 is in; 9 is new; 8 cannot be in
    assert sorted(amounts(taken + again + known)) == [1, 2, 3, 4, 7, 8, 9]

    switch._log.least_bytes = 0
    saves = [each.task for each in ended(switch, 2) if isinstance(each, Perform) and isinstance(each.task, SaveState)]
    saved = codec.decode(saves[0].state)
    assert (saved.forgotten, len(saved.clients)) == (2, 3)


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
def test_rows_that_would_be_huge_when_they_are_unpacked_are_refused_before(kind: str, tmp_path: Path) -> None:
    good = from_ipc(sent_rows(1, 10).message.rows)
    count = 20_000_000
    table = pa.table(
        {name: pa.array(np.zeros(count, good.schema.field(name).type.to_pandas_dtype())) for name in good.column_names}
    ).cast(good.schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=kind)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    bomb = sink.getvalue().to_pybytes()
    assert len(bomb) < 3_000_000
    del table
    switch = switch_of(tmp_path)
    before = pa.total_allocated_bytes()
    effects = switch.step([Received("client", ClientRows(1, "sales", bomb))])
    (refused,) = sent(effects, RequestRefused)
    assert f"bytes unpacked, and {MOST_BYTES:,} are allowed" in refused.reason
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert sent(switch.step([sent_rows(1, 10)]), RowsAccepted)


def strange(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


STRANGE: dict[str, Callable[[], pa.Table]] = {
    "runs": lambda: pa.table({"x": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array([1]))}),
    "nulls": lambda: pa.table({"x": pa.nulls(1 << 30)}),
    "dictionary": lambda: pa.table({"x": pa.array(["x"]).dictionary_encode()}),
    "lists": lambda: pa.table({"x": [[1]]}),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_columns_in_which_few_bytes_are_many_rows_are_refused(kind: str, tmp_path: Path) -> None:
    switch = switch_of(tmp_path)
    effects = switch.step([Received("client", ClientRows(1, "sales", strange(STRANGE[kind]())))])
    assert "are no rows that are taken" in sent(effects, RequestRefused)[0].reason


def test_no_cut_or_changed_byte_of_rows_ends_a_switch(tmp_path: Path) -> None:
    """The metadata are read by hand: whatever they say is an error of the client's, or rows."""
    switch, good = switch_of(tmp_path), sent_rows(1, 10).message.rows
    large = to_ipc(rows_to_send(PROGRAM.relation("sales"), INSERT, [(1, 7)] * 5000))
    draw = random.Random(7)
    for number in range(1, examples(300)):
        data = bytearray(draw.choice((good, large)))
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        data = data[: draw.choice((len(data), draw.randrange(len(data))))]
        effects = switch.step([Received(f"c{number}", ClientRows(1, "sales", bytes(data)))])
        assert len(sent(effects, RequestRefused)) + len(sent(effects, RowsAccepted)) == 1
