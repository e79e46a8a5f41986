"""What materialisation makes: columns, the groups of them that share a map, and rules that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cumulus.algebra.scope import ordered, variables_of
from cumulus.algebra.terms import Atom, Batch, Lift, Number, Term
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.polynomial import Monomial
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.compiler.maps.canonical_forms import is_value
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
