"""Policies of section 6.3, for big rings: forwarding by rank, the inner ring, and which kept chunks are replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import RingSetUp, UpdateLoad
from cumulus_lab.experiments.ring.table_figures import Named
from cumulus_lab.experiments.ring.update_world import UpdateTally

BIG: dict[str, Any] = {"nodes": 32, "fewest_chunks": 1, "most_chunks": 1, "policy": {"lost_cycles": 4.0}}
"""A big ring, and queries of one chunk. With ranks a cycle may take much longer than a turn, so owners are as patient
as those of real nodes."""
KEEPING: dict[str, Any] = {"fewest_chunks": 1, "most_chunks": 1}

MIXED: dict[str, Any] = {"fewest_chunks": 1, "most_chunks": 20, "pins": "any"}
"""Short and long queries, which take chunks in any order."""
SHORT, LONG = 5, 15
"""A short query reads so many chunks at most, a long one more than so many."""

RELEVANCE = {"relevance": True}
FORWARDING = {"forwarding": True}
INNER = {"inner_every": 4}
UPDATES: dict[str, Any] = {"policy": {"updates": True}}
CACHES = ("lru", "lfu", "pix", "lix")
WEIGHED = ("pix", "lix")

NOT_SLOWER = Band(most=1.05)
"""When the last query is finished, by that without the policy."""
COLDEST = Band(most=3.0)
"""The coldest tenth's p99 by that without the policy."""
FEWEST_MOVES = 0.1
"""Lock moves per update are below this when the pattern of updates is stable (DC-39)."""
ABOVE = 0.98
"""A policy is above another one if its mean time is this share of the other's at most."""


def with_policy(set_up: RingSetUp, changes: dict[str, Any]) -> RingSetUp:
    """Return a set-up in which nodes have a policy."""
    return replace(set_up, policy={**set_up.policy, **changes})


def forwarding_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run in order of arrival and one by rank."""
    return [("in order", set_up), ("by rank", with_policy(set_up, FORWARDING))]


def relevance_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run in which the oldest postponed load goes first, and one in which the most relevant does."""
    return [("oldest first", set_up), ("by relevance", with_policy(set_up, RELEVANCE))]


def inner_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run with one ring and one with an inner ring of each fourth node."""
    return [("one ring", set_up), ("inner ring", with_policy(set_up, INNER))]


def cache_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run for each policy, first with disks that are alike, then with each second one four times slower."""
    disk_mb_s = set_up.queue_mb  # the paper's 200 MB/s, and a quarter of that at a quarter of the scale
    alike = replace(
        set_up, disk_mb_s=disk_mb_s, dbms_mb=set_up.queue_mb / 2, neutral_mb=2 * set_up.queue_mb, slow_disk_mb_s=0.0
    )
    unlike = replace(alike, slow_disk_mb_s=disk_mb_s / 4)
    return [
        (f"{cache}, disks {name}", with_policy(each, {"cache": cache}))
        for name, each in (("alike", alike), ("unlike", unlike))
        for cache in CACHES
    ]


def update_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run without updates, two with groups of chunks that do not overlap, and one with inputs that do."""
    loads = {
        "no updates": None,
        "one chunk": UpdateLoad(),
        "two chunks": UpdateLoad(update_chunks=2),
        "overlapping": UpdateLoad(update_chunks=2, overlaps=True),
    }
    return [(name, replace(set_up, updates=load)) for name, load in loads.items()]


def updates(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what has become of updates, locks and readers."""
    before, *runs = rows
    tallies = [row.updates for row in runs if row.updates is not None]
    one, two, overlapping = tallies

    def each(what: Callable[[UpdateTally], object]) -> str:
        return ", ".join(str(what(tally)) for tally in tallies)

    return [
        FigureFinding(
            "updates that came, of one chunk, of two, of two that overlap; and that are done",
            "",
            each(lambda tally: f"{tally.registered:,} → {tally.done:,}"),
            "all",
            all(tally.done == tally.registered for tally in tallies),
        ),
        FigureFinding(
            "chunks whose value is not the number of their updates",
            "",
            each(lambda tally: tally.wrong),
            "0",
            not any(tally.wrong for tally in tallies),
        ),
        FigureFinding(
            "lock tags left when all is quiet",
            "the locks are always released",
            each(lambda tally: tally.tags_left),
            "0",
            not any(tally.tags_left for tally in tallies),
        ),
        FigureFinding(
            "readers of the latest version; those that missed an update",
            "they have to wait for the new version",
            each(lambda tally: f"{tally.readers:,}; {tally.stale}"),
            "none",
            not any(tally.stale for tally in tallies),
        ),
        FigureFinding(
            "lock moves per update, one chunk, two chunks",
            "lock locations become stable if the update pattern remains constant",
            f"{one.moves:.3f}, {two.moves:.3f}",
            f"less than {FEWEST_MOVES}",
            max(one.moves, two.moves) < FEWEST_MOVES,
        ),
        FigureFinding("… overlapping", "", f"{overlapping.moves:.3f}"),
        FigureFinding(
            "share of updates at the busiest node, two chunks → overlapping",
            "with too many overlapping inputs the distribution is skewed",
            f"{two.busiest:.2f} → {overlapping.busiest:.2f}",
            "more",
            overlapping.busiest > two.busiest,
        ),
        FigureFinding("mean seconds of an update", "", each(lambda tally: f"{tally.mean_s:.2f}")),
        FigureFinding("… of a reader of the latest version", "", each(lambda tally: f"{tally.reader_s:.2f}")),
        FigureFinding(
            "mean seconds of a query that takes any version, without updates and with",
            "continue using the old versions",
            ", ".join(f"{row.mean_s:.2f}" for row in (before, *runs)),
        ),
    ]


def hot_and_cold(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what a policy does for popular chunks, and to unpopular ones."""
    before, after = rows
    hot, cold = (before.tenths[0], after.tenths[0]), (before.tenths[-1], after.tenths[-1])
    ratio = cold[1].p99_s / cold[0].p99_s
    return [
        FigureFinding(
            "seconds that half of the queries of the hot tenth wait at most",
            "the speed of the most popular chunks increases",
            f"{hot[0].p50_s:.3f} → {hot[1].p50_s:.3f}",
            "less",
            hot[1].p50_s < hot[0].p50_s,
        ),
        FigureFinding("… 99 % of them", "", f"{hot[0].p99_s:.3f} → {hot[1].p99_s:.3f}"),
        FigureFinding("half of those of the coldest tenth", "", f"{cold[0].p50_s:.3f} → {cold[1].p50_s:.3f}"),
        FigureFinding(
            "… 99 % of them",
            "latency of unpopular chunks may become a hindrance",
            f"{cold[0].p99_s:.3f} → {cold[1].p99_s:.3f}: × {ratio:.2f}",
            f"× {COLDEST}",
            ratio in COLDEST and after.finished == after.registered,
        ),
        FigureFinding("mean seconds of a query", "", f"{before.mean_s:.3f} → {after.mean_s:.3f}"),
        FigureFinding("GB over links", "", f"{before.bytes / 1e9:,.0f} → {after.bytes / 1e9:,.0f}"),
    ]


def relevance(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what relevance does for short queries, and to all of them together."""
    before, after = rows
    short, long = ([_mean_s(row, sizes) for row in rows] for sizes in (range(SHORT + 1), range(LONG + 1, 1_000)))
    last = after.last_s / before.last_s
    return [
        FigureFinding(
            f"mean seconds of queries of {SHORT} chunks or fewer",
            "not slowing down fast queries",
            f"{short[0]:.2f} → {short[1]:.2f}",
            "less",
            short[1] < short[0],
        ),
        FigureFinding(f"… of more than {LONG} chunks", "", f"{long[0]:.2f} → {long[1]:.2f}"),
        FigureFinding(
            "mean seconds of a query",
            "minimizes latency",
            f"{before.mean_s:.2f} → {after.mean_s:.2f}",
            "less",
            after.mean_s < before.mean_s,
        ),
        FigureFinding(
            "seconds until all queries are finished",
            "optimizes throughput",
            f"{before.last_s:.1f} → {after.last_s:.1f}: × {last:.2f}",
            f"× {NOT_SLOWER}",
            last in NOT_SLOWER and after.finished == after.registered,
        ),
        FigureFinding("chunk loads", "", f"{before.loads:,} → {after.loads:,}"),
    ]


def _mean_s(row: RingRow, sizes: range) -> float:
    """Return the mean time of queries that read so many chunks."""
    chosen = [each for each in row.by_size if int(each.name) in sizes]
    return sum(each.finished * each.mean_s for each in chosen) / sum(each.finished for each in chosen)


def cache(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return which cache policies are above LRU: those that weigh use by arrivals, if disks are unlike."""
    found = []
    for name, part in (("alike", rows[: len(CACHES)]), ("unlike", rows[len(CACHES) :])):
        times = {policy: row.mean_s for policy, row in zip(CACHES, part, strict=True)}
        found.append(
            FigureFinding(
                f"mean seconds of a query, disks {name}: {', '.join(map(str.upper, CACHES))}",
                "store chunks that are popular here and seldom broadcast",
                ", ".join(f"{each:.3f}" for each in times.values()),
                differs="" if (best := min(times, key=times.__getitem__)) in WEIGHED else f"{best.upper()} is quickest",
            )
        )
        for policy in WEIGHED:
            ratio = times[policy] / times["lru"]
            is_above = ratio <= ABOVE
            found.append(
                FigureFinding(
                    f"… {policy.upper()} by LRU",
                    "",
                    f"{ratio:.3f}",
                    f"{ABOVE} or less" if name == "unlike" else f"more than {ABOVE}",
                    is_above == (name == "unlike"),
                )
            )
    return found
