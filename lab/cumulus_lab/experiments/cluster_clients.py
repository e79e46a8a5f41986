"""Clients of a simulated cluster, which send rows until they are accepted; and their rows as files, for the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from cumulus.catalog.arrow import to_ipc
from cumulus.catalog.events import DELETE, INSERT, UPSERT
from cumulus.catalog.schema import Relation
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.messages import ClientRows, RequestRefused, RowsAccepted, RowsHeld
from cumulus.cluster.placement.table_shares import TableShare
from cumulus.epochs.folder_source import FolderSource
from cumulus.m3.program import Program
from cumulus.machine import Effect, Input, Lost, Name, Received, Send, Tick
from cumulus_lab.experiments.cluster_counts import ClusterHistory
from cumulus_lab.experiments.cluster_rows import Line, RandomRows, read_lines, write_lines
from cumulus_lab.simulation import ChoiceStream, Reports

_OPERATIONS = {"insert": INSERT, "delete": DELETE, "upsert": UPSERT}
_PAUSE_MS = 100
"""Between two messages to a switch, at most."""
_PATIENCE_MS = 400
"""After so long without an answer rows are sent again."""
_AGAIN = 1 / 8
"""The share of messages that are sent twice for no reason."""


@dataclass(slots=True)
class _Switch:
    """What a client has to do with one switch: the last number, when it was sent, and what waits for an answer."""

    number: int = 0
    at: int = 0
    sent: ClientRows | None = None
    is_held: bool = False
    ended: int = 0
    """An epoch that has ended there."""
    later: list[tuple[Relation, list[Line]]] = field(default_factory=list)
    """What it is to get then, of calls whose rows go to several switches."""


@dataclass
class SendingClient:
    """A client that sends rows to switches, one message after the other to each, until they belong to a late epoch.

    Parameters
    ----------
    relations
        Those to whose tables it sends, by switch.
    last
        It ends when rows belong to a later epoch than this one.
    shares
        Table → the shares of switches in it, none if one takes all of it.

    Attributes
    ----------
    lines
        Switch and number → the rows that it has sent, and the table.
    tokens
        The same → the epoch that it was told.
    """

    relations: Mapping[Name, Sequence[Relation]]
    stream: ChoiceStream
    extremes: ChoiceStream
    last: int
    reports: Reports
    shares: Mapping[str, Mapping[Name, TableShare]]
    lines: dict[tuple[Name, int], tuple[str, list[Line]]] = field(default_factory=dict)
    tokens: dict[tuple[Name, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._switches = {name: _Switch() for name in self.relations}
        self._rows = {
            relation.name: RandomRows(relation, self.stream, self.extremes, is_odd=False)
            for relations in self.relations.values()
            for relation in relations
        }
        self._now = 0

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return any(each.sent is not None and not each.is_held for each in self._switches.values())

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Tick(now):
                    self._now = now
                    for name, switch in self._switches.items():
                        self._go_on(name, switch, effects)
                case Received(sender, RowsAccepted(number, epoch)):
                    self._accept(sender, number, epoch)
                case Received(sender, RowsHeld(number, _, is_dropped)):
                    switch = self._switches[sender]
                    switch.is_held |= switch.sent is not None and switch.number == number and not is_dropped
                case Received(sender, RequestRefused() as refused):
                    raise AssertionError(f"{sender} refuses rows {refused.number}: {refused.reason}")
                case Lost(peer) if peer in self._switches:
                    self._again(peer, self._switches[peer], effects)
                case _:
                    pass
        return effects

    def _go_on(self, name: Name, switch: _Switch, effects: list[Effect]) -> None:
        if switch.sent is not None:
            if self._now >= switch.at + _PATIENCE_MS and not switch.is_held:
                self._again(name, switch, effects)
        elif self._now >= switch.at and max(self.tokens.values(), default=0) <= self.last:
            if not switch.later:
                relation = self.stream.one(self.relations[name])
                self._deal(name, relation, self._rows[relation.name].alike(1 + self.stream.below(3)))
            if not switch.later:
                return  # all are of others
            relation, lines = switch.later.pop(0)
            switch.number += 1
            self.lines[name, switch.number] = relation.name, lines
            data = to_ipc(_typed(relation, lines))
            switch.sent, switch.at, switch.is_held = ClientRows(switch.number, relation.name, data), self._now, False
            effects += [Send(name, switch.sent)] * (1 + self.stream.chance(_AGAIN))

    def _deal(self, name: Name, relation: Relation, lines: list[Line]) -> None:
        """Give each switch of a table its rows of a call."""
        shares = self.shares[relation.name]
        if not shares:
            self._switches[name].later.append((relation, lines))
        rows = _typed(relation, lines)
        dealt = 0
        for switch, share in shares.items():
            mine = [line for line, is_mine in zip(lines, share.has(rows).to_pylist(), strict=True) if is_mine]
            if mine:
                self._switches[switch].later.append((relation, mine))
                dealt += 1
        self.reports("call over several switches", times=int(dealt > 1))

    def _again(self, name: Name, switch: _Switch, effects: list[Effect]) -> None:
        """Send once more what nobody has answered."""
        if switch.sent is not None:
            switch.at, switch.is_held = self._now, False
            self.reports("client rows sent again")
            effects.append(Send(name, replace(switch.sent, again_after=switch.ended)))

    def _accept(self, sender: Name, number: int, epoch: int) -> None:
        switch = self._switches[sender]
        known = self.tokens.setdefault((sender, number), epoch)
        # A second answer may name a later epoch: a switch remembers the last number of a client alone.
        assert known <= epoch, f"{sender} has told epoch {known} of rows {number}, and now {epoch}"
        if switch.sent is not None and switch.number == number:
            switch.sent, switch.ended = None, epoch - 1
            switch.at = self._now + self.stream.below(_PAUSE_MS)

    def check(self) -> None:
        """There is nothing that could be wrong between two steps."""


def _typed(relation: Relation, lines: Sequence[Line]) -> pa.Table:
    rows = [tuple(line[column] for column in relation.column_names) for line in lines]
    return rows_to_send(relation, _OPERATIONS[lines[0]["op"]], rows)


def check_tokens(history: ClusterHistory, clients: Mapping[Name, SendingClient]) -> None:
    """Check that what clients were told is so: their rows are in the log of a switch, in the epoch that they know."""
    for name, client in clients.items():
        for (switch, number), epoch in client.tokens.items():
            taken = history.taken.get((switch, name, number))
            found = None if taken is None else taken.epoch
            assert found == epoch, f"{switch} has told {name} epoch {epoch} of rows {number}; they are in {found}"


def write_parts(
    program: Program,
    folder: Path,
    sources: Sequence[FolderSource],
    history: ClusterHistory,
    clients: Mapping[Name, SendingClient],
    last: int,
) -> dict[int, list[int]]:
    """Write what epochs have taken in as files: what a switch has taken in at once of clients as an epoch of its own,
    in the order of the logs, then what files had; return epoch → its parts.

    Rows of tables that are not kept are all in the last part: nobody decides on them, and views may fail for rows that
    go again in the same epoch.
    """
    paths = {source.relation: Path(source.path) for source in sources}
    names, kept = [relation.name for relation in program.relations], dict(program.kept)
    for name in names:
        (folder / name).mkdir(parents=True)
    ordered = sorted(history.taken.items(), key=lambda item: (item[0][0], item[1].record, item[1].place))
    found: dict[int, list[int]] = {}
    part = 0
    for epoch in range(1, last + 1):
        together: dict[tuple[Name, int], dict[str, list[Line]]] = {}
        rest: dict[str, list[Line]] = {name: [] for name in names}
        for (switch, name, number), at in ordered:
            if at.epoch == epoch:
                table, sent = clients[name].lines[switch, number]
                lines = together.setdefault((switch, at.record), {}) if table in kept else rest
                lines.setdefault(table, []).extend(sent)
        for name in names:
            for file in history.turns[epoch].get(name, ()):
                rest[name] += read_lines(paths[name] / file)
        found[epoch] = []
        for lines in (*together.values(), rest):
            part += 1
            found[epoch].append(part)
            for relation in program.relations:
                if part == 1 or not relation.static:
                    here = rest if relation.static else lines
                    write_lines(folder / relation.name / f"{part:04}.jsonl", here.get(relation.name, []))
    return found
