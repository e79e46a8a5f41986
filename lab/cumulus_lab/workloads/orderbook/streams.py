"""The order stream: limit orders arrive around a wandering price, trade in part, and are taken back."""

from __future__ import annotations

import random
from pathlib import Path

from cumulus.catalog import DELETE, INSERT, Event, Row
from cumulus.errors import UsageError
from cumulus.workloads import changes
from cumulus_lab.workloads.orderbook.schema import BENCHMARK, TABLES

BROKERS = 10
_OPENING = 1_000_000
"""The first price, in ten-thousandths of a dollar."""

_STEP = 100
_SPREAD = 1_500
_PARTIAL = 0.3
"""Share of the departures that are trades of a part: the order stands again with fewer shares."""


def events(count: int, *, book: int = 500, seed: int = 0) -> list[Event]:
    """Return `count` events of one day, insertions and deletions together; the same parameters give the same events.

    Parameters
    ----------
    book
        Orders that stand at once, at least 1; fewer until so many have come. From then on every second event takes
        one away, whole or (a deletion, then an insertion) in part.

    Raises
    ------
    UsageError
        `book` is not positive.

    Examples
    --------
    >>> told = events(100, book=20)
    >>> max(sum(event.sign for event in told[:end]) for end in range(100))
    20
    """
    if book < 1:
        raise UsageError(f"book is {book}", hint="At least one order must be able to stand.")
    choose = random.Random(seed)
    standing: list[tuple[str, Row]] = []
    told: list[Event] = []
    price, time, order = _OPENING, 0, 0
    while len(told) < count:
        time += choose.randint(1, 2_000)
        price += choose.randint(-_STEP, _STEP)
        if len(standing) == book:
            place = choose.randrange(book)
            standing[place], standing[-1] = standing[-1], standing[place]
            side, row = standing.pop()
            told.append(Event(DELETE, side, row))
            if row[3] > 1 and choose.random() < _PARTIAL:
                rest = (*row[:3], choose.randrange(1, row[3]), row[4])
                standing.append((side, rest))
                told.append(Event(INSERT, side, rest))
        else:
            order += 1
            side = choose.choice(("bids", "asks"))
            away = round(choose.expovariate(1 / _SPREAD)) * (-1 if side == "bids" else 1)
            standing.append((side, (time, order, choose.randrange(BROKERS), 100 * choose.randint(1, 20), price + away)))
            told.append(Event(INSERT, *standing[-1]))
    return told[:count]


def write(folder: Path, count: int, *, batch: int, book: int = 500, seed: int = 0) -> int:
    """Write a stream as an input folder, `batch` events an epoch; return the number of epochs."""
    schemas = {name: BENCHMARK.schema(name) for name in TABLES}
    return changes.write(folder, changes.epochs(events(count, book=book, seed=seed), schemas, batch))
