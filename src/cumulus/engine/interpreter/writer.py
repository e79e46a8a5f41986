"""Python source being written: indentation, fresh names, and lines that are filled in later."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RESERVED = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins)))


def identifier(name: str) -> str:
    """Return `name` as a Python identifier that does not begin with an underscore.

    Examples
    --------
    >>> identifier("o.price"), identifier("class"), identifier("1")
    ('o_price', 'class_', 'v1')
    """
    word = re.sub(r"\W", "_", name).strip("_") or "v"
    if word[0].isdigit():
        word = f"v{word}"
    return f"{word}_" if word in _RESERVED else word


def unused_name(name: str, taken: set[str]) -> str:
    """Return a name, with a number from 2 on behind it if it is taken; it is taken then."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


class Writer:
    """The body of one function, in a module where `taken` names mean something else."""

    def __init__(self, taken: set[str]) -> None:
        self.lines: list[tuple[int, str, Any]] = []
        self.depth = 1
        self.about: Any = None
        """What the lines written now belong to (a statement), for messages of errors."""
        self.site = -1
        """Where a failure in these lines is told to come from; see `cumulus.engine.failures.ErrorSites`."""
        self.row = ""
        """The row of the batch that is being looked at, as code; "" if there is none, or not just one."""
        self._taken = set(taken)
        self._last: defaultdict[str, int] = defaultdict(lambda: 1)
        """Hint → the number of the last name made of it: the largest programs ask thousands of times."""
        self._lazy: dict[Any, str] = {}

    def fresh(self, hint: str) -> str:
        """Return a name that nothing else has."""
        base = identifier(hint)
        name = base
        while name in self._taken:
            self._last[base] += 1
            name = f"{base}_{self._last[base]}"
        self._taken.add(name)
        return name

    def lazy(self, what: Any, hint: str) -> str:
        """Return the name of a variable that is None at first, the same for the same `what`."""
        if what not in self._lazy:
            self._lazy[what] = self.fresh(hint)
        return self._lazy[what]

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append((self.depth, text, self.about))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Write `header` and what is written inside one step deeper."""
        self.line(header)
        start = len(self.lines)
        self.depth += 1
        yield
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1

    def reserve(self) -> int:
        """Leave room for one line; `fill` writes it."""
        self.lines.append((self.depth, "", self.about))
        return len(self.lines) - 1

    def fill(self, place: int, text: str) -> None:
        """Write the line that was reserved."""
        depth, _, about = self.lines[place]
        self.lines[place] = (depth, text, about)

    def written(self) -> list[tuple[str, Any]]:
        """Return the lines with what they belong to."""
        heads: list[tuple[str, Any]] = [(f"    {name} = None", None) for name in self._lazy.values()]
        body = [("    " * depth + text, about) for depth, text, about in self.lines if text]
        return heads + (body or [("    pass", None)])
