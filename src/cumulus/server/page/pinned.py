"""A cube as it was: its finest groups, held, so that every selection of it can be answered while the cube goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cumulus.errors import LimitError, NotOfferedError
from cumulus.hosts import LATEST, Answer, Freshness, Host, RowRequest
from cumulus.m3.program import Program
from cumulus.olap import CubeShape
from cumulus.views import Finisher
from cumulus.views.folding import Bound, MeasureKind, Partial
from cumulus.views.folding.regrouping import Regrouping

MOST_GROUPS = 500_000
"""A cube of more groups is not held."""


class PinnedHost(Host):
    """A `Host` that folds what another one had when this was made.

    Parameters
    ----------
    host, shape
        Whose cube it is, and which.

    Raises
    ------
    LimitError
        If it has too many groups.
    """

    def __init__(self, host: Host, shape: CubeShape) -> None:
        self._shape = shape
        levels = [column.name for column in shape.columns]
        measures = [each.name for each in shape.measures if each.kind != MeasureKind.FIXED]
        with host.holding_still():
            self._program = host.program
            self._whole = host.fold(shape.name, levels, (), measures)
            self._finisher = host.finisher(self._whole.choice.view)
        if len(self._whole.groups) > MOST_GROUPS:
            raise LimitError(
                f"{shape.name} has {len(self._whole.groups):,} groups, too many to hold them as they are",
                hint="Ask an output folder, whose epochs stay.",
            )

    @property
    def at(self) -> int:
        """The transaction or epoch that is held."""
        assert self._whole.at is not None, "a fold of a whole view is of one state"
        return self._whole.at

    @property
    def program(self) -> Program:
        """What it ran."""
        return self._program

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of the cube."""
        return self._finisher

    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Refuse it: parts of groups are held, not rows."""
        raise self.not_offered("read")

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        freshness: Freshness = LATEST,
    ) -> Partial:
        """Return parts of groups, put together from those that are held."""
        regrouping = Regrouping(self._finisher, self._whole)
        known = {column.name: column for column in self._shape.columns}
        bounds = [each.typed(view, known[each.column]) for each in where]
        tests = [(regrouping.key_of([each.column]), each.test()) for each in bounds]
        keep = (lambda group: all(test(key_of(group)[0]) for key_of, test in tests)) if tests else None
        return regrouping.to(by, keep)

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Refuse: base rows go on."""
        raise NotOfferedError("base rows are not held with the cube", hint="Ask for them without holding it.")

    def entry_count(self, map: str) -> int | None:
        """Return how many groups are held of the map that they were read from; of others nothing is."""
        return len(self._whole.groups) if map == self._whole.map else None
