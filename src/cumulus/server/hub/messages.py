"""What subscribers are told, as bytes: lines of JSON, events of server-sent events, streams of Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import pyarrow as pa

from cumulus.errors import CumulusError
from cumulus.server.json_columns import rows_as_json


class MessageForm(StrEnum):
    """How messages are encoded."""

    JSON = "json"
    """One object: at, progress, rows; each row is how often it came or left (negative), then its columns."""
    SSE = "sse"
    """The same, as an event whose id is `at`."""
    ARROW = "arrow"
    """A stream of Arrow whose schema's metadata has at and progress."""


def encode(form: MessageForm, table: pa.Table, at: int, *, progress: bool = True, snapshot: bool = False) -> bytes:
    """Return a message.

    Parameters
    ----------
    table
        How often rows came or left, then their columns.
    at
        The transaction after which the rows are so.
    progress
        Whether nothing more comes for `at` and what was before.
    snapshot
        Whether what the subscriber has is to be forgotten, unless a part of this snapshot came just before.
    """
    facts: dict[str, Any] = {"at": at, "progress": progress} | ({"snapshot": True} if snapshot else {})
    return _ENCODERS[form](table, facts)


def encode_error(form: MessageForm, problem: CumulusError, at: int) -> bytes:
    """Return the last message of a subscription that cannot go on: why, and up to where it came."""
    facts = {"error": type(problem).__name__, "message": problem.message, "hint": problem.hint, "at": at}
    data = json.dumps(facts, ensure_ascii=False).encode()
    return b"event: error\ndata: %s\n\n" % data if form is MessageForm.SSE else data


def _json(table: pa.Table, facts: Mapping[str, Any]) -> bytes:
    rows = b"".join(rows_as_json(batch, "", ",") for batch in table.to_batches())
    return b'%s,"rows":[%s]}' % (json.dumps(facts, separators=(",", ":")).encode()[:-1], rows[:-1])


def _sse(table: pa.Table, facts: Mapping[str, Any]) -> bytes:
    name = b"changes" if facts["progress"] else b"part"
    # Only what has come in whole may be resumed from.
    number = b"id: %d\n" % facts["at"] if facts["progress"] else b""
    return b"event: %s\n%sdata: %s\n\n" % (name, number, _json(table, facts))


def _arrow(table: pa.Table, facts: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({f"cumulus.{name}": json.dumps(value) for name, value in facts.items()})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    found: bytes = sink.getvalue().to_pybytes()
    return found


_ENCODERS: dict[MessageForm, Callable[[pa.Table, Mapping[str, Any]], bytes]] = {
    MessageForm.JSON: _json,
    MessageForm.SSE: _sse,
    MessageForm.ARROW: _arrow,
}
