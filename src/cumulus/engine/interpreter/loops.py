"""Look-ups and loops as Python source: what one atom of a join is.

It loops over or looks up in a map, the net change of a batch, or sums in a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from cumulus.algebra import float_sums
from cumulus.algebra.terms import MapRead, Range, Term, Var
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.engine.failures import ErrorSites
from cumulus.engine.interpreter.error_guards import assigned, can_fail, holding
from cumulus.engine.interpreter.new_state import NewStateSlices
from cumulus.engine.interpreter.numbers import Env, EnvScalars, NumberKind, Value
from cumulus.engine.interpreter.store import DictMap, Positions
from cumulus.engine.interpreter.writer import Writer
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import NamePool, PythonCode

Then: TypeAlias = Callable[[Env, list[Value]], None]
"""Writes what happens for each binding, with the values to multiply."""


@dataclass(slots=True)
class LoopCoder:
    """Writes look-ups, loops and conditions; `depth` is in how many loops the code stands."""

    writer: Writer
    pool: NamePool
    scalars: EnvScalars
    depth: int = 0

    def scan(self, source: DictSource, keys: tuple[Term | Range, ...], env: Env, then: Then) -> None:
        """Write the look-up or the loop that one atom is."""
        if len(keys) != source.width:
            raise ValidationError(f"{source.text} has {source.width} keys, not {len(keys)}")
        bound = {
            place: self.scalars.code(key, env)
            for place, key in enumerate(keys)
            if not isinstance(key, Range) and not (isinstance(key, Var) and key.name not in env)
        }
        with ExitStack() as computed:
            for place, code in bound.items():
                if can_fail(code.text, self.pool):
                    bound[place] = code._replace(text=self.writer.fresh("part"))
                    computed.enter_context(assigned(self.writer, self.pool, bound[place].text, code.text))
            outside = self.writer.row
            self._scan_bound(source, keys, bound, env, then)
            self.writer.row = outside

    def _scan_bound(
        self, source: DictSource, keys: tuple[Term | Range, ...], bound: Mapping[int, PythonCode], env: Env, then: Then
    ) -> None:
        entry = self.writer.fresh("entry")
        if len(bound) == source.width:
            key = source.key_text([bound[place].text for place in range(len(keys))])
            self.writer.line(f"{entry} = {source.text}.get({key})")
            with self.when(f"{entry} is not None"):
                self.writer.row = key if source.text == CHANGES else self.writer.row
                self._visit(source, entry, env, then)
            return
        places = tuple(sorted(bound))
        part = source.slice(places) if places else ""
        key = self.writer.fresh("key")
        if places:
            sub = bound[places[0]].text if len(places) == 1 else f"({', '.join(bound[i].text for i in places)})"
            header = f"for {key} in {part}.get({sub}, ()):"
        else:
            header = f"for {key}, {entry} in {source.text}.items():"
        with self.writer.block(header):
            self.depth += 1
            self.writer.row = key if source.text == CHANGES else self.writer.row
            if places:
                self.writer.line(f"{entry} = {source.text}[{key}]")
            self._unpack(source, keys, key, env, lambda inner: self._visit(source, entry, inner, then))
            self.depth -= 1

    def _unpack(
        self, source: DictSource, keys: tuple[Term | Range, ...], key: str, env: Env, then: Callable[[Env], None]
    ) -> None:
        """Bind the loop variables to parts of the key that stands in `key`, and filter."""
        inner = dict(env)
        tests: list[str] = []
        for place, pattern in enumerate(keys):
            column = source.columns[place]
            text = key if source.is_bare else f"{key}[{place}]"
            here = PythonCode(text, column.type, not column.not_null)
            if isinstance(pattern, Range):
                name = self.writer.fresh("end")
                self.writer.line(f"{name} = {text}")
                tests.extend(self._within(pattern, here._replace(text=name), env))
            elif isinstance(pattern, Var) and pattern.name not in env:
                if pattern.name in inner:
                    tests.append(self.scalars.coder(inner).compare("=", inner[pattern.name], here))
                    continue
                name = self.writer.fresh(pattern.name)
                self.writer.line(f"{name} = {text}")
                inner[pattern.name] = here._replace(text=name)
        if tests:
            with self.when(" and ".join(tests), inner):
                then(inner)
        else:
            then(inner)

    def _within(self, pattern: Range, here: PythonCode, env: Env) -> list[str]:
        coder = self.scalars.coder(env)
        tests = []
        for end, sign in ((pattern.low, ">"), (pattern.high, "<")):
            if end is not None:
                tests.append(coder.compare(f"{sign}=" if end[1] else sign, here, coder.code(end[0])))
        return tests

    def _visit(self, source: DictSource, entry: str, env: Env, then: Then) -> None:
        value = source.value(entry)
        if value.text == entry and not source.may_be_zero:
            then(env, [value])
            return
        name = entry if value.text == entry else self.writer.fresh("value")
        with holding(self.writer, self.pool, value.text, name=name):
            then(env, [value._replace(text=name)])

    def when(self, condition: str, env: Env | None = None) -> AbstractContextManager[None]:
        """Write an `if`; give `env` where variables of unknown type may be compared."""
        typed = all(code.type is not None for code in (env or {}).values())
        return holding(self.writer, self.pool, condition, typed=typed)


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


def ahead_name(store: DictMap) -> str:
    """Return how generated code calls a map as it will be."""
    return f"{store.name}_ahead"


@dataclass(frozen=True, slots=True)
class LoopSources:
    """Makes what the code of one function loops over, and writes the indexes that this needs."""

    stores: Mapping[str, DictMap]
    pool: NamePool
    writer: Writer

    def store(self, name: str) -> DictMap:
        """Return the map called `name`; ValidationError if there is none."""
        if name not in self.stores:
            raise ValidationError(f"there is no map {name}", hint="Declare it with MAP.")
        return self.stores[name]

    def of_read(self, read: MapRead) -> DictSource:
        """Return what a read of a map loops over or looks up in."""
        store = self.store(read.map)
        match read.state:
            case "CHANGED":
                name = self.writer.lazy((store.name, "CHANGED"), f"{store.name}_changed")
                self.writer.line(f"if {name} is None: {name} = {ahead_name(store)}.differing()")
                return replace(self.of_sums(name, store.definition.keys, NumberKind.INT), may_be_zero=False)
            case "NEW":
                return replace(self.of_map(store, read.column), text=ahead_name(store), slice=self._ahead_slicer(store))
            case _:
                return self.of_map(store, read.column)

    def of_map(self, store: DictMap, column: str) -> DictSource:
        """Return a value column of a map before the event."""
        position = store.definition.column_index(column)
        declared = store.definition.values[position].type
        kind = NumberKind.INT if position == store.count else NumberKind.DEC

        def value(entry: str) -> Value:
            if store.flat:
                return Value(entry, kind, declared)
            if position in store.floats:
                read_cell = self.pool.bind(float_sums.read_cell, "read_cell")
                return Value(f"{read_cell}({entry}[{position}])", NumberKind.FLOAT, is_sum=True)
            return Value(f"{entry}[{position}]", kind, declared)

        return DictSource(store.name, store.definition.keys, store.width == 1, value, not store.flat, _indexed(store))

    def of_batch(self, columns: tuple[Column, ...]) -> DictSource:
        """Return the net change that the trigger is fired with."""
        slicer = self._slicer(CHANGES)
        return DictSource(CHANGES, columns, False, lambda entry: Value(entry, NumberKind.INT, BIGINT), False, slicer)

    def of_sums(self, name: str, columns: tuple[Column, ...], kind: NumberKind) -> DictSource:
        """Return sums in a dict that stands in a local variable."""
        return DictSource(name, columns, len(columns) == 1, lambda entry: Value(entry, kind), True, self._slicer(name))

    def _ahead_slicer(self, store: DictMap) -> Callable[[Positions], str]:
        index = _indexed(store)

        def sliced(positions: Positions) -> str:
            wanted = f"{ahead_name(store)}_by_{'_'.join(map(str, positions))}"
            name = self.writer.lazy((store.name, "NEW", positions), wanted)
            build = self.pool.bind(NewStateSlices, "ahead_slices")
            made = f"{build}({ahead_name(store)}, {index(positions)}, {positions!r})"
            self.writer.line(f"if {name} is None: {name} = {made}")
            return name

        return sliced

    def _slicer(self, text: str) -> Callable[[Positions], str]:
        """Return the `slice` of a dict that lives for one firing: the index is built when it is first needed."""

        def sliced(positions: Positions) -> str:
            name = self.writer.lazy((text, positions), f"{text}_by_{'_'.join(map(str, positions))}")
            build = self.pool.bind(slices, "slices")
            self.writer.line(f"if {name} is None: {name} = {build}({text}, {positions!r})")
            return name

        return sliced


def _indexed(store: DictMap) -> Callable[[Positions], str]:
    def sliced(positions: Positions) -> str:
        store.add_index(positions)
        return store.index_name(positions)

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


WriteBody: TypeAlias = Callable[[Writer], tuple[tuple[Column, ...], NumberKind]]
"""Writes a function that returns sums by some columns, () for a number; returns these, and what the numbers are."""


class SharedFunction(NamedTuple):
    """A function that computes a shared term."""

    name: str
    columns: tuple[Column, ...]
    kind: NumberKind
    site: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Sub-terms that are evaluated at most once per firing, each in a function of its own.

    Parameters
    ----------
    prefix
        Begins the names of the functions.
    argument
        What the functions get: `CHANGES`, or "" for nothing.
    taken
        Names that locals must not have.
    functions
        The heads and bodies of those that are written.
    """

    prefix: str
    argument: str
    sites: ErrorSites
    taken: set[str]
    functions: list[tuple[str, Writer]] = field(default_factory=list)
    known: dict[Term, SharedFunction] = field(default_factory=dict)

    def source(self, term: Term, writer: Writer, sources: LoopSources, write_body: WriteBody) -> DictSource:
        """Return the value of `term` for a function that needs it, computed before if this firing has needed it before.

        `write_body` writes the function that computes it.
        """
        if term not in self.known:
            name = f"{self.prefix}_shared_{len(self.functions) + 1}"
            body = Writer(self.taken)
            self.functions.append((f"def {name}({self.argument}):", body))
            body.about, body.site = writer.about, self.sites.shared()
            self.known[term] = SharedFunction(name, *write_body(body), body.site)
        shared = self.known[term]
        self.sites.used(shared.site, writer.site)
        name = writer.lazy(term, "shared")
        writer.line(f"if {name} is None: {name} = {shared.name}({self.argument})")
        return sources.of_sums(name, shared.columns, shared.kind)
