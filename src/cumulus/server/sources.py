"""What a server serves: a warehouse of its own, a pipeline's output folder, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from cumulus.hosts import Answer, Host, WriteReceipt, WriteRequest
from cumulus.m3.program import Program
from cumulus.olap import CubeSource


class ServedSource(Protocol):
    """A `Host` that is read, and what only a server does with it. Any thread may call it; a call may wait."""

    @property
    def kind(self) -> str:
        """What it is: "warehouse", "folder" or "cluster"."""

    @property
    def host(self) -> Host:
        """Whose views are read and followed."""

    @property
    def program(self) -> Program:
        """The program that runs."""

    @property
    def at(self) -> int:
        """The last transaction or committed epoch that readers see; it never goes back."""

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes, and of the other views that can be folded."""

    def errors(self, view: str = "") -> Answer:
        """Return what a view, or all of them, could not take in.

        The columns are those of `cumulus.warehouse.view_errors`, or `cumulus.epochs.bucket.view_errors` of epochs.
        """

    def quarantine(self) -> Answer:
        """Return what was refused after it had been taken, with reasons."""

    def epochs(self) -> Answer:
        """Return the last transactions or epochs, the newest first: `at` and what is known of each."""

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Apply rows, or let a cluster accept them; NotOfferedError where nothing can be written."""

    def execute(self, sql: str) -> Future[int]:
        """Create or drop views and cubes; the future says from which `at` on. NotOfferedError where nothing can."""

    def snapshot(self) -> Future[int]:
        """Write all to the disk so that no log is needed before its `at`; NotOfferedError where there is no log."""

    def status(self) -> Mapping[str, Any]:
        """Return numbers of the maps, rows, errors and the like, as JSON has them."""

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function, in a thread of the source's, each time that `at` has moved; it must be quick."""

    def close(self) -> None:
        """End, with everything on the disk."""
