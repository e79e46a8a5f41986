"""`Cube`: the way in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cumulus.catalog.types import Kind
from cumulus.cubes.sources import source_of
from cumulus.errors import UsageError
from cumulus.olap import CubeSource, Dimension, KeptLevel, Like, Measure, Member, Selection, selection_of
from cumulus.olap.advice import LEVEL_US, Advice, advise, read_log
from cumulus.olap.blocks import key_values
from cumulus.olap.conditions import below, condition_of
from cumulus.scalars.text import like as is_like


class Cube:
    """A cube, or any view that groups: each of its grouping columns is a dimension then.

    Parameters
    ----------
    source
        A `cumulus.Warehouse`, or anything else that answers selections.
    name
        Of the cube or view.

    Raises
    ------
    UnknownNameError
        If there is none of the name.
    UsageError
        If the view cannot be folded.

    Examples
    --------
    >>> from cumulus import Cube, Warehouse
    >>> wh = Warehouse('''CREATE TABLE t (shop VARCHAR, item VARCHAR, minutes INT);
    ...     CREATE VIEW v AS SELECT shop, item, COUNT(*) AS n, AVG(minutes) AS mean FROM t GROUP BY shop, item''')
    >>> wh.insert("t", [("a", "x", 10), ("a", "y", 1), ("a", "y", 1), ("b", "x", 3)])
    4
    >>> Cube(wh, "v").rollup("shop").totals().rows()
    [('a', 3, 4.0, 0), ('b', 1, 3.0, 0), (None, 4, 3.75, 1)]
    """

    def __init__(self, source: Any, name: str) -> None:
        self._source: CubeSource = source_of(source)
        self.shape = self._source.shape(name)
        """All that it is made of."""

    @classmethod
    def from_json(cls, source: Any, given: str | Mapping[str, Any]) -> Selection:
        """Return the selection that `to_json` has written, as text or as what JSON makes of it, of a source."""
        import json

        try:
            known = json.loads(given) if isinstance(given, str) else given
        except ValueError as problem:
            raise UsageError(f"this is no JSON: {problem}", hint="Give what to_json() has made.") from None
        if not isinstance(known, Mapping) or not isinstance(known.get("cube"), str):
            raise UsageError("this is no selection: it names no cube", hint="Give what to_json() has made.")
        found = source_of(source)
        return selection_of(found, found.shape(known["cube"]), known)

    @property
    def name(self) -> str:
        """Its name."""
        return self.shape.name

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Its dimensions, each with its levels, coarse to fine."""
        return self.shape.dimensions

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is folded: name, type, kind and maps."""
        return self.shape.measures

    @property
    def kept(self) -> tuple[KeptLevel, ...]:
        """The levels for which there are maps, the finest first."""
        return self._source.kept(self.name)

    def members(
        self,
        dimension: str,
        *,
        level: str | None = None,
        under: Sequence[Any] = (),
        like: str | None = None,
        limit: int | None = 100,
    ) -> list[Member]:
        """Return members of a dimension in their order: those of its coarsest level, or of the one below a member.

        Parameters
        ----------
        level
            Of another level.
        under
            The path of a member: only what is below it.
        like
            A pattern of LIKE that the last value of the path matches, as a text.
        limit
            How many, at most; None is all.

        Raises
        ------
        UsageError
            If there is no such dimension or level.
        """
        found = self.shape.dimension(dimension)
        name = found.levels[min(len(under), len(found.levels) - 1)] if level is None else level
        question = Selection(self.shape, source=self._source).rollup(f"{found.name}.{name}", measures=())
        if under:
            question = question.add(below(self.shape, found, [tuple(under)]))
        column = self.shape.column(question.row_columns[-1])
        is_text = column.type is not None and column.type.kind is Kind.VARCHAR
        if like is not None and is_text:
            question = question.add(condition_of(self.shape, column.name, Like(like)))
        answer = question.limit(None if like is not None and not is_text else limit).read()
        paths = key_values(answer.table, [self.shape.column(each) for each in question.row_columns])
        if like is not None and not is_text:
            paths = [path for path in paths if path[-1] is not None and is_like(str(path[-1]), like)][:limit]
        return [Member(path, column.name, answer.at) for path in paths]

    def rollup(
        self,
        *levels: str,
        measures: Sequence[str] | None = None,
        read: str | None = None,
        after: Any = None,
        max_staleness: float | None = None,
    ) -> Selection:
        """Return the selection of measures by some levels: ``rollup("date.m", "region")``; nothing is read yet.

        Parameters
        ----------
        levels
            As in ``date.m``, which shows the path to it, or a level's name alone; a dimension's name is its coarsest.
        measures
            None is all that can be folded.
        read, after, max_staleness
            Which state is read: see `cumulus.olap.Freshness`.
        """
        made = Selection(self.shape, source=self._source).rollup(*levels, measures=measures)
        return made.reading(read=read, after=after, max_staleness=max_staleness)

    def advise(
        self,
        log: Iterable[str] | None = None,
        *,
        most: int | None = None,
        level_us: float = LEVEL_US,
        budget_us: float | None = None,
    ) -> Advice:
        """Return which levels to keep, from how many entries selections read with and without them.

        Parameters
        ----------
        log
            Selections that were asked, each as `Selection.to_json` or as ``{"selection": …, "count": 3}``; None weighs
            all combinations of levels alike.
        most
            How many levels, at most.
        level_us, budget_us
            What keeping a small level costs an event, and what all may cost, in µs of CPU; one with many entries costs
            more.
        """
        question = Selection(self.shape, source=self._source)
        flat = replace(self.shape, dimensions=tuple(Dimension(each.name, (each.name,)) for each in self.shape.columns))
        finest = Selection(flat, source=self._source).rollup(*(each.name for each in flat.columns), measures=())
        asked = None if log is None else read_log(question, log)
        return advise(self.shape, finest.arrow(), asked, most=most, level_us=level_us, budget_us=budget_us)

    def __repr__(self) -> str:
        dimensions = ", ".join(f"{each.name} ({', '.join(each.levels)})" for each in self.dimensions)
        return f"Cube({self.name}: {dimensions or 'no dimensions'}; {', '.join(each.name for each in self.measures)})"
