"""Events that machine code takes without Python: by builtins, as rows of Python, or as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from cumulus.engine.batches import Bulk, Columns, Upserts
from cumulus.engine.native.bulk_runs import BulkRuns, rows_of
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.image import Image
from cumulus.engine.native.intake.builtin import Entry
from cumulus.engine.native.intake.key_checks import WAITS
from cumulus.engine.native.intake.python_rows import QUIET, SINGLE, open_word
from cumulus.engine.native.intake.streams import MOST_RELATIONS
from cumulus.engine.native.intake.upserts import upserted_word
from cumulus.engine.native.memory_grants import MemoryGrants
from cumulus.engine.native.transactions import Transactions
from cumulus.engine.protocol import Changes, Run


class NativeFastPath:
    """The `cumulus.engine.protocol.FastPath` of machine code."""

    def __init__(self, code: CurrentCode, grants: MemoryGrants, transactions: Transactions) -> None:
        self._code = code
        self._grants = grants
        self._transactions = transactions
        self._has_few_relations = len(code.program.relations) <= MOST_RELATIONS
        self._entries: WeakKeyDictionary[Entry, str] = WeakKeyDictionary()
        """What builtins that somebody holds lead to, and their relations."""
        self._counted: dict[str, tuple[int, int]] = {}
        """Relations that have had a builtin, and where it counts: see `ContextWords.counted_places`."""
        self._shut: set[str] = set()
        """Relations that are not `open`."""
        self._rows: dict[str, Callable[..., int]] = {}
        code.add_user(self._use)

    def _use(self, image: Image) -> None:
        """Lead builtins and bulks into an image's code."""
        self._rows.clear()
        self._runs = BulkRuns(image, self._code.dictionary)
        for relation in self._shut:
            image.words.set_word(open_word(relation), 0)
        for relation in tuple(self._counted):
            self._count(relation)
        for entry, relation in self._entries.items():
            _attach(entry, relation, image)

    def _count(self, relation: str) -> None:
        """Take what builtins of a relation count, if its code has any."""
        events, rows = self._code.image.words.counted_places(relation)
        self._counted.pop(relation, None)
        if events >= 0:
            self._counted[relation] = events, rows

    def close(self) -> None:
        """Let builtins call what is slow from now on."""
        for entry in tuple(self._entries):
            entry.detach()

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return the fast way into a relation: a builtin that takes a sign and the values of a row.

        It fires the trigger itself as long as the engine is at `rest` and the relation `open`, as a transaction of its
        own; else, and where anything is unusual, it calls `slow` with the same arguments.
        """
        entry = Entry(f"on_{relation}", slow)
        self._entries[entry] = relation
        self._count(relation)
        _attach(entry, relation, self._code.image)
        return entry.builtin(self._code.image.code)

    def open(self, relation: str, value: bool) -> None:
        """Say whether code may take events of a relation without asking Python."""
        (self._shut.discard if value else self._shut.add)(relation)
        self._code.image.words.set_word(open_word(relation), int(value))

    def checks(self, relation: str) -> bool:
        """Whether code checks keys and references of a relation; see `FastPath.checks`."""
        return relation in self._code.image.plan.checked

    def take_upserted(self, relation: str) -> dict[int, int]:
        """Return how many rows upserts have added and taken away; see `FastPath.take_upserted`."""
        words = self._code.image.words
        found = {}
        for sign in (1, -1):
            found[sign] = words.get_word(upserted_word(relation, sign))
            words.set_word(upserted_word(relation, sign), 0)
        return found

    def is_settled(self) -> bool:
        """Whether the references of all events that code has fired hold; see `FastPath.is_settled`."""
        assert self._transactions.is_open, "no transaction is open"
        return bool(self._code.entry_points.settled(self._code.image.at))

    def rest(self, value: bool) -> bool:
        """Say whether builtins may fire triggers: no transaction is open, nobody else is at work, or wants to know."""
        code, transactions = self._code, self._transactions
        value = value and not (transactions.watched or code.entry_points.assigns or transactions.is_checked)
        words = code.image.words
        words.cells[words.ready] = int(value)
        return value

    def pause(self) -> int:
        """Let no builtin fire triggers from now on; return the thread that is in one, 0 if none is."""
        words = self._code.image.words
        cells = words.cells
        cells[words.ready] = 0
        thread = cells[words.quiet]
        return 0 if thread == 1 else thread

    def visitor(self) -> int:
        """Return the thread that is in a builtin now, 0 if none is; see `FastPath.visitor`."""
        words = self._code.image.words
        thread = words.cells[words.quiet]
        return 0 if thread == 1 else thread

    def take_fired(self) -> dict[str, tuple[int, int]]:
        """Return how many events builtins have fired since the last call, and how many more rows there are."""
        code, found = self._code, dict[str, tuple[int, int]]()
        cells = code.image.words.cells
        for relation, (events, rows) in self._counted.items():
            fired = cells[events]
            if fired:
                found[relation] = fired, 0 if rows < 0 else cells[rows]
                cells[events] = 0
                if rows >= 0:
                    cells[rows] = 0
                code.fired += fired
        if found:
            code.go_on()
            if code.dictionary.are_many and not self._transactions.is_open:
                self._transactions.sweep_texts()
        return found

    def runner(self, bulk: Bulk, each: bool) -> Run | None:
        """Return what fires events of a bulk by code; see `FastPath.runner`."""
        code, transactions = self._code, self._transactions
        by_python = each and (transactions.watched or code.entry_points.assigns or transactions.is_checked)
        if by_python or not self._has_few_relations:
            return None
        if isinstance(bulk, Upserts):
            if not code.image.plan.upserted.issuperset(bulk.names):
                return None
            for name in bulk.names:
                self.take_upserted(name)  # of a transaction that failed
        takes_memory = each or isinstance(bulk, (Columns, Upserts))  # else there is a transaction, which grants it
        if takes_memory:
            if code.dictionary.are_many and not transactions.is_open:
                transactions.sweep_texts()
            self._grants.begin_anew()
        run = self._runs.of(bulk)
        if takes_memory:
            self._grants.grant()

        def fire(start: int) -> int:
            assert each != transactions.is_open, "events are transactions, or in one"
            image = code.image
            words = image.words
            words.set_word(QUIET, 1)
            words.set_word(WAITS, int(not each))
            try:
                reached = run(start, each)
            finally:
                words.set_word(QUIET, 0)
                words.set_word(WAITS, 0)
                image.callbacks.raise_stopped()
            code.fired += reached - start
            if each:
                code.go_on()
            return reached

        return fire

    def fire(self, sign: int, relation: str, row: tuple[object, ...]) -> Changes | None:
        """Fire the trigger of an event as a transaction by code; see `FastPath.fire`."""
        code, transactions = self._code, self._transactions
        if code.entry_points.assigns or transactions.is_checked or not self._has_few_relations:
            return None
        image = code.image
        words = image.words
        take = self._rows.get(relation)
        if take is None:
            take = self._rows[relation] = rows_of(image, relation)
        try:
            words.cells[words.quiet] = 1
            try:
                done = take(image.at, [row], 0, 1, sign, False)
            finally:
                words.cells[words.quiet] = 0
                if image.callbacks.stopped is not None:
                    image.callbacks.raise_stopped()
            changes: Changes | None = {} if done else None
            if done and transactions.watched:
                changes = code.entry_points.notes.changes(map(code.maps.__getitem__, transactions.watched))
        except BaseException:
            transactions.take_back(0)
            transactions.close()
            raise
        if done:
            transactions.close()
            code.fired += 1
            code.go_on()
            dictionary = code.dictionary
            if dictionary.count.value >= dictionary.sweep_at:  # `are_many`, without a call for each event
                transactions.sweep_texts()
        return changes


def _attach(entry: Entry, relation: str, image: Image) -> None:
    entry.attach(image, f"{SINGLE}{image.plan.number(relation)}")
