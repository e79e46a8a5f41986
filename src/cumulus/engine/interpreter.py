"""The interpreter: M3 programs as generated Python over dicts.

It runs all of M3, and the other evaluators are tested against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from cumulus.algebra.scalar_code import Pool, canonical
from cumulus.algebra.scope import maps_of
from cumulus.catalog.events import Row
from cumulus.engine.floats import ZERO_CELL, add_to_cell, exact, finite
from cumulus.engine.protocol import Changes, Key, Stored, Values
from cumulus.engine.storage import Positions, Store
from cumulus.engine.triggers import ModuleCoder
from cumulus.engine.writer import identifier
from cumulus.errors import EvaluationError, UnknownNameError, UsageError
from cumulus.m3.dataflow import maps_of_view
from cumulus.m3.program import MapDef, On, Program, Statement

_NUMBERS = itertools.count(1)


class Interpreter:
    """An `Engine` over Python dicts.

    Parameters
    ----------
    program
        Any M3 program.
    functions
        A user's scalar functions by name.

    Raises
    ------
    ValidationError
        If the program cannot be run: unbound variables, unknown maps or functions, DOUBLE columns without a COUNT.
    """

    def __init__(self, program: Program, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.program = program
        self._functions = dict(functions or {})
        self._stores = _stores(program)
        self._filename = f"<m3 program {next(_NUMBERS)}>"
        self._watched: dict[str, None] = {}
        self._is_open = False
        self._generate()
        self._float_columns = {
            relation.name: tuple(
                place for place, column in enumerate(relation.columns) if column.type is None or column.type.is_float
            )
            for relation in program.relations
        }
        self._reads = {
            target: frozenset().union(
                *(
                    maps_of(statement.term)
                    for trigger in program.triggers
                    for statement in trigger.statements
                    if statement.map == target and statement.op == ":="
                )
            )
            for target in self._module.assigned
        }
        self._stale = set(self._module.assigned)
        self._assign_first()

    def _generate(self) -> None:
        pool = Pool(self._functions)
        self._module = ModuleCoder(self.program, self._stores, pool).write()
        names = pool.names
        for store in self._stores.values():
            names[store.name] = store.entries
            names[f"{store.name}_undo"] = store.undo
            for positions, index in store.indexes.items():
                names[store.index_name(positions)] = index
        exec(compile(self._module.source, self._filename, "exec"), names)
        for store in self._stores.values():
            if store.indexes:
                store.enter = names[f"enter_{store.name}"]
                store.leave = names[f"leave_{store.name}"]
        self._handlers: dict[tuple[int, str], Callable[..., None]] = {}
        self._batches: dict[str, Callable[[Mapping[Row, int]], None]] = {}
        for (on, relation), name in self._module.triggers.items():
            match on:
                case On.INSERT:
                    self._handlers[1, relation] = names[name]
                case On.DELETE:
                    self._handlers[-1, relation] = names[name]
                case On.BATCH:
                    self._batches[relation] = names[name]
        self._assign = {target: (names[name], columns) for target, (name, columns) in self._module.assigned.items()}

    @property
    def source(self) -> str:
        """The generated Python, to read."""
        return self._module.source

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a transaction."""
        assert not self._is_open, "transactions do not nest"
        self._is_open = True

    def commit(self) -> Changes:
        """Run the `:=` statements and close the transaction; see `Engine.commit`."""
        assert self._is_open, "no transaction is open"
        if self._assign:
            self._run_assignments()
        changes: Changes = {}
        for name in self._watched:
            store = self._stores[name]
            if store.undo:
                try:
                    found = store.changes()
                except EvaluationError as problem:
                    raise self._told(problem, name, None) from problem
                if found:
                    changes[name] = found
        self._close()
        return changes

    def rollback(self) -> None:
        """Close the transaction and put every entry back."""
        assert self._is_open, "no transaction is open"
        for store in self._stores.values():
            if store.undo:
                store.rollback()
        self._stale = set(self._assign)
        self._is_open = False

    def _close(self) -> None:
        for store in self._stores.values():
            if store.undo:
                store.undo.clear()
        self._is_open = False

    def on_event(self, sign: int, relation: str, row: Row) -> None:
        """Fire the trigger of a single event; see `Engine.on_event`."""
        assert self._is_open, "an event outside a transaction"
        handler = self._handlers.get((sign, relation))
        if handler is None:
            self._without_trigger(sign, relation, row)
            return
        try:
            handler(*row)
        except Exception as problem:  # a user's function may raise anything
            raise self._blamed(problem, (sign, relation, row)) from problem

    def _without_trigger(self, sign: int, relation: str, row: Row) -> None:
        if relation in self._batches:
            self.on_batch(relation, {row: sign})
        elif (-sign, relation) in self._handlers:
            raise UsageError(
                f"the program has no trigger ON {'+' if sign > 0 else '-'}{relation}",
                hint="Write one, or do not send such events.",
            )
        # A relation without any trigger is one that no map depends on.

    def on_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Fire the batch trigger, or the single ones where that is the same; see `Engine.on_batch`."""
        assert self._is_open, "an event outside a transaction"
        handler = self._batches.get(relation)
        if handler is None:
            self._one_by_one(relation, changes)
            return
        floats = self._float_columns.get(relation, ())
        if floats:
            changes = _canonical_rows(changes)
        try:
            handler(changes)
        except Exception as problem:  # a user's function may raise anything
            raise self._blamed(problem, (0, relation, tuple(changes.items())[:1])) from problem

    def _one_by_one(self, relation: str, changes: Mapping[Row, int]) -> None:
        for definition in self.program.maps:
            if not definition.definitions:
                raise UsageError(
                    f"{relation} has no ON BATCH trigger, and map {definition.name} has no definition",
                    hint="Only maps with a definition may take a net change event by event; write ON BATCH, or send "
                    "the events in their order.",
                )
        for sign in (-1, 1):
            for row, count in changes.items():
                for _ in range(count * sign):
                    self.on_event(sign, relation, row)

    # --- := ---------------------------------------------------------------------------------------------------------

    def _run_assignments(self) -> None:
        """Compute the `:=` maps whose sources have changed."""
        for target, (function, columns) in self._assign.items():
            if target not in self._stale and not any(self._stores[name].undo for name in self._reads[target]):
                continue
            store = self._stores[target]
            try:
                store.replace(_assembled(store, columns, function()))
            except Exception as problem:  # a user's function may raise anything
                raise self._blamed(problem, None, target) from problem
            self._stale.discard(target)

    def _assign_first(self) -> None:
        """Give `:=` maps their value for empty tables; one that has none yet is computed at the first commit."""
        if not self._assign:
            return
        self.begin()
        try:
            self._run_assignments()
        except EvaluationError:
            self.rollback()
        else:
            self._close()

    # --- errors -----------------------------------------------------------------------------------------------------

    def _blamed(self, problem: Exception, event: Any, target: str = "") -> EvaluationError:
        """Return `problem` as the error of the statement whose code raised it."""
        statement = self._statement_at(problem.__traceback__)
        target = statement.map if statement is not None else target
        return self._told(problem, target, event)

    def _statement_at(self, trace: TracebackType | None) -> Statement | None:
        found: Statement | None = None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._filename:
                about = self._module.lines[trace.tb_lineno - 1][1]
                found = about if about is not None else found
            trace = trace.tb_next
        return found

    def _told(self, problem: Exception, target: str, event: Any) -> EvaluationError:
        views = [view.name for view in self.program.views if target in maps_of_view(self.program, view.name)]
        place = f"view {views[0]} (map {target})" if views else f"map {target}"
        if event is not None:
            sign, relation, row = event
            what = f"{'+' if sign > 0 else '-' if sign < 0 else 'a batch of '}{relation}{row if sign else ''}"
            place += f", at {what}"
        reason = problem.message if isinstance(problem, EvaluationError) else f"{type(problem).__name__}: {problem}"
        hint = problem.hint if isinstance(problem, EvaluationError) else ""
        return EvaluationError(f"{place}: {reason}", view=views[0] if views else target, event=event, hint=hint)

    # --- reading and loading ----------------------------------------------------------------------------------------

    def store(self, name: str) -> Store:
        """Return the store of a map.

        Raises
        ------
        UnknownNameError
            If there is no such map.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint=f"Maps: {', '.join(self._stores)}.") from None

    def watch(self, map: str) -> None:
        """Report the changes of a map at each commit."""
        self.store(map)
        self._watched[map] = None

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        store = self.store(map)
        return store.values(store.entries.get(store.pack_key(key)))

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        return self.store(map).items()

    def size(self, map: str) -> int:
        """Return the number of existing entries."""
        return self.store(map).size()

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        """Replace the map's contents."""
        assert not self._is_open, "a map is loaded outside transactions"
        self.store(map).load(entries)
        self._stale |= {target for target, reads in self._reads.items() if map in reads}

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored; see `Engine.stored`."""
        store = self.store(map)
        for packed, entry in store.entries.items():
            yield store.unpack_key(packed), (entry,) if store.flat else entry

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        """Replace the map's contents by what `stored` gave."""
        assert not self._is_open, "a map is restored outside transactions"
        store = self.store(map)
        store.load_packed((store.pack_key(key), entry[0] if store.flat else entry) for key, entry in entries)
        self._stale |= {target for target, reads in self._reads.items() if map in reads}

    def add_index(self, map: str, positions: Positions) -> None:
        """Keep an index of the map on these key positions, for `find`."""
        store = self.store(map)
        if not 0 < len(positions) < store.width or positions in store.indexes:
            return
        assert not self._is_open, "an index is added outside transactions"
        store.add_index(positions)
        self._generate()

    def find(self, map: str, positions: Positions, values: Key) -> Iterator[Key]:
        """Iterate over the keys of existing entries that have `values` at `positions`."""
        return self.store(map).find(positions, values)


def _stores(program: Program) -> dict[str, Store]:
    """Return an empty store for each map, declared or only written or read."""
    stores: dict[str, Store] = {}
    names: set[str] = set()
    for definition in program.maps:
        assert isinstance(definition, MapDef), "a program holds MapDefs"
        name, count = f"map_{identifier(definition.name)}", 1
        while name in names:
            count += 1
            name = f"map_{identifier(definition.name)}_{count}"
        names.add(name)
        stores[definition.name] = Store(definition, name)
    return stores


def _canonical_rows(changes: Mapping[Row, int]) -> dict[Row, int]:
    rows: dict[Row, int] = {}
    for row, count in changes.items():
        row = tuple(map(canonical, row))
        rows[row] = rows.get(row, 0) + count
    return {row: count for row, count in rows.items() if count}


def _assembled(store: Store, columns: tuple[int, ...], groups: tuple[dict[Any, Any], ...]) -> dict[Any, Any]:
    """Return the packed contents of a map from one dict of sums per value column."""
    if store.flat:
        return {key: value for key, number in groups[0].items() if (value := exact(number))}
    contents: dict[Any, list[Any]] = {}
    for column, sums in zip(columns, groups, strict=True):
        for key, number in sums.items():
            entry = contents.setdefault(key, list(store.zero))
            entry[column] = add_to_cell(ZERO_CELL, finite(number)) if column in store.floats else exact(number)
    return {key: tuple(entry) for key, entry in contents.items() if not store.is_gone(tuple(entry))}
