"""Tables that every bucket has stay the same in all, whatever else a bucket has to do in an epoch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cumulus.catalog.events import Row
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import Reading, read_table
from cumulus.epochs.plan import BucketPlan
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")

STAR = """
CREATE TABLE regions (r INT PRIMARY KEY, up INT REFERENCES regions);
CREATE TABLE shops (s INT PRIMARY KEY, r INT REFERENCES regions);
CREATE TABLE tags (r INT REFERENCES regions, tag VARCHAR);
CREATE TABLE sales (id INT PRIMARY KEY, s INT REFERENCES shops, amount INT);
CREATE VIEW by_region AS SELECT r, SUM(amount) AS a FROM sales JOIN shops USING (s) JOIN regions USING (r) GROUP BY r;
"""
COUNTS = """
CREATE TABLE visits (k INT PRIMARY KEY, r INT REFERENCES regions);
CREATE VIEW visited AS SELECT up, COUNT(*) AS n FROM visits JOIN regions USING (r) GROUP BY up;
"""
"""With these, every bucket must be asked about regions as well."""

START = {"regions": ["i 1 -", "i 2 -"], "shops": ["i 5 1"]}
ORPHAN = {"sales": ["i 0 99 1"]}
"""It waits in one bucket, which must then look at all rows of the epoch one by one."""


class Buckets:
    """Two buckets, and what they have said after the last epoch."""

    def __init__(self, script: str = STAR, late_epochs: int = 10) -> None:
        self.program = compile_sql(script, rely=False, keep="all")
        spread = {name: (key,) for name, key in (("sales", "id"), ("visits", "k")) if f"TABLE {name}" in script}
        self.plan = BucketPlan(2, spread)
        self.buckets = [Bucket(self.program, self.plan, index, engine_of, late_epochs) for index in range(2)]
        self.epoch, self.poll, self.refused = 0, Poll(), list[str]()

    def apply(self, *epochs: dict[str, list[str]]) -> None:
        """Apply epochs: table → rows, an operation and the values in words."""
        for tables in epochs:
            self.epoch += 1
            packed = pack([self._reading(name, rows) for name, rows in tables.items()], self.plan)
            notice = pack_notice(self.poll.plain()) if self.poll.asked else b""
            outcomes = [
                bucket.apply(self.epoch, [notice, mine]) for bucket, mine in zip(self.buckets, packed, strict=True)
            ]
            self.refused += [each.row for outcome in outcomes for each in outcome.quarantine]
            self.poll = Poll.merge(outcome.poll for outcome in outcomes)

    def _reading(self, name: str, lines: list[str]) -> Reading:
        relation = self.program.relation(name)
        rows = [dict(zip(("op", *relation.column_names), line.split(), strict=True)) for line in lines]
        given = [{key: None if value == "-" else value for key, value in row.items()} for row in rows]
        table = pa.Table.from_pylist(given, pa.schema([(each, pa.string()) for each in ("op", *relation.column_names)]))
        for place, column in enumerate(relation.columns, 1):
            if column.name != "tag":
                table = table.set_column(place, column.name, table.column(place).cast(pa.int32()))
        return read_table(FolderSource(name, ""), relation, table, f"{name}/{self.epoch}")

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table that both buckets have."""
        one, other = (sorted(row for row, _ in each.engine.items(self._map(name))) for each in self.buckets)
        assert one == other
        return one

    def _map(self, name: str) -> str:
        return dict(self.program.kept)[name]


@pytest.mark.parametrize("beside", [{}, ORPHAN])
def test_a_row_that_cannot_become_what_the_epoch_says_does_not_come(beside: dict[str, Any]) -> None:
    found = Buckets()
    found.apply(START, {"shops": ["i 6 1", "u 6 77"], **beside})
    assert found.rows("shops") == [(5, 1)]
    found.apply({"regions": ["i 77 -"]})
    assert found.rows("shops") == [(5, 1), (6, 77)]


@pytest.mark.parametrize("beside", [{}, ORPHAN])
def test_a_deletion_that_may_not_go_keeps_no_child_out(beside: dict[str, Any]) -> None:
    found = Buckets()
    found.apply(START, {"regions": ["d 1 -"]}, {"shops": ["i 6 1"], **beside})
    assert found.rows("shops") == [(5, 1), (6, 1)]
    assert found.rows("regions") == [(1, None), (2, None)]


@pytest.mark.parametrize("beside", [{}, ORPHAN])
def test_the_last_child_goes_while_another_comes(beside: dict[str, Any]) -> None:
    found = Buckets()
    found.apply(START, {"tags": ["i 2 a"]}, {"regions": ["d 2 -"]}, {"tags": ["d 2 a", "i 2 b"], **beside})
    assert (found.rows("regions"), found.rows("tags")) == ([(1, None)], [])


def test_a_bucket_objects_if_a_table_that_all_have_refers_to_the_row() -> None:
    found = Buckets(STAR + COUNTS)
    found.apply(START, {"regions": ["i 3 2", "d 1 -", "d 2 -"]})
    assert (found.poll.asked, found.poll.granted) == (2, 0)  # an epoch without files would change nothing
    found.apply({"shops": ["d 5 1"], "regions": ["d 3 2"]})
    assert (found.poll.asked, found.poll.granted) == (4, 4)
    found.apply({})
    assert (found.rows("regions"), found.rows("shops"), found.refused) == ([], [], [])


def test_what_waits_for_a_vote_makes_its_parent_wait_as_long() -> None:
    found = Buckets(late_epochs=0)
    found.apply(START, {"regions": ["d 1 -"], "shops": ["d 5 1"]})
    assert (found.poll.asked, found.poll.granted) == (1, 1)
    found.apply({})
    assert (found.rows("regions"), found.rows("shops"), found.refused) == ([(2, None)], [], [])
