"""Whole views that readers share: who asks while another one reads takes what the next one reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from cumulus.warehouse import Warehouse

_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Read:
    """A view as it was read: after which request for rows, and after which transaction."""

    begun: int
    at: int
    table: pa.Table


class SharedRows:
    """The rows of whole views, made once for all who asked before they were begun; any thread may ask.

    As long as no transaction comes they are made once, too. Those of the views that were read last are kept.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._lock = Lock()
        self._count = 0
        self._reading: defaultdict[str, Lock] = defaultdict(Lock)
        self._kept: dict[str, _Read] = {}

    def read(self, view: str) -> tuple[pa.Table, int]:
        """Return all rows of a view, and the transaction after which they are: no earlier one than when this was asked.

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
        return kept.table, kept.at

    def _next(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _read(self, view: str, kept: _Read | None) -> _Read:
        begun = self._next()
        with self._warehouse.one_state() as at:
            reader = self._warehouse.view(view)
            found = _Read(begun, at, kept.table if kept is not None and kept.at == at else reader.arrow())
        with self._lock:
            self._kept.pop(view, None)
            self._kept[view] = found
            while len(self._kept) > 1 and sum(each.table.nbytes for each in self._kept.values()) > _MOST_BYTES:
                del self._kept[next(iter(self._kept))]
        return found
