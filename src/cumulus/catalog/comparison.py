"""Two bags of rows compared: which rows differ, paired by key, floats as far as they may differ."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from cumulus.catalog.events import Row

RELATIVE = 1e-9
"""Floats agree when they differ by at most this share of their magnitude (docs/architecture.md, "Semantics")."""

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowMismatch:
    """A difference between a stored and a recomputed row.

    Parameters
    ----------
    key
        The values that tell rows apart: those of the keys among the columns; of a bag the whole row.
    stored, recomputed
        The row as it is kept and as it should be; None where there is no such row.
    """

    key: Key
    stored: Row | None
    recomputed: Row | None

    def __str__(self) -> str:
        if self.stored is None:
            return f"missing: {row_text(self.recomputed)}"
        if self.recomputed is None:
            return f"should not be there: {row_text(self.stored)}"
        return f"at {row_text(self.key)}: stored {row_text(self.stored)}, recomputed {row_text(self.recomputed)}"


def row_text(row: Row | None) -> str:
    """Return a row for people.

    Examples
    --------
    >>> row_text((1, None, "x"))
    "(1, NULL, 'x')"
    """
    if row is None:
        return "nothing"
    parts = ("NULL" if item is None else repr(item) if isinstance(item, str) else str(item) for item in row)
    return f"({', '.join(parts)})"


def compare_rows(
    stored: Iterable[Row],
    recomputed: Iterable[Row],
    *,
    key: Sequence[int] | None = None,
    magnitudes: Mapping[int, float] | None = None,
    absolute: float = 0.0,
) -> list[RowMismatch]:
    """Compare two bags of rows; return what differs, in the order of the recomputed rows, or nothing.

    Parameters
    ----------
    key
        Positions that tell rows apart; None: all of them.
    magnitudes
        Position → Σ|x| of the summed values, for sums of floats whose terms cancel; elsewhere the magnitude of a float
        is the larger of the two.
    absolute
        How far floats may differ whatever their magnitude.

    Examples
    --------
    >>> [str(each) for each in compare_rows([(1, 2), (2, 0.3)], [(1, 3), (2, 0.1 + 0.2)], key=[0])]
    ['at (1): stored (1, 2), recomputed (1, 3)']
    >>> compare_rows([(1, 0)], [(1, 0.0)])
    []
    """
    sides = [*recomputed], [*stored]
    if key is None:  # floats differ a little, so they do not tell the rows of a bag apart
        width = max((len(row) for rows in sides for row in rows), default=0)
        loose = {place for rows in sides for row in rows for place, item in enumerate(row) if isinstance(item, float)}
        places = [place for place in range(width) if place not in loose]
    else:
        places = [*key]
    expected: dict[Key, list[Row]] = defaultdict(list)
    kept: dict[Key, list[Row]] = defaultdict(list)
    for rows, into in zip(sides, (expected, kept), strict=True):
        for row in rows:
            into[tuple([_plain(row[place]) for place in places if place < len(row)])].append(row)

    def agree(one: Row, other: Row) -> bool:
        return len(one) == len(other) and all(
            _equal(a, b, sizes.get(place, 0.0), absolute) for place, (a, b) in enumerate(zip(one, other, strict=True))
        )

    sizes = magnitudes or {}
    witnesses = []
    for at in [*expected, *(each for each in kept if each not in expected)]:
        missing, extra = _unmatched(expected.get(at, []), kept.get(at, []), agree)
        pairs = min(len(missing), len(extra))
        shown = extra[0] if extra else missing[0] if missing else ()
        name = shown if key is None else tuple(shown[place] for place in key) if shown else ()
        witnesses += [RowMismatch(name, extra[i], missing[i]) for i in range(pairs)]
        witnesses += [RowMismatch(name, None, row) for row in missing[pairs:]]
        witnesses += [RowMismatch(name, row, None) for row in extra[pairs:]]
    return witnesses


def _plain(value: Any) -> Any:
    """Return a value that is equal and hashes equal where SQL says so: NaN is NaN, TRUE is not 1."""
    if isinstance(value, float) and value != value:
        return "NaN", float
    if isinstance(value, bool):
        return value, bool
    return value


def _unmatched(wanted: list[Row], given: list[Row], agree: Callable[[Row, Row], bool]) -> tuple[list[Row], list[Row]]:
    """Match rows that agree, equal ones first; return what is left on either side."""
    if wanted == given:
        return [], []
    ours, theirs = Counter(map(_plain_row, wanted)), Counter(map(_plain_row, given))
    left = _without(given, ours)
    missing = []
    for row in _without(wanted, theirs):
        match = next((place for place, other in enumerate(left) if agree(row, other)), None)
        if match is None:
            missing.append(row)
        else:
            del left[match]
    return missing, left


def _without(rows: list[Row], others: Counter[Key]) -> list[Row]:
    """Return rows without those that are among others, each as often as it is there."""
    left = others.copy()
    kept = []
    for row in rows:
        plain = _plain_row(row)
        if left[plain] > 0:
            left[plain] -= 1
        else:
            kept.append(row)
    return kept


def _plain_row(row: Row) -> Key:
    return tuple(map(_plain, row))


def _equal(a: Any, b: Any, magnitude: float, absolute: float) -> bool:
    if a is None or b is None:
        return a is b
    numbers = (int, float, Decimal)
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, numbers) and isinstance(b, numbers)):
            return False
        x, y = float(a), float(b)
        if not (math.isfinite(x) and math.isfinite(y)):
            return x == y or (math.isnan(x) and math.isnan(y))
        return abs(x - y) <= max(RELATIVE * max(abs(x), abs(y), magnitude), absolute)
    return bool(_plain(a) == _plain(b))
