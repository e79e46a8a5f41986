"""The rows of a table that come to one switch, where several switches take the table.

A row comes to the switch whose number is the hash of one of its columns, modulo the number of switches. So all rows
with one value of the column meet at one switch, and it checks what can be checked among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.events import OP_COLUMN, TRUNCATE
from cumulus.catalog.partition import buckets_of
from cumulus.epochs.intake.reading import Reading


@dataclass(frozen=True, slots=True)
class TableShare:
    """The share of one switch in a table.

    Parameters
    ----------
    column
        By whose hash the rows are divided.
    number
        Of the share, which is that of the switch.
    of
        How many shares there are.
    """

    column: str
    number: int
    of: int

    @property
    def label(self) -> str:
        """The share as a text; `of_label` reads it back.

        Examples
        --------
        >>> TableShare("oid", 0, 2).label
        'oid 0/2'
        """
        return f"{self.column} {self.number}/{self.of}"

    @classmethod
    def of_label(cls, label: str) -> TableShare:
        """Return the share of a label."""
        column, _, place = label.rpartition(" ")
        number, _, of = place.partition("/")
        return cls(column, int(number), int(of))

    def has(self, rows: pa.Table) -> pa.Array:
        """Return for each row of the table whether it is in this share."""
        return pc.equal(buckets_of(rows.column(self.column), self.of), self.number)


def rows_of_shares(rows: pa.Table, column: str, of: int) -> dict[int, pa.Table]:
    """Return the rows of each share that has some, by its number.

    Examples
    --------
    >>> found = rows_of_shares(pa.table({"a": [1, 2, 3, 1]}), "a", 2)
    >>> {number: mine["a"].to_pylist() for number, mine in found.items()}
    {0: [2], 1: [1, 3, 1]}
    """
    numbers = buckets_of(rows.column(column), of)
    there = sorted(pc.unique(numbers).to_pylist())
    return {number: rows if len(there) == 1 else rows.filter(pc.equal(numbers, number)) for number in there}


def shares_of_reading(reading: Reading, share: TableShare | None) -> tuple[Reading, Reading]:
    """Return what a switch passes to gates of a file that it has read, and what its own intake takes.

    Each switch of a table reads all of its files. What is no row of the table is told by the first of them. A
    truncation takes rows at all of them, so each intake gets it; it counts, and goes to the gates, from one alone.
    """
    if share is None:
        return reading, reading
    own = share.has(reading.rows)
    mine = replace(reading, rows=reading.rows.filter(own))
    if share.number:
        mine = replace(mine, rejected=(), ignored={})
    foreign = pc.and_(pc.equal(reading.rows.column(OP_COLUMN), TRUNCATE), pc.invert(own))
    count = pc.sum(foreign).as_py() or 0
    if not count:
        return mine, mine
    return mine, replace(mine, rows=reading.rows.filter(pc.or_(own, foreign)), uncounted=count)


def readings_of_switch(
    readings: Iterable[Reading], shares: Mapping[str, TableShare]
) -> Iterator[tuple[Reading, Reading]]:
    """Yield what a switch takes of files: for gates, and for its intake; `shares` are of tables that it shares."""
    for reading in readings:
        yield shares_of_reading(reading, shares.get(reading.relation))
