"""Streams made of tables keep what they promise: every row once, parents first, all there in the middle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from cumulus.errors import UsageError
from cumulus.workloads import changes, checks
from cumulus_lab.workloads import orderbook, ssb, tpch
from cumulus_lab.workloads.churn import churn


def test_all_rows_stand_in_the_middle_and_a_share_is_gone_at_the_end() -> None:
    tables = ssb.sample(lines=60)
    events, full = churn(tables, seed=1, deletes=0.3, leaving=0.75)
    rows = Counter((name, row) for name, table in tables.items() for row in checks.rows(table))
    live: Counter[tuple[str, tuple[object, ...]]] = Counter()
    for place, (sign, name, row) in enumerate(events):
        live[name, row] += sign
        assert live[name, row] in (0, 1)
        if place == full - 1:
            assert +live == rows
    assert (+live).total() == rows.total() - round(0.75 * rows.total())
    assert 0.2 < sum(event.sign < 0 for event in events[:full]) / full < 0.4
    assert events == churn(tables, seed=1, deletes=0.3, leaving=0.75)[0]
    assert events != churn(tables, seed=2, deletes=0.3, leaving=0.75)[0]


@pytest.mark.parametrize("benchmark", [tpch, ssb])
def test_promises_are_kept_if_relations_are_given(benchmark: object) -> None:
    tables, relations = benchmark.sample(seed=5), benchmark.TABLES
    kept = orphans = 0
    for given in (relations, None):
        standing: dict[str, set[tuple[object, ...]]] = {name: set() for name in relations}
        children: Counter[tuple[str, tuple[object, ...]]] = Counter()
        for sign, name, row in churn(tables, relations=given)[0]:
            relation = relations[name]
            key = tuple(row[place] for place in relation.key_positions)
            lonely = sign < 0 and children[name, key] > 0
            for reference in relation.foreign_keys:
                parent = tuple(row[relation.position(column)] for column in reference.columns)
                assert relations[reference.parent].key == reference.parent_columns
                lonely |= sign > 0 and parent not in standing[reference.parent]
                children[reference.parent, parent] += sign
            (standing[name].add if sign > 0 else standing[name].remove)(key)
            if given:
                assert not lonely
                kept += 1
            orphans += lonely
    assert kept > 1_000
    assert orphans > 100  # … and would be noticed


def test_shares_out_of_range_are_refused() -> None:
    table = {"r": pa.table({"a": [1]})}
    with pytest.raises(UsageError, match="deletes"):
        churn(table, deletes=0.5)
    with pytest.raises(UsageError, match="leaving"):
        churn(table, leaving=1.5)
    with pytest.raises(UsageError, match="book"):
        orderbook.events(10, book=0)


def test_the_book_is_written_as_it_is_told(tmp_path: Path) -> None:
    told = orderbook.events(1_000, book=50, seed=3)
    assert orderbook.write(tmp_path, 1_000, batch=300, book=50, seed=3) == 4
    epochs = changes.read(tmp_path)
    assert [event for epoch in changes.events(epochs, {}) for event in epoch] == told
    standing: dict[tuple[str, int], tuple[object, ...]] = {}
    parts = 0
    for before, event in zip([None, *told], told, strict=False):
        key = event.relation, event.row[1]
        if event.sign > 0:
            assert key not in standing
            standing[key] = event.row
            parts += before is not None and before.sign < 0 and before.row[1] == event.row[1]
        else:
            assert standing.pop(key) == event.row
    assert 45 <= len(standing) <= 50
    assert parts > 50
    assert len({number for _, number in standing}) == len(standing)
