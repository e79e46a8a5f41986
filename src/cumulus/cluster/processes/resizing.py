"""A home that goes on with another number of nodes: what the nodes have is dealt out anew.

What the old nodes have after the last committed epoch → what each new node has of it → files in a folder of the next
layout → the settings of the home, which name that layout. Until these are written nothing has changed, and once they
are, nobody reads the old files. Rows that were accepted and are not committed yet go into the logs of the next layout;
where they lie in buckets of a gate that are others then, the old nodes commit them first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.messages import node_name, switch_name
from cumulus.cluster.mode import Mode
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.processes.cluster_settings import ClusterSettings, read_settings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.host_places import has_places
from cumulus.cluster.processes.processes import equip_by_plan
from cumulus.cluster.processes.run import ClusterRun
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.cluster.protocols.eventual_state import Indices
from cumulus.cluster.records import LoggedRows, NodeState, SwitchState
from cumulus.cluster.spread_maps import Failure
from cumulus.cluster.switch import Switch
from cumulus.durable import faults
from cumulus.durable.files import make_folder
from cumulus.durable.log_files import RecordLog
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.engine.frames.unbounded import fitted
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.reshape import reshape
from cumulus.errors import LayoutError, MismatchError
from cumulus.m3.program import Program
from cumulus.machine import Machine, Name, Recovered

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
    failed: dict[str, Failure] = field(default_factory=dict)


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
    **settings: Any,
) -> Home:
    """Open the folders of a cluster; if it had another number of nodes, or other cuts, its state is dealt out before.

    Parameters
    ----------
    program, sources, out, checkpoint, mode, nodes, switches, cuts, settings
        As `cumulus.cluster.processes.home.Home` takes them; without nodes, and without cuts, as they were.
    note
        Takes a line about what is done.

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
    wanted: dict[str, Any] = {**settings, "mode": mode, "switches": switches}
    is_same = before is not None and (before.mode, before.switches) == (mode.value, switches)
    if before is not None and is_same and (before.nodes, before.cuts) != (nodes, tuple(cuts)):
        with Home(program, sources, out, checkpoint, nodes=before.nodes, cuts=before.cuts, **wanted) as old:
            resize(old, nodes, cuts, note)
    return Home(program, sources, out, checkpoint, nodes=nodes, cuts=cuts, **wanted)


def resize(home: Home, nodes: int, cuts: Sequence[str], note: Callable[[str], None]) -> None:
    """Deal out what the nodes of a home have to another number of nodes, or by other cuts.

    Parameters
    ----------
    home
        Opened as it was.
    nodes, cuts
        As it is to be.
    note
        Takes a line about what is done.

    Raises
    ------
    MismatchError
        If the machines of this home are on several hosts.
    LayoutError
        If the program would be divided otherwise.
    """
    before = home.settings
    if has_places(Path(before.home)):
        raise MismatchError(
            f"{before.home}: this cluster began with {before.shape_text}, and what its nodes have is on other hosts",
            hint=f"Give {before.shape_text}, or start with new folders.",
        )
    mode = Mode(before.mode)
    after = plan_cluster(home.plan.program, nodes, before.switches, mode, cuts=cuts)
    if after.division != home.plan.division or after.tables != home.plan.tables:
        raise LayoutError(
            f"on {nodes} nodes this program is divided otherwise than on {before.nodes}",
            hint=f"Give {before.shape_text}, or start with new folders.",
        )
    if not _has_same_gate(home.plan, after):
        _commit_accepted(home, note)
    homes = tuple((*at, column) for at, column in after.layout.homes.items())
    settings = replace(before, nodes=nodes, cuts=tuple(cuts), homes=homes, layout=before.layout + 1)
    folder = settings.folder(node_name(0)).parent
    shutil.rmtree(folder, ignore_errors=True)  # half of one: it was killed
    if home.epoch:
        _deal_nodes(home, settings, after)
    _move_switches(home, settings)
    faults.crash_point("before-layout")
    settings.write(None)
    faults.crash_point("after-layout")
    names = (*map(node_name, range(before.nodes)), *map(switch_name, range(before.switches)))
    old = [before.folder(names[0]).parent] if before.layout else map(before.folder, names)
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    note(f"{before.nodes} nodes → {nodes}: what they had after epoch {home.epoch} is dealt out anew")


def _has_same_gate(before: ClusterPlan, after: ClusterPlan) -> bool:
    """Whether what switches have put down for a gate is the same in both plans."""
    if before.gate is None or after.gate is None:
        return before.gate is after.gate
    old, new = before.gate.buckets, after.gate.buckets
    return (old.buckets, old.partitioned) == (new.buckets, new.partitioned)


def _commit_accepted(home: Home, note: Callable[[str], None]) -> None:
    """Let the old machines commit what clients were told is accepted."""
    last = 0
    for number in range(home.plan.tables.switches):
        log = RecordLog(home.settings.folder(switch_name(number)) / "log")
        try:
            _, records = log.recover()
        finally:
            log.close()
        last = max((last, *(each.epoch for _, each in _divided(home, records)[1])))
    if last > home.epoch:
        note(f"rows up to epoch {last} were accepted and are committed first, by the nodes that there were")
        for epoch in ClusterRun(home, _DRAIN_S, last, note=note).epochs(lambda: False):
            home.epoch = epoch.number


def _deal_nodes(home: Home, settings: ClusterSettings, after: ClusterPlan) -> None:
    """Write what the nodes of a plan have after the last committed epoch."""
    whole = _gathered(home)
    gates: list[bytes] = []
    if after.gate is not None:
        assert home.plan.gate is not None, "the programs are divided alike"
        old = home.plan.gate.buckets
        parts = [whole.gates[index] for index in range(old.buckets)]
        gates = reshape(after.division.gated, old, parts, after.gate.buckets)
    placed = list(_placed(whole.entries, after))
    for number in range(after.nodes):
        gate = b""
        if after.gate is not None and number in after.gate.nodes:
            gate = gates[after.gate.nodes.index(number)]
        shares = ((at, frame.take(nodes[number])) for at, frame, nodes in placed)
        newest = [(at, share.to_bytes()) for at, share in shares if share.rows]
        _save(settings, node_name(number), home.epoch, NodeState(home.epoch, gate, newest, [], whole.failed))


def _move_switches(home: Home, settings: ClusterSettings) -> None:
    """Write what switches have after the last committed epoch, and what they have accepted since."""
    for name in map(switch_name, range(settings.switches)):
        with _recovered(home, name) as (switch, open_rows):
            assert isinstance(switch, Switch)
            folder = settings.folder(name)
            make_folder(folder)
            if home.epoch:
                _save(settings, name, home.epoch, switch.state(home.epoch))
            log = RecordLog(folder / "log")
            log.recover()
            if open_rows:
                log.write(open_rows)
            log.close()


def _placed(
    entries: Mapping[str, list[MapFrame]], plan: ClusterPlan
) -> Iterator[tuple[int, MapFrame, Sequence[Indices]]]:
    """Yield the number of each map, all its entries, and which of them each node of a plan holds."""
    for number, definition in enumerate(plan.division.spread.maps):
        if definition.name in entries:
            whole = concat(fitted(definition, entries[definition.name]))
            yield number, whole, plan.layout.targets(definition.name, whole)


def _gathered(home: Home) -> _Whole:
    """Return what all nodes of a home have after the last committed epoch."""
    found = _Whole()
    for number in range(home.plan.nodes):
        with _recovered(home, node_name(number)) as (node, _):
            assert isinstance(node, ClusterNode)
            if node.gate is not None:
                assert home.plan.gate is not None
                found.gates[home.plan.gate.nodes.index(number)] = node.gate.save()
            if node.spread is not None:
                for name in node.spread.names:
                    frame = node.spread.maps.newest(name)
                    mine = home.plan.layout.owners(name, frame) == number
                    found.entries.setdefault(name, []).append(frame.filter(mine))
                found.failed |= node.spread.failed.dump()
    return found


@contextmanager
def _recovered(home: Home, name: Name) -> Iterator[tuple[Machine, Sequence[bytes]]]:
    """Yield a machine as it is after the last committed epoch, and records of rows that it has accepted since."""
    spec = equip_by_plan(name, {"home": home.settings.home}, home.settings, home.plan)
    assert spec.log is not None
    try:
        first, records = spec.log.recover()
        done, open_rows = _divided(home, records)
        spec.machine.step([Recovered(first, done)])
        yield spec.machine, [record for record, _ in open_rows]
    finally:
        spec.log.close()


def _divided(home: Home, records: Sequence[bytes]) -> tuple[list[bytes], list[tuple[bytes, LoggedRows]]]:
    """Return the records of committed epochs, and those of rows that were accepted since."""
    logged = [(record, codec.decode(record)) for record in records]
    done = [record for record, each in logged if each.epoch <= home.epoch]
    return done, [at for at in logged if isinstance(at[1], LoggedRows) and at[1].epoch > home.epoch]


def _save(settings: ClusterSettings, name: Name, epoch: int, state: NodeState | SwitchState) -> None:
    folder = settings.folder(name)
    make_folder(folder)
    StateFiles(name, folder).save(SaveState(epoch, epoch, b"".join(codec.encode(state))))
