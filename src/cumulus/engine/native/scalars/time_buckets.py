"""Dates and timestamps cut to the beginning of a part of the calendar, or of a bucket, in the kernel."""

from __future__ import annotations

from cumulus.catalog.types import Interval, Kind, SqlType
from cumulus.engine.native.kernel.calendar import DAY, civil, first_of, floored, iso_week, iso_year_start, weekday
from cumulus.engine.native.kernel.lanes import Scalar
from cumulus.engine.native.kernel.language import Expr
from cumulus.engine.native.scalars.time_parts import DAY_PARTS, YEARS
from cumulus.engine.native.scalars.time_points import FAR, TimePoints
from cumulus.scalars.calendar import CLOCK_UNITS

_BUCKET_DAY, _BUCKET_MONTH = 10_959, 24_000
"""Buckets of days and time are counted from 3 January 2000, a Monday, those of months from January 2000."""


class TimeBuckets:
    """Writes the cutting of points in time into one function."""

    def __init__(self, points: TimePoints) -> None:
        self._points, self._body = points, points.body

    def truncate(self, part: str, point: Scalar, result: SqlType) -> Scalar | None:
        """Write `date_trunc`; None if there is no code for a part."""
        body = self._body
        if part in CLOCK_UNITS:
            micros = self._points.micros(point)
            unit = CLOCK_UNITS[part]
            return Scalar(result, body.let(floored(body, micros, unit) * unit, "start"), point.null)
        days = self._points.days(point)
        if part in DAY_PARTS:
            start = days
        elif part in ("week", "yearweek"):
            start = days - weekday(body, days)
        elif part == "isoyear":
            start = iso_year_start(body, iso_week(body, days)[0])
        else:
            year, month, day = civil(body, days)
            if part == "month":
                start = days - day + 1
            elif part == "quarter":
                start = first_of(body, year, (month - 1) // 3 * 3 + 1)
            elif part in YEARS:
                year = body.let(year // YEARS[part] * YEARS[part], "year")
                self._points.beyond.append(year < 1)
                start = first_of(body, year)
            else:
                return None
        return Scalar(result, body.let(start * DAY, "start"), point.null)

    def bucket(self, width: Interval, point: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        """Write `time_bucket`; None if there is no code for a width."""
        body, (months, days, micros) = self._body, width
        size = days * DAY + micros
        if (months <= 0 if months else size <= 0) or (months and size) or size >= FAR:
            return None  # Python has the words for it
        is_date = result.kind is Kind.DATE
        if months:
            year, month, _ = civil(body, self._points.days(point))
            index = body.let(year * 12 + month - 1 - _BUCKET_MONTH, "index")
            index = body.let(floored(body, index, months) * months + _BUCKET_MONTH, "index")
            start_year = floored(body, index, 12)
            self._points.beyond.append(start_year < 1)
            start = first_of(body, start_year, index - start_year * 12 + 1)
            return Scalar(result, start if is_date else body.let(start * DAY, "start"), null)
        origin = _BUCKET_DAY * DAY
        since = body.let(self._points.micros(point) - origin, "since")
        moment = body.let(floored(body, since, size) * size + origin, "start")
        found = self._points.timestamp(moment, null, result)
        return Scalar(result, floored(body, moment, DAY), null) if is_date else found
