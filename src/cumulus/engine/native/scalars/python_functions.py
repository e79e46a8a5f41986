"""The Python functions that machine code calls, named so that the code may be kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cumulus.catalog.types import Interval, SqlType
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.scalars.python_code import equal, less, less_or_equal
from cumulus.scalars.registry import FUNCTIONS, cast_value
from cumulus.scalars.user import UserFunction

_OWN: dict[str, Callable[..., Any]] = {"=": equal, "<": less, "<=": less_or_equal, "float": float, "span": Interval}


@dataclass(frozen=True, slots=True)
class Callee:
    """A Python function by its name.

    Parameters
    ----------
    name
        Of a function of the dialect; of one of the user's if `is_user`; of a comparison; "float"; or "span",
        which makes an interval of its parts.
    target
        The type that is cast to, if it is a cast.
    """

    name: str
    target: SqlType | None = None
    is_user: bool = False

    def __str__(self) -> str:
        return self.name if self.target is None else f"CAST(… AS {self.target})"

    def implement(self, functions: Mapping[str, UserFunction]) -> Callable[..., Any]:
        """Return the function; `functions` are the user's.

        Examples
        --------
        >>> from cumulus.catalog.types import INTEGER
        >>> Callee("<=").implement({})(1, 2), Callee("cast", INTEGER).implement({})("12")
        (True, 12)
        """
        if self.is_user:
            return functions[self.name].implement
        if self.target is not None:
            target = self.target
            return lambda value: cast_value(value, target)
        return _OWN[self.name] if self.name in _OWN else FUNCTIONS[self.name].implement


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A Python function that code calls: what it takes and gives, as lanes.

    Parameters
    ----------
    is_rare
        Whether code calls it only where it does not know better: beyond its words, for the error, for a division by 0.
    """

    callee: Callee
    args: tuple[Lane, ...]
    result: Lane
    is_rare: bool = False


def called_names(python_functions: Iterable[PythonFunction]) -> frozenset[str]:
    """Return the names of the functions that code calls wherever it needs their values."""
    return frozenset(str(each.callee) for each in python_functions if not each.is_rare)
