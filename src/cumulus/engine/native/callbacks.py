"""What machine code calls, and the context that both read and write: functions of Python, reports of failures,
boxes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from cumulus.algebra.float_sums import NOT_FINITE
from cumulus.catalog.events import Row
from cumulus.engine.failures import Failures
from cumulus.engine.native.intake.python_rows import QUIET, READY, REPORTED, fired_word, rows_word
from cumulus.engine.native.program import CodePlan
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ContextLayout, Reason
from cumulus.engine.native.values.codec import decoder, encoder
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, StoredMap
from cumulus.errors import LargeNumberError
from cumulus.scalars.user import UserFunction

TOO_LARGE = LargeNumberError(
    "a number is beyond what the native engine keeps: 128 bits, and in keys those of their type",
    hint="Divide before you add, use DOUBLE, or open the warehouse with engine='interpreter'.",
)


class Callbacks:
    """What the machine code of an image calls; nothing may be raised in it."""

    def __init__(
        self,
        words: ContextWords,
        plan: CodePlan,
        functions: Mapping[str, UserFunction],
        dictionary: Dictionary,
        failures: Failures,
    ) -> None:
        self._words = words
        self._boxes = dictionary.boxes
        self._failures = failures
        self._python_functions = [
            (
                each.callee.implement(functions),
                [(decoder(lane, dictionary), lane.words) for lane in each.args],
                encoder(each.result, dictionary),
            )
            for each in plan.python_functions
        ]
        """The functions of Python that code calls, how arguments are read and how results are written, by number."""
        self.called_count = 0
        """How often code has called one of them."""
        self.batch: StoredMap | None = None
        """The rows of the batch that a trigger is fired with."""
        self._raised: Exception | None = None
        self.stopped: BaseException | None = None

    def call(self, number: int, frame: int) -> int:
        """Call a function of Python; return 0 with a value, 1 with NULL, 2 if it raised."""
        implement, args, encode = self._python_functions[number]
        self.called_count += 1
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
            for place, word in enumerate(encode(value)):
                words[place] = word
        except MemoryError as problem:  # not the view's
            self.stopped = problem
            return 2
        except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is the view's error
            self._raised = problem
            return 2
        except BaseException as problem:  # noqa: BLE001 - Ctrl-C: nothing may be raised through machine code
            self.stopped = problem
            return 2
        return 0

    def raise_stopped(self) -> None:
        """Raise what came while machine code ran."""
        if self.stopped is not None:
            problem, self.stopped = self.stopped, None
            raise problem

    def report(self, site: int, reason: int, row: int) -> int:
        """Take a failure at a site, for a row of the batch or for 0; while code is QUIET only that there was one."""
        if self._words.get_word(QUIET):
            self._words.set_word(REPORTED, 1)
            return 0
        problem: Exception = {
            Reason.RAISED.value: self._raised or TOO_LARGE,
            Reason.NOT_FINITE.value: NOT_FINITE,
            Reason.OVERFLOW.value: TOO_LARGE,
        }[reason]
        self._raised = None
        self._failures.failed(site, problem, self._batch_row(row) if row else None)
        return 0

    def box(self, op: int, left: int, right: int, more: int) -> int:
        """Compute with boxes; see `cumulus.engine.native.values.codec.BigIntegers.run`."""
        if self._boxes.are_many:  # let the next event come through Python, which sweeps
            self._words.set_word(READY, 0)
        return self._boxes.run(op, left, right, more)

    def _batch_row(self, row: int) -> Row | None:
        return None if self.batch is None else self.batch.codec.key_of(self.batch.row(row & ROW))


_I64 = ctypes.c_int64


class ContextWords:
    """The words of a context, all 0 at first."""

    def __init__(self, layout: ContextLayout) -> None:
        self.buffer = ctypes.create_string_buffer(layout.size + 8)
        """The memory; whoever uses the address keeps it."""
        self.at = (ctypes.addressof(self.buffer) + 7) // 8 * 8
        self.cells = (_I64 * (layout.size // 8)).from_address(self.at)
        self._places = {key: layout.word(key) // 8 for key in layout.words}
        self.quiet = self._places.get(QUIET, -1)
        """The place of `QUIET` in `cells`."""
        self.ready = self._places.get(READY, -1)
        """That of `READY`."""

    def set(self, offset: int, value: int) -> None:
        """Set a word of the context."""
        self.cells[offset >> 3] = value

    def get(self, offset: int) -> int:
        """Return a word of the context."""
        return self.cells[offset >> 3]

    def set_word(self, key: Any, value: int) -> None:
        """Set a word that code asked for, if it did."""
        place = self._places.get(key)
        if place is not None:
            self.cells[place] = value

    def get_word(self, key: Any) -> int:
        """Return a word that code asked for; 0 if it did not."""
        place = self._places.get(key)
        return 0 if place is None else self.cells[place]

    def counted_places(self, relation: str) -> tuple[int, int]:
        """Return where `cells` count events that builtins fired, and the rows that these add; -1 for nowhere."""
        return self._places.get(fired_word(relation), -1), self._places.get(rows_word(relation), -1)
