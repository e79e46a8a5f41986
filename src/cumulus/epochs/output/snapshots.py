"""When whole views are written: every epoch, or every k-th for views too big for that."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.epochs.committed.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Which epochs write views.

    Whoever writes less than every epoch writes whole views when it does: nobody need remember what changed since, so a
    restart in between changes nothing.

    Parameters
    ----------
    every
        From 1: each epoch whose number it divides, the first one, and the last one of a run that reads all there is.
    last
        The number of the last epoch of the run, if it is known; else 0. Spark may do one more.
    behind
        The epochs before this run's first one ended without a snapshot, or other buckets have made it, so that `first`
        writes all views.
    first
        The first new epoch of this run.
    """

    every: int = 1
    last: int = 0
    behind: bool = False
    first: int = 1

    @classmethod
    def after(cls, newest: Manifest | None, every: int, last: int = 0, generation: int = 0) -> Snapshots:
        """Return those of a run that goes on after the newest committed epoch.

        Parameters
        ----------
        newest
            The manifest of that epoch; None before the first.
        every, last
            As the fields are.
        generation
            Of the checkpoint: the number of the plan that makes the next epoch.
        """
        if newest is None:
            return cls(every, last)
        behind = newest.snapshot != newest.epoch or newest.generation != generation
        return cls(every, last, behind, newest.epoch + 1)

    def due(self, epoch: int, final: bool) -> bool:
        """Whether `epoch` writes views; `final`: nothing is left to read after it."""
        return epoch == 1 or epoch % self.every == 0 or 0 < self.last <= epoch or final

    def whole(self, epoch: int) -> bool:
        """Whether an epoch that writes views writes also those that it did not change."""
        return self.every > 1 or epoch == 1 or (self.behind and epoch == self.first)
