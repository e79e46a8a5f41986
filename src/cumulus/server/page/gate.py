"""Which messages of a browser reach Perspective: its servers end the process at those that they do not expect.

A message is a `Request` of Perspective's protocol, as protocol buffers. Perspective's virtual server unwraps what it
looks up, and its other server reads the first of the bytes; both are built such that a panic aborts the process and
raises nothing. Therefore each message is read whole here first: only requests that the page sends, each field known,
once, of its type and within its range, and about tables and views that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.errors import UsageError

_HINT = "Load the page anew."
_MOST_NUMBER = 2**32 - 1
_NUMBER, _DOUBLE, _BYTES = 0, 1, 2
"""Wire types: a number of variable length, eight bytes, bytes with their length before them."""

Fields: TypeAlias = Mapping[int, "_Field"]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: a number up to `most`, a double, a message with `fields`, or a text."""

    wire: int = _BYTES
    most: int = _MOST_NUMBER
    fields: Fields | None = None
    is_repeated: bool = False
    is_needed: bool = False
    is_choice: bool = False
    """Whether the message has exactly one field."""


_TEXT, _TEXTS = _Field(), _Field(is_repeated=True)
_UINT, _BOOL, _NULL = _Field(_NUMBER), _Field(_NUMBER, 1), _Field(_NUMBER, 0)
_VIEWPORT = _Field(fields={1: _UINT, 2: _UINT, 3: _UINT, 4: _UINT, 5: _BOOL}, is_needed=True)
_SCALAR = _Field(fields={1: _BOOL, 4: _Field(_DOUBLE), 6: _TEXT, 7: _NULL}, is_repeated=True, is_choice=True)
_AGGREGATES = _Field(fields={1: _Field(is_repeated=True, is_needed=True)}, is_needed=True)
_CONFIG: Fields = {
    1: _TEXTS,  # group_by
    2: _TEXTS,  # split_by
    3: _Field(fields={1: _NULL, 2: _Field(fields={1: _TEXTS})}, is_choice=True),  # columns
    4: _Field(fields={1: _TEXT, 2: _TEXT, 3: _SCALAR}, is_repeated=True),  # filter
    5: _Field(fields={1: _TEXT, 2: _Field(_NUMBER, 8)}, is_repeated=True),  # sort
    6: _Field(fields={1: _TEXT, 2: _TEXT}, is_repeated=True),  # expressions
    7: _Field(fields={1: _TEXT, 2: _AGGREGATES}, is_repeated=True),  # aggregates
    8: _Field(_NUMBER, 1),  # filter_op
    9: _UINT,  # group_by_depth
    10: _Field(_NUMBER, 2),  # group_rollup_mode
    12: _Field(_NUMBER, 2),  # split_rollup_mode
}
_FORMATTED: Fields = {1: _VIEWPORT, 2: _BOOL, 3: _BOOL, 4: _BOOL}
_NUMBERED: Fields = {1: _UINT}
MAKE_VIEW = 6
_OF_A_SERVER: Mapping[int, Fields] = {
    3: {},  # get_features
    4: {1: _BOOL},  # get_hosted_tables
    17: {},  # server_system_info
    37: _NUMBERED,  # remove_hosted_tables_update
}
_OF_A_TABLE: Mapping[int, Fields] = {
    5: {},  # table_make_port
    MAKE_VIEW: {1: _Field(is_needed=True), 2: _Field(fields=_CONFIG)},  # table_make_view
    7: {},  # table_schema
    8: {},  # table_size
    29: {},  # table_on_delete
    30: _NUMBERED,  # table_remove_delete
    41: {1: _Field(fields=_CONFIG)},  # table_describe
}
_OF_A_VIEW: Mapping[int, Fields] = {
    10: {1: _UINT, 2: _UINT},  # view_column_paths
    11: {},  # view_delete
    12: {},  # view_dimensions
    13: {},  # view_expression_schema
    14: {},  # view_get_config
    15: {},  # view_schema
    16: {1: _VIEWPORT, 2: _TEXT},  # view_to_arrow
    18: _NUMBERED,  # view_collapse
    19: _NUMBERED,  # view_expand
    20: {1: _TEXT},  # view_get_min_max
    21: {1: _NULL},  # view_on_update
    22: _NUMBERED,  # view_remove_on_update
    23: _NUMBERED,  # view_set_depth
    24: _FORMATTED,  # view_to_columns_string
    25: {1: _VIEWPORT},  # view_to_csv
    26: _FORMATTED,  # view_to_rows_string
    34: {},  # view_on_delete
    35: _NUMBERED,  # view_remove_delete
    36: _FORMATTED,  # view_to_ndjson_string
}
_REQUESTS = {**_OF_A_SERVER, **_OF_A_TABLE, **_OF_A_VIEW}
_VIEW_NOT_FOUND = 1
"""The status by which Perspective's client knows that a view has gone meanwhile."""


@dataclass(frozen=True, slots=True)
class GridRequest:
    """What is known of a message before Perspective reads it.

    Parameters
    ----------
    number
        Of the message.
    entity
        The table or view that it names.
    kind
        The field of the request.
    new_view
        The view that it makes, None for other requests.
    problem
        Why Perspective must not see it, None if it may.
    """

    number: int
    entity: str
    kind: int
    new_view: str | None = None
    problem: str | None = None

    @property
    def is_about_a_view(self) -> bool:
        """Whether `entity` must be a view."""
        return self.kind in _OF_A_VIEW

    def refused(self, why: str) -> bytes:
        """Return the answer that refuses it, as Perspective's client reads it."""
        status = _number(2 << 3 | _NUMBER) + _number(_VIEW_NOT_FOUND) if self.is_about_a_view else b""
        problem = _bytes(1, why.encode()) + status
        return _number(1 << 3 | _NUMBER) + _number(self.number) + _bytes(2, self.entity.encode()) + _bytes(50, problem)


def grid_request(message: bytes) -> GridRequest:
    """Return what a message asks for.

    Raises
    ------
    UsageError
        If it is no request at all.
    """
    number, entity, found = 0, "", list[tuple[int, bytes]]()
    for field, wire, value in _fields(message):
        if field == 1 and isinstance(value, int) and value <= _MOST_NUMBER:
            number = value
        elif field == 2 and wire == _BYTES and isinstance(value, bytes):
            entity = _text(value)
        elif field > 2 and wire == _BYTES and isinstance(value, bytes):
            found.append((field, value))
        else:
            raise _unknown(f"field {field}")
    if len(found) != 1:
        raise _unknown(f"{len(found)} requests")
    [(kind, body)] = found
    if kind not in _REQUESTS:
        return GridRequest(number, entity, kind, problem=f"a page cannot ask for request {kind}")
    try:
        _check(body, _REQUESTS[kind])
    except UsageError as problem:
        return GridRequest(number, entity, kind, problem=problem.message)
    new_view = None
    if kind == MAKE_VIEW:
        new_view = next(_text(value) for field, _, value in _fields(body) if field == 1 and isinstance(value, bytes))
    return GridRequest(number, entity, kind, new_view)


def _check(message: bytes, fields: Fields, *, is_choice: bool = False) -> None:
    seen = set[int]()
    for number, wire, value in _fields(message):
        field = fields.get(number)
        if field is None or field.wire != wire or (number in seen and not field.is_repeated):
            raise _unknown(f"field {number}")
        seen.add(number)
        if isinstance(value, int):
            if value > field.most:
                raise _unknown(f"the number {value}")
        elif wire == _BYTES:
            if field.fields is None:
                _text(value)
            else:
                _check(value, field.fields, is_choice=field.is_choice)
    if is_choice and len(seen) != 1:
        raise _unknown(f"{len(seen)} alternatives")
    for number, field in fields.items():
        if field.is_needed and number not in seen:
            raise _unknown(f"no field {number}")


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, wire type and value of each field."""
    at = 0
    while at < len(message):
        key, at = _read_number(message, at)
        number, wire = key >> 3, key & 7
        if wire == _NUMBER:
            value, at = _read_number(message, at)
            yield number, wire, value
            continue
        if wire == _DOUBLE:
            length = 8
        elif wire == _BYTES:
            length, at = _read_number(message, at)
        else:
            raise _unknown(f"wire type {wire}")
        if length > len(message) - at:
            raise _unknown("the end is missing")
        yield number, wire, message[at : at + length]
        at += length


def _read_number(message: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise _unknown("the end is missing")
        byte, at = message[at], at + 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
    raise _unknown("a number has no end")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _unknown("a text is not UTF-8") from None


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bytes(field: int, value: bytes) -> bytes:
    return _number(field << 3 | _BYTES) + _number(len(value)) + value


def _unknown(what: str) -> UsageError:
    return UsageError(f"the page sent what is no request of a grid: {what}", hint=_HINT)
