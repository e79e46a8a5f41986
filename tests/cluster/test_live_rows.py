"""Rows that clients send to switches: each counts once, in the epoch that was told, in spread views and gated ones."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import DELETE, INSERT, OP_COLUMN, POSITION_COLUMN, UPSERT
from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.gate import Gate
from cumulus.cluster.intake import Intake
from cumulus.cluster.live.client_rows import messages_of, rows_to_send
from cumulus.cluster.machine_tasks import ListFiles, Payloads, ReadFiles, SaveState
from cumulus.cluster.messages import (
    ClientRows,
    EpochCommit,
    EpochEnd,
    EpochTurn,
    EpochWanted,
    RequestRefused,
    RowsAccepted,
    RowsHeld,
    switch_name,
)
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.publisher import Publisher
from cumulus.engine.engines import make_engine
from cumulus.epochs.bucket.outcome import merged_outcomes
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.query import query
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.machine import Completed, Forget, Name, Perform, Received, Recovered, Tick
from cumulus_lab.simulation import ScriptedClient
from support.cluster_world import run_cluster
from support.one_switch import PROGRAM, SCRIPT, TABLES, VIEWS, amounts, ended, records, sent, sent_rows, switch_of
from support.orders_stream import json_lines
from support.tiers import examples


class RandomClient(ScriptedClient):
    """Sends random rows, some of them twice; no other client changes the same people."""

    def __init__(self, plan: ClusterPlan, draw: random.Random, people: range) -> None:
        super().__init__()
        self.changes: dict[tuple[Name, int], tuple[str, int, list[tuple[Any, ...]]]] = {}
        numbers: dict[Name, int] = {}
        sales: list[tuple[int, int]] = []
        at = 0
        for place in range(draw.randrange(10, 30)):
            at += 150 if place < 5 else draw.choice((0, 5, 40))  # so there are epochs enough
            table, op, rows = "people", UPSERT, [(draw.choice(people), draw.choice("xyz"))]
            if draw.random() < 0.7:
                table, op = "sales", INSERT
                rows = [(draw.choice((*people, 50)), draw.randrange(5)) for _ in range(draw.randrange(1, 4))]
                sales += rows
                if len(sales) > 9:
                    op, rows = DELETE, [sales.pop(0)]
            name = switch_name(plan.tables.switch_of[table])
            numbers[name] = number = numbers.get(name, 0) + 1
            self.changes[name, number] = table, op, rows
            message = ClientRows(number, table, to_ipc(rows_to_send(PROGRAM.relation(table), op, rows)))
            self._lines += [(at, name, message)] * draw.choice((1, 1, 2))

    def epochs(self) -> dict[tuple[Name, int], int]:
        """Return the epochs of what was accepted, by switch and number."""
        found: dict[tuple[Name, int], int] = {}
        for sender, message in self.heard:
            assert isinstance(message, RowsAccepted), message
            if (sender, message.number) in found:  # sent twice
                assert message.epoch >= found[sender, message.number]
            else:
                found[sender, message.number] = message.epoch
        return found


def expected(clients: list[RandomClient], epoch: int, initial: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return what views show after an epoch, computed from the tables."""
    people = {each["p"]: each["town"] for each in initial}
    sales: list[tuple[Any, ...]] = []
    for client in clients:
        epochs = client.epochs()
        for place, (table, op, rows) in client.changes.items():
            if epochs.get(place, epoch + 1) > epoch:
                continue
            for row in rows:
                if table == "people":
                    people[row[0]] = row[1]
                elif op == INSERT:
                    sales.append(row)
                else:
                    sales.remove(row)
    connection = duckdb.connect()
    connection.execute(TABLES)
    for table, found in (("people", list(people.items())), ("sales", sales)):
        if found:
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", found)
    return {name: sorted(connection.execute(select).fetchall()) for name, select in VIEWS.items()}


@pytest.mark.parametrize("mode", [Mode.EVENTUAL, Mode.GATED])
@pytest.mark.parametrize("seed", range(examples(8)))
def test_views_of_every_epoch_are_those_of_the_rows_that_were_accepted_for_it(
    seed: int, mode: Mode, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    nodes, switches = draw.choice((1, 2, 3)), draw.choice((1, 2))
    plan = plan_cluster(PROGRAM, nodes, switches, mode)
    clients = {f"client{at}": RandomClient(plan, draw, range(4 * at, 4 * at + 4)) for at in range(2)}
    initial = [{"p": 50, "town": "x"}, {"p": 51, "town": "y"}] if draw.random() < 0.5 else []
    if initial:
        json_lines(tmp_path / "people" / "1.json", initial)
    sources = [FolderSource("people", str(tmp_path / "people"))] if initial else []
    out = tmp_path / "out"
    settings: dict[str, Any] = {"nodes": nodes, "switches": switches, "mode": mode, "engine": "interpreter"}
    run_cluster(PROGRAM, sources, out, seed=seed, clients=clients, every_ms=100, last=4, **settings)
    epochs = committed_epochs(out)
    assert epochs == [1, 2, 3, 4]
    for epoch in epochs:
        manifest = read_manifest(out, epoch)
        assert not manifest.counts.get("quarantined")
        for name, rows in expected(list(clients.values()), epoch, initial).items():
            found = query(out, f"SELECT * FROM {name}", epoch)
            assert sorted(map(tuple, (each.values() for each in found.to_pylist()))) == rows, (epoch, name)


# --- one switch -----------------------------------------------------------------------------------------------------


def test_a_new_life_takes_in_what_was_accepted_and_nothing_twice(tmp_path: Path) -> None:
    first = switch_of(tmp_path)
    taken = first.step([sent_rows(1, 10)]) + ended(first, 1) + first.step([sent_rows(2, 20)])
    assert [(each.number, each.epoch) for each in sent(taken, RowsAccepted)] == [(1, 1), (2, 2)]
    log = records(taken)
    assert len(log) == 3

    second = switch_of(tmp_path)
    again = second.step([Recovered(1, log)])
    assert amounts(again) == amounts(taken)[: len(amounts(again))]
    held = second.step([sent_rows(2, 20)])
    assert [each.number for each in sent(held, RowsHeld)] == [2]
    again += held + ended(second, 1)
    assert [(each.number, each.epoch) for each in sent(again, RowsAccepted)] == [(2, 2)]
    assert not records(again)
    assert sorted(amounts(again)) == sorted(amounts(taken))
    assert sent(again, EpochEnd) == sent(taken, EpochEnd)
    both = ended(first, 2), ended(second, 2)
    assert sent(both[0], EpochEnd) == sent(both[1], EpochEnd)


def test_rows_are_in_no_earlier_epoch_than_what_was_accepted_in_a_life_before(tmp_path: Path) -> None:
    """Or a deletion could come an epoch before the insertion that its client saw accepted."""
    first = switch_of(tmp_path)
    log = records(ended(first, 1) + first.step([sent_rows(1, 10)]))
    second = switch_of(tmp_path)
    second.step([Recovered(1, log)])
    held = second.step([sent_rows(2, 20)])
    assert [each.reason for each in sent(held, RowsHeld)] == [
        "it has just been started, and what it had is not in again yet"
    ]
    assert not sent(held, RowsAccepted)
    assert [(each.number, each.epoch) for each in sent(ended(second, 1), RowsAccepted)] == [(2, 2)]


def test_what_was_accepted_stays_in_the_log_when_the_epoch_before_was_read_anew(tmp_path: Path) -> None:
    first = switch_of(tmp_path)
    log = records(first.step([sent_rows(1, 10)]) + ended(first, 1) + first.step([sent_rows(2, 20)]))
    second: Any = switch_of(tmp_path)
    second._log.least_bytes = 0
    second.step([Recovered(1, log)])
    again = second.step([Received("publisher", EpochTurn(1, {}, False, 7))])
    again += second.step([Completed(ReadFiles(1, {}), Payloads([b""], b""))])
    assert len(records(again)) == 1
    saves = [each.task for each in again if isinstance(each, Perform) and isinstance(each.task, SaveState)]
    second.step([Completed(saves[0], None)])
    forgotten = second.step([Received("publisher", EpochCommit(1))])
    assert [each.number for each in forgotten if isinstance(each, Forget)] == [2]  # the third is accepted in epoch 2


def test_who_sends_something_else_than_rows_of_the_table_is_told_and_nothing_changes(tmp_path: Path) -> None:
    switch = switch_of(tmp_path)
    good = sent_rows(1, 10).message.rows
    table = from_ipc(good)
    others = {
        "p": pa.array([None], pa.int32()),
        "amount": pa.array([1.5]),
        OP_COLUMN: pa.array([UPSERT], pa.int8()),  # sales has no key
        POSITION_COLUMN: pa.array([None], pa.int64()),
    }
    changed = [table.set_column(table.schema.get_field_index(name), name, each) for name, each in others.items()]
    wrong = [("sale", good), ("people", good), ("sales", good[:-20]), *(("sales", to_ipc(each)) for each in changed)]
    for number, (name, data) in enumerate(wrong, 1):
        effects = switch.step([Received("client", ClientRows(number, name, data))])
        (refused,) = sent(effects, RequestRefused)
        assert refused.number == number
        assert len(effects) == 1
    assert sent(switch.step([sent_rows(1, 10)]), RowsAccepted)


def test_rows_wait_for_static_tables_and_for_room(tmp_path: Path) -> None:
    switch = switch_of(tmp_path, SCRIPT.replace("town VARCHAR)", "town VARCHAR) WITH (static = true)"), open_bytes=1)
    people = to_ipc(rows_to_send(PROGRAM.relation("people"), INSERT, [(1, "x")]))
    effects = switch.step([Received("other", ClientRows(1, "people", people)), sent_rows(1, 10)])
    assert not sent(effects, RowsAccepted)
    assert [each.reason for each in sent(effects, RowsHeld)] == ["its static tables are not loaded yet"] * 2
    effects = ended(switch, 1)
    (refused,) = sent(effects, RequestRefused)
    assert refused.reason == "people is STATIC: it takes no rows from clients"
    assert [each.epoch for each in sent(effects, RowsAccepted)] == [2]

    effects = switch.step([sent_rows(2, 20)])
    assert not sent(effects, RowsAccepted)
    assert "wait for their commit" in sent(effects, RowsHeld)[0].reason
    assert sent(effects, EpochWanted) == [EpochWanted(2, is_urgent=True)]
    assert not sent(ended(switch, 2), RowsAccepted)
    switch.step([Received("publisher", EpochCommit(1))])
    assert [each.epoch for each in sent(switch.step([Received("publisher", EpochCommit(2))]), RowsAccepted)] == [3]
    switch.check()


def test_a_gate_takes_calls_one_after_the_other_as_switches_do() -> None:
    """Of one file it might be that the deletion comes first, and the row is replaced; of two calls that is not so."""
    plan, tables = plan_cluster(PROGRAM, 1, 1, Mode.GATED), frozenset(("people",))
    assert plan.gate is not None
    engines = partial(make_engine, "interpreter")
    gate, intake = Gate(plan.division.gated, plan.gate.buckets, 0, engines), Intake(PROGRAM, tables, engines)
    sessions = ClientSessions(PROGRAM, tables, plan.gate.buckets, is_spread=True)
    people = PROGRAM.relation("people")
    place = 0
    for epoch, operations in enumerate(([INSERT], [INSERT, DELETE]), 1):
        calls = []
        for op in operations:
            place += 1
            sent = ClientRows(place, "people", to_ipc(rows_to_send(people, op, [(1, "x")])))
            reading = sessions.reading("client", sent, place, 0)
            calls += sessions.logged([reading], [("client", place)], epoch).gates
        found = (
            gate.apply(epoch, [b"".join(calls)]),
            merged_outcomes([intake.apply(epoch, [each])[0] for each in calls]),
        )
        assert [(each.applied, len(each.quarantine)) for each in found] == [(1, epoch - 1)] * 2
    assert [list(gate.bucket.engine.items(name)) for name in dict(gate.bucket.program.kept).values()][:1] == [[]]


def test_an_epoch_that_clients_wait_for_does_not_wait_for_its_time() -> None:
    publisher = Publisher(1, 1, "watcher", 0, {}, every_ms=60_000)
    listed = Completed(ListFiles(1, {}), None)
    publisher.step([Received("switch0", EpochWanted(1))])
    assert sent(publisher.step([listed]), EpochTurn) == [EpochTurn(1, {}, False, 1)]
    for now, is_urgent in ((1000, False), (2000, True)):
        effects = publisher.step([Tick(now), Received("switch0", EpochWanted(2, is_urgent))])
        assert [each for each in effects if isinstance(each, Perform)] == [Perform(ListFiles(2, {}))] * is_urgent
    assert sent(publisher.step([listed]), EpochTurn) == [EpochTurn(2, {}, False, 2)]
    assert publisher.step([Tick(3000), Received("switch0", EpochWanted(2, is_urgent=True))]) == []  # it has begun


def test_of_many_clients_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.cluster.clients.client_sessions.MOST_CLIENTS", 2)
    sessions = ClientSessions(PROGRAM, frozenset(("sales",)), None, is_spread=True)
    first, third = (ClientRows(number, "sales", b"") for number in (1, 3))
    for epoch, client in enumerate("abac", 1):
        sessions.note(first.sender(client)[0], epoch, epoch)
    assert [sessions.epoch_of(client, first) for client in "abc"] == [3, None, 4]
    assert sessions.epoch_of("a", ClientRows(1, "people", b"")) is None, "each table has numbers of its own"
    other = ClientSessions(PROGRAM, frozenset(("sales",)), None, is_spread=True)
    other.load(sessions.save(), sessions.forgotten)
    assert [other.epoch_of(client, third) for client in "abc"] == [3, None, 4]


def test_what_an_earlier_release_knows_of_a_client_goes_for_all_tables() -> None:
    sessions = ClientSessions(PROGRAM, frozenset(("sales",)), None, is_spread=True)
    sessions.load({"a": (2, 7)}, 0)
    assert [sessions.epoch_of("a", ClientRows(number, "sales", b"")) for number in (1, 2, 3)] == [7, 7, None]
    assert sessions.epoch_of("a", ClientRows(1, "sales", b"", -1, "loader", 1)) is None


def test_rows_under_a_name_and_a_number_count_once_whoever_sends_them(tmp_path: Path) -> None:
    """Two clients send the same; a new life of the switch, and one from a snapshot, know it."""
    switch = switch_of(tmp_path)
    rows = to_ipc(rows_to_send(PROGRAM.relation("sales"), INSERT, [(1, 5)]))

    def told(machine: Any, client: str, number: int, writing: int, writer: str = "loader") -> list[Any]:
        effects = machine.step([Received(client, ClientRows(number, "sales", rows, -1, writer, writing))])
        return [each.message for each in effects if getattr(each, "to", "") == client]

    assert told(switch, "a", 1, 7) == [RowsAccepted(1, 1)]
    assert told(switch, "b", 1, 7) == [RowsAccepted(1, 1)]
    assert told(switch, "b", 2, 6) == [RowsAccepted(2, 1)], "numbers ascend, so it is in"
    assert told(switch, "b", 3, 1, "another") == [RowsAccepted(3, 1)]
    assert told(switch, "b", 3, 1, "") == [RowsAccepted(3, 1)], "a client's own number has nothing to do with it"
    assert len(switch.state(1).clients) == 3
    assert switch.state(1).clients["writer loader"] == (7, 1)


@pytest.mark.parametrize(
    ("writer", "writing"),
    [("x" * 201, 1), ("x", 0), ("x", -1), ("x", 1 << 63)],
    ids=["long", "none", "negative", "large"],
)
def test_a_name_or_number_that_cannot_be_is_refused(tmp_path: Path, writer: str, writing: int) -> None:
    switch = switch_of(tmp_path)
    rows = to_ipc(rows_to_send(PROGRAM.relation("sales"), INSERT, [(1, 5)]))
    [refused] = sent(switch.step([Received("a", ClientRows(1, "sales", rows, -1, writer, writing))]), RequestRefused)
    assert "200 characters" in refused.hint


def test_names_of_writers_are_never_forgotten_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.cluster.clients.client_sessions.MOST_WRITERS", 2)
    monkeypatch.setattr("cumulus.cluster.clients.client_sessions.MOST_CLIENTS", 1)
    sessions = ClientSessions(PROGRAM, frozenset({"sales"}), None, is_spread=True)
    rows = to_ipc(rows_to_send(PROGRAM.relation("sales"), INSERT, [(1, 5)]))
    for at, name in enumerate("ab", 1):
        sessions.reading("c", ClientRows(at, "sales", rows, -1, name, 1), 1, 0)
        sessions.note(f"writer {name}", 1, 1)
        sessions.note(f"client {name}", 1, 1)
    known = (ClientRows(9, "sales", rows, -1, name, 1) for name in "ab")
    assert [sessions.epoch_of("any", each) for each in known] == [1, 1]
    with pytest.raises(RemoteProtocolError, match="2 others are known"):
        sessions.reading("c", ClientRows(3, "sales", rows, -1, "c", 1), 1, 0)
    other = ClientSessions(PROGRAM, frozenset({"sales"}), None, is_spread=True)
    other.load(sessions.save(), sessions.forgotten)
    assert other.save() == sessions.save()


@pytest.mark.parametrize("once", [("", 1), ("x", 0), ("x", True), ("x", 1 << 40), ("x",), "x", (1, 1), ("x", "1")])
def test_what_is_no_name_and_number_is_told(once: Any) -> None:
    relation = PROGRAM.relation("sales")
    with pytest.raises(UsageError, match="is no name and number"):
        list(messages_of(relation, rows_to_send(relation, INSERT, [(1, 5)]), once, lambda: 1))


def test_the_same_rows_are_the_same_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.cluster.live.client_rows.ROWS_AT_ONCE", 4)
    relation = PROGRAM.relation("sales")
    rows = rows_to_send(relation, INSERT, [(at, at) for at in range(10)])
    parts = [(each.writer, each.writing) for each in messages_of(relation, rows, ("x", 2), lambda: 1)]
    assert parts == [("sales/x", (2 << 16) + at) for at in range(3)]
