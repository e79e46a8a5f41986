"""What a server serves: a warehouse of its own, a pipeline's output folder, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from cumulus.m3.program import Program
from cumulus.server.answers import Acknowledged, ReadRows, WriteRequest
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

    def wait_for(self, at: int, timeout_s: float) -> None:
        """Wait until readers see a transaction or an epoch; DelayError if that takes too long."""

    def view(
        self, name: str, *, columns: Sequence[str] | None, where: Sequence[Bound], limit: int | None, read: str
    ) -> ReadRows:
        """Return rows of a view, in its order; `where` bounds any of its columns."""

    def get(self, name: str, key: Sequence[Any], *, read: str) -> ReadRows:
        """Return the row of a view with a key; no row if there is none."""

    def query(self, sql: str, parameters: Parameters) -> ReadRows:
        """Return the result of a SELECT; all views that it reads are of one state."""

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Apply rows; UsageError where nothing can be written."""

    def status(self) -> Mapping[str, Any]:
        """Return numbers of the maps, rows, errors and the like, as JSON has them."""

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function, in a thread of the source's, each time that `at` has moved; it must be quick."""

    def changes(self, view: str) -> tuple[int, OpenChanges]:
        """Return the changes of a view from now on, and the transaction or epoch after which that is."""

    def close(self) -> None:
        """End, with everything on the disk."""
