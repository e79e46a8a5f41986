"""Values as change logs encode them: times and dates as numbers, decimals as bytes, by the names that Debezium gives.

A message may carry its schema, which says how each column is encoded (`encodings_in`). Where it has none, the source
does: ``times=`` and ``decimals=`` (`encodings_of`).
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT, Interval, Kind, SqlType
from cumulus.epochs.folder_source import TIMES, FolderSource

UNITS = {"days": 86_400_000_000, "seconds": 1_000_000, "millis": 1_000, "micros": 1}
"""Microseconds in each unit of time; a nanosecond is less than one."""

_EPOCH = dt.datetime(1970, 1, 1)
_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_MOMENTS = {
    f"{_DEBEZIUM}Date": "days",
    f"{_CONNECT}Date": "days",
    f"{_DEBEZIUM}Timestamp": "millis",
    f"{_CONNECT}Timestamp": "millis",
    f"{_DEBEZIUM}MicroTimestamp": "micros",
    f"{_DEBEZIUM}NanoTimestamp": "nanos",
}
_CLOCKS = {
    f"{_DEBEZIUM}Time": "millis",
    f"{_CONNECT}Time": "millis",
    f"{_DEBEZIUM}MicroTime": "micros",
    f"{_DEBEZIUM}NanoTime": "nanos",
}
_SPANS = {f"{_DEBEZIUM}MicroDuration": "micros", f"{_DEBEZIUM}NanoDuration": "nanos"}
_DECIMAL = f"{_CONNECT}Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_INTERVAL = f"{_DEBEZIUM}Interval"


class Encoding(NamedTuple):
    """How the values of a column are written; `what` is moment, clock, span, interval, unscaled or scaled.

    `unit` is that of a number of time, `scale` that of a decimal's bytes. A value that is not written so is what it is.
    """

    what: str
    unit: str = ""
    scale: int = 0

    def decode(self, value: Any, wanted: SqlType) -> Any:
        """Return one value as Python's, for a column of type `wanted`.

        Raises
        ------
        ValueError, TypeError, ArithmeticError
            If it cannot be one.
        """
        if isinstance(value, Decimal) and not value:
            value = 0  # JSON's -0
        match self.what:
            case "unscaled" if isinstance(value, str):
                return _unscaled(value, self.scale)
            case "scaled" if isinstance(value, Mapping):
                digits, scale = value.get("value"), value.get("scale")
                if not isinstance(digits, str) or not isinstance(scale, int):
                    raise ValueError(f"value {digits!r} with scale {scale!r} is not a decimal")
                return _unscaled(digits, scale)
            case "interval" if isinstance(value, str):
                return _interval(value)
            case "moment" | "clock" | "span" if isinstance(value, int) and not isinstance(value, bool):
                return self._time(value, wanted)
            case _:
                return value

    def _time(self, value: int, wanted: SqlType) -> Any:
        micros = _micros(value, self.unit)
        if self.what == "moment":
            try:
                moment = _EPOCH + dt.timedelta(microseconds=micros)
            except OverflowError:
                raise ValueError(f"{value} {self.unit} since 1970 is beyond the years 1 to 9999") from None
            if wanted.kind is Kind.VARCHAR:
                return (moment.date() if self.unit == "days" else moment).isoformat()
            return moment
        if self.what == "clock" and wanted.kind is Kind.VARCHAR:
            if not 0 <= micros <= UNITS["days"]:
                raise ValueError(f"{value} {self.unit} is no time of a day")
            seconds, rest = divmod(micros, 1_000_000)
            text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            return f"{text}.{rest:06}" if rest else text
        return Interval(0, 0, micros)

    def parsed_type(self) -> pa.DataType:
        """Return the Arrow type as which JSON has such values."""
        match self.what:
            case "moment" | "clock" | "span":
                return pa.int64()
            case "scaled":
                return pa.struct({"scale": pa.int32(), "value": pa.string()})
            case _:
                return pa.string()

    def decoded(self, values: pa.Array) -> pa.Array | None:
        """Return a column of encoded values as one of moments or decimals, None if each must be looked at.

        Raises
        ------
        pyarrow.ArrowException, ValueError, ArithmeticError
            If each must be looked at, too.
        """
        if self.what == "moment" and pa.types.is_integer(values.type):
            if self.unit == "days":
                return values.cast(pa.int32()).cast(pa.date32())
            return values.cast(pa.timestamp({"seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"}[self.unit]))
        if self.what == "unscaled" and pa.types.is_string(values.type):
            numbers = [None if text is None else _unscaled(text, self.scale) for text in values.to_pylist()]
            return pa.array(numbers, pa.decimal128(38, max(self.scale, 0)))
        return None


def _micros(value: int, unit: str) -> int:
    if unit == "nanos":
        if value % 1000:
            raise ValueError(f"{value} nanos is more precise than a microsecond")
        return value // 1000
    return value * UNITS[unit]


_LONGEST = 10_000
"""Characters of a decimal in base64, at most: one of 38 digits has 24."""


def _unscaled(text: str, scale: int) -> Decimal:
    if len(text) > _LONGEST or abs(scale) > _LONGEST:
        raise ValueError(f"{text[:40]!r} with scale {scale} is too long for a decimal")
    try:
        digits = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    except ValueError:
        raise ValueError(f"{text!r} is not a decimal in base64") from None
    return Decimal(digits).scaleb(-scale, context=EXACT)


_ISO_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,9}))?S)?)?"
)


def _interval(text: str) -> Interval:
    match = _ISO_INTERVAL.fullmatch(text)
    if match is None or text[-1] in "PT":
        raise ValueError(f"{text!r} is not an interval such as P1Y2M3DT4H5M6.7S")
    years, months, days, hours, minutes = (int(match[at] or 0) for at in range(1, 6))
    parts = (match[8] or "").ljust(9, "0")
    if parts[6:] != "000":
        raise ValueError(f"{text} is more precise than a microsecond")
    seconds = int(match[7] or 0) * 1_000_000 + int(parts[:6])
    micros = (hours * 3600 + minutes * 60) * 1_000_000 + (-seconds if match[6] else seconds)
    return Interval(years * 12 + months, days, micros)


def encoding_named(name: str, parameters: Mapping[str, Any], wanted: SqlType) -> Encoding | None:
    """Return how a column of type `wanted` is encoded by the schema of that name; None if its values are what they are.

    Numbers of time for a column of numbers stay numbers.
    """
    if name == _DECIMAL:
        return Encoding("unscaled", scale=int(parameters.get("scale", 0)))
    if name == _VARIABLE:
        return Encoding("scaled")
    if name == _INTERVAL and wanted.kind is Kind.INTERVAL:
        return Encoding("interval")
    if name in _MOMENTS and (wanted.is_temporal or wanted.kind is Kind.VARCHAR):
        return Encoding("moment", _MOMENTS[name])
    if name in _CLOCKS and wanted.kind in (Kind.VARCHAR, Kind.INTERVAL):
        return Encoding("clock", _CLOCKS[name])
    if name in _SPANS and wanted.kind is Kind.INTERVAL:
        return Encoding("span", _SPANS[name])
    return None


Encodings = tuple[Encoding | None, ...]
"""Of the columns of a table, in its order."""


def encodings_of(source: FolderSource, relation: Relation) -> Encodings:
    """Return how values are encoded where messages do not say it: as the options of the source do.

    A number for a DATE of a change log is in days since 1970, which is what Debezium writes in all its modes.
    """

    def encoding(wanted: SqlType) -> Encoding | None:
        if wanted.kind is Kind.DATE and (source.times or source.format == "debezium"):
            return Encoding("moment", "days")
        if wanted.is_temporal and source.times:
            return Encoding("moment", source.times)
        if wanted.kind is Kind.INTERVAL and source.format == "debezium":
            return Encoding("interval")
        if wanted.kind is Kind.DECIMAL and source.decimals == "base64":
            return Encoding("unscaled", scale=wanted.scale)
        return None

    types = [column.type for column in relation.columns]
    return tuple(None if wanted is None else encoding(wanted) for wanted in types)


def encodings_in(schema: Any, relation: Relation, names: Sequence[str | None], given: Encodings) -> Encodings:
    """Return how values are encoded by the schema of a Debezium message; as `given` where it does not say it."""
    fields: dict[str, Mapping[str, Any]] = {}
    for side in _fields(schema):
        if side.get("field") in ("before", "after"):
            for each in _fields(side):
                fields.setdefault(str(each.get("field")), each)
    found = []
    for column, name, other in zip(relation.columns, names, given, strict=True):
        field = fields.get(name or "", {})
        parameters = field.get("parameters")
        known = (
            encoding_named(str(field["name"]), parameters if isinstance(parameters, Mapping) else {}, column.type)
            if column.type is not None and field.get("name")
            else None
        )
        found.append(other if known is None else known)
    return tuple(found)


def _fields(schema: Any) -> list[Mapping[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    return [each for each in fields if isinstance(each, Mapping)] if isinstance(fields, list) else []


def way_out(value: Any, wanted: SqlType, source: FolderSource) -> str:
    """Return what to say with an error about a value that looks encoded; nothing if it does not."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if wanted.is_temporal and wanted.kind is not Kind.DATE and is_number and not source.times:
        return f" (a number of time? say times=UNIT in --from: {', '.join(TIMES)})"
    looks_packed = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9+/]{2,}={0,2}", value) and len(value) % 4 == 0
    if wanted.kind is Kind.DECIMAL and looks_packed and source.format == "debezium" and not source.decimals:
        return " (bytes in base64? say decimals=base64 in --from)"
    return ""
