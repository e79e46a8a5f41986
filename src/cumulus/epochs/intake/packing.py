"""Payloads, the rows of a file for a bucket, and their packed form: what crosses the shuffle and what logs hold.

Packed payloads are a sequence of frames; a frame is a JSON header and an Arrow stream, each behind its length. Packing
happens in the task that reads the file, so that Spark moves a few big values instead of millions of rows. A frame
without rows is a notice to the bucket.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import OP_COLUMN, ORDER_COLUMN, POSITION_COLUMN, TRUNCATE, UPSERT
from cumulus.catalog.partition import buckets_of
from cumulus.durable import faults
from cumulus.epochs.formats.parsed_rows import Rejected
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.plan import BucketPlan

_LENGTHS = struct.Struct("<II")
_NUMBERED = struct.Struct("<IQ")
_LONG = (1 << 32) - 1
"""Says that the header has the length of the body: from so many bytes on."""
_NOTICE, _ROWS, _MOVED = "notice", "rows", "moved"
_OLD_NAMES = {"_op": OP_COLUMN, "_position": POSITION_COLUMN, "_seq": ORDER_COLUMN}
"""What logs of earlier releases call columns; no table with such a column could be read then."""
_REJECTED = pa.schema(
    [(item.name, pa.int64() if item.name == "position" else pa.string()) for item in fields(Rejected)]
)


@dataclass(frozen=True, slots=True)
class Payload:
    """The rows of one file, or a part of it, for one bucket.

    Parameters
    ----------
    source
        The label of the file; payloads of one table are applied in the order of their labels.
    count
        Events that this bucket counts: a row sent to every bucket counts once.
    rows
        As in `Reading`.
    rejected
        Rows that did not fit; they travel to bucket 0.
    ignored
        How many records say nothing about rows, by what they are; bucket 0 counts them.
    is_moved
        As in `Reading`.
    """

    relation: str
    source: str
    count: int
    rows: pa.Table
    rejected: tuple[Rejected, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    is_moved: bool = False

    @property
    def first(self) -> int:
        """The position of the first row, 0 without rows: a file that was read in parts gives a payload for each."""
        return self.rows.column(POSITION_COLUMN)[0].as_py() if self.rows.num_rows else 0

    @property
    def last(self) -> int:
        """The position of the last row, 0 without rows."""
        return self.rows.column(POSITION_COLUMN)[-1].as_py() if self.rows.num_rows else 0


def pack(readings: Iterable[Reading], plan: BucketPlan) -> list[bytes]:
    """Return the packed payloads of each bucket."""
    packed: list[list[bytes]] = [[] for _ in range(plan.buckets)]
    for reading in readings:
        if reading.rejected:
            rejected = pa.Table.from_pylist([asdict(each) for each in reading.rejected], schema=_REJECTED)
            packed[0].append(_frame("rejected", reading, 0, rejected))
        for bucket, (rows, count) in enumerate(_split(reading, plan)):
            ignored = {} if bucket else dict(reading.ignored)
            if rows.num_rows or count or ignored:
                kind = _MOVED if reading.is_moved else _ROWS
                packed[bucket].append(_frame(kind, reading, count, rows, ignored))
        faults.crash_point("in-pack")
    return [b"".join(parts) for parts in packed]


def unpack(packed: Iterable[bytes]) -> list[Payload]:
    """Return the payloads of an epoch in the order of table, label and position: the same however they arrived."""
    ordered = sorted(unpack_in_order(packed), key=lambda payload: (payload.relation, payload.source, payload.first))
    found: list[Payload] = []
    for payload in ordered:
        if found and _are_interleaved(found[-1], payload):
            payload = _merged(found.pop(), payload)
        found.append(payload)
    return found


def _are_interleaved(one: Payload, other: Payload) -> bool:
    """Whether two payloads are rows of one file whose positions overlap: several switches take rows of the table."""
    if (one.relation, one.source, one.is_moved) != (other.relation, other.source, other.is_moved):
        return False
    return bool(one.rows.num_rows and other.rows.num_rows) and one.last > other.first


def _merged(one: Payload, other: Payload) -> Payload:
    """Return two payloads of a file as one, with its rows in their order."""
    rows = pa.concat_tables([one.rows, other.rows])
    order = np.argsort(rows.column(POSITION_COLUMN).to_numpy(), kind="stable")
    ignored = Counter(one.ignored) + Counter(other.ignored)
    return replace(one, count=one.count + other.count, rows=rows.take(pa.array(order)), ignored=ignored)


def unpack_in_order(packed: Iterable[bytes]) -> list[Payload]:
    """Return the payloads of an epoch in the order in which they were packed."""
    return [_payload(*frame) for part in packed for frame in _frames(part) if frame[0]["kind"] != _NOTICE]


def frames_of(packed: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the parts of packed payloads, each packed as it was, with what its header tells: its table and source."""
    at = 0
    for header, body in _frames(packed):
        end = at + _LENGTHS.size + _LENGTHS.unpack_from(packed, at)[0] + len(body)
        yield header, packed[at:end]
        at = end


def call_label(place: int, at: int, client: str) -> str:
    """Return what the rows of a client's call are labelled with: before files, and in the order of places.

    Parameters
    ----------
    place
        Of all calls that are taken in at once, behind those before.
    at
        Of the call among them.
    """
    return f" {place:012}.{at:06} {client}"


def place_of(label: str) -> str:
    """Return the place of the call that rows are of, as a text; empty if they are of a file."""
    return label.split(".", 1)[0].strip() if label.startswith(" ") else ""


def pack_numbered(number: int, data: bytes) -> bytes:
    """Return packed payloads with a number before them; several such follow each other."""
    return _NUMBERED.pack(number, len(data)) + data


def unpack_numbered(packed: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Return number → packed payloads, in their order.

    Examples
    --------
    >>> unpack_numbered([pack_numbered(1, b"a") + pack_numbered(0, b"bc"), b"", pack_numbered(1, b"")])
    {1: [b'a', b''], 0: [b'bc']}
    """
    found: dict[int, list[bytes]] = {}
    for part in packed:
        at = 0
        while at < len(part):
            number, length = _NUMBERED.unpack_from(part, at)
            at += _NUMBERED.size
            found.setdefault(number, []).append(part[at : at + length])
            at += length
    return found


def pack_notice(notice: Mapping[str, Any]) -> bytes:
    """Return what a bucket is to know beside its rows, as JSON has it, put before its payloads; b"" for nothing."""
    if not notice:
        return b""
    header = json.dumps({"kind": _NOTICE, **notice}).encode()
    return _LENGTHS.pack(len(header), 0) + header


def notice_in(packed: Iterable[bytes]) -> dict[str, Any] | None:
    """Return what `pack_notice` has put into payloads, None if there is nothing."""
    return next((told for part in packed for told, _ in _frames(part) if told.pop("kind") == _NOTICE), None)


def _split(reading: Reading, plan: BucketPlan) -> list[tuple[pa.Table, int]]:
    rows = reading.rows
    columns = plan.partitioned.get(reading.relation)
    if plan.buckets == 1:
        return [(rows, rows.num_rows - reading.uncounted)]
    if columns is None:
        return [(rows, 0 if bucket else rows.num_rows) for bucket in range(plan.buckets)]
    first, *others = map(rows.column, columns)
    owner = buckets_of(first, plan.buckets, *others)
    # The old row may be in any bucket if the key does not say in which, and all have some that a truncation takes.
    broadcast = [TRUNCATE] if reading.relation in plan.by_key else [UPSERT, TRUNCATE]
    everywhere = pc.is_in(rows.column(OP_COLUMN), value_set=pa.array(broadcast, pa.int8()))
    parts = []
    for bucket in range(plan.buckets):
        own = pc.equal(owner, bucket)
        parts.append((rows.filter(pc.or_(own, everywhere)), pc.sum(own).as_py() or 0))
    return parts


def _frame(kind: str, reading: Reading, count: int, rows: pa.Table, ignored: Mapping[str, int] | None = None) -> bytes:
    told = {"kind": kind, "relation": reading.relation, "source": reading.source, "count": count}
    body = to_ipc(rows)
    extra: dict[str, Any] = {"ignored": dict(ignored)} if ignored else {}
    extra |= {"bytes": len(body)} if len(body) >= _LONG else {}
    header = json.dumps(told | extra).encode()
    return b"".join((_LENGTHS.pack(len(header), min(len(body), _LONG)), header, body))


def _frames(packed: bytes) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """Yield the headers and bodies of frames."""
    at = 0
    view = memoryview(packed)
    while at < len(view):
        header_length, body_length = _LENGTHS.unpack_from(view, at)
        at += _LENGTHS.size
        header = json.loads(bytes(view[at : at + header_length]))
        at += header_length
        body_length = header.pop("bytes", body_length)
        yield header, view[at : at + body_length]
        at += body_length


def _payload(header: Mapping[str, Any], body: memoryview) -> Payload:
    rows = from_ipc(bytes(body))  # a copy lies where columns may lie, and keeps nothing else
    if header["kind"] == _ROWS and POSITION_COLUMN not in rows.column_names:
        rows = rows.rename_columns([_OLD_NAMES.get(name, name) for name in rows.column_names])
    rejected: tuple[Rejected, ...] = ()
    if header["kind"] == "rejected":
        rejected = tuple(Rejected(**row) for row in rows.to_pylist())
        rows = rows.slice(0, 0)
    ignored = header.get("ignored", {})
    is_moved = header["kind"] == _MOVED
    return Payload(header["relation"], header["source"], header["count"], rows, rejected, ignored, is_moved)
