"""What a host answers: rows that say of which state they are, and receipts for rows that were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.errors import UsageError
from cumulus.views.consistency import Consistency
from cumulus.views.tables import Shown


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """What a client gets for rows that were accepted.

    Attributes
    ----------
    at
        Committed reads of this transaction or epoch, and of all later ones, have the rows.
    rows
        How many there were.
    is_repeated
        Whether the request had been acknowledged before.
    """

    at: int
    rows: int
    is_repeated: bool = False

    @property
    def epoch(self) -> int:
        """The same number as `at`, as clusters call it."""
        return self.at


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """Rows that were read, all of one state.

    Attributes
    ----------
    table
        The rows.
    at
        The transaction (warehouse) or epoch (folder, cluster) after which they are; None for tentative ones.
    consistency
        What was read; the tentative value of a gated view is its committed one.
    view
        Its name; "" for the result of a query.
    versions
        Of tentative rows: switch → the last version that may be in them. Nodes are asked one after the other, so an
        earlier one may be missing in one place and be in another. Empty for committed rows.
    """

    table: pa.Table
    at: int | None
    consistency: Consistency = Consistency.COMMITTED
    view: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.table

    @property
    def epoch(self) -> int | None:
        """The same number as `at`, as clusters call it."""
        return self.at

    @property
    def row(self) -> Row | None:
        """The only row, None if there is none.

        Raises
        ------
        UsageError
            If there are several.
        """
        rows = self.rows()
        if len(rows) > 1:
            raise UsageError(f"{self.view} gave {len(rows)} rows", hint="Use rows().")
        return rows[0] if rows else None

    def _title(self) -> str:
        return self.view

    def _notes(self) -> list[str]:
        if not self.view:
            return []
        return ["tentative"] if self.at is None else [f"{self.consistency}, epoch {self.at}"]
