"""What a server serves: a warehouse of its own, a pipeline's output folder, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from cumulus.m3.program import Program
from cumulus.olap import CubeSource
from cumulus.server.answers import UNLIMITED, Acknowledged, QueryLimits, ReadRows, WriteRequest
from cumulus.server.hub.feed import OpenChanges
from cumulus.views.duckdb_selects import Parameters
from cumulus.views.folding import Bound


class ServedSource(Protocol):
    """Whatever the protocols serve. Any thread may call it; a call may wait."""

    @property
    def kind(self) -> str:
        """What it is: "warehouse", "folder" or "cluster"."""

    @property
    def program(self) -> Program:
        """The program that runs."""

    @property
    def at(self) -> int:
        """The last transaction or committed epoch that readers see; it never goes back."""

    def view(
        self, name: str, *, columns: Sequence[str] | None, where: Sequence[Bound], limit: int | None, read: str
    ) -> ReadRows:
        """Return rows of a view, in its order; `where` bounds any of its columns."""

    def get(self, name: str, key: Sequence[Any], *, read: str) -> ReadRows:
        """Return the row of a view with a key; no row if there is none."""

    def query(
        self,
        sql: str,
        parameters: Parameters,
        *,
        only: Collection[str] | None = None,
        limits: QueryLimits = UNLIMITED,
    ) -> ReadRows:
        """Return the result of a SELECT; all views that it reads are of one state.

        Parameters
        ----------
        only
            The views that there are for whoever asks: no other view or table exists for the query, by whatever way it
            names it. None is all of them.
        """

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in.

        The columns are those of `cumulus.warehouse.view_errors`, or `cumulus.epochs.bucket.view_errors` of epochs.
        """

    def quarantine(self) -> ReadRows:
        """Return what was refused after it had been taken, with reasons."""

    def epochs(self) -> ReadRows:
        """Return the last transactions or epochs, the newest first: `at` and what is known of each."""

    def execute(self, sql: str) -> Future[int]:
        """Create or drop views and cubes; the future says from which `at` on. UsageError where that cannot be done."""

    def snapshot(self) -> Future[int]:
        """Write everything to the disk so that no log is needed before its `at`; UsageError where there is no log."""

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes, and of the other views that can be folded."""

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Apply rows, or let a cluster accept them; UsageError where nothing can be written."""

    def status(self) -> Mapping[str, Any]:
        """Return numbers of the maps, rows, errors and the like, as JSON has them."""

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function, in a thread of the source's, each time that `at` has moved; it must be quick."""

    def changes(self, view: str) -> tuple[int, OpenChanges]:
        """Return the changes of a view from now on, and the transaction or epoch after which that is."""

    def close(self) -> None:
        """End, with everything on the disk."""
