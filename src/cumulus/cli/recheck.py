"""`cumulus recheck`: recompute the views of a run from its sources, and say what differs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.cli.shared_options import StorageOptions
from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.catalog.events import Row
    from cumulus.durable.store import Storage, Store
    from cumulus.epochs.committed.manifest import Manifest
    from cumulus.epochs.output.origin import Origin
    from cumulus.epochs.replay import Replayed
    from cumulus.m3.program import Program, ViewDef
    from cumulus.recheck import Report


def recheck(
    out: str = typer.Argument(..., help="The --out folder or address of a run, running or not.", show_default=False),
    file: Path | None = typer.Argument(None, help="The script of the run, if the folder does not know it."),
    source: list[str] = typer.Option([], "--from", help="The sources, if they are elsewhere now; as of run."),
    view: list[str] = typer.Option([], "--view", help="A view to check; repeatable, all if left out."),
    tables: bool = typer.Option(False, "--tables", help="Recompute from the tables that the run publishes."),
    storage: StorageOptions = None,
    witnesses: int = typer.Option(5, min=0, help="Rows to show of each view that differs."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Recompute the views of OUT from the rows that its run has read, and say what differs; exit code 1 if any does.

    With --tables the sources may be gone: then the views are compared with the rows that the run says its tables have.

    Example: cumulus recheck out/
    """
    from cumulus.durable.store import storage_of

    if tables and source:
        raise UsageError("--tables reads no sources", hint="Leave out --from.")
    kept = storage_of(storage or ())
    if tables:
        report = recheck_tables(out, file, view, witnesses, kept)
    else:
        report = recheck_folder(out, file, source, view, witnesses, kept)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        print(report)
    if not report.is_equal:
        raise typer.Exit(1)


def recheck_folder(
    place: str | Path,
    file: Path | None,
    source: list[str],
    views: list[str],
    witnesses: int,
    storage: Storage | None = None,
) -> Report:
    """Return what differs between the views of an output and those recomputed from its sources.

    Parameters
    ----------
    place, storage
        The output, and how an object store is reached.
    file, source
        The script and the ``--from`` texts; None and nothing are what the run has noted.
    views
        Those to check; nothing is all.
    witnesses
        So many rows of each view that differs are in the report.

    Raises
    ------
    UsageError, InputError, StoreError
        If script or sources are unknown or gone, or are not those of the run.
    """
    from cumulus.cli.programs import program_of, program_of_cluster
    from cumulus.durable.store import NO_STORAGE, store_of
    from cumulus.engine.engines import make_engine
    from cumulus.epochs.layouts import match_sources_to_tables, without_references
    from cumulus.epochs.output.identity import program_hash
    from cumulus.epochs.output.query import manifest_of
    from cumulus.epochs.replay import checked_manifest, replay
    from cumulus.epochs.sources import sources_from
    from cumulus.errors import MismatchError

    storage = storage or NO_STORAGE
    out = store_of(place, storage)
    manifest_of(out)  # tells what is not an output folder
    manifest = checked_manifest(out)
    origin = _origin(out, file, source)
    for compiled in (program_of(origin), program_of_cluster(origin)):
        given = sources_from(source or list(origin.sources), compiled, storage=storage)
        program, sources = match_sources_to_tables(compiled, given)
        if program_hash(program) == manifest.program:
            break
    else:
        raise MismatchError(
            f"{out} was not made by {origin.name}: their programs differ",
            hint="Give the script of the run, and the --from texts with their key= options.",
        )
    wanted = _wanted(program, views)
    judged = without_references(program, origin.unchecked)
    found = replay(out, judged, sources, origin, manifest, partial(make_engine, "auto"))
    return _compared(out, program, wanted, manifest, found, origin, witnesses)


def recheck_tables(
    place: str | Path, file: Path | None, views: list[str], witnesses: int, storage: Storage | None = None
) -> Report:
    """Return what differs between the views of an output and those recomputed from the tables that it publishes.

    Parameters
    ----------
    place, storage, file, views, witnesses
        As of `recheck_folder`.

    Raises
    ------
    UsageError, InputError, StoreError
        If the rows of a table are not published, or the script is unknown.
    """
    from collections import Counter

    from cumulus.algebra.printing import quoted
    from cumulus.durable.store import NO_STORAGE, store_of
    from cumulus.epochs.committed.program_text import written_program
    from cumulus.epochs.output.query import manifest_of, query
    from cumulus.epochs.replay import Replayed, checked_manifest
    from cumulus.recheck.checking import tables_behind
    from cumulus.recheck.oracle import rows_of

    out = store_of(place, storage or NO_STORAGE)
    manifest_of(out)  # tells what is not an output folder
    manifest, program = checked_manifest(out), written_program(out)
    wanted = _wanted(program, views)
    names = sorted(tables_behind(program, wanted))
    missing = [name for name in names if name not in manifest.tables]
    if missing:
        raise UsageError(
            f"{out}: epoch {manifest.epoch} has no rows of {', '.join(missing)}",
            hint=f"Run it with --publish {','.join(missing)}; or without --tables, from the sources.",
        )
    rows = {
        name: Counter(rows_of(query(out, f"FROM {quoted(name)}", manifest.epoch), program.relation(name).columns))
        for name in names
    }
    origin = _origin(out, file, ["the tables that it publishes"])
    return _compared(out, program, wanted, manifest, Replayed(rows, ()), origin, witnesses)


def _compared(
    out: Store,
    program: Program,
    wanted: list[ViewDef],
    manifest: Manifest,
    found: Replayed,
    origin: Origin,
    witnesses: int,
) -> Report:
    """Compare views with what they should be over some rows."""
    from cumulus.recheck import Report, check_views
    from cumulus.recheck.oracle import Oracle

    script = None if origin.name.endswith(".m3") else origin.script
    stale = [each for each in wanted if each.name in manifest.errors]
    stored = {
        each.name: partial(_published_rows if each in program.shown_views else _rows_of_level, out, manifest, each)
        for each in wanted
        if each not in stale
    }
    with Oracle(program.relations, found.rows, script) as oracle:
        checked = check_views(program, stored, oracle, limit=witnesses)
    notes = [*found.notes, *(f"view {each.name} shows older rows: {manifest.errors[each.name]}" for each in stale)]
    return Report(checked, (), manifest.epoch, tuple(notes))


def _origin(out: Store, file: Path | None, source: list[str]) -> Origin:
    """Return where the folder comes from: what the user says, over what the run has noted."""
    from dataclasses import replace

    from cumulus.epochs.output.origin import Origin, read_origin
    from cumulus.errors import InputError, UsageError

    origin = read_origin(out)
    if origin is None and (file is None or not source):
        raise UsageError(
            f"{out} does not say which script and sources it was made from",
            hint="Give them: cumulus recheck OUT views.sql --from data/",
        )
    if origin is not None and origin.has_clients:
        raise UsageError(
            f"{out} is the home of a cluster that takes rows from clients, which no source has",
            hint="What cumulus run leaves can be rechecked, with --host cluster, too.",
        )
    if origin is not None and origin.has_other_checks:
        raise UsageError(
            f"{out}: which references its run checked has changed, as tables were split or joined between epochs",
            hint="Run it into another folder, with the tables as they are split now: that can be rechecked.",
        )
    if file is None:
        assert origin is not None, "one of both is there"
        return origin
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read {file}: {problem}", hint="Give the path of a .sql or .m3 file.") from None
    if origin is None:
        return Origin(file.name, text, tuple(source))
    return replace(origin, name=file.name, script=text)


def _wanted(program: Program, names: list[str]) -> list[ViewDef]:
    from cumulus.catalog.names import known_name
    from cumulus.recheck.checking import tables_behind

    known = {view.name: view for view in program.views}
    wanted = [known[known_name(name, known, "view")] for name in names or known]
    tables_behind(program, wanted)  # tells a map without a definition
    return wanted


def _rows_of_level(out: Store, manifest: Manifest, view: ViewDef) -> list[Row]:
    from cumulus.epochs.output.folder import OutputFolder

    return OutputFolder(out).rows_of_level(view.name, manifest)


def _published_rows(out: Store, manifest: Manifest, view: ViewDef) -> list[Row]:
    import pyarrow as pa

    from cumulus.durable.store import read_parquet
    from cumulus.errors import StoreError
    from cumulus.recheck.oracle import rows_of

    try:
        tables = [read_parquet(out, path) for path in manifest.files(view.name)]
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"a file of epoch {manifest.epoch} cannot be read: {problem}") from None
    return [row for table in tables for row in rows_of(table, view.columns)]
