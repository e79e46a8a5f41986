"""What a server's source is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from cumulus.views.duckdb_limits import UNLIMITED, QueryLimits
from cumulus.views.reader import Consistency

__all__ = ["UNLIMITED", "Acknowledged", "QueryLimits", "ReadRows", "TableRows", "WriteRequest"]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows that come to a table, go from it, or stand in place of those with their primary keys.

    Parameters
    ----------
    rows
        A table; or, which is quicker for less than a thousand of them, a list of rows: tuples, lists or dicts, whose
        values may be those of JSON.
    """

    op: Literal["insert", "delete", "upsert"]
    table: str
    rows: pa.Table | list[Any]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Rows that are applied in one transaction, or not at all.

    Parameters
    ----------
    parts
        In this order.
    id
        Of the client's making: a request that comes again with the id of one that was acknowledged is not applied
        again, and gets the same answer. "" has none.
    """

    parts: tuple[TableRows, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A request that is on the disk and applied.

    Parameters
    ----------
    at
        All reads that show this number or a later one have its rows.
    rows
        How many it had.
    is_repeated
        Whether it had been acknowledged before.
    """

    at: int
    rows: int
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows that were read, all of one state.

    Parameters
    ----------
    at
        The transaction (warehouse) or epoch (folder, cluster) after which they are; None for tentative ones.
    """

    table: pa.Table
    at: int | None
    consistency: Consistency = Consistency.COMMITTED
