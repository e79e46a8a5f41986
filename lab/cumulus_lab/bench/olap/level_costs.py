"""What an event costs by the levels that a cube keeps, beside one map with all of them as GROUPING SETS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from statistics import median
from typing import Any

from cumulus_lab.bench.edges.turns import microseconds
from cumulus_lab.bench.olap.selections import TABLE, sales

_KEYS = ("y", "m", "region", "nation", "carrier")
_MEASURES = """COUNT(*) AS orders, SUM(price) AS revenue, AVG(weight) AS mean_weight, SUM(amount) AS amounts
FROM sales"""
_KEPT = (0, 1, 4, 16)


def rows(events: int, seed: int, repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each number of kept levels."""
    given = sales(events, seed)
    # The finer ones first: a pair of two columns is kept before a single one.
    levels = [level for size in (3, 2, 1, 0) for level in combinations(_KEYS, size)]
    found: list[dict[str, Any]] = []
    for count in _KEPT:
        kept = levels[:count]
        cube = _cost(_cube(kept), given, repetitions)
        sets = _cost(_sets(kept), given, repetitions)
        finest = cube if not found else found[0]["cube_us"]
        found.append(
            {
                "what": "kept levels",
                "levels": count,
                "cube_us": round(cube, 3),
                "sets_us": round(sets, 3),
                "a_level_us": round((cube - finest) / count, 3) if count else None,
                "ratio": round(sets / cube, 2),
            }
        )
    return found


def _cube(kept: Sequence[tuple[str, ...]]) -> str:
    keep = f"KEEP {_listed(kept)} " if kept else ""
    return f"CREATE CUBE v {keep}AS SELECT {', '.join(_KEYS)}, {_MEASURES} GROUP BY ALL"


def _sets(kept: Sequence[tuple[str, ...]]) -> str:
    sets = _listed((_KEYS, *kept))
    return f"CREATE VIEW v AS SELECT {', '.join(_KEYS)}, {_MEASURES} GROUP BY GROUPING SETS ({sets})"


def _listed(levels: Sequence[tuple[str, ...]]) -> str:
    return ", ".join(f"({', '.join(level)})" for level in levels)


def _cost(view: str, given: Any, repetitions: int) -> float:
    """Return the microseconds of CPU time that an event takes, its table being filled from nothing."""
    from cumulus import Warehouse

    script, times = TABLE + view, []
    for turn in range(repetitions + 1):
        warehouse = Warehouse(script, engine="native", keep="none")
        taken = microseconds(partial(warehouse.insert, "sales", given), given.num_rows)
        warehouse.close()
        if turn:
            times.append(taken)
    return median(times)
