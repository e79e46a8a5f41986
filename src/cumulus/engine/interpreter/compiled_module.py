"""The generated module of a program, compiled: its functions, and which statement one of its lines belongs to.

The last modules that were written are kept: several engines of one program, such as those of nodes or of lives, share
one.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, MethodType, TracebackType
from typing import Any, TypeAlias

from cumulus.catalog.events import Row
from cumulus.engine.failures import Failures
from cumulus.engine.interpreter.error_guards import FAILED
from cumulus.engine.interpreter.loops import ahead_name
from cumulus.engine.interpreter.module import GeneratedModule, ModuleCoder
from cumulus.engine.interpreter.store import DictMap, Positions
from cumulus.errors import EvaluationError
from cumulus.m3.dataflow import maps_of_view
from cumulus.m3.program import On, Program, Statement
from cumulus.scalars.python_code import NamePool
from cumulus.scalars.user import Given


class CompiledModule:
    """The functions of a program over given maps; what they report goes to `failures`."""

    def __init__(
        self, program: Program, functions: Mapping[str, Given], stores: Mapping[str, DictMap], failures: Failures
    ) -> None:
        self._program, self._functions, self._stores, self._failures = program, functions, stores, failures
        self.handlers: dict[tuple[int, str], Callable[..., None]] = {}
        """(sign, relation) → what fires an event; the dict stays the same."""
        self.batches: dict[str, Callable[[Mapping[Row, int]], None]] = {}
        self.generate()

    def generate(self) -> None:
        """Write and compile the module, with the indexes that maps have now."""
        written = written_module(self._program, self._functions, self._stores)
        self.module, self._filename = written.module, written.code.co_filename
        self._failures.locate(self.module.sites.places())
        names = written.names_over(self._stores)
        names[FAILED] = self._failures.failed
        for store in self._stores.values():
            names[store.name] = store.entries
            names[f"{store.name}_undo"] = store.undo
            names[ahead_name(store)] = store.ahead
            for positions, index in store.indexes.items():
                names[store.index_name(positions)] = index
        exec(written.code, names)
        for store in self._stores.values():
            if store.indexes:
                store.enter = names[f"enter_{store.name}"]
                store.leave = names[f"leave_{store.name}"]
        for (on, relation), name in self.module.triggers.items():
            if on is On.BATCH:
                self.batches[relation] = self._blaming_batch(name, names[name], relation)
            else:
                sign = 1 if on is On.INSERT else -1
                self.handlers[sign, relation] = self._blaming(name, names[name], sign, relation)
        self.assigned = {target: (names[name], columns) for target, (name, columns) in self.module.assigned.items()}

    def _blaming(self, name: str, handler: Callable[..., None], sign: int, relation: str) -> Callable[..., None]:
        """Return a handler that tells which event the failures in it come from; one that cannot fail as it is."""
        if name not in self.module.fallible:
            return handler
        pending, blame = self._failures.pending, self._failures.blame

        def fire(*row: Any) -> None:
            handler(*row)
            if pending:
                blame(sign, relation, row)

        return fire

    def _blaming_batch(
        self, name: str, handler: Callable[[Mapping[Row, int]], None], relation: str
    ) -> Callable[[Mapping[Row, int]], None]:
        if name not in self.module.fallible:
            return handler

        def fire(changes: Mapping[Row, int]) -> None:
            handler(changes)
            if self._failures.pending:
                self._failures.blame_batch(relation, changes)

        return fire

    def blamed(self, problem: Exception, event: Any, target: str = "") -> EvaluationError:
        """Return what code did not catch where it evaluates, as the error of the statement that it belongs to."""
        self._failures.pending.clear()
        statement = self._statement_at(problem.__traceback__)
        target = statement.map if statement is not None else target
        views = [view.name for view in self._program.views if target in maps_of_view(self._program, view.name)]
        place = f"view {views[0]} (map {target})" if views else f"map {target}"
        if event is not None:
            sign, relation, row = event
            what = f"{'+' if sign > 0 else '-' if sign < 0 else 'a batch of '}{relation}{row if sign else ''}"
            place += f", at {what}"
        reason = problem.message if isinstance(problem, EvaluationError) else f"{type(problem).__name__}: {problem}"
        hint = problem.hint if isinstance(problem, EvaluationError) else ""
        return EvaluationError(f"{place}: {reason}", view=views[0] if views else target, event=event, hint=hint)

    def _statement_at(self, trace: TracebackType | None) -> Statement | None:
        found: Statement | None = None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._filename:
                about = self.module.lines[trace.tb_lineno - 1][1]
                found = about if about is not None else found
            trace = trace.tb_next
        return found


_MOST, _MOST_TEXTS = 256, 32
_NUMBERS = itertools.count(1)
_Indexes: TypeAlias = tuple[tuple[str, Positions], ...]


@dataclass(frozen=True, slots=True)
class WrittenModule:
    """The module of a program, over any stores of it.

    Parameters
    ----------
    constants
        What names in it stand for, whatever the stores are.
    methods
        Name → map and name of a method of its store.
    indexes
        Those that it needs.
    """

    module: GeneratedModule
    code: CodeType
    constants: Mapping[str, Any]
    methods: Mapping[str, tuple[str, str]]
    indexes: _Indexes

    def names_over(self, stores: Mapping[str, DictMap]) -> dict[str, Any]:
        """Return what names stand for over these stores, which receive the indexes that are needed."""
        for name, positions in self.indexes:
            stores[name].add_index(positions)
        return {**self.constants, **{name: getattr(stores[at], what) for name, (at, what) in self.methods.items()}}


_written: OrderedDict[tuple[str, _Indexes], WrittenModule] = OrderedDict()
"""The last ones, by the program and the indexes that there were.

Programs are compared by what `repr` tells: 1, 1.0 and TRUE are equal, and are not the same program.
"""


_texts: OrderedDict[int, tuple[Program, str]] = OrderedDict()
"""The last programs, by their identity, which nobody else has as long as they are here."""


def written_module(program: Program, functions: Mapping[str, Given], stores: Mapping[str, DictMap]) -> WrittenModule:
    """Return the module of a program: one that is there already, or a new one."""
    if functions:
        return _write(program, functions, stores)  # the same name may stand for another function
    key = _text(program), _indexes(stores)
    found = _written.pop(key, None) or _write(program, functions, stores)
    _written[key] = found
    while len(_written) > _MOST:
        _written.popitem(last=False)
    return found


def _text(program: Program) -> str:
    """Return what `repr` tells of a program; of the last programs it is remembered, by the object."""
    found = _texts.pop(id(program), None) or (program, repr(program))
    _texts[id(program)] = found
    while len(_texts) > _MOST_TEXTS:
        _texts.popitem(last=False)
    return found[1]


def _indexes(stores: Mapping[str, DictMap]) -> _Indexes:
    return tuple((name, positions) for name, store in stores.items() for positions in store.indexes)


def _write(program: Program, functions: Mapping[str, Given], stores: Mapping[str, DictMap]) -> WrittenModule:
    pool = NamePool(functions)
    module = ModuleCoder(program, stores, pool).write()
    of_stores = {
        name: (value.__self__.definition.name, value.__name__)
        for name, value in pool.names.items()
        if isinstance(value, MethodType) and isinstance(value.__self__, DictMap)
    }
    constants = {name: value for name, value in pool.names.items() if name not in of_stores}
    code = compile(module.source, f"<m3 program {next(_NUMBERS)}>", "exec")
    return WrittenModule(module, code, constants, of_stores, _indexes(stores))
