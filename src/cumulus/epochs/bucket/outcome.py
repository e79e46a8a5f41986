"""What an epoch did to a bucket, counted so that what comes in is somewhere afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cumulus.catalog.events import DELETE, INSERT, TRUNCATE, UPSERT, Row
from cumulus.epochs.bucket.net_changes import InputChange, Refused
from cumulus.epochs.bucket.table_changes import TableChange
from cumulus.epochs.bucket.view_errors import FailedRow, row_text
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.formats.parsed_rows import Rejected
from cumulus.epochs.intake.packing import Payload
from cumulus.epochs.plan import Ownership
from cumulus.m3.program import Program


@dataclass(slots=True)
class Outcome:
    """What an epoch did to a bucket.

    `cumulus.epochs.output.publish.write_outcome` puts it into a manifest, whole: no other code makes numbers of it.

    What comes in is somewhere afterwards: ``events + waited`` is ``applied + repeated + waiting + quarantined +
    ignored``, where `waited` is what waited before the epoch.

    Parameters
    ----------
    events
        Input rows that this bucket counts (each row of the input is counted by one bucket), records that say nothing,
        and the deletions that truncations are.
    applied
        Rows that are in the tables, or were replaced or taken back in the same epoch.
    repeated, waiting, quarantine
        Rows dropped because their position was seen, rows that wait for a parent or for children to go, rows refused.
    ignored
        Records that say nothing about rows, by what they are.
    views, maps
        Views whose maps changed, and these maps.
    errors, error_counts
        Rows that views could not take in whole: the first of each view, and how many of each.
    poll
        The deletions that wait for the vote of all buckets, and this one's.
    tables
        What has changed in the tables that are published.
    is_counted
        Whether its rows count: not where another bucket takes the same rows in and counts them.
    """

    events: int = 0
    applied: int = 0
    repeated: int = 0
    waiting: int = 0
    quarantine: list[Rejected] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    maps: set[str] = field(default_factory=set)
    errors: list[FailedRow] = field(default_factory=list)
    error_counts: dict[str, int] = field(default_factory=dict)
    poll: Poll = field(default_factory=Poll)
    is_counted: bool = True
    tables: list[TableChange] = field(default_factory=list)

    def take_in(self, payload: Payload) -> None:
        """Count what a payload has."""
        self.events += payload.count + len(payload.rejected)
        self.quarantine.extend(payload.rejected)
        for name, count in payload.ignored.items():
            self.ignored[name] = self.ignored.get(name, 0) + count
            self.events += count

    def uncounted(self) -> Outcome:
        """Return what became of views, of a bucket whose rows another stage has counted."""
        return replace(self.errors_alone(), views=self.views, maps=self.maps)

    def errors_alone(self) -> Outcome:
        """Return the errors without the rows, of a bucket whose rows another bucket counts."""
        return Outcome(errors=self.errors, error_counts=self.error_counts, is_counted=False)


def merged_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Merge the outcomes of the parts of an epoch that were applied one after the other; at least one."""
    found = Outcome(waiting=outcomes[-1].waiting, poll=outcomes[-1].poll)
    for each in outcomes:
        found.events += each.events
        found.applied += each.applied
        found.repeated += each.repeated
        found.quarantine += each.quarantine
        found.views |= each.views
        found.maps |= each.maps
        found.errors += each.errors
        for total, counts in ((found.ignored, each.ignored), (found.error_counts, each.error_counts)):
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
    return found


class EpochAccount:
    """Counts the rows of an epoch that this bucket speaks about."""

    def __init__(self, program: Program, ownership: Ownership) -> None:
        self._program, self._ownership = program, ownership
        self.outcome = Outcome()

    def apply(self, relation: str, row: Row | None, count: int = 1) -> None:
        """Count a row as applied; None for rows that every bucket sees alike."""
        self.outcome.applied += count * self._ownership.reports(relation, row)

    def repeat(self, relation: str, row: Row | None, count: int = 1) -> None:
        """Count a row as dropped because its position was seen."""
        self.outcome.repeated += count * self._ownership.reports(relation, row)

    def truncate(self, relation: str, row: Row) -> None:
        """Count a row that a truncation has taken: it is also a deletion of each row."""
        self.outcome.events += self._ownership.reports(relation, row)
        self.apply(relation, row)

    def wait(self, relation: str, row: Row) -> None:
        """Count a row as waiting."""
        self.outcome.waiting += self._ownership.reports(relation, row)

    def refuse(self, refused: Refused) -> None:
        """Put a row into the quarantine."""
        change = refused.change
        if self._ownership.reports(change.relation, change.row):
            text = _text(self._program, change)
            self.outcome.quarantine.append(
                Rejected(refused.reason, change.relation, change.source, change.position, text)
            )


def _text(program: Program, change: InputChange) -> str:
    if change.op == TRUNCATE:
        return f"truncate {change.relation}"
    sign = {INSERT: "+", DELETE: "-", UPSERT: "~"}[change.op]
    return f"{sign}{change.relation}({row_text(program, change.relation, change.row)})"
