"""How many messages switches and nodes send each other, from the tables of a plan alone.

Nothing is run: for each row it is looked up where what it reads and writes lies, value by value, as the papers define
it. The protocols find the same by whole columns (`cumulus.cluster.placement.block_needs`), so one checks the other.

References
----------
Cumulus consistency paper, sections 3.1 to 3.3; Cumulus semester paper, section 2 ("one broadcast among 10,000 nodes").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from cumulus.cluster.intake import BLOCK_ROWS, BlockMaker, intake_part, pack_rows
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.correspondence import NamedFlow, NamedSlice, Place, named_flows, place_of
from cumulus.cluster.placement.layout import Addition
from cumulus.cluster.placement.regions import AxisCut, may_meet
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.planning.epoch_endings import DEFAULT_ENDINGS, CommitBy, EpochEndings, Transitions
from cumulus.cluster.planning.order_of_events import intake_of_switch
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows, Sent
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.engine.engines import make_engine
from cumulus.epochs.arrivals import Progress, next_files
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import read_files

LoopParts: TypeAlias = dict[str, list[tuple[AxisCut, int]]]
"""Loop variable → the parts of its dimensions that a node has."""


def counted_at_most(plan: ClusterPlan) -> frozenset[str]:
    """Return the messages of which there may be fewer: what comes in one step goes together, and nothing is sent of
    nothing. What corrects comes on top of all, in modes that do.
    """
    return frozenset({"Deltas", "Push"} if plan.options.elide_push else {"Deltas"})


class CountedMessages(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol` that sends nothing, and counts what there would be.

    Attributes
    ----------
    counts
        Class of message → how many, of blocks.
    blocks, rows
        How many blocks that anybody gets, and rows. Where rows read what others of their block write, each is a block,
        but not for a switch that sends the block once.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self.counts: Counter[str] = Counter()
        self.blocks = self.rows = self._sent = 0
        self._plan, self._layout = plan, plan.layout
        program = plan.division.spread
        self._additions: dict[str, list[Addition]] = defaultdict(list)
        for addition in plan.layout.additions():
            self._additions[addition.flow.relation].append(addition)
        self._named: dict[str, list[NamedFlow]] = defaultdict(list)
        for named in named_flows(program):
            self._named[named.relation].append(named)
        self._is_single = {group.relation: group.has_row_versions for group in plan.nodes_program.groups}

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Sent]]:
        """Count what a block makes switches and nodes send; yield nothing."""
        relation = block.relation
        if relation in self._is_single:
            listed = block.rows.to_pylist()
            is_single = self._is_single[relation] and RULES[self._plan.mode].has_row_blocks
            for rows in [[row] for row in listed] if is_single else [listed]:
                self.counts += self._of_block(relation, rows)
                self.blocks += not self._plan.central.has_tree
                self.rows += len(rows)
            self.counts += self._whole_block()
        yield from ()

    def _whole_block(self) -> Counter[str]:
        """Return what is sent once for a block, also where each of its rows is a block for those that compute."""
        central, nodes = self._plan.central, self._plan.nodes
        found: Counter[str] = Counter()
        if central.has_tree:  # an edge of the tree for each node but the root
            self.blocks += 1
            found += Counter(RootBlock=1, ForwardedBlock=nodes - 1)
        self._sent += 1
        if central.poll_blocks and self._sent % central.poll_blocks == 0:
            found += Counter(PutsAsked=nodes, PutsTold=nodes, VersionCommit=nodes)
        return found

    def _of_block(self, relation: str, rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
        if not RULES[self._plan.mode].has_replicas:
            return self._of_target(relation, rows)
        homes: set[int] = set()
        reached: set[int] = set()
        pairs: set[tuple[int, int]] = set()
        for row in rows:
            for each in self._additions[relation]:
                senders = self._lying(each.home.place, row)
                homes |= {node for node, _ in senders}
                for receiver, theirs in chain.from_iterable(self._lying(target, row) for _, target in each.targets):
                    reached.add(receiver)
                    pairs |= {(at, receiver) for at, mine in senders if at != receiver and _correspond(mine, theirs)}
        if self._plan.mode is Mode.CENTRAL_SOURCE:
            return Counter(Evaluate=len(homes), Expect=len(reached), Push=len(pairs))
        return Counter(Events=len(homes), Deltas=len(pairs))

    def _of_target(self, relation: str, rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
        targets: set[int] = set()
        readers: set[int] = set()
        told: set[int] = set()
        pairs: set[tuple[int, int]] = set()
        for row in rows:
            for flow in self._named[relation]:
                to = self._owners(flow.writes, relation, row)
                targets |= {node for node, _ in to}
                for read in flow.reads:
                    for reader, mine in self._owners(read, relation, row):
                        for target, theirs in to:
                            if _correspond(mine, theirs):
                                readers.add(reader)
                                told.add(target)
                                pairs |= {(reader, target)} if reader != target else set()
        if self._plan.mode is Mode.TICKS:
            taking_part = len(readers | targets)
            return Counter(TickAsked=taking_part, TickTold=taking_part, TickSet=taking_part, Push=len(pairs))
        if self._plan.central.has_tree:  # nodes find the rest in their tables
            return Counter(Push=len(pairs))
        if self._plan.options.elide_put:  # who is sent nothing gets a FETCH for itself
            return Counter(Fetch=len(readers | targets - told), Push=len(pairs))
        return Counter(Fetch=len(readers), Put=len(targets), Push=len(pairs))

    def _owners(self, named: NamedSlice, relation: str, row: Mapping[str, Any]) -> list[tuple[int, LoopParts]]:
        """Return the nodes that own entries of a slice, each with the parts of its loop variables."""
        regions = self._layout.regions[named.map]
        return self._lying(place_of(self._layout.program, relation, named, regions), row)

    def _lying(self, place: Place, row: Mapping[str, Any]) -> list[tuple[int, LoopParts]]:
        """Return the nodes of a place, each with the parts of its loop variables."""
        cuts = [cut for _, cut in (*place.columns, *place.loops)]
        found = []
        for node in range(self._layout.nodes):
            is_there = node == sum(cut.stride * cut.part_at(node) for cut in cuts)
            if is_there and all(cut.part_of(row[column]) == cut.part_at(node) for column, cut in place.columns):
                loops: LoopParts = {}
                for name, cut in place.loops:
                    loops.setdefault(name, []).append((cut, cut.part_at(node)))
                found.append((node, loops))
        return found


def _correspond(one: LoopParts, other: LoopParts) -> bool:
    """Whether what lies in the parts of one may be joined with what lies in those of the other."""
    return all(
        may_meet(mine, part, theirs, their_part)
        for name in one.keys() & other.keys()
        for mine, part in one[name]
        for theirs, their_part in other[name]
    )


def messages_of_epoch(plan: ClusterPlan, endings: EpochEndings = DEFAULT_ENDINGS) -> Counter[str]:
    """Return how many messages there are for each epoch, whatever is in it: its end, its checkpoints, its commit."""
    nodes, switches = plan.nodes, plan.tables.switches
    rounds = 2 if plan.is_cyclic and RULES[plan.mode].corrects else 0  # if all are quiet
    agreeing = switches * (switches - 1) + 1  # among switches, and the lowest to the publisher
    return Counter(
        EpochTurn=switches,
        EpochEnd=plan.epoch_routes.ends,
        MapCheckpoint=nodes * (nodes - 1) * rounds + plan.epoch_routes.checkpoints,
        EpochToken=switches if endings.transitions is Transitions.STAGGERED and switches > 1 else 0,
        EpochReady=nodes + (agreeing if endings.commit is CommitBy.SWITCHES else switches),
        EpochCommit=nodes + switches,
    )


def count_messages(
    plan: ClusterPlan, sources: Sequence[FolderSource], block_rows: int = BLOCK_ROWS
) -> tuple[CountedMessages, int]:
    """Return what the files of a run would make switches and nodes send, and the number of epochs.

    Parameters
    ----------
    plan
        Of a program with spread maps.
    block_rows
        Of one block, at most.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    counted = CountedMessages(plan)
    static = frozenset(relation.name for relation in plan.program.relations if relation.static)
    switches = [
        (
            frozenset(plan.tables.tables_of(number)),
            plan.tables.shares_of(number),
            intake_of_switch(plan, number, partial(make_engine, "auto")),
            BlockMaker(Numbering(VersionOrder.CLOCK, number), counted, static, block_rows),
        )
        for number in range(plan.tables.switches)
    ]
    progress: Progress = {}
    epoch = 0
    while True:
        files, progress = next_files(sources, progress, 1)
        if not files:
            return counted, epoch
        epoch += 1
        for tables, shares, intake, blocks in switches:
            mine = {table: names for table, names in files.items() if table in tables}
            read = pack_rows(list(read_files(plan.program, sources, mine)), None, is_spread=True, shares=shares)
            _, nets = intake.apply(epoch, [intake_part(read)])
            assert not list(blocks.make(epoch, nets)), "counting sends nothing"
