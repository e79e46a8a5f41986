"""TPC-H as a stream: orders arrive with their lineitems, the oldest leave again.

Every row gets a time, measured in arriving orders; the stream is all insertions and deletions sorted by time and cut
into epochs. Orders are taken in blocks of the generated files, shuffled within a block, so memory holds a few blocks
whatever the scale. Where a query reads neither orders nor lineitems, the rows of partsupp take the orders' place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog import Event
from cumulus.errors import InputError, UsageError
from cumulus.workloads import changes
from cumulus.workloads.tpch.schema import TABLES, query_columns
from cumulus_lab.workloads.tpch.table_reader import TableReader

ARRIVALS = ("parents_first", "random")
"""How rows come: the small tables, then each order before its lineitems; or everything anywhere."""

BLOCK = 16_384
"""Orders that are shuffled together."""

_SPREAD = 16.0
"""Parents first: an order's lineitems come while this many further orders do."""

_MOST_DELETES = 0.4

Times = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """A stream, not yet read; made by `stream`, which describes the parameters."""

    folder: Path
    query: str
    batch: int
    deletes: float
    window: int | None
    seed: int
    arrival: str
    columns: str

    @cached_property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Table → columns of the stream, parents before children."""
        return query_columns(self.query, self.columns)

    @cached_property
    def paced(self) -> tuple[str, ...]:
        """Tables of the stream whose rows come and go: orders and lineitems if the query reads one, else partsupp."""
        return tuple(name for name in ("orders", "lineitem") if name in self.tables) or ("partsupp",)

    @cached_property
    def line_counts(self) -> Places:
        """Lineitems of each order, in the order of the files; zeros for the rows of partsupp in the orders' place."""
        if self.paced == ("partsupp",):
            return np.zeros(TableReader(self.folder, "partsupp", ("ps_partkey",)).count, np.int64)
        keys = TableReader(self.folder, "lineitem", ("l_orderkey",))
        order = keys.take(keys.count)["l_orderkey"].to_numpy()
        starts = np.flatnonzero(np.diff(order, prepend=order[0] - 1))
        if np.any(np.diff(order) < 0):
            raise InputError(
                f"{self.folder / 'lineitem.parquet'} is not sorted by order", hint="Use tpchgen-cli's own files."
            )
        return np.diff(starts, append=len(order)).astype(np.int64)

    def epochs(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the changes of each epoch (module `changes`): `batch` events, the last epoch the rest.

        A table is in every epoch up to the last that changes it.
        """
        yield from _Cutter(self).epochs()

    def events(self) -> Iterator[list[Event]]:
        """Yield the events of each epoch, in order."""
        return changes.events(self.epochs(), {})

    def write(self, folder: Path) -> int:
        """Write the stream as an input folder; return the number of epochs."""
        return changes.write(folder, self.epochs())

    def final_tables(self, epoch: int | None = None) -> dict[str, pa.Table]:
        """Return the tables as they are after `epoch` (from 0; the last one if None), for the oracle.

        All rows are held in memory.
        """
        upto = (tables for number, tables in enumerate(self.epochs()) if epoch is None or number <= epoch)
        return changes.replay(upto, {name: TABLES[name].key for name in self.tables})


def stream(
    folder: Path,
    *,
    query: str,
    batch: int,
    deletes: float = 0.1,
    window: int | None = None,
    seed: int = 0,
    arrival: str = "parents_first",
    columns: str = "all",
) -> Stream:
    """Return a stream of the tables that `query` reads; the same parameters give the same stream, bit for bit.

    Parameters
    ----------
    folder
        Made by `generate`.
    batch
        Events in an epoch, over all tables together.
    deletes
        Share of deletions among the events of orders and lineitems (or of partsupp), 0 to 0.4, evenly over the stream:
        the oldest orders leave, their lineitems first.
    window
        If given, `deletes` does not count: a new order pushes out the one that came `window` orders before it (later
        if some of its rows are still to come).
    arrival
        One of `ARRIVALS`. With ``random``, children may come long before their parents; deletions still follow all
        insertions of their order.
    columns
        One of `COLUMNS`.

    Raises
    ------
    UsageError
        A parameter out of its range.
    """
    if batch < 1:
        raise UsageError(f"batch is {batch}", hint="An epoch needs at least one event.")
    if not 0 <= deletes <= _MOST_DELETES:
        raise UsageError(f"deletes is {deletes}", hint=f"It can be 0 to {_MOST_DELETES}.")
    if window is not None and window < 1:
        raise UsageError(f"window is {window}", hint="The working set needs at least one order.")
    if seed < 0:
        raise UsageError(f"seed is {seed}", hint="It can be any number from 0.")
    if arrival not in ARRIVALS:
        raise UsageError(f"arrival is {arrival!r}", hint=f"It can be {', '.join(ARRIVALS)}.")
    return Stream(folder, query, batch, deletes, window, seed, arrival, columns)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Changes of one table by rising time."""

    times: Times
    changes: pa.Table

    def split(self, time: float) -> tuple[_Piece, _Piece]:
        """Return what is before `time`, and the rest."""
        place = int(np.searchsorted(self.times, time))
        return (
            _Piece(self.times[:place], self.changes.slice(0, place)),
            _Piece(self.times[place:], self.changes.slice(place)),
        )


def _piece(times: Times, op: str, table: pa.Table) -> _Piece:
    order = np.argsort(times, kind="stable")
    told = table.take(pa.array(order)).add_column(0, "op", pa.repeat(pa.scalar(op), len(order)))
    return _Piece(times[order], told)


class _Clock:
    """When rows come and go, in arriving orders since the beginning."""

    def __init__(self, plan: Stream) -> None:
        self.order_count = len(plan.line_counts)
        self.parents_first = plan.arrival == "parents_first"
        self.spread = min(_SPREAD if self.parents_first else float(BLOCK), self.order_count / 4)
        self._window = plan.window
        self._rate = plan.deletes / (1 - plan.deletes)
        self._seed = plan.seed

    def shuffled(self, block: int) -> tuple[Places, np.random.Generator]:
        """Return the arrival ranks of the orders of a block, and the generator for the rest of its choices."""
        random = np.random.default_rng([self._seed, 1, block])
        start = block * BLOCK
        return start + random.permutation(min(BLOCK, self.order_count - start)), random

    def small_table(self, rank: int, count: int) -> Times:
        """Return the times of the rows of the `rank`-th small table."""
        if self.parents_first:
            return np.full(count, rank - 100.0)
        return np.random.default_rng([self._seed, 0, rank]).random(count) * (self.order_count + self.spread)

    def departures(self, ranks: Times) -> Times:
        """Return when orders leave, after all their rows have come; those from `order_count` on stay."""
        if self._window is not None:
            return ranks + max(float(self._window), self.spread)
        if not self._rate:
            return np.full_like(ranks, np.inf)
        return self.spread + (ranks + 1) / self._rate * (1 - self.spread / self.order_count)


class _Cutter:
    """Merges the pieces of a stream by time and cuts the epochs."""

    def __init__(self, plan: Stream) -> None:
        self._plan = plan
        self._clock = _Clock(plan)
        self._tables = plan.tables
        self._pending: dict[str, list[_Piece]] = {name: [] for name in self._tables}
        self._ready: dict[str, list[pa.Table]] = {name: [] for name in self._tables}
        self._left = {}
        self._told = 0
        self._epoch = 0
        ends = np.cumsum(plan.line_counts)
        self._line_ends = np.concatenate([[0], ends])
        for rank, name in enumerate(name for name in self._tables if name not in plan.paced):
            reader = TableReader(plan.folder, name, self._tables[name])
            self._left[name] = reader.count
            self._pending[name].append(
                _piece(self._clock.small_table(rank, reader.count), "i", reader.take(reader.count))
            )

    def epochs(self) -> Iterator[dict[str, pa.Table]]:
        clock = self._clock
        comings, goings = self._readers(), self._readers()
        block_count = -(-clock.order_count // BLOCK)
        leaving = 0
        for block in range(block_count):
            frontier = float(min((block + 1) * BLOCK, clock.order_count))
            self._arrive(block, comings)
            while leaving <= block and clock.departures(np.array([leaving * float(BLOCK)]))[0] < frontier:
                self._depart(leaving, goings)
                leaving += 1
            self._merge(frontier if block + 1 < block_count else np.inf)
            yield from self._cut(self._plan.batch)
        if any(parts and parts[0].num_rows for parts in self._ready.values()):
            yield from self._cut(1)

    def _readers(self) -> dict[str, TableReader]:
        return {name: TableReader(self._plan.folder, name, self._tables[name]) for name in self._plan.paced}

    def _block_rows(self, block: int, readers: dict[str, TableReader]) -> tuple[dict[str, pa.Table], Places]:
        """Return the block's rows, and for each lineitem the place of its order in the block."""
        first, last = block * BLOCK, min((block + 1) * BLOCK, self._clock.order_count)
        counts = self._plan.line_counts[first:last]
        sizes = {"lineitem": int(self._line_ends[last] - self._line_ends[first])}
        rows = {name: reader.take(sizes.get(name, last - first)) for name, reader in readers.items()}
        return rows, np.repeat(np.arange(last - first), counts)

    def _arrive(self, block: int, readers: dict[str, TableReader]) -> None:
        rows, order_of_line = self._block_rows(block, readers)
        ranks, random = self._clock.shuffled(block)
        spread = self._clock.spread
        lines = ranks[order_of_line] + (1 - random.random(len(order_of_line))) * spread  # after the order itself
        orders = ranks + (0.0 if self._clock.parents_first else random.random(len(ranks)) * spread)
        for name, table in rows.items():
            times = lines if name == "lineitem" else orders
            self._pending[name].append(_piece(times.astype(np.float64), "i", table))

    def _depart(self, block: int, readers: dict[str, TableReader]) -> None:
        rows, order_of_line = self._block_rows(block, readers)
        ranks, _ = self._clock.shuffled(block)
        times = self._clock.departures(ranks.astype(np.float64))
        # All lineitems, then the order: within a quarter of the time of one order.
        for name, table in rows.items():
            leaves = times[order_of_line] if name == "lineitem" else times
            delays = leaves if name == "lineitem" else leaves + 0.25
            chosen = np.flatnonzero(leaves < self._clock.order_count)
            self._pending[name].append(_piece(delays[chosen], "d", table.take(pa.array(chosen))))

    def _merge(self, frontier: float) -> None:
        """Move all pending changes before `frontier` to `_ready`, each with its place in the total order."""
        due: dict[str, _Piece] = {}
        for name, pieces in self._pending.items():
            split = [piece.split(frontier) for piece in pieces]
            self._pending[name] = [rest for _, rest in split if len(rest.times)]
            before = [first for first, _ in split if len(first.times)]
            if before:
                due[name] = _Piece(
                    np.concatenate([piece.times for piece in before]),
                    pa.concat_tables([piece.changes for piece in before]),
                )
        if not due:
            return
        # A stable sort: on a tie the parent's table goes first, then the order of the pieces.
        order = np.argsort(np.concatenate([piece.times for piece in due.values()]), kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(self._told, self._told + len(order))
        self._told += len(order)
        start = 0
        for name, piece in due.items():
            mine = places[start : start + len(piece.times)]
            start += len(piece.times)
            by_place = np.argsort(mine, kind="stable")
            told = piece.changes.take(pa.array(by_place)).add_column(1, "seq", pa.array(mine[by_place]))
            self._ready[name].append(told)

    def _cut(self, least: int) -> Iterator[dict[str, pa.Table]]:
        """Yield epochs as long as at least `least` events are ready for the next."""
        batch = self._plan.batch
        ready = {name: pa.concat_tables(parts) for name, parts in self._ready.items() if parts}
        while self._told - self._epoch * batch >= least:
            end = (self._epoch + 1) * batch
            epoch = {}
            for name, columns in self._tables.items():
                if self._left.get(name) == 0:
                    continue
                if name in ready:
                    count = int(pc.sum(pc.less(ready[name]["seq"].slice(0, batch), end)).as_py() or 0)
                    epoch[name], ready[name] = ready[name].slice(0, count), ready[name].slice(count)
                else:
                    epoch[name] = self._empty(name, columns)
                if name in self._left:
                    self._left[name] -= epoch[name].num_rows
            self._epoch += 1
            yield epoch
        self._ready = {name: [ready[name]] if name in ready else [] for name in self._tables}

    def _empty(self, name: str, columns: tuple[str, ...]) -> pa.Table:
        schema = TableReader(self._plan.folder, name, columns).schema
        return pa.schema([("op", pa.string()), ("seq", pa.int64()), *schema]).empty_table()
