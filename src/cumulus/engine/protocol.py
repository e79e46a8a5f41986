"""What a host may ask of an evaluator of M3 programs.

The states of a transaction. There is at most one; whatever else is asked of an engine is asked in any state.

| method                           | needs | leaves                            | where it raises                    |
|----------------------------------|-------|-----------------------------------|------------------------------------|
| `begin`                          | none  | open                              |                                    |
| `on_event`, `on_batch`           | open  | open                              | open: who has opened it rolls back |
| a run of `runner(each=False)`    | open  | open                              | open: who has opened it rolls back |
| `touched`, `is_settled`          | open  | open                              |                                    |
| `take`, `take_all`, `add`, `cut` | open  | open                              | open: who has opened it rolls back |
| the same                         | none  | none                              | none, and all is as before         |
| `commit`                         | open  | committed, that is: none          | open: who has opened it rolls back |
| `rollback`                       | open  | rolled back, that is: none        |                                    |
| `fire`, a builtin                | none  | none: committed, or left          | none: rolled back                  |
| a run of `runner(each=True)`     | none  | none: committed to what it leaves | none: that event is rolled back    |
| `load`, `restore`, `take_raw`, … | none  | none                              | none, and that map is not whole    |
| `save_raw`, `end`, `add_index`   | none  | none                              | none, and all is as before         |

What is *left* is as if it had never come, and goes by `on_event`. Machine code decides that by words of its context
(`cumulus.engine.native.intake`), which together are in one of five states:

| who fires                   | READY | QUIET    | WAITS | transaction | what fails, or names a row that is not there  |
|-----------------------------|-------|----------|-------|-------------|-----------------------------------------------|
| nobody; builtins may begin  | 1     | 0        | 0     | none        |                                               |
| a builtin                   | 1     | a thread | 0     | none        | is undone and left                            |
| `fire`, `runner(each=True)` | 0     | 1        | 0     | none        | is undone and left                            |
| `runner(each=False)`        | 0     | 1        | 1     | open        | is undone and left; or else makes it DOUBTFUL |
| `on_event`, `on_batch`      | 0     | 0        | 0     | open        | goes to `take_errors`; is the host's matter   |

`rest` sets READY (it stays 0 while maps are watched or `:=` maps must be computed; many boxes to sweep set it to 0),
a builtin and what fires for Python set QUIET and take it back. REPORTED is not 0 from a failure while it is quiet to
the end of that event. DOUBTFUL is set by an event whose references do not hold yet, in a transaction that WAITS for
those that come; `is_settled` looks again, and `begin` clears it. Beside them each relation has a word that `open` sets:
where it is 0 all events of the relation are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias

import pyarrow as pa

from cumulus.algebra.terms import Number
from cumulus.catalog.events import Row
from cumulus.engine.batches import Bulk
from cumulus.engine.failures import ErrorLog
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.limits import Budget
from cumulus.m3.program import Program
from cumulus.views.batches import MapColumns
from cumulus.views.folding.columns import FoldColumns

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = tuple[Number, ...]
Stored: TypeAlias = tuple[Any, ...]
"""The value columns as they are kept: a number, or for a DOUBLE the tuple (sum, compensation, size)."""
Indexes: TypeAlias = Iterable[tuple[str, tuple[int, ...]]]
"""Maps, and key columns that `Engine.find` will be asked for."""
Run: TypeAlias = Callable[[int], int]
"""Fires events of a bulk from a number on; returns the number of the first that it leaves, or how many there are."""
Changes: TypeAlias = dict[str, dict[Key, tuple[Values | None, Values | None]]]
"""Map → key → (old values, new values); None where the entry did not exist before, or does not exist any more.

A map that was written to and has what it had before has no keys here; its entries may have other places.
"""


@dataclass(frozen=True, slots=True)
class MapStats:
    """What a map takes.

    Parameters
    ----------
    rows
        Stored entries; some do not exist for readers (`Engine.stored`).
    bytes
        Of memory; of texts only their numbers.
    load
        The filled share of the slots that lead to rows by their keys; None in the interpreter, and of a map without
        keys.
    probes, probes_mean
        How many slots are looked at to find a row: of the worst row, and of all in the mean; None as `load`.
    chain
        The most rows that share a value of a secondary index; 0 without such an index.
    """

    rows: int
    bytes: int
    load: float | None = None
    probes: int | None = None
    probes_mean: float | None = None
    chain: int = 0


class Maps(Protocol):
    """The maps of a program, as they are now: in an open transaction as it has left them so far."""

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries, in no particular order."""

    def columns(self, map: str) -> MapColumns | None:
        """Return the existing entries as columns, good until the next event; None where they are tuples."""

    def copied_columns(self, map: str, turn: AbstractContextManager[object]) -> MapColumns | None:
        """Return the entries as columns that stay as they are whatever comes; None where they are tuples.

        Parameters
        ----------
        turn
            Held by whoever changes the engine: texts are read in it.
        """

    def size(self, map: str) -> int:
        """Return the number of existing entries."""

    def negative(self, map: str) -> int:
        """Return how many entries have a count below 0."""

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Iterator[Any] | None:
        """Return the values of which `end` takes the first; see `cumulus.views.entries.MapSource.along`."""

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice, outside a transaction; see `cumulus.views.entries.Entries.end`.

        The first call for a map and axis makes an index of the slices, which is kept from then on; `find` may use it.
        """

    def in_order(self, map: str, axis: int, descending: bool) -> Iterator[tuple[Key, Values]] | None:
        """Return the existing entries by a key column or (`axis` behind the keys) a value column; None if not kept so.

        An engine may keep a map so if a view shows its first rows only. Entries with a NULL there come anywhere.
        """

    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Keep an index of the map on these key positions, for `find`."""

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries that have `values` at `positions`; needs `add_index` before."""

    def stored_count(self, map: str) -> int:
        """Return how many entries are stored, those that do not exist for readers too, without looking at them."""

    def stored_at(self, map: str, key: Key) -> Stored | None:
        """Return what is stored under a key."""

    def indexes(self, map: str) -> list[tuple[int, ...]]:
        """Return the key positions on which there is an index now."""

    def stored_slice(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Stored]]:
        """Iterate over what is stored with `values` at the positions of one of the `indexes`."""

    def fold_columns(self, map: str) -> FoldColumns | None:
        """Return everything that is stored as columns, good until the next event; None where they are tuples."""

    def memory(self) -> int:
        """Return how many bytes the maps take, with the texts in them, roughly."""

    def measure(self, map: str) -> MapStats:
        """Return what a map takes; it does not change."""

    def extent(self, map: str) -> MapStats:
        """Return how many entries a map stores, and their bytes, without looking at them."""

    # --- the contents, taken out and put in; no transaction is open ---------------------------------------------------

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        """Replace the map's contents, outside a transaction."""

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored, for a snapshot: entries that do not exist for readers, too."""

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        """Replace the map's contents by what `stored` gave, outside a transaction."""

    def stored_columns(self, map: str) -> list[pa.Array] | None:
        """Return what `stored` gives as Arrow columns: keys, then values, three columns for a DOUBLE.

        None where that is not quicker, or where a value has no Arrow type of its own.
        """

    def restore_columns(self, map: str, columns: Sequence[pa.ChunkedArray]) -> bool:
        """Replace the map's contents by columns as `stored_columns` gives them, outside a transaction.

        False, and an empty map, where `restore` must take them one by one.
        """

    def save_raw(self, file: BinaryIO) -> dict[str, Any] | None:
        """Write all maps to a file as they lie in memory; return what describes it, None if there is no such form."""

    def take_raw(self, saved: object) -> set[str]:
        """Replace the contents of maps by those of a file that `save_raw` wrote, without looking at each value.

        Returns
        -------
        set[str]
            The maps that it could take so; the others are as they were.
        """


class Firing(Protocol):
    """Transactions of events; see the table above."""

    def begin(self) -> None:
        """Open a transaction; they do not nest."""

    def commit(self) -> Changes:
        """Run the `:=` statements and close the transaction; return what changed in the watched maps."""

    def touched(self) -> set[str]:
        """Return the maps that the open transaction has written to, whether or not it has changed them."""

    def rollback(self) -> None:
        """Close the transaction and restore every entry as it was when it was opened, bit for bit.

        Its errors are forgotten.
        """

    @property
    def has_errors(self) -> bool:
        """Whether the open transaction has events that a view could not take in whole."""

    def take_errors(self) -> ErrorLog:
        """Return the errors of the transactions committed since the last call; do not change what comes.

        An error is an event that a view could not take in whole: what its statements could not evaluate for some
        combination of rows counts as 0, and everything else goes on. Deleting the same rows fails, and counts, in the
        same way, so that nothing stays behind.
        """

    def raise_large_numbers(self) -> None:
        """Raise an EvaluationError for every number that is too large for the words of maps, from now on.

        At first only sums do so; where a statement computes such a number, that is an error of its view. An engine
        whose numbers have no bound does neither.
        """

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        """Fire `ON +relation` or `ON -relation`, inside a transaction."""

    def on_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Fire `ON BATCH relation` with net multiplicities (rows → a number that is not 0), inside a transaction."""

    def watch(self, map: str) -> None:
        """Report the changes of a map at each commit from the next transaction on."""

    def unwatch(self, map: str) -> None:
        """Report the changes of a map no more."""


class FrameExchange(Protocol):
    """The rows of maps as frames, taken out and added; in a transaction or outside.

    In a transaction these are changes like those of events: a rollback takes them back, `commit` reports them of
    watched maps. Outside nobody hears of them, and they are not taken back. Nothing is evaluated: frames go to no
    trigger, and no view can fail for them. `copy` changes nothing.
    """

    def copy(self, map: str) -> MapFrame:
        """Return all that is stored in a map, entries that do not exist for readers too; it stays.

        Raises
        ------
        EvaluationError
            In the interpreter, if a number does not fit the words of a frame.
        """

    def take(self, map: str) -> MapFrame:
        """Return what `copy` does, and leave the map empty."""

    def take_all(self, maps: Iterable[str]) -> dict[str, MapFrame]:
        """Return what `take` does of those maps that have something: map → its rows."""

    def add(self, map: str, frame: MapFrame, sign: int = 1) -> None:
        """Add each row of a frame to the entry with its key, or take it away if `sign` is -1.

        An entry that is not there is made, one of which nothing is left goes: as when events add. Of a DOUBLE the sum
        and its compensation are added, and the size in any case. A key may come several times.

        Raises
        ------
        UsageError
            If the frame has other columns than the map.
        EvaluationError
            In the native engine, if a sum grows beyond its words.
        MemoryLimitError
        """

    def cut(self, map: str, position: int, most: int) -> int:
        """Remove the entries whose BIGINT key at a position is at most a number; return how many. NULL is no number.

        Raises
        ------
        UsageError
            If that column is no BIGINT.
        """


class FastPath(Protocol):
    """Events that machine code takes without Python; see the table above."""

    def runner(self, bulk: Bulk, each: bool) -> Run | None:
        """Return what fires the events of a bulk without Python; None if every event must come by `on_event`.

        What it leaves is as if it had not come: unusual rows, events that fail, those of tables that are not `open`.
        That event goes by `on_event`, and the run may go on behind it.

        Parameters
        ----------
        each
            Whether every event is a transaction; else all go into the open one.
        """

    def fire(self, sign: int, relation: str, row: tuple[object, ...]) -> Changes | None:
        """Fire the trigger of an event as a transaction without Python; return what changed in the watched maps.

        None, and nothing is done, if it must go by `on_event`. The row need not have been checked: what is unusual in
        it goes there, too. For one event this is what `runner` is for many.
        """

    def open(self, relation: str, value: bool) -> None:
        """Say whether a relation's events may be fired without Python; at first they may."""

    def checks(self, relation: str) -> bool:
        """Whether the rows of a relation are kept, and what is fired without Python is checked before.

        Such events are checked as `cumulus.engine.integrity.Integrity.check` does, and left where it would refuse them.
        For this the engine must have been given the `wanted_indexes` of that module.
        """

    def take_upserted(self, relation: str) -> dict[int, int]:
        """Return what `runner` has done for upserts: sign → how many rows were added or taken away; count anew."""

    def is_settled(self) -> bool:
        """Whether the references of all events that the open transaction has fired without Python surely hold now.

        Where not, the transaction must be done again, all events by `on_event`: `Integrity` tells which does not.
        """

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of a sign and a row's values: `slow`, or a builtin that takes what is ordinary first.

        The builtin takes an event, as a transaction of its own, while the engine is at `rest` and the relation `open`.
        """

    def rest(self, value: bool) -> bool:
        """Say whether builtins may take events: nobody else is at work. At first they may not.

        Returns
        -------
        bool
            Whether they do now: where somebody wants to be told of changes they never do.
        """

    def pause(self) -> int:
        """Let no builtin take events from now on, as `rest` with False does, and return the `visitor`."""

    def visitor(self) -> int:
        """Return the thread (`threading.get_ident`) that is in a builtin now, 0 if none is.

        It lets another one run only where a builtin calls into Python, such as for a user's function.
        """

    def take_fired(self) -> dict[str, tuple[int, int]]:
        """Return how many events builtins have taken of each relation, and how many rows that adds; count anew."""


class Engine(Maps, Firing, FrameExchange, Protocol):
    """Holds the maps of one program and runs its triggers.

    The caller makes decimal arithmetic exact (`decimal.localcontext(EXACT)`) around everything that computes. Rows are
    checked before they come here (`Relation.checked`).
    """

    program: Program
    name: str
    """What it is called (`cumulus.engine.engines.ENGINES`)."""

    @property
    def python_functions(self) -> frozenset[str]:
        """What machine code calls in Python, as often as it needs the value; empty in the interpreter."""

    @property
    def called_count(self) -> int:
        """How often machine code has called a function in Python."""

    @property
    def fast(self) -> FastPath | None:
        """What fires events without Python; None where there is no such code."""

    def limit(self, budget: Budget) -> None:
        """Refuse events that would make the maps take more than a budget, by a MemoryLimitError; at first none are."""

    def close(self) -> None:
        """Give back the memory of all maps; nobody uses the engine any more. Builtins call what is slow from now on."""
