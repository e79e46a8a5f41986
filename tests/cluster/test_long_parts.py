"""Parts of messages, and groups of logs, beyond what 32 bits count; the boundary is moved, nobody has such memory."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cumulus.catalog.events import INSERT
from cumulus.cluster import codec
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.messages import EpochPart
from cumulus.cluster.records import NodeState
from cumulus.compiler.pipeline import compile_sql
from cumulus.durable import log_files
from cumulus.durable.log_files import RecordLog
from cumulus.epochs.intake import packing
from cumulus.epochs.intake.packing import frames_of, pack, unpack
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import RemoteProtocolError

SIZES = (0, 1, 98, 99, 100, 101, 5000)


def test_the_boundaries_are_what_32_bits_count() -> None:
    assert struct.Struct("<I").pack(codec._LONG) == b"\xff\xff\xff\xff"
    assert struct.Struct("<I").pack(log_files._NARROW_BYTES)
    with pytest.raises(struct.error):
        struct.Struct("<I").pack(log_files._NARROW_BYTES + 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_part_of_any_length_comes_back(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    message = NodeState(7, bytes(size), [[1, b"x" * size], [2, b""]], [])  # type: ignore[list-item]
    monkeypatch.setattr(codec, "_LONG", 100)
    encoded = b"".join(codec.encode(message))
    assert codec.decode(encoded) == message
    assert struct.pack("<IQ", 100, size) in encoded or size < 100
    for cut in range(1, min(len(encoded), 60)):
        with pytest.raises(RemoteProtocolError):
            codec.decode(encoded[:-cut])


def test_a_length_beyond_the_message_is_refused() -> None:
    for length in (10, 1 << 40, (1 << 64) - 1):
        data = b"\xff\xff\xff\xff" + struct.pack("<Q", length) + b"123"
        with pytest.raises(RemoteProtocolError):
            codec.decode(data)
    assert codec.decode(b"".join(codec.encode(EpochPart(3, b"abc")))) == EpochPart(3, b"abc")


def test_a_payload_of_any_length_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_sql("CREATE TABLE r (a INTEGER); CREATE VIEW v AS SELECT SUM(a) AS s FROM r")
    rows = rows_to_send(program.relation("r"), INSERT, [(each,) for each in range(50)])
    readings = [Reading("r", rows, name, ()) for name in ("1", "2")]
    short = pack(readings, BucketPlan())
    monkeypatch.setattr(packing, "_LONG", 100)
    long = pack(readings, BucketPlan())
    assert len(long[0]) > len(short[0])
    assert unpack(long) == unpack(short)
    assert [header["source"] for header, _ in frames_of(long[0])] == ["1", "2"]
    assert unpack([frame for _, frame in frames_of(long[0])]) == unpack(short)


def test_groups_of_both_widths_are_read_from_one_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, wide, last = [b"a" * 10, b"b"], [b"c" * 200, b"", b"d" * 7], [b"e"]
    log = RecordLog(tmp_path / "log")
    log.recover()
    log.write(first)
    monkeypatch.setattr(log_files, "_NARROW_BYTES", 100)
    log.write(wide)
    log.write(last)
    log.close()
    assert b"CLG2" in next((tmp_path / "log").glob("*.log")).read_bytes()
    monkeypatch.undo()
    again = RecordLog(tmp_path / "log")
    assert again.recover() == (1, [*first, *wide, *last])
    again.close()


def test_a_torn_wide_group_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RecordLog(tmp_path / "log")
    log.recover()
    log.write([b"good"])
    monkeypatch.setattr(log_files, "_NARROW_BYTES", 10)
    log.write([b"torn" * 50])
    log.close()
    (path,) = (tmp_path / "log").glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"CLG2") + 60])
    again = RecordLog(tmp_path / "log")
    assert again.recover() == (1, [b"good"])
    again.close()
