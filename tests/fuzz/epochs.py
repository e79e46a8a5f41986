"""Random scripts in epochs: their events as rows of files, some tables static, through native buckets beside DuckDB."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.arrow import table_of
from cumulus.compiler import compile_sql
from cumulus.engine.native.engine import NativeEngine
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import Reading, read_table
from cumulus.epochs.layouts import require_definitions
from cumulus.epochs.output.publish import merge_functions, merge_of, write_outputs
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.plan_choice import choose_plan
from cumulus.errors import LayoutError, UnsupportedError
from cumulus.explain.layout.co_partitioning import Merge
from cumulus.m3.program import Program
from fuzz.case import Case, case_of, key_places
from fuzz.compare import COMPILE_SECONDS, TooSlowError, limited
from fuzz.generator import script_of
from fuzz.schema import Event
from support.oracle import Oracle, same_bag


@dataclass
class Epochs:
    """What is fed: tables, views, and the events of each epoch.

    Parameters
    ----------
    tables
        CREATE TABLE statements; those of static tables say so.
    """

    tables: list[str]
    views: dict[str, str]
    events: list[list[Event]]

    @property
    def script(self) -> str:
        views = [f"CREATE VIEW {name} AS {select}" for name, select in self.views.items()]
        return "".join(f"{each};\n" for each in (*self.tables, *views))


def made(draw: random.Random, case: Case) -> Epochs:
    """Return a case in epochs: some of its tables are static, with all rows that ever come, but one for a key."""
    names = [re.split(r"\W+", table)[2] for table in case.tables]
    static = [name for name in names if draw.random() < 0.3][: len(names) - 1]
    # What a static table refers to is static.
    parents = {name: re.findall(r"REFERENCES (\w+)", table) for name, table in zip(names, case.tables, strict=True)}
    for name in names:
        if name in static and not {*parents[name]} <= {*static, name}:
            static.remove(name)
    keys = {name: key_places(table) for name, table in zip(names, case.tables, strict=True)}
    first: dict[Any, Event] = {}
    for number, (sign, name, row) in enumerate(event for events in case.plain for event in events):
        if name in static and sign > 0:
            key = tuple(row[place] for place in keys[name]) or number
            first.setdefault((name, key), (sign, name, row))
    # References hold between transactions.
    parts = case.plain if case.refers else [(event,) for events in case.plain for event in events]
    rest = [mine for part in parts if (mine := [event for event in part if event[1] not in static])]
    epochs = []
    while rest:
        size = draw.choice((1, 2, 5, 20, 80))
        epochs.append([event for part in rest[:size] for event in part])
        rest = rest[size:]
    epochs[:1] = [[*first.values(), *(epochs[0] if epochs else ())]]
    tables = [_as_static(table) if name in static else table for name, table in zip(names, case.tables, strict=True)]
    return Epochs(tables, dict(case.views), epochs)


def _as_static(table: str) -> str:
    return f"{table[:-1]}, static = true)" if "WITH (" in table else f"{table} WITH (static = true)"


def compiled(given: Epochs, oracle: Oracle, seconds: float = COMPILE_SECONDS) -> Program | None:
    """Return the program of the views that both take and that may run in epochs, which stay; None if there is none."""
    for name, select in list(given.views.items()):
        try:
            oracle.database.execute(f"CREATE VIEW {name} AS {select}")
            oracle.rows(f"FROM {name}")
        except duckdb.Error:
            del given.views[name]
    while given.views:
        try:
            with limited(seconds):
                return require_definitions(compile_sql(given.script, rely=False))
        except (UnsupportedError, LayoutError, TooSlowError):
            given.views.popitem()
    return None


def compare(seed: int, out: Path, *, keyed: bool = False) -> BucketPlan | None:
    """Compare all views of a script after each epoch; return the plan, None if nothing of it compiles."""
    draw = random.Random(seed)
    case = case_of(script_of(seed, keyed=keyed))
    given = made(draw, case)
    oracle = Oracle(replace(case, tables=tuple(given.tables)).schema)
    try:
        program = compiled(given, oracle)
        return None if program is None else _compare(draw, given, program, oracle, out)
    finally:
        oracle.database.close()


def _one_round(program: Program, buckets: int) -> BucketPlan:
    """Return the plan of one round; that of one bucket if there is none of several."""
    try:
        return choose_plan(program, "one-round" if buckets > 1 else "one-bucket", buckets)
    except LayoutError:
        return choose_plan(program, "one-bucket", 1)


def _compare(draw: random.Random, given: Epochs, program: Program, oracle: Oracle, out: Path) -> BucketPlan:
    buckets = draw.choice((1, 2, 3))
    plan = _one_round(program, buckets)
    held = [Bucket(program, plan, index, NativeEngine) for index in range(plan.buckets)]
    latest: dict[tuple[str, int], str] = {}
    epoch = 0
    for events in given.events:
        for event in events:
            oracle.apply(*event)
        poll, parts = Poll(), pack(_readings(program, events, epoch), plan)
        while not epoch or poll.granted or any(parts):  # deletions that all buckets agree to come an epoch later
            epoch += 1
            polls = []
            for bucket, payload in zip(held, parts, strict=True):
                outcome = bucket.apply(epoch, [pack_notice(poll.plain()), payload])
                written = write_outputs(bucket, outcome, epoch, "a", out, Snapshots())
                told = [*outcome.quarantine, *outcome.errors, *written.errors.values()]
                assert told == [], f"{told[:3]}\n{given.script}"
                latest |= {(view, bucket.index): file for view, file in written.files.items()}
                polls.append(outcome.poll)
                if draw.random() < 0.1:
                    bucket.load(bucket.dump())
            poll, parts = Poll.merge(polls), [b""] * plan.buckets
        assert not poll.asked, f"rows that nothing refers to were not deleted: {poll}\n{given.script}"
        for view in given.views:
            files = [str(out / file) for (name, _), file in sorted(latest.items()) if name == view]
            ours, theirs = _rows(plan, program, view, epoch, files, out), oracle.rows(f"FROM {view}")
            what = f"{view} in epoch {epoch}, {plan.why}\nours   {ours[:9]}\ntheirs {theirs[:9]}\n{given.script}"
            assert same_bag(ours, theirs), what
    return plan


def _readings(program: Program, events: list[Event], epoch: int) -> list[Reading]:
    found = []
    for relation in program.relations:
        mine = [(sign, row) for sign, name, row in events if name == relation.name]
        table = table_of(relation.columns, [row for _, row in mine])
        table = table.append_column("op", pa.array(["i" if sign > 0 else "d" for sign, _ in mine], pa.string()))
        if mine:
            found.append(read_table(FolderSource(relation.name, ""), relation, table, f"{relation.name}/{epoch}"))
    return found


def _rows(
    plan: BucketPlan, program: Program, view: str, epoch: int, files: list[str], out: Path
) -> list[tuple[Any, ...]]:
    """Return the rows of a view from what the buckets have written."""
    if merge_of(plan, program, program.view(view)) is Merge.ADD:
        files = [str(out / merge_functions(plan, program, out)[view](epoch, files))]
    table = pa.concat_tables(pq.read_table(file) for file in files)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
