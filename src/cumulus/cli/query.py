"""`cumulus query`: SQL over the views that a run has committed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.row_output import ARROW, AS_CSV, AS_JSON, PARQUET, RowOutput
from cumulus.cli.shared_options import StorageOptions
from cumulus.errors import StoreError, UsageError

if TYPE_CHECKING:
    from cumulus.durable.store import Store
    from cumulus.epochs.committed.manifest import Manifest
    from cumulus.scalars.user import Functions
    from cumulus.view_answers import NoAnswer, ViewAnswer

SAVED = "warehouse.json"
"""The file that a folder of `Warehouse.save` has."""


def query(
    out: str = typer.Argument(
        ...,
        help="The --out folder or address of a run, running or not; a folder of save(), or a server.",
    ),
    sql: str = typer.Argument(..., help="One SELECT over the views, and over the tables quarantine and view_errors."),
    epoch: int = typer.Option(0, min=0, help="An earlier epoch; 0 for the last committed one."),
    functions: FunctionPlaces = None,
    param: list[str] = typer.Option(
        [], "--param", help="NAME=VALUE for $NAME in the SQL: a JSON value, or else a text.", show_default=False
    ),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
    parquet: Path | None = PARQUET,
    arrow: Path | None = ARROW,
    storage: StorageOptions = None,
    explain: bool = typer.Option(
        False, "--explain", help="Say which view answers a query over base tables, or why none does."
    ),
    no_views: bool = typer.Option(False, "--no-views", help="Do not answer queries over base tables from views."),
    token: str = typer.Option("", "--token", envvar="CUMULUS_TOKEN", help="For a server.", show_default=False),
) -> None:
    """Ask for what the views of OUT say, of a run at the last committed epoch or an earlier one.

    Example: cumulus query out/ "SELECT * FROM revenue ORDER BY revenue DESC LIMIT 10"
    """
    output = RowOutput(as_json, as_csv, parquet, arrow)
    called, parameters = functions_in(functions), parameters_in(param)
    if out.startswith(("http://", "https://")) or (Path(out) / SAVED).is_file():
        from cumulus.cubes.sources import open_host
        from cumulus.hosts import Freshness

        if explain or no_views:
            raise UsageError(
                f"{out}: --explain and --no-views are for the output folder of a run",
                hint="A server and a saved warehouse answer from what they keep: leave the options out.",
            )
        host = open_host(out, called, token)
        try:
            output.write(host.query(sql, parameters or None, freshness=Freshness(at=epoch or None)).table)
        finally:
            host.close()
        return
    from cumulus.cli.terminal.consoles import plain_console
    from cumulus.durable.store import storage_of, store_of
    from cumulus.epochs.bucket.view_errors import VIEW_ERRORS
    from cumulus.epochs.committed.manifest import committed_epochs
    from cumulus.epochs.output.query import manifest_of
    from cumulus.epochs.output.query import query as ask

    store = store_of(out, storage_of(storage or ()))
    manifest = manifest_of(store, epoch)
    warn = partial(plain_console(to_errors=True).print, soft_wrap=True)
    found = None if no_views else over_views(store, manifest, sql, called)
    if found is not None and explain:
        warn(found.why)
    try:
        result = ask(store, getattr(found, "sql", sql), epoch, called, parameters)
    except UsageError as problem:
        if found is None:
            raise
        raise UsageError(problem.message, hint=f"No view answers a query over base tables here: {found.why}.") from None
    if manifest.snapshot != manifest.epoch:
        with_rows = sorted({manifest_of(store, each).snapshot for each in committed_epochs(store)})
        warn(
            f"epoch {manifest.epoch} wrote no views: these are of epoch {manifest.snapshot}; "
            f"there are views of epochs {', '.join(map(str, with_rows))}"
        )
    for view, reason in manifest.errors.items():
        state = "shows older rows" if manifest.files(view) else "could not be computed yet"
        warn(f"view {view} {state}: {reason}")
    for view, count in manifest.view_error_totals.items():
        warn(f"view {view} lacks what {count:,} rows of the input should have added: see the table {VIEW_ERRORS}")
    output.write(result)


def over_views(store: Store, manifest: Manifest, sql: str, functions: Functions | None) -> ViewAnswer | NoAnswer | None:
    """Return how a view of an epoch answers a query over base tables; None for a query over views.

    Parameters
    ----------
    store
        The output, which has the program.
    manifest
        Of the epoch: views that are not there, or that have errors, answer nothing.
    functions
        Those of the user, which no view answers.
    """
    from cumulus.epochs.committed.program_text import written_program
    from cumulus.scalars.user import given_functions
    from cumulus.view_answers import names_tables, view_answer

    try:
        program = written_program(store)
    except StoreError:  # of an old release, which did not write it
        return None
    if not names_tables(program, sql):
        return None
    failed = {*manifest.errors, *manifest.view_error_totals}
    there = [view for view in manifest.views if manifest.files(view)]
    return view_answer(program, sql, failed=failed, views=there, functions=given_functions(functions))


def parameters_in(given: list[str]) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` by name.

    Raises
    ------
    UsageError
        For one without a name.

    Examples
    --------
    >>> parameters_in(["g=5", "nation=Kenya"])
    {'g': 5, 'nation': 'Kenya'}
    """
    found: dict[str, Any] = {}
    for each in given:
        name, sign, text = each.partition("=")
        if not name or not sign:
            raise UsageError(f"--param {each}", hint="It is NAME=VALUE, and $NAME in the SQL.")
        try:
            found[name.removeprefix("$")] = json.loads(text)
        except ValueError:
            found[name.removeprefix("$")] = text
    return found
