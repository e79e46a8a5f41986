"""The generated module of a program, compiled: its functions, and which statement one of its lines belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from cumulus.catalog.events import Row
from cumulus.engine.failures import Failures
from cumulus.engine.interpreter.error_guards import FAILED
from cumulus.engine.interpreter.loop_sources import ahead_name
from cumulus.engine.interpreter.store import DictMap
from cumulus.engine.interpreter.written_modules import written_module
from cumulus.errors import EvaluationError
from cumulus.m3.dataflow import maps_of_view
from cumulus.m3.program import On, Program, Statement
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
