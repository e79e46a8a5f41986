"""SQL over the views of a committed epoch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.algebra.printing import print_text, quoted
from cumulus.catalog.arrow import net_rows
from cumulus.catalog.names import find_name
from cumulus.durable.store import Place, Store, read_parquet, store_of
from cumulus.epochs.bucket.view_errors import SCHEMA as ERRORS_SCHEMA
from cumulus.epochs.bucket.view_errors import VIEW_ERRORS
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, paths_of_table, read_manifest
from cumulus.epochs.committed.program_text import written_program
from cumulus.epochs.output.publish import QUARANTINE_SCHEMA
from cumulus.epochs.output.published_tables import files_schemas, select_of_table
from cumulus.epochs.view_folders import QUARANTINE
from cumulus.errors import InputError, StoreError, UsageError
from cumulus.scalars.user import Functions, given_functions
from cumulus.views.duckdb_sql.functions import create_functions, set_utc
from cumulus.views.duckdb_sql.limits import NOTHING_ELSE, UNLIMITED, ApartQuery, QueryGuard, QueryLimits, lock
from cumulus.views.duckdb_sql.plain_sql import is_plain, split_explain
from cumulus.views.duckdb_sql.selects import Answering, Parameters, select, whole
from cumulus.views.folding import Bound, Partial
from cumulus.views.measuring import Measuring, may_measure, parts_in
from cumulus.views.row_changes import CHANGE, check_change


def manifest_of(out: Place, epoch: int = 0) -> Manifest:
    """Return the manifest of `epoch`, 0 for the last.

    Raises
    ------
    InputError, UsageError
        If the folder is not an output, nothing is committed yet, or the epoch is gone.
    """
    store = store_of(out)
    try:
        is_output = store.size("cumulus.json") is not None
    except OSError as problem:
        raise StoreError(f"{store}: cannot be read: {problem.strerror}") from None
    if not is_output:
        raise InputError(f"{out}: not an output folder of cumulus run", hint="Give the folder that --out named.")
    epochs = committed_epochs(out)
    if not epochs:
        raise InputError(f"{out}: no epoch is committed yet", hint="Wait for the run's first epoch.")
    if epoch and epoch not in epochs:
        raise UsageError(f"{out}: epoch {epoch} is not there", hint=f"There are {epochs[0]} to {epochs[-1]}.")
    return read_manifest(out, epoch or epochs[-1])


def query(
    out: Place,
    sql: str,
    epoch: int = 0,
    functions: Functions | None = None,
    parameters: Parameters = None,
    guard: QueryGuard | None = None,
) -> pa.Table:
    """Return the result of `sql` over the views of an epoch and the tables `quarantine` and `view_errors`.

    Parameters
    ----------
    out
        An output folder or address; a run may be writing it.
    sql
        One DuckDB SELECT.
    epoch
        0 for the last committed one.
    parameters
        Values for ``?`` or ``$1`` in order, or for ``$name`` by name.
    guard
        For SQL of somebody who may not be trusted: what there is for it, and what it may take.

    Raises
    ------
    InputError, UsageError
        As `manifest_of`, and for anything but one SELECT that DuckDB takes.
    LimitError, QueryTimeoutError
        If it takes more than it may.
    """
    out = store_of(out)
    manifest = manifest_of(out, epoch)
    only = None if guard is None else guard.only
    limits = UNLIMITED if guard is None else guard.limits
    connection = duckdb.connect(config={} if guard is None else dict(NOTHING_ELSE))
    views = [view for view in manifest.views if manifest.files(view) and (only is None or view in only)]
    named = [*views] if only is not None else [*views, QUARANTINE, VIEW_ERRORS]
    try:
        set_utc(connection)
        create_functions(connection, given_functions(functions))
        files = {view: manifest.files(view) for view in views if out.is_local or _may_name(sql, view)}
        for view in files:
            _register(connection, view, out, files[view])
        if only is None and find_name(QUARANTINE, views) is None:
            files[QUARANTINE] = manifest.quarantine if out.is_local or _may_name(sql, QUARANTINE) else []
            _register(connection, QUARANTINE, out, files[QUARANTINE], QUARANTINE_SCHEMA)
        if only is None and find_name(VIEW_ERRORS, views) is None:
            paths = [path for paths in manifest.view_errors.values() for path in paths]
            files[VIEW_ERRORS] = paths if out.is_local or _may_name(sql, VIEW_ERRORS) else []
            _register(connection, VIEW_ERRORS, out, files[VIEW_ERRORS], ERRORS_SCHEMA)
        tables = _register_tables(connection, out, sql, manifest, files) if only is None else {}
        named += tables
        if guard is not None:
            lock(connection, [out.open(path) for paths in files.values() for path in paths] if out.is_local else [])
        answering = _answering(connection, out, sql, manifest, functions, only)
        is_wide = limits.apart is not None and isinstance(sql, str) and not functions and not is_plain(sql)
        if is_wide and out.is_local:
            assert limits.apart is not None
            return _apart(limits.apart, connection, sql, parameters, limits, answering, out, files, tables)
        with limits.stopping(connection):
            return select(connection, sql, parameters, limits.collect if guard else whole, answering)
    except (duckdb.IOException, OSError, pa.ArrowException) as problem:
        raise StoreError(f"{out}: a file of epoch {manifest.epoch} cannot be read: {problem}") from None
    except duckdb.Error as problem:
        raise UsageError(str(problem), hint=f"Views here: {', '.join(named) or 'none'}.") from None
    finally:
        connection.close()


def _register_tables(
    connection: Any, out: Store, sql: str, manifest: Manifest, files: dict[str, list[str]]
) -> dict[str, str]:
    """Give published tables their names, but where a view has it, and their files others; return table → its SQL."""
    names = [each for each in manifest.tables if find_name(each, files) is None and _may_name(sql, each)]
    program = written_program(out) if names else None
    found: dict[str, str] = {}
    for name in names:
        assert program is not None
        relation = program.relation(name)
        sources: dict[str, str | None] = {"gone": None}
        for kind, shape in files_schemas(relation).items():
            paths = paths_of_table(manifest.tables[name], kind)
            if paths or kind == "data":
                source = f"{kind} of {name}"
                files[source], sources[kind] = paths, quoted(source)
                _register(connection, source, out, paths, shape)
        found[name] = select_of_table(relation, str(sources["data"]), sources["gone"])
        connection.execute(f"CREATE VIEW {quoted(name)} AS {found[name]}")
    return found


def _apart(
    apart: Callable[[ApartQuery], pa.Table],
    connection: Any,
    sql: str,
    parameters: Parameters,
    limits: QueryLimits,
    answering: Answering,
    out: Store,
    files: Mapping[str, Sequence[str]],
    tables: Mapping[str, str],
) -> pa.Table:
    """Return the result of a query that may take much memory, computed in another process."""
    explain, query = split_explain(sql)
    with answering(query) as answered:
        parts = {} if answered == query else parts_in(connection)
        empty = {name: connection.table(name).to_arrow_table() for name, paths in files.items() if not paths}
    paths = {name: [out.open(path) for path in found] for name, found in files.items() if found}
    rows = {**parts, **empty}
    return apart(ApartQuery(explain + answered, parameters, limits, rows, paths, tables, is_measured=bool(parts)))


def _answering(
    connection: Any,
    out: Store,
    sql: str,
    manifest: Manifest,
    functions: Functions | None,
    only: Collection[str] | None,
) -> Answering:
    """Return what answers queries with MEASURE, from the parts of an epoch."""
    given = given_functions(functions)
    is_asked = isinstance(sql, str) and (may_measure(sql) or manifest.parts)
    if not is_asked or "measure" in map(str.lower, given):
        return nullcontext
    from cumulus.epochs.output.folder import OutputFolder  # which finds its manifests here

    folder = OutputFolder(out, functions)

    def fold(view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str]) -> Partial:
        return folder.fold_of(folder.program.view(view), manifest, by, where, columns)

    shown = [view.name for view in folder.program.shown_views if only is None or view.name in only]
    return Measuring(connection, folder.program, folder.finishers, fold, shown).answering


def changed_rows(out: Place, epoch: int, view: str) -> pa.Table:
    """Return the rows of a view that an epoch took away and brought, from the published files of two epochs.

    A run may be writing the folder.

    Returns
    -------
    pyarrow.Table
        The columns of the view, then `change` (int64, never 0): how often the row came (positive) or left (negative).
        Each row once, in no order. In epoch 1 all rows came.

    Raises
    ------
    InputError, UsageError
        As `manifest_of`; also for an unknown view, a view with a column `change`, and if the epoch before is gone.
    StoreError
        A file that cannot be read.
    """
    out = store_of(out)
    after = manifest_of(out, epoch)
    view = find_name(view, after.views) or view
    if not after.files(view):
        why = f": {after.errors[view]}" if view in after.errors else ""
        known = ", ".join(name for name in after.views if after.files(name))
        raise UsageError(f"there are no rows of a view {view!r}{why}", hint=f"Views here: {known}.")
    try:
        before = set(manifest_of(out, epoch - 1).files(view)) if epoch > 1 else set()
    except UsageError:
        raise UsageError(
            f"{out}: the changes of epoch {epoch} need epoch {epoch - 1}, which is gone",
            hint="Keep more epochs: --keep.",
        ) from None
    now = set(after.files(view))
    gone, come = sorted(before - now), sorted(now - before)  # what both epochs list cancels out, and is not read
    try:
        shape = pq.read_schema(out.open(after.files(view)[0]))
        tables = {path: read_parquet(out, path) for path in (*gone, *come)}
    except (OSError, pa.ArrowInvalid) as problem:
        raise StoreError(f"{out}: a file of epoch {epoch} cannot be read: {problem}") from None
    check_change(view, shape.names)
    return net_rows(shape, [tables[path] for path in gone], [tables[path] for path in come], CHANGE)


def _may_name(sql: str, name: str) -> bool:
    """Whether a statement may read what has a name: of an object store, what is not read is not fetched."""
    text = sql.casefold() if isinstance(sql, str) else ""
    return not text or name.casefold() in text or quoted(name)[1:-1].casefold() in text


def _register(connection: Any, name: str, out: Store, files: list[str], schema: pa.Schema = None) -> None:
    """Give the rows of files a name; without any, an empty table of a schema."""
    if files and not out.is_local:
        connection.register(name, pa.concat_tables([read_parquet(out, file) for file in files]))
    elif files:
        listed = ", ".join(print_text(out.open(file)) for file in files)
        connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM read_parquet([{listed}])")
    else:
        connection.register(name, schema.empty_table())
