"""The changes of a selection: each step makes of the rows before those after it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus import Cube, Warehouse
from cumulus.errors import HistoryError, UsageError
from support.tiers import examples

SCRIPT = """
CREATE TABLE t (a INT, b INT, x INT);
CREATE CUBE v DIMENSION a DIMENSION b AS
  SELECT a, b, AVG(x) AS mean, COUNT(DISTINCT x) AS kinds, MAX(x) AS most FROM t GROUP BY ALL;
"""


def test_an_average_changes_where_no_row_of_the_view_does() -> None:
    wh = Warehouse(SCRIPT)
    wh.insert("t", [(1, 1, 10), (1, 1, 10), (1, 2, 1)])
    with Cube(wh, "v").rollup("a", measures=["mean"]).changes(timeout=0) as changes:
        wh.delete("t", [(1, 1, 10)])
        told = [(each.at, each.is_snapshot, each.rows()) for each in changes]
    assert told == [(1, True, [((1, 7.0), 1)]), (2, False, [((1, 7.0), -1), ((1, 5.5), 1)])]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=4), max_size=6), st.data())
def test_changes_added_up_are_the_rows(batches: list[list[Any]], data: st.DataObject) -> None:
    wh = Warehouse(SCRIPT, engine="interpreter")
    begin = Cube(wh, "v").rollup("a").totals()
    held: Counter[Any] = Counter()
    rows: list[Any] = []
    last = -1
    with begin.changes(timeout=0) as changes:
        for batch in batches:
            if rows and data.draw(st.booleans()):
                gone = data.draw(st.sampled_from(rows))
                rows.remove(gone)
                wh.delete("t", [gone])
            else:
                rows += batch
                wh.insert("t", batch)
            if data.draw(st.booleans()):
                for each in changes:
                    assert each.at > last
                    last = each.at
                    for row, count in each.rows():
                        held[row] += count
                assert {row: count for row, count in held.items() if count} == Counter(begin.rows())


def test_changes_are_awaited_and_end() -> None:
    wh = Warehouse(SCRIPT)

    async def told() -> list[int]:
        found = []
        with Cube(wh, "v").rollup("b", measures=["most"]).changes(timeout=5) as changes:
            async for each in changes:
                found.append(len(each))
                if len(found) == 3:
                    break
                # The second row changes nothing that is shown.
                wh.insert("t", [(1, 1, 3 - len(found))])
        return found

    assert asyncio.run(told()) == [0, 1, 0]


def test_what_was_before_is_not_kept() -> None:
    wh = Warehouse(SCRIPT, keep="all")
    selection = Cube(wh, "v").rollup("a")
    with selection.changes(since=0, snapshot=False, timeout=0) as changes:
        assert list(changes) == []
    wh.insert("t", [(1, 1, 1)])
    with pytest.raises(HistoryError, match="after transaction 0 are not kept"):
        selection.changes(since=0, snapshot=False)
    with selection.changes(since=0, timeout=0) as changes:
        assert [each.is_snapshot for each in changes] == [True]
    wh.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM t")
    with selection.changes(timeout=0), pytest.raises(UsageError, match="v has subscribers"):
        wh.execute("DROP CUBE v")
