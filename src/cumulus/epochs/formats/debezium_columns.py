"""Many of Debezium's messages at a time, as Arrow columns; see `cumulus.epochs.formats.columns`.

Messages with a schema begin with it, each with the same one: that text is taken off before the rest is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.columns import (
    SAMPLE,
    LineShape,
    Mask,
    Read,
    Spellings,
    is_all_null,
    is_plain,
    parse_block,
    parsed_sample,
    plain_lines,
    shape_of,
    texts_of,
    word_type,
)
from cumulus.epochs.formats.debezium import value_at
from cumulus.epochs.formats.encodings import Encodings, encodings_in, encodings_of
from cumulus.epochs.formats.parsed_rows import RawRows
from cumulus.epochs.formats.unavailable import Placeholder

_SCHEMA = b'{"schema":'
_PAYLOAD = b'"payload":'
_NESTED = b"{" + _PAYLOAD
_WORDS = ("i", "d", "u")
_OPS = ("c", "r", "u", "d")
_MOST_FORMS = 4
"""So many ways to write messages are remembered."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How messages are written: what they begin with, and whether the envelope is in `payload`."""

    prefix: bytes
    nested: bool
    row: LineShape
    schema: pa.Schema
    encodings: Encodings


class EnvelopeColumns:
    """Reads messages of inserts, updates and deletions that are written alike; see `ColumnReader`."""

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._source, self._relation = source, relation
        self._given = encodings_of(source, relation)
        self._path = source.order_path()
        self._placeholder = Placeholder(source.placeholder())
        self._forms: list[_Form] = []

    def read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> Read | None:
        """Return the rows of the messages that are written as the first is, and the indexes of all others."""
        if self._path and self._path[0] in ("before", "after", "op", "payload", "schema"):
            return None
        best: Read | None = None
        for form in self._forms:
            made = self._read_as(form, numbers, lines)
            if made is not None and (best is None or len(made[1]) < len(best[1])):
                best = made
            if best is not None and 2 * len(best[1]) < len(lines):
                return best
        new = self._form_of(lines)
        if new is None or new in self._forms:
            return best
        self._forms = [new, *self._forms][:_MOST_FORMS]
        return self._read_as(new, numbers, lines) or best

    def _read_as(self, form: _Form, numbers: Sequence[int], lines: Sequence[bytes]) -> Read | None:
        parsed = self._parsed(form, lines)
        if parsed is None:
            return None
        plain, table, block = parsed
        made = self._rows(form, table, block)
        if made is None:
            return None
        found, rows, mask = made
        taken = [at for at, is_taken in zip(plain, mask.tolist(), strict=True) if is_taken]
        if not taken:
            return None
        at = np.array(plain, np.int64)[rows]
        found.positions = np.array(numbers, np.int64)[at]
        found.text = texts_of(lines, at)
        return found, sorted(set(range(len(lines))).difference(taken)) if len(taken) < len(lines) else []

    def _parsed(self, form: _Form, lines: Sequence[bytes]) -> tuple[Sequence[int], pa.Table, bytes] | None:
        """Return the indexes of lines that are written in `form`, and what they say."""
        plain: Sequence[int]
        if form.prefix:
            size = len(form.prefix)
            plain = [at for at, line in enumerate(lines) if line.startswith(form.prefix)]
            kept: Sequence[bytes] = [_NESTED + lines[at][size:] for at in plain]
        else:
            plain = range(len(lines))
            kept = lines
            if any(line.startswith(_SCHEMA) for line in lines):
                plain = [at for at, line in enumerate(lines) if not line.startswith(_SCHEMA)]
                kept = [lines[at] for at in plain]
        fine = plain_lines(kept) if kept else ()
        if len(fine) < len(kept):
            plain, kept = [plain[at] for at in fine], [kept[at] for at in fine]
        if not kept:
            return None
        parsed = parse_block(kept, form.schema)
        return None if parsed is None else (plain, *parsed)

    def _rows(self, form: _Form, table: pa.Table, block: bytes) -> tuple[RawRows, np.ndarray[Any, Any], Mask] | None:
        """Return the rows of messages, the message of each row, and which messages they are."""
        envelope = table.column("payload").chunk(0) if form.nested else table.to_struct_array().combine_chunks()
        before, after = pc.struct_field(envelope, ["before"]), pc.struct_field(envelope, ["after"])
        op = pc.index_in(pc.struct_field(envelope, ["op"]), value_set=pa.array(_OPS)).fill_null(-1).to_numpy()
        has_before, has_after = (side.is_valid().to_numpy(zero_copy_only=False) for side in (before, after))
        mask: Mask = np.where(op == 3, has_before, has_after) & (op >= 0)
        mask &= table.column("schema" if form.nested else "payload").chunk(0).is_null().to_numpy(zero_copy_only=False)
        sides = [[pc.struct_field(side, [name]) for name in form.row.columns] for side in (before, after)]
        mask &= self._are_whole(form, block, op, sides)
        for side, is_there in zip(sides, (has_before, has_after), strict=True):
            nothing = is_all_null(side)
            if nothing is not None:
                mask &= ~(nothing & is_there)
        mine = np.flatnonzero(mask)
        pairs = (op[mine] == 2) & has_before[mine]
        rows = np.repeat(mine, 1 + pairs)
        first = np.cumsum(1 + pairs) - (1 + pairs)
        words = np.where(op[rows] == 3, 1, np.where(op[rows] == 2, 2, 0)).astype(np.int8)
        words[first[pairs]] = 1
        words[first[pairs] + 1] = 0
        places = pa.array(np.where(words == 1, rows, rows + len(op)))
        columns = [pa.concat_arrays([old, new]).take(places) for old, new in zip(*sides, strict=True)]
        spellings = Spellings(block)
        for name, called, values in zip(self._relation.column_names, form.row.columns, columns, strict=True):
            if not spellings.is_one(called, values, name):
                return None
        order = pc.struct_field(envelope, self._path).take(pa.array(rows)) if self._path else None
        operations = pa.DictionaryArray.from_arrays(pa.array(words), pa.array(_WORDS))
        if order is not None and order.null_count == len(order):
            order = None
        found = RawRows([*columns], operations, order, rows, str, form.encodings)
        return found, rows, mask

    def _are_whole(self, form: _Form, block: bytes, op: Any, sides: Sequence[Sequence[pa.Array]]) -> Mask:
        """Return which messages leave nothing out: no placeholder, and no field of the new row of an update.

        Arrow gives NULL for a field that is not there, too, so updates to NULL are read again.
        """
        whole: Mask = np.ones(len(op), np.bool_)
        for column in (*sides[0], *sides[1]):
            whole[self._placeholder.places_in(column)] = False
        nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in sides[1] if column.null_count]
        updates = np.flatnonzero(np.logical_or.reduce(nulls) & (op == 2)) if nulls else ()
        if len(updates):
            wanted, lines = set(form.row.columns), block.split(b"\n")
            for at in updates:
                whole[at] = whole[at] and wanted <= _new_row(lines[at], nested=form.nested).keys()
        return whole

    def _form_of(self, lines: Sequence[bytes]) -> _Form | None:
        """Return how the first messages that are some are written."""
        head = next((line for line in lines if is_message(line)), None)
        if head is None:
            return None
        prefix, schema = _prefix(head)
        like = [line for line in lines[: 8 * SAMPLE] if line.startswith(prefix or b"{")][:SAMPLE]
        messages = [each for each in parsed_sample(like) if isinstance(each, dict)]
        nested = bool(prefix) or any(isinstance(each.get("payload"), dict) for each in messages[:1])
        envelopes = [each.get("payload") for each in messages] if nested else messages
        envelopes = [each for each in envelopes if isinstance(each, dict)]
        records = [each[side] for each in envelopes for side in ("before", "after") if isinstance(each.get(side), dict)]
        if not records:
            return None
        encodings = self._given
        if schema is not None:
            bare = shape_of(self._source, self._relation, records, (None,) * len(encodings))
            if bare is None:
                return None
            try:
                encodings = encodings_in(schema, self._relation, bare.columns, self._given)
            except (TypeError, ValueError, OverflowError):
                return None
        # Inside of envelopes, no field is an operation or an order.
        row = shape_of(self._source, self._relation, records, encodings)
        if row is None:
            return None
        struct = pa.struct([row.schema.field(name) for name in dict.fromkeys(row.columns)])
        fields = {"before": struct, "after": struct, "op": pa.string()}
        if self._path:
            orders = (value_at(each, self._path) for each in envelopes)
            # Where no order is there it is read as a number, since most are.
            order: pa.DataType = word_type(next((each for each in orders if each is not None), 0))
            for part in reversed(self._path[1:]):
                order = pa.struct({part: order})
            fields[self._path[0]] = order
        if nested:  # another schema would come after this one
            fields = {"payload": pa.struct(fields), "schema": pa.struct({"type": pa.string()})}
        else:
            fields["payload"] = pa.struct({"op": pa.string()})
        return _Form(prefix, nested, row, pa.schema(list(fields.items())), encodings)


_DECODER = json.JSONDecoder()


def _new_row(line: bytes, *, nested: bool) -> dict[str, Any]:
    """Return `after` of a message that Arrow has read; empty if it is none."""
    text = line.decode()
    if text.count('"after"') == 1:
        begin = text.find("{", text.find('"after"'))
        row = _DECODER.raw_decode(text, begin)[0] if begin >= 0 else None
    else:
        envelope = json.loads(text)
        row = (envelope["payload"] if nested else envelope)["after"]
    return row if isinstance(row, dict) else {}


def is_message(line: bytes) -> bool:
    """Whether a line may be a message with an envelope, and no tombstone."""
    return is_plain(line) and b'"op"' in line


def _prefix(line: bytes) -> tuple[bytes, Any]:
    """Return what a message begins with, up to its payload, and the schema in it."""
    if not line.startswith(_SCHEMA):
        return b"", None
    try:
        text = line.decode()
        schema, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA) + _blanks(text, len(_SCHEMA)))
    except (UnicodeDecodeError, ValueError, RecursionError):
        return b"", None
    begin = len(text[:end].encode())
    at = line.find(_PAYLOAD, begin)
    if at < 0 or line[begin:at].replace(b" ", b"") != b",":
        return b"", None
    return line[: at + len(_PAYLOAD)], schema


def _blanks(text: str, at: int) -> int:
    return len(text[at:]) - len(text[at:].lstrip(" "))
