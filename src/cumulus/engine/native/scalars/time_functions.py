"""Functions, arithmetic and casts of dates, timestamps and intervals in the kernel; what is not here is Python's.

What they mean stands in `cumulus.scalars.calendar`, `scalar_moments` and `scalar_time`: this is the same in
words, failures included. Which part of a time is wanted, how wide a bucket is, must stand in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from cumulus.catalog.types import Interval, Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Scalar, any_null, bits_of
from cumulus.engine.native.kernel.language import I64, Expr
from cumulus.engine.native.scalars.interval_arithmetic import INTERVAL_UNITS, IntervalArithmetic
from cumulus.engine.native.scalars.time_buckets import TimeBuckets
from cumulus.engine.native.scalars.time_parts import TimeParts, part_of
from cumulus.engine.native.scalars.time_points import POINTS, TimePoints, is_point


class TimeFunctions:
    """Writes what is done with times into one function."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._points = TimePoints(body)
        self._parts = TimeParts(self._points)
        self._buckets = TimeBuckets(self._points)
        self._intervals = IntervalArithmetic(self._points)

    def cast(self, scalar: Scalar, target: SqlType) -> Scalar | None:
        """Write a cast among dates and timestamps; None if it is another one."""
        if not is_point(scalar) or target.kind not in POINTS:
            return None
        if target.kind is Kind.DATE:
            return Scalar(target, self._points.days(scalar), scalar.null)
        return Scalar(target, self._body.let(self._points.micros(scalar), "micros"), scalar.null)

    def comparable(self, left: Scalar, right: Scalar) -> tuple[Expr, Expr] | None:
        """Return two points, or two intervals of which no part is too long, as numbers in the same order."""
        if is_point(left) and is_point(right):
            if left.type.kind is right.type.kind:
                return left.value, right.value
            return self._points.micros(left), self._points.micros(right)
        if left.type.kind is right.type.kind is Kind.INTERVAL:
            found = [self._intervals.length(side) for side in (left, right)]
            if found[0] is not None and found[1] is not None:
                return found[0], found[1]
        return None

    def function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> tuple[Scalar, Expr | None] | None:
        """Write a function of times, if there is code for it with such arguments.

        Also returned is where the value means nothing, if there is such a place: Python knows what it is there.
        """
        self._points.beyond = []
        found = self._function(name, codes, result)
        if found is None or not self._points.beyond:
            return None if found is None else (found, None)
        return found, self._body.let(found.there_and(reduce(or_, self._points.beyond)), "beyond")

    def _function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> Scalar | None:
        if any(code.type.kind is Kind.NULL for code in codes):
            return None
        if len(codes) == 1:
            return self._of_one(name, codes[0], result)
        null = any_null(codes)
        if len(codes) == 2:
            return self._of_two(name, codes[0], codes[1], null, result)
        if name in ("date_diff", "date_sub"):
            count = self._parts.boundaries if name == "date_diff" else self._parts.units_between
            found = count(part_of(codes[0]), codes[1], codes[2])
            return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
        return None

    def _of_one(self, name: str, code: Scalar, result: SqlType) -> Scalar | None:
        if code.type.is_integer and code.value.type is I64:
            if name in ("make_timestamp", "epoch_ms"):
                return self._from_number(1 if name == "make_timestamp" else 1000, code, result)
            return self._intervals.of_units(name, code, result) if name in INTERVAL_UNITS else None
        if code.type.kind is Kind.INTERVAL:
            found = self._intervals.extract(name, code)
        elif not is_point(code):
            return None
        elif name == "last_day":
            found = self._parts.last_day(code)
        elif name in ("epoch", "julian"):
            found = self._parts.as_float(name, code)
        else:
            found = self._parts.epoch(name, code) if name.startswith("epoch_") else self._parts.extract(name, code)
        return None if found is None else Scalar(result, self._body.let(found, name), code.null, bits_of(result))

    def _of_two(self, name: str, left: Scalar, right: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        match name:
            case "add" | "sub":
                return self._intervals.add(name, left, right, null, result)
            case "time_bucket" if isinstance(left.known, Interval):
                return self._buckets.bucket(left.known, right, null, result)
            case "date_trunc" if is_point(right):
                return self._buckets.truncate(part_of(left), right, result)
            case "date_part" if is_point(right):
                found = self._parts.extract(part_of(left), right)
                return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
            case _:
                return None

    def _from_number(self, unit: int, number: Scalar, result: SqlType) -> Scalar:
        micros, overflow = self._body.checked("mul", number.value, unit, "micros")
        self._points.beyond.append(overflow)
        return self._points.timestamp(micros, number.null, result)
