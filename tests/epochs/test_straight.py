"""Kept tables as columns: what goes straight leaves the same as what goes row by row."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from cumulus.catalog.events import OP_COLUMN
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.transaction import Transaction
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.fast_path import ColumnarChoice, deal_rounds
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import Payload, pack, pack_notice
from cumulus.epochs.intake.reading import Reading, read_table
from cumulus.epochs.plan import BucketPlan
from support.tiers import WHOLE, examples

SQL = """
CREATE TABLE shops (town VARCHAR, no INT, kind VARCHAR, PRIMARY KEY (town, no));
CREATE TABLE sales (id BIGINT PRIMARY KEY, town VARCHAR, no INT, x DECIMAL(8,2),
                    FOREIGN KEY (town, no) REFERENCES shops (town, no));
CREATE TABLE notes (id BIGINT, text VARCHAR) WITH (keep = all);
CREATE VIEW kinds AS SELECT kind, SUM(x) AS s, COUNT(*) AS n FROM sales s, shops h
  WHERE s.town = h.town AND s.no = h.no GROUP BY kind;
CREATE VIEW noted AS SELECT text, COUNT(*) AS n FROM notes n, sales s WHERE n.id = s.id GROUP BY text;
"""
PROGRAM = compile_sql(SQL, rely=False, keep="all")


def wild(draw: random.Random, kind: str) -> list[dict[str, Any]]:
    """Return rows of a file: few keys, all kinds of mistakes."""
    rows = []
    for _ in range(draw.randrange(0, 25)):
        row: dict[str, Any] = {"op": draw.choice("iiidddu" if kind != "notes" else "iid")}
        match kind:
            case "shops":
                row |= {"town": draw.choice(["Köln", "Ulm"]), "no": draw.randrange(4), "kind": draw.choice("ab")}
            case "sales":
                x = None if draw.random() < 0.1 else draw.randrange(300) / 4
                row |= {"id": draw.randrange(6), "town": draw.choice(["Köln", None]), "no": draw.randrange(4), "x": x}
            case _:
                row |= {"id": draw.randrange(3), "text": draw.choice(["p", "q", None])}
        rows.append(row)
    return rows


class Calm:
    """Makes rows of files that are right, but for one in a while."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._there: dict[str, list[dict[str, Any]]] = {"shops": [], "sales": [], "notes": []}
        self._gone: list[dict[str, Any]] = []
        """Shops that were changed, and then closed."""
        self._next = 0

    def rows(self, kind: str) -> list[dict[str, Any]]:
        draw, there = self._draw, self._there[kind]
        found = []
        for _ in range(draw.randrange(0, 12)):
            self._next += 1
            if there and kind == "shops" and draw.random() < 0.2:
                shop = there.pop(draw.randrange(len(there)))
                found = [row for row in found if row["no"] != shop["no"]]
                found.append({**shop, "kind": draw.choice("ab"), "op": draw.choice("uud")})
                if found[-1]["op"] == "u" and draw.random() < 0.5:
                    found.append({**found[-1], "op": "d"})
                    self._gone.append(shop)
            elif there and kind != "shops" and draw.random() < 0.3:
                gone = there.pop(draw.randrange(len(there)))
                found.append({**gone, "op": "d"})
                if kind == "sales" and draw.random() < 0.5:
                    there.append({**gone, "x": self._next / 4})
                    found[-1] = {**there[-1], "op": "u"}
                elif draw.random() < 0.3:
                    there.append({**gone, **({"text": "r"} if kind == "notes" else {"x": self._next / 4})})
                    found.append({**there[-1], "op": "i"})
                continue
            match kind:
                case "shops":
                    row = {"town": draw.choice(["Köln", "Ulm"]), "no": self._next, "kind": draw.choice("ab")}
                case "sales":
                    shop = draw.choice(self._there["shops"]) if self._there["shops"] else {"town": None, "no": 1}
                    if self._gone and draw.random() < 0.1:
                        shop = self._gone[-1]
                    if draw.random() < 0.02:  # it may come later
                        shop = {"town": "Ulm", "no": self._next + draw.randrange(1, 40)}
                    row = {"id": self._next, "town": shop["town"], "no": shop["no"], "x": self._next / 4}
                case _:
                    row = {"id": self._next - draw.randrange(9), "text": draw.choice(["p", None])}
            there.append(row)
            found.append({**row, "op": "i"})
        if draw.random() < 0.05:
            found += wild(draw, kind)[:1]
        return found


SCHEMAS = {
    "shops": [("town", pa.string()), ("no", pa.int32()), ("kind", pa.string())],
    "sales": [("id", pa.int64()), ("town", pa.string()), ("no", pa.int32()), ("x", pa.float64())],
    "notes": [("id", pa.int64()), ("text", pa.string())],
}


def reading(kind: str, rows: list[dict[str, Any]], seqs: list[int] | None, label: str) -> Reading:
    table = pa.Table.from_pylist(rows, pa.schema([("op", pa.string()), *SCHEMAS[kind]]))
    if seqs is not None:
        table = table.append_column("seq", pa.array(seqs, pa.int64()))
    return read_table(FolderSource(kind, ""), PROGRAM.relation(kind), table, label)


def told(bucket: Bucket, outcome: Outcome) -> Any:
    maps = {each.name: sorted(bucket.engine.items(each.name), key=repr) for each in PROGRAM.maps}
    refused = sorted((each.reason, each.relation, each.source, each.position, each.row) for each in outcome.quarantine)
    return maps, refused, outcome.events, outcome.repeated, outcome.waiting, outcome.error_counts


class Counting(Bucket):
    """Counts the rows that went straight, the epochs in which they could not after all, and those in which others had
    waited or were set aside.
    """

    went = failed = waited = aside = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        fire = self._columnar.fire

        def counted(opened: Transaction, chosen: ColumnarChoice) -> bool:
            done = fire(opened, chosen)
            rows = sum(table.num_rows for dealt in chosen.rounds.values() for table in dealt)
            self.went, self.failed = self.went + rows * done, self.failed + (not done)
            self.waited += done and bool(chosen.rounds) and any(self._waiting)
            self.aside += done and any(each.rows.num_rows for rows in chosen.aside.values() for each in rows)
            return done

        self._columnar.fire = counted


PLANS = (BucketPlan(), BucketPlan(2, {"sales": ("id",), "notes": ("id",)}, by_key=("sales",)))


def compare(seed: int) -> list[Counting]:
    """Feed random epochs to the buckets of a plan, native and interpreted, and compare; return the native ones."""
    draw = random.Random(seed)
    calm, ordered, plan = draw.random() < 0.5, draw.random() < 0.5, PLANS[seed % 3 == 0]
    ours = [Counting(PROGRAM, plan, index, NativeEngine, late_epochs=2) for index in range(plan.buckets)]
    others = [Bucket(PROGRAM, plan, index, Interpreter, late_epochs=2) for index in range(plan.buckets)]
    quiet, at, poll = Calm(draw), 0, Poll()
    for epoch in range(1, 9):
        readings = []
        for kind in SCHEMAS:
            rows = quiet.rows(kind) if calm else wild(draw, kind)
            seqs = list(range(at, at + len(rows)))
            at += 0 if draw.random() < 0.1 else len(rows)
            if not calm:
                draw.shuffle(seqs)
            readings.append(reading(kind, rows, seqs if ordered else None, f"{kind}/{epoch}"))
        polls = []
        for mine, its, payload in zip(ours, others, pack(readings, plan), strict=True):
            given = [pack_notice(poll.plain()), payload]
            outcome, expected = mine.apply(epoch, given), its.apply(epoch, given)
            assert outcome.poll == expected.poll
            polls.append(outcome.poll)
            assert told(mine, outcome) == told(its, expected), (seed, epoch, mine.index)
            assert outcome.views >= expected.views  # more where a row came and went
            if draw.random() < 0.2:
                mine.load(its.dump())
        poll = Poll.merge(polls)
    return ours


@pytest.mark.law
def test_columns_and_rows_leave_the_same() -> None:
    seeds = range(60) if WHOLE else range(11, 11 + examples(60))  # of which two have rows that wait
    found = [bucket for seed in seeds for bucket in compare(seed)]
    assert sum(bucket.went for bucket in found) > (1_000 if WHOLE else 150)
    assert sum(bucket.failed for bucket in found) > (50 if WHOLE else 5)
    assert sum(bucket.waited for bucket in found) > (10 if WHOLE else 0)
    assert sum(bucket.aside for bucket in found) > (10 if WHOLE else 0)


def rows(*rows: tuple[int, str, int | None]) -> list[Payload]:
    """Return a payload of sales: identity, operation, position."""
    seqs = [seq for _, _, seq in rows if seq is not None]
    read = reading(
        "sales",
        [{"op": op, "id": number, "town": None, "no": None, "x": None} for number, op, _ in rows],
        seqs or None,
        "sales/1",
    )
    return [Payload("sales", "sales/1", len(rows), read.rows)]


def dealt(*given: tuple[int, str, int | None]) -> list[list[tuple[int, int]]]:
    tables = deal_rounds(PROGRAM.relation("sales"), rows(*given))
    return [
        list(zip(table.column("id").to_pylist(), table.column(OP_COLUMN).to_pylist(), strict=True)) for table in tables
    ]


def test_the_rows_of_a_key_go_in_their_order() -> None:
    assert dealt((1, "i", None), (2, "d", None)) == [[(1, 1), (2, -1)]]
    assert dealt((1, "i", None), (3, "i", None), (1, "d", None)) == [[(1, 1), (3, 1)], [(1, -1)]]
    assert dealt((1, "i", 5), (2, "i", 1), (1, "d", 4)) == [[(2, 1), (1, -1)], [(1, 1)]]
    assert dealt((1, "i", 5), (1, "d", 5)) == [[(1, -1)], [(1, 1)]]
    assert dealt((1, "i", 7), (1, "d", 8), (1, "i", 6)) == [[(1, 1)], [(1, 1)], [(1, -1)]]
    assert dealt(*((1, "i", place) for place in range(9))) == []
    some = rows((1, "i", 1)) + rows((1, "d", None))
    assert deal_rounds(PROGRAM.relation("sales"), some) == []


def test_a_deletion_that_has_only_the_key_finds_its_row() -> None:
    program = compile_sql("CREATE TABLE t (k INT PRIMARY KEY, x INT NOT NULL); CREATE VIEW v AS SELECT SUM(x) FROM t")
    bucket = Bucket(program, BucketPlan(), 0, NativeEngine)
    table = pa.table({"op": ["i", "i"], "k": [1, 2], "x": [5, 6]})
    gone = pa.table({"op": ["d"], "k": [1], "x": pa.nulls(1, pa.int64())})
    for epoch, each in enumerate((table, gone), 1):
        outcome = bucket.apply(
            epoch, pack([read_table(FolderSource("t", ""), program.relation("t"), each, "t")], BucketPlan())
        )
        assert not outcome.quarantine
    assert [values[-1] for _, values in bucket.engine.items(program.views[0].maps[0])] == [6]


@pytest.mark.parametrize("engine", [NativeEngine, Interpreter])
def test_a_child_waits_whose_parent_is_changed_and_goes(engine: Any) -> None:
    """The update and the deletion are set aside, and code would take the child before them."""
    shop: dict[str, Any] = {"town": "Ulm", "no": 1, "kind": "a"}
    bucket = Bucket(PROGRAM, BucketPlan(), 0, engine, late_epochs=0)
    bucket.apply(1, pack([reading("shops", [{**shop, "op": "i"}], None, "shops/1")], BucketPlan()))
    changed = [{**shop, "kind": "b", "op": op} for op in "ud"]
    sale = {"id": 1, "town": "Ulm", "no": 1, "x": 1.5, "op": "i"}
    come = [reading("shops", changed, None, "shops/2"), reading("sales", [sale], None, "sales/2")]
    outcome = bucket.apply(2, pack(come, BucketPlan()))
    assert [(each.relation, each.reason[:6]) for each in outcome.quarantine] == [("sales", "orphan")]


@pytest.mark.parametrize("engine", [NativeEngine, Interpreter])
@pytest.mark.parametrize("table", ["k INT PRIMARY KEY, x {type}", "k INT, x {type}) WITH (keep = all"])
@pytest.mark.parametrize("type", ["REAL", "DOUBLE"])
def test_a_row_with_nan_goes_beside_a_refused_one(engine: Any, table: str, type: str) -> None:
    """A refused row sends its epoch row by row, where no NaN of a file is that of another."""
    program = compile_sql(f"CREATE TABLE t ({table.format(type=type)}); CREATE VIEW v AS SELECT COUNT(*) FROM t")
    bucket = Bucket(program, BucketPlan(), 0, engine)
    nan = float("nan")
    epochs = [
        [("i", 1, nan), ("i", 2, nan), ("i", 3, 0.0)],
        [("d", 1, nan), ("d", 3, -0.0), ("d", 9, 5.0), ("i", 4, nan), ("d", 4, nan)],
    ]
    for epoch, events in enumerate(epochs, 1):
        bucket.load(bucket.dump())
        rows = pa.table(dict(zip(("op", "k", "x"), map(list, zip(*events, strict=True)), strict=True)))
        come = [read_table(FolderSource("t", ""), program.relation("t"), rows, "t")]
        outcome = bucket.apply(epoch, pack(come, BucketPlan()))
    assert [each.row for each in outcome.quarantine] == ["-t(k=9, x=5.0)"]
    assert [values[-1] for _, values in bucket.engine.items(program.views[0].maps[0])] == [1]
