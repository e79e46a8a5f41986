"""The gate: what a node does for views that are not spread, one epoch after the other.

It is a bucket as the other hosts have it (`cumulus.epochs.bucket`), so it gives the same views, counts, quarantine and
errors. It gets what the switches have read in an epoch once all of them have ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome, merged_outcomes
from cumulus.epochs.intake.packing import frames_of, place_of
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
        self._kept = frozenset(dict(program.kept))

    def apply(self, epoch: int, payloads: Sequence[bytes]) -> Outcome:
        """Apply what an epoch has brought: what each switch has taken in at once of clients, in its order, then files.

        Rows that are taken together may give way to each other: a deletion may count that stands behind an insertion.
        So those must be together here that were so at the switch. Where rows are not kept, nothing depends on it, and
        all go at once.

        Parameters
        ----------
        payloads
            Of each switch.
        """
        assert epoch == self.epoch + 1, f"epoch {epoch} after {self.epoch}"
        calls: dict[tuple[int, str], list[bytes]] = {}
        rest: list[bytes] = []
        for switch, payload in enumerate(payloads):
            for header, frame in frames_of(payload):
                place = place_of(header["source"])
                if place and header["relation"] in self._kept:
                    calls.setdefault((switch, place), []).append(frame)
                else:
                    rest.append(frame)
        outcomes = [self.bucket.apply(epoch, calls[at]) for at in sorted(calls)]
        outcomes.append(self.bucket.apply(epoch, rest))
        self.epoch = epoch
        return merged_outcomes(outcomes)

    def save(self) -> bytes:
        """Return the whole state."""
        return self.bucket.dump()

    def load(self, epoch: int, data: bytes) -> None:
        """Replace the state by what `save` returned after an epoch."""
        self.epoch = epoch
        self.bucket.load(data)
