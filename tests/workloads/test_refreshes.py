"""Refreshes of TPC-H: what comes, changes and goes, and that keys hold when an epoch ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cumulus.errors import UsageError
from cumulus_lab.workloads import tpch

QUERIES = ("q5", "q7", "q8", "q9")
PARENTS = ("customer", "supplier", "part")

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


def refreshes(**options: Any) -> tpch.Refreshes:
    return tpch.refreshes(tpch.sample(orders=400), queries=QUERIES, epochs=8, **options)


def told(stream: tpch.Refreshes, *, upserts: bool = True) -> list[list[tuple[str, dict[str, Any]]]]:
    """For each epoch, table and change in the order of `seq`."""
    epochs = []
    for epoch in stream.epochs(upserts=upserts):
        changes = [(name, row) for name, table in epoch.items() for row in table.to_pylist()]
        epochs.append(sorted(changes, key=lambda change: change[1]["seq"]))
    return epochs


def apply(here: Rows, name: str, change: dict[str, Any]) -> None:
    """Apply a change, which must be possible."""
    row = {column: value for column, value in change.items() if column not in ("op", "seq")}
    key = tuple(row[column] for column in tpch.TABLES[name].key)
    stands = here.setdefault(name, {}).get(key)
    if change["op"] == "i":
        assert stands is None
    elif change["op"] == "d":
        assert stands == row
    else:
        assert stands is not None
        assert stands != row
    if change["op"] == "d":
        del here[name][key]
    else:
        here[name][key] = row


def test_references_hold_when_an_epoch_ends_and_parents_leave_with_their_last_child_or_later() -> None:
    here: Rows = {}
    gone: dict[str, set[tuple[Any, ...]]] = {name: set() for name in PARENTS}
    again: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    changed = 0
    for epoch in told(refreshes()):
        ordering = {row["o_custkey"] for row in here.get("orders", {}).values()}
        for name, change in epoch:
            key = tuple(change[column] for column in tpch.TABLES[name].key)
            if name in PARENTS and change["op"] == "i":
                again[name] += key in gone[name]
            if name in PARENTS and change["op"] == "d":
                gone[name].add(key)
            if name == "customer" and change["op"] == "u":
                changed += key[0] in ordering
            if name == "customer" and change["op"] == "d":
                leaving["their orders" if key[0] in ordering else "nothing"] += 1
            apply(here, name, change)
        for name, rows in here.items():
            for reference in tpch.TABLES[name].foreign_keys:
                parents = {
                    tuple(row[column] for column in reference.parent_columns) for row in here[reference.parent].values()
                }
                assert {tuple(row[column] for column in reference.columns) for row in rows.values()} <= parents
    assert changed > 30
    assert all(gone.values())
    assert min(again[name] for name in PARENTS) > 0
    assert min(leaving["their orders"], leaving["nothing"]) > 0


def test_an_update_is_an_upsert_or_a_deletion_and_an_insertion() -> None:
    stream = refreshes()
    by_upserts: Rows = {}
    by_pairs: Rows = {}
    for one, other in zip(told(stream), told(stream, upserts=False), strict=True):
        assert {change["op"] for _, change in other} <= {"i", "d"}
        assert len(other) - len(one) == sum(change["op"] == "u" for _, change in one)
        for name, change in one:
            apply(by_upserts, name, change)
        for name, change in other:
            apply(by_pairs, name, change)
        assert by_upserts == by_pairs


def test_shares_are_those_asked_for_and_half_of_the_updates_are_read_by_nobody() -> None:
    epochs = told(refreshes(deletions=0.2, updates=0.3))
    kinds = Counter((name, change["op"]) for epoch in epochs for name, change in epoch)
    assert kinds["orders", "d"] / (kinds["orders", "i"] + kinds["orders", "d"]) == pytest.approx(0.2, abs=0.02)
    assert kinds["lineitem", "d"] / (kinds["lineitem", "i"] + kinds["lineitem", "d"]) == pytest.approx(0.2, abs=0.04)
    customers = sum(name == "customer" for name, _ in epochs[0])
    for epoch in epochs[1:]:
        assert sum(name == "customer" and change["op"] == "u" for name, change in epoch) == pytest.approx(
            0.3 * customers, abs=2
        )
    here: Rows = {}
    seen: Counter[bool] = Counter()
    for name, change in (change for epoch in epochs for change in epoch):
        if name == "customer" and change["op"] == "u":
            seen[here[name][(change["c_custkey"],)]["c_nationkey"] == change["c_nationkey"]] += 1
        apply(here, name, change)
    assert seen[True] / seen.total() == pytest.approx(0.5, abs=0.1)


def test_without_updates_and_deletions_nothing_but_visitors_leaves() -> None:
    kinds = Counter((name, change["op"]) for epoch in told(refreshes(deletions=0, updates=0)) for name, change in epoch)
    assert not any(op == "u" for _, op in kinds)
    assert 0 < kinds["orders", "d"] <= 4 * 7


def test_a_key_has_one_change_in_an_epoch_unless_repeats_are_wished_for() -> None:
    for repeats in (True, False):
        most = 0
        for epoch in told(refreshes(repeats=repeats, updates=0.5)):
            keys = Counter((name, *(change[column] for column in tpch.TABLES[name].key)) for name, change in epoch)
            most = max(most, *keys.values())
        assert most == (2 if repeats else 1)


def test_the_seed_decides_and_seq_counts_all_tables() -> None:
    assert told(refreshes(seed=1)) == told(refreshes(seed=1))
    assert told(refreshes(seed=1)) != told(refreshes(seed=2))
    for upserts in (True, False):
        places = [change["seq"] for epoch in told(refreshes(), upserts=upserts) for _, change in epoch]
        assert places == list(range(len(places)))


def test_a_stream_has_the_tables_and_columns_that_its_queries_read_and_some_that_none_does() -> None:
    stream = tpch.refreshes(tpch.sample(), queries=("q5", "q7"), epochs=2)
    assert list(stream.columns) == ["region", "nation", "supplier", "customer", "orders", "lineitem"]
    assert stream.columns["customer"] == ("c_custkey", "c_nationkey", "c_acctbal", "c_comment")
    assert stream.columns["orders"] == ("o_orderkey", "o_custkey", "o_orderdate")
    for epoch in stream.epochs():
        assert {name: tuple(table.column_names[2:]) for name, table in epoch.items()} == stream.columns


def test_what_cannot_be_is_refused() -> None:
    for option in ({"epochs": 1}, {"deletions": 0.5}, {"updates": 1.5}, {"seed": -1}):
        with pytest.raises(UsageError, match=next(iter(option))):
            tpch.refreshes(tpch.sample(), queries=("q5",), **option)
