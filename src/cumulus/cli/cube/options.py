"""From the options of a command to a selection."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus import Cube
    from cumulus.olap import Selection

_WHERE = re.compile(r"(?P<level>[^=~]+?)\s*(?P<sign>[=~])(?P<value>.*)", re.DOTALL)
_HAVING = re.compile(r"(?P<measure>.+?)\s*(?P<sign><=|>=|<>|!=|=|<|>)\s*(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class SelectionOptions:
    """What `cumulus cube query` and `.cube` take; names are separated by commas."""

    by: str = ""
    measures: str = ""
    where: Sequence[str] = ()
    pivot: str = ""
    totals: str = ""
    having: Sequence[str] = ()
    order: str = ""
    top: str = ""
    others: bool = False
    limit: int | None = None
    at: int | None = None

    def selection(self, cube: Cube) -> Selection:
        """Return the selection that they say.

        Raises
        ------
        UsageError
            For names that are not there, or what is no condition.
        """
        made = cube.rollup(*_names(self.by), measures=_names(self.measures) or None)
        for text in self.where:
            made = made.dice(**dict([_condition(text)]))
        made = made.pivot(*_names(self.pivot))
        if self.totals:
            made = made.totals(*([] if self.totals == "all" else _names(self.totals)))
        for text in self.having:
            found = _HAVING.fullmatch(text)
            if found is None:
                raise UsageError(f"--having {text}", hint='Write MEASURE>NUMBER, such as "revenue>1000".')
            made = made.having(found["measure"], found["sign"], _one(found["value"].strip()))
        made = made.order_by(*_names(self.order))
        if self.top:
            count, _, rest = self.top.partition(":")
            by, _, per = rest.partition(":")
            if not count.isdigit() or not by:
                raise UsageError(
                    f"--top {self.top}", hint="Write COUNT:MEASURE, or COUNT:MEASURE:LEVEL,… for each of some levels."
                )
            made = made.top(int(count), by, _names(per), self.others)
        return made.limit(self.limit).reading(at=self.at)


def options_in(words: Sequence[str]) -> SelectionOptions:
    """Return the options that words say, such as ``--by date.y --where region=ASIA``.

    Raises
    ------
    UsageError
        For a word that is none.

    Examples
    --------
    >>> options_in(["--by", "y,m", "--limit=3"]).by
    'y,m'
    """
    found: dict[str, Any] = {}
    rest = list(words)
    known = SelectionOptions.__dataclass_fields__
    while rest:
        name, sign, value = rest.pop(0).partition("=")
        option = name.removeprefix("--")
        if not name.startswith("--") or option not in known:
            raise UsageError(f"{name} is no option", hint=f"There are {', '.join(f'--{each}' for each in known)}.")
        if option == "others":
            found[option] = True
            continue
        if not sign:
            if not rest:
                raise UsageError(f"{name} needs a value", hint=f"Write {name} VALUE.")
            value = rest.pop(0)
        if option in ("where", "having"):
            found.setdefault(option, []).append(value)
        elif option in ("limit", "at"):
            if not value.isdigit():
                raise UsageError(f"{name} {value}", hint="Give a number.")
            found[option] = int(value)
        else:
            found[option] = value
    return SelectionOptions(**found)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _condition(text: str) -> tuple[str, Any]:
    """Return a level and what it is to be: ``y=1994``, ``y=1994,1995``, ``y=1990..1994``, ``nation~A%``."""
    from cumulus import between, like

    found = _WHERE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--where {text}",
            hint="Write LEVEL=VALUE, LEVEL=VALUE,VALUE, LEVEL=LOW..HIGH, LEVEL~PATTERN; NULL is NULL; or a JSON list.",
        )
    level, value = found["level"].strip().rpartition(".")[2], found["value"].strip()
    if found["sign"] == "~":
        return level, like(value)
    if value.startswith("["):
        try:
            return level, json.loads(value)
        except ValueError as problem:
            raise UsageError(f"--where {text}: {problem}", hint='Such as region=["A, B", null].') from None
    low, dots, high = value.partition("..")
    if dots:
        return level, between(low or None, high or None)
    return level, [_one(each.strip()) for each in value.split(",")]


def _one(text: str) -> str | None:
    return None if text == "NULL" else text
