"""The native engine: an `Engine` whose triggers are machine code."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cumulus.algebra.order import end_of
from cumulus.algebra.scalar_code import canonical
from cumulus.algebra.user import Functions, UserFunction, given_functions, runnable
from cumulus.catalog.events import Row
from cumulus.engine.failures import ErrorLog, Failures
from cumulus.engine.firing import canonical_rows, missing_trigger, one_by_one
from cumulus.engine.floats import NOT_FINITE
from cumulus.engine.interpreter import initial_entries
from cumulus.engine.native.calls import OBJECTS, READY, builtin, word_function
from cumulus.engine.native.codec import Dictionary, decoder, encoder
from cumulus.engine.native.lanes import NotNativeError
from cumulus.engine.native.layout import (
    CALL,
    CULPRIT,
    JOURNAL,
    JOURNAL_USED,
    LITERALS,
    MEMORY,
    REPORT,
    STATUS,
    Reason,
    Status,
)
from cumulus.engine.native.llvm import to_llvm
from cumulus.engine.native.machine import Cache, Code, default_folder, symbol
from cumulus.engine.native.memory import ADVISE, BUDGET, USED
from cumulus.engine.native.program import written
from cumulus.engine.native.stored import I64, PTR, StoredMap
from cumulus.engine.protocol import Changes, Key, Stored, Values
from cumulus.errors import EvaluationError, UnknownNameError
from cumulus.m3.program import On, Program

_UNLIMITED = 1 << 62
_TOO_LARGE = EvaluationError("a number has grown beyond 128 bits", hint="Divide before you add, or use DOUBLE.")


class NativeEngine:
    """An `Engine` over machine code.

    Parameters
    ----------
    program
        One whose columns all have types.
    functions
        The user's scalar functions that it calls: a list of them, or by name.
    level
        How far the code is optimised: `cumulus.engine.native.machine.LEVELS`.

    Raises
    ------
    NotNativeError
        If a part of the program can only be interpreted.
    MissingFunctionError, ValidationError
        As the interpreter.
    """

    def __init__(self, program: Program, functions: Functions | None = None, level: int = 0) -> None:
        self.program = program
        given = runnable(program.functions, given_functions(functions))
        if not all(isinstance(each, UserFunction) for each in given.values()):
            raise NotNativeError("a function without a signature")
        self._functions = {name: each for name, each in given.items() if isinstance(each, UserFunction)}
        self._level = level
        self._dictionary = Dictionary()
        self._failures = Failures(program)
        self._watched: dict[str, None] = {}
        self._is_open = False
        self._raised: Exception | None = None
        self._indexes: dict[str, list[tuple[int, ...]]] = {}
        self._alive: list[Any] = []
        """What machine code has the address of."""
        self._build()
        for definition in program.maps:
            for key, values in initial_entries(definition):
                self._put(definition.name, key, values)

    def _build(self) -> None:
        """Compile the program and make its maps empty."""
        made = written(self.program, self._functions, self._indexes)
        self._written = made
        self._failures.locate(made.sites.places())
        cache = Cache(default_folder())
        self._code = Code([cache.object_of(to_llvm(module), self._level) for module in made.modules])
        self._context = ctypes.create_string_buffer(made.context.size + 8)
        self._at = (ctypes.addressof(self._context) + 7) // 8 * 8
        self._set(MEMORY + BUDGET, _UNLIMITED)
        self._set(MEMORY + ADVISE, symbol("madvise") if sys.platform == "linux" else 0)
        self._callbacks = (
            ctypes.CFUNCTYPE(I64, I64, PTR)(self._call),
            ctypes.CFUNCTYPE(I64, I64, I64, I64)(self._report),
        )
        self._set(CALL, ctypes.cast(self._callbacks[0], PTR).value or 0)
        self._set(REPORT, ctypes.cast(self._callbacks[1], PTR).value or 0)
        for (_, value), place in made.context.literals.items():
            self._set(LITERALS + 8 * place, self._dictionary[value])
        for store in made.context.stores.values():
            if not self._code.function(store.shape.new.name, I64, PTR, PTR)(
                self._at + MEMORY, self._at + made.context.record(store)
            ):
                raise MemoryError
        self._maps = {
            store.number: StoredMap(self._code, store, self._at + made.context.record(store), self._dictionary)
            for store in made.context.stores.values()
        }
        self._named = {definition.name: self._maps[number] for number, definition in enumerate(self.program.maps)}
        self._outside = [
            (each.implement, [(decoder(lane, self._dictionary), lane.words) for lane in each.args], each.result)
            for each in made.outside
        ]
        self._encoders = {
            name: [encoder(lane, self._dictionary) for lane in lanes] for name, lanes in made.events.items()
        }
        self._triggers: dict[tuple[On, str], Callable[..., int]] = {}
        for (on, relation), name in made.triggers.items():
            count = 0 if on is On.BATCH else sum(lane.words for lane in made.events[relation])
            self._triggers[on, relation] = self._code.function(name, I64, PTR, *[I64] * count)
        self._fill = {
            relation: self._code.function(
                name, None, PTR, *[I64] * sum(lane.words for lane in made.events[relation]), I64
            )
            for relation, (name, _) in made.batches.items()
        }

        for name, thing in OBJECTS.items():
            self._set_word(name, id(thing))
        for relation, lanes in made.events.items():
            for column, lane in enumerate(lanes):
                if ("word", relation, column) in made.context.words:
                    # The context holds what it refers to no reference to.
                    self._alive.append(word_function(lane, self._dictionary))
                    self._set_word(("word", relation, column), id(self._alive[-1]))

    def builtin(self, relation: str, slow: Callable[..., None]) -> Callable[..., None]:
        """Return the fast way into a relation: a builtin that takes a sign and the values of a row.

        It fires the trigger itself as long as `at_rest`, as a transaction of its own; else, and where anything is
        unusual, it calls `slow` with the same arguments.
        """
        number = list(self._written.events).index(relation)
        self._alive.append(slow)
        self._set_word(("slow", relation), id(slow))
        found = builtin(self._code.address(f"call_{number}"), f"on_{relation}", self._at)
        self.at_rest = True
        return found

    @property
    def at_rest(self) -> bool:
        """Whether builtins may fire triggers: nobody watches, no transaction is open, nobody else is at work."""
        return bool(self._get(self._written.context.word(READY)))

    @at_rest.setter
    def at_rest(self, value: bool) -> None:
        self._set_word(READY, int(value))

    def _set_word(self, key: Any, value: int) -> None:
        """Set a word of the context, if code looks at it."""
        if key in self._written.context.words:
            self._set(self._written.context.word(key), value)

    def _set(self, offset: int, value: int) -> None:
        I64.from_address(self._at + offset).value = value

    def _get(self, offset: int) -> int:
        return int(I64.from_address(self._at + offset).value)

    # --- what code calls --------------------------------------------------------------------------------------------

    def _call(self, number: int, frame: int) -> int:
        implement, args, result = self._outside[number]
        words = (I64 * 64).from_address(frame)
        values = []
        at = 0
        try:
            for decode, count in args:
                values.append(decode(words[at : at + count]))
                at += count
            value = implement(*values)
            if value is None:
                return 1
            for place, word in enumerate(encoder(result, self._dictionary)(value)):
                words[place] = word
        except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is the view's error
            self._raised = problem
            return 2
        return 0

    def _report(self, site: int, reason: int, row: int) -> int:
        problem: Exception = {
            Reason.RAISED.value: self._raised or _TOO_LARGE,
            Reason.NOT_FINITE.value: NOT_FINITE,
            Reason.OVERFLOW.value: _TOO_LARGE,
        }[reason]
        self._raised = None
        self._failures.failed(site, problem, self._batch_row(row) if row else None)
        return 0

    def _batch_row(self, row: int) -> Row | None:
        if self._batch is None:
            return None
        return self._batch.key_of(self._batch.row(row & 0xFFFFFFFF))

    _batch: StoredMap | None = None

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a transaction."""
        assert not self._is_open, "transactions do not nest"
        self._is_open = True

    def commit(self) -> Changes:
        """Close the transaction; see `Engine.commit`."""
        assert self._is_open, "no transaction is open"
        changes = self._changes() if self._watched else {}
        self._close()
        self._failures.commit()
        return changes

    def rollback(self) -> None:
        """Close the transaction and put every entry back."""
        assert self._is_open, "no transaction is open"
        for number, key, values in reversed(self._notes()):
            if not self._maps[number].put(key, values):
                raise MemoryError
        for store in self._maps.values():
            if store.store.is_scratch:
                store.clear()
        self._close()
        self._failures.rollback()

    def _close(self) -> None:
        self._set(JOURNAL_USED, 0)
        self._set(STATUS, 0)
        self._is_open = False

    def _notes(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Return what the journal says: map, key words, value words before; in the order of the changes."""
        used = self._get(JOURNAL_USED)
        if not used:
            return []
        words = (I64 * (used // 8)).from_address(self._get(JOURNAL))[:]
        found = []
        at = 0
        while at < len(words):
            number = words[at]
            shape = self._maps[number].store.shape
            values = at + 1 + shape.keys
            found.append((number, tuple(words[at + 1 : values]), tuple(words[values : values + shape.values])))
            at = values + shape.values
        return found

    def _changes(self) -> Changes:
        first: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        watched = {self._named[name].store.number: name for name in self._watched}
        for number, key, values in self._notes():
            if number in watched:
                first.setdefault((number, key), values)
        changes: Changes = {}
        for (number, key), words in first.items():
            store = self._maps[number]
            old, new = self._shown(store, store.stored_of(words)), self._shown(store, store.get(key))
            if old != new:
                changes.setdefault(watched[number], {})[store.key_of(key)] = (old, new)
        return changes

    def _shown(self, store: StoredMap, stored: Stored | None) -> Values | None:
        try:
            return None if stored is None else store.values_of(stored)
        except EvaluationError:  # a DOUBLE that has grown beyond its range: reported when it did
            return None

    def take_errors(self) -> ErrorLog:
        """Return the errors of the transactions committed since the last call; see `Engine.take_errors`."""
        return self._failures.take()

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        """Fire the trigger of a single event; see `Engine.on_event`."""
        assert self._is_open, "an event outside a transaction"
        trigger = self._triggers.get((On.INSERT if sign > 0 else On.DELETE, relation))
        if trigger is None:
            self._without_trigger(sign, relation, row)
            return
        words = [word for encode, value in zip(self._encoders[relation], row, strict=True) for word in encode(value)]
        status = trigger(self._at, *words)
        if status:
            self._useless(status)
        if self._failures.pending:
            self._failures.blame(sign, relation, row)

    def _without_trigger(self, sign: int, relation: str, row: Row) -> None:
        if (On.BATCH, relation) in self._triggers:
            self.on_batch(relation, {row: sign})
        elif any((on, relation) in self._triggers for on in (On.INSERT, On.DELETE)):
            raise missing_trigger(sign, relation)
        # A relation without any trigger is one that no map depends on.

    def _useless(self, status: int) -> None:
        """Raise what makes a transaction impossible."""
        self._set(STATUS, 0)
        if status == Status.NO_MEMORY.value:
            raise MemoryError("the maps do not fit into memory")
        store = self._maps[self._get(CULPRIT)].store
        raise EvaluationError(
            f"map {store.name}: {_TOO_LARGE.message}",
            view=store.name,
            hint="Open the warehouse with engine='interpreter', whose numbers have no bound.",
        )

    def on_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Fire the batch trigger, or the single ones where that is the same; see `Engine.on_batch`."""
        assert self._is_open, "an event outside a transaction"
        trigger = self._triggers.get((On.BATCH, relation))
        if trigger is None:
            for sign, row in one_by_one(self.program, relation, changes):
                self.on_event(sign, relation, row)
            return
        batch = self._maps[self._written.batches[relation][1]]
        batch.clear()
        fill, encoders = self._fill[relation], self._encoders[relation]
        for row, count in changes.items():
            fill(self._at, *[w for encode, v in zip(encoders, row, strict=True) for w in encode(v)], count)
        self._batch = batch
        status = trigger(self._at)
        if self._failures.pending:
            self._failures.blame_batch(relation, canonical_rows(changes))
        self._batch = None
        if status:
            self._useless(status)

    # --- reading and loading ----------------------------------------------------------------------------------------

    def store(self, name: str) -> StoredMap:
        """Return a map; UnknownNameError if there is none of the name."""
        try:
            return self._named[name]
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint=f"Maps: {', '.join(self._named)}.") from None

    def watch(self, map: str) -> None:
        """Report the changes of a map at each commit."""
        self.store(map)
        self._watched[map] = None

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        store = self.store(map)
        words = store.key_words(key)
        stored = None if words is None else store.get(words)
        return None if stored is None else store.values_of(stored)

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice; see `Engine.end`."""
        store = self.store(map)
        places = tuple(place for place in range(len(store.store.keys)) if place != axis)
        self.add_index(map, places)
        found = []
        for key in self.find(map, places, others):
            values = self.read(map, key)
            if values is not None and (column is None or values[column]):
                found.append(key[axis])
        return end_of(end, found)

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        store = self.store(map)
        for key, words in store.rows():
            values = store.values_of(store.stored_of(words))
            if values is not None:
                yield store.key_of(key), values

    def size(self, map: str) -> int:
        """Return the number of existing entries."""
        store = self.store(map)
        if store.store.count is None:
            return store.live
        word = store.store.values[store.store.count].word
        return sum(1 for _, words in store.rows() if words[word])

    def memory(self) -> int:
        """Return how many bytes the maps take, texts not counted."""
        return self._get(MEMORY + USED)

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        """Replace the map's contents."""
        assert not self._is_open, "a map is loaded outside transactions"
        self.store(map).clear()
        for key, values in entries:
            self._put(map, key, values)

    def _put(self, name: str, key: Key, values: Values) -> None:
        store = self.store(name)
        stored = store.stored_values(values)
        if stored is not None:
            self._put_stored(store, key, stored)

    def _put_stored(self, store: StoredMap, key: Key, stored: Stored) -> None:
        words = store.key_words(key)
        if words is None:
            raise EvaluationError(f"{key} is no key of {store.store.name}", hint="Check the types of its columns.")
        if not store.put(words, store.words_of(stored)):
            raise MemoryError("the maps do not fit into memory")

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored; see `Engine.stored`."""
        store = self.store(map)
        for key, words in store.rows():
            yield store.key_of(key), store.stored_of(words)

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        """Replace the map's contents by what `stored` gave."""
        assert not self._is_open, "a map is restored outside transactions"
        store = self.store(map)
        store.clear()
        for key, stored in entries:
            self._put_stored(store, key, stored)

    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Keep an index of the map on these key positions, for `find`."""
        store = self.store(map)
        if not 0 < len(positions) < len(store.store.keys) or positions in store.store.indexes:
            return
        assert not self._is_open, "an index is added outside transactions"
        contents = {name: [*each.rows()] for name, each in self._named.items()}
        before, code, context = self._maps, self._code, self._context
        self._indexes.setdefault(map, []).append(positions)
        self._build()
        for each in before.values():
            each.free(code)
        del context  # the records of the maps before lay in it
        for name, rows in contents.items():
            for key, words in rows:
                if not self._named[name].put(key, words):
                    raise MemoryError

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[Key]:
        """Iterate over the keys of existing entries that have `values` at `positions`."""
        store = self.store(map)
        width = len(store.store.keys)
        if len(positions) == width:
            if self.read(map, values) is not None:
                yield tuple(canonical(value) for value in values)
            return
        if not positions:
            yield from (key for key, _ in self.items(map))
            return
        words = store.part_words(positions, values)
        if words is None:
            return
        for row in store.chain(positions, words):
            if store.values_of(store.stored_of(row[store.store.shape.keys :])) is not None:
                yield store.key_of(row)
