"""The last modules that were written: several engines of one program, such as those of nodes or of lives, share one."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, MethodType
from typing import Any, TypeAlias

from cumulus.engine.interpreter.module import GeneratedModule, ModuleCoder
from cumulus.engine.interpreter.store import DictMap, Positions
from cumulus.m3.program import Program
from cumulus.scalars.python_code import NamePool
from cumulus.scalars.user import Given

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
