"""`make fuzz`: random views beside DuckDB, until so many have been compared; exit code 1 if one differs.

    python -m fuzz [--seed N] [--views N] [--jobs N] [--only construct,…] [--keyed] [--one] [--dry] [--no-shrink]

FUZZ_SEED, FUZZ_VIEWS and FUZZ_JOBS are the defaults of the first three. `--seed N --one` replays the script of one
seed, which every failure names.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from multiprocessing import get_context

from fuzz.compare import COMPILE_SECONDS
from fuzz.constructs import CONSTRUCTS
from fuzz.examine import Examined, Making, examine, told
from fuzz.report import Tally

SCRIPTS = 1_000_000
"""Seeds of scripts that belong to one seed of a run."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description="Random views beside DuckDB.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FUZZ_SEED", "1")))
    parser.add_argument("--views", type=int, default=int(os.environ.get("FUZZ_VIEWS", "10000")))
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("FUZZ_JOBS", "2")))
    parser.add_argument("--only", default="", help="constructs, separated by commas")
    parser.add_argument("--without", default="", help="constructs that are not used")
    parser.add_argument("--keyed", action="store_true", help="only tables that refer to each other")
    parser.add_argument("--one", action="store_true", help="replay the script of one seed")
    parser.add_argument("--dry", action="store_true", help="DuckDB alone: which views are valid, and what they contain")
    parser.add_argument("--failures", type=int, default=25, help="how many failures end a run")
    parser.add_argument("--seconds", type=float, default=COMPILE_SECONDS, help="how long a view may compile")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="show failures as they were found")
    given = parser.parse_args()
    for name in ("only", "without"):
        constructs = tuple(each.strip() for each in getattr(given, name).split(",") if each.strip())
        unknown = sorted(set(constructs) - set(CONSTRUCTS))
        if unknown:
            parser.error(f"no construct {unknown[0]!r}; there are {', '.join(CONSTRUCTS)}")
        setattr(given, name, constructs)
    given.making = Making(given.only, frozenset(given.without), given.keyed)
    return given


def _examined(given: argparse.Namespace) -> Iterator[Examined]:
    """Yield what seeds show, in their order."""
    work = partial(examine, making=given.making, dry=given.dry, seconds=given.seconds)
    if given.one:
        yield work(given.seed)
        return
    seeds = count(given.seed * SCRIPTS)
    if given.jobs == 1:
        yield from map(work, seeds)
        return
    # A bounded look-ahead: a pool would run through an endless iterator.
    with get_context("spawn").Pool(given.jobs) as pool:
        while True:
            yield from pool.imap(work, [next(seeds) for _ in range(40 * given.jobs)], chunksize=4)


def main() -> int:
    """Run, report, and return the exit code."""
    given = _arguments()
    tally = Tally(dry=given.dry)
    began = time.monotonic()
    last = began
    for examined in _examined(given):
        for failure in tally.add(examined):
            # The other processes go on while this one shrinks.
            print(f"\n{told(given.making.script(examined.seed), failure, shrink=given.shrink)}", flush=True)
        now = time.monotonic()
        if now - last > 30:
            last = now
            print(f"{tally.line()}, {tally.generated / (now - began):.1f} a second", flush=True)
        # A compiler that refuses nearly everything must come to an end too.
        if given.views <= max(tally.accepted, tally.generated // 4) or tally.failure_count >= given.failures:
            break
    print(tally.report(time.monotonic() - began))
    return 1 if tally.failure_count else 0


if __name__ == "__main__":
    sys.exit(main())
