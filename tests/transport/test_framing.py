"""Frames come out as they went in, however the bytes are cut; garbage is refused, and takes no memory."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.errors import RemoteProtocolError
from cumulus.transport.framing import (
    HEADER_BYTES,
    PAYLOAD_BYTES,
    STRANGER_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    framed,
    header,
)
from support.tiers import examples

payloads = st.one_of(st.binary(max_size=20), st.integers(0, 600_000).map(bytes))
kinds = st.integers(0, 255).filter(lambda kind: kind != FrameKind.PART)
frames = st.lists(st.tuples(kinds, st.integers(0, 2**64 - 1), payloads), max_size=6)


def fill(reader: FrameReader, data: bytes | memoryview) -> list[Frame]:
    """Give a reader as much as it has room for, again and again."""
    found: list[Frame] = []
    while data:
        room = reader.room()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        found += reader.filled(count)
        data = data[count:]
    return found


@settings(max_examples=examples(300), deadline=None)
@given(frames, st.lists(st.integers(0, 700_000), max_size=6))
def test_frames_come_out_however_they_are_cut(sent: list[Frame], cuts: list[int]) -> None:
    data = memoryview(
        b"".join(header(kind, len(payload), incarnation) + payload for kind, incarnation, payload in sent)
    )
    reader = FrameReader()
    reader.trust()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [each for begin, end in pairwise(places) for each in fill(reader, data[begin:end])]
    assert found == sent


@given(st.binary(min_size=HEADER_BYTES).filter(lambda data: data[:2] != b"cu"))
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="does not begin as a frame does"):
        fill(FrameReader(), data)


def test_another_version_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="frames of version 9 have come; this is version 1"):
        fill(FrameReader(), b"cu\x09" + bytes(13))


def test_a_claimed_length_takes_no_memory() -> None:
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError, match=r"a frame of 4,097 bytes is announced; 4,096 are allowed"):
        fill(reader, header(1, STRANGER_BYTES + 1, 0))
    reader = FrameReader()
    reader.trust()
    with pytest.raises(RemoteProtocolError, match="is announced"):
        fill(reader, header(1, PAYLOAD_BYTES + 1, 0))
    reader = FrameReader()
    reader.trust()
    came = 3_000_000
    assert fill(reader, header(1, PAYLOAD_BYTES, 0) + bytes(came)) == []
    assert len(reader.room()) < 2 * came, "it may double what has come"


@pytest.mark.parametrize("length", [0, 7, 8, 9, 31, 32, 33])
def test_a_long_message_comes_in_parts_and_a_stranger_sends_none(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.transport.framing.PAYLOAD_BYTES", 8)
    whole = bytes(range(length))
    sent = b"".join([*framed(FrameKind.MESSAGE, [whole[:5], whole[5:]], 3), *framed(FrameKind.ASK, [], 3)])
    reader = FrameReader()
    reader.trust()
    assert fill(reader, sent) == [(FrameKind.MESSAGE, 3, whole), (FrameKind.ASK, 3, b"")]
    stranger = FrameReader()
    stranger.trust(in_parts=False)
    assert [kind for kind, _, _ in fill(stranger, sent)].count(FrameKind.PART) == max(length - 1, 0) // 8
