"""The committed epochs of an output folder as a host of cubes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.errors import DelayError, UsageError
from cumulus.m3.program import Program
from cumulus.olap import Freshness
from cumulus.scalars.user import Functions
from cumulus.views import Consistency, Finisher
from cumulus.views.folding import Bound, Partial


@dataclass(frozen=True, eq=False)
class FolderHost:
    """Folds the cubes of an output folder; a run may be writing it. Hosts of one folder are equal.

    Parameters
    ----------
    functions
        The user's that the views call.
    look
        Called after the newest epoch was read: whoever follows the run knows of it before the answer is out.
    """

    folder: OutputFolder
    functions: Functions | None = None
    look: Callable[[], object] = lambda: None
    _finishers: dict[str, Finisher] = field(default_factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FolderHost) and self.folder.path.resolve() == other.folder.path.resolve()

    def __hash__(self) -> int:
        return hash(self.folder.path.resolve())

    @property
    def program(self) -> Program:
        """What the run has written of its program."""
        return self.folder.program

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        made = self._finishers.get(view)
        if made is None:
            made = self._finishers[view] = Finisher(self.program, self.program.view(view), self.functions)
        return made

    def reading(self) -> AbstractContextManager[None]:
        """Do nothing: committed epochs stay as they are."""
        return nullcontext()

    def fold(
        self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str], freshness: Freshness
    ) -> tuple[Partial, Consistency]:
        """Return parts of a view's groups after the last epoch, or the one that `freshness.at` names.

        All that is here is committed, for who would take tentative rows as well.

        Raises
        ------
        DelayError
            If no epoch from `freshness.after` on is committed yet, or it was committed longer ago than
            `freshness.max_staleness`.
        """
        if freshness.max_staleness is not None:
            self._check_age(freshness.at or 0, freshness.max_staleness)
        found = self.folder.view(view, freshness.at or 0).fold(by, where, columns)
        self.look()
        if freshness.after is not None and (found.at is None or found.at < freshness.after):
            raise DelayError(
                f"epoch {freshness.after} is not committed yet: the last one with rows is {found.at}",
                hint="Read it again later, or without after.",
            )
        return found, Consistency.COMMITTED

    def _check_age(self, epoch: int, most_s: float) -> None:
        age_s = time.time() - self.folder.read(epoch, lambda manifest: manifest.written_at)
        if age_s > most_s:
            raise DelayError(
                f"the last epoch was committed {age_s:.1f} s ago, longer than {most_s:g} s",
                hint="Allow more, or see whether the run goes on.",
            )

    def entries(self, map: str) -> Any:
        """Return how many entries a map has."""
        return self.folder.read(0, partial(self._entries, map))

    def _entries(self, map: str, manifest: Any) -> int:
        return entry_count(self.folder.path, manifest, map)

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> NoReturn:
        """Refuse it: a run does not write the rows of tables.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            f"the rows behind {view} are not in {self.folder.path}: a run writes views, not tables",
            hint="Ask the files that the run has read, in SQL; or a Warehouse that keeps rows.",
        )
