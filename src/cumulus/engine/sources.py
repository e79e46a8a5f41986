"""What a factor of a term loops over or looks up in: maps, the net change of a batch, sums in dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import MapRead, Range, Sum, Term, sum_of
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.engine import floats
from cumulus.engine.failures import Sites
from cumulus.engine.numbers import NumberKind, Value
from cumulus.engine.storage import Positions, Store
from cumulus.engine.writer import Writer

if TYPE_CHECKING:
    from cumulus.engine.values import Env, Setting, TermCoder

CHANGES = "changes"
"""The parameter that holds the net change of a batch: row → multiplicity."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dict as generated code sees it.

    Parameters
    ----------
    text
        The name of the dict.
    columns
        Names and types of the parts of its keys.
    is_bare
        Keys are the bare value of the only column, not tuples.
    value
        From the name of a stored entry to the number that it stands for.
    may_be_zero
        Whether that number can be 0.
    slice
        Returns the name of an index on some positions (part of the key → the keys), writing what builds it.
    """

    text: str
    columns: tuple[Column, ...]
    is_bare: bool
    value: Callable[[str], Value]
    may_be_zero: bool
    slice: Callable[[Positions], str]

    @property
    def width(self) -> int:
        """The number of key columns."""
        return len(self.columns)

    def key_text(self, parts: list[str]) -> str:
        """Return the expression of a whole key."""
        if self.is_bare:
            return parts[0]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def map_source(store: Store, column: str, coder: TermCoder) -> Source:
    """Return a value column of a map."""
    position = store.definition.column_index(column)
    declared = store.definition.values[position].type
    kind = NumberKind.INT if position == store.count else NumberKind.DEC

    def value(entry: str) -> Value:
        if store.flat:
            return Value(entry, kind, declared)
        if position in store.floats:
            return Value(f"{coder.pool.bind(floats.read_cell, 'read_cell')}({entry}[{position}])", NumberKind.FLOAT)
        return Value(f"{entry}[{position}]", kind, declared)

    def sliced(positions: Positions) -> str:
        store.add_index(positions)
        return store.index_name(positions)

    return Source(store.name, store.definition.keys, store.width == 1, value, not store.flat, sliced)


def moved_sum(term: Term, env: Env, coder: TermCoder) -> Value | None:
    """Write `m[k].s + change` for a DOUBLE column as what the column will be after the change; None for another term.

    A sum of floats depends on how it came to be, so a statement that looks ahead must add as the map will.
    """
    parts = term.parts if isinstance(term, Sum) else ()
    for part in parts:
        if not isinstance(part, MapRead):
            continue
        store = coder.store(part.map)
        position = store.definition.column_index(part.column)
        if position not in store.floats or any(isinstance(key, Range) for key in part.keys):
            continue
        change = coder.closed(sum_of(other for other in parts if other is not part), env, hint="change")
        keys = [coder.scalar(key, env).text for key in part.keys if not isinstance(key, Range)]
        key = keys[0] if store.width == 1 else f"({', '.join(keys)}{',' if len(keys) == 1 else ''})"
        name = coder.pool.bind(floats.moved, "moved")
        return Value(f"{name}({store.name}.get({key}), {position}, {change.text})", NumberKind.FLOAT)
    return None


def batch_source(columns: tuple[Column, ...], coder: TermCoder) -> Source:
    """Return the net change that the trigger is fired with."""

    def value(entry: str) -> Value:
        return Value(entry, NumberKind.INT, BIGINT)

    return Source(CHANGES, columns, False, value, False, _slicer(CHANGES, coder))


def group_source(name: str, columns: tuple[Column, ...], kind: NumberKind, coder: TermCoder) -> Source:
    """Return sums in a dict that stands in a local variable."""

    def value(entry: str) -> Value:
        return Value(entry, kind)

    return Source(name, columns, len(columns) == 1, value, True, _slicer(name, coder))


def _slicer(text: str, coder: TermCoder) -> Callable[[Positions], str]:
    """Return the `slice` of a dict that lives for one firing: the index is built when it is first needed."""

    def sliced(positions: Positions) -> str:
        name = coder.writer.lazy((text, positions), f"{text}_by_{'_'.join(map(str, positions))}")
        build = coder.pool.bind(slices, "slices")
        coder.writer.line(f"if {name} is None: {name} = {build}({text}, {positions!r})")
        return name

    return sliced


def slices(entries: Mapping[Any, Any], positions: Positions) -> dict[Any, list[Any]]:
    """Return the keys of `entries` by the parts of them at `positions` (bare if there is one position).

    Examples
    --------
    >>> slices({(1, 2): 5, (1, 3): 6}, (0,))
    {1: [(1, 2), (1, 3)]}
    """
    found: dict[Any, list[Any]] = {}
    if len(positions) == 1:
        place = positions[0]
        for key in entries:
            found.setdefault(key[place], []).append(key)
    else:
        for key in entries:
            found.setdefault(tuple(key[place] for place in positions), []).append(key)
    return found


class Shared:
    """Sub-terms that are evaluated at most once per firing, each in a function of its own.

    Parameters
    ----------
    prefix
        Begins the names of the functions.
    takes_changes
        Whether the functions get the net change.
    sites
        Where failures in the functions come from.
    """

    def __init__(self, prefix: str, takes_changes: bool, sites: Sites) -> None:
        self._sites = sites
        self.functions: list[tuple[str, Writer]] = []
        self._prefix = prefix
        self._argument = CHANGES if takes_changes else ""
        self._known: dict[Term, tuple[str, tuple[Column, ...], NumberKind, int]] = {}

    def source(self, term: Term, coder: TermCoder, new_coder: Callable[[Writer], TermCoder]) -> Source:
        """Return the value of `term`, computed before if it was needed before in this firing."""
        if term not in self._known:
            self._known[term] = self._write(term, coder.setting, coder.writer.about, new_coder)
        function, columns, kind, site = self._known[term]
        self._sites.used(site, coder.writer.site)
        name = coder.writer.lazy(term, "shared")
        coder.writer.line(f"if {name} is None: {name} = {function}({self._argument})")
        return group_source(name, columns, kind, coder)

    def _write(
        self, term: Term, setting: Setting, about: Any, new_coder: Callable[[Writer], TermCoder]
    ) -> tuple[str, tuple[Column, ...], NumberKind, int]:
        function = f"{self._prefix}_shared_{len(self.functions) + 1}"
        writer = Writer(setting.taken)
        self.functions.append((f"def {function}({self._argument}):", writer))
        writer.about, writer.site = about, self._sites.shared()
        coder = new_coder(writer)
        free = outputs(term)
        if free:
            groups = writer.fresh("groups")
            writer.line(f"{groups} = {{}}")
            source = coder.group_into(groups, term, free, {})
            writer.line(f"return {groups}")
            return function, source.columns, source.value("").kind, writer.site
        value = coder.closed(term, {}, inline=True)
        writer.line(f"return {value.text}")
        return function, (), value.kind, writer.site
