"""Which way a query of a run's output goes: to a view's rows, to the rows of tables, or to a ring that has both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cumulus.errors import EpochMissingError, StoreError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from cumulus.durable.store import Store
    from cumulus.epochs.committed.manifest import Manifest
    from cumulus.scalars.user import Functions
    from cumulus.view_answers import NoAnswer, ViewAnswer
    from cumulus.views.duckdb_sql.selects import Parameters


@dataclass(frozen=True, slots=True)
class RingChoice:
    """A ring over the same output, and what goes there.

    Parameters
    ----------
    place
        HOST:PORT, or the home of the ring.
    secret_file
        For one at an address.
    above
        Of how many bytes of files a query reads more, if it is to go there.
    """

    place: str
    secret_file: Path | None
    above: int


@dataclass(frozen=True, slots=True)
class OutputQuery:
    """One SELECT over an output.

    Parameters
    ----------
    has_views
        Whether views may answer what is asked of tables.
    ring
        Where larger ones go; None: nowhere.
    """

    sql: str
    functions: Functions | None
    parameters: Parameters
    has_views: bool = True
    ring: RingChoice | None = None


def answer(store: Store, manifest: Manifest, asked: OutputQuery, explain: Callable[[str], None]) -> pa.Table:
    """Return the rows of a query.

    Parameters
    ----------
    store, manifest
        The output, and the epoch of it that is asked for.
    explain
        Is told which way the query goes, and why.

    Raises
    ------
    UsageError
        As `cumulus.epochs.output.query.query`; also if the tables that are named are not published, or the ring is of
        another output.
    """
    from cumulus.epochs.output.query import query
    from cumulus.view_answers import NoAnswer, ViewAnswer, table_names

    names = table_names(asked.sql)
    # Where the views are behind, the tables are as new as the epoch.
    has_views = asked.has_views and not (manifest.tables and manifest.snapshot != manifest.epoch)
    found = _over_views(store, manifest, asked, names) if has_views else None
    if isinstance(found, NoAnswer):
        missing = sorted(names - _folded(manifest.tables))
        if missing:
            raise UsageError(
                f"no view answers it: {found.why}",
                hint=f"The rows of {', '.join(missing)} are not published: cumulus run --publish {','.join(missing)}.",
            )
        explain(f"{found.why}: published rows are read")
    elif found is not None:
        explain(found.why)
    sql = found.sql if isinstance(found, ViewAnswer) else asked.sql
    if asked.ring is not None:
        reason = _why_here(store, manifest, asked, sql, asked.ring)
        if not reason:
            explain(f"asked of the ring at {asked.ring.place}")
            return _of_ring(asked.ring, manifest, sql)
        explain(f"read in this process: {reason}")
    return query(store, sql, manifest.epoch, asked.functions, asked.parameters)


def _over_views(
    store: Store, manifest: Manifest, asked: OutputQuery, names: frozenset[str]
) -> ViewAnswer | NoAnswer | None:
    """Return how a view of an epoch answers a query over base tables; None for a query over views."""
    from cumulus.epochs.committed.program_text import written_program
    from cumulus.scalars.user import given_functions
    from cumulus.view_answers import view_answer

    if names <= _folded(manifest.views):  # as most are: the program need not be read
        return None
    try:
        program = written_program(store)
    except StoreError:  # of an old release, which did not write it
        return None
    if not names <= _folded(table.name for table in program.relations):
        return None
    failed = {*manifest.errors, *manifest.view_error_totals}  # they lack rows
    there = [view for view in manifest.views if manifest.files(view)]
    return view_answer(program, asked.sql, failed=failed, views=there, functions=given_functions(asked.functions))


def _why_here(store: Store, manifest: Manifest, asked: OutputQuery, sql: str, ring: RingChoice) -> str:
    """Return why a query does not go to the ring, as the rest of a sentence; "" if it does."""
    from cumulus.epochs.committed.manifest import paths_of_table
    from cumulus.view_answers import table_names
    from cumulus.views.measuring import may_measure

    if asked.functions or asked.parameters:
        return "a ring takes neither functions nor parameters"
    if may_measure(sql):
        return "it asks for measures"
    files = {view: list(manifest.files(view)) for view in manifest.views}
    files |= {
        name: [path for kind in ("data", "gone") for path in paths_of_table(table, kind)]
        for name, table in manifest.tables.items()
    }
    names = table_names(sql)
    elsewhere = sorted(names - _folded(files))
    if not names or elsewhere:
        return f"it reads {', '.join(elsewhere) or 'no table'}, which a ring does not have"
    read = [path for name, paths in files.items() if _folded([name]) <= names for path in paths]
    size = sum(store.size(path) or 0 for path in read)
    return "" if size > ring.above else f"its files have {size:,} bytes, and --ring-above is {ring.above:,}"


_PATIENCE_S, _PAUSE_S = 5.0, 0.1
_START = "Start one: cumulus ring start --from OUT."


def _of_ring(ring: RingChoice, manifest: Manifest, sql: str) -> pa.Table:
    from cumulus.connecting import connect

    place = ring.place if Path(ring.place).is_dir() or "://" in ring.place else f"ring://{ring.place}"
    with connect(place, secret_file=ring.secret_file or "") as client:
        output_of: Callable[..., str] | None = getattr(client, "output", None)
        if output_of is None:
            raise UsageError(f"--ring {ring.place}: no ring runs there", hint=_START)
        if _once_there(lambda: output_of(epoch=manifest.epoch), manifest.epoch) != manifest.checkpoint:
            raise UsageError(f"--ring {ring.place}: it is over something else than this output", hint=_START)
        found: pa.Table = client.query(sql, epoch=manifest.epoch).arrow()
    return found


def _once_there(ask: Callable[[], str], epoch: int) -> str:
    """Return what a ring says about an epoch; it looks for new ones every second."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except EpochMissingError as problem:
            if epoch < max(problem.epochs, default=0) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def _folded(names: Iterable[str]) -> set[str]:
    from cumulus.catalog.names import folded

    return set(map(folded, names))
