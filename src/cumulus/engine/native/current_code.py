"""The code in use, and the only place that replaces it: by code that keeps other indexes, or by better code.

Whoever works with the image asks `CurrentCode` for it each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cumulus.engine.failures import Failures
from cumulus.engine.native.build import program_code, shared_code
from cumulus.engine.native.code.undo_log import TOUCHED, UNDO
from cumulus.engine.native.image import Image
from cumulus.engine.native.intake.key_checks import SETTLED
from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.kernel.loaded_code import LEVELS, Load, Loaded
from cumulus.engine.native.scalars.python_functions import called_names
from cumulus.engine.native.store.memory_layout import event_words
from cumulus.engine.native.tiering import Tier
from cumulus.engine.native.transaction_notes import Notes
from cumulus.engine.native.values.codec import encoder
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR, StoredMap
from cumulus.errors import MemoryLimitError, UnknownNameError
from cumulus.interrupts import Deferring
from cumulus.m3.program import On, Program
from cumulus.scalars.user import UserFunction


class EntryPoints:
    """The functions of an image that its engine calls."""

    def __init__(self, image: Image) -> None:
        plan = image.plan
        self.triggers: dict[tuple[On, str], Callable[..., int]] = {}
        for (on, relation), name in plan.triggers.items():
            count = 0 if on is On.BATCH else event_words(plan.events[relation])
            self.triggers[on, relation] = image.named(name, I64, [PTR, *[I64] * count])
        self.fill: dict[str, Callable[..., None]] = {
            relation: image.named(
                name, None, [PTR, *[I64] * sum(each.lane.words for each in plan.events[relation]), I64]
            )
            for relation, (name, _) in plan.batches.items()
        }
        self.undo: Callable[[int, int], int] = image.named(UNDO, I64, [PTR, I64])
        self.mark_touched = image.named(TOUCHED, None, [PTR, PTR])
        self.settled = image.named(SETTLED, I64, [PTR])
        self.assigns = {target: image.named(name, None, [PTR]) for target, name in plan.assigns.items()}
        self.notes = Notes(image)


class CurrentCode:
    """The code in use, with its memory.

    Parameters
    ----------
    indexes
        Map → key columns that it is looked up by.
    level, load
        As for `cumulus.engine.native.engine.NativeEngine`.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, UserFunction],
        indexes: Mapping[str, Sequence[tuple[int, ...]]],
        level: int | None,
        load: Load | None,
        failures: Failures,
    ) -> None:
        self.program = program
        self._functions, self._level, self._load = functions, level, load
        self._failures = failures
        self._users: list[Callable[[Image], None]] = []
        self.fired = 0
        """Events since `go_on`."""
        plan, code = program_code(program, functions, indexes, level or 0, load)
        self.dictionary = Dictionary(code)
        self._install(Image(plan, code, self.dictionary, functions, failures), indexes)

    def _install(self, image: Image, indexes: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
        """Make an image the one in use."""
        self.image, self._indexes = image, indexes
        is_tiered = self._level is None and self._load is None
        self._tier = Tier(self.program, self._functions, indexes) if is_tiered else None
        plan = image.plan
        self._failures.locate(plan.places)
        self.maps = {definition.name: image.maps[number] for number, definition in enumerate(self.program.maps)}
        self.python_functions = called_names(plan.python_functions)
        self.encoders = {
            name: [encoder(each.lane, self.dictionary) for each in columns] for name, columns in plan.events.items()
        }
        """Relation → what turns the values of a row into words."""
        self._bind()

    def _bind(self) -> None:
        """Take the functions of the image's code."""
        self.entry_points = EntryPoints(self.image)
        for use in self._users:
            use(self.image)

    def add_user(self, use: Callable[[Image], None]) -> None:
        """Have something called with the image, now and whenever it, or its code, is another one."""
        self._users.append(use)
        use(self.image)

    def store(self, name: str) -> StoredMap:
        """Return a map; UnknownNameError if there is none of the name."""
        try:
            return self.maps[name]
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint=f"Maps: {', '.join(self.maps)}.") from None

    def go_on(self) -> None:
        """Go on with better code once there is some; no transaction is open."""
        better = None if self._tier is None or not self.fired else self._tier.after(self.fired)
        self.fired = 0
        if better is not None and better[0] == self.image.plan:
            self.image.use(better[1])
            self._bind()

    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Go on with code that keeps another index, and with the rows there are.

        Raises
        ------
        MemoryLimitError
            If the new index does not fit; the old code stays.
        """
        wanted = {**self._indexes, map: [*self._indexes.get(map, ()), positions]}
        with Deferring():
            plan, code = program_code(self.program, self._functions, wanted, self._level or 0, self._load)
            image = Image(plan, code, self.dictionary, self._functions, self._failures)
            image.callbacks.called_count = self.image.callbacks.called_count
            for number, store in image.maps.items():
                if not store.store.is_scratch and not store.take_rows(self.image.maps[number]):
                    raise MemoryLimitError(f"an index of map {map} does not fit into memory", hint="Delete rows.")
            self._install(image, wanted)

    def load_extra(self, names: Sequence[str], write: Callable[[], Sequence[Module]]) -> Loaded:
        """Load additional modules that work on the same memory, optimised. `names` identify them in the cache."""
        return shared_code(names, write, LEVELS[-1]) if self._load is None else self._load(write())

    def close(self) -> None:
        """Give back the memory of all maps."""
        self.image.close()
        self.dictionary.close()
