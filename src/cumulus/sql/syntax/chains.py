"""Chains of AND and OR as trees that are not as deep as the chain is long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Link = TypeVar("Link")
SHORT = 16
"""Chains up to this length lean to the left, as they are written."""


def join_links(links: Sequence[Link], join: Callable[[Link, Link], Link]) -> Link:
    """Return the links of an associative operator, joined in order.

    Examples
    --------
    >>> join_links("abc", lambda a, b: f"({a}{b})")
    '((ab)c)'
    """
    if len(links) > SHORT:
        middle = len(links) // 2
        return join(join_links(links[:middle], join), join_links(links[middle:], join))
    joined = links[0]
    for link in links[1:]:
        joined = join(joined, link)
    return joined
