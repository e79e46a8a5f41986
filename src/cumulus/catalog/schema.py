"""Relations: columns, keys, and what is promised about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cumulus.catalog.events import Row
from cumulus.catalog.names import NameTable, find_name
from cumulus.catalog.shown_values import shown, shown_row
from cumulus.catalog.text_values import is_null, value_of
from cumulus.catalog.types import Kind, SqlType, coerce
from cumulus.errors import ArityError, NullError, ValueTypeError

_SOLID = frozenset({int, str, bool, Decimal})
"""Types of which no value stands for NULL."""


@dataclass(frozen=True, slots=True)
class Column:
    """A named column; `type` is None only in hand-written M3 that does not declare it."""

    name: str
    type: SqlType | None = None
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` refer to `parent_columns` of `parent`.

    Parameters
    ----------
    columns, parent, parent_columns
        Of the child, and the key of its parent.
    rely
        Somebody promises the order of docs/architecture.md, "RELY".
    enforced
        Statements leave out what can only be zero because the host checks the reference: who changes a parent first
        takes away the rows that refer to it, and puts them back afterwards (docs/architecture.md, "Enforced keys").
    """

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    rely: bool = False
    enforced: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A base table.

    Parameters
    ----------
    name, columns
        As declared; names are lower case unless quoted.
    key
        The columns of the primary key, or empty.
    key_rely
        The primary key is trusted: no look-up checks it.
    foreign_keys
        In declared order.
    static
        Loaded once, before the stream; after that it does not change.
    keep
        "auto", "all" or "none": whether its rows are kept (docs/architecture.md, "Kept rows").
    changes
        "rarely" or "often": whether a change of a row that others refer to must cost little, at the price of more maps.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    key_rely: bool = False
    foreign_keys: tuple[ForeignKey, ...] = ()
    static: bool = False
    keep: str = "auto"
    changes: str = "rarely"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(column.name for column in self.columns)

    def position(self, column: str) -> int:
        """Return the 0-based position of `column`; KeyError if there is none."""
        for index, candidate in enumerate(self.columns):
            if candidate.name == column:
                return index
        raise KeyError(column)

    @property
    def key_positions(self) -> tuple[int, ...]:
        """Return the 0-based positions of the primary key's columns."""
        return tuple(self.position(name) for name in self.key)

    def checked(self, row: Any) -> Row:
        """Return `row` (a sequence or a mapping) as a tuple of values of the columns' types.

        Raises
        ------
        ArityError, ValueTypeError, NullError
            Naming relation, column and value.
        """
        values = self._ordered(row)
        result: list[Any] = []
        for column, value in zip(self.columns, values, strict=True):
            if type(value) not in _SOLID and is_null(value, column.type):
                if column.not_null or column.name in self.key:
                    raise self._null(column.name, row, values)
                result.append(None)
                continue
            if column.type is None:
                result.append(value)
                continue
            try:
                if type(value) is str and column.type.kind is not Kind.VARCHAR:
                    value = value_of(value, column.type)
                result.append(coerce(value, column.type))
            except (TypeError, ValueError, OverflowError) as problem:
                raise ValueTypeError(
                    f"{self.name}.{column.name} {column.type}: {problem}",
                    relation=self.name,
                    row=values,
                    hint="Convert the value before handing the row in.",
                ) from None
        return tuple(result)

    def _null(self, column: str, row: Any, values: Row) -> NullError:
        """Return the error of a NULL where there must be none."""
        where = "key" if column in self.key else "column"
        if isinstance(row, dict) and all(find_name(name, (column,)) is None for name in row):
            message = f"the row {shown_row(row)} has no {self.name}.{column}, which is NOT NULL"
            return NullError(message, relation=self.name, row=row, hint=f"Give the {where} a value.")
        return NullError(
            f"{self.name}.{column} is NULL in {shown_row(values)}",
            relation=self.name,
            row=values,
            hint=f"The {where} is NOT NULL; give it a value or drop the constraint.",
        )

    def missing_column(self, column: str) -> NullError:
        """Return the error of a table without a column that must not be NULL."""
        return NullError(
            f"the table has no column {column}, and {self.name}.{column} is NOT NULL",
            relation=self.name,
            hint=f"The columns of {self.name} are {', '.join(self.column_names)}.",
        )

    def columns_named(self, names: Iterable[Any], row: object = None) -> list[str]:
        """Return the columns that names stand for, in any case.

        Raises
        ------
        ArityError
            If there is no such column, or two names stand for one.
        """
        by_column: dict[str, Any] = {}
        known = NameTable(self.column_names)
        for name in names:
            column = known.find(name)
            if column is None:
                raise ArityError(
                    f"{self.name} has no column {shown(name)}",
                    relation=self.name,
                    row=row,
                    hint=f"Its columns are {', '.join(self.column_names)}.",
                )
            if column in by_column:
                raise ArityError(
                    f"two columns are given for {self.name}.{column}: {shown(by_column[column])} and {shown(name)}",
                    relation=self.name,
                    row=row,
                    hint="Names that differ in case only are one name. Rename or leave out one of the columns.",
                )
            by_column[column] = name
        return list(by_column)

    def _ordered(self, row: Any) -> Row:
        if isinstance(row, dict):
            if not row.keys() <= set(self.column_names):
                row = dict(zip(self.columns_named(row, row), row.values(), strict=True))
            return tuple(row.get(name) for name in self.column_names)
        if isinstance(row, (str, bytes, set, frozenset)) or not hasattr(row, "__len__"):
            raise ArityError(
                f"a row of {self.name} must be a tuple, a list or a dict, not {shown_row(row)}",
                relation=self.name,
                row=row,
            )
        values = tuple(row)
        if len(values) != len(self.columns):
            raise ArityError(
                f"{self.name} has {len(self.columns)} columns, the row {shown_row(values)} has {len(values)}",
                relation=self.name,
                row=values,
                hint=f"Its columns are {', '.join(self.column_names)}.",
            )
        return values
