"""SQL over the views of a committed epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.epochs.publish import QUARANTINE_SCHEMA
from cumulus.epochs.sink import Manifest, committed, read_manifest
from cumulus.errors import InputError, StoreError, UsageError


def manifest_of(out: str | Path, epoch: int = 0) -> Manifest:
    """Return the manifest of `epoch`, 0 for the last.

    Raises
    ------
    InputError, UsageError
        If the folder is not an output, nothing is committed yet, or the epoch is gone.
    """
    if not (Path(out) / "cumulus.json").exists():
        raise InputError(f"{out}: not an output folder of cumulus run", hint="Give the folder that --out named.")
    epochs = committed(out)
    if not epochs:
        raise InputError(f"{out}: no epoch is committed yet", hint="Wait for the run's first epoch.")
    if epoch and epoch not in epochs:
        raise UsageError(f"{out}: epoch {epoch} is not there", hint=f"There are {epochs[0]} to {epochs[-1]}.")
    return read_manifest(out, epoch or epochs[-1])


def query(out: str | Path, sql: str, epoch: int = 0) -> pa.Table:
    """Return the result of `sql` over the views of an epoch and the table `quarantine`.

    Parameters
    ----------
    out
        An output folder; a run may be writing it.
    sql
        Any DuckDB SELECT.
    epoch
        0 for the last committed one.

    Raises
    ------
    InputError, UsageError
        As `manifest_of`, and for SQL that DuckDB refuses.
    """
    manifest = manifest_of(out, epoch)
    connection = duckdb.connect()
    try:
        for view in manifest.views:
            _register(connection, view, [Path(out) / path for path in manifest.files(view)])
        if manifest.quarantine:
            _register(connection, "quarantine", [Path(out) / path for path in manifest.quarantine])
        else:
            connection.register("quarantine", QUARANTINE_SCHEMA.empty_table())
        return connection.sql(sql).to_arrow_table()
    except duckdb.IOException as problem:
        raise StoreError(f"{out}: a file of epoch {manifest.epoch} cannot be read: {problem}") from None
    except duckdb.Error as problem:
        raise UsageError(str(problem), hint=f"Views here: {', '.join([*manifest.views, 'quarantine'])}.") from None
    finally:
        connection.close()


def _register(connection: Any, name: str, files: list[Path]) -> None:
    listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    quoted = '"' + name.replace('"', '""') + '"'
    connection.execute(f"CREATE VIEW {quoted} AS SELECT * FROM read_parquet([{listed}])")
