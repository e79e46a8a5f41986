"""Names as SQL takes them: found in any case, shown as they were written.

As in DuckDB, only the letters A to Z have a case. Inside a program names are compared as they are; whoever takes one
from a user, or from data, finds it here first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from cumulus.errors import UnknownNameError

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
MOST_CHARACTERS = 255
"""A name has no more characters."""
NAME_RULE = (
    f"A name has 1 to {MOST_CHARACTERS} characters, none of them a control character, a line break or half a character."
)
_CONTROLS = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Categories of Unicode: characters that break lines of logs and addresses, or cannot be written in UTF-8."""


def folded(name: str) -> str:
    """Return what two names share if SQL takes them for one.

    Examples
    --------
    >>> folded("CustId"), folded("É")
    ('custid', 'É')
    """
    return name.lower() if name.isascii() else name.translate(_LOWER)


def name_fault(name: str) -> str:
    """Return why a name cannot be that of a table, view, cube or column; empty if it can.

    Examples
    --------
    >>> name_fault("../all shops"), name_fault(""), name_fault("a\\nb")
    ('', 'is empty', 'has the control character U+000A')
    """
    if not name:
        return "is empty"
    if len(name) > MOST_CHARACTERS:
        return f"has {len(name):,} characters"
    if name.isprintable():
        return ""
    found = next((each for each in name if unicodedata.category(each) in _CONTROLS), "")
    return f"has the control character U+{ord(found):04X}" if found else ""


def shown_name(name: str) -> str:
    """Return a name as an error shows it: short, and with escapes for what a line cannot have.

    Examples
    --------
    >>> shown_name("a" * 300)[-8:], shown_name("a\\nb")
    ("aaaaaa…'", "'a\\\\nb'")
    """
    return repr(name if len(name) <= 40 else f"{name[:40]}…")


def find_name(name: Any, known: Collection[str] | Mapping[str, Any]) -> str | None:
    """Return the one of `known` that SQL takes `name` for: itself, or else one that differs in case; None if none.

    Examples
    --------
    >>> find_name("ORDERS", {"Orders": 1}), find_name("order", {"Orders": 1}), find_name(None, ())
    ('Orders', None, None)
    """
    if not isinstance(name, str):
        return None
    plain = str(name)
    if plain in known:
        return plain
    wanted = folded(plain)
    return next((each for each in known if folded(each) == wanted), None)


class NameTable:
    """Known names, among which SQL finds others; for many look-ups, since each is one look into a dictionary.

    Examples
    --------
    >>> names = NameTable(["Orders", "log"])
    >>> names.find("ORDERS"), names.find("log"), names.find("l"), names.find(None)
    ('Orders', 'log', None, None)
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = dict.fromkeys(known)
        self._folded: dict[str, str] = {}
        for name in self._known:
            self._folded.setdefault(folded(name), name)

    def find(self, name: Any) -> str | None:
        """Return what `find_name` returns."""
        if not isinstance(name, str):
            return None
        plain = str(name)
        return plain if plain in self._known else self._folded.get(folded(plain))


def fresh_column(name: str, taken: Collection[str]) -> str:
    """Return a name for a column that is none of some others in any case.

    Examples
    --------
    >>> fresh_column("op", ["k", "OP"])
    'op_'
    """
    while find_name(name, taken):
        name += "_"
    return name


def known_name(name: Any, known: Collection[str] | Mapping[str, Any], kind: str) -> str:
    """Return the one of `known` that SQL takes `name` for; UnknownNameError, "there is no {kind} …", if none.

    Examples
    --------
    >>> known_name("ORDERS", ["Orders", "log"], "table")
    'Orders'
    """
    found = find_name(name, known)
    if found is None:
        shown = name if isinstance(name, str) else repr(name)
        things = f"{kind.partition(' of ')[0].title()}s"
        raise UnknownNameError(f"there is no {kind} {shown}", hint=f"{things}: {', '.join(known) or 'none'}.")
    return found


class Name(str):
    """A name in SQL: shown as it was written, equal to every other that SQL takes for the same.

    Only `cumulus.sql` has such names; what it hands on are plain texts.

    Examples
    --------
    >>> name = Name("CustId")
    >>> name == "custid", name in {Name("CUSTID"): 1}, f"{name}", str(name) == "custid"
    (True, True, 'CustId', False)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and folded(str(self)) == folded(str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(folded(str(self)))
