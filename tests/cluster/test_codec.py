"""Messages and records as bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.cluster.codec import decode, encode
from cumulus.cluster.messages import EpochCommit, EpochEnd, EpochReady, EpochTurn, ReadEntries
from cumulus.cluster.records import LoggedPayloads, LoggedTurn
from cumulus.epochs.committed.manifest import Written
from cumulus.errors import RemoteProtocolError
from support.tiers import examples

names = st.sampled_from(["orders", "b", "c", "d", 'a "quoted" name', "", "ünï"])
epochs = st.integers(0, 1 << 22)
files = st.dictionaries(names, st.lists(names, max_size=3), max_size=3)
progress = st.dictionaries(names, st.fixed_dictionaries({"last": names, "count": st.integers(0, 99)}), max_size=3)
written = st.builds(
    Written,
    st.integers(0, 9),
    st.dictionaries(names, names, max_size=2),
    st.dictionaries(names, st.integers(0, 1 << 40), max_size=2),
    st.dictionaries(names, names, max_size=2),
    st.booleans(),
)
messages = st.one_of(
    st.builds(EpochTurn, epochs, files, st.booleans()),
    st.builds(EpochEnd, epochs, st.booleans(), st.binary(max_size=99)),
    st.builds(EpochReady, epochs, st.lists(written, max_size=2), st.lists(names, max_size=2)),
    st.builds(EpochCommit, epochs),
    st.builds(LoggedPayloads, epochs, st.lists(st.binary(max_size=99), max_size=3)),
    st.builds(LoggedTurn, epochs, files, progress, st.booleans()),
)


@settings(max_examples=examples(300))
@given(messages)
def test_a_message_comes_back_as_it_was(message: object) -> None:
    assert decode(b"".join(encode(message))) == message


@settings(max_examples=examples(300))
@given(messages, st.data())
def test_damaged_bytes_are_another_message_or_one_readable_error(message: object, data: st.DataObject) -> None:
    whole = bytearray(b"".join(encode(message)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with suppress(RemoteProtocolError):
        decode(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        decode(b"GET / HTTP/1.1\r\n")


def test_fields_are_what_they_say() -> None:
    whole = b"".join(encode(ReadEntries(1, 2, [0], b"key")))
    for known, other in ((b"1,2", b'1,"2"'), (b"1,2", b"1,true"), (b"[0]", b"[[]]"), (b'{"b":0}', b"null")):
        header = whole[4 : -len(b"key") - 4].replace(known, other)
        with pytest.raises(RemoteProtocolError, match=" of ReadEntries is "):
            decode(len(header).to_bytes(4, "little") + header + whole[-len(b"key") - 4 :])
    deep = b"[" * 100_000
    with pytest.raises(RemoteProtocolError, match="cannot be read: RecursionError"):
        decode(len(deep).to_bytes(4, "little") + deep)
