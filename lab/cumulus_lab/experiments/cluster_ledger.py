"""Conservation of rows in a simulated cluster: each acknowledged row is applied, waits, is quarantined, or is an error.

The judge compares views, which tells that a row is missing and not where. The ledger adds up, for each epoch, what came
in and what manifests and net changes say of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cumulus.catalog.events import DELETE, INSERT, OP_COLUMN
from cumulus.cluster.intake import Intake, OrderedIntake
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, read_manifest
from cumulus.epochs.formats.parsed_rows import IGNORED
from cumulus.epochs.intake.packing import unpack
from cumulus.epochs.stages.judge import TableDelta
from cumulus.machine import Name

_SIGNS = {INSERT: 1, DELETE: -1}


class Ledger:
    """What the machines of a cluster did with rows, by machine and epoch; a later life replaces an earlier one.

    Parameters
    ----------
    uncompared
        Tables whose net changes are not those of the operations, one by one: rows are kept, and decide which operations
        count, or the table is static, and refuses deletions.
    """

    def __init__(self, uncompared: frozenset[str]) -> None:
        self._uncompared = uncompared
        self._lost: dict[tuple[Name, int], tuple[int, int]] = {}
        """Machine and epoch → incarnation, and how many rows the intake has counted that no net change has."""
        self._errors: dict[tuple[Name, int], Mapping[str, int]] = {}
        """Machine and epoch → the errors that it was about to write."""

    def watch(self, machine: Name, intake: Intake | OrderedIntake, incarnation: int) -> None:
        """Compare what the intake of a switch takes in with the net changes that it gives."""
        apply = intake.apply

        def applied(epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[TableDelta]]:
            outcome, nets = apply(epoch, packed)
            came: Counter[str] = Counter()
            for payload in unpack(packed):
                if payload.relation not in self._uncompared and payload.rows.num_rows:
                    operations = payload.rows.column(OP_COLUMN).to_pylist()
                    came[payload.relation] += sum(_SIGNS.get(each, 0) for each in operations)
            for net in nets:
                if net.relation not in self._uncompared:
                    came[net.relation] -= int(np.sum(net.counts))
            life, lost = self._lost.get((machine, epoch), (incarnation, 0))
            lost = sum(map(abs, came.values())) + (lost if life == incarnation else 0)
            self._lost[machine, epoch] = incarnation, lost
            return outcome, nets

        setattr(intake, "apply", applied)  # noqa: B010

    def note(self, machine: Name, epoch: int, outcome: Outcome) -> None:
        """Note the errors of what a machine is about to write."""
        self._errors[machine, epoch] = dict(outcome.error_counts)

    def check(self, out: Path, acknowledged: Mapping[int, int], truncating: frozenset[int]) -> None:
        """Check each committed epoch; AssertionError names the first in which rows are missing.

        Parameters
        ----------
        acknowledged
            Epoch → rows of files and of clients.
        truncating
            The epochs that empty a table: each row that goes so is counted as well.
        """
        waiting = 0
        for epoch in committed_epochs(out):
            manifest = read_manifest(out, epoch)
            counts = manifest.counts
            found = sum(counts[name] for name in ("applied", "repeated", "quarantined", *IGNORED))
            found += counts["waiting"] - waiting
            waiting = counts["waiting"]
            came = acknowledged.get(epoch, 0)
            is_whole = found >= came if epoch in truncating else found == came
            assert is_whole, f"epoch {epoch}: {came} rows were acknowledged, and {found} are told: {counts}"
            self._check_errors(epoch, manifest)

    def _check_errors(self, epoch: int, manifest: Manifest) -> None:
        told = manifest.view_error_counts
        for (machine, of), errors in self._errors.items():
            untold = {view: count for view, count in errors.items() if told.get(view, 0) < count}
            assert of != epoch or not untold, (
                f"epoch {epoch}: {machine} has errors {untold}, and the manifest tells {told}"
            )
        for (machine, of), (_, lost) in self._lost.items():
            assert of != epoch or lost <= sum(told.values()), (
                f"epoch {epoch}: {lost} rows that {machine} counts as applied are in no net change, "
                f"and {sum(told.values())} errors are told"
            )
