"""Messages and records as bytes, and back.

A message is a header of JSON, behind its length, and the bytes that it carries, each behind its length: 32 bits, or all
of them set and 64 behind them. Nothing in it
is run or looked up by name but the classes listed here, and their fields are of the types that they say, so a message
of a stranger can be wrong but do no harm.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from cumulus.cluster import messages, output_files, records, resets
from cumulus.cluster.clients import query_messages
from cumulus.cluster.protocols import central_messages
from cumulus.cluster.standby import copies, state_pieces
from cumulus.cluster.switches import files_elsewhere
from cumulus.epochs.committed.manifest import Written
from cumulus.errors import RemoteProtocolError

_LENGTH, _LONG_LENGTH = struct.Struct("<I"), struct.Struct("<Q")
_LONG = (1 << 32) - 1
"""Says that the length of a part stands behind, in 64 bits: from so many bytes on."""
_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (
        messages.Block,
        messages.Events,
        messages.Deltas,
        messages.MapCheckpoint,
        central_messages.Put,
        central_messages.AskedSlice,
        central_messages.Fetch,
        central_messages.Push,
        central_messages.Correct,
        central_messages.TickAsked,
        central_messages.TickTold,
        central_messages.TickSet,
        central_messages.Evaluate,
        central_messages.Expect,
        central_messages.RootBlock,
        central_messages.ForwardedBlock,
        central_messages.PutsAsked,
        central_messages.PutsTold,
        central_messages.VersionCommit,
        messages.EpochTurn,
        messages.EpochRefused,
        messages.EpochPart,
        messages.EpochEnd,
        files_elsewhere.FilesAsked,
        files_elsewhere.FilesFound,
        output_files.OutputFile,
        output_files.ReadOutput,
        output_files.OutputRead,
        output_files.ListOutput,
        output_files.OutputListed,
        messages.EpochReady,
        messages.EpochCommit,
        messages.EpochToken,
        messages.EpochTold,
        messages.SourcesDone,
        messages.EpochWanted,
        messages.ClientRows,
        messages.RowsAccepted,
        messages.RowsHeld,
        messages.RequestRefused,
        messages.ReadEntries,
        messages.EntriesRead,
        messages.ReadParts,
        messages.PartsRead,
        query_messages.Query,
        query_messages.ForwardedQuery,
        query_messages.QueryAnswer,
        query_messages.QueryMark,
        query_messages.QueryCheckpoint,
        messages.StatusAsked,
        messages.StatusTold,
        resets.Halt,
        resets.Halted,
        resets.Reset,
        copies.CopyOffered,
        copies.CopyHeld,
        copies.CopyWhole,
        copies.CopyRecord,
        copies.CopyState,
        copies.CopyForget,
        copies.CopyKept,
        copies.CopyReady,
        state_pieces.GiveState,
        state_pieces.StatePiece,
        state_pieces.StateKept,
        records.LoggedTurn,
        records.LoggedRefusal,
        records.LoggedPayloads,
        records.LoggedRows,
        records.LoggedEpoch,
        records.NodeState,
        records.SwitchState,
        records.HeldState,
        records.ViewShare,
        Written,
    )
}


def encode(message: object) -> list[bytes]:
    """Return a message as pieces of bytes, to be sent one after the other."""
    pieces: list[bytes] = []
    header = json.dumps(_plain(message, pieces), separators=(",", ":")).encode()
    return [part for piece in (header, *pieces) for part in (_length(len(piece)), piece)]


def _length(size: int) -> bytes:
    return _LENGTH.pack(size) if size < _LONG else _LENGTH.pack(_LONG) + _LONG_LENGTH.pack(size)


def decode(data: bytes | memoryview) -> Any:
    """Return the message that `encode` has made bytes of.

    Raises
    ------
    RemoteProtocolError
        If the bytes are none.
    """
    try:
        parts = _split(memoryview(data))
        return _read(json.loads(bytes(parts[0])), parts[1:])
    except (struct.error, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as problem:
        raise RemoteProtocolError(
            f"a message of {len(data)} bytes cannot be read: {type(problem).__name__}: {problem}",
            hint="Is the peer of the same release?",
        ) from None


def _split(view: memoryview) -> list[memoryview]:
    parts, at = [], 0
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length == _LONG:
            (length,) = _LONG_LENGTH.unpack_from(view, at)
            at += _LONG_LENGTH.size
        if at + length > len(view):
            raise ValueError(f"a part of {length} bytes ends behind the message")
        parts.append(view[at : at + length])
        at += length
    return parts


def _plain(value: object, pieces: list[bytes]) -> object:
    """Return a value as JSON has it: a class as {"c": […]}, a dict as {"d": {…}}, bytes as {"b": their number}."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            pieces.append(value)
            return {"b": len(pieces) - 1}
        case Mapping():
            return {"d": {key: _plain(each, pieces) for key, each in value.items()}}
        case Sequence():
            return [_plain(each, pieces) for each in value]
        case _:
            name = type(value).__name__
            assert name in _CLASSES, name
            return {"c": [name, *(_plain(getattr(value, field.name), pieces) for field in fields(value))]}  # type: ignore[arg-type]


def _read(plain: Any, pieces: Sequence[memoryview]) -> Any:
    match plain:
        case {"b": number}:
            return bytes(pieces[number])
        case {"d": found}:
            return {key: _read(each, pieces) for key, each in found.items()}
        case {"c": [name, *values]}:
            return _made(_CLASSES[name], [_read(each, pieces) for each in values])
        case list():
            return [_read(each, pieces) for each in plain]
        case dict():
            raise ValueError("an object of no known form")
        case _:
            return plain


def _made(make: Callable[..., Any], values: Sequence[Any]) -> Any:
    """Return an object with these values of its first fields.

    Raises
    ------
    ValueError
        If one is not of the type of its field.
    """
    for (name, wanted), value in zip(_fields(make), values, strict=False):
        if not _is_a(value, wanted):
            raise ValueError(f"{name} of {make.__name__} is {value!r:.100}")
    return make(*values)


@cache
def _fields(made: type) -> list[tuple[str, Any]]:
    """Return the names and types of the fields of a class."""
    hints = get_type_hints(made)
    return [(each.name, hints[each.name]) for each in fields(made)]


def _is_a(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, as fields of messages have them."""
    if wanted is Any or wanted is object:
        return True
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is None:
        return type(value) is wanted
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_is_a(each, arguments[1]) for each in value.values())
    if not isinstance(value, list):
        return False
    if origin is tuple and arguments[1:] != (...,):
        return len(value) == len(arguments) and all(map(_is_a, value, arguments))
    return all(_is_a(each, arguments[0]) for each in value)
