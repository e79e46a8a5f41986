"""A home that goes on with another number of nodes: what the nodes have is dealt out anew.

What the old nodes have after the last committed epoch, wherever they are (`cumulus.cluster.processes.host_states`) →
what each new node has of it → files of the next layout, on its host → the settings of the home, which name that layout.
Until these are written nothing has changed, and once they are, nobody reads the old files. Rows that were accepted and
are not committed yet go into the logs of the next layout; where they lie in buckets of a gate that are others then, the
old nodes commit them first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cumulus.cluster import codec
from cumulus.cluster.messages import node_name
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.slots import SLOTS, SlotTable, balanced_slots, moved_slots, table_of_hash
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.cluster.processes.cluster_settings import ClusterSettings, read_settings
from cumulus.cluster.processes.dealt_switches import dealt_switches
from cumulus.cluster.processes.home import Home, reader_hosts
from cumulus.cluster.processes.host_places import PLACES_FILE, HostPlaces, has_places
from cumulus.cluster.processes.host_states import HostStates
from cumulus.cluster.processes.processes import machine_names
from cumulus.cluster.processes.run import ClusterRun
from cumulus.cluster.protocols.eventual_state import Indices
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import HeldState, NodeState
from cumulus.durable import faults
from cumulus.durable.files import make_folder
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.engine.frames.unbounded import fitted, frame_of_bytes
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.reshape import reshape
from cumulus.errors import LayoutError, UsageError
from cumulus.m3.program import Program
from cumulus.machine import Name
from cumulus.transport.forked_processes import ForkServer

DEFAULT_NODES = 2
_DRAIN_S = 0.05
"""How often an epoch may begin while the old nodes commit what was accepted."""


@dataclass(slots=True)
class _Whole:
    """What all nodes have together after an epoch.

    Parameters
    ----------
    entries
        Spread map → what each node owns of it.
    gates
        Bucket of the gate → its state.
    failed
        The spread maps that are wrong, as a snapshot has them.
    """

    entries: dict[str, list[MapFrame]] = field(default_factory=dict)
    gates: dict[int, bytes] = field(default_factory=dict)
    failed: dict[str, Sequence[object]] = field(default_factory=dict)


def open_home(
    program: Program,
    sources: Sequence[FolderSource],
    out: Path,
    checkpoint: Path | None,
    *,
    mode: Mode,
    nodes: int,
    switches: int,
    note: Callable[[str], None],
    cuts: Sequence[str] = (),
    splits: Sequence[str] | None = None,
    hosts: HostSettings | None = None,
    is_moved: bool = False,
    moves: Sequence[str] = (),
    forks: ForkServer | None = None,
    **settings: Any,
) -> Home:
    """Open the folders of a cluster; if it had others, or other cuts, its state is dealt out before.

    So it is if its machines were beside the home and are to be on hosts, or a switch is to read files that did not.

    Parameters
    ----------
    program, sources, out, checkpoint, mode, nodes, switches, cuts, settings
        As `cumulus.cluster.processes.home.Home` takes them; nodes, switches and cuts that are not given are as they
        were.
    splits
        The same; None: as they were.
    note
        Takes a line about what is done.
    hosts
        The hosts on which machines are to be; None: all beside the home.
    is_moved
        Whether all is dealt out whatever the number of nodes: machines are placed elsewhere, or keys.
    moves
        Which slots are to be on which nodes (`cumulus.cluster.placement.slots.moved_slots`).
    forks
        What forks machines that have to commit something before; None: they have their own.

    Raises
    ------
    MismatchError
        As `Home`; and if the state cannot be dealt out.
    """
    place = (checkpoint or out / "checkpoint").absolute()
    before = read_settings(place)
    nodes = nodes or (DEFAULT_NODES if before is None else before.nodes)
    if before is not None and not cuts:
        cuts = before.cuts
    switches = switches or (1 if before is None else before.switches)
    if splits is None:
        splits = () if before is None else before.splits
    wanted: dict[str, Any] = {**settings, "mode": mode}
    is_same = before is not None and before.mode == mode.value
    if before is not None and is_same:
        was = before.nodes, before.switches, before.cuts, before.splits
        is_other = was != (nodes, switches, tuple(cuts), tuple(splits)) or is_moved
        is_other |= (hosts is not None) != has_places(before.root)
        if is_other:
            old_shape: dict[str, Any] = {"nodes": before.nodes, "switches": before.switches}
            old_shape |= {"cuts": before.cuts, "splits": before.splits}
            with Home(program, sources, out, checkpoint, **old_shape, **wanted) as old:
                resize(old, nodes, switches, cuts, note, hosts, moves, forks, splits)
    wanted |= {"nodes": nodes, "switches": switches, "cuts": cuts, "splits": splits}
    home = Home(program, sources, out, checkpoint, **wanted)
    with ExitStack() as opened:
        opened.enter_context(home)
        if hosts is None or not _lacks_files(home, hosts):
            opened.pop_all()
            return home
        resize(home, nodes, switches, cuts, note, hosts, forks=forks, splits=splits)
    return Home(program, sources, out, checkpoint, **wanted)


def plan_of_resize(
    plan: ClusterPlan,
    before: ClusterSettings,
    nodes: int,
    switches: int,
    cuts: Sequence[str],
    moves: Sequence[str],
    splits: Sequence[str],
) -> ClusterPlan:
    """Return the plan of a cluster with other machines; all that can be refused without its state is refused here.

    Parameters
    ----------
    plan, before
        As the cluster is.
    nodes, switches, cuts, moves, splits
        As `resize` takes them.

    Raises
    ------
    LayoutError
        If the program would be divided otherwise.
    UsageError
        If slots cannot move so, the cuts make another number of regions, or a table cannot be split so.
    """
    after = plan_cluster(plan.program, nodes, switches, Mode(before.mode), cuts=cuts, splits=splits)
    if cuts and moves:
        raise UsageError(
            f"--move {moves[0]}: keys lie by --cut {cuts[0]}, and not by slots",
            hint="Leave it out: regions move with other cuts, when the cluster is started.",
        )
    moved_slots(SlotTable([0] * SLOTS), moves, nodes)
    if after.division != plan.division:
        raise LayoutError(
            f"on {nodes} nodes this program is divided otherwise than on {before.nodes}",
            hint=f"Give {before.shape_text}, or start with new folders.",
        )
    return after


def resize(
    home: Home,
    nodes: int,
    switches: int,
    cuts: Sequence[str],
    note: Callable[[str], None],
    hosts: HostSettings | None = None,
    moves: Sequence[str] = (),
    forks: ForkServer | None = None,
    splits: Sequence[str] = (),
) -> None:
    """Deal out what nodes and switches of a home have to others, by other cuts or slots, or to other hosts.

    Parameters
    ----------
    home
        Opened as it was.
    nodes, switches, cuts, hosts, moves, splits
        As it is to be. Without cuts and moves, all nodes get about equal parts.
    note
        Takes a line about what is done.
    forks
        As `open_home` takes it.

    Raises
    ------
    MismatchError
        If the machines of this home are on hosts that are not given.
    LayoutError
        If the program would be divided otherwise.
    UsageError
        If slots cannot move so.
    ProcessError
        If the state of a machine on another host cannot be moved.
    """
    before = home.settings
    after = plan_of_resize(home.plan, before, nodes, switches, cuts, moves, splits)
    homes = tuple((*at, column) for at, column in after.layout.homes.items())
    settings = replace(before, nodes=nodes, switches=switches, cuts=tuple(cuts), splits=tuple(splits), homes=homes)
    settings = replace(settings, layout=before.layout + 1, slots=())
    reader_hosts(settings, after)  # before anything is done
    shutil.rmtree(settings.root, ignore_errors=True)  # half of one: it was killed
    make_folder(settings.root)
    if after.tables != home.plan.tables or not _has_same_gate(home.plan, after):
        _commit_accepted(home, settings, note, hosts, forks)
    with HostStates(home, settings, hosts, note) as states:
        placed = states.place(after)
        held = states.read(_keepers(before))
        whole = _gathered(home, held)  # it takes what nodes have
        if not cuts:
            slots = _slots(home, whole.entries, after, moves)
            settings, after = replace(settings, slots=slots.runs()), after.with_slots(slots)
        if after.tables != home.plan.tables:
            held = dealt_switches(home, held, after)
        states.keep({**held, **_dealt(home, whole, after)}, placed)
    faults.crash_point("before-layout")
    settings.write(None)
    faults.crash_point("after-layout")
    gone = [before.root] if before.layout else [*map(before.folder, _keepers(before)), before.root / PLACES_FILE]
    for each in gone:
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
    more = f", {before.switches} switches → {switches}" if switches != before.switches else ""
    if tuple(splits) != before.splits:
        more = f"{more}, split: {', '.join(splits) or 'nothing'}"
    note(f"{before.nodes} nodes → {nodes}{more}: what they had after epoch {home.epoch} is dealt out anew")


def _lacks_files(home: Home, hosts: HostSettings) -> bool:
    """Whether a switch that reads files now is not where these are; it is, where nothing has run yet."""
    if not has_places(home.settings.root):
        return False
    readers = reader_hosts(home.settings, home.plan)
    places = HostPlaces(home.settings.root, hosts.addresses())
    beside = places.beside([name for name, host in readers.items() if not host])
    return any(name not in beside if not host else places.host_of(name) != host for name, host in readers.items())


def _keepers(settings: ClusterSettings) -> list[Name]:
    """Return the machines whose state is dealt out, or goes with them."""
    return [name for name in machine_names(settings) if name != PUBLISHER]


def _has_same_gate(before: ClusterPlan, after: ClusterPlan) -> bool:
    """Whether what switches have put down for a gate is the same in both plans."""
    if before.gate is None or after.gate is None:
        return before.gate is after.gate
    old, new = before.gate.buckets, after.gate.buckets
    return (old.buckets, old.partitioned) == (new.buckets, new.partitioned)


def _commit_accepted(
    home: Home,
    after: ClusterSettings,
    note: Callable[[str], None],
    hosts: HostSettings | None,
    forks: ForkServer | None,
) -> None:
    """Let the old machines commit what clients were told is accepted."""
    with HostStates(home, after, hosts, note) as states:
        switches = [name for name in _keepers(home.settings) if not name.startswith("node")]
        last = max(each.last for each in states.read(switches).values())
    if last > home.epoch:
        note(f"rows up to epoch {last} were accepted and are committed first, by the nodes that there were")
        running = ClusterRun(home, _DRAIN_S, last, note=note, hosts=_unplaced(home, hosts), forks=forks)
        for epoch in running.epochs(lambda: False):
            home.epoch = epoch.number


def _unplaced(home: Home, hosts: HostSettings | None) -> HostSettings | None:
    """Return the hosts without a place for any machine: those that there were are where they were."""
    return replace(hosts, place={}) if hosts is not None and has_places(home.settings.root) else None


def _slots(home: Home, entries: Mapping[str, list[MapFrame]], after: ClusterPlan, moves: Sequence[str]) -> SlotTable:
    """Return on which nodes slots are to be: after moves, else so that what lies by keys takes equal memory."""
    before = home.plan.layout
    table = before.whole.slots or table_of_hash(before.nodes)
    if not (moves and table is not None and before.nodes == after.nodes):
        weights = np.zeros(SLOTS)
        for name, frames in entries.items():
            for axis in (axis for each in after.layout.sets[name] for axis, _ in each.axes):
                for frame in frames:
                    found = np.bincount(frame.buckets(axis, SLOTS), minlength=SLOTS)
                    weights += found * (frame.words.nbytes / max(frame.rows, 1))
        table = balanced_slots(weights.tolist(), after.nodes, table)
    return moved_slots(table, moves, after.nodes)


def _dealt(home: Home, whole: _Whole, after: ClusterPlan) -> dict[Name, HeldState]:
    """Return what each node of a plan has after the last committed epoch, of what nodes had together."""
    if not home.epoch:
        return {}
    gates: list[bytes] = []
    if after.gate is not None:
        assert home.plan.gate is not None, "the programs are divided alike"
        old = home.plan.gate.buckets
        parts = [whole.gates[index] for index in range(old.buckets)]
        gates = reshape(after.gated, old, parts, after.gate.buckets)
    placed = list(_placed(whole.entries, after))
    found = {}
    for number in range(after.nodes):
        gate = b""
        if after.gate is not None and number in after.gate.nodes:
            gate = gates[after.gate.nodes.index(number)]
        shares = ((at, frame.take(nodes[number])) for at, frame, nodes in placed)
        newest = [(at, share.to_bytes()) for at, share in shares if share.rows]
        state = NodeState(home.epoch, gate, newest, [], whole.failed)
        found[node_name(number)] = HeldState(b"".join(codec.encode(state)))
    return found


def _placed(
    entries: Mapping[str, list[MapFrame]], plan: ClusterPlan
) -> Iterator[tuple[int, MapFrame, Sequence[Indices]]]:
    """Yield the number of each map, all its entries, and which of them each node of a plan holds."""
    for number, definition in enumerate(plan.division.spread.maps):
        if definition.name in entries:
            whole = concat(fitted(definition, entries[definition.name]))
            yield number, whole, plan.layout.targets(definition.name, whole)


def _gathered(home: Home, held: dict[Name, HeldState]) -> _Whole:
    """Take what nodes have out of what all machines have; return it together."""
    found = _Whole()
    maps = home.plan.division.spread.maps
    for number in range(home.plan.nodes):
        state = held.pop(node_name(number)).state
        if not state:
            continue
        node: NodeState = codec.decode(state)
        if home.plan.gate is not None and number in home.plan.gate.nodes:
            found.gates[home.plan.gate.nodes.index(number)] = node.gate
        for at, data in node.newest:
            found.entries.setdefault(maps[at].name, []).append(frame_of_bytes(maps[at], data))
        found.failed |= node.failed
    return found
