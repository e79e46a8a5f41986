"""What a query asks of single columns of a table: as much of its conditions as can rule row groups out.

A row group may be left out if one of a scan's predicates is true of none of its rows. What is not said by these
classes is `NotPrunable`, which keeps the text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Sign: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of SQL: the Python value, the type as DuckDB names it, and how SQL writes it."""

    value: object
    type: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ColumnCompared:
    """``column sign constant``."""

    column: str
    sign: Sign
    constant: Constant

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.constant}"


@dataclass(frozen=True, slots=True)
class ColumnAmong:
    """``column IN (constants)``."""

    column: str
    constants: tuple[Constant, ...]

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(str, self.constants))})"


@dataclass(frozen=True, slots=True)
class ColumnNull:
    """``column IS NULL``, or ``IS NOT NULL``."""

    column: str
    is_null: bool

    def __str__(self) -> str:
        return f"{self.column} IS {'' if self.is_null else 'NOT '}NULL"


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of some predicates."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(_inside(each) for each in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One or more of some predicates."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(_inside(each) for each in self.parts)


@dataclass(frozen=True, slots=True)
class NotPrunable:
    """Predicate that cannot prune row groups (NOT, fields of structs, unknown syntax); the text is for `explain`."""

    text: str

    def __str__(self) -> str:
        return self.text


Predicate: TypeAlias = "ColumnCompared | ColumnAmong | ColumnNull | AllOf | AnyOf | NotPrunable"


def _inside(part: Predicate) -> str:
    return f"({part})" if isinstance(part, AllOf | AnyOf) else str(part)
