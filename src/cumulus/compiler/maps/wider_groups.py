"""Maps of wider joins: where a number lives that leaves out more rows than its map does.

`SUM(x) FILTER (WHERE c)` beside `COUNT(*)`, a CASE, and a nullable column that is added up need a number of the rows
that meet a condition beside the numbers of all rows. The join is the same, so the number is one more value column of
the map of all rows: it is 0 where no row meets the condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cumulus.algebra.terms import NULL_VALUE, Compare, Term
from cumulus.compiler.maps.canonical_forms import Canonical, canonical, is_value
from cumulus.compiler.maps.columns import ColumnGroup


@dataclass(frozen=True, slots=True)
class _Entry:
    """A group, its conditions as texts in the numbering of the bare join, and the places of its keys in that."""

    group: ColumnGroup
    conditions: frozenset[str]
    places: tuple[int, ...]


class WiderGroups:
    """The groups of a program by their bare joins: without conditions."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int | None], list[_Entry]] = {}

    def add(self, group: ColumnGroup, keys: tuple[str, ...], factors: Iterable[Term], order: int | None) -> None:
        """Note a new group, its keys in its order, and the factors of its first column."""
        form, conditions = _bare(keys, [factor for factor in factors if not is_value(factor)])
        places = tuple(form.keys.index(key) for key in keys)
        self._entries.setdefault((form.skeleton, order), []).append(_Entry(group, frozenset(conditions), places))

    def find(
        self, keys: tuple[str, ...], factors: tuple[Term, ...], order: int | None, view: str
    ) -> tuple[ColumnGroup, tuple[str, ...], tuple[Term, ...]] | None:
        """Return a group of fewer conditions, the keys in its order, and the factors that are its own.

        Conditions that leave out NULL may be dropped; others only where the same view needs the wider group anyway,
        since what reads the number finds more entries there.
        """
        joined = [factor for factor in factors if not is_value(factor)]
        form, conditions = _bare(keys, joined)
        best: _Entry | None = None
        for each in self._entries.get((form.skeleton, order), ()):
            dropped = conditions.keys() - each.conditions
            fits = each.conditions < conditions.keys() and (
                view in each.group.views or all(_is_null_guard(conditions[text]) for text in dropped)
            )
            if fits and (best is None or len(each.conditions) > len(best.conditions)):
                best = each
        if best is None:
            return None
        left = {conditions[text] for text in conditions.keys() - best.conditions}
        own = tuple(factor for factor in factors if factor not in left)
        return best.group, tuple(form.keys[place] for place in best.places), own


def _bare(keys: tuple[str, ...], joined: list[Term]) -> tuple[Canonical, dict[str, Term]]:
    """Return the form of a join without its conditions, and these by their texts in its numbering."""
    form = canonical(keys, [factor for factor in joined if not isinstance(factor, Compare)])
    return form, {form.text_of(factor): factor for factor in joined if isinstance(factor, Compare)}


def _is_null_guard(condition: Term) -> bool:
    return isinstance(condition, Compare) and condition.op == "<>" and condition.right is NULL_VALUE
