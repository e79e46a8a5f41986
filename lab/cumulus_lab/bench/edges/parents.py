"""What a change of a row costs that others refer to: none, 10 or very many, in both settings of the table."""

from __future__ import annotations

from functools import partial
from itertools import count

from cumulus.warehouse import Warehouse
from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds

_CHILDREN = {"no children": 0, "10 children": 10, "10,000 children": 10_000}
_REPETITIONS = 5


def rows(scale: float) -> list[tuple[str, float]]:
    """Return what a change of a parent costs: name → µs of CPU time, the median of some runs.

    Of a column that a view joins with the children ("seen"), and of another. With scale 1 that takes some seconds, and
    fewer than 10,000 children with less.
    """
    sizes = {name: round(children * scale) if children > 10 else children for name, children in _CHILDREN.items()}
    ways = {}
    for changes in ("rarely", "often"):
        wanted = [(what, *size) for what in ("seen", "unseen") for size in sizes.items()]
        warehouse = _opened(changes, [size for _, _, size in wanted])
        for key, (what, children, size) in enumerate(wanted):
            runs = 20 if size <= 10 or what == "unseen" else 1
            change = partial(_change, warehouse, key, what, count(1), runs)
            ways[f"{what} column, {children}, {changes}"] = partial(microseconds, change, runs)
    return measure_by_turns(ways, _REPETITIONS)


def _opened(changes: str, sizes: list[int]) -> Warehouse:
    warehouse = Warehouse(f"""
        CREATE TABLE parent (k INTEGER PRIMARY KEY, seen INTEGER NOT NULL, unseen INTEGER NOT NULL)
            WITH (changes = {changes});
        CREATE TABLE child (i INTEGER PRIMARY KEY, k INTEGER NOT NULL REFERENCES parent, x INTEGER NOT NULL);
        CREATE VIEW v AS SELECT seen, COUNT(*) AS n, SUM(x) AS s FROM parent JOIN child USING (k) GROUP BY seen
    """)
    warehouse.insert("parent", [(key, 0, 0) for key in range(len(sizes))])
    keys = (key for key, size in enumerate(sizes) for _ in range(size))
    warehouse.insert("child", [(number, key, number % 7) for number, key in enumerate(keys)])
    return warehouse


def _change(warehouse: Warehouse, key: int, what: str, numbers: count[int], runs: int) -> None:
    for number, _ in zip(numbers, range(runs), strict=False):
        row = (key, number, 0) if what == "seen" else (key, 0, number)
        warehouse.upsert("parent", [row])
