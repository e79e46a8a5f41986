"""How much memory maps may take: what users say, what the machine has, when to warn and what to say.

A `Budget` belongs to an engine. It grants memory in steps, with a warning at each, and beyond the last step none.
"""

from __future__ import annotations

import os
import re
import warnings
from contextlib import suppress
from pathlib import Path

from cumulus.errors import MemoryLimitError, MemoryLimitWarning, UsageError

SHARE = 0.8
"""Of the machine's memory, where nobody says more."""
STEPS = (0.8, 0.9, 1.0)
"""Shares of a limit that are granted without a word, after the first warning, and at the most."""
_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb"))},
    **{unit: 1024**power for power, unit in enumerate(("b", "kib", "mib", "gib", "tib"))},
}
_LIMIT_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+|%)\s*", re.IGNORECASE)
_CGROUPS = ("memory.max", "memory/memory.limit_in_bytes")


class Budget:
    """How many bytes an engine may use; as many as there are if the limit is None.

    Examples
    --------
    >>> budget = Budget(1000)
    >>> budget.granted, budget.widen(700), budget.widen(1200)
    (800, False, False)
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._steps = [] if limit is None else [int(limit * share) for share in STEPS]
        self.granted: int | None = self._steps.pop(0) if self._steps else None
        """How many may be used before `widen` is asked."""

    def widen(self, wanted: int) -> bool:
        """Grant more, with a warning; False if so much is granted already, or more than the limit is wanted."""
        if self.limit is None or self.granted is None or not self.granted < wanted <= self.limit:
            return False
        while self.granted < wanted:
            self.granted = self._steps.pop(0)
        warnings.warn(
            f"the maps take {format_bytes(wanted)} of the {format_bytes(self.limit)} that memory_limit allows; "
            "beyond that, what makes them grow is refused. Delete rows, or open the warehouse with a greater limit",
            MemoryLimitWarning,
            stacklevel=2,
        )
        return True

    def refusal(self, what: str, used: int, wanted: int) -> MemoryLimitError:
        """Return the error that a map, given with its size, has no room: all maps would take more than they use."""
        if self.limit is None or wanted <= self.limit:
            return MemoryLimitError(
                f"{what} cannot grow: the machine gives no more memory; all maps take {format_bytes(used)}",
                hint="Delete rows, or go on where there is more memory: save the warehouse and load it there.",
            )
        return MemoryLimitError(
            f"{what} cannot grow: all maps take {format_bytes(used)}, and memory_limit is {format_bytes(self.limit)}",
            hint="Delete rows, make transactions smaller, or save the warehouse and load it with a greater "
            "memory_limit; stats().maps says what takes how much.",
        )


def format_bytes(count: int) -> str:
    """Return bytes in the unit that fits.

    Examples
    --------
    >>> format_bytes(999), format_bytes(1_000), format_bytes(4_250_000_000)
    ('999 B', '1.0 KB', '4.2 GB')
    """
    unit, power = next(
        (each for each in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1)) if abs(count) >= 1000 ** each[1]), ("B", 0)
    )
    return f"{count / 1000**power:.1f} {unit}" if power else f"{count} B"


def bytes_of(memory_limit: int | str | None) -> int | None:
    """Return a limit in bytes: a number, or a text as DuckDB takes it; None where there is no limit.

    Parameters
    ----------
    memory_limit
        None: `SHARE` of what the machine has.

    Raises
    ------
    UsageError
        If it is none of these.

    Examples
    --------
    >>> bytes_of("4GB"), bytes_of("1.5 MiB"), bytes_of(1 << 20), bytes_of("none")
    (4000000000, 1572864, 1048576, None)
    """
    if memory_limit is None:
        memory_limit = f"{SHARE:.0%}"
    if isinstance(memory_limit, int) and not isinstance(memory_limit, bool) and memory_limit > 0:
        return memory_limit
    if isinstance(memory_limit, str):
        if memory_limit.strip().lower() == "none":
            return None
        found = _LIMIT_TEXT.fullmatch(memory_limit)
        number, unit = (float(found[1]), found[2].lower()) if found else (0.0, "")
        if unit == "%" and number:
            there = machine_memory()
            return None if there is None else int(there * number / 100)
        if int(number * _UNITS.get(unit, 0)) > 0:
            return int(number * _UNITS[unit])
    raise UsageError(
        f"memory_limit={memory_limit!r}",
        hint="memory_limit is a number of bytes, or a text such as '4GB', '512MiB', '50%' or 'none'.",
    )


def machine_memory(cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how much memory this process may use: the machine's, or its container's; None if nobody says."""
    found: list[int] = []
    with suppress(AttributeError, ValueError, OSError):  # a system without sysconf, or without these names
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CGROUPS:
        try:
            found.append(int((cgroups / name).read_text()))
        except (OSError, ValueError):
            continue  # another version of cgroups, or "max"
    return min(found, default=None)
