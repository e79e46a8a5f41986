"""A program as machine code, loaded, with the memory that it works on."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cumulus.engine.native.calls import NUMBERS, OBJECTS, Converter, fired_word, is_converted, open_word, rows_word
from cumulus.engine.native.dictionary import Dictionary
from cumulus.engine.native.kernel import Signature
from cumulus.engine.native.layout import BOX, CALL, JOURNAL, JOURNAL_SIZE, LITERALS, MEMORY, REPORT, TEXTS
from cumulus.engine.native.machine import Loaded, huge_pages
from cumulus.engine.native.memory import ADVISE, BUDGET, RELEASE, UNLIMITED
from cumulus.engine.native.program import Plan
from cumulus.engine.native.stored import I64, PTR, StoredMap


class Image:
    """Machine code, and its context, maps and journal; their memory goes when the image does.

    Parameters
    ----------
    made, code
        The program: see `cumulus.engine.native.building`.
    dictionary
        Numbers of texts and intervals.
    call, report, box
        What code calls: see `cumulus.engine.native.layout`.
    """

    def __init__(
        self,
        made: Plan,
        code: Loaded,
        dictionary: Dictionary,
        call: Callable[[int, int], int],
        report: Callable[[int, int, int], int],
        box: Callable[[int, int, int, int], int],
    ) -> None:
        self.made = made
        self.code = code
        self._codes = [code]
        self._dictionary = dictionary
        buffer = ctypes.create_string_buffer(made.context.size + 8)
        self.at = (ctypes.addressof(buffer) + 7) // 8 * 8
        self.set(MEMORY + BUDGET, UNLIMITED)
        self.set(TEXTS, dictionary.texts)
        self.set(MEMORY + ADVISE, huge_pages())
        self._callbacks = (
            ctypes.CFUNCTYPE(I64, I64, PTR)(call),
            ctypes.CFUNCTYPE(I64, I64, I64, I64)(report),
            ctypes.CFUNCTYPE(I64, I64, I64, I64, I64)(box),
        )
        for offset, callback in zip((CALL, REPORT, BOX), self._callbacks, strict=True):
            self.set(offset, ctypes.cast(callback, PTR).value or 0)
        for (_, value), place in made.context.literals.items():
            self.set(LITERALS + 8 * place, dictionary[value])
        records = [
            (store.shape.free, store.shape.new, self.at + made.context.record(store))
            for store in made.context.stores.values()
        ]
        weakref.finalize(
            self, _free, self.code, buffer, self.at, [(free, at) for free, _, at in records]
        ).atexit = False
        for _, new, at in records:
            if not self.function(new)(self.at + MEMORY, at):
                raise MemoryError
        self.maps = {
            store.number: StoredMap(self.code, store, self.at + made.context.record(store), dictionary)
            for store in made.context.stores.values()
        }
        self._alive: list[Any] = []
        self._introduce(dictionary)

    def _introduce(self, dictionary: Dictionary) -> None:
        """Tell code the Python objects that it looks at; the context holds no reference to them."""
        for name, thing in OBJECTS.items():
            self.set_word(name, id(thing))
        self._alive.append({relation: number for number, relation in enumerate(self.made.events)})
        self.set_word(NUMBERS, id(self._alive[-1]))
        for relation, columns in self.made.events.items():
            self.set_word(open_word(relation), 1)
            for place, column in enumerate(columns):
                if is_converted(column.lane):
                    converter = Converter(column.lane, dictionary)
                    self._alive.append(converter)
                    self.set_word(("type", relation, place), id(converter.class_))
                    self.set_word(("memo", relation, place), id(converter.memo))
                    self.set_word(("word", relation, place), id(converter))

    def use(self, code: Loaded) -> None:
        """Go on with other code of the same plan; what runs the old one may end."""
        self.code = code
        self._codes.append(code)
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
        make = ctypes.PYFUNCTYPE if holding else ctypes.CFUNCTYPE
        found: Callable[..., Any] = make(result, *parameters)(self.code.address(name))
        return found

    # --- the context ------------------------------------------------------------------------------------------------

    def set(self, offset: int, value: int) -> None:
        """Set a word of the context."""
        I64.from_address(self.at + offset).value = value

    def get(self, offset: int) -> int:
        """Return a word of the context."""
        return int(I64.from_address(self.at + offset).value)

    def set_word(self, key: Any, value: int) -> None:
        """Set a word that code asked for, if it did."""
        if key in self.made.context.words:
            self.set(self.made.context.word(key), value)

    def get_word(self, key: Any) -> int:
        """Return a word that code asked for; 0 if it did not."""
        return self.get(self.made.context.word(key)) if key in self.made.context.words else 0

    def take_fired(self, relations: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return how many events of relations builtins have fired since the last call, and how many rows that adds."""
        found = {}
        for relation in relations:
            words = (fired_word(relation), rows_word(relation))
            fired, rows = map(self.get_word, words)
            if fired:
                found[relation] = (fired, rows)
                for word in words:
                    self.set_word(word, 0)
        return found


def _free(code: Loaded, buffer: Any, at: int, records: list[tuple[Signature, int]]) -> None:
    """Give back the memory of all maps and of the journal; the context lies in `buffer`."""
    for free, record in records:
        code.function(free.name, None, PTR)(record)
    journal = int(I64.from_address(at + JOURNAL).value)
    size = int(I64.from_address(at + JOURNAL_SIZE).value)
    code.function(RELEASE.name, None, PTR, PTR, I64)(at + MEMORY, journal, size)
    del buffer
