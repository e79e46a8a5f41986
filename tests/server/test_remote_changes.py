"""The changes of a view, told to a client over HTTP."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cumulus import between
from cumulus.errors import HistoryError, NotRunningError, UnknownNameError, UsageError
from support.http_server import running


def added(held: Counter[Any], changes: Any) -> Counter[Any]:
    for old, new in changes:
        held.subtract([old] if old is not None else [])
        held.update([new] if new is not None else [])
    return +held


def test_all_changes_added_up_are_the_view(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as client:
        client.insert("orders", [(1, "a", "1.50", dt.date(2026, 1, 1)), (2, "b", "2.00", None)])
        with client.changes("sales", snapshot=True) as changes:
            first = next(changes)
            assert (first.is_snapshot, first.number, changes.at) == (True, 1, 1)
            held = added(Counter(), first)
            assert held == Counter(client.view("sales").rows())
            client.delete("orders", [(1, "a", "1.50", dt.date(2026, 1, 1))])
            second = next(changes)
            assert (second.is_snapshot, second.since, second.number) == (False, 1, 2)
            assert [(old, new) for old, new in second] == [(("a", 1, Decimal("1.50"), 1.5), None)]
            assert second.arrow().to_pylist()[0]["change"] == -1
            assert added(held, second) == Counter(client.view("sales").rows())


def test_a_selection_hears_of_its_rows_alone_and_resumes(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as client:
        asked: Any = {"columns": ["n"], "where": {"day": between(dt.date(2026, 1, 1))}}
        with client.changes("days", **asked, snapshot=True) as changes:
            assert list(next(changes)) == []
            client.insert("orders", [(1, "a", "1.50", dt.date(2025, 1, 1)), (2, "a", "1", dt.date(2026, 1, 2))])
            assert list(next(changes)) == [(None, (1,))]
            at = changes.at
        client.insert("orders", [(3, "a", "1", dt.date(2026, 1, 2))])
        with client.changes("days", **asked, since=at, every="10ms") as changes:
            assert sorted(map(str, next(changes))) == sorted(
                ["Change(old=(1,), new=None)", "Change(old=None, new=(2,))"]
            )


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\r"])
def test_texts_may_have_any_end_of_a_line(tmp_path: Path, end: str) -> None:
    with running(tmp_path) as server, server.client() as client, client.changes("sales", snapshot=True) as changes:
        next(changes)
        client.insert("orders", [(1, f"a{end}b", "1.50", None)])
        assert [new for _, new in next(changes)] == client.view("sales").rows()


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client(timeout_s=1)
        with pytest.raises(UnknownNameError):
            client.changes("nothing")
        with pytest.raises(UsageError, match="since=7"):
            next(client.changes("sales", since=7))
        for number in range(3):
            client.insert("orders", [(number, "a", "1", None)])
        with pytest.raises(HistoryError, match="not kept any more"):
            next(client.changes("sales", since=1))
        changes = client.changes("sales", snapshot=True)
        next(changes)
    with pytest.raises(NotRunningError):  # the server has ended; it was waited for
        next(changes)


def test_it_goes_on_when_the_server_is_back(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        port, client = server.port, server.client(timeout_s=20)
        changes = client.changes("sales", snapshot=True)
        next(changes)
    with running(tmp_path, port=port) as server:
        client.insert("orders", [(1, "a", "1", None)])
        told = next(changes)
        assert (told.number, [new for _, new in told]) == (1, [("a", 1, Decimal("1.00"), 1.0)])
        changes.close()
        client.close()
