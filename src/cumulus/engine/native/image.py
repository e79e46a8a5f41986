"""A program as machine code, loaded, with the memory that it works on."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cumulus.engine.failures import Failures
from cumulus.engine.native.callbacks import Callbacks, ContextWords
from cumulus.engine.native.intake.python_rows import NUMBERS, open_word
from cumulus.engine.native.intake.python_values import OBJECTS, Converter, is_converted
from cumulus.engine.native.kernel.language import Signature
from cumulus.engine.native.kernel.loaded_code import Loaded, system_functions
from cumulus.engine.native.kernel.memory import BUDGET, SYSTEM, UNLIMITED, grow_block, release_block
from cumulus.engine.native.program import CodePlan
from cumulus.engine.native.store.hash_tables import MemoryBlock
from cumulus.engine.native.store.memory_layout import BOX, CALL, JOURNAL, JOURNAL_SIZE, LITERALS, MEMORY, REPORT, TEXTS
from cumulus.engine.native.store.row_layout import MEMORY as MAP_MEMORY
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR, StoredMap
from cumulus.scalars.user import UserFunction


class Image:
    """Machine code, and its context, maps and journal; their memory goes when the image does."""

    def __init__(
        self,
        plan: CodePlan,
        code: Loaded,
        dictionary: Dictionary,
        functions: Mapping[str, UserFunction],
        failures: Failures,
    ) -> None:
        self.plan = plan
        self.code = code
        self._codes = [code]
        self._named: dict[str, Callable[..., Any]] = {}
        self._dictionary = dictionary
        self.words = ContextWords(plan.context)
        self.at = self.words.at
        self.words.set(MEMORY + BUDGET, UNLIMITED)
        self.words.set(TEXTS, dictionary.texts)
        self.words.set(MEMORY + SYSTEM, system_functions())
        self.callbacks = Callbacks(self.words, plan, functions, dictionary, failures)
        self._called = (
            ctypes.CFUNCTYPE(I64, I64, PTR)(self.callbacks.call),
            ctypes.CFUNCTYPE(I64, I64, I64, I64)(self.callbacks.report),
            ctypes.CFUNCTYPE(I64, I64, I64, I64, I64)(self.callbacks.box),
        )
        for offset, called in zip((CALL, REPORT, BOX), self._called, strict=True):
            self.words.set(offset, ctypes.cast(called, PTR).value or 0)
        self._set_literals()
        records = [
            (store.shape.free, store.shape.new, self.at + plan.context.record(store))
            for store in plan.context.stores.values()
        ]
        freed = [(free, at) for free, _, at in records]
        self._free = weakref.finalize(self, _free, code, self.words.buffer, self.at, freed)
        self._free.atexit = False
        for _, new, at in records:
            if not self.function(new)(self.at + MEMORY, at):
                raise MemoryError
        self.maps = {
            store.number: StoredMap(code, store, self.at + plan.context.record(store), dictionary)
            for store in plan.context.stores.values()
        }
        self._alive: list[Any] = []
        self._introduce(dictionary)

    def _introduce(self, dictionary: Dictionary) -> None:
        """Tell code the Python objects that it looks at; the context holds no reference to them."""
        for name, thing in OBJECTS.items():
            self.words.set_word(name, id(thing))
        self._alive.append({relation: number for number, relation in enumerate(self.plan.events)})
        self.words.set_word(NUMBERS, id(self._alive[-1]))
        for relation, columns in self.plan.events.items():
            self.words.set_word(open_word(relation), 1)
            for place, column in enumerate(columns):
                if is_converted(column.lane):
                    for part in range(column.lane.words):
                        converter = Converter(column.lane, dictionary, part)
                        self._alive.append(converter)
                        self.words.set_word(("word", relation, place, part), id(converter))
                        for number, (type_, memo) in enumerate(converter.memos.items()):
                            self.words.set_word(("type", relation, place, part, number), id(type_))
                            self.words.set_word(("memo", relation, place, part, number), id(memo))

    def _set_literals(self) -> None:
        for (_, value), place in self.plan.context.literals.items():
            self.words.set(LITERALS + 8 * place, self._dictionary[value])

    def forget_numbers(self) -> None:
        """Let nobody use numbers that the dictionary has given before it was replaced; maps are not looked at."""
        self._set_literals()
        for each in self._alive:
            if isinstance(each, Converter):
                each.forget()
        for store in self.maps.values():
            if store.store.is_scratch:
                store.clear()

    def lift_limits(self) -> None:
        """Let maps take what memory there is, until somebody says how much they may."""
        self.words.set(MEMORY + BUDGET, UNLIMITED)

    def take_blocks(self, number: int, record: Sequence[int], blocks: Sequence[tuple[MemoryBlock, Any]]) -> bool:
        """Replace what a map consists of: its record, but for the addresses, and its blocks. False without memory."""
        store = self.maps[number].store
        memory, at = self.at + MEMORY, self.at + self.plan.context.record(store)
        grow = self.code.function(grow_block.name, PTR, PTR, PTR, I64, I64)
        taken: list[tuple[MemoryBlock, int]] = []
        for block, data in blocks:
            address = grow(memory, None, 0, block.size)
            if not address:
                release = self.code.function(release_block.name, None, PTR, PTR, I64)
                for each, place in taken:
                    release(memory, place, each.size)
                return False
            ctypes.memmove(address, np.frombuffer(data, dtype=np.uint8).ctypes.data, block.used)
            taken.append((block, address))
        self.function(store.shape.free)(at)
        for offset, word in zip(range(0, store.shape.record_size, 8), record, strict=True):
            I64.from_address(at + offset).value = word
        for place, address in ((MAP_MEMORY, memory), *((block.place, address) for block, address in taken)):
            I64.from_address(at + place).value = address
        return True

    def close(self) -> None:
        """Give back the memory of the maps; nobody uses them any more."""
        self._free()

    def use(self, code: Loaded) -> None:
        """Go on with other code of the same plan; what runs the old one may end."""
        self.code = code
        self._codes.append(code)
        self._named.clear()
        self._dictionary.use(code)
        for each in self.maps.values():
            each.use(code)

    # --- functions --------------------------------------------------------------------------------------------------

    def function(self, signature: Signature) -> Callable[..., Any]:
        """Return a function of a shape or of the base, as Python calls it."""
        types: dict[Any, Any] = {"ptr": PTR, "i64": I64, None: None}
        return self.named(signature.name, types[signature.result], [types[each] for each in signature.parameters])

    def named(self, name: str, result: Any, parameters: Sequence[Any], *, holding: bool = False) -> Callable[..., Any]:
        """Return a function of the program as Python calls it; `holding` the interpreter's lock, if it uses objects."""
        found = self._named.get(name)
        if found is None:
            make = ctypes.PYFUNCTYPE if holding else ctypes.CFUNCTYPE
            found = self._named[name] = make(result, *parameters)(self.code.address(name))
        return found

    def free_journal(self) -> None:
        """Give back the memory of the journal, which must be empty."""
        size = self.words.get(JOURNAL_SIZE)
        self.code.function(release_block.name, None, PTR, PTR, I64)(self.at + MEMORY, self.words.get(JOURNAL), size)
        for offset in (JOURNAL, JOURNAL_SIZE):
            self.words.set(offset, 0)


def _free(code: Loaded, buffer: Any, at: int, records: list[tuple[Signature, int]]) -> None:
    """Give back the memory of all maps and of the journal; the context lies in `buffer`."""
    for free, record in records:
        code.function(free.name, None, PTR)(record)
    journal = int(I64.from_address(at + JOURNAL).value)
    size = int(I64.from_address(at + JOURNAL_SIZE).value)
    code.function(release_block.name, None, PTR, PTR, I64)(at + MEMORY, journal, size)
    del buffer
