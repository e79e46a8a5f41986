"""The gate: what a node does for views that are not spread, one epoch after the other.

It is a bucket as the other hosts have it (`cumulus.epochs.bucket`), so it gives the same views, counts, quarantine and
errors. It gets what the switches have read in an epoch once all of them have ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.plan import BucketPlan
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions


class Gate:
    """The bucket of a node.

    Parameters
    ----------
    program
        The gated part of the cluster's program.
    index
        The number of the bucket in `plan`.
    """

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        index: int,
        make_engine: Callable[..., Engine],
        *,
        late_epochs: int = LATE_EPOCHS,
        functions: Functions | None = None,
    ) -> None:
        self.bucket = Bucket(program, plan, index, make_engine, late_epochs, functions)
        self.epoch = 0
        """The last one that was applied."""

    def apply(self, epoch: int, payloads: Sequence[bytes]) -> Outcome:
        """Apply what an epoch has brought."""
        assert epoch == self.epoch + 1, f"epoch {epoch} after {self.epoch}"
        outcome = self.bucket.apply(epoch, payloads)
        self.epoch = epoch
        return outcome

    def save(self) -> bytes:
        """Return the whole state."""
        return self.bucket.dump()

    def load(self, epoch: int, data: bytes) -> None:
        """Replace the state by what `save` returned after an epoch."""
        self.epoch = epoch
        self.bucket.load(data)
