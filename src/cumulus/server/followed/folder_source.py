"""The output folder of a run as a source: it is read, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.follower import EpochFollower
from cumulus.epochs.output.host import FolderHost
from cumulus.errors import NotOfferedError
from cumulus.hosts import WriteReceipt, WriteRequest
from cumulus.m3.program import Program
from cumulus.olap import CubeSource, FoldedSource
from cumulus.scalars.user import Functions


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
        self.program: Program = OutputFolder(out, functions).program
        """What the run has written of its program."""
        self._out = out
        self.host = FolderHost(out, functions, program=self.program, follower=EpochFollower(out))
        records = self.host.records
        self.errors, self.quarantine, self.epochs = self.host.errors, records.quarantine, records.epochs
        self.status, self.listen, self.close = self.host.status, self.host.listen, self.host.close

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self.host.at

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes."""
        return FoldedSource(self.host)

    # --- what cannot be done ----------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Refuse it: a run takes its rows from its sources."""
        return self.host.write(request)

    def execute(self, sql: str) -> Future[int]:
        """Refuse it: the views are those of the run's script."""
        raise NotOfferedError(
            f"{self._out} is the output of a run, whose views are those of its script",
            hint="Run another script into a folder of its own, and serve that.",
        )

    def snapshot(self) -> Future[int]:
        """Refuse it: every epoch is on the disk."""
        raise NotOfferedError(
            f"{self._out} is the output of a run: each of its epochs is on the disk whole",
            hint="Copy the folder.",
        )
