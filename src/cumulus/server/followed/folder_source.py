"""The output folder of a run as a source: it is read, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cumulus.cubes import source_of
from cumulus.epochs.output.folder import OutputFolder
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.olap import CubeSource
from cumulus.scalars.user import Functions
from cumulus.server.answers import UNLIMITED, Acknowledged, QueryLimits, ReadRows, WriteRequest
from cumulus.server.followed.epoch_changes import EpochChanges
from cumulus.server.followed.epoch_reading import EpochReading
from cumulus.server.followed.following import EpochFollower
from cumulus.views.duckdb_selects import Parameters
from cumulus.views.folding import Bound
from cumulus.views.reader import Consistency


class FollowedFolder:
    """A `ServedSource` of the output folder of a run, which may be writing it: `at` is the last committed epoch.

    Parameters
    ----------
    functions
        The user's that the views call.

    Raises
    ------
    InputError
        If it is no output folder, or nothing is committed yet.
    StoreError
        If the run has not written its program, or it cannot be read.
    """

    kind = "folder"

    def __init__(self, out: Path, functions: Functions | None = None) -> None:
        self._folder = OutputFolder(out, functions)
        self.program: Program = self._folder.program
        """What the run has written of its program."""
        self._out, self._cubes = out, source_of(self._folder, functions)
        self._follower = EpochFollower(out)
        self._reading = EpochReading(self._follower, self.program, functions)
        self.listen, self.wait_for = self._follower.listen, self._follower.wait_for

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self._follower.at

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view."""
        return self._reading.view(name, columns, where, limit)

    def get(self, name: str, key: Sequence[Any], *, read: str = Consistency.COMMITTED) -> ReadRows:
        """Return the row of a view with a key."""
        return self._reading.get(name, key)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        *,
        only: Collection[str] | None = None,
        limits: QueryLimits = UNLIMITED,
    ) -> ReadRows:
        """Return the result of a SELECT over the views, `quarantine` and `view_errors`."""
        return self._reading.query(sql, parameters, only, limits)

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes."""
        return self._cubes

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in."""
        return self._reading.errors(view)

    def quarantine(self) -> ReadRows:
        """Return the rows that the run has refused, with reasons."""
        return self._reading.quarantine()

    def epochs(self) -> ReadRows:
        """Return the epochs that are kept, the newest first."""
        return self._reading.epochs()

    def status(self) -> dict[str, Any]:
        """Return the numbers of the last epoch."""
        return self._reading.status()

    def changes(self, view: str) -> tuple[int, EpochChanges]:
        """Return the changes of a view from now on, and the epoch after which that is."""
        return self._reading.changes(view)

    # --- what cannot be done ----------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Refuse it: a run takes its rows from its sources."""
        raise UsageError(
            f"{self._out} is the output of a run, which takes rows from its sources alone",
            hint="Put files into the folders that it was given by --from; or serve a script, or a cluster.",
        )

    def execute(self, sql: str) -> Future[int]:
        """Refuse it: the views are those of the run's script."""
        raise UsageError(
            f"{self._out} is the output of a run, whose views are those of its script",
            hint="Run another script into a folder of its own, and serve that.",
        )

    def snapshot(self) -> Future[int]:
        """Refuse it: every epoch is on the disk."""
        raise UsageError(
            f"{self._out} is the output of a run: each of its epochs is on the disk whole",
            hint="Copy the folder.",
        )

    def close(self) -> None:
        """Follow the run no more."""
        self._follower.close()
