"""The DuckDB of a node: within limits, and closed to all but what is registered, as its SQL comes from clients."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from cumulus.errors import UsageError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the DuckDB of a node may use.

    Parameters
    ----------
    spill
        Folder for what does not fit into memory.
    memory
        As DuckDB takes it, such as ``512MB``.
    """

    spill: Path
    memory: str = "1GB"
    threads: int = 1


def open_engine(limits: EngineLimits) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that reads and writes no files but those it spills to, and whose settings nobody can change.

    Queries take cursors of it: what is registered belongs to one cursor.

    Raises
    ------
    UsageError
        For limits that DuckDB does not take.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": "false",  # names in SQL are tables, never variables of this process
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "threads": str(limits.threads),
        "memory_limit": limits.memory,
        "temp_directory": str(limits.spill),
    }
    try:
        connection = duckdb.connect(config=config)
    except duckdb.Error as problem:
        raise UsageError(
            f"DuckDB does not take the limits: {problem}", hint="Memory is said as 512MB, and threads are 1 or more."
        ) from None
    with suppress(duckdb.Error):  # without its calendar extension, it knows no other zone
        connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of all cursors, as views have it
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
