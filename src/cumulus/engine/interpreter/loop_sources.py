"""What a factor of a term loops over or looks up in: maps, the net change of a batch, sums in dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import MapRead, Term
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.engine.analysis import float_sums
from cumulus.engine.failures import Sites
from cumulus.engine.interpreter.new_state import NewStateSlices
from cumulus.engine.interpreter.numbers import NumberKind, Value
from cumulus.engine.interpreter.store import DictMap, Positions
from cumulus.engine.interpreter.writer import Writer

if TYPE_CHECKING:
    from cumulus.engine.interpreter.terms import Setting, TermCoder

CHANGES = "changes"
"""The parameter that holds the net change of a batch: row → multiplicity."""


@dataclass(frozen=True, slots=True)
class DictSource:
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


def read_source(read: MapRead, coder: TermCoder) -> DictSource:
    """Return what a read of a map loops over or looks up in."""
    store = coder.store(read.map)
    match read.state:
        case "CHANGED":
            name = coder.writer.lazy((store.name, "CHANGED"), f"{store.name}_changed")
            coder.writer.line(f"if {name} is None: {name} = {ahead_name(store)}.differing()")
            return replace(group_source(name, store.definition.keys, NumberKind.INT, coder), may_be_zero=False)
        case "NEW":
            return replace(
                map_source(store, read.column, coder), text=ahead_name(store), slice=_ahead_slicer(store, coder)
            )
        case _:
            return map_source(store, read.column, coder)


def ahead_name(store: DictMap) -> str:
    """Return how generated code calls a map as it will be."""
    return f"{store.name}_ahead"


def map_source(store: DictMap, column: str, coder: TermCoder) -> DictSource:
    """Return a value column of a map before the event."""
    position = store.definition.column_index(column)
    declared = store.definition.values[position].type
    kind = NumberKind.INT if position == store.count else NumberKind.DEC

    def value(entry: str) -> Value:
        if store.flat:
            return Value(entry, kind, declared)
        if position in store.floats:
            return Value(f"{coder.pool.bind(float_sums.read_cell, 'read_cell')}({entry}[{position}])", NumberKind.FLOAT)
        return Value(f"{entry}[{position}]", kind, declared)

    return DictSource(store.name, store.definition.keys, store.width == 1, value, not store.flat, _indexed(store))


def _indexed(store: DictMap) -> Callable[[Positions], str]:
    def sliced(positions: Positions) -> str:
        store.add_index(positions)
        return store.index_name(positions)

    return sliced


def _ahead_slicer(store: DictMap, coder: TermCoder) -> Callable[[Positions], str]:
    index = _indexed(store)

    def sliced(positions: Positions) -> str:
        name = coder.writer.lazy(
            (store.name, "NEW", positions), f"{ahead_name(store)}_by_{'_'.join(map(str, positions))}"
        )
        build = coder.pool.bind(NewStateSlices, "ahead_slices")
        made = f"{build}({ahead_name(store)}, {index(positions)}, {positions!r})"
        coder.writer.line(f"if {name} is None: {name} = {made}")
        return name

    return sliced


def batch_source(columns: tuple[Column, ...], coder: TermCoder) -> DictSource:
    """Return the net change that the trigger is fired with."""

    def value(entry: str) -> Value:
        return Value(entry, NumberKind.INT, BIGINT)

    return DictSource(CHANGES, columns, False, value, False, _slicer(CHANGES, coder))


def group_source(name: str, columns: tuple[Column, ...], kind: NumberKind, coder: TermCoder) -> DictSource:
    """Return sums in a dict that stands in a local variable."""

    def value(entry: str) -> Value:
        return Value(entry, kind)

    return DictSource(name, columns, len(columns) == 1, value, True, _slicer(name, coder))


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

    def source(self, term: Term, coder: TermCoder, new_coder: Callable[[Writer], TermCoder]) -> DictSource:
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
