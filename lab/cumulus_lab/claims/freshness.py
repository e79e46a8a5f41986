"""Claims about when a row is to be seen: by the mode, by what waits in buffers; and about what comes late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.cluster.mode import Mode
from cumulus_lab.bench.cluster_runs import ClusterShape, cluster_row
from cumulus_lab.bench.live.running_cluster import RunningCluster
from cumulus_lab.bench.live.visibility import measure
from cumulus_lab.claims.claims import ClaimFound, ClaimScale, Rows, ratio, row_of, write_program
from cumulus_lab.workloads import orders

_RATE = 2_000
"""Events a second of the clients: little, so that nothing waits for a processor."""
_MODES = (Mode.EVENTUAL, Mode.TICKS, Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.FOUR_LOGS)
_BUFFERS = ("0", "5", "20", "100")


def _seen(scale: ClaimScale, home: Path, mode: Mode, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return when single rows were to be seen, of a live cluster of two nodes."""
    stream = orders.stream(scale=_RATE * scale.seconds / orders.EVENTS)
    with RunningCluster(orders.SQL, home, nodes=2, switches=1, every_s=0.5, mode=mode, options=options) as cluster:
        found = measure(cluster, stream, scale.seconds, round(scale.seconds * 10))
    names = ("acknowledged_p50_ms", "visible_p50_ms", "visible_p99_ms", "committed_p50_ms", "cpu_us_per_event")
    return {"mode": mode.value, **{name: found[name] for name in names}}


def latency(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure when a row is to be seen, mode by mode."""
    rows: Rows = [_seen(scale, scratch / mode.value, mode) for mode in _MODES]
    eventual = row_of(rows, mode="eventual")["visible_p50_ms"]
    others = [row["visible_p50_ms"] for row in rows if row["mode"] != "eventual"]
    sentence = (
        f"A row is to be seen after {eventual} ms in eventual mode, and after {min(others)} to {max(others)} ms in the "
        f"others, of which the slowest takes {ratio(max(others), eventual)} as long."
    )
    until = (
        "On one computer, where a hop takes no time; a hop of d ms adds d in eventual mode and two or three in others."
    )
    return ClaimFound(rows, sentence, until)


def buffers(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure what a buffer of deltas costs in time, and gains in work."""
    program = write_program("example-2.1", scratch / "in", scale)
    rows: Rows = []
    for each in _BUFFERS:
        options = () if each == "0" else (f"buffer={each}",)
        seen = _seen(scale, scratch / f"live-{each}", Mode.EVENTUAL, options)
        shape = ClusterShape(Mode.EVENTUAL, 2, 1, 500, "clock", options)
        run = cluster_row(program, scratch / "in", scratch / f"run-{each}", shape)
        rows.append(
            {
                "buffer_ms": int(each),
                "visible_p50_ms": seen["visible_p50_ms"],
                "cpu_us_per_event": run["cpu_us_per_event"],
                "events_per_s": run["events_per_s"],
                "messages_per_1000": run["messages_per_1000"],
            }
        )
    first, last = rows[0], rows[-1]
    messages, cpu = (ratio(last[name], first[name]) for name in ("messages_per_1000", "cpu_us_per_event"))
    sentence = (
        f"With a buffer of {last['buffer_ms']} ms a row is seen after {last['visible_p50_ms']:.0f} ms, without one "
        f"after {first['visible_p50_ms']:.0f}; messages are {messages} what they were, and CPU time {cpu}."
    )
    until = (
        "A step sends together what has come by then, so under load there is a buffer already, and little is gained."
    )
    return ClaimFound(rows, sentence, until)


def corrections(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure how much comes late and is corrected, by the order of versions, by blocks and by buffers."""
    program = write_program("example-2.1", scratch / "in", scale)
    rows: Rows = []
    for order in ("clock", "switch"):
        for block in (500, 10_000):
            for options in ((), ("buffer=20",)):
                shape = ClusterShape(Mode.EVENTUAL, 2, 2, block, order, options)
                name = f"{order}-{block}-{len(options)}"
                found = cluster_row(program, scratch / "in", scratch / name, shape)
                rows.append(
                    {
                        "order": order,
                        "block": block,
                        "options": " ".join(options),
                        "deltas_per_100": round(found["pushes"] / found["events"] * 100, 1),
                        "late_per_100": round(found["late_deltas"] / found["events"] * 100, 1),
                        "cpu_us_per_event": found["cpu_us_per_event"],
                    }
                )
    late = [row["late_per_100"] for row in rows]
    gained = row_of(rows, order="clock", block=10_000, options="")["late_per_100"]
    buffered = row_of(rows, order="clock", block=10_000, options="buffer=20")["late_per_100"]
    sentence = (
        f"For 100 events {min(late)} to {max(late)} deltas come late and correct others; with blocks of 10,000 a "
        f"buffer of 20 ms makes {gained} into {buffered}."
    )
    least = min(rows, key=lambda row: row["late_per_100"])
    until = (
        f"The fewest are {least['late_per_100']}, with order {least['order']}, blocks of {least['block']:,} and "
        f"{least['options'] or 'no buffer'}. Staggered transitions are not built, and not measured."
    )
    return ClaimFound(rows, sentence, until)


def elision(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure what it gains not to send again what the reader has already (PUSH elision), by how often keys return."""
    rows: Rows = []
    for workload in ("example-2.1", "q3"):
        program = write_program(workload, scratch / workload, scale)
        for options in ((), ("elide-push=correct",)):
            shape = ClusterShape(Mode.FOUR_LOGS, 2, 1, 1_000, "clock", options)
            found = cluster_row(program, scratch / workload, scratch / f"{workload}-{len(options)}", shape)
            sent = dict(each.split(":") for each in found["sent"].split())
            rows.append(
                {
                    "workload": workload,
                    "options": " ".join(options),
                    "pushes": int(sent.get("Push", 0)),
                    "corrects": int(sent.get("Correct", 0)),
                    "bytes_per_event": found["bytes_per_event"],
                    "cpu_us_per_event": found["cpu_us_per_event"],
                }
            )
    told = []
    for workload in ("example-2.1", "q3"):
        plain, elided = (row_of(rows, workload=workload, options=each) for each in ("", "elide-push=correct"))
        cpu = ratio(elided["cpu_us_per_event"], plain["cpu_us_per_event"])
        told.append(f"{workload}: {plain['pushes']:,} PUSHes become {elided['pushes']:,}, at {cpu} the CPU")
    return ClaimFound(
        rows,
        f"{'; '.join(told)}.",
        "The gain is in messages, where a block reads keys that blocks before it have read: one new key needs a PUSH.",
    )
