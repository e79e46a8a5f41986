"""Queries through a switch: whom it asks, behind which marks, and who waits for whom."""

from __future__ import annotations

from typing import Any

import pytest

from cumulus.cluster.clients import held_queries
from cumulus.cluster.clients.held_queries import HeldQueries
from cumulus.cluster.clients.query_messages import ForwardedQuery, Query, QueryAnswer, QueryCheckpoint, QueryMark
from cumulus.cluster.clients.switch_queries import MOST_AT_ONCE, SwitchQueries
from cumulus.cluster.messages import EntriesRead, ReadEntries, RequestRefused, RowsHeld, StatusAsked, StatusTold
from cumulus.cluster.mode import Mode
from cumulus.cluster.output_files import ListOutput, ReadOutput
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.epoch_routes import NodeRoutes
from cumulus.cluster.protocols.eventual import EventualNode
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.publisher import PUBLISHER
from cumulus.compiler import compile_sql
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Lost, Name, Received, Send

NODES = ("node0", "node1")
PROGRAM = compile_sql(
    "CREATE TABLE a (x INT); CREATE TABLE b (x INT, y INT);"
    "CREATE VIEW v AS SELECT y, COUNT(*) AS n FROM a JOIN b USING (x) GROUP BY y;",
    rely=False,
    enforced=False,
)


def queries(*, has_marks: bool = True) -> SwitchQueries:
    return SwitchQueries(NODES, PUBLISHER, has_marks=has_marks)


def question(number: int, node: Name = "node0") -> Query:
    return Query(number, node, ReadEntries(number, 0, [], b""))


def asked(found: SwitchQueries, client: Name, query: Query) -> list[Send]:
    return [*found.take(Received(client, query)), *found.forwarded(0, is_held=False)]


def test_a_query_stands_behind_a_mark_where_something_was_sent_and_is_not_committed() -> None:
    found = queries()
    first = ReadEntries(1, 0, [], b"")
    assert asked(found, "c", question(1)) == [Send("node0", ForwardedQuery(1, 0, 0, first))], "nothing was sent"
    found.note_sent(3)
    marks = [Send(node, QueryMark(1, 3)) for node in NODES]
    assert asked(found, "d", question(1, "node1")) == [*marks, Send("node1", ForwardedQuery(2, 3, 1, first))]
    assert asked(found, "e", question(1)) == [Send("node0", ForwardedQuery(3, 3, 1, first))], "the same mark does"
    found.note_sent(3)
    assert QueryMark(2, 3) in [each.message for each in asked(found, "f", question(1))]
    list(found.take(Received("g", question(1, "node1"))))
    assert list(found.forwarded(3, is_held=True)) == [], "what was accepted in a life before is not sent again"
    assert [each.message for each in found.forwarded(3, is_held=False)] == [ForwardedQuery(5, 0, 0, first)], "committed"
    found.reset()
    assert QueryMark(1, 3) in [each.message for each in asked(found, "c", question(2))], "marks begin anew"


def test_without_marks_the_end_of_the_epoch_is_waited_for() -> None:
    found = queries(has_marks=False)
    found.note_sent(7)
    assert asked(found, "c", question(1)) == [Send("node0", ForwardedQuery(1, 7, 0, ReadEntries(1, 0, [], b"")))]


def test_a_machine_that_does_not_answer_keeps_nobody_waiting_who_asks_others() -> None:
    found = queries()
    for at in range(MOST_AT_ONCE):
        assert len(asked(found, f"c{at}", question(1))) == 1
    [held] = asked(found, "late", question(5))
    assert isinstance(held.message, RowsHeld)
    assert held.message.reason == f"node0 has not answered {MOST_AT_ONCE} queries that came before"
    assert len(asked(found, "other", question(1, "node1"))) == 1
    assert found.facts() == {"queries": MOST_AT_ONCE + 1, "waiting_queries": 1}
    answer = EntriesRead(1, 0, b"", {})
    assert list(found.take(Received("node0", QueryAnswer(2, answer)))) == [Send("c1", answer)]
    assert [each.to for each in found.forwarded(0, is_held=False)] == ["node0"], "there is room now"


def test_who_has_left_or_asks_anew_gets_no_answer_to_what_was_asked_before() -> None:
    found = queries()
    asked(found, "gone", question(1))
    asked(found, "again", question(1))
    list(found.take(Lost("gone")))
    asked(found, "again", question(2))
    answer = EntriesRead(1, 1, b"", {})
    assert list(found.take(Received("node0", QueryAnswer(1, answer)))) == []
    assert list(found.take(Received("node0", QueryAnswer(2, answer)))) == []
    second = EntriesRead(2, 0, b"", {})
    assert list(found.take(Received("node0", QueryAnswer(3, second)))) == [Send("again", second)]
    for at in range(3, MOST_AT_ONCE + 1):
        asked(found, f"c{at}", question(1))
    asked(found, "late", question(1))
    list(found.take(Lost("late")))
    list(found.take(Received("node0", QueryAnswer(1, EntriesRead(1, 0, b"", {})))))
    assert list(found.forwarded(0, is_held=False)) == [], "who has left waits no more"


@pytest.mark.parametrize(
    "wrong",
    [
        question(1, "node2"),
        question(1, "switch0"),
        question(1, ""),
        Query(1, "node0", StatusAsked(1)),
        Query(1, "node0", b"bytes"),
        Query(1, "node0", None),
        Query(1, "node0", ReadEntries(2, 0, [], b"")),
        Query(1, "node0", question(1)),
        Query(1, PUBLISHER, ReadEntries(1, 0, [], b"")),
    ],
)
def test_what_nobody_is_asked_is_refused(wrong: Query) -> None:
    found = queries()
    [refused] = asked(found, "c", wrong)
    assert isinstance(refused.message, RequestRefused)
    assert refused.to == "c"
    assert found.facts() == {"queries": 0, "waiting_queries": 0}


@pytest.mark.parametrize("wanted", [ReadOutput(1, "x", 0, 1), ListOutput(1, "", ""), StatusAsked(1)])
def test_the_publisher_is_asked_without_a_mark(wanted: Any) -> None:
    found = queries()
    found.note_sent(3)
    assert asked(found, "c", Query(1, PUBLISHER, wanted)) == [Send(PUBLISHER, ForwardedQuery(1, 0, 0, wanted))]
    told = StatusTold(1, {})
    assert list(found.take(Received(PUBLISHER, QueryAnswer(1, told)))) == [Send("c", told)]


def test_an_answer_that_was_not_asked_for_is_an_error() -> None:
    found = queries()
    asked(found, "c", question(1))
    for machine, number in (("node1", 1), ("node0", 2)):
        with pytest.raises(RemoteProtocolError, match="which it was not asked"):
            list(found.take(Received(machine, QueryAnswer(number, EntriesRead(1, 0, b"", {})))))


ROUTES = NodeRoutes(frozenset((0,)), (frozenset((1,)), frozenset((1, 2))), ((1,), (2,)))


def refusals(sends: list[Send]) -> list[int]:
    """Return the queries that are answered: that there is no map, as this node has none."""
    return [each.message.query for each in sends if isinstance(each.message, QueryAnswer)]


def test_a_node_answers_when_all_have_told_all_depths_of_the_mark() -> None:
    held = HeldQueries(ROUTES, None)

    def taken(sender: Name, message: object) -> list[Send]:
        return [*held.take(sender, message), *held.answered(4)]

    read = ReadEntries(1, 0, [], b"")
    assert refusals(taken("switch0", ForwardedQuery(1, 4, 0, read))) == [1], "that epoch is over"
    assert taken("node1", QueryCheckpoint("switch0", 1, 0)) == [], "it may come before the mark"
    assert taken("switch0", ForwardedQuery(2, 5, 1, read)) == []
    both = [Send("node1", QueryCheckpoint("switch0", 1, 0)), Send("node2", QueryCheckpoint("switch0", 1, 1))]
    assert taken("switch0", QueryMark(1, 5)) == both
    assert taken("node1", QueryCheckpoint("switch0", 1, 1)) == []
    assert taken("switch1", ForwardedQuery(1, 5, 1, read)) == [], "the marks of another switch are others"
    assert refusals(taken("node2", QueryCheckpoint("switch0", 1, 1))) == [2]
    for sender, again in (
        ("switch0", QueryMark(1, 5)),
        ("node2", QueryCheckpoint("switch0", 1, 1)),
        ("node2", QueryCheckpoint("switch0", 2, 0)),
        ("node1", QueryCheckpoint("switch0", 2, 2)),
    ):
        with pytest.raises(RemoteProtocolError, match="need not"):
            list(held.take(sender, again))
    assert refusals(list(held.answered(5))) == [1]


def test_answers_through_a_switch_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_queries, "MOST_ANSWER_BYTES", -1)
    node = EventualNode(NodeLife(plan_cluster(PROGRAM, 1, 1), 0, "interpreter"))
    held = HeldQueries(NodeRoutes(frozenset((0,)), (), ()), node)
    read = ReadEntries(1, 0, [], b"")
    assert [type(each.message) for each in held.take("client", read)] == [EntriesRead]
    assert list(held.take("switch0", ForwardedQuery(1, 0, 0, read))) == []
    [answer] = held.answered(0)
    assert isinstance(answer.message, QueryAnswer)
    assert isinstance(answer.message.answer, RequestRefused)
    assert "more than a tentative read may take" in answer.message.answer.reason


@pytest.mark.parametrize(
    ("mode", "options", "has_marks"),
    [(Mode.EVENTUAL, (), True), (Mode.FOUR_LOGS, (), True), (Mode.FOUR_LOGS, ("elide-put",), False)],
)
def test_there_are_marks_where_nodes_hear_of_blocks_from_the_switch(
    mode: Mode, options: tuple[str, ...], has_marks: bool
) -> None:
    assert plan_cluster(PROGRAM, 2, 1, mode, options=options).has_query_marks == has_marks
