"""The native engine: an `Engine` whose triggers are machine code."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from cumulus.catalog.events import Row
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.analysis.initial_entries import initial_entries
from cumulus.engine.analysis.missing_triggers import canonical_rows, missing_trigger, one_by_one
from cumulus.engine.batches import Bulk, Columns, Upserts
from cumulus.engine.failures import ErrorLog, Failures
from cumulus.engine.limits import Budget
from cumulus.engine.native.build import built
from cumulus.engine.native.bulk_runs import rows_of, run_of
from cumulus.engine.native.callbacks import TOO_LARGE, Called
from cumulus.engine.native.code.undo_log import TOUCHED, UNDO
from cumulus.engine.native.image import Image
from cumulus.engine.native.intake.builtin import Entry
from cumulus.engine.native.intake.key_checks import DOUBTFUL, SETTLED, WAITS
from cumulus.engine.native.intake.python_rows import QUIET, READY, SINGLE, open_word
from cumulus.engine.native.intake.streams import MOST_RELATIONS
from cumulus.engine.native.intake.upserts import upserted_word
from cumulus.engine.native.kernel.lanes import NotNativeError
from cumulus.engine.native.kernel.machine import Load
from cumulus.engine.native.kernel.memory import SMALL
from cumulus.engine.native.scalars.python_functions import called_of
from cumulus.engine.native.store.memory_layout import CULPRIT, JOURNAL_SIZE, JOURNAL_USED, STATUS, Status, event_words
from cumulus.engine.native.store.text_table import bytes_of
from cumulus.engine.native.tiering import Tier
from cumulus.engine.native.transaction_notes import Notes
from cumulus.engine.native.values.codec import decoder, encoder, text_words
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR
from cumulus.engine.protocol import Changes, FastPath, Indexes, Run
from cumulus.errors import EvaluationError, MemoryLimitError
from cumulus.interrupts import Deferring
from cumulus.m3.program import On, Program
from cumulus.scalars.user import Functions, UserFunction, given_functions, runnable

_LARGE_JOURNAL = 1 << 26
"""A journal that has grown to so many bytes is given back: the next transaction may be small."""


class NativeEngine(Called):
    """An `Engine` over machine code.

    Parameters
    ----------
    program
        One whose columns all have types.
    functions
        The user's scalar functions that it calls: a list of them, or by name.
    level
        How far the code is optimised: `cumulus.engine.native.kernel.machine.LEVELS`. None: at once, and better once
        that pays.
    load
        What makes machine code of modules instead.
    indexes
        Maps and key columns that `find` will be asked for.

    Raises
    ------
    NotNativeError
        If a part of the program can only be interpreted.
    MissingFunctionError, ValidationError
        As the interpreter.
    """

    name = "native"

    def __init__(
        self,
        program: Program,
        functions: Functions | None = None,
        level: int | None = None,
        load: Load | None = None,
        *,
        indexes: Indexes = (),
    ) -> None:
        self.program = program
        given = runnable(program.functions, given_functions(functions))
        if not all(isinstance(each, UserFunction) for each in given.values()):
            raise NotNativeError("a function without a signature")
        self._functions = {name: each for name, each in given.items() if isinstance(each, UserFunction)}
        self._level, self._load = level, load
        self._budget = Budget()
        self._failures = Failures(program)
        self._watched: dict[str, None] = {}
        self._is_open = False
        self._is_checked = os.environ.get("CUMULUS_DEBUG", "0") not in ("", "0")
        """Whether every link of a map is looked at whenever it was changed."""
        self._raised: Exception | None = None
        self._stopped: BaseException | None = None
        self._fired = 0
        """Events since the last commit."""
        self._indexes: dict[str, list[tuple[int, ...]]] = {}
        for name, places in indexes:
            self._indexes.setdefault(name, []).append(places)
        self._entries: WeakKeyDictionary[Entry, str] = WeakKeyDictionary()
        """What builtins that somebody holds lead to, and their relations."""
        self._entered: dict[str, None] = {}
        """Relations that have had a builtin."""
        self._shut: set[str] = set()
        """Relations that are not `open`."""
        self._sources = sources(program)
        self._stale = set(self._sources)
        self._computed: set[str] = set()
        """The `:=` maps that the open transaction has computed."""
        self._image = self._build(None)
        for definition in program.maps:
            for key, values in initial_entries(definition):
                self._put(definition.name, key, values)
        if self._assigns:
            self._assign_first()

    def _build(self, before: Image | None) -> Image:
        """Return the program compiled, with empty maps; what stands for texts in another image does in this one."""
        made, code = built(self.program, self._functions, self._indexes, self._level or 0, self._load)
        if before is None:
            self._dictionary = Dictionary(code)
            self._dictionary.widen = lambda: self._widen()
        self._failures.locate(made.places)
        image = Image(made, code, self._dictionary, self._call, self._report, self._box)
        for relation in self._shut:
            image.set_word(open_word(relation), 0)
        self._named = {definition.name: image.maps[number] for number, definition in enumerate(self.program.maps)}
        self._outside = [
            (
                each.callee.implement(self._functions),
                [(decoder(lane, self._dictionary), lane.words) for lane in each.args],
                encoder(each.result, self._dictionary),
            )
            for each in made.outside
        ]
        self.python_functions = called_of(made.outside)
        self._encoders = {
            name: [encoder(each.lane, self._dictionary) for each in columns] for name, columns in made.events.items()
        }
        self._bind(image)
        tiered = self._level is None and self._load is None
        self._tier = Tier(self.program, self._functions, self._indexes) if tiered else None
        return image

    def _bind(self, image: Image) -> None:
        """Take the functions of an image's code."""
        made = image.made
        self._triggers: dict[tuple[On, str], Callable[..., int]] = {}
        for (on, relation), name in made.triggers.items():
            count = 0 if on is On.BATCH else event_words(made.events[relation])
            self._triggers[on, relation] = image.named(name, I64, [PTR, *[I64] * count])
        self._fill = {
            relation: image.named(
                name, None, [PTR, *[I64] * sum(each.lane.words for each in made.events[relation]), I64]
            )
            for relation, (name, _) in made.batches.items()
        }
        self._undo = image.named(UNDO, I64, [PTR, I64])
        self._mark_touched = image.named(TOUCHED, None, [PTR, PTR])
        self._notes = Notes(image)
        self._rows: dict[str, Callable[..., int]] = {}
        self._settled = image.named(SETTLED, I64, [PTR])
        self._assigns = {target: image.named(name, None, [PTR]) for target, name in made.assigns.items()}
        for entry, relation in self._entries.items():
            self._attach(entry, relation, image)

    def close(self) -> None:
        """Give back the memory of all maps; see `Engine.close`."""
        for entry in tuple(self._entries):
            entry.detach()
        self._image.close()
        self._dictionary.close()

    def _work_done(self) -> None:
        """Count what was fired; no transaction is open. Once there is better code, go on with it."""
        better = None if self._tier is None or not self._fired else self._tier.after(self._fired)
        self._fired = 0
        if better is not None and better[0] == self._image.made:
            self._image.use(better[1])
            self._bind(self._image)

    @property
    def fast(self) -> FastPath:
        """What fires events without Python."""
        return self

    # --- events past Python -----------------------------------------------------------------------------------------

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return the fast way into a relation: a builtin that takes a sign and the values of a row.

        It fires the trigger itself as long as the engine is `at_rest` and the relation `open`, as a transaction of its
        own; else, and where anything is unusual, it calls `slow` with the same arguments.
        """
        entry = Entry(f"on_{relation}", slow)
        self._entries[entry] = relation
        self._entered[relation] = None
        self._attach(entry, relation, self._image)
        return entry.builtin(self._image.code)

    def _attach(self, entry: Entry, relation: str, image: Image) -> None:
        entry.attach(image, f"{SINGLE}{image.made.number(relation)}")

    def open(self, relation: str, value: bool) -> None:
        """Say whether code may take events of a relation without asking Python."""
        (self._shut.discard if value else self._shut.add)(relation)
        self._image.set_word(open_word(relation), int(value))

    def checks(self, relation: str) -> bool:
        """Whether code checks keys and references of a relation; see `FastPath.checks`."""
        return relation in self._image.made.checked

    def take_upserted(self, relation: str) -> dict[int, int]:
        """Return how many rows upserts have added and taken away; see `FastPath.take_upserted`."""
        found = {}
        for sign in (1, -1):
            found[sign] = self._image.get_word(upserted_word(relation, sign))
            self._image.set_word(upserted_word(relation, sign), 0)
        return found

    def is_settled(self) -> bool:
        """Whether the references of all events that code has fired hold; see `FastPath.is_settled`."""
        assert self._is_open, "no transaction is open"
        return bool(self._settled(self._image.at))

    def rest(self, value: bool) -> None:
        """Say whether builtins may fire triggers: no transaction is open, nobody else is at work, or wants to know."""
        free = not (self._watched or self._assigns or self._is_checked)
        self._image.set_word(READY, int(value and free))

    def visitor(self) -> int:
        """Return the thread that is in a builtin now, 0 if none is; see `FastPath.visitor`."""
        found = self._image.get_word(QUIET)
        return 0 if found == 1 else found

    def take_fired(self) -> dict[str, tuple[int, int]]:
        """Return how many events builtins have fired since the last call, and how many more rows there are."""
        fired = self._image.take_fired(self._entered)
        self._fired += sum(events for events, _ in fired.values())
        self._work_done()
        return fired

    def runner(self, bulk: Bulk, each: bool) -> Run | None:
        """Return what fires events of a bulk by code; see `FastPath.runner`."""
        by_python = each and (self._watched or self._assigns or self._is_checked)
        if by_python or len(self.program.relations) > MOST_RELATIONS:
            return None
        if isinstance(bulk, Upserts):
            if not self._image.made.upserted.issuperset(bulk.names):
                return None
            for name in bulk.names:
                self.take_upserted(name)  # of a transaction that failed
        takes_memory = each or isinstance(bulk, (Columns, Upserts))  # else there is a transaction, which grants it
        if takes_memory:
            self._begin_anew()
        run = run_of(self._image, bulk, self._dictionary)
        if takes_memory:
            self._grant()

        def fire(start: int) -> int:
            assert each != self._is_open, "events are transactions, or in one"
            self._image.set_word(QUIET, 1)
            self._image.set_word(WAITS, int(not each))
            try:
                reached = run(start, each)
            finally:
                self._image.set_word(QUIET, 0)
                self._image.set_word(WAITS, 0)
                self._stop_if_told()
            self._fired += reached - start
            if each:
                self._work_done()
            return reached

        return fire

    def fire(self, sign: int, relation: str, row: tuple[object, ...]) -> Changes | None:
        """Fire the trigger of an event as a transaction by code; see `FastPath.fire`."""
        if self._assigns or self._is_checked or len(self.program.relations) > MOST_RELATIONS:
            return None
        image = self._image
        code = self._rows.get(relation)
        if code is None:
            code = self._rows[relation] = rows_of(image, relation)
        try:
            image.set_word(QUIET, 1)
            try:
                done = code(image.at, [row], 0, 1, sign, False)
            finally:
                image.set_word(QUIET, 0)
                self._stop_if_told()
            changes = self._notes.changes(map(self._named.__getitem__, self._watched)) if done else None
        except BaseException:
            self._take_back(0)
            self._close()
            raise
        if done:
            self._close()
            self._fired += 1
            self._work_done()
        return changes

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a transaction."""
        assert not self._is_open, "transactions do not nest"
        self._is_open = True
        self._image.set_word(DOUBTFUL, 0)
        self._begin_anew()

    def commit(self) -> Changes:
        """Run the `:=` statements and close the transaction; see `Engine.commit`."""
        assert self._is_open, "no transaction is open"
        self._assign()
        if self._is_checked:
            self._check_links()
        changes = self._notes.changes(map(self._named.__getitem__, self._watched)) if self._watched else {}
        self._close()
        self._failures.commit()
        self._work_done()
        return changes

    def _check_links(self) -> None:
        for name in self.touched():
            problems = self._named[name].view.problems()
            assert not problems, f"map {name} is damaged: {'; '.join(problems)}"

    def _assign(self) -> None:
        """Compute the `:=` maps whose sources have changed."""
        for target, function in self._assigns.items():
            if target not in self._stale and self._sources[target].isdisjoint(self.touched()):
                continue
            self._fire(partial(function, self._image.at))
            if self._failures.pending:
                self._failures.blame(0, "", None)
            self._computed.add(target)
        self._stale -= self._computed

    def _assign_first(self) -> None:
        """Give `:=` maps their value for empty tables; what fails in it is told by the first transaction."""
        self.begin()
        self._assign()
        failed = self._failures.has_open
        self._close()
        if failed:
            self._failures.rollback()
            self._stale |= self._assigns.keys()

    def touched(self) -> set[str]:
        """Return the maps that the open transaction has written to."""
        marks = ctypes.create_string_buffer(len(self.program.maps))
        self._mark_touched(self._image.at, marks)
        return {definition.name for definition, mark in zip(self.program.maps, marks.raw, strict=True) if mark}

    def rollback(self) -> None:
        """Close the transaction and put every entry back."""
        assert self._is_open, "no transaction is open"
        self._take_back(0)
        if self._image.get(JOURNAL_SIZE) > SMALL:  # it may be what there was no room beside
            self._image.set(JOURNAL_USED, 0)
            self._image.free_journal()
        self._stale |= self._computed
        self._close()
        self._failures.rollback()

    def _close(self) -> None:
        self._computed.clear()
        self._dictionary.boxes.sweep(lambda: (box for each in self._named.values() for box in each.boxes()))
        self._image.set(JOURNAL_USED, 0)
        self._image.set(STATUS, 0)
        if self._image.get(JOURNAL_SIZE) > _LARGE_JOURNAL:
            self._image.free_journal()
        self._is_open = False

    def take_errors(self) -> ErrorLog:
        """Return the errors of the transactions committed since the last call; see `Engine.take_errors`."""
        return self._failures.take()

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        """Fire the trigger of a single event; see `Engine.on_event`."""
        assert self._is_open, "an event outside a transaction"
        self._fired += 1
        trigger = self._triggers.get((On.INSERT if sign > 0 else On.DELETE, relation))
        if trigger is None:
            self._without_trigger(sign, relation, row)
            return
        words: list[int] = []
        looked_at = []
        for column, encode, value in zip(self._image.made.events[relation], self._encoders[relation], row, strict=True):
            if column.is_text:
                looked_at.append(None if value is None else bytes_of(value))
                words += text_words(looked_at[-1])
            elif column.is_used:
                words += encode(value)
        self._fire(partial(trigger, self._image.at, *words))
        if self._failures.pending:
            self._failures.blame(sign, relation, row)

    def _fire(self, code: Callable[[], object]) -> None:
        """Run code of the open transaction; where memory is refused and may be granted, take it back and run it again.

        Raises
        ------
        MemoryLimitError, EvaluationError
            If the transaction must end.
        """
        before = self._image.get(JOURNAL_USED)
        while True:
            code()
            self._stop_if_told()
            status = self._image.get(STATUS)
            if not status:
                return
            self._image.set(STATUS, 0)
            culprit = self._image.get(CULPRIT)
            if status != Status.NO_MEMORY.value:
                raise self._overflow(self._image.maps[culprit].store.name)
            problem = self._no_memory(self._image.maps.get(culprit))
            if not self._widen():
                raise problem
            self._failures.pending.clear()
            self._take_back(before)

    def _take_back(self, before: int) -> None:
        """Undo what the journal has from some byte on."""
        if not self._undo(self._image.at, before):
            raise MemoryError("a transaction cannot be undone for want of memory; the warehouse is lost")
        for store in self._image.maps.values():
            if store.store.is_scratch and store is not self._batch:
                store.clear()

    def _without_trigger(self, sign: int, relation: str, row: Row) -> None:
        if (On.BATCH, relation) in self._triggers:
            self.on_batch(relation, {row: sign})
        elif any((on, relation) in self._triggers for on in (On.INSERT, On.DELETE)):
            raise missing_trigger(sign, relation)
        # A relation without any trigger is one that no map depends on.

    def _overflow(self, name: str) -> EvaluationError:
        """Return the error that a number of a map has grown too large."""
        return EvaluationError(
            f"map {name}: {TOO_LARGE.message}",
            view=name,
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
        self._fired += len(changes)
        batch = self._image.maps[self._image.made.batches[relation][1]]
        batch.clear()
        fill, encoders = self._fill[relation], self._encoders[relation]
        self._batch = batch
        try:
            for row, count in changes.items():
                words = [word for encode, value in zip(encoders, row, strict=True) for word in encode(value)]
                self._fire(partial(fill, self._image.at, *words, count))
            self._fire(partial(trigger, self._image.at))
            if self._failures.pending:
                self._failures.blame_batch(relation, canonical_rows(changes))
        finally:
            self._batch = None

    # --- indexes and subscriptions ----------------------------------------------------------------------------------

    def watch(self, map: str) -> None:
        """Report the changes of a map at each commit."""
        self.store(map)
        self._watched[map] = None

    def unwatch(self, map: str) -> None:
        """Report the changes of a map no more."""
        self._watched.pop(map, None)

    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Keep an index of the map on these key positions, for `find`."""
        store = self.store(map)
        if not 0 < len(positions) < len(store.store.keys) or positions in store.store.indexes:
            return
        assert not self._is_open, "an index is added outside transactions"
        with Deferring():
            self._rebuild(map, {**self._indexes, map: [*self._indexes.get(map, ()), positions]})

    def _rebuild(self, map: str, indexes: dict[str, list[tuple[int, ...]]]) -> None:
        """Go on with code that keeps other indexes, of which those of `map` are new, and with the rows there are."""
        before = self._image, self._named, self._tier, self._indexes
        self._indexes = indexes
        self._image = self._build(before[0])
        for number, store in self._image.maps.items():
            if not store.store.is_scratch and not store.adopt(before[0].maps[number]):
                self._image, self._named, self._tier, self._indexes = before
                self._bind(self._image)
                raise MemoryLimitError(f"an index of map {map} does not fit into memory", hint="Delete rows.")
        self._grant()
