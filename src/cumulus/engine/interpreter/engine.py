"""The interpreter: M3 programs as generated Python over dicts.

It runs all of M3, and the other evaluators are tested against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import pyarrow as pa

from cumulus.algebra.float_sums import ZERO_CELL, add_to_cell
from cumulus.algebra.order import all_but
from cumulus.catalog.events import Row
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.analysis.initial_entries import initial_entries
from cumulus.engine.analysis.missing_triggers import (
    canonical_rows,
    come_one_by_one,
    has_large_floats,
    missing_trigger,
    one_by_one,
)
from cumulus.engine.failures import Failures
from cumulus.engine.interpreter.compiled_module import CompiledModule
from cumulus.engine.interpreter.frame_exchange import DictMapFrames
from cumulus.engine.interpreter.statements import all_exact
from cumulus.engine.interpreter.store import DictMap, MemoryMeter, Positions
from cumulus.engine.interpreter.writer import identifier, unused_name
from cumulus.engine.protocol import Changes, Indexes, Key, MapStats, Stored, Values
from cumulus.errors import UnknownNameError
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.python_code import canonical
from cumulus.scalars.user import Functions, given_functions, runnable


class Interpreter:
    """An `Engine` over Python dicts; what its methods do is said there.

    Raises
    ------
    MissingFunctionError
        If one that the program declares is not given.
    ValidationError
        If the program cannot be run: unbound variables, unknown maps or functions, DOUBLE columns without a COUNT,
        entries that do not fit their map.

    Notes
    -----
    Maps open with the entries that their definitions start with; whatever is loaded or restored replaces them.
    """

    name = "interpreter"
    python_functions: frozenset[str] = frozenset()
    called_count = 0
    fast = None
    """Nothing is fired without Python."""

    def __init__(self, program: Program, functions: Functions | None = None, *, indexes: Indexes = ()) -> None:
        self.program = program
        given = runnable(program.functions, given_functions(functions))
        self._stores = _stores(program)
        for name, places in indexes:
            self.store(name).add_index(places)
        self._watched: dict[str, None] = {}
        self._is_open = False
        self._failures = Failures(program)
        self._module = CompiledModule(program, given, self._stores, self._failures)
        self._handlers, self._batches = self._module.handlers, self._module.batches
        self._meter = MemoryMeter(self._stores)
        self.limit, self.memory, self.take_errors = self._meter.limit, self._meter.used, self._failures.take
        frames = DictMapFrames(self.store, self._meter, self._settle)
        self.copy, self.take, self.take_all = frames.copy, frames.take, frames.take_all
        self.add, self.cut = frames.add, frames.cut
        self.raise_large_numbers = _never_raise
        self._with_floats = frozenset(each.name for each in program.relations if not all_exact(each.columns))
        self._taken_singly = come_one_by_one(program) & self._with_floats
        self._reads = sources(program)
        self._stale = set(self._module.assigned)
        self._computed: set[str] = set()
        """The `:=` maps that the open transaction has computed."""
        for definition in program.maps:
            if definition.initial:
                self.load(definition.name, initial_entries(definition))
        self._assign_first()

    @property
    def has_errors(self) -> bool:
        """Whether the open transaction has errors of views."""
        return self._failures.has_open

    @property
    def source(self) -> str:
        """The generated Python, to read."""
        return self._module.module.source

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        assert not self._is_open, "transactions do not nest"
        self._is_open = True

    def commit(self) -> Changes:
        assert self._is_open, "no transaction is open"
        if self._module.assigned:
            self._run_assignments()
        changes: Changes = {}
        for name in self._watched:
            store = self._stores[name]
            if store.undo:
                changes[name] = store.changes()
        self._close()
        self._failures.commit()
        return changes

    def touched(self) -> set[str]:
        return {name for name, store in self._stores.items() if store.undo}

    def rollback(self) -> None:
        assert self._is_open, "no transaction is open"
        for store in self._stores.values():
            if store.undo or store.ahead.changed:
                store.rollback()
        self._stale |= self._computed
        self._computed.clear()
        self._failures.rollback()
        self._is_open = False

    def _close(self) -> None:
        for store in self._stores.values():
            if store.undo:
                store.undo.clear()
        self._computed.clear()
        self._is_open = False

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        assert self._is_open, "an event outside a transaction"
        meter = self._meter
        meter.left -= 1
        if meter.left < 0:
            meter.check_growth(grows=sign > 0)
        handler = self._handlers.get((sign, relation))
        if handler is None:
            self._without_trigger(sign, relation, row)
            return
        try:
            handler(*row)
        except Exception as problem:
            raise self._module.blamed(problem, (sign, relation, row)) from problem

    def _without_trigger(self, sign: int, relation: str, row: Row) -> None:
        if relation in self._batches:
            self.on_batch(relation, {row: sign})
        elif (-sign, relation) in self._handlers:
            raise missing_trigger(sign, relation)
        # A relation without any trigger is one that no map depends on.

    def on_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        assert self._is_open, "an event outside a transaction"
        handler = self._batches.get(relation)
        if relation in self._with_floats:
            changes = canonical_rows(changes)
            if relation in self._taken_singly and has_large_floats(changes):
                handler = None  # together they may leave DOUBLE before they are added to a sum that is far
        if handler is None:
            for sign, row in one_by_one(self.program, relation, changes):
                self.on_event(sign, relation, row)
            return
        self._meter.left -= len(changes)
        if self._meter.left < 0:
            self._meter.check_growth(grows=any(count > 0 for count in changes.values()))
        try:
            handler(changes)
        except Exception as problem:
            raise self._module.blamed(problem, (0, relation, tuple(changes.items())[:1])) from problem

    # --- := ---------------------------------------------------------------------------------------------------------

    def _run_assignments(self) -> None:
        """Compute the `:=` maps whose sources have changed."""
        for target, (function, columns) in self._module.assigned.items():
            if target not in self._stale and not any(self._stores[name].undo for name in self._reads[target]):
                continue
            store = self._stores[target]
            try:
                contents = _packed_contents(store, columns, function())
            except Exception as problem:
                raise self._module.blamed(problem, None, target) from problem
            store.replace(contents)
            if self._failures.pending:
                self._failures.blame(0, "", None)
            self._computed.add(target)
        self._stale -= self._computed

    def _assign_first(self) -> None:
        """Give `:=` maps their value for empty tables; what fails in it is told by the first transaction."""
        if not self._module.assigned:
            return
        self.begin()
        self._run_assignments()
        failed = self._failures.has_open
        self._close()
        if failed:
            self._failures.rollback()
            self._stale |= self._module.assigned.keys()

    # --- reading and loading ----------------------------------------------------------------------------------------

    def store(self, name: str) -> DictMap:
        """Return the store of a map.

        Raises
        ------
        UnknownNameError
            If there is no such map.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint=f"Maps: {', '.join(self._stores)}.") from None

    def watch(self, map: str) -> None:
        self.store(map)
        self._watched[map] = None

    def close(self) -> None:
        self._stores.clear()

    def unwatch(self, map: str) -> None:
        self._watched.pop(map, None)

    def read(self, map: str, key: Key) -> Values | None:
        store = self.store(map)
        return store.values(store.entries.get(store.pack_key(key)))

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> None:
        """Return None: no map is kept in an order; see `Engine.along`."""

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        self.add_index(map, all_but(axis, self.store(map).width))
        return self.store(map).end(end, axis, others, column)

    def in_order(self, map: str, axis: int, descending: bool) -> None:
        """Return None: no map is kept in an order; see `Engine.in_order`."""

    def columns(self, map: str) -> None:
        """Return None: entries are tuples here; see `Engine.columns`."""

    def copied_columns(self, map: str, turn: AbstractContextManager[object]) -> None:
        """Return None: entries are tuples here; see `Engine.columns`."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        return self.store(map).items()

    def size(self, map: str) -> int:
        return self.store(map).size()

    def negative(self, map: str) -> int:
        return self.store(map).negative()

    def measure(self, map: str) -> MapStats:
        return self.store(map).stats()

    def extent(self, map: str) -> MapStats:
        return self.store(map).extent()

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        store = self.store(map)
        self._replace(map, ((store.pack_key(key), store.pack_values(values)) for key, values in entries))

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        return self.store(map).stored()

    def stored_count(self, map: str) -> int:
        return len(self.store(map).entries)

    def stored_at(self, map: str, key: Key) -> Stored | None:
        store = self.store(map)
        entry = store.entries.get(store.pack_key(key))
        return (entry,) if store.flat and entry is not None else entry

    def indexes(self, map: str) -> list[tuple[int, ...]]:
        return list(self.store(map).indexes)

    def stored_slice(self, map: str, positions: Positions, values: Key) -> Iterator[tuple[Key, Stored]]:
        store = self.store(map)
        wanted = tuple(canonical(value) for value in values)
        for packed in store.indexes[positions].get(wanted[0] if len(wanted) == 1 else wanted, ()):
            entry = store.entries[packed]
            yield store.unpack_key(packed), (entry,) if store.flat else entry

    def fold_columns(self, map: str) -> None:
        """Return None: entries are tuples here; see `Engine.fold_columns`."""

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        store = self.store(map)
        self._replace(map, ((store.pack_key(key), entry[0] if store.flat else entry) for key, entry in entries))

    def _replace(self, map: str, entries: Iterable[tuple[Any, Any]]) -> None:
        """Make packed entries the contents of a map."""
        assert not self._is_open, "a map is filled outside transactions"
        self.store(map).load(entries)
        self._meter.check_growth(grows=True)
        self._settle(map)

    def _settle(self, map: str) -> None:
        """Have what depends on a map that was changed outside a transaction computed again; there is no way back."""
        if not self._is_open:
            self._stores[map].undo.clear()
            self._stale |= {target for target, reads in self._reads.items() if map in reads}

    def stored_columns(self, map: str) -> None:
        """Return None: entries are Python objects anyway."""

    def restore_columns(self, map: str, columns: Sequence[pa.ChunkedArray]) -> bool:
        """Return False: entries are Python objects anyway."""
        return False

    def save_raw(self, file: BinaryIO) -> None:
        """Return None: entries are Python objects."""

    def take_raw(self, saved: object) -> set[str]:
        """Return that no map can be taken so."""
        return set()

    def add_index(self, map: str, positions: Positions) -> None:
        store = self.store(map)
        if not 0 < len(positions) < store.width or positions in store.indexes:
            return
        assert not self._is_open, "an index is added outside transactions"
        store.add_index(positions)
        self._module.generate()

    def find(self, map: str, positions: Positions, values: Key) -> Iterator[tuple[Key, Values]]:
        return self.store(map).find(positions, values)


def _stores(program: Program) -> dict[str, DictMap]:
    """Return an empty store for each map, declared or only written or read."""
    stores: dict[str, DictMap] = {}
    names: set[str] = set()
    for definition in program.maps:
        assert isinstance(definition, MapDef), "a program holds MapDefs"
        name = unused_name(f"map_{identifier(definition.name)}", names)
        stores[definition.name] = DictMap(definition, name)
    return stores


def _packed_contents(store: DictMap, columns: tuple[int, ...], groups: tuple[dict[Any, Any], ...]) -> dict[Any, Any]:
    """Return the packed contents of a map from one dict of sums per value column."""
    if store.flat:
        return {key: number for key, number in groups[0].items() if number}
    contents: dict[Any, list[Any]] = {}
    for column, sums in zip(columns, groups, strict=True):
        for key, number in sums.items():
            entry = contents.setdefault(key, list(store.zero))
            entry[column] = add_to_cell(ZERO_CELL, float(number)) if column in store.floats else number
    return {key: tuple(entry) for key, entry in contents.items() if not store.is_gone(tuple(entry))}


def _never_raise() -> None:
    """Do nothing: no number is too large for the interpreter; see `Engine.raise_large_numbers`."""
