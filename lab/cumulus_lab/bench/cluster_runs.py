"""Runs of the cluster's processes over folders, and of the embedded host over the same, measured from outside."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from cumulus.cluster import codec
from cumulus.cluster.messages import EpochTold, SourcesDone, StatusAsked, StatusTold
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions
from cumulus.cluster.planning.epoch_endings import DEFAULT_ENDINGS, EpochEndings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import machine_names
from cumulus.cluster.protocols.central_messages import PutsTold
from cumulus.cluster.protocols.table import MODES, POLLS, TREE
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.errors import ProcessError
from cumulus.m3.program import Program
from cumulus.machine_facts import cpu_seconds, resident_bytes
from cumulus.transport.machine_process import MachineMessage, Process, ProcessEnded
from cumulus.transport.supervisor import Supervisor
from cumulus.workloads import changes
from cumulus_lab.workloads import orders

WARM = 2
"""Epochs at the beginning that do not count: machine code is made there, and processes start."""
_STATUS_S = 60.0
_KINDS = (*(each for protocol in (*MODES.values(), TREE) for each in protocol.takes), *POLLS, PutsTold)
DATA_KINDS = frozenset(each.__name__ for each in _KINDS) | {"MapCheckpoint"}
"""The messages that differ from mode to mode."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A cluster that is measured."""

    mode: Mode
    nodes: int
    switches: int
    block: int
    order: str
    options: tuple[str, ...] = ()
    central: CentralOptions = DEFAULT_CENTRAL
    endings: EpochEndings = DEFAULT_ENDINGS


def write_orders(folder: Path, *, events: int, epochs: int, seed: int) -> None:
    """Write the stream for example 2.1 as files of epochs; a tenth of the events are deletions."""
    stream = orders.stream(scale=events / orders.EVENTS, seed=seed)
    step = -(-len(stream.kinds) // epochs)
    for number in range(epochs):
        part = stream.part(number * step, min(len(stream.kinds), (number + 1) * step))
        told: dict[str, pa.Table] = {}
        for place, (name, table) in enumerate(part.tables.items()):
            mine = part.kinds[part.kinds >> 1 == place] & 1
            told[name] = table.append_column("op", pa.array(["i" if each else "d" for each in mine.tolist()]))
        changes.write_epoch(folder, number, told)


def embedded_row(program: Program, folder: Path, out: Path) -> dict[str, Any]:
    """Run the embedded host; return its row."""
    marks: list[tuple[float, float, int]] = []
    with EmbeddedRun(
        program, sources_from([str(folder)], program), out, make_engine=partial(make_engine, "auto")
    ) as run:
        for epoch in run.steps():
            marks.append((time.perf_counter(), time.process_time(), epoch.totals["events"]))
    return {"mode": "embedded", "nodes": 1, "switches": 1, "block": None, "order": None, **_speed(marks)}


def cluster_row(program: Program, folder: Path, out: Path, shape: ClusterShape) -> dict[str, Any]:
    """Run a cluster; return its row.

    Raises
    ------
    ProcessError
        If a process ends.
    """
    settings: dict[str, Any] = {"block_rows": shape.block, "order": shape.order, "options": shape.options}
    settings |= shape.central.plain()
    settings |= shape.endings.plain()
    sources = sources_from([str(folder)], program)
    counts: dict[str, Any] = {"nodes": shape.nodes, "switches": shape.switches}
    with Home(program, sources, out, None, mode=shape.mode, **counts, **settings) as home:
        argument = {"home": home.settings.home, "every_ms": None, "last": 0}
        names = machine_names(home.settings)
        processes = [Process(name, "cumulus.cluster.processes.processes:equip", argument) for name in names]
        with Supervisor(processes) as supervisor:
            named = supervisor.pids()
            pids = list(named.values())
            marks = []
            alone: list[dict[str, float]] = []
            for events in _committed(supervisor, out):
                alone.append({name: cpu_seconds([pid]) for name, pid in named.items()})
                marks.append((time.perf_counter(), sum(alone[-1].values()), events))
            status = _status(supervisor, names)
            health = [each for each in supervisor.health(_STATUS_S).values() if each is not None]
            resident = sum(map(resident_bytes, pids))
    events = marks[-1][2]
    kinds = sum((Counter(each.sent_kinds) for each in health), Counter[str]())
    late, rows = (sum(each.get(name, 0) for each in status.values()) for name in ("deltas_late", "rows_late"))
    in_order = sum(each.get("deltas_in_order", 0) for each in status.values())
    return {
        "mode": shape.mode.value,
        "options": " ".join(shape.options),
        "dispatch": shape.central.text,
        "gc": shape.central.gc,
        **counts,
        "block": shape.block,
        "order": shape.order,
        **shape.endings.plain(),
        **_speed(marks),
        **_speed_alone(marks, alone),
        "pushes": late + in_order,
        "late_deltas": late,
        "late_rows": rows,
        "kept_deltas": sum(each.get("overlay_rows", 0) for each in status.values()),
        "gated_views": 0 if home.plan.gate is None else len(home.plan.division.gated.views),
        "messages_per_1000": round(sum(each.sent_messages for each in health) / events * 1000, 2),
        "sent": " ".join(f"{kind}:{number}" for kind, number in sorted(kinds.items()) if kind in DATA_KINDS),
        "bytes_per_event": round(sum(each.sent_bytes for each in health) / events, 1),
        "resident_mb": round(resident / 1e6),
    }


def _speed(marks: Sequence[tuple[float, float, int]]) -> dict[str, Any]:
    """Return what the epochs that count say: seconds, CPU seconds, and events at the end of each."""
    counted = marks[min(WARM, len(marks) - 1) - 1 :]
    seconds, cpu, events = (last - first for first, last in zip(counted[0], counted[-1], strict=True))
    gaps = sorted(later[0] - earlier[0] for earlier, later in pairwise(counted))
    return {
        "events": events,
        "events_per_s": round(events / seconds),
        "cpu_us_per_event": round(cpu / events * 1e6, 2),
        "commit_gap_p50_ms": round(median(gaps) * 1000),
        "commit_gap_max_ms": round(gaps[-1] * 1000),
    }


def _speed_alone(marks: Sequence[tuple[float, float, int]], alone: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the CPU time of an event at all nodes, and at the switch and the node that have the most to do."""
    begin = min(WARM, len(marks) - 1) - 1
    events = marks[-1][2] - marks[begin][2]
    used = {name: (alone[-1][name] - alone[begin][name]) / events * 1e6 for name in alone[-1]}
    nodes = [each for name, each in used.items() if name.startswith("node")]
    return {
        "nodes_us": round(sum(nodes), 3),
        "busiest_node_us": round(max(nodes), 3),
        "busiest_switch_us": round(max(each for name, each in used.items() if name.startswith("switch")), 3),
    }


def _committed(supervisor: Supervisor, out: Path) -> Iterator[int]:
    """Yield after each epoch how many events are in."""
    while True:
        match supervisor.wait():
            case MachineMessage(_, payload):
                match codec.decode(payload):
                    case EpochTold(epoch, _):
                        yield read_manifest(out, epoch).totals["events"]
                    case SourcesDone():
                        return
            case ProcessEnded() as ended:
                raise ProcessError(f"{ended.name}: {ended.reason}", hint=ended.hint)
            case _:
                pass


def _status(supervisor: Supervisor, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Ask all machines how they are."""
    for name in names:
        supervisor.send(name, b"".join(codec.encode(StatusAsked(1))))
    found: dict[str, Mapping[str, Any]] = {}
    until = time.monotonic() + _STATUS_S
    while len(found) < len(names) and time.monotonic() < until:
        match supervisor.wait(1.0):
            case MachineMessage(name, payload):
                told = codec.decode(payload)
                if isinstance(told, StatusTold):
                    found[name] = told.facts
            case _:
                pass
    return found
