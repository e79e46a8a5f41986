"""The native engine: an `Engine` whose triggers are machine code."""

from __future__ import annotations

from functools import partial

from cumulus.engine.analysis.initial_entries import initial_entries
from cumulus.engine.failures import Failures
from cumulus.engine.native.callbacks import TOO_LARGE
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.fast_path import NativeFastPath
from cumulus.engine.native.frame_exchange import NativeFrames
from cumulus.engine.native.kernel.lanes import NotNativeError
from cumulus.engine.native.kernel.loaded_code import Load
from cumulus.engine.native.maps import NativeMaps
from cumulus.engine.native.memory_grants import MemoryGrants
from cumulus.engine.native.transactions import Transactions
from cumulus.engine.protocol import Indexes
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, UserFunction, given_functions, runnable


class NativeEngine:
    """An `Engine` over machine code.

    Parameters
    ----------
    program
        One whose columns all have types.
    functions
        The user's scalar functions that it calls: a list of them, or by name.
    level
        How far the code is optimised: `cumulus.engine.native.kernel.loaded_code.LEVELS`. None: at once, and better once
        that pays.
    load
        What makes machine code of modules instead.
    indexes
        Maps and key columns that `find` will be asked for.

    Raises
    ------
    NotNativeError
        If a part of the program can only be interpreted.
    MissingFunctionError, ValidationError
        As the interpreter.
    """

    name = "native"

    def __init__(
        self,
        program: Program,
        functions: Functions | None = None,
        level: int | None = None,
        load: Load | None = None,
        *,
        indexes: Indexes = (),
    ) -> None:
        self.program = program
        given = runnable(program.functions, given_functions(functions))
        declared = {name: each for name, each in given.items() if isinstance(each, UserFunction)}
        if len(declared) < len(given):
            raise NotNativeError("a function without a signature")
        wanted: dict[str, list[tuple[int, ...]]] = {}
        for name, places in indexes:
            wanted.setdefault(name, []).append(places)
        failures = Failures(program)
        self._failures = failures
        self.code = CurrentCode(program, declared, wanted, level, load, failures)
        grants = MemoryGrants(self.code)
        self.transactions = transactions = Transactions(self.code, grants, failures)
        maps = NativeMaps(self.code, grants, transactions)
        self.fast = NativeFastPath(self.code, grants, transactions)
        # What is asked of the engine is asked of its parts, with no call between.
        self.limit = grants.limit
        self.begin, self.commit, self.rollback = transactions.begin, transactions.commit, transactions.rollback
        self.on_event, self.on_batch, self.touched = transactions.on_event, transactions.on_batch, transactions.touched
        self.raise_large_numbers = partial(failures.raise_instead, TOO_LARGE)
        self.watch, self.unwatch, self.take_errors = transactions.watch, transactions.unwatch, failures.take
        self.read, self.items, self.columns, self.find = maps.read, maps.items, maps.columns, maps.find
        self.along, self.end, self.in_order, self.add_index = maps.along, maps.end, maps.in_order, maps.add_index
        self.size, self.negative, self.memory, self.measure = maps.size, maps.negative, maps.memory, maps.measure
        self.extent = maps.extent
        self.load, self.stored, self.restore = maps.load, maps.stored, maps.restore
        self.stored_columns, self.restore_columns = maps.stored_columns, maps.restore_columns
        self.stored_count, self.stored_at, self.indexes = maps.stored_count, maps.stored_at, maps.indexes
        self.stored_slice, self.fold_columns = maps.stored_slice, maps.columns
        self.save_raw, self.take_raw, self.copied_columns = maps.save_raw, maps.take_raw, maps.copied_columns
        frames = NativeFrames(self.code, transactions)
        self.copy, self.take, self.take_all = frames.copy, frames.take, frames.take_all
        self.add, self.cut = frames.add, frames.cut
        for definition in program.maps:
            for key, values in initial_entries(definition):
                maps.put(definition.name, key, values)
        transactions.assign_first()

    @property
    def has_errors(self) -> bool:
        """Whether the open transaction has errors of views."""
        return self._failures.has_open

    @property
    def python_functions(self) -> frozenset[str]:
        """What machine code calls in Python."""
        return self.code.python_functions

    @property
    def called_count(self) -> int:
        """How often machine code has called a function in Python."""
        return self.code.image.callbacks.called_count

    def close(self) -> None:
        """Give back the memory of all maps; see `Engine.close`."""
        self.fast.close()
        self.code.close()
