"""A node: what switches and other nodes send, to views, epoch after epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType

from cumulus.cluster.clients.held_queries import HeldQueries
from cumulus.cluster.clients.query_messages import ForwardedQuery, QueryCheckpoint, QueryMark
from cumulus.cluster.epoch_marks import EpochMarks
from cumulus.cluster.gate import Gate
from cumulus.cluster.machine_log import LEAST_LOG_BYTES, MachineLog
from cumulus.cluster.machine_tasks import SaveState, WriteOutputs
from cumulus.cluster.messages import (
    EpochCommit,
    EpochEnd,
    EpochPart,
    EpochWanted,
    MapCheckpoint,
    ReadEntries,
    ReadParts,
    StatusAsked,
    StatusTold,
    node_name,
    switch_name,
)
from cumulus.cluster.open_rows import MOST_OPEN_ROWS, OpenRows
from cumulus.cluster.output_files import ready_messages
from cumulus.cluster.planning.epoch_routes import NodeRoutes
from cumulus.cluster.protocols.protocol import NodeProtocol
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import LoggedEpoch, NodeState
from cumulus.cluster.resets import Reset, Reunion
from cumulus.cluster.spread_maps import EndedEpoch, ShareOfMap, Shares, SharesOfViews, SpreadMaps
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Completed, Effect, Input, Name, Perform, Received, Recovered, Send, Tick


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """What an epoch has changed on a node: by its gate, None without one, in spread views, in spread maps of cubes; and
    spread view → why it has no rows of the epoch.
    """

    outcome: Outcome | None
    shares: Shares
    parts: Mapping[str, ShareOfMap]
    errors: Mapping[str, str] = field(default_factory=dict)


class ClusterNode:
    """The machine of a node.

    Parameters
    ----------
    number
        From 0.
    committed
        The last epoch that has a manifest.
    gate
        Empty; None without one.
    protocol
        What is done for spread maps, which are empty; None without any.
    routes
        Whom it tells how far an epoch is, and for whom it waits.
    coordinator
        Who hears that it is ready with an epoch, and tells it what is committed.
    snapshots
        Which epochs write views.
    state
        A snapshot up to a committed epoch, if there is one.
    least_log_bytes
        A log that is larger, and larger than the last snapshot, is replaced by a new one.
    process
        What its process knows of itself, which is told with the status.
    most_open_rows
        With so many entries in memory that a commit would let go of, it asks for the end of the epoch (semester paper,
        section 3.4, EPOCH END REQUEST).
    """

    def __init__(
        self,
        number: int,
        nodes: int,
        switches: int,
        committed: int,
        snapshots: Snapshots,
        gate: Gate | None,
        protocol: NodeProtocol | None,
        routes: NodeRoutes,
        coordinator: Name = PUBLISHER,
        state: bytes | None = None,
        least_log_bytes: int = LEAST_LOG_BYTES,
        process: Mapping[str, object] = MappingProxyType({}),
        most_open_rows: int = MOST_OPEN_ROWS,
    ) -> None:
        self.name, self._coordinator = node_name(number), coordinator
        self._open_rows = OpenRows(most_open_rows)
        self._number = number
        self._others = [node_name(each) for each in range(nodes) if each != number]
        self._peers = {node_name(each): each for each in range(nodes)}
        self._switches = {switch_name(each): each for each in range(switches)}
        self._committed = self._done = committed
        """The last epochs that are committed, and of which everything was done here."""
        self._snapshots, self._gate, self._protocol, self._routes = snapshots, gate, protocol, routes
        self._spread = None if protocol is None else protocol.maps
        self._marks, self._queries = self._new_marks(), HeldQueries(routes, protocol)
        self._reunion = Reunion((PUBLISHER, *self._others, *self._switches))
        self._payloads: dict[int, dict[Name, list[bytes]]] = {}
        """Epoch → the parts of what each switch has sent for the gate so far."""
        self._final: set[int] = set()
        self._over: deque[int] = deque()
        """Epochs of which everything has come, and nothing is done yet."""
        self._writing: WriteOutputs | None = None
        self._process = process
        self._gated_rows = 0
        """What the gate has taken in this life."""
        self._log = MachineLog(self.name, least_log_bytes)
        if state is not None:
            self._load(self._log.load(state))

    @property
    def _in_rounds(self) -> bool:
        """Whether nodes tell each other in rounds: maps feed each other in a circle."""
        protocol = self._protocol
        return protocol is not None and protocol.depths > 0 and protocol.maps.sent_epochs.is_cyclic

    def _new_marks(self) -> EpochMarks:
        sources = [frozenset(self._peers.values())] if self._in_rounds else self._routes.sources
        return EpochMarks(self._routes.switches, sources, self._committed, in_rounds=self._in_rounds)

    def _load(self, state: NodeState) -> None:
        if self._gate is not None:
            self._gate.load(state.epoch, state.gate)
        if self._spread is not None:
            self._spread.load(state.newest, state.later)
            self._spread.failed.load(state.failed)

    @property
    def spread(self) -> SpreadMaps | None:
        """Its spread maps; None without any."""
        return self._spread

    @property
    def gate(self) -> Gate | None:
        """Its gate; None without one."""
        return self._gate

    @property
    def protocol(self) -> NodeProtocol | None:
        """What is done for them; None without any."""
        return self._protocol

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            self._reunion.note(each)
            match each:
                case Recovered(first, records):
                    self._recover(first, records)
                case Received(_, Reset(epoch=epoch)):
                    self._reset(epoch, effects)
                case Received(sender, message):
                    self._take(sender, message, effects)
                case Completed(WriteOutputs(epoch=epoch) as task, written) if task is self._writing:
                    self._writing = None
                    effects += ready_messages(PUBLISHER, self._coordinator, epoch, written)
                case Completed(SaveState(epoch=epoch), _):
                    self._log.saved = epoch
                    self._log.forget(self._committed, effects)
                case _:
                    pass
        self._advance(effects, is_time=any(isinstance(each, Tick) for each in inputs))
        return effects

    def _take(self, sender: Name, message: object, effects: list[Effect]) -> None:
        match message:
            case MapCheckpoint(epoch, depth, is_quiet) if sender in self._peers:
                if not self._marks.checkpoint(epoch, depth, self._peers[sender], is_quiet=is_quiet):
                    raise RemoteProtocolError(f"{self.name}: {sender} tells depth {depth} of {epoch}, and need not")
            case EpochEnd(epoch, final, payload, last, puts) if sender in self._switches:
                if not self._marks.end(epoch, self._switches[sender]):
                    raise RemoteProtocolError(f"{self.name}: {sender} ends epoch {epoch}, and has done so or need not")
                self._take_part(sender, epoch, payload)
                self._final |= {epoch} if final else set()
                if self._protocol is not None and (last >= 0 or puts):  # what other nodes send may come behind it
                    self._protocol.take(-1 - self._switches[sender], message)
            case EpochPart(epoch, payload) if sender in self._switches and epoch > self._done:
                self._take_part(sender, epoch, payload)
            case EpochCommit(epoch) if sender == self._coordinator:
                self._commit(epoch, effects)
            case ReadEntries() | ReadParts() | ForwardedQuery() | QueryMark() | QueryCheckpoint():
                effects += self._queries.take(sender, message)
            case StatusAsked(number):
                effects.append(Send(sender, StatusTold(number, self._facts())))
            case _ if self._protocol is not None and (sender in self._switches or sender in self._peers):
                number = self._peers[sender] if sender in self._peers else -1 - self._switches[sender]
                self._protocol.take(number, message)
            case _:
                name = type(message).__name__
                raise RemoteProtocolError(f"{self.name}: {name} from {sender} is not for this node")

    def _facts(self) -> dict[str, object]:
        """Return how this node is; shares are of what has come in this life."""
        late, came = (0, 0) if self._protocol is None else self._protocol.late_share()
        facts: dict[str, object] = {
            "committed": self._committed,
            "epoch": self._done,
            "log_bytes": self._log.bytes,
            "gate_bytes": 0 if self._gate is None else self._gate.bucket.engine.memory(),
            "late_share": _share(late, came),
            "gated_share": _share(self._gated_rows, self._gated_rows + came),
            **self._process,
        }
        if self._protocol is not None:
            return facts | self._protocol.maps.facts() | self._protocol.facts()
        return facts if self._gate is None else facts | {"engine": self._gate.bucket.engine.name}

    def _take_part(self, sender: Name, epoch: int, payload: bytes) -> None:
        self._payloads.setdefault(epoch, {}).setdefault(sender, []).append(payload)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _advance(self, effects: list[Effect], *, is_time: bool) -> None:
        """Send what can be sent, then tell how far this node is, then do what is to be done of epochs that are over."""
        if self._protocol is not None:
            for to, message in self._protocol.drain(self._marks.ended, is_time=is_time):
                effects.append(Send(node_name(to) if to >= 0 else switch_name(-1 - to), message))
            if (oldest := self._protocol.maps.sent_epochs.take()) is not None:
                self._marks.note_sent(oldest)
            self._protocol.move_on(self._committed)
        while told := self._marks.tell(self._is_flushed):
            effects += chain.from_iterable(self._checkpoints(epoch, depth) for epoch, depth in told)
        while (over := self._marks.next_over(self._is_flushed)) is not None:
            self._over.append(over)
        effects += self._queries.answered(self._marks.over)
        self._urge(effects)
        if self._over and self._writing is None:  # who writes the one before reads the gate's maps
            self._finish(self._over[0], effects)

    def _checkpoints(self, epoch: int, depth: int) -> Iterator[Send]:
        """Yield what others are told when everything of a depth is sent, or with the mark of a round."""
        if not self._in_rounds:
            yield from (Send(node_name(each), MapCheckpoint(epoch, depth)) for each in self._routes.targets[depth])
            return
        is_quiet = self._marks.take_quiet(epoch)
        self._marks.checkpoint(epoch, depth, self._number, is_quiet=is_quiet)
        yield from (Send(each, MapCheckpoint(epoch, depth, is_quiet)) for each in self._others)

    def _urge(self, effects: list[Effect]) -> None:
        """Ask for the end of the open epoch, once, if too much waits for its commit."""
        if self._protocol is None:
            return
        epoch, maps = self._marks.over + 1, self._protocol.maps
        if self._open_rows.asks(epoch, self._protocol.late_share()[1], lambda: sum(maps.open_rows())):
            effects.append(Send(PUBLISHER, EpochWanted(epoch, is_urgent=True)))

    def _is_flushed(self, epoch: int) -> bool:
        return self._protocol is None or self._protocol.is_flushed(epoch)

    def _finish(self, epoch: int, effects: list[Effect]) -> None:
        """Do what is to be done when everything of an epoch is here."""
        final = epoch in self._final
        ended = EndedEpoch(epoch, {}, {})
        found = SharesOfViews({}, {})
        parts: Mapping[str, ShareOfMap] = {}
        if self._spread is not None:
            ended = self._spread.end(epoch)
            if self._snapshots.due(epoch, final):
                whole = self._snapshots.whole(epoch)
                found, parts = self._spread.shares(ended, whole=whole), self._spread.parts(ended, whole=whole)
        self._done = self._over.popleft()
        self._final.discard(epoch)
        payloads = self._payloads.pop(epoch)
        ordered = [b"".join(payloads.get(each, ())) for each in self._switches]
        outcome = None if self._gate is None else self._gate.apply(epoch, ordered)
        self._gated_rows += 0 if outcome is None else outcome.events
        deltas = [] if self._spread is None else self._spread.numbered(ended.deltas)
        failed = {} if self._spread is None else self._spread.failed.dump()
        logged = LoggedEpoch(epoch, [] if self._gate is None else ordered, deltas, failed)
        self._log.records[epoch] = self._log.append(logged, effects)
        self._writing = WriteOutputs(epoch, final, NodeOutput(outcome, found.shares, parts, found.errors))
        effects.append(Perform(self._writing))
        self._log.save_if_due(epoch, self._committed, partial(self._state, epoch, ended), effects)

    def _state(self, epoch: int, ended: EndedEpoch) -> NodeState:
        gate = b"" if self._gate is None else self._gate.save()
        newest, later = ([], []) if self._spread is None else self._spread.save(ended)
        failed = {} if self._spread is None else self._spread.failed.dump()
        return NodeState(epoch, gate, newest, later, failed)

    def _commit(self, epoch: int, effects: list[Effect]) -> None:
        if epoch != self._committed + 1 or epoch > self._done:
            raise RemoteProtocolError(f"{self.name}: epoch {epoch} is committed after {self._committed}")
        self._committed = epoch
        if self._protocol is not None:
            self._protocol.commit(epoch)
        self._log.forget(epoch, effects)

    def _reset(self, epoch: int, effects: list[Effect]) -> None:
        """Go on in a new incarnation: take back what is there of epochs that are not committed; it will come again."""
        if not self._reunion.is_due():
            return
        assert self._gate is None, "a gate cannot take back an epoch: its node is started again"
        while self._committed < epoch:
            self._commit(self._committed + 1, effects)
        self._payloads.clear()
        self._final.clear()
        self._over.clear()
        self._writing, self._done = None, epoch
        self._open_rows.reset()
        self._marks, self._queries = self._new_marks(), HeldQueries(self._routes, self._protocol)
        self._log.records = {each: number for each, number in self._log.records.items() if each <= epoch}
        if self._protocol is not None:
            self._protocol.reset(epoch)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _recover(self, first: int, records: Sequence[bytes]) -> None:
        """Take in the committed epochs of the log behind the snapshot; what was not committed comes again."""
        found: dict[int, tuple[int, LoggedEpoch]] = {}
        for number, logged in self._log.recover(first, records):
            assert isinstance(logged, LoggedEpoch), logged
            found[logged.epoch] = number, logged  # one that was not committed was done, and logged, in each life
        self._log.require_epochs(found, self._committed)
        for epoch in range(self._log.saved + 1, self._committed + 1):
            self._log.records[epoch], logged = found[epoch]
            if self._gate is not None:
                self._gate.apply(epoch, logged.payloads)
            if self._spread is not None:
                self._spread.restore(logged.deltas)
                self._spread.failed.load(logged.failed)
        if self._spread is not None:
            self._spread.failed.tell_again()

    def check(self) -> None:
        """Check what holds between two steps."""
        assert self._committed <= self._done, (self._committed, self._done)
        assert all(epoch > self._done for epoch in (*self._payloads, *self._over)), (self._over, self._done)
        assert self._gate is None or self._gate.epoch == self._done
        if self._protocol is not None:
            self._protocol.check()


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
