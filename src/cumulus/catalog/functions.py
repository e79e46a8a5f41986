"""What a user's scalar function is called, takes and gives: its signature."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.catalog.types import SqlType


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The declaration of a scalar function that is not built in; a program carries one for each that it calls.

    Arguments are cast to the types of `parameters` before the call. If the function is not `called_with_null`, a NULL
    argument makes the value NULL.

    Examples
    --------
    >>> from cumulus.catalog.types import DOUBLE
    >>> print(FunctionSignature("score", (DOUBLE, DOUBLE), DOUBLE))
    score(DOUBLE, DOUBLE) DOUBLE
    """

    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType
    called_with_null: bool = False

    def __str__(self) -> str:
        null = " CALLED ON NULL INPUT" if self.called_with_null else ""
        return f"{self.name}({', '.join(map(str, self.parameters))}) {self.result}{null}"
