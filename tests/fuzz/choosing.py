"""Weighted choices of the generator, bent towards the constructs that a view is to show."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

BOOST = 14.0
"""How much more likely a wanted construct is."""

# What a construct needs around it.
NEEDS = {
    "GROUPING()": ("CUBE", "ROLLUP", "GROUPING SETS"),
    "CUBE": ("grouped",), "ROLLUP": ("grouped",), "GROUPING SETS": ("grouped",), "GROUP BY ALL": ("grouped",),
    "GROUP BY column": ("grouped",), "GROUP BY expression": ("grouped",), "GROUP BY alias": ("grouped",),
    "GROUP BY position": ("grouped",), "HAVING": ("grouped",), "FILTER": ("grouped", "one group"),
    "sub-query in HAVING": ("HAVING",), "sub-query in a sub-query": ("EXISTS", "IN (SELECT)", "scalar sub-query"),
    "sub-query in SELECT": ("scalar sub-query",), "correlated": ("EXISTS", "scalar sub-query"),
    "CTE used twice": ("CTE",), "LIMIT": ("ORDER BY",), "SELECT DISTINCT": ("plain SELECT",),
    **dict.fromkeys(
        ("SUM", "COUNT(*)", "COUNT", "AVG", "MIN", "MAX", "COUNT(DISTINCT)", "SUM(DISTINCT)", "AVG(DISTINCT)",
         "STDDEV_SAMP", "STDDEV_POP", "VAR_SAMP", "VAR_POP", "BOOL_AND", "BOOL_OR", "COUNT_IF"),
        ("grouped", "one group"),
    ),
}  # fmt: skip


class Chooser:
    """A source of choices.

    Parameters
    ----------
    draw
        Where randomness comes from.
    without
        Constructs that must not be used.
    """

    def __init__(self, draw: random.Random, without: frozenset[str] = frozenset()) -> None:
        self.draw = draw
        self.without = without
        self.wanted: frozenset[str] = frozenset()

    def want(self, constructs: Sequence[str]) -> None:
        """Make some constructs likely, and what they need around them."""
        wanted: list[str] = []
        rest = list(constructs)
        while rest:
            each = rest.pop()
            if each in wanted:
                continue
            wanted.append(each)
            needs = NEEDS.get(each)
            if needs and not set(needs) & set(wanted):
                rest.append(self.one(needs))
        self.wanted = frozenset(wanted)

    def chance(self, share: float, *constructs: str) -> bool:
        """Whether something happens that is to happen with a probability, and more often if it is wanted."""
        if not self.without.isdisjoint(constructs):
            return False
        if not self.wanted.isdisjoint(constructs):
            share = max(share, 0.7)
        return self.draw.random() < share

    def pick(self, weights: Mapping[str, float]) -> str:
        """Choose among constructs by weight; those wanted weigh more."""
        names = [name for name, weight in weights.items() if weight and name not in self.without]
        return self.draw.choices(names, [weights[name] * (BOOST if name in self.wanted else 1.0) for name in names])[0]

    def one(self, choices: Sequence[T]) -> T:
        """Choose evenly."""
        return self.draw.choice(choices)
