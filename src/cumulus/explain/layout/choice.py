"""The choice of a layout: by which columns tables are partitioned so that the heaviest bucket has the least to do.

Legality is decided for each view on its own (`view_parts`), and noted: so a choice that one view forbids is told by the
name of the view, and groups of views that can be spread together are found without laying out whole programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nsmallest

from cumulus.errors import LayoutError
from cumulus.explain.layout.co_partitioning import Columns, Layout, Merge, Partitioned, lay_out
from cumulus.explain.layout.load import Loads, loads_of
from cumulus.explain.layout.placement import SAME_TAG
from cumulus.explain.layout.shared_keys import joint_choices, partition_choices
from cumulus.explain.layout.view_parts import OTHER, parts
from cumulus.explain.sizes import Statistics
from cumulus.m3.dataflow import topological
from cumulus.m3.program import Program

BUCKETS = 4
"""For how many buckets a layout is chosen if nobody says."""
_GROWN = 6
"""So many of the best choices for a group of views are looked at with the tables of others: that takes long."""
_ALIKE = 1.05
"""Shares of the heaviest bucket are alike up to this factor: then what needs less adding up is better."""

Objection = Callable[[Partitioned], str]
"""Says why a choice of columns is not wanted though it may be legal; "" if it is."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A view that cannot be spread as the others of its program can.

    Parameters
    ----------
    reason
        What of it needs another bucket, in a sentence.
    """

    view: str
    reason: str


@dataclass(frozen=True, slots=True)
class SpreadViews:
    """Views that are spread together.

    Parameters
    ----------
    partitioned
        How; empty if they are in one bucket.
    share
        Of their work, what the heaviest bucket gets.
    """

    views: tuple[str, ...]
    partitioned: Partitioned
    share: float


@dataclass
class LayoutChoices:
    """What there is to choose from for a program.

    Parameters
    ----------
    program
        The program; it must be acyclic.
    statistics
        What is known of its tables.
    buckets
        For how many.
    """

    program: Program
    statistics: Statistics = field(default_factory=Statistics)
    buckets: int = BUCKETS

    @cached_property
    def loads(self) -> Loads:
        """The work of the whole program, by tables."""
        return loads_of(self.program, self.statistics)

    @cached_property
    def parts(self) -> Mapping[str, Program]:
        """View → its part of the program."""
        return dict(parts(self.program))

    @cached_property
    def _tables(self) -> Mapping[str, frozenset[str]]:
        return {view: frozenset(trigger.relation for trigger in part.triggers) for view, part in self.parts.items()}

    @cached_property
    def _part_loads(self) -> Mapping[str, Loads]:
        return {view: loads_of(part, self.statistics) for view, part in self.parts.items()}

    @cached_property
    def _found(self) -> dict[tuple[str, tuple[tuple[str, Columns], ...]], str]:
        return {}

    def why_not(self, view: str, partitioned: Partitioned) -> str:
        """Return why tables cannot be partitioned so for a view; "" if they can."""
        mine = {table: columns for table, columns in partitioned.items() if table in self._tables[view]}
        at = (view, tuple(sorted(mine.items())))
        if at not in self._found:
            try:
                lay_out(self.parts[view], mine)
                self._found[at] = ""
            except LayoutError as illegal:
                self._found[at] = illegal.message
        return self._found[at]

    def first_refusal(self, partitioned: Partitioned, views: Iterable[str] | None = None) -> HeldBack | None:
        """Return the first of some views, of all if none are named, for which a choice is not legal."""
        for view in self.parts if views is None else views:
            reason = self.why_not(view, partitioned)
            if reason:
                return HeldBack(view, reason)
        return None

    def held_back(self, partitioned: Partitioned) -> tuple[HeldBack, ...]:
        """Return all views for which a choice is not legal."""
        found = ((view, self.why_not(view, partitioned)) for view in self.parts if view != OTHER)
        return tuple(HeldBack(view, reason) for view, reason in found if reason)

    def refusals(self) -> tuple[HeldBack, ...]:
        """Return why views cannot be spread with their heaviest tables in buckets, for those that cannot."""
        found = []
        for view, tables in self._tables.items():
            weights = self._part_loads[view].weights
            options = [option for option in self.candidates() if not option.keys().isdisjoint(tables)]
            options.sort(key=lambda option: -sum(weights.get(table, 0.0) for table in option))
            reason = self.why_not(view, options[0]) if options and view != OTHER else ""
            if reason:
                found.append(HeldBack(view, reason))
        return tuple(found)

    def layout(self, hint: Partitioned | None = None, objection: Objection = lambda partitioned: "") -> Layout:
        """Return the layout of the whole program; `choose_layout` has the parameters."""
        chosen = self._asked_for(hint) if hint else None
        try:
            topological(self.program)
        except LayoutError as cyclic:
            if hint:
                raise
            streams = sorted({trigger.relation for trigger in self.program.triggers})
            whole = {definition.name: SAME_TAG for definition in self.program.maps}
            return Layout(self.program, {}, whole, reasons=dict.fromkeys(streams, cyclic.message))
        return _Search(self, objection).layout(chosen)

    def _asked_for(self, partitioned: Partitioned) -> Layout:
        """Return the layout with some columns; LayoutError if there is none, with the view that forbids it."""
        try:
            return lay_out(self.program, partitioned)
        except LayoutError as illegal:
            refusal = self.first_refusal(partitioned) if _has_columns(self.program, partitioned) else None
            if refusal is None or refusal.view == OTHER:
                raise
            raise LayoutError(f"view {refusal.view}: {refusal.reason}", hint=illegal.hint) from None

    def candidates(self) -> Iterator[dict[str, Columns]]:
        """Yield columns by which tables might be partitioned together: joined ones, and keys of several columns."""
        for choice in partition_choices(self.program):
            yield {table: (column,) for table, column in choice.items()}
        yield from joint_choices(self.program)

    def group_cost(self, partitioned: Partitioned, views: Iterable[str]) -> float:
        """Return the work of the heaviest bucket for views, of which those that are not legal are in one."""
        cost = 0.0
        for view in views:
            loads = self._part_loads[view]
            share = 1.0 if self.why_not(view, partitioned) else loads.heaviest(partitioned, self.buckets)
            cost += share * sum(loads.weights.values())
        return cost

    def groups(self) -> tuple[SpreadViews, ...]:
        """Return the views in groups that are spread by keys of their own, and those that no key spreads in one bucket.

        Greedily: the choice that leaves the heaviest bucket the least to do for all views, then for those that it does
        not spread, and so on.
        """
        left = [view for view in self.parts if view != OTHER]
        found: list[SpreadViews] = []
        options = list(self.candidates())
        while left:
            likely = nsmallest(_GROWN, options, key=lambda option: self.group_cost(option, left))
            grown = (self._grown(option, left, options) for option in likely)
            _, best = min(grown, key=lambda each: each[0], default=(0.0, {}))
            spread = [view for view in left if not self.why_not(view, best) and self._is_spread(view, best)]
            if not spread:
                break
            used = {table for view in spread for table in self._tables[view]}
            partitioned = {table: columns for table, columns in best.items() if table in used}
            found.append(SpreadViews(tuple(spread), partitioned, self._share(partitioned, spread)))
            left = [view for view in left if view not in spread]
        return (*found, SpreadViews(tuple(left), {}, 1.0)) if left else tuple(found)

    def _is_spread(self, view: str, partitioned: Partitioned) -> bool:
        """Whether several buckets are of use to a view: the heaviest has at most nine tenths of its work."""
        return self._part_loads[view].heaviest(partitioned, self.buckets) <= 0.9

    def _share(self, partitioned: Partitioned, views: Sequence[str]) -> float:
        whole = sum(sum(self._part_loads[view].weights.values()) for view in views)
        return self.group_cost(partitioned, views) / whole if whole else 1.0

    def _grown(
        self, option: dict[str, Columns], views: Sequence[str], options: Sequence[dict[str, Columns]]
    ) -> tuple[float, dict[str, Columns]]:
        """Return what a choice costs for views, and the choice, with more tables by columns of other choices."""
        cost, grown = self.group_cost(option, views), option
        for other in options:
            rest = {table: columns for table, columns in other.items() if table not in grown}
            if rest and len(rest) == len(other):
                trial = {**grown, **rest}
                less = self.group_cost(trial, views)
                if less < cost:
                    cost, grown = less, trial
        return cost, grown


def choose_layout(
    program: Program,
    statistics: Statistics | None = None,
    hint: Partitioned | None = None,
    objection: Objection = lambda partitioned: "",
    buckets: int = BUCKETS,
) -> Layout:
    """Return the legal layout whose heaviest bucket has the least to do, with the reasons why other streams are whole.

    A cyclic program gets one bucket.

    Parameters
    ----------
    statistics
        What is known of the tables; the rest is guessed (`cumulus.explain.layout.load`).
    hint
        Relation → columns: partition these, and what else is possible.
    objection
        Says why a choice of columns is not wanted though it may be legal; "" if it is.
    buckets
        For how many.

    Raises
    ------
    LayoutError
        If `hint` is not legal, naming the statement.
    """
    return LayoutChoices(program, statistics or Statistics(), buckets).layout(hint, objection)


class _Search:
    """Looks for the layout of a whole program in one round."""

    def __init__(self, choice: LayoutChoices, objection: Objection) -> None:
        self._choice, self._objection = choice, objection
        self._reasons: dict[str, str] = {}

    def layout(self, chosen: Layout | None) -> Layout:
        """Return the best layout, or what `chosen` grows to."""
        choice = self._choice
        program, weights = choice.program, choice.loads.weights
        options = sorted(choice.candidates(), key=lambda option: -sum(weights.get(name, 0) for name in option))
        if chosen is None:
            chosen = self._best([found for option in options if (found := self._largest(option))])
        partitioned = dict(chosen.partitioned)
        for option in options:
            # Views that share no map may be spread by keys of their own.
            rest = {name: columns for name, columns in option.items() if name not in partitioned}
            for name, columns in sorted(rest.items(), key=lambda item: -weights[item[0]]):
                partitioned = self._legal({**partitioned, name: columns}, name) or partitioned
        others = sorted({trigger.relation for trigger in program.triggers} - partitioned.keys())
        reasons = {name: self._reasons.get(name, "it has no column to join by") for name in others}
        return replace(lay_out(program, partitioned), reasons=reasons)

    def _best(self, found: Sequence[dict[str, Columns]]) -> Layout:
        """Return the layout with the least for the heaviest bucket; of those that are alike, with least to add up."""
        choice = self._choice
        shares = [choice.loads.heaviest(each, choice.buckets) for each in found]
        least = min(shares, default=1.0)
        alike = [each for each, share in zip(found, shares, strict=True) if share <= least * _ALIKE]
        layouts = [lay_out(choice.program, each) for each in alike]
        return max(layouts, key=_simplicity, default=lay_out(choice.program, {}))

    def _legal(self, partitioned: dict[str, Columns], about: str = "") -> dict[str, Columns] | None:
        """Return a choice if it is legal; else note why not about a relation."""
        why = self._objection(partitioned)
        if not why:
            refusal = self._choice.first_refusal(partitioned)
            if refusal is None:
                return partitioned
            why = refusal.reason
        self._reasons.setdefault(about, why)
        return None

    def _largest(self, option: dict[str, Columns]) -> dict[str, Columns] | None:
        """Return as much of a choice as can be: one relation more at a time, heaviest first."""
        found = self._legal(option)
        if found is not None:
            return found
        weights = self._choice.loads.weights
        names = sorted(option, key=lambda name: -weights[name])
        best: dict[str, Columns] | None = None
        for start in names:
            grown = self._legal({start: option[start]}, start)
            if grown is None:
                continue
            for name in names:
                if name not in grown:
                    grown = self._legal({**grown, name: option[name]}, name) or grown
            if best is None or self._weight(grown) > self._weight(best):
                best = grown
        return best

    def _weight(self, partitioned: Iterable[str]) -> float:
        return sum(self._choice.loads.weights[name] for name in partitioned)


def _has_columns(program: Program, partitioned: Partitioned) -> bool:
    return all({*columns} <= {*program.relation(table).column_names} for table, columns in partitioned.items())


def _simplicity(layout: Layout) -> tuple[int, int]:
    """Return how many maps need no adding up, and then how few columns tables are partitioned by."""
    local = sum(layout.merge(name) is not Merge.ADD for name in layout.tags)
    return local, -sum(map(len, layout.partitioned.values()))
