"""Relations: columns, keys, and what is promised about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cumulus.catalog.events import Row
from cumulus.catalog.types import SqlType, coerce
from cumulus.errors import ArityError, NullError, ValueTypeError


@dataclass(frozen=True, slots=True)
class Column:
    """A named column; `type` is None only in hand-written M3 that does not declare it."""

    name: str
    type: SqlType | None = None
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` refer to `parent_columns` of `parent`; `rely` promises the order of architecture.md, "RELY"."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    rely: bool = False


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
        Loaded once, before the stream; it has no triggers.
    keep
        "auto", "all" or "none": whether its rows are kept (architecture.md, "Kept rows").
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    key_rely: bool = False
    foreign_keys: tuple[ForeignKey, ...] = ()
    static: bool = False
    keep: str = "auto"

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
            if value is None or (value != value and column.type is not None and not column.type.is_float):
                # NaN in a column that is no float is how pandas writes NULL.
                if column.not_null or column.name in self.key:
                    raise NullError(
                        f"{self.name}.{column.name} is NULL in {values!r}",
                        relation=self.name,
                        row=values,
                        hint="The column is NOT NULL; give it a value or drop the constraint.",
                    )
                result.append(None)
                continue
            if column.type is None:
                result.append(value)
                continue
            try:
                result.append(coerce(value, column.type))
            except (TypeError, ValueError, OverflowError) as problem:
                raise ValueTypeError(
                    f"{self.name}.{column.name} {column.type}: {problem}",
                    relation=self.name,
                    row=values,
                    hint="Convert the value before handing the row in.",
                ) from None
        return tuple(result)

    def _ordered(self, row: Any) -> Row:
        if isinstance(row, dict):
            unknown = sorted(set(row) - set(self.column_names))
            if unknown:
                raise ArityError(
                    f"{self.name} has no column {unknown[0]!r}",
                    relation=self.name,
                    row=row,
                    hint=f"Its columns are {', '.join(self.column_names)}.",
                )
            return tuple(row.get(name) for name in self.column_names)
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise ArityError(
                f"a row of {self.name} must be a tuple, a list or a dict, not {row!r}",
                relation=self.name,
                row=row,
            )
        values = tuple(row)
        if len(values) != len(self.columns):
            raise ArityError(
                f"{self.name} has {len(self.columns)} columns, the row {values!r} has {len(values)}",
                relation=self.name,
                row=values,
                hint=f"Its columns are {', '.join(self.column_names)}.",
            )
        return values
