"""The output folder of a run as a source: it is read, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from cumulus.cubes.folder_host import FolderHost
from cumulus.epochs.output.folder import OutputFolder
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.olap import CubeSource, FoldedSource
from cumulus.scalars.user import Functions
from cumulus.server.answers import Acknowledged, WriteRequest
from cumulus.server.followed.epoch_reading import EpochReading
from cumulus.server.followed.following import EpochFollower


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
        folder = OutputFolder(out, functions)
        self.program: Program = folder.program
        """What the run has written of its program."""
        self._out, self._follower = out, EpochFollower(out)
        self._cubes = FoldedSource(FolderHost(folder, functions, self._follower.look))
        reading = EpochReading(self._follower, self.program, functions)
        self.view, self.get, self.query, self.changes = reading.view, reading.get, reading.query, reading.changes
        self.errors, self.quarantine, self.epochs = reading.errors, reading.quarantine, reading.epochs
        self.status, self.listen = reading.status, self._follower.listen

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self._follower.at

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes."""
        return self._cubes

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
