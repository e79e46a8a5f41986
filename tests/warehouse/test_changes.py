"""What is told of a view adds up to what it shows: by callbacks, and by streams, however slowly they are read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus import errors
from cumulus.engine.native import transaction_notes
from cumulus.warehouse import change_streams

TABLES = "CREATE TABLE r (g INT, x INT, y DECIMAL(6,2), t VARCHAR); CREATE TABLE s (g INT NOT NULL, z DOUBLE NOT NULL);"
VIEWS = {
    "sums": "SELECT g, SUM(x) AS x, COUNT(*) AS n FROM r GROUP BY g",
    "many": "SELECT t, SUM(y) AS y, AVG(x) AS a, MIN(x) AS lo, MAX(y) AS hi FROM r GROUP BY t",
    "total": "SELECT COUNT(*) AS n, SUM(y) AS y FROM r",
    "bag": "SELECT x, t FROM r WHERE x > 0",
    "joined": "SELECT r.g, SUM(r.x * s.z) AS w FROM r, s WHERE r.g = s.g GROUP BY r.g",
    "shares": "SELECT g, SUM(x) AS x FROM r GROUP BY g HAVING 3 * SUM(x) > (SELECT SUM(x) FROM r)",
    "top": "SELECT g, SUM(x) AS x FROM r GROUP BY g ORDER BY x DESC LIMIT 2",
    "least": "SELECT g, COUNT(*) AS n FROM r GROUP BY g ORDER BY g LIMIT 2",
    "page": "SELECT t, g, SUM(y) AS y FROM r GROUP BY t, g ORDER BY y DESC, g LIMIT 2 OFFSET 1",
    "behind": "SELECT g, SUM(x) AS x FROM r GROUP BY g ORDER BY x OFFSET 2",
    "few": "SELECT x FROM r LIMIT 3",
    "averages": "SELECT g, AVG(x) AS a FROM r GROUP BY g HAVING COUNT(*) > 1 ORDER BY a DESC, g LIMIT 2",
    "nulls": "SELECT g, SUM(x) AS x FROM r GROUP BY g ORDER BY x DESC NULLS FIRST LIMIT 1",
}
SQL = TABLES + "".join(f"CREATE VIEW {name} AS {sql};" for name, sql in VIEWS.items())

SMALL = st.one_of(st.none(), st.integers(-2, 3))
ROWS = {
    "r": st.tuples(
        SMALL, SMALL, st.one_of(st.none(), st.decimals(-2, 2, places=2)), st.sampled_from([None, "a", "b", "é"])
    ),
    "s": st.tuples(st.integers(-2, 3), st.sampled_from([0.1, -0.5, 1e300])),
}
EVENTS = st.sampled_from(["r", "r", "r", "s"]).flatmap(
    lambda name: st.tuples(st.just(name), ROWS[name], st.booleans(), st.integers(0, 9))
)
TRANSACTIONS = st.lists(
    st.tuples(st.sampled_from(["trigger", "rows", "block"]), st.lists(EVENTS, max_size=4)), max_size=8
)


class Sum(Counter):
    """A bag of rows that changes are added to."""

    def add(self, changes: Iterable[cumulus.Change]) -> None:
        for old, new in changes:
            assert old != new, "a change changes something"
            if old is not None:
                assert self[old] > 0, f"{old} went, but was not there"
                self[old] -= 1
            if new is not None:
                self[new] += 1

    @property
    def rows(self) -> dict:
        return {row: count for row, count in self.items() if count}


def run(wh, transactions) -> Iterable[None]:
    """Apply transactions to a warehouse; a deletion takes a row that is there."""
    there: dict[str, list] = {"r": [], "s": []}
    for way, events in transactions:
        changes = []
        for name, row, comes, which in events:
            sign = 1 if comes or not there[name] else -1
            if sign > 0:
                there[name].append(row)
            else:
                row = there[name].pop(which % len(there[name]))
            changes.append((sign, name, row))
        if way == "trigger":
            for sign, name, row in changes:
                wh.trigger(name)(sign, *row)
                yield
        elif way == "rows":
            for sign, name, row in changes:
                (wh.insert if sign > 0 else wh.delete)(name, [row])
                yield
        else:
            wh.apply(changes, per="call")
        yield


PROGRAM = cumulus.compile(SQL)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@settings(max_examples=10, deadline=None)
@given(transactions=TRANSACTIONS, before=st.integers(0, 3), few=st.sampled_from([0, transaction_notes.FEW]))
def test_all_that_is_told_adds_up_to_the_view(engine, transactions, before, few) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_notes, "FEW", few)  # 0 reads all notes as columns
        _adds_up(engine, transactions, before)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_a_row_that_goes_and_comes_in_one_transaction_may_leave_a_window(engine: str) -> None:
    """Of rows that LIMIT chooses without an order, those are shown that come first in the map."""
    here = {None: (None, None, None, None), 0: (None, 0, None, None), 1: (None, 1, None, None)}
    came = [("trigger", [("r", here[x], True, 0)]) for x in (0, None, 0, 1)]
    _adds_up(engine, [*came, ("block", [("r", here[None], False, 1), ("r", here[None], True, 0)])], 0)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(transactions=TRANSACTIONS, few=st.sampled_from([0, transaction_notes.FEW]))
def test_all_that_is_told_adds_up_often(transactions, few) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_notes, "FEW", few)
        _adds_up("native", transactions, 0)


def _adds_up(engine, transactions, before) -> None:
    wh = cumulus.Warehouse(PROGRAM, engine=engine)
    for _ in run(wh, transactions[:before]):
        pass
    heard = {view: Sum(wh.view(view).rows()) for view in VIEWS}
    read = {view: Sum() for view in VIEWS}
    numbers = {view: [-1] for view in VIEWS}
    told = {view: wh.changes(view, snapshot=True, timeout=0) for view in VIEWS}
    for view in VIEWS:
        wh.subscribe(view, heard[view].add)

    def drain(view: str) -> None:
        for change in told[view]:
            if not change.is_snapshot:
                assert change.since == numbers[view][-1]
                assert change.since < change.number <= wh.transaction_number
                assert change.rows
            numbers[view].append(change.number)
            read[view].add(change)

    for _ in run(wh, transactions[before:]):
        for view in VIEWS:
            shown = dict(Counter(wh.view(view).rows()))
            assert heard[view].rows == shown, view
            drain(view)
            assert read[view].rows == shown, view
    for view in VIEWS:
        again = Sum()
        again.add(wh.changes(view, snapshot=True).next(0))
        assert again.rows == dict(Counter(wh.view(view).rows()))


@settings(max_examples=15, deadline=None)
@given(transactions=TRANSACTIONS, looks=st.lists(st.integers(0, 3)), kept=st.integers(1, 4))
def test_who_reads_slowly_gets_sums_and_loses_nothing(transactions, looks, kept) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_streams, "KEPT", kept)
        wh = cumulus.Warehouse(PROGRAM, engine="interpreter")
        views = ("sums", "bag", "top")
        told = {view: wh.changes(view, timeout=0) for view in views}
        read = {view: Sum() for view in views}
        pace = iter(looks)
        for _ in run(wh, transactions):
            for view in views:
                for _ in range(next(pace, 0)):
                    change = told[view].next(0)
                    if change is not None:
                        read[view].add(change)
        for view in views:
            last = 0
            for change in told[view]:
                assert change.number > last
                last = change.number
                read[view].add(change)
            assert read[view].rows == dict(Counter(wh.view(view).rows())), view


def top(keep: str = "auto") -> cumulus.Warehouse:
    return cumulus.Warehouse(
        "CREATE TABLE t (g INT, x INT);"
        "CREATE VIEW top AS SELECT g, SUM(x) AS s FROM t GROUP BY g ORDER BY s DESC LIMIT 1",
        keep=keep,
    )


def test_a_subscription_hears_what_a_view_with_a_limit_shows() -> None:
    wh, heard = top(), []
    wh.insert("t", [(1, 10)])
    wh.subscribe("top", heard.append)
    wh.insert("t", [(2, 5)])
    assert heard == []
    wh.insert("t", [(3, 20)])
    wh.insert("t", [(3, 1)])
    wh.delete("t", [(3, 20), (3, 1)])
    change = cumulus.Change
    assert heard == [
        [change((1, 10), None), change(None, (3, 20))],
        [change((3, 20), (3, 21))],
        [change((3, 21), None), change(None, (1, 10))],
    ]


def test_many_changes_of_a_view_with_a_limit_are_told_as_few() -> None:
    wh, heard = top(), []
    wh.insert("t", [(g, g) for g in range(5000)])
    wh.subscribe("top", heard.extend)
    wh.insert("t", [(g, 1) for g in range(4000)])
    assert heard == []
    wh.insert("t", [(g, 10_000) for g in range(4000)])
    assert heard == [cumulus.Change((4999, 4999), None), cumulus.Change(None, (3999, 14_000))]


def test_since_goes_on_where_somebody_stopped(monkeypatch) -> None:
    wh = top()
    wh.insert("t", [(1, 1)])
    assert wh.transaction_number == 1
    first = wh.changes("top", timeout=0)
    assert list(first) == []
    for x in range(3):
        wh.insert("t", [(1, x + 1)])
    assert [change.number for change in wh.changes("top", since=2, timeout=0)] == [3, 4]
    assert [(change.number, change.is_snapshot) for change in wh.changes("top", since=1, snapshot=True, timeout=0)] == [
        (2, False),
        (3, False),
        (4, False),
    ]
    assert list(wh.changes("top", since=4, timeout=0)) == []
    with pytest.raises(errors.HistoryError, match="only those after 1"):
        wh.changes("top", since=0)
    (snapshot,) = wh.changes("top", since=0, snapshot=True, timeout=0)
    assert (snapshot.is_snapshot, snapshot.number, snapshot.rows) == (True, 4, [cumulus.Change(None, (1, 7))])
    for bad in (5, -1, "2", True):
        with pytest.raises(errors.UsageError, match="last transaction is number 4"):
            wh.changes("top", since=bad)
    with pytest.raises(errors.UnknownNameError):
        wh.changes("nowhere")
    monkeypatch.setattr(change_streams, "KEPT", 2)
    wh.insert("t", [(1, 1)])
    with pytest.raises(errors.HistoryError):
        wh.changes("top", since=2)
    assert [change.number for change in first] == [3, 4, 5], "the sum of two, and two"
    first.close()
    wh.insert("t", [(1, 1)])
    with pytest.raises(errors.HistoryError):
        wh.changes("top", since=5)


def test_changes_have_the_form_of_those_of_an_epoch() -> None:
    wh = cumulus.Warehouse(
        "CREATE TABLE r (x INT); CREATE VIEW v AS SELECT x FROM r; CREATE VIEW w AS SELECT x AS change FROM r"
    )
    with wh.changes("v") as changes, wh.changes("w") as others:
        wh.insert("r", [(1,), (1,), (2,)])
        table = changes.next(0).arrow()
        assert table.schema.names == ["x", "change"]
        assert str(table.schema.field("change").type) == "int64"
        assert sorted(map(tuple, (row.values() for row in table.to_pylist()))) == [(1, 2), (2, 1)]
        wh.update("r", [(1,)], [(2,)])
        assert sorted(tuple(row.values()) for row in changes.next(0).arrow().to_pylist()) == [(1, -1), (2, 1)]
        with pytest.raises(errors.UsageError, match="column 'change' of its own"):
            others.next(0).arrow()


def test_who_iterates_waits_in_a_thread_of_its_own_and_in_asyncio() -> None:
    wh = top()
    totals: dict[str, list] = {"thread": [], "async": []}

    def follow() -> None:
        with wh.changes("top", snapshot=True) as changes:
            begun.release()
            for change in changes:
                totals["thread"] += [row.new[1] for row in change]
                if totals["thread"][-1:] == [100]:
                    return

    async def follow_async() -> None:
        with wh.changes("top", snapshot=True) as changes:
            begun.release()
            async for change in changes:
                totals["async"] += [row.new[1] for row in change]
                if totals["async"][-1:] == [100]:
                    return

    begun = threading.Semaphore(0)
    readers = [threading.Thread(target=follow), threading.Thread(target=lambda: asyncio.run(follow_async()))]
    for reader in readers:
        reader.start()
        assert begun.acquire(timeout=10)
    for _ in range(100):
        wh.insert("t", [(1, 1)])
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()
    assert totals["thread"] == totals["async"] == list(range(1, 101))


def test_a_stream_ends_after_a_time_or_when_it_is_closed_and_never_waits_for_its_own_thread() -> None:
    wh = top()
    changes = wh.changes("top", timeout=0.02)
    before = time.monotonic()
    assert list(changes) == []
    assert time.monotonic() - before >= 0.02

    async def none() -> list:
        return [change async for change in changes]

    assert asyncio.run(none()) == []
    with wh.transaction(), pytest.raises(errors.UsageError, match="for itself"):
        changes.next()
    waiting = wh.changes("top")
    threading.Timer(0.05, waiting.close).start()
    assert list(waiting) == []
    assert "closed" in repr(waiting)


def test_nothing_is_noted_for_whom_there_is_none_any_more() -> None:
    wh = top()
    on = wh.trigger("t")
    subscription = wh.subscribe("top", lambda changes: subscription.cancel())
    stream = wh.changes("top")
    on(+1, 1, 1)
    on(+1, 1, 1)
    assert wh.stats().stepped == 2
    assert stream.next(0).rows
    stream.close()
    on(+1, 1, 1)
    on(+1, 1, 1)
    assert wh.stats().stepped == 3, "the one after the last has gone is told nobody"
    assert not wh._state.session.engine.transactions.watched
    wh.changes("top")  # nobody has it
    on(+1, 1, 1)
    on(+1, 1, 1)
    assert wh.stats().stepped == 4


def test_subscribers_outlive_a_change_of_the_views() -> None:
    wh, heard = top(keep="all"), []
    wh.insert("t", [(1, 10)])
    wh.subscribe("top", heard.extend)
    stream = wh.changes("top", timeout=0)
    wh.execute("CREATE VIEW more AS SELECT COUNT(*) AS n FROM t WHERE FALSE")
    wh.insert("t", [(2, 20)])
    expected = [cumulus.Change((1, 10), None), cumulus.Change(None, (2, 20))]
    assert heard == expected
    assert [change.rows for change in stream] == [expected]
    with pytest.raises(errors.UsageError, match="top has subscribers"):
        wh.execute("DROP VIEW top")


@pytest.mark.parametrize(
    ("sql", "view"),
    [
        ("DROP VIEW v; CREATE VIEW v AS SELECT x, g FROM t", "v"),
        ("CREATE OR REPLACE VIEW v AS SELECT g, x + 1 AS x FROM t", "w"),
    ],
)
def test_a_view_is_not_made_another_one_while_somebody_listens(sql, view) -> None:
    """Its rows would be others, and nobody would be told how they came to be so."""
    wh = cumulus.Warehouse(
        "CREATE TABLE t (g INT, x INT); CREATE VIEW v AS SELECT g, x FROM t; CREATE VIEW w AS SELECT x FROM v",
        keep="all",
    )
    wh.execute("DROP VIEW w; CREATE VIEW w AS SELECT x FROM v")
    with wh.changes(view), pytest.raises(errors.UsageError, match=f"{view} has subscribers"):
        wh.execute(sql if view == "w" else f"DROP VIEW w; {sql}")
    with wh.changes("v", timeout=0) as changes:
        wh.execute("CREATE OR REPLACE VIEW v AS SELECT g, x FROM t")
        wh.insert("t", [(1, 2)])
        assert [change.rows for change in changes] == [[cumulus.Change(None, (1, 2))]]


def test_a_time_that_no_clock_has_is_waited_for_all_the_same() -> None:
    wh = top()
    changes = wh.changes("top", timeout=1e12)
    threading.Timer(0.05, wh.insert, ("t", [(1, 1)])).start()
    assert next(changes).rows == [cumulus.Change(None, (1, 1))]


def test_errors_that_nobody_reads_are_not_kept_one_by_one(monkeypatch) -> None:
    monkeypatch.setattr(change_streams, "KEPT", 3)
    wh = cumulus.Warehouse(
        "CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, 10 // SUM(x) AS q FROM r GROUP BY a"
    )
    slow = wh.changes("v")
    for number in range(10):
        wh.insert("r", [(number, 5), (number, -5)])
    assert len(slow._log.entries) <= 3
    with pytest.raises(errors.EvaluationError):
        slow.next(0)


def test_ctrl_c_of_who_changes_is_not_that_of_who_reads() -> None:
    wh = top()
    stream = wh.changes("top")

    def interrupt(number: int, rows: list) -> None:
        raise KeyboardInterrupt

    wh.execute("CREATE VIEW other AS SELECT COUNT(*) AS n FROM t")
    others = wh.changes("other")
    stream._log.take = interrupt  # while the first is told
    with pytest.raises(KeyboardInterrupt):
        wh.insert("t", [(1, 1)])
    with pytest.raises(errors.HistoryError, match="in transaction 1 are not known: finding them was interrupted"):
        others.next(0)


@pytest.mark.parametrize("limit", ["", " ORDER BY g LIMIT 3"])
def test_who_comes_after_a_reading_that_failed_is_told_each_change_once(limit: str) -> None:
    """And who was there before is told what that reading has left untold."""
    is_broken = False

    @cumulus.function
    def shown(x: int) -> int:
        if is_broken:
            raise ValueError("not now")
        return x

    wh = cumulus.Warehouse(
        f"""CREATE TABLE r (g INT, x INT);
        CREATE VIEW v AS SELECT g, shown(CAST(SUM(x) AS BIGINT)) AS s FROM r GROUP BY g{limit}""",
        functions=[shown],
    )
    told: list[cumulus.Change] = []
    wh.subscribe("v", told.extend)
    with wh.changes("v", timeout=0) as early:
        wh.insert("r", [(1, 5)])
        is_broken = True
        with pytest.raises(errors.EvaluationError, match="not now"):
            wh.insert("r", [(2, 6)])
        is_broken = False
        with wh.changes("v", snapshot=True, timeout=0) as late:
            wh.insert("r", [(3, 7)])
            wh.delete("r", [(1, 5)])
            assert added_up(change for each in late for change in each.rows) == Counter(wh.view("v").rows())
        with pytest.raises(errors.EvaluationError):
            list(early)
    if limit:
        assert added_up(told) == Counter(wh.view("v").rows())


def added_up(changes: Iterable[cumulus.Change]) -> Counter[tuple]:
    """Return the rows that are there after changes, which must take away only what is there."""
    there = Counter[tuple]()
    for change in changes:
        there.update([] if change.new is None else [change.new])
        there.subtract([] if change.old is None else [change.old])
    assert all(count >= 0 for count in there.values())
    return +there


def test_what_cannot_be_computed_ends_a_stream_and_is_raised_for_a_callback() -> None:
    wh = cumulus.Warehouse(
        "CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, 10 // SUM(x) AS q FROM r GROUP BY a"
    )
    stream = wh.changes("v")
    wh.insert("r", [(1, 5)])
    wh.insert("r", [(1, -5)])
    assert stream.next(0).rows == [cumulus.Change(None, (1, 2))]
    with pytest.raises(errors.EvaluationError, match="view v at"):
        stream.next(0)
    assert stream.next(0) is None
    wh.insert("r", [(1, 1)])
    assert wh.changes("v", snapshot=True).next(0).rows == [cumulus.Change(None, (1, 10))]


def test_the_number_of_transactions_is_saved(tmp_path) -> None:
    wh = top()
    on = wh.trigger("t")
    for x in range(5):
        on(+1, 1, x)
    wh.insert("t", [(1, 1), (2, 2)])
    wh.apply([(1, "t", (1, 1)), (1, "t", (1, 1))])
    assert wh.transaction_number == 8
    wh.save(tmp_path / "saved")
    again = cumulus.Warehouse.load(tmp_path / "saved")
    assert again.transaction_number == 8
    assert list(again.changes("top", since=8, timeout=0)) == []
    with pytest.raises(errors.HistoryError):
        again.changes("top", since=7)
