"""What materialisation makes: columns, the groups of them that share a map, and rules that keep them.

A number may also live in the map of a wider join, of which it leaves out more rows. `SUM(x) FILTER (WHERE c)` beside
`COUNT(*)`, a CASE, and a nullable column that is added up need a number of the rows that meet a condition beside the
numbers of all rows. The join is the same, so the number is one more value column of the map of all rows: it is 0 where
no row meets the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cumulus.algebra.scope import ordered, variables_of
from cumulus.algebra.terms import NULL_VALUE, Atom, Batch, Compare, Lift, Number, Term
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.polynomial import Monomial
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.compiler.maps.canonical_forms import Canonical, canonical, is_value
from cumulus.scalars.typing import Typed, scalar_type

HIDDEN = "\0"
"""Marks a definition's variables while they stand beside a trigger's; no column's name has it, so they never meet."""


@dataclass(slots=True, eq=False)
class ColumnGroup:
    """Columns that live in one map because their entries are the same: one key, one join, several numbers."""

    arity: int
    skeleton: str
    columns: list[MaintainedNumber] = field(default_factory=list)
    name: str = ""
    of_view: bool = False
    views: set[str] = field(default_factory=set)
    """Those that it was made for, or is read by in the end."""

    @property
    def row_counts(self) -> list[MaintainedNumber]:
        """The columns that are 0 where, and only where, there is no entry."""
        return [each for each in self.columns if each.counts or (each.is_count and each.skeleton == self.skeleton)]


@dataclass(slots=True, eq=False)
class MaintainedNumber:
    """One number per key.

    Parameters
    ----------
    keys
        The definition's key variables, in the order of the group's keys.
    body
        The definition: factors over the keys and other variables.
    group
        The map it lives in.
    hint
        What to call it if nothing else does.
    order
        How it is kept (`Options.order`).
    view
        For which it was made first.
    counts
        Whether it is 0 where, and only where, the group has no rows.
    """

    keys: tuple[str, ...]
    body: list[Monomial]
    type: SqlType
    skeleton: str
    group: ColumnGroup
    hint: str = ""
    order: int | None = None
    view: str = ""
    counts: bool = False

    @property
    def is_count(self) -> bool:
        """Whether the column counts rows: it adds up nothing but ones."""
        return all(m.coefficient == 1 and not any(is_value(f) for f in m.factors) for m in self.body)


@dataclass(frozen=True, slots=True)
class MapRule:
    """One statement before maps have names: `target[keys] op term`, reading columns by number."""

    target: MaintainedNumber
    change: RelationChange
    keys: tuple[str, ...]
    coefficient: Number
    factors: tuple[Term, ...]
    reads: tuple[tuple[str, MaintainedNumber], ...]
    op: str = "+="


def variable_types(
    factors: Iterable[Term], tables: Mapping[str, Table], event: Mapping[str, Typed] | None = None
) -> dict[str, Typed]:
    """Return the types of the variables of an event, and of those that factors bind, by the columns and lifts.

    Examples
    --------
    >>> from cumulus.algebra.terms import Apply, Var
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT
    >>> table = Table("r", (Column("a", BIGINT),))
    >>> factors = [Atom("r", ("x",)), Lift("y", Apply("add", (Var("x"), Var("x"))))]
    >>> {name: str(typed.type) for name, typed in variable_types(factors, {"r": table}).items()}
    {'x': 'BIGINT', 'y': 'BIGINT'}
    """
    types = dict(event or {})
    lifts: list[Lift] = []
    for factor in factors:
        if isinstance(factor, (Atom, Batch)):
            for name, column in zip(factor.variables, tables[factor.name].columns, strict=True):
                assert column.type is not None, "SQL declares every type"
                known = types.get(name)
                if known is None:
                    types[name] = Typed(column.type, not column.not_null)
                elif known.nullable and column.not_null:
                    types[name] = Typed(known.type, False)
        elif isinstance(factor, Lift):
            lifts.append(factor)
    for lift in lifts:
        if variables_of(lift.term) <= types.keys():
            types[lift.variable] = Typed(scalar_type(lift.term, types), True)
    return types


def nice_names(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return names without the hidden mark, none of which is taken or stands among `names` already."""
    every = ordered(names)
    used = {*taken, *(name for name in every if HIDDEN not in name)}
    counts: dict[str, int] = {}
    result: dict[str, str] = {}
    for name in every:
        if HIDDEN not in name:
            continue
        base = nice = name.split(HIDDEN)[0]
        while nice in used:
            counts[base] = counts.get(base, 1) + 1
            nice = f"{base}_{counts[base]}"
        used.add(nice)
        result[name] = nice
    return result


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
