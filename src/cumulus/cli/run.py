"""`cumulus run`: keep the views of a file up to date from folders of rows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.shared_options import ArityChoice, DispatchChoice, GcChoice, PublishedTables, StorageOptions
from cumulus.cli.terminal.progress_lines import ProgressReporter
from cumulus.cluster.mode import CUT_HELP, MODE_HELP, SPLIT_HELP, Mode
from cumulus.cluster.planning.epoch_endings import (
    COMMIT_HELP,
    DEFAULT_ENDINGS,
    TRANSITIONS_HELP,
    CommitBy,
    EpochEndings,
    Transitions,
)
from cumulus.cluster.planning.mode_options import OPTION_HELP
from cumulus.cluster.versions import VersionOrder
from cumulus.errors import StoreError, UsageError

if TYPE_CHECKING:
    from cumulus.durable.store import Storage, Store
    from cumulus.epochs.moves import Move
    from cumulus.epochs.plan import BucketPlan
    from cumulus.explain.sizes import Statistics
    from cumulus.m3.program import Program


def run(
    file: Path = typer.Argument(..., help="A .sql file (tables and views) or an .m3 file."),
    source: list[str] = typer.Option(
        ..., "--from", help="DIR with a folder per table, NAME=PATH[,OPTION=…], or NAME=view:OUT/VIEW; repeatable."
    ),
    out: str = typer.Option(..., "--out", help="Folder or s3:// address for the views; made if it is not there."),
    checkpoint: str = typer.Option("", help="Folder (or address) for the state; OUT/checkpoint if not given."),
    storage: StorageOptions = None,
    host: str = typer.Option("spark", help="spark, embedded (this process, no Java), or cluster (processes here)."),
    nodes: int | None = typer.Option(None, min=1, max=1024, help="Nodes of --host cluster: as before, or 2."),
    switches: int | None = typer.Option(None, min=1, max=128, help="Switches of --host cluster: as before, or 1."),
    cut: list[str] = typer.Option([], "--cut", help=f"Of --host cluster. {CUT_HELP}"),
    split: list[str] = typer.Option([], "--split", help=f"Of --host cluster. {SPLIT_HELP}"),
    option: list[str] = typer.Option([], "--option", help=f"Of --host cluster. {OPTION_HELP}"),
    dispatch: DispatchChoice = "",
    arity: ArityChoice = None,
    gc: GcChoice = "",
    commit: CommitBy = typer.Option("publisher", "--commit", help=f"Of --host cluster. {COMMIT_HELP}"),
    transitions: Transitions = typer.Option("aligned", help=f"Of --host cluster. {TRANSITIONS_HELP}"),
    mode: Mode = typer.Option("eventual", help=f"Of --host cluster. {MODE_HELP}"),
    order: VersionOrder = typer.Option("clock", help="What comes first in an epoch: clock or switch (--host cluster)."),
    engine: str = typer.Option("auto", help="auto (machine code where the program can be), native or interpreter."),
    trigger: str = typer.Option("available-now", help="once, available-now, or a time such as 5s (runs on)."),
    epochs: int = typer.Option(0, min=0, help="Stop after so many epochs; 0 for no limit."),
    layout: str = typer.Option("auto", help="auto, one-bucket, one-round or judged."),
    buckets: int = typer.Option(0, min=0, max=1024, help="Of a layout; 0: as the checkpoint has, or one per core."),
    rows: list[str] = typer.Option([], "--rows", help="TABLE=N: its rows, to choose a layout by; repeatable."),
    distinct: list[str] = typer.Option([], "--distinct", help="TABLE.COLUMN=N: its different values; repeatable."),
    partitions: int = typer.Option(0, min=0, max=1024, help="Of Spark's state, for its buckets; 0 for as many as now."),
    files_per_epoch: int = typer.Option(1, min=0, help="Files of one table in an epoch; 0 for all there are."),
    late_epochs: int = typer.Option(10, min=0, help="Epochs that a row may wait for its parent."),
    keep: int = typer.Option(100, min=1, help="Epochs to keep in OUT."),
    snapshot_every: int = typer.Option(1, min=1, help="Write whole views only every so many epochs, and at the end."),
    publish: PublishedTables = None,
    master: str = typer.Option(
        "", help="Where Spark runs: spark://HOST:PORT, yarn, k8s://…, local[N]; this machine if not given."
    ),
    conf: list[str] = typer.Option([], help="A setting of Spark, NAME=VALUE; repeatable."),
    dead_after: str = typer.Option("30s", help="A process that hangs so long is started again (--host cluster)."),
    functions: FunctionPlaces = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would change in the checkpoint, and end."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per epoch on standard output."),
) -> None:
    """Keep the views of FILE up to date, exactly once, and resume where the last run ended.

    Example: cumulus run views.sql --from data/ --out out/
    """
    from cumulus.cli.programs import program_in
    from cumulus.durable.folders import check_output
    from cumulus.durable.store import storage_of, store_of
    from cumulus.engine.engines import check_engine, make_engine

    endings = EpochEndings(CommitBy(commit), Transitions(transitions))
    chosen = {"dispatch": dispatch, "arity": arity, "gc": gc, **endings.plain()}
    _check_asked(host, layout, buckets, [*cut, *option, *split], chosen)
    check_engine(engine)
    kept = storage_of(storage or ())
    check_output(out, "--out", takes_addresses=host != "cluster")
    given = functions_in(functions)
    compiled = partial(program_in, file, functions=given)
    resumed = _resumed(file, out, checkpoint, kept)
    program, counts = _program(resumed, compiled, host, layout, buckets, (rows, distinct, source), kept)
    settings: dict[str, Any] = {"checkpoint": checkpoint, "trigger": trigger, "epochs": epochs, "layout": layout}
    settings |= {"buckets": buckets, "files_per_epoch": files_per_epoch, "late_epochs": late_epochs, "keep": keep}
    settings |= {"snapshot_every": snapshot_every, "functions": given, "make_engine": partial(make_engine, engine)}
    settings |= {"storage": kept, "statistics": counts, **_own_settings(host, master, conf, partitions, publish)}
    if host == "cluster":
        settings |= {"nodes": nodes or 0, "switches": switches or 0, "mode": mode, "order": order.value}
        settings |= {"cuts": tuple(cut), "options": tuple(option), "engine": engine, "dead_after": dead_after}
        settings |= {"chosen": chosen, "splits": tuple(split) or None, "places": tuple(functions or ())}
    if dry_run:
        return _preview(program, source, out, settings, host)
    note = partial(_note, file, source, store_of(out, kept), dict(settings))
    _run_on(_HOSTS[host], program, source, out, settings, note, as_json=as_json)


def _run_on(
    keep: Callable[..., None],
    program: Program,
    source: list[str],
    out: str,
    settings: dict[str, Any],
    note: Callable[..., None],
    *,
    as_json: bool,
) -> None:
    """Run on a host, with a line for each epoch."""
    started = time.perf_counter()
    with ProgressReporter(as_json) as progress:
        keep(program, source, out, settings, progress, note)
        progress.finish(out, time.perf_counter() - started)


def _check_asked(host: str, layout: str, buckets: int, of_cluster: list[str], chosen: Mapping[str, Any]) -> None:
    if host not in _HOSTS:
        raise UsageError(f"unknown host {host!r}", hint=f"Hosts of `cumulus run`: {', '.join(_HOSTS)}.")
    if of_cluster and host != "cluster":
        raise UsageError(f"--cut, --split and --option are of --host cluster, not {host}", hint="Leave them out.")
    for name, value in chosen.items():
        if value not in ("", None, *DEFAULT_ENDINGS.plain().values()) and host != "cluster":
            raise UsageError(f"--{name} is of --host cluster, not {host}", hint="Leave it out.")
    if buckets > 1 and layout == "one-bucket":
        raise UsageError(f"--buckets {buckets} with --layout {layout}", hint="Leave out one of them.")


def _program(
    resumed: Program | None,
    compiled: Callable[..., Program],
    host: str,
    layout: str,
    buckets: int,
    known: tuple[list[str], list[str], list[str]],
    storage: Storage,
) -> tuple[Program, Statistics | None]:
    """Return the program of a run, and by what its layout is chosen, as far as that is known before it begins."""
    from cumulus.cli.programs import program_of_run
    from cumulus.cli.table_counts import counts_of_sources, statistics_given

    rows, distinct, source = known
    if resumed is not None:
        return resumed, statistics_given(resumed, rows, distinct)
    if host == "cluster":
        return compiled(rely=False, enforced=False), None
    said = (rows, distinct, source if layout.startswith("one-round") else [])  # others count files themselves
    wanted = buckets or os.cpu_count() or 1
    count = partial(counts_of_sources, layout=layout, buckets=wanted, storage=storage, known=said)
    return program_of_run(compiled, layout, wanted, count)


def _own_settings(
    host: str, master: str, conf: list[str], partitions: int, publish: list[str] | None
) -> dict[str, Any]:
    """Return the settings that not every host takes."""
    published: Sequence[str] = ",".join(publish) if publish else ()
    if publish and host == "cluster":
        raise UsageError("--publish is not of --host cluster", hint="Use --host spark or --host embedded.")
    if host == "spark":
        return {"master": master, "conf": conf, "partitions": partitions, "publish": published}
    if master or conf or partitions:
        raise UsageError(
            f"--master, --conf and --partitions are of Spark, not of --host {host}", hint="Leave them out."
        )
    return {} if host == "cluster" else {"publish": published}


def _resumed(file: Path, out: str, checkpoint: str, storage: Storage) -> Program | None:
    """Return the program that a run goes on with: the checkpoint's, if the script is what it was.

    So a release that compiles the script to another program goes on where the one before has ended.
    """
    from cumulus.durable.store import below, is_address, store_of
    from cumulus.epochs.output.identity import resumed_program
    from cumulus.epochs.output.origin import read_origin

    if not file.exists():
        return None
    try:
        origin = read_origin(store_of(out, storage))
    except StoreError:
        if is_address(out):  # what is wrong with it the run itself tells
            return None
        raise
    if origin is None or origin.script != file.read_text(encoding="utf-8-sig", errors="replace"):
        return None
    return resumed_program(store_of(checkpoint or below(out, "checkpoint"), storage))


def _preview(program: Program, source: list[str], out: str, settings: dict[str, Any], host: str) -> None:
    """Say what a run would begin with, and change nothing."""
    from cumulus.durable.store import below, store_of
    from cumulus.epochs.layouts import match_sources_to_tables, require_definitions
    from cumulus.epochs.moves import previewed_move
    from cumulus.epochs.sources import sources_from

    if host == "cluster":
        raise UsageError("--dry-run with --host cluster, which does not reshape", hint="Leave out --dry-run.")
    storage = settings["storage"]
    sources = sources_from(source, program, storage=storage)
    program, _ = match_sources_to_tables(require_definitions(program), sources)
    checkpoint = store_of(settings["checkpoint"] or below(out, "checkpoint"), storage)
    asked = settings["layout"], settings["buckets"], settings["statistics"]
    move = previewed_move(program, checkpoint, store_of(out, storage), host, *asked)
    if move is None:
        print("dry run: nothing to reshape; the run would go on in the buckets that it has")
    else:
        print(f"dry run: {move}, in about {max(move.seconds, 1):.0f} s; nothing was changed")


def _note(
    file: Path,
    source: list[str],
    out: Store,
    settings: dict[str, Any],
    plan: BucketPlan,
    later: Sequence[tuple[int, BucketPlan]] = (),
    unchecked: Sequence[str] = (),
) -> None:
    """Note in OUT where its views come from, for `cumulus recheck`.

    Parameters
    ----------
    plan, later
        The first plan, and those that have replaced it.
    unchecked
        The references that are not checked from now on.
    """
    from cumulus.epochs.committed.manifest import committed_epochs
    from cumulus.epochs.output.origin import Origin, later_layouts, read_origin, with_absolute_path, write_origin

    per_epoch = 0 if settings["trigger"] == "once" else settings["files_per_epoch"]
    sources = tuple(with_absolute_path(text) for text in source)
    script = file.read_text(encoding="utf-8-sig")
    late = settings["late_epochs"]
    origin = Origin(file.name, script, sources, plan.buckets, plan.partitioned, per_epoch, late, by_key=plan.by_key)
    before = read_origin(out) if committed_epochs(out) else None
    is_other = before is not None and (before.has_other_checks or before.unchecked != tuple(unchecked))
    origin = replace(origin, unchecked=tuple(unchecked), has_other_checks=is_other)
    write_origin(out, replace(origin, later=later_layouts(later)))


def _on_spark(
    program: Program,
    source: list[str],
    out: str,
    settings: dict[str, Any],
    progress: ProgressReporter,
    note: Callable[..., None],
) -> None:
    from cumulus.epochs.sources import check_apart, sources_from
    from cumulus.spark.java import find_java

    # A bad path is told before Java starts.
    folders = {each.relation: each for each in sources_from(source, program, storage=settings["storage"])}
    check_apart(folders.values(), out, settings["checkpoint"])
    from cumulus.spark.session import session, settings_of

    master, conf = settings.pop("master"), settings_of(settings.pop("conf"))
    if not master.startswith("sc://"):
        progress.say(f"using {find_java()}")
    spark = session(master, conf)
    from cumulus.spark.pipeline import maintain

    running = maintain(spark, program, folders, out, on_epoch=progress.epoch, say=progress.say, wait=False, **settings)
    note(running.first_plan, running.identity.later)
    plan = running.identity.plan
    progress.say(f"layout: {plan.why}")
    if plan.buckets > 1:
        progress.say(f"partitions: {running.partitions.number}, for {plan.buckets} buckets")
    running.wait()


def _embedded(
    program: Program,
    source: list[str],
    out: str,
    settings: dict[str, Any],
    progress: ProgressReporter,
    note: Callable[..., None],
) -> None:
    from cumulus.epochs.embedded_run import EmbeddedRun
    from cumulus.epochs.sources import sources_from
    from cumulus.epochs.trigger import parse_trigger
    from cumulus.interrupts import Interrupt

    trigger = parse_trigger(settings.pop("trigger"))
    wanted = settings.pop("epochs")
    moves: list[Move] = []

    def tell(move: Move) -> None:
        moves.append(move)
        progress.say(f"reshape: {move}")

    sources = sources_from(source, program, storage=settings["storage"])
    settings |= {"on_move": tell, "spark_parts": _spark_parts}
    with Interrupt() as stop, EmbeddedRun(program, sources, out, **settings) as running:
        noted = running.identity
        note(running.first_plan, noted.later)
        if settings["layout"] != "auto" or settings["buckets"] or moves:
            known = "" if noted.fresh or moves else ", as the checkpoint has it"
            progress.say(f"layout{known}: {noted.plan.why}")
        done = 0
        while not stop.wished and not (wanted and done >= wanted):
            last = True if wanted and done + 1 >= wanted else None if trigger.every_s is None else False
            epoch = running.step(everything=trigger.once, last=last)
            if running.identity is not noted:  # it was not alone, and its plan begins after another epoch
                noted = running.identity
                note(running.first_plan, noted.later)
            if epoch is not None:
                progress.epoch(epoch)
                done += 1
            elif trigger.every_s is None:
                break
            else:
                time.sleep(trigger.every_s)


def _spark_parts(*known: Any) -> Sequence[bytes]:
    """Read the state that Spark has kept, with a session that is begun for it."""
    from cumulus.spark.checkpoints.stored_state import stored_parts
    from cumulus.spark.java import find_java
    from cumulus.spark.session import session

    find_java()
    return stored_parts(*known, spark=session("", {}))


def _on_cluster(
    program: Program,
    source: list[str],
    out: str,
    settings: dict[str, Any],
    progress: ProgressReporter,
    note: Callable[..., None],
) -> None:
    from cumulus.cluster.processes.machine_modules import fork_server

    tell = partial(print, file=sys.stderr, flush=True)
    with fork_server(tell) as forks:  # it imports what machines need while this process does
        from cumulus.cluster.planning.table_assignment import lost_references
        from cumulus.cluster.processes.home import buckets_of_plan
        from cumulus.cluster.processes.resizing import open_home
        from cumulus.cluster.processes.run import ClusterRun
        from cumulus.epochs.sources import sources_from
        from cumulus.epochs.trigger import parse_patience, parse_trigger
        from cumulus.interrupts import Interrupt

        trigger, dead_after_s = parse_trigger(settings["trigger"]), parse_patience(settings["dead_after"])
        home = open_home(
            program,
            sources_from(source, program),
            Path(out),
            Path(settings["checkpoint"]) if settings["checkpoint"] else None,
            mode=settings["mode"],
            nodes=settings["nodes"],
            switches=settings["switches"],
            note=tell,
            forks=forks,
            functions=settings["places"],
            cuts=settings["cuts"],
            splits=settings["splits"],
            options=settings["options"],
            **settings["chosen"],
            order=settings["order"],
            files_per_epoch=0 if trigger.once else settings["files_per_epoch"],
            late_epochs=settings["late_epochs"],
            keep=settings["keep"],
            snapshot_every=settings["snapshot_every"],
            engine=settings["engine"],
        )
        with home, Interrupt() as stop:
            unchecked = lost_references(home.plan.program, home.plan.tables.splits)
            note(buckets_of_plan(home.plan), unchecked=unchecked)
            last = home.epoch + settings["epochs"] if settings["epochs"] else 0
            running = ClusterRun(home, trigger.every_s, last, note=tell, dead_after_s=dead_after_s, forks=forks)
            for epoch in running.epochs(lambda: stop.wished):
                progress.epoch(epoch)


_HOSTS = {"spark": _on_spark, "embedded": _embedded, "cluster": _on_cluster}
