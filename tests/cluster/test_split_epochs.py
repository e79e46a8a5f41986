"""Clusters whose tables are split say of every epoch what the embedded host says, also once they are split anew."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.resizing import open_home
from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from cumulus_lab.experiments.equal_outputs import difference
from support import orders_stream, star_stream
from support.cluster_world import run_cluster
from support.orders_stream import json_lines
from support.same_as_embedded import Compared
from support.tiers import sampled

WAYS = (
    ((2, 2), Mode.EVENTUAL),
    ((3, 3), Mode.EVENTUAL),
    ((3, 2), Mode.FOUR_LOGS),
    ((3, 2), Mode.TICKS),
    ((3, 2), Mode.GATED),
    ((1, 3), Mode.GATED),
)
SHOP = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation VARCHAR NOT NULL, boss INT);
CREATE TABLE orders (oid INT, part INT, cid INT, PRIMARY KEY (oid, part));
CREATE TABLE items (oid INT, part INT, price INT, FOREIGN KEY (oid, part) REFERENCES orders (oid, part))
  WITH (keep = all);
CREATE TABLE clicks (cid INT, page VARCHAR);
CREATE VIEW v AS SELECT nation, COUNT(*) AS n FROM customers JOIN orders USING (cid) GROUP BY nation;
CREATE VIEW c AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE VIEW i AS SELECT oid, SUM(price) AS s FROM items GROUP BY oid;
"""


def compiled(script: str):
    return compile_sql(script, rely=False, enforced=False)


def written(folder: Path, rows: dict[str, list[list[Any]]]) -> Path:
    """Write the files of tables, one for each epoch."""
    for table, epochs in rows.items():
        (folder / table).mkdir(parents=True)
        for number, lines in enumerate(epochs, 1):
            json_lines(folder / table / f"{number:03d}.json", lines)
    return folder


def check_split(script: str, folder: Path, place: Path, *splits: str, **settings: Any) -> None:
    """Compare clusters of all modes with the embedded host, which does not check what the plan says is lost either."""
    program = compiled(script) if "CREATE" in script else parse(script)
    judged = plan_cluster(program, 2, 3, splits=splits).judged
    found = Compared(script, [str(folder)], place, program=judged, **settings)
    for number, (shape, mode) in enumerate(WAYS):
        found.check(shape, mode, splits=splits, seed=number)


@pytest.mark.parametrize("gated", ["", "CREATE VIEW kinds AS SELECT COUNT(DISTINCT b) AS n FROM s;"])
def test_truncations_reach_all_switches_and_count_once(tmp_path: Path, gated: str) -> None:
    """Where something is gated, the gate counts rows, else the intakes of switches do."""
    script = f"""
    CREATE TABLE r (id INT PRIMARY KEY, k INT, a BIGINT);
    CREATE TABLE s (k INT, b BIGINT) WITH (keep = all);
    CREATE TABLE t (k INT) WITH (keep = none);
    CREATE VIEW joined AS SELECT r.k, SUM(a * b) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY r.k;
    {gated}
    CREATE VIEW n AS SELECT COUNT(*) AS n FROM t;
    """
    gone = {"op": "truncate"}

    def rows(begin: int) -> list[Any]:
        return [{"id": begin + place, "k": place % 3, "a": place, "op": "i"} for place in range(6)]

    r = [rows(0), [*rows(20), gone, *rows(30)], [gone], rows(0)]
    s = [[{"k": k % 3, "b": k} for k in range(5)], [], [{"k": 1, "b": 1}, gone, {"k": 0, "b": 7}, gone], [gone]]
    t = [[{"k": 1}], [gone], [{"k": 2}], []]
    folder = written(tmp_path / "in", {"r": r, "s": s, "t": t})
    check_split(script, folder, tmp_path / "1", "r.id", "s.b", "t.k")
    check_split(script, folder, tmp_path / "2", "r.id")  # and others are at one switch alone


def test_rows_that_do_not_fit_are_told_once(tmp_path: Path) -> None:
    script = """
    CREATE TABLE r (id INT PRIMARY KEY, k VARCHAR, a BIGINT, x DOUBLE);
    CREATE TABLE s (k VARCHAR, b INT) WITH (keep = all);
    CREATE VIEW sums AS SELECT k, COUNT(*) AS n, SUM(a) AS s, SUM(x) AS t FROM r GROUP BY k;
    CREATE VIEW joined AS SELECT r.k, SUM(a * b) AS t FROM r JOIN s ON r.k = s.k GROUP BY r.k;
    CREATE VIEW nested AS SELECT COUNT(*) AS n FROM r WHERE a > (SELECT AVG(b) FROM s);
    CREATE VIEW ratio AS SELECT k, SUM(a) // SUM(b) AS q FROM r JOIN s USING (k) GROUP BY k;
    """
    low, high = -(2**63), 2**63 - 1
    r = [
        [
            {"id": n, "k": k, "a": a, "x": n / 4}
            for n, (k, a) in enumerate([("", low), ("a", 3), (None, 1), ("ü", high)])
        ],
        [{"id": "x"}, {"id": 1, "op": "?"}, {"op": "d", "id": 77}, {"id": 2, "op": "d"}, {"id": 1, "k": "b", "a": 0}],
        [{"id": 1, "k": "b", "a": 4, "x": "NaN", "op": "u"}, {"id": 9, "k": "a", "a": -1, "op": "u"}, {"k": "no id"}],
    ]
    s = [
        [{"k": "", "b": 0}, {"k": "a", "b": 0}, {"k": None, "b": 5}, {"k": None, "b": 5}],
        [{"k": "nobody", "b": 1, "op": "d"}, {"k": 1, "b": "?"}, {"k": None, "b": 5, "op": "d"}],
        [{"k": "a", "b": 0, "op": "d"}, {"k": "a", "b": 2}, {"k": "b", "op": "d"}, {"b": 5, "op": "d"}],
    ]
    check_split(script, written(tmp_path / "in", {"r": r, "s": s}), tmp_path, "r.id", "s.k")


def test_static_tables_are_loaded_by_all_switches(tmp_path: Path) -> None:
    script = """
    CREATE TABLE d (k INT PRIMARY KEY, name VARCHAR) WITH (static = true);
    CREATE TABLE r (id INT PRIMARY KEY, k INT, a BIGINT);
    CREATE VIEW named AS SELECT d.name, SUM(a) AS t, COUNT(*) AS n FROM r JOIN d USING (k) GROUP BY d.name;
    """
    rows = {
        "d": [[{"k": k, "name": f"n{k % 2}"} for k in range(4)], [{"k": 9, "name": "late"}]],
        "r": [[{"id": n + 10 * e, "k": n % 5, "a": n} for n in range(1, 8)] for e in range(3)],
    }
    check_split(script, written(tmp_path / "in", rows), tmp_path, "d.k", "r.id")


def test_change_logs_with_places_are_split_by_the_key(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE r (id INT PRIMARY KEY, k INT, a INT); CREATE VIEW s AS SELECT k, SUM(a) AS t FROM r GROUP BY k;"
    )

    def change(op: str, before: Any, after: Any, at: int) -> dict[str, Any]:
        return {"op": op, "before": before, "after": after, "source": {"lsn": at}, "ts_ms": at}

    def row(key: int, a: int) -> dict[str, int]:
        return {"id": key, "k": key % 2, "a": a}

    epochs = [
        [change("c", None, row(key, key), key) for key in range(9)],
        [change("u", row(2, 2), row(2, 5), 11), change("d", {"id": 3}, None, 12), change("c", None, row(4, 9), 4)],
        [change("t", None, None, 13), change("c", None, row(1, 7), 14), change("u", row(5, 5), row(5, 6), 10)],
    ]
    folder = written(tmp_path / "in", {"r": epochs})
    judged = Compared(script, [f"r={folder / 'r'},format=debezium"], tmp_path)
    for shape, mode in WAYS:
        judged.check(shape, mode, splits=("r.id",))


@pytest.mark.parametrize("seed", sampled(range(3), of=3))
def test_orphans_wait_where_references_are_split_alike(tmp_path: Path, seed: int) -> None:
    stream = star_stream.Star(tmp_path / "star", seed)
    for _ in range(5):
        stream.write()
    check_split(star_stream.STAR, tmp_path / "star", tmp_path / "1", "sales.id", "goods.g")
    script = """
    CREATE TABLE orders (oid INT PRIMARY KEY, cid INT);
    CREATE TABLE items (oid INT REFERENCES orders, price INT) WITH (keep = all);
    CREATE VIEW v AS SELECT cid, SUM(price) AS s FROM orders JOIN items USING (oid) GROUP BY cid;
    """
    items = [[{"oid": (seed + n) % 7, "price": n} for n in range(at, at + 5)] for at in range(4)]
    orders = [
        [],
        [{"oid": o, "cid": o % 2} for o in range(4)],
        [{"oid": 1, "cid": 1, "op": "d"}],
        [{"oid": 5, "cid": 3}],
    ]
    folder = written(tmp_path / "in", {"orders": orders, "items": items})
    check_split(script, folder, tmp_path / "2", "orders.oid", "items.oid")


def test_a_program_of_net_changes(tmp_path: Path) -> None:
    stream = orders_stream.OrdersStream(tmp_path / "in", 4)
    for _ in range(5):
        stream.write()
    check_split(orders_stream.PROGRAM, tmp_path / "in", tmp_path, "orders.oid", "lineitem.price")


# --- while there is state -------------------------------------------------------------------------------------------

STEPS = (
    (2, ()),
    (2, ("orders.oid", "items.oid", "clicks.page")),
    (3, ("items.oid", "orders.oid")),
    (3, ("orders.part", "items.part", "clicks.cid")),
    (1, ()),
    (2, ("customers.cid",)),
)


@pytest.mark.parametrize("mode", [Mode.EVENTUAL, Mode.GATED, Mode.FOUR_LOGS])
def test_tables_are_split_and_joined_between_epochs(tmp_path: Path, mode: Mode) -> None:
    """Keys that are there already, rows that wait for a parent, and deletions meet what other switches have had."""
    program, draw = compiled(SHOP), np.random.default_rng(7)

    def some(count: int, *columns: tuple[str, int]) -> list[dict[str, Any]]:
        return [{name: int(draw.integers(most)) for name, most in columns} for _ in range(count)]

    rows: dict[str, list[list[dict[str, Any]]]] = {"customers": [], "orders": [], "items": [], "clicks": []}
    for _ in range(2 * len(STEPS)):
        rows["customers"].append(
            [{**each, "nation": f"n{each['cid'] % 2}"} for each in some(2, ("cid", 9), ("boss", 9))]
        )
        rows["orders"].append(some(4, ("oid", 5), ("part", 3), ("cid", 9)))
        rows["items"].append(some(4, ("oid", 5), ("part", 3), ("price", 3)))
        rows["items"][-1] += [{**each, "op": "d"} for each in some(3, ("oid", 5), ("part", 3), ("price", 3))]
        rows["clicks"].append([{"cid": each["cid"], "page": f"p{each['cid'] % 3}"} for each in some(3, ("cid", 9))])
    sources = sources_from([str(written(tmp_path / "in", rows))], program)
    out, notes = tmp_path / "out", list[str]()
    for at, (switches, splits) in enumerate(STEPS):
        shape: dict[str, Any] = {"nodes": 2, "switches": switches, "splits": splits, "mode": mode}
        with open_home(program, sources, out, None, note=notes.append, **shape) as home:
            assert home.settings.layout == at
            assert home.settings.splits == splits
        last = 0 if at + 1 == len(STEPS) else 2 * (at + 1)
        run_cluster(program, sources, out, last=last, seed=at, **shape)
    assert "split: orders.oid, items.oid, clicks.page" in notes[0]
    with open_home(program, sources, out, None, note=notes.append, nodes=0, switches=0, mode=mode):
        pass  # as it was
    found = read_settings(out / "checkpoint")
    assert found is not None
    assert found.splits == ("customers.cid",)
    made = partial(make_engine, "interpreter")
    with EmbeddedRun(program, sources, tmp_path / "judged", make_engine=made) as judge:
        counts = [epoch.counts for epoch in judge.steps()]
    assert any(each["waiting"] for each in counts)
    assert any(each["quarantined"] for each in counts)
    told = difference(tmp_path / "judged", out)
    assert not told, told
