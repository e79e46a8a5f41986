"""Random scripts in epochs on clusters beside the embedded host.

    python -m fuzz.clusters [--seed N] [--scripts N] [--ways N]

Each script is run in some of `WAYS`; exit code 1 if an epoch differs. A failure names the seed of its script.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.m3.program import Program
from cumulus.workloads.changes import write_epoch
from fuzz.case import case_of
from fuzz.epochs import Epochs, compiled, made
from fuzz.generator import script_of
from support.oracle import Oracle
from support.same_as_embedded import WAYS, Compared


def compare(seed: int, place: Path, ways: int = 1) -> Counter[str]:
    """Compare all epochs of a script; return what clusters have done, nothing if nothing of it compiles."""
    draw = random.Random(seed)
    case = case_of(script_of(seed, keyed=seed % 2 == 1))
    given = made(draw, case)
    oracle = Oracle(replace(case, tables=tuple(given.tables)).schema)
    try:
        program = compiled(given, oracle)
    finally:
        oracle.database.close()
    if program is None:
        return Counter()
    _write(given, program, place / "in")
    try:
        found = Compared(given.script, [str(place / "in")], place)
        for shape, mode, order in draw.sample(WAYS, ways):
            found.check(shape, mode, order, block_rows=draw.choice((1, 7)), seed=seed)
    except AssertionError as problem:
        raise AssertionError(f"seed {seed}: {problem}\n{given.script}") from problem
    return found.counts


def _write(given: Epochs, program: Program, folder: Path) -> None:
    """Write the files of all epochs; static tables have one."""
    for number, events in enumerate(given.events):
        tables = {}
        for relation in program.relations:
            mine = [(sign, row) for sign, name, row in events if name == relation.name]
            table = table_of(relation.columns, [row for _, row in mine])
            if not (number and relation.static):
                operations = pa.array(["i" if sign > 0 else "d" for sign, _ in mine], pa.string())
                tables[relation.name] = table.append_column("op", operations)
        write_epoch(folder, number, tables)


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="fuzz.clusters", description="Random scripts on clusters.")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--scripts", type=int, default=300, help="how many must compile")
    parser.add_argument("--ways", type=int, default=2, help="how many of the ways to run a cluster, for each")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    seed, done, failures = given.seed, 0, 0
    while done < given.scripts:
        with TemporaryDirectory() as place:
            try:
                found = compare(seed, Path(place), given.ways)
            except Exception:  # noqa: BLE001  # whatever is wrong with a script, the others are to be seen, too
                print(f"seed {seed}:\n{traceback.format_exc(limit=-4)}", flush=True)
                failures += 1
                found = Counter({"messages": 1})
        counts += found
        done += bool(found)
        seed += 1
        if done % 25 == 0:
            print(f"{done} scripts, {failures} differ", flush=True)
    print(f"{done} scripts of {seed - given.seed}, {failures} differ; {dict(counts)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
