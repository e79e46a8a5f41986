"""Arrow columns as JSON: what each type looks like, made a column at a time.

A number that a double of JavaScript would change is a text: a whole number beyond ±(2^53 - 1), and every DECIMAL with
digits behind the point, which so keeps its zeros. NaN and the infinities are texts, as are dates, times and intervals.
Each of these texts is taken back as a value of its column.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import interval_of
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.text_values import span_as_text

SAFE = (1 << 53) - 1
"""The largest whole number of which a double has all digits, and those of its neighbours."""
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def rows_as_json(batch: pa.RecordBatch, before: str, after: str) -> bytes:
    """Return rows as JSON objects, each between two texts.

    Examples
    --------
    >>> batch = pa.record_batch({"a": [1, None], "t": ['say "x"', "y"]})
    >>> rows_as_json(batch, "", ";")
    b'{"a":1,"t":"say \\\\"x\\\\""};{"a":null,"t":"y"};'
    """
    if not batch.num_rows:
        return b""
    pieces: list[Any] = []
    for place, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        start = before + "{" if place == 0 else ","
        pieces += [f"{start}{json.dumps(name, ensure_ascii=False)}:", json_texts(column)]
    joined = pc.binary_join_element_wise(
        *pieces, "}" + after, "", null_handling="replace", null_replacement="null"
    ).cast(pa.string())
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return bytes(memoryview(joined.buffers()[2])[ends[0] : ends[-1]])


def json_texts(array: pa.Array) -> pa.Array:
    """Return the values of a column as JSON; NULL stays NULL."""
    array = decoded(array)
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return _whole_numbers(array)
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_decimal(kind):
        return _quoted(decimal_texts(array))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _texts(array)
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(array.cast(pa.string()), " ", "T"))
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quoted(array.cast(pa.string()))
    return pa.array([None if value is None else json_text(value) for value in array.to_pylist()], pa.string())


def json_text(value: Any) -> str:
    """Return any value that Arrow hands out as JSON, by the same rules."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= SAFE else str(value)
    if isinstance(value, float):
        return value if np.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")
    if isinstance(value, Decimal):
        is_whole = value.as_tuple().exponent == 0 and abs(value) <= SAFE
        return int(value) if is_whole else f"{value:f}"
    if isinstance(value, pa.MonthDayNano):
        return span_as_text(interval_of(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _whole_numbers(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    if pa.types.is_integer(array.type) and array.type.bit_width < 64:
        return texts
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is None or (bounds["min"] >= -SAFE and bounds["max"] <= SAFE):
        return texts
    numbers = array.cast(pa.decimal128(38, 0)) if pa.types.is_integer(array.type) else array
    limit = pa.scalar(Decimal(SAFE), numbers.type)
    is_long = pc.or_(pc.greater(numbers, limit), pc.less(numbers, pa.scalar(Decimal(-SAFE), numbers.type)))
    return pc.if_else(is_long, _quoted(texts), texts)


def _floats(array: pa.Array) -> pa.Array:
    if array.type == pa.float16():
        array = array.cast(pa.float32())
    texts = array.cast(pa.string())
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return texts
    for told, shown in (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, told), shown, texts)
    return texts


def decimal_texts(array: pa.Array) -> pa.Array:
    """Return decimals without exponents."""
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
    return texts


def _texts(array: pa.Array) -> pa.Array:
    array = array.cast(pa.string())
    if pc.any(pc.match_substring_regex(array, r'[\x00-\x1f"\\]')).as_py():
        for plain, escaped in _ESCAPES:
            array = pc.replace_substring(array, plain, escaped)
        if pc.any(pc.match_substring_regex(array, r"[\x00-\x1f]")).as_py():
            values = array.to_pylist()
            array = pa.array([None if text is None else _without_controls(text) for text in values], pa.string())
    return _quoted(array)


def _without_controls(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if char < " " else char for char in text)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
