"""A warehouse is closed at the end of its ``with``, or by `close`: what comes after that is one named error."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

import cumulus
from cumulus import errors

SQL = "CREATE TABLE r (a BIGINT NOT NULL, t VARCHAR); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a"


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_what_is_done_with_a_closed_warehouse_is_a_named_error(engine, tmp_path) -> None:
    with cumulus.Warehouse(SQL, engine=engine) as wh:
        on, view = wh.trigger("r"), wh.view("v")
        on(+1, 1, "é")
        wh.insert("r", [(1, "a"), (2, "b")])
        subscription = wh.subscribe("v", print)
        stream, later = wh.changes("v"), wh.changes("v")
        wh.insert("r", [(2, "b")])
        rows, table = view.rows(), view.arrow()
    calls = [
        lambda: wh.insert("r", [(1, "a")]),
        lambda: wh.upsert("r", [(1, "a")]),
        lambda: wh.update("r", [(1, "a")], [(1, "b")]),
        lambda: wh.apply([(1, "r", (1, "a"))]),
        lambda: wh.fill({"r": [(1, "a")]}),
        lambda: on(+1, 1, "a"),
        lambda: wh.trigger("r"),
        lambda: wh.transaction().__enter__(),
        view.rows,
        view.arrow,
        lambda: view.get(1),
        lambda: wh.view("v"),
        lambda: wh.query("SELECT * FROM v"),
        lambda: wh.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM r"),
        lambda: wh.subscribe("v", print),
        lambda: wh.changes("v"),
        lambda: wh.save(tmp_path / "saved"),
        lambda: wh.explain("v"),
        lambda: wh.recheck(),
        lambda: wh.transaction_number,
        lambda: wh.tables,
        lambda: wh.views,
        lambda: wh.program,
        lambda: wh.m3,
        wh.stats,
        wh.errors,
    ]
    for call in calls:
        with pytest.raises(errors.ClosedError, match="Open a new one"):
            call()
    assert repr(wh) == "Warehouse(closed)"
    wh.close()  # once more does no harm
    assert sorted(rows) == sorted(map(tuple, (row.values() for row in table.to_pylist()))) == [(1, 2), (2, 2)]
    assert [change.rows for change in stream] == [[cumulus.Change((2, 1), (2, 2))]], "what was there before the end"
    later.close()
    subscription.cancel()


def test_a_warehouse_is_saved_and_loaded_where_others_are_pickled() -> None:
    wh = cumulus.Warehouse(SQL)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(errors.UsageError, match="save"):
            way(wh)


def test_memory_is_given_back_at_once() -> None:
    wh = cumulus.Warehouse(SQL)
    on = wh.trigger("r")
    wh.insert("r", [(number, str(number)) for number in range(20_000)])
    engine = wh._state.session.engine
    assert engine.memory() > 1_000_000
    wh.close()
    assert engine.code.image._free.alive is False
    with pytest.raises(errors.ClosedError):
        on(+1, 1, "a")


def test_closing_waits_for_its_turn_and_ends_who_waits() -> None:
    wh = cumulus.Warehouse(SQL)
    inside, told = threading.Event(), []

    def hold() -> None:
        with wh.transaction():
            wh.insert("r", [(1, "a")])
            inside.set()
            threading.Event().wait(0.05)
        told.append("committed")

    def follow() -> None:
        told.extend(change.rows for change in changes)

    changes = wh.changes("v")
    threads = [threading.Thread(target=hold), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    wh.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(told) == 2
    assert "committed" in told
    assert [cumulus.Change(None, (1, 1))] in told


def test_a_warehouse_is_not_closed_while_it_is_used() -> None:
    wh = cumulus.Warehouse(SQL)
    with wh.transaction(), pytest.raises(errors.UsageError, match="while it is used"):
        wh.close()
    wh.subscribe("v", lambda changes: wh.close())
    with pytest.raises(errors.UsageError, match="while it is used"):
        wh.insert("r", [(1, "a")])
    assert wh.view("v").rows() == [(1, 1)]
