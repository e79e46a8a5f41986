"""What a session has done, counted: rows, events, transactions, and how many of them went through Python."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from cumulus.engine.protocol import Engine
from cumulus.errors import EngineWarning

_MUCH, _MANY_CALLS = 100_000, 1_000_000
"""From so many events that step, and calls of Python functions, on a warning is due."""


class Counters:
    """The counts of committed transactions; `static` tables are closed once another has had an event."""

    def __init__(self, tables: Collection[str], static: Collection[str]) -> None:
        self._static = static
        self.rows: dict[str, int] = dict.fromkeys(tables, 0)
        self.events = self.transactions = 0
        self.stepped = 0
        """Events that came one by one."""
        self.fired = 0
        """Those of them that code has fired all the same."""
        self.touched: set[str] = set()
        """Tables that have had events."""
        self.started_by = ""
        """The first table that is not static and had an event; static tables are closed since then."""
        self._has_warned = False

    def add(self, counts: Mapping[tuple[int, str], int], transactions: int) -> None:
        """Count committed events."""
        self.transactions += transactions
        for (sign, relation), count in counts.items():
            self.events += count
            self.rows[relation] += sign * count
            self.touched.add(relation)
            if not self.started_by and relation not in self._static:
                self.started_by = relation

    def continue_from(self, other: Counters) -> None:
        """Go on counting where another session is, of whose tables some may be gone."""
        self.events, self.transactions, self.stepped = other.events, other.transactions, other.stepped
        self.started_by, self.touched = other.started_by, set(other.touched)
        self.rows.update({name: count for name, count in other.rows.items() if name in self.rows})

    def warn_if_slow(self, engine: Engine) -> None:
        """Warn once if much waits for Python where machine code is expected."""
        if self._has_warned or engine.fast is None:
            return
        slow_count = self.stepped - self.fired
        if slow_count >= _MUCH and slow_count > self.events // 2:
            why = f"{slow_count:,} events went through Python one by one"
        elif engine.called_count >= _MANY_CALLS:
            why = f"machine code has called {', '.join(sorted(engine.python_functions))} in Python"
        else:
            return
        self._has_warned = True
        message = f"{why}, which is many times slower; see stats() and explain(). docs/engine.md says what is quick."
        warnings.warn(message, EngineWarning, stacklevel=2)

    def state(self) -> dict[str, Any]:
        """Return the counts as JSON values; `resume` takes them."""
        return {
            "events": self.events,
            "rows": self.rows,
            "started_by": self.started_by,
            "touched": sorted(self.touched),
            "transactions": self.transactions,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.events, self.transactions = state["events"], state["transactions"]
        self.started_by, self.touched = state["started_by"], set(state["touched"])
        self.rows.update(state["rows"])
