"""What the expressions of a view read of maps: single entries, and ends of slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cumulus.algebra.terms import Cast, Extremum, MapExtremum, MapRead, Range, Scalar, Term, Var, children
from cumulus.catalog.schema import Column
from cumulus.catalog.types import INTEGER_BITS, Kind, SqlType
from cumulus.errors import ValidationError
from cumulus.m3.program import MapDef, Program, ViewDef


def key_columns(view: ViewDef, keys: Iterable[Column]) -> dict[str, int]:
    """Return the columns by which one row of a view is looked up, and which keys of its maps these are."""
    places = {key.name: place for place, key in enumerate(keys)}
    found: dict[str, int] = {}
    for column, scalar in zip(view.columns, view.select, strict=True):
        if isinstance(scalar, Var) and scalar.name in places and places[scalar.name] not in found.values():
            found[column.name] = places[scalar.name]
    return found


def grouping_columns(view: ViewDef, map: MapDef) -> dict[str, int]:
    """Return the columns of a view that are keys of its maps, of a join perhaps in a wider type: name → which key."""
    places = {key.name: place for place, key in enumerate(map.keys)}
    found = {}
    for scalar, column in zip(view.select, view.columns, strict=True):
        key = scalar.arg if isinstance(scalar, Cast) else scalar
        if isinstance(key, Var) and key.name in places:
            of = map.keys[places[key.name]].type
            if scalar is key or (of is not None and isinstance(scalar, Cast) and _keeps_apart(of, scalar.type)):
                found[column.name] = places[key.name]
    return found


def _keeps_apart(of: SqlType, to: SqlType) -> bool:
    """Whether a cast makes different values of different ones, and Python finds the old equal to the new."""
    if of.is_exact and to.is_exact:
        return to.scale >= of.scale
    return of.is_integer and to.kind is Kind.DOUBLE and INTEGER_BITS[of.kind] <= 32


@dataclass(frozen=True, slots=True)
class EntryRead:
    """One read: of an entry, or of an end of a slice.

    Parameters
    ----------
    map
        What is read.
    keys
        A scalar for every key, None for the one that an end goes along.
    column
        The position of the value column that is read, or that must not be 0; None for ends over existing entries.
    end
        "MIN" or "MAX"; "" for an entry.
    """

    map: MapDef
    keys: tuple[Scalar | None, ...]
    column: int | None
    end: str = ""

    @property
    def axis(self) -> int:
        """The position of the key that an end goes along."""
        return self.keys.index(None)


def read_of(program: Program, term: Term | Range) -> EntryRead | None:
    """Return the read that a node of a view's expression is, None if it is something else; its map must be there.

    Raises
    ------
    ValidationError
        For what a view cannot read: a range of keys, or the end of more than one map.
    """
    match term:
        case MapRead(state="NEW" | "CHANGED"):
            raise ValidationError(f"a view cannot read {term}", hint="A view reads what maps are after the events.")
        case MapRead(name, column, keys):
            return EntryRead(program.map(name), _scalars(term, keys), program.map(name).column_index(column))
        case MapExtremum(end, name, keys):
            return EntryRead(program.map(name), keys, None, end)
        case Extremum(end, variable, MapRead(name, column, keys)):
            definition = program.map(name)
            others = tuple(None if key is Var(variable) else key for key in _scalars(term, keys))
            position = definition.column_index(column)
            always = len(definition.values) == 1 or column == definition.count
            if others.count(None) == 1:
                return EntryRead(definition, others, None if always else position, end)
            raise ValidationError(f"{variable} is not exactly one of the keys in {term}", hint=_HINT)
        case Extremum():
            raise ValidationError(f"a view cannot read {term}", hint=_HINT)
        case _:
            return None


_HINT = "A view reads single entries and ends of slices, such as m[a] and MAX m[a, *]; keep anything else in a map."


def _scalars(term: Term, keys: tuple[Term | Range, ...]) -> tuple[Scalar, ...]:
    found = tuple(key for key in keys if not isinstance(key, Range))
    if len(found) < len(keys):
        raise ValidationError(f"a view cannot read the range in {term}", hint=_HINT)
    return found


def reads_of(program: Program, view: ViewDef) -> tuple[EntryRead, ...]:
    """Return what the expressions of a view read, each once.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("MAP v[g](n); MAP w[g, x](n); VIEW v(g, hi) FROM v SELECT g, MAX w[g, *] WHERE n > v[0];")
    >>> [(read.map.name, read.end) for read in reads_of(program, program.views[0])]
    [('w', 'MAX'), ('v', '')]
    """
    return tuple(dict.fromkeys(read for scalar in view.expressions for read in _reads(program, scalar)))


def top_of(program: Program, view: ViewDef) -> tuple[int, bool] | None:
    """Return the column of its first map by which the first rows of a view are found, and whether it descends.

    Key columns are counted first, then value columns. None if the view shows all rows, or orders by something else, or
    may show NULLs first: they can only be put off.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("MAP v[g](n, s) COUNT n; VIEW v(g, s) FROM v SELECT g, s ORDER BY s DESC LIMIT 3;")
    >>> top_of(program, program.views[0])
    (2, True)
    """
    if view.limit is None or not view.order_by:
        return None
    item, first = view.order_by[0], program.map(view.maps[0])
    if not isinstance(item.expression, Var):
        return None
    name = item.expression.name
    for place, key in enumerate(first.keys):
        if key.name == name:
            return (place, item.descending) if key.not_null or not item.nulls_first else None
    for place, value in enumerate(first.values):
        if name in (value.name, f"{first.name}.{value.name}"):
            return len(first.keys) + place, item.descending
    return None


def names_in(program: Program, node: Term | Range) -> frozenset[str]:
    """Return the names of keys and value columns that a part of an expression needs; its maps must be there.

    Raises
    ------
    ValidationError
        As `read_of`.
    """
    own = {node.name} if isinstance(node, Var) else set[str]()
    return frozenset(own).union(*(names_in(program, part) for part in _parts(node, read_of(program, node))))


def _parts(node: Term | Range, found: EntryRead | None) -> Iterable[Term | Range]:
    """Return the sub-terms of a node, or, if it is a read, the keys by which it is found."""
    return children(node) if found is None else (key for key in found.keys if key is not None)


def _reads(program: Program, node: Term | Range) -> Iterator[EntryRead]:
    found = read_of(program, node)
    if found is not None:
        yield found
    for part in _parts(node, found):
        yield from _reads(program, part)
