"""What `advise` is worth: a log of selections, and the cost of an event, without and with the levels that it names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cumulus_lab.bench.agreement import compare
from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds
from cumulus_lab.bench.olap.selections import TABLE, sales

if TYPE_CHECKING:
    from cumulus import Selection, Warehouse

_AXES = (("y", "m"), ("region", "nation", "city"), ("carrier",))
_BOUND = ("y", "m", "region", "nation", "carrier")
_BOUND_SHARE = 0.25
_SHAPES = 20
_MOST_ROWS = 2500
"""More are no answer that somebody looks at."""
_BUDGET_US = 1.0


def rows(entries: int, selections: int, seed: int, repetitions: int) -> list[dict[str, Any]]:
    """Return the row of a cube with about so many entries, and a log of so many selections."""
    from cumulus import Cube

    given = sales(entries, seed)
    log = drawn_log(given, selections, seed)
    advice = Cube(_filled(_sql(""), given), "cube").advise(log, budget_us=_BUDGET_US)
    scripts = {"before": _sql(""), "after": _sql(advice.keep)}
    asked: dict[str, list[Selection]] = {}
    filled = {name: _filled(script, given) for name, script in scripts.items()}
    for name, warehouse in filled.items():
        asked[name] = [Cube.from_json(warehouse, each) for each in log]
    for before, after in dict(zip(log, zip(asked["before"], asked["after"], strict=True), strict=True)).values():
        compare(before.arrow(), after.arrow(), before.to_json())
    took = dict(
        measure_by_turns({name: partial(_asking_us, each) for name, each in asked.items()}, max(1, repetitions // 2))
    )
    read = {name: sum(each.explain().entries_read for each in asked[name]) / selections for name in asked}
    cost = dict(measure_by_turns({name: partial(_event_us, each, given) for name, each in filled.items()}, repetitions))
    return [
        {
            "what": "advised levels",
            "selections": selections,
            "read_before": round(read["before"]),
            "read_after": round(read["after"]),
            "before_ms": round(took["before"] / 1000, 1),
            "after_ms": round(took["after"] / 1000, 1),
            "times": round(took["before"] / took["after"], 2),
            "before_us": round(cost["before"], 3),
            "after_us": round(cost["after"], 3),
            "more_us": round(cost["after"] - cost["before"], 3),
            "foretold_us": round(advice.cost_us, 3),
            "keep": advice.keep,
        }
    ]


def drawn_log(given: pa.Table, selections: int, seed: int) -> list[str]:
    """Return selections as JSON: of few shapes, some of them asked often, each with values of its own."""
    draw = np.random.default_rng(seed)
    shapes: list[tuple[list[str], list[str]]] = []
    while len(shapes) < _SHAPES:
        by = [int(draw.integers(0, len(axis) + 1)) for axis in _AXES]
        shown = [column for axis, depth in zip(_AXES, by, strict=True) for column in axis[:depth]]
        if given.group_by(shown).aggregate([]).num_rows <= _MOST_ROWS:
            bound = [name for name in _BOUND if draw.random() < _BOUND_SHARE]
            shapes.append(([axis[depth - 1] for axis, depth in zip(_AXES, by, strict=True) if depth], bound))
    weights = 1 / np.arange(1, _SHAPES + 1)
    found = []
    for number in draw.choice(_SHAPES, selections, p=weights / weights.sum()):
        levels, bound = shapes[number]
        row = given.slice(int(draw.integers(0, given.num_rows)), 1).to_pylist()[0]
        where = [{"level": name, "in": [row[name]]} for name in bound]
        found.append(json.dumps({"cube": "cube", "by": levels, "where": where}))
    return found


def _sql(keep: str) -> str:
    return f"""{TABLE}
        CREATE CUBE cube DIMENSION date (y, m) DIMENSION place (region, nation, city) DIMENSION carrier {keep}
        AS SELECT y, m, region, nation, city, carrier, COUNT(*) AS orders, SUM(price) AS revenue,
                  AVG(weight) AS mean_weight, SUM(amount) AS amounts FROM sales GROUP BY ALL"""


def _filled(script: str, given: pa.Table) -> Warehouse:
    from cumulus import Warehouse

    warehouse = Warehouse(script, engine="native", keep="none")
    warehouse.insert("sales", given)
    return warehouse


def _asking_us(asked: Sequence[Selection]) -> float:
    def ask() -> None:
        for each in asked:
            each.arrow()

    return microseconds(ask)


def _event_us(warehouse: Warehouse, given: pa.Table) -> float:
    """Return the microseconds of CPU time that an event takes whose group is there."""
    return microseconds(partial(warehouse.insert, "sales", given), given.num_rows)
