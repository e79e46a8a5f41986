"""Clients that read through the switch of a simulated cluster, and what they must be answered.

Where one switch sends all blocks, what has been sent before a query says exactly what its answers have: an engine that
has computed the same net changes has the same entries. So it is when nothing is sent while a client waits for the
answers of all nodes; other reads are only counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import localcontext
from typing import Any

from cumulus.catalog.types import EXACT
from cumulus.cluster.clients.query_messages import ForwardedQuery, Query
from cumulus.cluster.live.remote_maps import RemoteMaps
from cumulus.cluster.messages import (
    ClientRows,
    EntriesRead,
    ReadEntries,
    RequestRefused,
    RowsHeld,
    node_name,
    switch_name,
)
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.switch import Switch
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.protocol import Key, Values
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.stages.judge import TableDelta
from cumulus.machine import Effect, Input, Lost, Received, Send, Tick
from cumulus_lab.experiments.cluster_clients import SendingClient
from cumulus_lab.simulation import BrokenRule, ChoiceStream, Reports

FIRST_NUMBER = 1 << 20
"""Of questions: rows of the same client have lower ones."""
_SWITCH = switch_name(0)
_PAUSE_MS, _PATIENCE_MS = 60, 400
"""Between two reads, at most; and after so long without an answer it is asked again."""


class AnswersQueriesAtOnce(BrokenRule):
    """A node that waits for nothing when it is asked through a switch."""

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Say that all is committed which the switch has sent."""
        return [
            replace(each, message=replace(each.message, epoch=0))
            if isinstance(each, Received) and isinstance(each.message, ForwardedQuery)
            else each
            for each in inputs
        ]


class SentRows:
    """The net changes that the only switch of a cluster has sent to nodes, over all its lives."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._program = plan.division.spread
        self._sent: list[tuple[int, TableDelta]] = []
        """Epoch and change, in order."""
        self._life = 0
        self.forwarded: dict[int, tuple[int, int]] = {}
        """Number of a question → the mark when it was sent to a node."""

    def watch(self, switch: Switch, committed: int) -> None:
        """Note what a new life of the switch sends that was not committed before; that is sent again."""
        intake = switch.intake
        assert intake is not None, "nothing is spread"
        self._life += 1
        self._sent = [each for each in self._sent if each[0] <= committed]
        apply = intake.apply

        def applied(epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[TableDelta]]:
            outcome, nets = apply(epoch, packed)
            if epoch > committed:
                self._sent += [(epoch, net) for net in nets]
            return outcome, nets

        queries = getattr(switch, "_queries")  # noqa: B009
        forward = queries.forwarded

        def forwarded(committed: int, *, is_held: bool) -> Iterator[Send]:
            for each in forward(committed, is_held=is_held):
                match each.message:
                    case ForwardedQuery(asked=ReadEntries(number=number)):
                        self.forwarded[number] = self.mark
                yield each

        setattr(intake, "apply", applied)  # noqa: B010
        setattr(queries, "forwarded", forwarded)  # noqa: B010

    @property
    def mark(self) -> tuple[int, int]:
        """What there is now; another value once more is sent, or a life begins."""
        return self._life, len(self._sent)

    def entries(self, map: str) -> dict[Key, Values]:
        """Return the entries of a map after everything that was sent."""
        engine = Interpreter(self._program)
        relations = {trigger.relation for trigger in self._program.triggers}
        with localcontext(EXACT):
            for _, net in self._sent:
                if net.relation not in relations:
                    continue
                rows = zip(*(column.to_pylist() for column in net.rows.columns), strict=True)
                for row, count in zip(rows, net.counts.tolist(), strict=True):
                    for _ in range(abs(count)):
                        engine.begin()
                        engine.on_event(1 if count > 0 else -1, net.relation, row)
                        engine.commit()
        return dict(engine.items(map))


@dataclass
class ReadingClient:
    """A client that reads whole maps through the switch, one after the other.

    Parameters
    ----------
    stream
        Decides which, and when.
    sent
        What the switch has sent.
    reads
        How many maps it reads.
    """

    plan: ClusterPlan
    stream: ChoiceStream
    sent: SentRows
    reads: int
    reports: Reports
    _number: int = FIRST_NUMBER
    _at: int = 0
    _now: int = 0
    _map: int = -1
    _nodes: list[int] = field(default_factory=list)
    """Those that are still to be asked for the map that is read."""
    _answers: dict[int, list[EntriesRead]] = field(default_factory=dict)
    _asked: dict[int, int] = field(default_factory=dict)
    """Node → the number under which it was asked last."""

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._nodes)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Tick(now):
                    self._now = now
                    if self._nodes and now >= self._at + _PATIENCE_MS:
                        self._ask(effects)
                    elif now >= self._at:
                        self.begin(effects)
                case Received(_, EntriesRead() as answer) if answer.number == self._number and self._nodes:
                    self._answers.setdefault(self._nodes[0], []).append(answer)
                    if not answer.left:
                        self._nodes.pop(0)
                        self._go_on(effects)
                case Received(_, RequestRefused(number)) if number == self._number and self._nodes:
                    self.reports("query refused")  # a step of the map has failed
                    self._end()
                case Received(_, RowsHeld()):
                    self.reports("query held")
                case Lost(peer) if peer == _SWITCH and self._nodes:
                    self._ask(effects)
                case _:
                    pass
        return effects

    def begin(self, effects: list[Effect]) -> None:
        """Read another map, if none is read, and not all were."""
        if self._nodes or not self.reads:
            return
        regions = self.plan.layout.regions
        maps = self.plan.division.spread.maps
        self._map = self.stream.below(len(maps))
        self._nodes = sorted(regions[maps[self._map].name].nodes_with({}))
        self._answers, self._asked = {}, {}
        self._ask(effects)

    def _ask(self, effects: list[Effect]) -> None:
        """Ask the first of the nodes, anew if it was asked before."""
        self._number, self._at = self._number + 1, self._now
        self._asked[self._nodes[0]] = self._number
        self._answers.pop(self._nodes[0], None)
        asked = ReadEntries(self._number, self._map, [], b"")
        effects.append(Send(_SWITCH, Query(self._number, node_name(self._nodes[0]), asked)))

    def _go_on(self, effects: list[Effect]) -> None:
        if self._nodes:
            self._ask(effects)
            return
        self.reports("query answered")
        if {self.sent.forwarded[number] for number in self._asked.values()} == {self.sent.mark}:
            self.reports("query compared")
            self._compare(self.plan.division.spread.maps[self._map].name)
        self._end()

    def _end(self) -> None:
        self._nodes, self.reads = [], self.reads - 1
        self._at = self._now + self.stream.below(_PAUSE_MS)

    def _compare(self, name: str) -> None:
        """Check that all is there that was sent."""
        asked = iter(sorted(self._answers))
        found = dict(RemoteMaps(self.plan, lambda node, _: self._answers[next(asked)], {}).items(name))
        expected = self.sent.entries(name)
        wrong = [key for key in {**found, **expected} if not _are_alike(found.get(key), expected.get(key))]
        assert not wrong, f"{name}{list(wrong[0])} is read as {found.get(wrong[0])}, and is {expected.get(wrong[0])}"

    def check(self) -> None:
        """There is nothing that could be wrong between two steps."""


def _are_alike(one: Values | None, other: Values | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = zip(one, other, strict=True)
    return all(a == b or _are_close(a, b) for a, b in pairs)


def _are_close(one: Any, other: Any) -> bool:
    both = isinstance(one, float) and isinstance(other, float)
    return both and (math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other)))


class ReadingSender:
    """A client that sends rows, and reads behind some of them, over the same link."""

    def __init__(self, sender: SendingClient, reader: ReadingClient) -> None:
        self._sender, self._reader = sender, reader

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return self._sender.waits or self._reader.waits

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        answers = [each for each in inputs if _number_of(each) > FIRST_NUMBER]
        others = [each for each in inputs if _number_of(each) <= FIRST_NUMBER]
        effects = self._sender.step(others)
        if any(isinstance(each, Send) and isinstance(each.message, ClientRows) for each in effects):
            self._reader.begin(effects)
        return [*effects, *self._reader.step([each for each in inputs if each in answers or _number_of(each) < 0])]

    def check(self) -> None:
        """There is nothing that could be wrong between two steps."""


def _number_of(told: Input) -> int:
    """Return the number of an answer; -1 of what is none."""
    return getattr(told.message, "number", -1) if isinstance(told, Received) else -1
