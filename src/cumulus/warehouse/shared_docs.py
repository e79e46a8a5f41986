"""One text for a public method and for the part that does its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def described_by(part: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that gives a method the docstring of the function that it hands over to, for `help`.

    Examples
    --------
    >>> @described_by(len)
    ... def size(items):
    ...     return len(items)
    >>> size.__doc__
    'Return the number of items in a container.'
    """

    def described(method: F) -> F:
        method.__doc__ = part.__doc__
        return method

    return described
