"""Parts of larger groups, made of the parts of smaller ones that are at hand: no map is read again."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cumulus.catalog.schema import Column
from cumulus.catalog.types import EXACT
from cumulus.views.entries import Key
from cumulus.views.finishing import Finisher
from cumulus.views.folding.measures import CountedValues
from cumulus.views.folding.partial import Adder, Partial, keep_end
from cumulus.views.folding.plan import Refusal, plan_fold


class Regrouping:
    """Makes partials of larger groups from one.

    Parameters
    ----------
    finisher
        Of the view that was folded, `partial.choice.view`.
    """

    def __init__(self, finisher: Finisher, partial: Partial) -> None:
        self._finisher, self._partial = finisher, partial
        keys = finisher.grouping
        self._places = {name: partial.plan.by.index(keys[name]) for name in partial.by}

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types of what the partial finishes to."""
        return self._partial.plan.view.columns

    @property
    def by(self) -> tuple[str, ...]:
        """The grouping columns of the partial."""
        return self._partial.by

    def key_of(self, columns: Sequence[str]) -> Callable[[Key], Key]:
        """Return the function from a group of the partial to its values of some of the grouping columns."""
        places = [self._places[name] for name in columns]
        return lambda group: tuple([group[place] for place in places])

    def to(self, by: Sequence[str], keep: Callable[[Key], bool] | None = None) -> Partial:
        """Return the parts of the groups by fewer columns, put together from those that are kept.

        Parameters
        ----------
        by
            Some of the partial's grouping columns.
        keep
            Tells of a group of the partial whether it is wanted; None keeps all.

        Raises
        ------
        UsageError
            If a column needs a grouping column that goes, or is fixed.
        """
        whole = self._partial
        if keep is None and tuple(by) == whole.by:
            return whole
        plan = plan_fold(self._finisher, by, [name for name, _ in whole.plan.kinds])
        if isinstance(plan, Refusal):
            raise plan.error()
        plan = replace(plan, source=whole.plan.source)
        assert (plan.added, plan.ends) == (whole.plan.added, whole.plan.ends), "the same columns of the same view"
        places = [whole.plan.by.index(place) for place in plan.by]
        wanted = keep or (lambda group: True)

        def group_of(group: Key) -> Key:
            return tuple([group[place] for place in places])

        groups: dict[Key, list[Any]] = {}
        adder = Adder(plan)
        with decimal.localcontext(EXACT):
            for group, numbers in whole.groups.items():
                if wanted(group):
                    adder.add(groups, group_of(group), numbers)
        ends = []
        for end, held in zip(plan.ends, whole.ends, strict=True):
            best: dict[Key, Any] = {}
            for group, value in held.items():
                if wanted(group):
                    keep_end(best, group_of(group), value, end.end)
            ends.append(best)
        pairs: dict[CountedValues, Mapping[Key, Mapping[Key, int]]] = {}
        for counted, of_groups in whole.pairs.items():
            found: dict[Key, dict[Key, int]] = {}
            for group, values in of_groups.items():
                if wanted(group):
                    together = found.setdefault(group_of(group), {})
                    for value, count in values.items():
                        together[value] = together.get(value, 0) + count
            pairs[counted] = found
        return replace(whole, plan=plan, groups=groups, ends=tuple(ends), pairs=pairs)
