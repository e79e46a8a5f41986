"""Clusters whose messages wait until a test delivers them, one by one; what was delivered becomes a text.

The machines are those that processes run, and what they say goes through the bytes that are sent. Their logs are always
on the disk at once; no files are read, and none are written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import DELETE, INSERT
from cumulus.cluster import codec
from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.intake import BlockMaker
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.machine_tasks import CommitEpoch, ListFiles, Payloads, ReadFiles, WriteOutputs
from cumulus.cluster.messages import (
    OFFSET,
    SIGN,
    ClientRows,
    Deltas,
    EpochCommit,
    EpochEnd,
    EpochReady,
    EpochTold,
    EpochTurn,
    EpochWanted,
    Events,
    MapCheckpoint,
    RowsAccepted,
    node_name,
    switch_name,
)
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.open_rows import MOST_OPEN_ROWS
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.planning.epoch_endings import CommitBy
from cumulus.cluster.planning.order_of_events import intake_of_switch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.table import node_protocol, switch_protocol
from cumulus.cluster.publisher import PUBLISHER, Publisher
from cumulus.cluster.switch import SpreadIntake, Switch
from cumulus.cluster.switches.commits import commits_of_switch
from cumulus.cluster.switches.epoch_transitions import AlignedTransitions
from cumulus.cluster.versions import REST_BITS, SWITCH_BITS, Numbering, VersionOrder, switch_of, unpack
from cumulus.engine.engines import make_engine
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import layout_of
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from cumulus.machine import Append, Completed, Forget, Input, Machine, Name, Perform, Received, Recovered, Send, Tick
from cumulus.transport.machine_spec import SUPERVISOR
from support.versioned_entries import entries_at

CLIENT = "client"
ORDER = VersionOrder.SWITCH
"""As in the papers: that of epochs, then of switches, then of what a switch has sent."""
LOOK_MS = 1000
"""How long the publisher waits before it begins an epoch for what clients have sent."""


class ToldDeliveries:
    """A cluster whose spread part is all there is, by one client.

    Parameters
    ----------
    plan
        Of a program without gated views.
    most_open_rows
        As `cumulus.cluster.node.ClusterNode` has it.
    """

    def __init__(self, plan: ClusterPlan, most_open_rows: int = MOST_OPEN_ROWS) -> None:
        self._most_open_rows = most_open_rows
        assert plan.gate is None, "this cluster has no gate"
        self.plan = plan
        switches, nodes = range(plan.tables.switches), range(plan.nodes)
        self.nodes = [self._node(number) for number in nodes]
        self._machines: dict[Name, Machine] = {
            PUBLISHER: Publisher(len(nodes), len(switches), SUPERVISOR, 0, {}, LOOK_MS),
            **{switch_name(number): self._switch(number) for number in switches},
            **{node_name(number): self.nodes[number] for number in nodes},
        }
        self._links: dict[tuple[Name, Name], deque[bytes]] = {}
        self._versions: dict[int, str] = {}
        """Version → what the paper calls it."""
        self._label = ""
        self._numbers: dict[Name, int] = {}
        self._lines: list[str] = []
        for name in self._machines:
            self._step(name, Recovered(1, ()))

    def _switch(self, number: int) -> Switch:
        plan, tables = self.plan, frozenset(self.plan.tables.tables_of(number))
        blocks = BlockMaker(Numbering(ORDER, number), switch_protocol(plan), frozenset())
        spread = SpreadIntake(intake_of_switch(plan, number, partial(make_engine, "interpreter")), blocks)
        sessions = ClientSessions(plan.program, tables, None, is_spread=True)
        commits = commits_of_switch(number, plan.nodes, plan.tables.switches, CommitBy.PUBLISHER, 0)
        return Switch(
            number,
            plan.nodes,
            plan.epoch_routes.of_switch(number),
            tables,
            (),
            0,
            spread,
            sessions,
            commits,
            AlignedTransitions(),
        )

    def _node(self, number: int) -> ClusterNode:
        spread = node_protocol(NodeLife(self.plan, number, "interpreter", ORDER))
        return ClusterNode(
            number,
            self.plan.nodes,
            self.plan.tables.switches,
            0,
            Snapshots.after(None, 1),
            None,
            spread,
            self.plan.epoch_routes.of_node(number),
            most_open_rows=self._most_open_rows,
        )

    # --- what a test does -------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write a sentence between the messages."""
        self._lines += ["", *(f"# {line}" for line in wrap(text, 116, break_on_hyphens=False))]

    def event(self, label: str, table: str, *row: Any, stands_for: str, sign: int = 1) -> None:
        """Let the client send a row to the switch of its table; its version is called `label`."""
        relation = self.plan.program.relation(table)
        to = switch_name(self.plan.tables.switch_of[table])
        self._numbers[to] = number = self._numbers.get(to, 0) + 1
        rows = to_ipc(rows_to_send(relation, INSERT if sign > 0 else DELETE, [row]))
        self._label = label
        self._pass_on(CLIENT, to, ClientRows(number, table, rows), stands_for)

    def deliver(self, source: Name, target: Name, stands_for: str) -> None:
        """Deliver the first message that waits on a link; `stands_for` is what the paper says of it."""
        waiting = self._links[source, target]
        message = codec.decode(waiting.popleft())
        if not waiting:
            del self._links[source, target]
        self._pass_on(source, target, message, stands_for)

    def tick(self, milliseconds: int) -> None:
        """Tell the publisher the time."""
        self._step(PUBLISHER, Tick(milliseconds))

    @property
    def waiting(self) -> list[tuple[Name, Name]]:
        """The links that have messages, in order."""
        return sorted(self._links)

    def newest(self, node: int, name: str) -> dict[Any, Any]:
        """Return the newest entries of a map on a node: what tentative reads see."""
        return _bare(self._state(node).engine.items(name))

    def as_of(self, node: int, name: str, label: str) -> dict[Any, Any]:
        """Return the entries of a map on a node after a version."""
        version = next(each for each, called in self._versions.items() if called == label)
        return _bare(entries_at(self._state(node), name, version).items())

    @property
    def order(self) -> list[str]:
        """The labels of what was sent, in the order of versions."""
        return [label for _, label in sorted(self._versions.items())]

    def _state(self, node: int) -> Any:
        spread = self.nodes[node].spread
        assert spread is not None
        return spread.maps

    def facts(self, node: int) -> dict[str, Any]:
        """Return what a node says of its spread maps."""
        protocol = self.nodes[node].protocol
        assert protocol is not None
        return {**protocol.maps.facts(), **protocol.facts()}

    def compare(self, golden: Path) -> None:
        """Compare all that was delivered with a file; nothing may be left.

        With ``CUMULUS_GOLDEN=write`` the file is written anew.
        """
        assert not self._links, self.waiting
        found = "\n".join(self._lines).lstrip("\n") + "\n"
        if os.environ.get("CUMULUS_GOLDEN") == "write":
            golden.write_text(found, encoding="utf-8")
        assert found == golden.read_text(encoding="utf-8")

    # --- machines ---------------------------------------------------------------------------------------------------

    def _pass_on(self, source: Name, target: Name, message: Any, stands_for: str) -> None:
        self._lines += [f"{source} → {target}: {line}" for line in self._texts(message)]
        self._lines += [f"    {line}" for line in wrap(stands_for, 112, break_on_hyphens=False)]
        if target in self._machines:
            self._step(target, Received(source, message))

    def _step(self, name: Name, told: Input) -> None:
        """Let a machine take something in; what it sends waits, what it asks for is done."""
        machine = self._machines[name]
        for effect in machine.step([told]):
            match effect:
                case Send(to, message):
                    self._name_versions(message)
                    self._links.setdefault((name, to), deque()).append(b"".join(codec.encode(message)))
                case Perform(task):
                    self._step(name, Completed(task, _done(task)))
                case Append() | Forget():
                    pass
        machine.check()

    def _name_versions(self, message: Any) -> None:
        if isinstance(message, Events):
            for block in message.blocks:
                self._versions.setdefault(block.version, self._label)

    # --- texts ------------------------------------------------------------------------------------------------------

    def _texts(self, message: Any) -> Iterator[str]:
        match message:
            case ClientRows(_, table, rows):
                for each in from_ipc(rows).to_pylist():
                    *values, op, _ = each.values()
                    yield f"ROWS {self._label}: {'+' if op == INSERT else '-'}{table}{_tuple(values)}"
            case Events(blocks):
                for block in blocks:
                    group = self.plan.nodes_program.groups[block.group]
                    for each in block.table().to_pylist():
                        sign, _ = each.pop(SIGN), each.pop(OFFSET)
                        named = ", ".join(f"{column}={value}" for column, value in each.items())
                        version = f"{self._versions[block.version]} {_three_tuple(block.version)}"
                        yield f"EVENTS {version}: {'+' if sign > 0 else '-'}{group.in_order}({named})"
            case Deltas(frames):
                for number, data in frames:
                    yield from (f"PUSH {line}" for line in sorted(self._delta_texts(number, data)))
            case EpochTurn(epoch):
                yield f"EPOCH TURN {epoch}"
            case EpochEnd(epoch):
                yield f"EPOCH END {epoch}"
            case MapCheckpoint(epoch, depth):
                yield f"CHECKPOINT epoch {epoch}, depth {depth}"
            case EpochReady(epoch):
                yield f"EPOCH READY {epoch}"
            case EpochCommit(epoch):
                yield f"EPOCH COMMIT {epoch}"
            case RowsAccepted(_, epoch):
                yield f"accepted for epoch {epoch}"
            case EpochWanted(epoch) | EpochTold(epoch):
                yield f"{type(message).__name__} {epoch}"
            case _:
                raise AssertionError(message)

    def _delta_texts(self, number: int, data: bytes) -> Iterator[str]:
        """Yield the deltas of a map: its key, the version, and what is added to its values."""
        definition = self.plan.division.spread.maps[number]
        overlay = self.plan.nodes_program.program.map(self.plan.nodes_program.overlays[definition.name].since)
        frame = MapFrame.of_bytes(layout_of(overlay), data)
        columns = [frame.key(place).to_pylist() for place in range(len(definition.keys) + 1)]
        columns += [frame.value(place).to_pylist() for place in range(len(definition.values))]
        for row in zip(*columns, strict=True):
            key, version, values = (
                row[: len(definition.keys)],
                row[len(definition.keys)],
                row[len(definition.keys) + 1 :],
            )
            added = ", ".join(
                f"{column.name} += {value}" for column, value in zip(definition.values, values, strict=True)
            )
            yield f"{definition.name}[{_tuple(key)[1:-1]}] {self._versions[version]}: {added}"


def _done(task: Any) -> Any:
    """Return what a task gives where there are no files."""
    match task:
        case ListFiles():
            return None
        case ReadFiles():
            return Payloads((), pack([], BucketPlan())[0])
        case WriteOutputs():
            return ()
        case CommitEpoch():
            return 0
        case _:
            raise AssertionError(task)


def _bare(entries: Any) -> dict[Any, Any]:
    """Return entries with one value without its tuple, and keys of one column so, too."""
    return {key[0] if len(key) == 1 else key: values[0] for key, values in entries}


def _three_tuple(version: int) -> str:
    """Return a version as the Cumulus consistency paper, §4.1, has it: VersionID, CoordinatorID, EpochID."""
    epoch, rest = unpack(version)
    number = rest & ((1 << REST_BITS - SWITCH_BITS) - 1)
    return f"{{{number}, {int(switch_of(np.array([version]), ORDER)[0])}, {epoch}}}"


def _tuple(values: Any) -> str:
    return f"({', '.join(map(str, values))})"
