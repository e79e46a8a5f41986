"""Which examples and cases of a test belong to which tier: a share of them to `make test`, all to `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

WHOLE = os.environ.get("CUMULUS_TESTS") == "all"
"""Whether this is `make test-all`."""


def examples(whole: int) -> int:
    """Return how many examples Hypothesis makes of a law: `whole`, or in the fast tier an eighth, at least three.

    Examples
    --------
    >>> examples(320) in (40, 320)
    True
    """
    return whole if WHOLE else max(3, whole // 8)


def sampled(cases: Iterable[Any], of: int, first: int = 0) -> list[Any]:
    """Return parameters of which one in `of`, from `first` on, is of the fast tier and the others are slow.

    Examples
    --------
    >>> [len(each.marks) for each in sampled("abcde", of=2)]
    [0, 1, 0, 1, 0]
    """
    return [_param(case, place % of == first % of) for place, case in enumerate(cases)]


def one_mode_each(cases: Iterable[Any], modes: tuple[str, ...], of: int = 1) -> list[Any]:
    """Return all pairs of cases and modes: in the fast tier each case is run in one mode, and all modes come in turn.

    Of `of` cases in a row the fast tier has the first.

    Examples
    --------
    >>> [(*each.values, len(each.marks)) for each in one_mode_each("ab", ("x", "y"))]
    [('a', 'x', 0), ('a', 'y', 1), ('b', 'x', 1), ('b', 'y', 0)]
    """
    return [
        _param((case, mode), place % of == 0 and place // of % len(modes) == turn)
        for place, case in enumerate(cases)
        for turn, mode in enumerate(modes)
    ]


def _param(case: Any, is_fast: bool) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if is_fast else pytest.mark.slow, id=_name(values))


def _name(values: tuple[Any, ...]) -> str | None:
    """Return the name of a case, None where pytest makes a better one."""
    if all(isinstance(each, (str, int)) or hasattr(each, "stem") for each in values):
        return "-".join(getattr(each, "stem", str(each)) for each in values)
    return None
