"""What a client reads from nodes, when nothing is on its way between them, is what DuckDB says of all rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from cumulus.catalog.arrow import table_of
from cumulus.cluster.clients import parts, reads
from cumulus.cluster.clients.parts import part_answers
from cumulus.cluster.codec import decode, encode
from cumulus.cluster.intake import BlockMaker
from cumulus.cluster.live.folds import ClusterFolds
from cumulus.cluster.live.remote_maps import RemoteMaps
from cumulus.cluster.messages import EntriesRead, PartsRead, ReadEntries, ReadParts, RequestRefused
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.compiler import compile_sql
from cumulus.epochs.output.host import FolderHost
from cumulus.epochs.stages.judge import TableDelta
from cumulus.errors import EvaluationError
from cumulus.views.consistency import Consistency
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Between, Bound
from cumulus.views.reader import MapViewReader
from support.tiers import examples, one_mode_each

TABLES = """
CREATE TABLE people (p INT NOT NULL, town VARCHAR, born DATE);
CREATE TABLE sales (p INT NOT NULL, price DECIMAL(9,2), weight DOUBLE);
"""
VIEWS = {
    "by_town": "SELECT town, SUM(price) AS a, AVG(weight) AS w, COUNT(*) AS n FROM sales JOIN people USING (p) "
    "GROUP BY town",
    "by_day": "SELECT born, town, SUM(weight) AS w FROM sales JOIN people USING (p) GROUP BY born, town",
    "total": "SELECT SUM(price) AS a, COUNT(weight) AS n FROM sales",
    "best": "SELECT p, SUM(price) AS a FROM sales WHERE price IS NOT NULL GROUP BY p ORDER BY a DESC, p LIMIT 2",
}
KEYS = {"by_town": ("town",), "by_day": ("born", "town"), "total": (), "best": ("p",)}
CUBE = """SELECT town, born, p, SUM(price) AS a, AVG(weight) AS w, COUNT(*) AS n, MIN(price) AS low, MAX(weight) AS most
FROM sales JOIN people USING (p) GROUP BY town, born, p"""
PROGRAM = compile_sql(
    TABLES
    + "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())
    + f"CREATE CUBE cube DIMENSION place (town, p) DIMENSION born KEEP (town) AS {CUBE};",
    rely=False,
    enforced=False,
)


class Nodes:
    """Nodes that have taken rows in, and answer."""

    def __init__(self, plan: ClusterPlan, engine: str) -> None:
        self.plan, self.questions = plan, 0
        self.parts = [EventualNode(NodeLife(plan, number, engine)) for number in range(plan.nodes)]
        dispatch = EventualSwitch(plan)
        self._makers = [BlockMaker(Numbering(VersionOrder.CLOCK, switch), dispatch, frozenset()) for switch in (0, 3)]

    def take(self, switch: int, table: str, rows: list[tuple[Any, ...]], count: int) -> None:
        net = TableDelta(
            table, table_of(self.plan.division.spread.relation(table).columns, rows), np.full(len(rows), count)
        )
        for node, events in self._makers[switch].make(1, [net]):
            self.parts[node].take(-1, events)
        while sent := [each for part in self.parts for each in part.drain()]:
            for node, deltas in sent:
                self.parts[node].take(0, decode(b"".join(encode(deltas))))

    def ask(self, machine: str, message_of: Callable[[int], Any]) -> list[Any]:
        self.questions += 1
        asked = decode(b"".join(encode(message_of(self.questions))))
        answers = part_answers if isinstance(asked, ReadParts) else reads.answers
        found = [decode(b"".join(encode(each))) for each in answers(self.parts[int(machine[4:])].maps, asked)]
        assert all(isinstance(each, EntriesRead | PartsRead) and each.number == self.questions for each in found), found
        assert [each.left for each in found] == list(reversed(range(len(found))))
        return found

    def reader(self, view: str, given: dict[int, Any]) -> tuple[MapViewReader, RemoteMaps]:
        spread = self.plan.division.spread
        definition = spread.view(view)
        remote = RemoteMaps(self.plan, self.ask, dict.fromkeys(definition.maps, given))
        return MapViewReader(Finisher(spread, definition), remote), remote


def random_rows(draw: random.Random, table: str) -> list[tuple[Any, ...]]:
    people = range(8)
    if table == "people":
        days = [None, date(2020, 2, 29), date(1, 1, 1)]
        return [(draw.choice(people), draw.choice(["x", "y", "ä", "", None]), draw.choice(days)) for _ in range(3)]
    prices = [None, Decimal("1.25"), Decimal("-3.00"), Decimal("9999999.99")]
    return [(draw.choice(people), draw.choice(prices), draw.choice([None, 0.1, -7.5, 1e300])) for _ in range(9)]


def alike(one: list[Any], other: list[Any]) -> bool:
    def key(row: Any) -> list[Any]:
        return [(value is not None, "" if isinstance(value, float) else str(value)) for value in row]

    pairs = zip(sorted(one, key=key), sorted(other, key=key), strict=False)
    same = (
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for rows in pairs
        for a, b in zip(*rows, strict=True)
    )
    return len(one) == len(other) and all(same)


GRIDS = (
    (4, ("people.p=2", "by_town.town=2")),
    (6, ("by_town.town@,x", "sales.p@4")),
    (4, ("by_day.born@2020-01-01", "people.town@x")),
    (3, ("sales.p@2,5",)),
)


@pytest.mark.parametrize(("seed", "engine"), one_mode_each(range(6), ("interpreter", "native"), of=3))
def test_views_keys_and_slices_are_what_all_rows_say(seed: int, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PART_BYTES", 100)
    draw = random.Random(seed)
    read_and_compare(draw, plan_cluster(PROGRAM, draw.choice((1, 2, 3, 5)), 4), engine)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_so_they_are_in_a_grid(seed: int, grid: tuple[int, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PART_BYTES", 100)
    nodes, cuts = grid
    read_and_compare(random.Random(seed), plan_cluster(PROGRAM, nodes, 4, cuts=cuts), ("interpreter", "native")[seed])


def read_and_compare(draw: random.Random, plan: ClusterPlan, engine: str) -> None:
    """Let nodes take in random rows, and read all views in all ways."""
    assert {view.name for view in plan.division.spread.views} == {*VIEWS, "cube", "cube by town"}
    nodes, connection = Nodes(plan, engine), duckdb.connect()
    connection.execute(TABLES)
    for _ in range(draw.randrange(4, 8)):
        table = draw.choice(("people", "sales"))
        rows = random_rows(draw, table)
        nodes.take(draw.randrange(2), table, rows, 1)
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    for view, select in VIEWS.items():
        expected = connection.execute(select).fetchall()
        reader, remote = nodes.reader(view, {})
        assert alike(reader.rows(), expected), (view, reader.rows(), expected)
        assert set(remote.versions) <= {"switch0", "switch3"}
        if view == "best":
            continue
        columns = [each[0] for each in connection.execute(select).description]
        for row in [*expected, tuple("?" if name == "town" else None for name in columns)]:
            key = [row[columns.index(name)] for name in KEYS[view]]
            before = nodes.questions
            one = nodes.reader(view, {})[0].get(*key)
            assert nodes.questions == before + len(plan.division.spread.view(view).reads)
            mine = [each for each in expected if [each[columns.index(name)] for name in KEYS[view]] == key]
            assert alike([] if one is None else [one], mine), (view, key, one, mine)
            if key:
                place = [each.name for each in plan.division.spread.map(view).keys].index(KEYS[view][-1])
                rows = [each for each in expected if each[columns.index(KEYS[view][-1])] == key[-1]]
                assert alike(nodes.reader(view, {place: key[-1]})[0].rows(), rows)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_nodes_fold_what_they_own(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    draw = random.Random(seed)
    plan = plan_cluster(PROGRAM, draw.choice((1, 2, 5)), 4)
    nodes, connection = Nodes(plan, draw.choice(("interpreter", "native"))), duckdb.connect()
    connection.execute(TABLES)
    for _ in range(draw.randrange(4, 8)):
        table = draw.choice(("people", "sales"))
        rows = random_rows(draw, table)
        # Of a sum nothing small is left when 1e300 has gone.
        going = [row for row in rows[:3] if table == "sales" and row[2] != 1e300]
        nodes.take(draw.randrange(2), table, rows, 1)
        nodes.take(1, table, going, -1)
        staying = [row for at, row in enumerate(rows) if at > 2 or row not in going]
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", staying)
    monkeypatch.setattr("cumulus.views.folding.reading.FEW_ENTRIES", draw.choice((0, 1 << 30)))
    folds = ClusterFolds(lambda: plan, FolderHost(tmp_path, program=plan.division.spread))
    counted = folds.tentative(nodes.ask, "cube", ["p"], (), ["n"])
    assert counted.entries_read == sum(part.maps.owned(counted.map).rows for part in nodes.parts)
    persons = [draw.randrange(8), draw.randrange(8)]
    for by in (("town",), (), ("born", "p"), ("p", "town", "born")):
        for condition, where in (
            ("TRUE", ()),
            (f"p IN ({persons[0]}, {persons[1]})", (Bound("p", tuple(persons)),)),
            ("town IS NULL OR town = 'ä'", (Bound("town", ("ä", None)),)),
            ("born < DATE '2000-01-01'", (Bound("born", Between(None, date(1999, 12, 31))),)),
        ):
            before = nodes.questions
            found = folds.tentative(nodes.ask, "cube", by, where, None)
            assert found.consistency is Consistency.TENTATIVE
            assert found.choice.view == (
                "cube by town" if {*by, *(each.column for each in where)} <= {"town"} else "cube"
            )
            assert nodes.questions - before <= (len({*persons}) if "IN" in condition else plan.nodes)
            grouping = f" GROUP BY {', '.join(by)}" if by else " HAVING COUNT(*) > 0"
            select = CUBE.replace("SELECT town, born, p,", f"SELECT {''.join(f'{name}, ' for name in by)}")
            select = select.replace(" GROUP BY town, born, p", "") + f" WHERE {condition}{grouping}"
            assert alike(
                [tuple(row.values()) for row in found.finish().to_pylist()], connection.execute(select).fetchall()
            )


LARGE = """
CREATE TABLE r (k INT NOT NULL, h HUGEINT, x BIGINT, d DOUBLE);
CREATE VIEW few AS SELECT k, COUNT(*) AS n, SUM(x) AS x, SUM(d) AS d FROM r GROUP BY k;
CREATE VIEW large AS SELECT k, SUM(h) AS h FROM r GROUP BY k;
CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(d) AS d FROM r;
CREATE VIEW sum_of_all AS SELECT SUM(h) AS h FROM r;
"""


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_sum_without_words_is_refused_where_it_is_shown(engine: str, tmp_path: Path) -> None:
    """All these views are of one map for each kind of group, with a column for each of their sums."""
    plan = plan_cluster(compile_sql(LARGE, rely=False, enforced=False), 2)
    nodes, folds = Nodes(plan, engine), ClusterFolds(lambda: plan, FolderHost(tmp_path, program=plan.division.spread))
    large = [(k, 2**126, 5, 1.5) for k in (1, 2, 3)]
    nodes.take(0, "r", [(k, 1, 5, 1.5) for k in range(5)], 1)
    for count in (4, -4):
        nodes.take(1, "r", large, count)
        n = max(count, 0)
        rows = [(k, 1 + n, 5 + 5 * n, 1.5 + 1.5 * n) if k in (1, 2, 3) else (k, 1, 5, 1.5) for k in range(5)]
        assert alike(nodes.reader("few", {})[0].rows(), rows)
        assert nodes.reader("few", {})[0].get(2) == rows[2]
        assert nodes.reader("few", {0: 3})[0].rows() == [rows[3]]
        assert nodes.reader("total", {})[0].rows() == [(5 + 3 * n, 7.5 + 4.5 * n)]
        found = folds.tentative(nodes.ask, "few", [], (), ["n", "x", "d"])
        assert found.finish().to_pylist() == [{"n": 5 + 3 * n, "x": 25 + 15 * n, "d": 7.5 + 4.5 * n}]
        if n:
            for view in ("large", "sum_of_all"):
                with pytest.raises(EvaluationError, match="does not fit 128 bits"):
                    nodes.reader(view, {})[0].rows()
            assert nodes.reader("large", {})[0].get(0) == (0, 1)
        else:
            assert alike(nodes.reader("large", {})[0].rows(), [(k, 1) for k in range(5)])
            assert nodes.reader("sum_of_all", {})[0].rows() == [(5,)]


def test_what_no_node_can_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(plan_cluster(PROGRAM, 1), "interpreter")
    part = nodes.parts[0].maps
    place = part.names.index("by_town")
    nodes.take(0, "people", [(1, "x", None)], 1)
    nodes.take(0, "sales", [(1, Decimal(1), 1.0)] * 5, 1)
    for asked in (ReadEntries(7, 99, (), b""), ReadEntries(7, place, (0,), b"?"), ReadEntries(7, place, (5,), b"?")):
        (refused,) = reads.answers(part, asked)
        assert isinstance(refused, RequestRefused)
        assert refused.number == 7
    (refused,) = reads.answers(None, ReadEntries(7, 0, (), b""))
    assert isinstance(refused, RequestRefused)
    monkeypatch.setattr(reads, "MOST_BYTES", 8)
    (refused,) = reads.answers(part, ReadEntries(7, place, (), b""))
    assert isinstance(refused, RequestRefused)
    assert "by_town has 1 entries of 0.0 MB on a node, more than" in refused.reason
