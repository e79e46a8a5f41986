"""Transactions of the native engine: events that come by Python, and the undo log that takes them back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import partial

from cumulus.catalog.events import Row
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.analysis.missing_triggers import canonical_rows, missing_trigger, one_by_one
from cumulus.engine.failures import Failures
from cumulus.engine.native.callbacks import TOO_LARGE
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.intake.key_checks import DOUBTFUL, UNSEEN
from cumulus.engine.native.kernel.memory import SMALL
from cumulus.engine.native.memory_grants import MemoryGrants
from cumulus.engine.native.store.memory_layout import CULPRIT, JOURNAL_SIZE, JOURNAL_USED, STATUS, Status
from cumulus.engine.native.store.text_table import bytes_of
from cumulus.engine.native.values.codec import text_words
from cumulus.engine.native.values.text_sweep import sweep
from cumulus.engine.protocol import Changes
from cumulus.errors import EvaluationError, LargeNumberError
from cumulus.m3.program import On

_LARGE_JOURNAL = 1 << 26
"""A journal that has grown to so many bytes is given back: the next transaction may be small."""


class Transactions:
    """The `cumulus.engine.protocol.Firing` of machine code, but for its errors."""

    def __init__(self, code: CurrentCode, grants: MemoryGrants, failures: Failures) -> None:
        self._code = code
        self._grants = grants
        self._failures = failures
        self.watched: dict[str, None] = {}
        self.is_open = False
        self.is_checked = os.environ.get("CUMULUS_DEBUG", "0") not in ("", "0")
        """Whether every link of a map is looked at whenever it was changed."""
        self._sources = sources(code.program)
        self._stale = set(self._sources)
        self._computed: set[str] = set()
        """The `:=` maps that the open transaction has computed."""

    def begin(self) -> None:
        """Open a transaction."""
        assert not self.is_open, "transactions do not nest"
        if self._code.dictionary.are_many:
            self.sweep_texts()
        self.is_open = True
        for each in (DOUBTFUL, UNSEEN):
            self._code.image.words.set_word(each, 0)
        self._grants.begin_anew()

    def sweep_texts(self) -> None:
        """Remove the texts that no row names any more, if they are many; no transaction is open."""
        code = self._code
        sweep(code.maps, code.dictionary, code.image.lift_limits, code.image.forget_numbers)
        self._grants.begin_anew()

    def commit(self) -> Changes:
        """Run the `:=` statements and close the transaction; see `Engine.commit`."""
        assert self.is_open, "no transaction is open"
        code = self._code
        self._assign()
        if self.is_checked:
            self._check_links()
        changes = code.entry_points.notes.changes(map(code.maps.__getitem__, self.watched)) if self.watched else {}
        self.close()
        self._failures.commit()
        code.go_on()
        return changes

    def _check_links(self) -> None:
        for name in self.touched():
            problems = self._code.maps[name].view.problems()
            assert not problems, f"map {name} is damaged: {'; '.join(problems)}"

    def touched(self) -> set[str]:
        """Return the maps that the open transaction has written to."""
        maps = self._code.program.maps
        marks = ctypes.create_string_buffer(len(maps))
        self._code.entry_points.mark_touched(self._code.image.at, marks)
        return {definition.name for definition, mark in zip(maps, marks.raw, strict=True) if mark}

    def rollback(self) -> None:
        """Close the transaction and put every entry back."""
        assert self.is_open, "no transaction is open"
        image = self._code.image
        self.take_back(0)
        if image.words.get(JOURNAL_SIZE) > SMALL:  # it may be what there was no room beside
            image.words.set(JOURNAL_USED, 0)
            image.free_journal()
        self._stale |= self._computed
        self.close()
        self._failures.rollback()

    def take_back(self, before: int) -> None:
        """Undo what the journal has from some byte on."""
        image = self._code.image
        if not self._code.entry_points.undo(image.at, before):
            raise MemoryError("a transaction cannot be undone for want of memory; the warehouse is lost")
        for store in image.maps.values():
            if store.store.is_scratch and store is not image.callbacks.batch:
                store.clear()

    def close(self) -> None:
        """Close a transaction that is whole, or was taken back."""
        code = self._code
        words = code.image.words
        self._computed.clear()
        if code.dictionary.boxes.are_many:
            code.dictionary.boxes.sweep(lambda: (box for each in code.maps.values() for box in each.boxes()))
        words.cells[JOURNAL_USED >> 3] = words.cells[STATUS >> 3] = 0
        if words.cells[JOURNAL_SIZE >> 3] > _LARGE_JOURNAL:
            code.image.free_journal()
        self.is_open = False

    def watch(self, map: str) -> None:
        """Report the changes of a map at each commit."""
        self._code.store(map)
        self.watched[map] = None

    def unwatch(self, map: str) -> None:
        """Report the changes of a map no more."""
        self.watched.pop(map, None)

    def change(self, map: str, function: Callable[[], object]) -> None:
        """Run code that changes a map and notes what it changes; outside a transaction as one that nobody hears of.

        Raises
        ------
        MemoryLimitError, EvaluationError
            If the open transaction must end; outside one nothing has changed.
        """
        if self.is_open:
            self._fire(function)
            return
        self.mark_replaced(map)
        self._grants.begin_anew()
        try:
            self._fire(function)
        except BaseException:
            self.take_back(0)
            self.close()
            raise
        if self.is_checked:
            self._check_links()
        self.close()

    # --- := ---------------------------------------------------------------------------------------------------------

    def mark_replaced(self, map: str) -> None:
        """Have the `:=` maps that read a map computed again: its contents are others. No transaction may be open."""
        assert not self.is_open, "maps are loaded and restored outside transactions"
        self._stale |= {target for target, reads in self._sources.items() if map in reads}

    def assign_first(self) -> None:
        """Give `:=` maps their value for empty tables; what fails in it is told by the first transaction."""
        if not self._code.entry_points.assigns:
            return
        self.begin()
        self._assign()
        failed = self._failures.has_open
        self.close()
        if failed:
            self._failures.rollback()
            self._stale |= self._code.entry_points.assigns.keys()

    def _assign(self) -> None:
        """Compute the `:=` maps whose sources have changed."""
        for target, function in self._code.entry_points.assigns.items():
            if target not in self._stale and self._sources[target].isdisjoint(self.touched()):
                continue
            self._fire(partial(function, self._code.image.at))
            if self._failures.pending:
                self._failures.blame(0, "", None)
            self._computed.add(target)
        self._stale -= self._computed

    # --- events -----------------------------------------------------------------------------------------------------

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        """Fire the trigger of a single event; see `Engine.on_event`."""
        assert self.is_open, "an event outside a transaction"
        code = self._code
        code.fired += 1
        trigger = code.entry_points.triggers.get((On.INSERT if sign > 0 else On.DELETE, relation))
        if trigger is None:
            self._without_trigger(sign, relation, row)
            return
        words: list[int] = []
        looked_at = []
        for column, encode, value in zip(code.image.plan.events[relation], code.encoders[relation], row, strict=True):
            if column.is_text:
                looked_at.append(None if value is None else bytes_of(value))
                words += text_words(looked_at[-1])
            elif column.is_used:
                words += encode(value)
        self._fire(partial(trigger, code.image.at, *words))
        if self._failures.pending:
            self._failures.blame(sign, relation, row)

    def _without_trigger(self, sign: int, relation: str, row: Row) -> None:
        triggers = self._code.entry_points.triggers
        if (On.BATCH, relation) in triggers:
            self.on_batch(relation, {row: sign})
        elif any((on, relation) in triggers for on in (On.INSERT, On.DELETE)):
            raise missing_trigger(sign, relation)
        # A relation without any trigger is one that no map depends on.

    def on_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Fire the batch trigger, or the single ones where that is the same; see `Engine.on_batch`."""
        assert self.is_open, "an event outside a transaction"
        code = self._code
        trigger = code.entry_points.triggers.get((On.BATCH, relation))
        if trigger is None:
            for sign, row in one_by_one(code.program, relation, changes):
                self.on_event(sign, relation, row)
            return
        code.fired += len(changes)
        image = code.image
        batch = image.maps[image.plan.batches[relation][1]]
        batch.clear()
        fill, encoders = code.entry_points.fill[relation], code.encoders[relation]
        image.callbacks.batch = batch
        try:
            for row, count in changes.items():
                words = [word for encode, value in zip(encoders, row, strict=True) for word in encode(value)]
                self._fire(partial(fill, image.at, *words, count))
            self._fire(partial(trigger, image.at))
            if self._failures.pending:
                self._failures.blame_batch(relation, canonical_rows(changes))
        finally:
            image.callbacks.batch = None

    def _fire(self, function: Callable[[], object]) -> None:
        """Run code of the open transaction; where memory is refused and may be granted, take it back and run it again.

        Raises
        ------
        MemoryLimitError, EvaluationError
            If the transaction must end.
        """
        image = self._code.image
        words = image.words
        words.set_word(UNSEEN, 1)
        before = words.get(JOURNAL_USED)
        while True:
            function()
            image.callbacks.raise_stopped()
            status = words.get(STATUS)
            if not status:
                return
            words.set(STATUS, 0)
            culprit = words.get(CULPRIT)
            if status != Status.NO_MEMORY.value:
                raise _overflow(image.maps[culprit].store.name)
            self._grants.widen_for(image.maps.get(culprit))
            self._failures.pending.clear()
            self.take_back(before)


def _overflow(name: str) -> EvaluationError:
    """Return the error that a number of a map has grown too large."""
    return LargeNumberError(
        f"map {name}: {TOO_LARGE.message}",
        view=name,
        hint="Open the warehouse with engine='interpreter', whose numbers have no bound.",
    )
