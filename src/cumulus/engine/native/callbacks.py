"""What machine code calls: functions of Python, reports of failures, boxes."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any

from cumulus.catalog.events import Row
from cumulus.engine.analysis.float_sums import NOT_FINITE
from cumulus.engine.failures import Failures
from cumulus.engine.native.intake.python_rows import QUIET, READY, REPORTED
from cumulus.engine.native.kernel.lanes import Words
from cumulus.engine.native.maps import Holder
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import Reason
from cumulus.engine.native.values.map_access import I64, StoredMap
from cumulus.errors import EvaluationError

TOO_LARGE = EvaluationError(
    "a number is beyond what the native engine keeps: 128 bits, and -2**63 in a key stands for NULL",
    hint="Divide before you add, use DOUBLE, or open the warehouse with engine='interpreter'.",
)


class Called(Holder, ABC):
    """The part of `cumulus.engine.native.engine.NativeEngine` that machine code calls; nothing may be raised in it."""

    _failures: Failures
    _outside: list[tuple[Callable[..., Any], list[tuple[Callable[[Sequence[int]], Any], int]], Callable[[Any], Words]]]
    """The functions of Python that code calls, how arguments are read and how results are written, by their numbers."""
    called_count = 0
    """How often code has called one of them."""
    _raised: Exception | None = None
    _stopped: BaseException | None = None
    _batch: StoredMap | None = None
    """The rows of the batch that a trigger is fired with."""

    def _call(self, number: int, frame: int) -> int:
        implement, args, encode = self._outside[number]
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
            self._stopped = problem
            return 2
        except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is the view's error
            self._raised = problem
            return 2
        except BaseException as problem:  # noqa: BLE001 - Ctrl-C: nothing may be raised through machine code
            self._stopped = problem
            return 2
        return 0

    def _stop_if_told(self) -> None:
        """Raise what came while machine code ran."""
        if self._stopped is not None:
            problem, self._stopped = self._stopped, None
            raise problem

    def _report(self, site: int, reason: int, row: int) -> int:
        if self._image.get_word(QUIET):
            self._image.set_word(REPORTED, 1)
            return 0
        problem: Exception = {
            Reason.RAISED.value: self._raised or TOO_LARGE,
            Reason.NOT_FINITE.value: NOT_FINITE,
            Reason.OVERFLOW.value: TOO_LARGE,
        }[reason]
        self._raised = None
        self._failures.failed(site, problem, self._batch_row(row) if row else None)
        return 0

    def _box(self, op: int, left: int, right: int, more: int) -> int:
        boxes = self._dictionary.boxes
        if boxes.are_many:  # let the next event come through Python, which sweeps
            self._image.set_word(READY, 0)
        return boxes.run(op, left, right, more)

    def _batch_row(self, row: int) -> Row | None:
        if self._batch is None:
            return None
        return self._batch.key_of(self._batch.row(row & ROW))
