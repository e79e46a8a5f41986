"""Random scripts in epochs on clusters beside the embedded host.

    python -m fuzz.clusters [--seed N] [--scripts N] [--ways N]

Each script is compiled once and run in some of the `WAYS`, all of them equally often; exit code 1 if an epoch differs.
A failure names the seed of its script.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from cumulus.cluster.mode import Mode
from cumulus.cluster.spread import divide
from cumulus.cluster.versions import VersionOrder
from cumulus.epochs.committed.manifest import read_manifest
from fuzz.case import Case, case_of
from fuzz.cluster_files import write_files
from fuzz.constructs import CONSTRUCTS, constructs
from fuzz.epochs import compiled, made
from fuzz.generator import script_of
from fuzz.schema import NAMES
from support.oracle import Oracle
from support.same_as_embedded import SHAPES, Compared

WAYS = list(product(SHAPES, Mode))
VIEWS = 2
"""How many of a script's views are taken at most, beside one that fails."""
SECONDS = 1.5
"""How long they may compile: many small scripts show more than a few large ones."""
LATE_EPOCHS = 2
"""So that orphans are refused before the last epoch."""


@dataclass(frozen=True)
class Made:
    """A script with its files.

    Parameters
    ----------
    counts
        What is in the files.
    constructs
        What its views are made of.
    """

    compared: Compared
    counts: Counter[str]
    constructs: frozenset[str]


def made_from(seed: int, place: Path) -> Made | None:
    """Return what a seed gives, done by the embedded host; None if nothing of it compiles."""
    draw = random.Random(seed)
    script = script_of(seed, keyed=seed % 2 == 1)
    case = case_of(replace(script, views=script.views[: draw.randint(1, VIEWS)]))
    given = made(draw, replace(case, views=(*_failing(draw, case), *case.views)))
    oracle = Oracle(replace(case, tables=tuple(given.tables)).schema)
    try:
        program = compiled(given, oracle, SECONDS)
    finally:
        oracle.database.close()
    if program is None:
        return None
    counts = write_files(draw, program, given.events, place / "in")
    settings = {"late_epochs": LATE_EPOCHS, "keep": 10_000}
    found = Compared(given.script, [str(place / "in")], place, program=program, **settings)
    counts += Counter(epochs=found.epochs, views=len(program.views))
    counts["spread views"] = len(divide(found.program).spread.views)
    totals = read_manifest(found.embedded, found.epochs)
    counts["quarantined"] = totals.totals["quarantined"]
    counts["errors of views"] = sum(totals.view_error_totals.values())
    used = frozenset().union(*(constructs(view) for view in script.views if view.name in given.views))
    return Made(found, counts, used)


def _failing(draw: random.Random, case: Case) -> list[tuple[str, str]]:
    """Return a view that fails for some rows: it divides, or reads texts as numbers.

    Its table refers to no other: the embedded host tells it anew when it moves a row around its parent, a cluster does
    not move rows.
    """
    for table in draw.sample(case.tables, len(case.tables)):
        if "REFERENCES" in table:
            continue
        name = table.split()[2]
        columns = [each.split()[0] for each in table[table.index("(") + 1 :].split(", ")]
        kinds = {column: NAMES.get(column) for column in columns}
        texts = [column for column, kind in kinds.items() if kind == "text"]
        numbers = [column for column, kind in kinds.items() if kind == "int"]
        summands = [f"SUM(CAST({column} AS INTEGER))" for column in texts]
        summands += [f"{call}(6 // {column})" for column in numbers for call in ("SUM", "MIN")]
        if summands:
            group, summand = draw.choice(texts + numbers), draw.choice(summands)
            return [("fails", f"SELECT {group}, COUNT(*) AS n, {summand} AS t FROM {name} GROUP BY {group}")]
    return []


def compare(seed: int, place: Path, ways: list[tuple[tuple[int, int], Mode]]) -> Counter[str]:
    """Compare all epochs of a script; return what was compared, nothing if nothing of it compiles."""
    draw = random.Random(f"ways {seed}")
    found = made_from(seed, place)
    if found is None:
        return Counter()
    compared = found.compared
    try:
        for shape, mode in ways:
            compared.check(shape, mode, draw.choice(list(VersionOrder)), block_rows=draw.choice((1, 7)), seed=seed)
    except AssertionError as problem:
        raise AssertionError(f"seed {seed}: {problem}\n{compared.script}") from problem
    views = Counter({"ways": len(ways), "views in epochs": len(ways) * found.counts["views"] * compared.epochs})
    return found.counts + compared.counts + views + Counter(f"has {each}" for each in found.constructs)


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="fuzz.clusters", description="Random scripts on clusters.")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--scripts", type=int, default=300, help="how many must compile")
    parser.add_argument("--ways", type=int, default=2, help="how many of the ways to run a cluster, for each")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    seed, done, failures, began = given.seed, 0, 0, time.monotonic()
    while done < given.scripts:
        ways = [WAYS[(done * given.ways + number) % len(WAYS)] for number in range(given.ways)]
        with TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = compare(seed, Path(place), ways)
            except Exception:  # noqa: BLE001  # whatever is wrong with a script, the others are to be seen, too
                print(f"seed {seed}:\n{traceback.format_exc(limit=-4)}", flush=True)
                failures += 1
                found = Counter({"failed": 1})
        counts += found
        done += bool(found)
        seed += 1
        if found and (done % 10 == 0 or done == given.scripts):
            told = {name: count for name, count in counts.items() if not name.startswith("has ")}
            missing = [each for each in CONSTRUCTS if not counts[f"has {each}"]]
            print(f"{done} of {seed - given.seed} scripts, {failures} differ, {time.monotonic() - began:.0f} s: {told}")
            print(f"  not met: {', '.join(missing) or 'nothing'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
