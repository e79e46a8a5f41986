"""Numbers and owners: the same everywhere, and as few changes as there can be."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from cumulus_ring.chunks.ids import chunk_id, file_digest
from cumulus_ring.chunks.rendezvous import owner

WORDS = st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True)
PLACES = st.tuples(st.binary(max_size=4), st.integers(0, 99), st.integers(0, 99), st.integers(1, 99), WORDS)


def test_numbers_never_change() -> None:
    """What is on the disks of a ring is found again by the next release."""
    digest = file_digest("lineitem.parquet", 1000, b"footer")
    assert digest.hex() == "782d910c22ad342833d7d8295fe91a9d"
    assert chunk_id(digest, 3, 0, 100, ["l_tax"]) == 0xADA8B9314997FDCF


@given(PLACES, PLACES)
def test_other_chunks_have_other_numbers(one: tuple, other: tuple) -> None:
    assert (chunk_id(*one) == chunk_id(*other)) == (one == other)


@given(st.text(max_size=3), st.integers(0, 99), st.binary(max_size=3), st.text(max_size=3), st.binary(max_size=3))
def test_other_files_have_other_digests(name: str, size: int, footer: bytes, other: str, other_footer: bytes) -> None:
    assume((name, footer) != (other, other_footer))
    assert file_digest(name, size, footer) != file_digest(other, size, other_footer)


@given(st.sets(st.text(min_size=1, max_size=3), min_size=2, max_size=6), st.binary(min_size=16, max_size=16), st.data())
def test_only_what_a_lost_member_had_moves(members: set[str], digest: bytes, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(sorted(members)))
    for group in range(20):
        before = owner(digest, group, members)
        after = owner(digest, group, members - {lost})
        assert before in (after, lost)
        assert after != lost


def test_members_have_equal_shares() -> None:
    shares = Counter(owner(b"digest", group, ["a", "b", "c", "d"]) for group in range(4000))
    assert all(900 < share < 1100 for share in shares.values()), shares
