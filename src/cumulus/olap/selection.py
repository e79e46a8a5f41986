"""`Selection`: a question with where it is asked. Nothing is read before somebody asks for rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.errors import UsageError
from cumulus.olap import question_json
from cumulus.olap.answering import grouping_of
from cumulus.olap.blocks import key_values
from cumulus.olap.changes import SelectionStream, open_stream
from cumulus.olap.conditions import condition_of
from cumulus.olap.explain import CubeExplanation
from cumulus.olap.question import Question
from cumulus.olap.shape import CubeShape
from cumulus.olap.source import Answered, CubeSource
from cumulus.views import Result

if TYPE_CHECKING:
    import pandas as pd


class _Last:
    """The last answer that a selection was given."""

    answer: Answered | None = None


@dataclass(frozen=True, repr=False)
class Selection(Question):
    """Measures of a cube by some of its levels, for some of its groups.

    A frozen value: each step returns another, and equal selections are equal. Nothing is read before `arrow`, `rows`,
    `get` and the like are called; each of these calls reads anew.

    Parameters
    ----------
    source
        Where it is read.
    """

    source: CubeSource = field(kw_only=True)
    _last: _Last = field(default_factory=_Last, compare=False, kw_only=True)

    def read(self) -> Answered:
        """Return rows, with what is known of them: of which state they are, and what was read for them."""
        answer = self.source.evaluate(self)
        self._last.answer = answer
        return answer

    def arrow(self) -> pa.Table:
        """Return the rows as Arrow."""
        return self.read().arrow()

    def rows(self) -> list[Row]:
        """Return the rows as tuples of Python values."""
        return self.read().rows()

    def pandas(self, *, exact: bool = False) -> pd.DataFrame:
        """Return the rows as a pandas frame of numbers and times; see `cumulus.views.tables.Shown.pandas`."""
        return self.read().pandas(exact=exact)

    def polars(self) -> Any:
        """Return the rows as a polars frame."""
        return self.read().polars()

    def get(self, *values: Any) -> Row | None:
        """Return the row with these values of the levels shown as rows, in their order; None if there is none.

        Raises
        ------
        UsageError
            If the number of values is wrong.
        """
        names = self.row_columns
        if len(values) != len(names):
            raise UsageError(
                f"a row of this selection is found by ({', '.join(names)}), {len(values)} values were given",
                hint="Give one value for each of these levels.",
            )
        only = self
        if self.best is None and self.most is None:
            for name, value in zip(names, values, strict=True):
                only = only.add(condition_of(self.shape, name, [value]))
        wanted = tuple(
            self.shape.value(self.shape.column(name), value) for name, value in zip(names, values, strict=True)
        )
        answer = self._last.answer = only.read()
        known = key_values(answer.table, [self.shape.column(name) for name in names])
        groupings = grouping_of(answer.table, self)
        found = zip(known, groupings, strict=True)
        place = next((place for place, (key, bits) in enumerate(found) if key == wanted and not bits), None)
        return None if place is None else tuple(answer.table.slice(place, 1).to_pylist()[0].values())

    @property
    def at(self) -> Any:
        """The transaction or epoch that the rows read last show; if none were read, they are."""
        return self._answer().at

    def explain(self) -> CubeExplanation:
        """Return how the rows read last were found; if none were read, they are."""
        return self._answer().explanation

    def facts(self, limit: int = 1000) -> Result:
        """Return base rows behind the groups that the selection takes, with all columns of the tables in FROM.

        Conditions on levels count, those on measures, `top` and `limit` do not.

        Raises
        ------
        UsageError
            If the source does not keep the rows.
        """
        if type(limit) is not int or limit < 0:
            raise UsageError(f"limit={limit!r}", hint="Give a number of rows.")
        return Result(self.source.facts(self, limit))

    def changes(
        self, *, snapshot: bool = True, since: int | None = None, timeout: float | None = None
    ) -> SelectionStream:
        """Return the changes of the rows from now on, to be iterated over by ``for`` or by ``async for``.

        Each step has the net change of the rows and the transaction, `at`, that they show then; one without rows says
        that nothing changed up to there. Close it, or leave its ``with``, and nothing is noted any more.

        Parameters
        ----------
        snapshot
            Begin with all rows, as insertions.
        since
            Go on after this transaction, if there was none since that changed the cube; else with the snapshot.
        timeout
            How many seconds iterating waits for the next change before it ends; None waits as long as it takes.

        Raises
        ------
        HistoryError
            If there were changes after `since`, and no snapshot is wanted.
        UsageError
            If the source does not tell changes: a Warehouse does.
        """
        return open_stream(self, self.source, snapshot, since, timeout)

    def _answer(self) -> Answered:
        return self._last.answer or self.read()

    def to_json(self) -> str:
        """Return what is asked as JSON: the body of a request, and the address of a page."""
        return json.dumps(question_json.as_json(self), ensure_ascii=False, sort_keys=True)

    def _with(self, **changes: Any) -> Self:
        return replace(self, _last=_Last(), **changes)

    def __repr__(self) -> str:
        shown = ", ".join([*(axis.name for axis in self.levels.axes), *self.shown_measures])
        return f"<selection of {self.shape.name}: {shown}>"


def selection_of(source: CubeSource, shape: CubeShape, given: str | Mapping[str, Any]) -> Selection:
    """Return the selection that `to_json` has written, as text or as what JSON makes of it.

    Raises
    ------
    UsageError
        If it is none of this cube.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as problem:
            raise UsageError(f"this is no JSON: {problem}", hint="Give what to_json() has made.") from None
    if not isinstance(given, Mapping):
        raise UsageError("a selection is a JSON object", hint="Give what to_json() has made.")
    return question_json.apply(Selection(shape, source=source), given)
