"""Claims about more nodes: events and reads grow with them, and what must be told to all does not."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import ceil, exp, log
from pathlib import Path
from typing import Any

import numpy as np

from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.message_counts import count_messages
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus.m3.program import Program
from cumulus.machine_facts import cpu_seconds
from cumulus_lab.bench.cluster_runs import ClusterShape, cluster_row, write_orders
from cumulus_lab.bench.live.running_cluster import RunningCluster
from cumulus_lab.claims.claims import ClaimFound, ClaimScale, Rows, row_of, write_program
from cumulus_lab.claims.costs import fitted_costs

_BLOCKS = (1_000, 10_000)
_MEASURED = (1, 2, 4)
_COMPUTED = (8, 16, 64, 256, 1000)
_WORTH = 1.5
"""Twice as many nodes are worth it if they do so much more."""
_KEYS, _READERS = 10_000, 4
_PEERS = (10, 100, 1000)
_BROADCASTS = 20
_DEPTHS = 3
"""Of example 2.1's maps, with the view."""


# --- events ---------------------------------------------------------------------------------------------------------


def linear_updates(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure events a second of modes by nodes, and compute larger clusters from what they cost."""
    program = write_program("example-2.1", scratch / "in", scale)
    write_orders(scratch / "block", events=_BLOCKS[-1], epochs=1, seed=0)
    rows: Rows = []
    said, stops = [], []
    for mode in (Mode.EVENTUAL, Mode.CENTRAL_SOURCE, Mode.GATED):
        blocks = _BLOCKS if mode is not Mode.GATED else _BLOCKS[-1:]
        measured = [_measured(program, scratch, mode, nodes, block) for nodes in _MEASURED for block in blocks]
        rows += measured
        if mode is Mode.GATED:
            continue
        costs = fitted_costs([(row["deltas"], row["messages"], row["nodes_us"]) for row in measured])
        switch_us = min(row["switch_us"] for row in measured)
        base, growth = _line([(row["nodes"], row["deltas"]) for row in measured])
        computed = []
        for nodes in (*_MEASURED, *_COMPUTED):
            if nodes <= scale.largest:
                deltas = base + growth * nodes
                messages = _messages(program, scratch, mode, nodes, deltas)
                told = {"deltas": round(deltas, 3), "messages": round(messages, 5)}
                nodes_us = costs.per_event(deltas, messages)
                computed.append(_row("computed", mode, nodes, _BLOCKS[-1], told, nodes_us, switch_us))
        rows += computed
        said.append(f"{mode.value}: {costs}, the switch {switch_us:.2f} µs an event")
        stops.append(f"{mode.value}: {_where_it_stops(computed, switch_us)}")
    sentence = f"Costs, of which larger clusters are computed: {'; '.join(said)}."
    return ClaimFound(rows, sentence, f"{'; '.join(stops)}.")


def _measured(program: Program, scratch: Path, mode: Mode, nodes: int, block: int) -> dict[str, Any]:
    shape = ClusterShape(mode, nodes, 1, block, "clock")
    found = cluster_row(program, scratch / "in", scratch / f"{mode.value}-{nodes}-{block}", shape)
    sent = sum(int(each.partition(":")[2]) for each in found["sent"].split())
    told = {
        "deltas": round(found["pushes"] / found["events"], 3),
        "messages": round(sent / found["events"], 5),
        "here_per_s": found["events_per_s"],
    }
    return _row("measured", mode, nodes, block, told, found["nodes_us"], found["busiest_switch_us"])


def _row(
    kind: str, mode: Mode, nodes: int, block: int, told: dict[str, Any], nodes_us: float, switch_us: float
) -> dict[str, Any]:
    """Return a row; events a second are those of machines with a processor each, with equal shares for all nodes."""
    return {
        "kind": kind,
        "mode": mode.value,
        "nodes": nodes,
        "block": block,
        **told,
        "nodes_us": round(nodes_us, 3),
        "switch_us": switch_us,
        "events_per_s": round(1e6 / max(nodes_us / nodes, switch_us)),
    }


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return base and growth, at least 0, of the line that fits points best."""
    told = np.array(points, dtype=float)
    growth, base = np.polyfit(told[:, 0], told[:, 1], 1)
    return float(base), max(float(growth), 0.0)


def _messages(program: Program, scratch: Path, mode: Mode, nodes: int, deltas: float) -> float:
    """Return how many messages there are for an event, in blocks of the largest size.

    Where nodes wait for each other each pair of them that may have something for the other sends it, or that there is
    nothing; else those do that have: of so many deltas, dealt to pairs at random.
    """
    plan = plan_cluster(program, nodes, 1, mode)
    _, sources = match_sources_to_tables(program, sources_from([str(scratch / "block")], program))
    counted, _ = count_messages(plan, sources, _BLOCKS[-1])
    messages = float(sum(counted.counts.values()))
    pairs = counted.counts["Deltas"]
    if pairs:
        messages += pairs * (1 - exp(-deltas * counted.rows / pairs)) - pairs
    return messages / counted.rows


def _where_it_stops(computed: Sequence[dict[str, Any]], switch_us: float) -> str:
    """Return from how many nodes on twice as many are not worth it, and why."""
    for before, after in pairwise(computed):
        steps = log(after["nodes"] / before["nodes"], 2)
        if after["events_per_s"] < before["events_per_s"] * _WORTH**steps:
            is_switch = after["nodes_us"] / after["nodes"] < switch_us
            why = "the one switch has no more time" if is_switch else "deltas and messages grow as fast"
            return f"behind {before['nodes']} nodes, where {why}"
    return f"not up to {computed[-1]['nodes']} nodes"


# --- reads ----------------------------------------------------------------------------------------------------------


def linear_reads(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure what a tentative read of a key costs the nodes, by their number."""
    rows: Rows = []
    for nodes in _MEASURED:
        script = "CREATE TABLE r (k BIGINT, a BIGINT); CREATE VIEW v AS SELECT k, SUM(a) AS s FROM r GROUP BY k;"
        with RunningCluster(script, scratch / str(nodes), nodes=nodes, switches=1, every_s=0.2) as cluster:
            with cluster.connect() as client:
                client.view("v", after=client.insert("r", [(key, key) for key in range(_KEYS)]))
            before, began = _busy(cluster), time.perf_counter()
            time.sleep(scale.seconds)
            idle = (_busy(cluster) - before) / (time.perf_counter() - began)
            before, began = _busy(cluster), time.perf_counter()
            with ThreadPoolExecutor(_READERS) as pool:
                counts = list(pool.map(lambda seed: _read(cluster, scale.seconds, seed), range(_READERS)))
            took = time.perf_counter() - began
            used = _busy(cluster) - before - idle * took
        reads = sum(counts)
        rows.append(_read_row("measured", nodes, round(reads / took), round(used / reads * 1e6, 1)))
    costs = sorted(row["node_us"] for row in rows)
    middle = costs[len(costs) // 2]
    rows += [_read_row("computed", nodes, None, middle) for nodes in _COMPUTED if nodes <= scale.largest]
    sentence = (
        f"A read of a key asks one node, whatever their number: {costs[0]} to {costs[-1]} µs of a node, "
        "so reads a second grow with the nodes."
    )
    return ClaimFound(rows, sentence, "Not for keys. A read by other columns than those a map lies by asks all nodes.")


def _read_row(kind: str, nodes: int, here: int | None, node_us: float) -> dict[str, Any]:
    of_all = round(nodes / node_us * 1e6)
    return {"kind": kind, "nodes": nodes, "here_per_s": here, "node_us": node_us, "reads_per_s": of_all}


def _busy(cluster: RunningCluster) -> float:
    return cpu_seconds([pid for name, pid in cluster.pids.items() if name.startswith("node")])


def _read(cluster: RunningCluster, seconds: float, seed: int) -> int:
    chosen, count = random.Random(seed), 0
    with cluster.connect() as client:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            client.get("v", chosen.randrange(_KEYS), read="tentative")
            count += 1
    return count


# --- broadcasts -----------------------------------------------------------------------------------------------------


def broadcast(scale: ClaimScale, scratch: Path) -> ClaimFound:
    """Measure one small message to each of many peers, over TCP, and compute 10,000 peers, straight and by a tree."""
    rows: Rows = []
    for peers in _PEERS:
        took = asyncio.run(_broadcasts(peers))
        rows.append({"kind": "measured", "peers": peers, "how": "straight", "ms": round(took * 1000, 3)})
    each_s = (rows[-1]["ms"] - rows[0]["ms"]) / 1000 / (_PEERS[-1] - _PEERS[0])
    for peers in (*_PEERS, 10_000):
        for arity in (2, 16):
            hops = ceil(log(peers, arity))
            rows.append(
                {
                    "kind": "computed",
                    "peers": peers,
                    "how": f"tree of {arity}",
                    "ms": round(hops * arity * each_s * 1000, 3),
                }
            )
    straight = 10_000 * each_s
    rows.append({"kind": "computed", "peers": 10_000, "how": "straight", "ms": round(straight * 1000, 1)})
    by_tree = row_of(rows, peers=10_000, how="tree of 16")["ms"]
    sentence = (
        f"A message to each of 10,000 peers takes one sender {straight:.2f} s, at {each_s * 1e6:.0f} µs to send one "
        f"and take it in, both in one process; by a tree of 16 it takes {by_tree} ms, in 4 hops."
    )
    until = (
        "It is no bound by itself. What nodes tell each other in each epoch is worse: all to all, for "
        f"{_DEPTHS} depths, is {10_000 * 9_999 * _DEPTHS:,} messages, {10_000 * each_s * _DEPTHS:.1f} s of each node."
    )
    return ClaimFound(rows, sentence, until)


async def _broadcasts(peers: int) -> float:
    """Return how long it takes, in the median, until so many peers have a message each."""
    heard, ended = asyncio.Queue[int](), asyncio.Queue[int]()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(64):
            heard.put_nowait(1)
        writer.close()
        ended.put_nowait(1)

    server = await asyncio.start_server(listen, "127.0.0.1", 0, backlog=peers)
    port = server.sockets[0].getsockname()[1]
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(peers)]
    took = []
    for _ in range(_BROADCASTS):
        began = time.perf_counter()
        for writer in writers:
            writer.write(b"x" * 48)
        for _ in writers:
            await heard.get()
        took.append(time.perf_counter() - began)
    for writer in writers:
        writer.close()
    for _ in writers:
        await ended.get()
    server.close()
    return sorted(took)[len(took) // 2]
