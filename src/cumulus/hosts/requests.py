"""What a host is asked: for rows of a view, of which state, and to write rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from cumulus.errors import UsageError
from cumulus.views.consistency import Consistency
from cumulus.views.folding import Bound, bounds_of


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which state is read.

    Parameters
    ----------
    read
        "committed" or "tentative"; None is what the host gives by itself.
    after
        At least the state after this transaction, epoch or write.
    max_staleness
        In seconds, at most.
    at
        The state of this transaction or epoch, if the host still has it; None is the last one.

    Raises
    ------
    UsageError
        If `read` is neither.
    """

    read: str | None = None
    after: Any = None
    max_staleness: float | None = None
    at: int | None = None

    def __post_init__(self) -> None:
        if self.read not in (None, *Consistency):
            raise UsageError(f"unknown read {self.read!r}", hint='Read "tentative" or "committed".')


LATEST = Freshness()
"""The last state, as the host gives it by itself."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Which rows of a view are read, and which of their columns.

    Parameters
    ----------
    view
        Its name, in any case.
    columns
        Their names, in this order; None is all of them.
    where
        Bounds of any columns, all of which a row must meet.
    key
        The values of the view's grouping columns: the one row that has them. Not together with `where` or `limit`.
    limit
        So many rows at most, the first ones in the order of the view; 0 or more, None is all of them.

    Raises
    ------
    UsageError
        If `columns` is a text, `limit` is no such number, or `key` comes with `where` or `limit`.
    """

    view: str
    columns: tuple[str, ...] | None = None
    where: tuple[Bound, ...] = ()
    key: tuple[Any, ...] | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise UsageError(f"columns={self.columns!r} is no list of names", hint=f"Give [{self.columns!r}].")
        if self.limit is not None and not (type(self.limit) is int and self.limit >= 0):
            raise UsageError(f"limit={self.limit!r} is no number of rows", hint="Give 0 or more, or None for all rows.")
        if self.key is not None and (self.where or self.limit is not None):
            raise UsageError("key= asks for one row, and where= or limit= is given, too", hint="Give one of them.")

    @classmethod
    def of(
        cls,
        view: str,
        columns: Sequence[str] | None = None,
        where: Mapping[str, Any] | Sequence[Bound] | None = None,
        limit: int | None = None,
    ) -> RowRequest:
        """Return a request.

        Parameters
        ----------
        view, columns, limit
            As of the class.
        where
            Column → a value (None is NULL), a list of values, or `cumulus.between(low, high)`; or bounds as they are.

        Examples
        --------
        >>> RowRequest.of("v", ["a"], {"a": 1}).where
        (Bound(column='a', within=(1,)),)
        """
        if isinstance(columns, str):  # which would be taken letter by letter
            raise UsageError(f"columns={columns!r} is no list of names", hint=f"Give [{columns!r}].")
        return cls(view, None if columns is None else tuple(columns), bounds_of(where or ()), None, limit)


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
