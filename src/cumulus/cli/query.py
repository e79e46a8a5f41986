"""`cumulus query`: SQL over the views that a run has committed."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.row_output import ARROW, AS_CSV, AS_JSON, PARQUET, RowOutput
from cumulus.cli.shared_options import StorageOptions
from cumulus.errors import UsageError

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
    ring: str = typer.Option("", "--ring", help="HOST:PORT, or the home, of a ring over OUT, for larger queries."),
    secret_file: Path | None = typer.Option(None, "--secret-file", help="For --ring HOST:PORT.", show_default=False),
    ring_above: str = typer.Option("100MB", "--ring-above", help="Of how large files a query reads to go to --ring."),
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

        if explain or no_views or ring:
            raise UsageError(
                f"{out}: --explain, --no-views and --ring are for the output folder of a run",
                hint="A server and a saved warehouse answer from what they keep: leave the options out.",
            )
        host = open_host(out, called, token)
        try:
            output.write(host.query(sql, parameters or None, freshness=Freshness(at=epoch or None)).table)
        finally:
            host.close()
        return
    from cumulus.cli.output_queries import OutputQuery, RingChoice, answer
    from cumulus.cli.terminal.consoles import plain_console
    from cumulus.durable.store import storage_of, store_of
    from cumulus.epochs.bucket.view_errors import VIEW_ERRORS
    from cumulus.epochs.committed.manifest import committed_epochs
    from cumulus.epochs.output.query import manifest_of

    store = store_of(out, storage_of(storage or ()))
    manifest = manifest_of(store, epoch)
    warn = partial(plain_console(to_errors=True).print, soft_wrap=True)
    chosen = RingChoice(ring, secret_file, bytes_in(ring_above)) if ring else None
    asked = OutputQuery(sql, called, parameters, not no_views, chosen)
    result = answer(store, manifest, asked, warn if explain else lambda _: None)
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


def bytes_in(text: str) -> int:
    """Return how many bytes a text says.

    Raises
    ------
    UsageError
        If it does not.

    Examples
    --------
    >>> bytes_in("100MB"), bytes_in("0")
    (100000000, 0)
    """
    from cumulus.engine.limits import bytes_of

    if text.isdecimal() and text.isascii():
        return int(text)
    with suppress(UsageError):
        found = bytes_of("" if "%" in text else text)
        if found is not None:
            return found
    raise UsageError(f"--ring-above {text!r} is no size", hint="A number of bytes, or such as 100MB.")


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
