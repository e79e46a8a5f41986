"""Whole views that readers share: who asks while another one reads takes what the next one reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from time import monotonic, sleep

import pyarrow as pa

from cumulus.catalog.schema import Column
from cumulus.views.vectors import NotColumnarError
from cumulus.warehouse import Warehouse

_SHARE = 2.0
"""After a view was read it is left alone so many times as long as that took: a writer has the rest."""
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Read:
    """A view as it was read: after which request for rows, and after which transaction."""

    begun: int
    at: int
    table: pa.Table
    columns: tuple[Column, ...]


class SharedRows:
    """The rows of whole views, made once for all who asked before they were begun; any thread may ask.

    In the warehouse's turn the maps are only copied; columns are made of the copies while the writer goes on. As long
    as no transaction comes they are made once, too. Those of the views that were read last are kept.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._lock = Lock()
        self._count = 0
        self._reading: defaultdict[str, Lock] = defaultdict(Lock)
        self._kept: dict[str, _Read] = {}
        self._not_before: dict[str, float] = {}

    def read(self, view: str) -> tuple[pa.Table, int, tuple[Column, ...]]:
        """Return all rows of a view, the transaction after which they are, and the view's columns then.

        The transaction is no earlier one than when this was asked.

        Raises
        ------
        UnknownNameError
            If there is no such view.
        EvaluationError
            If an expression of the view cannot be computed for some row.
        """
        asked = self._next()
        with self._reading[view]:
            kept = self._kept.get(view)
            if kept is None or kept.begun < asked:
                kept = self._read(view, kept)
        return kept.table, kept.at, kept.columns

    def _next(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _read(self, view: str, kept: _Read | None) -> _Read:
        if kept is None or kept.at != self._warehouse.transaction_number:
            sleep(max(0.0, self._not_before.get(view, 0.0) - monotonic()))
        with self._warehouse.one_state() as at:
            reader = self._warehouse.view(view)
            begun, arrived = self._next(), monotonic()  # who asked until now shares it
            copied = None
            if kept is None or kept.at != at:
                copied = reader.copied()
                table = reader.arrow() if copied is None else None
            else:
                table = kept.table
        if copied is not None:
            try:
                table = copied.columns()
            except NotColumnarError:
                with self._warehouse.one_state() as at:
                    reader = self._warehouse.view(view)
                    table = reader.arrow()
        if kept is None or kept.at != at:
            self._not_before[view] = monotonic() + _SHARE * (monotonic() - arrived)
        found = _Read(begun, at, table, reader.columns)
        with self._lock:
            self._kept.pop(view, None)
            self._kept[view] = found
            while len(self._kept) > 1 and sum(each.table.nbytes for each in self._kept.values()) > _MOST_BYTES:
                del self._kept[next(iter(self._kept))]
        return found
