"""What a host tells about an epoch that it has committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cumulus.durable.store import Place, Store, store_of
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.output.query import changed_rows


@dataclass(frozen=True, slots=True)
class Epoch:
    """One committed epoch.

    Parameters
    ----------
    number
        Counted from 1.
    counts, totals
        Of this epoch, and since the beginning: events, and what became of them. All events so far are applied,
        repeated, quarantined, tombstones or messages, or wait now.
    seconds
        From the commit before (or the start) to this one, without the time that `on_epoch` took.
    parts
        Where the time went, in seconds; of several buckets the slowest.
    files_left
        Files that are there and not read yet: how far behind the sources the views are.
    replayed
        The epoch had been committed before an interruption; nothing was written again.
    how
        How the buckets came: "new", "kept", "caught up" or "rebuilt".
    errors
        View → why its rows could not be computed; it still shows the last good ones.
    view_errors, view_error_totals
        View → rows that it could not take in whole: in this epoch, and since the beginning.
    out
        The output folder or address.
    store
        Where its files are, if they are to be read.
    """

    number: int
    counts: Mapping[str, int]
    totals: Mapping[str, int]
    seconds: float
    parts: Mapping[str, float]
    files_left: int = 0
    replayed: bool = False
    how: Sequence[str] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    out: str = ""
    view_errors: Mapping[str, int] = field(default_factory=dict)
    view_error_totals: Mapping[str, int] = field(default_factory=dict)
    store: Store | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        seconds: float,
        parts: Mapping[str, float],
        files_left: int,
        how: Sequence[str],
        out: Place,
        *,
        replayed: bool = False,
    ) -> Epoch:
        """Return the epoch that a manifest has committed.

        Parameters
        ----------
        manifest
            The manifest of the epoch.
        seconds
            The duration of the epoch.
        parts
            Step of the epoch → seconds.
        files_left
            Files that are there and not read yet.
        how
            How each bucket came: "new", "kept", "caught up" or "rebuilt".
        out
            The output folder.
        replayed
            Whether the epoch was committed before an interruption, so that nothing is written again.
        """
        return cls(
            manifest.epoch,
            manifest.counts,
            manifest.totals,
            seconds,
            parts,
            files_left,
            replayed,
            how,
            manifest.errors,
            str(out),
            manifest.view_error_counts,
            manifest.view_error_totals,
            store_of(out),
        )

    @property
    def events_per_s(self) -> float:
        """Events of this epoch by its seconds."""
        return self.counts.get("events", 0) / self.seconds if self.seconds > 0 else 0.0

    def changes(self, view: str) -> pa.Table:
        """Return the rows of a view that this epoch took away and brought; computed now, from files, not before.

        The callback that has this epoch is called at least once: remember `number` to apply changes once.

        Returns
        -------
        pyarrow.Table
            The columns of the view, then `change`: how often the row came (positive) or left (negative).

        Raises
        ------
        CumulusError
            As `cumulus.epochs.output.query.changed_rows`, such as when the epoch before is gone (``keep=1``).

        Examples
        --------
        >>> def tell(epoch):
        ...     for row in epoch.changes("revenue").to_pylist():
        ...         print(epoch.number, row)
        """
        return changed_rows(self.store or self.out, self.number, view)
