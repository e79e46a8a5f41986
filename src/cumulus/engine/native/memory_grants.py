"""How much memory maps and texts may take: what a budget grants, shared out between them."""

from __future__ import annotations

from cumulus.engine.limits import Budget, format_bytes
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.kernel.memory import BUDGET, REFUSED, UNLIMITED, USED
from cumulus.engine.native.store.maps import MOST_ROWS
from cumulus.engine.native.store.memory_layout import MEMORY
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.errors import MemoryLimitError


class MemoryGrants:
    """What machine code, and the dictionary of texts, may allocate."""

    def __init__(self, code: CurrentCode) -> None:
        self._code = code
        self._dictionary = code.dictionary
        self._dictionary.widen = self.widen
        self._budget = Budget()
        self._is_limited = False
        """Whether code was told a limit."""

    @property
    def used(self) -> int:
        """How many bytes the maps take, with what a transaction needs, texts and boxes."""
        return self._code.image.words.get(MEMORY + USED) + self._dictionary.bytes

    def limit(self, budget: Budget) -> None:
        """Refuse events that would make the maps take more; see `Engine.limit`."""
        self._budget = budget
        self.grant()

    def grant(self) -> None:
        """Tell code how many bytes maps may take, and texts: what is granted, less what the others have."""
        granted, words = self._budget.granted, self._code.image.words
        if granted is None and not self._is_limited:
            return
        self._is_limited = granted is not None
        words.set(MEMORY + BUDGET, UNLIMITED if granted is None else granted - self._dictionary.bytes)
        self._dictionary.grant(None if granted is None else granted - words.get(MEMORY + USED))

    def begin_anew(self) -> None:
        """Forget what was refused, and grant what may be."""
        self._code.image.words.set(MEMORY + REFUSED, 0)
        self._dictionary.reset_refusals()
        self.grant()

    def widen(self) -> bool:
        """Grant more where something was refused; False if that may not be, or if it was not the budget."""
        done = self._budget.widen(self._wanted())
        self.grant()
        return done

    def widen_for(self, store: StoredMap | None) -> None:
        """Grant more to a map that was refused memory, or to the journal.

        Raises
        ------
        MemoryLimitError
            If that may not be.
        """
        problem = self.refusal(store)
        if not self.widen():
            raise problem

    def _wanted(self) -> int:
        """Return how many bytes everything would take with what was refused."""
        words, texts = self._code.image.words, self._dictionary
        return max(words.get(MEMORY + REFUSED) + texts.bytes, texts.refused + words.get(MEMORY + USED))

    def refusal(self, store: StoredMap | None) -> MemoryLimitError:
        """Return the error that a map, or the journal, was refused memory."""
        if store is not None and store.last >= MOST_ROWS:
            return MemoryLimitError(
                f"map {store.store.name} has {store.last:,} rows, and no map of the native engine has more",
                hint="Group by less, or open the warehouse with engine='interpreter'.",
            )
        if self._dictionary.refused:
            what = f"the table of texts ({len(self._dictionary.values_of):,}, {format_bytes(self._dictionary.bytes)})"
        elif store is None:
            what = "the journal of the transaction"
        elif store.store.is_scratch:
            what = "what a trigger computes for a moment"
        else:
            what = f"map {store.store.name} ({store.live:,} rows, {format_bytes(store.view.bytes)})"
        return self._budget.refusal(what, self.used, self._wanted())
