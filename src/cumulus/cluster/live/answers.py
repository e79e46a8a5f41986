"""What a client gets: tokens for what it has sent, and rows that say of which state they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.cluster.versions import unpack
from cumulus.errors import UsageError
from cumulus.views.consistency import Consistency
from cumulus.views.tables import Shown


@dataclass(frozen=True, slots=True)
class WriteToken:
    """What a client gets for rows that were accepted.

    Attributes
    ----------
    epoch
        The committed views of this epoch, and of all later ones, have the rows.
    rows
        How many there were.
    """

    epoch: int
    rows: int

    @property
    def at(self) -> int:
        """The same number, as servers call it: a transaction or an epoch."""
        return self.epoch


class Answer(Shown):
    """Rows of a view, of a state that is told.

    Attributes
    ----------
    view
        Its name.
    consistency
        What was read; the tentative value of a gated view is its committed one.
    epoch
        The epoch whose rows these are; None for tentative ones.
    versions
        Of tentative rows: switch → the last version that may be in them. Nodes are asked one after the other, so an
        earlier one may be missing in one place and be in another. Empty for committed rows.
    """

    def __init__(
        self,
        view: str,
        table: pa.Table,
        consistency: Consistency,
        epoch: int | None,
        versions: Mapping[str, int],
    ) -> None:
        self.view, self.consistency, self.epoch, self.versions = view, consistency, epoch, dict(versions)
        self._table = table

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table

    @property
    def at(self) -> int | None:
        """The same number as `epoch`, as servers call it: a transaction or an epoch."""
        return self.epoch

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
        if self.epoch is not None:
            return [f"committed, epoch {self.epoch}"]
        seen = ", ".join(f"{name} in epoch {unpack(version)[0]}" for name, version in sorted(self.versions.items()))
        return [f"tentative, up to {seen or 'what was committed'}"]
