"""Errors of views as a warehouse shows and keeps them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cumulus.engine.failures import ViewError
from cumulus.views.tables import Shown

SCHEMA = pa.schema(
    [
        ("transaction", pa.int64()),
        ("view", pa.string()),
        ("sign", pa.int8()),
        ("relation", pa.string()),
        ("event", pa.string()),
        ("message", pa.string()),
    ]
)


class ViewErrors(Shown):
    """The events that views could not take in whole: a sequence of the `ViewError` that are kept, and a table.

    `count` is how many there were.
    """

    def __init__(self, errors: list[ViewError], count: int, title: str = "") -> None:
        self.count = count
        self._errors = errors
        self._shown = title

    def __len__(self) -> int:
        return len(self._errors)

    def __iter__(self) -> Iterator[ViewError]:
        return iter(self._errors)

    def __getitem__(self, place: int) -> ViewError:
        return self._errors[place]

    def as_notes(self) -> list[str]:
        """Return what must be said below the rows of the view: one line if there were errors."""
        if not self.count:
            return []
        events = "1 event" if self.count == 1 else f"{self.count} events"
        first = f"{self[0].event}: {self[0].message}"
        return [f"{self[0].view} lacks what {events} should have added, the first {first} (see errors())"]

    def arrow(self) -> pa.Table:
        """Return the errors as Arrow: transaction, view, sign, relation, the event as text, message."""
        columns = {name: [getattr(error, name) for error in self._errors] for name in SCHEMA.names}
        return pa.table(columns, schema=SCHEMA)

    def _title(self) -> str:
        return self._shown

    def _notes(self) -> list[str]:
        return [f"{self.count} errors, the first {len(self)} were kept"] if self.count > len(self) else []
