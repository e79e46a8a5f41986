"""The extreme values of every SQL type, as rows have them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import EXACT

UTC = dt.UTC
INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_TINY, _LARGE, _INF, _NAN = 5e-324, 1.7976931348623157e308, float("inf"), float("nan")
_REAL_TINY, _REAL_LARGE = 1.401298464324817e-45, 3.4028234663852886e38


def _integers(bits: int) -> list[int]:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    inner = [] if bits < 128 else [-(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 64), (1 << 64) - 1, least + (1 << 64)]
    return [least, least + 1, -1, 0, 1, most - 1, most, *inner]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    return [Decimal(units).scaleb(-scale, EXACT) for units in (-most, 1 - most, -1, 0, 1, most - 1, most)]


EXTREMES: dict[str, list[Any]] = {
    **{name: _integers(bits) for name, bits in INTEGERS.items()},
    "DECIMAL(4,1)": _decimals(4, 1),
    "DECIMAL(18,3)": _decimals(18, 3),
    "DECIMAL(19,0)": [*_decimals(19, 0), Decimal(-(1 << 63))],
    "DECIMAL(38,10)": _decimals(38, 10),
    "DECIMAL(38,0)": [*_decimals(38, 0), Decimal(-(1 << 63)), Decimal(1 << 63)],
    "REAL": [-_INF, -_REAL_LARGE, -_REAL_TINY, -0.0, _REAL_TINY, 1.0, _REAL_LARGE, _INF, _NAN],
    "DOUBLE": [-_INF, -_LARGE, -_TINY, -0.0, _TINY, 1.0, _LARGE, _INF, _NAN, -9223372036854775808.0],
    "BOOLEAN": [False, True],
    "VARCHAR": ["", " ", "\x7f", "a", "z" * 300, "ÿ", "\U0010ffff"],
    "DATE": [dt.date.min, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "TIMESTAMP": [dt.datetime.min, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime.max],
    "TIMESTAMPTZ": [
        dt.datetime(1, 1, 2, tzinfo=UTC),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}
"""Type → values at its ends and around 0, none of them NULL."""
