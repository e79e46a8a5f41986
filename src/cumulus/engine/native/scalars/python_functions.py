"""The Python functions that machine code calls, named so that the code may be kept in a file.

What they gave is remembered by code: most columns have few different values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cumulus.catalog.types import Interval, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.kernel.language import I64, Expr, i64
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.store.row_layout import LIVE, address
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


_MOST = 1 << 16
"""So many values are remembered before all are forgotten."""
_FAILED = 2


def remember_call(
    body: Body, record: Expr, store: MapLayout, keys: Sequence[Expr], call: Callable[[], list[Expr]]
) -> list[Expr]:
    """Write the look-up of what a call gave for some words, and the call where that is not known.

    Parameters
    ----------
    store
        Of outcomes and results: see `cumulus.engine.native.code.program_writer.ProgramWriter.call`.
    call
        Writes the call; its outcome, and the words of its result. What failed is not remembered.
    """
    shape = store.shape
    found = [body.local(I64, "known") for _ in range(store.marks)]
    row = body.call(shape.find, record, *keys, hint="row")
    with body.when(row.ne(0), likely=True):
        place = body.let(address(body, shape, record, row), "place")
        for word, target in enumerate(found):
            body.set(target, body.load(I64, place, shape.value(word)) - (0 if word else 1))
    with body.otherwise():
        for target, value in zip(found, call(), strict=True):
            body.set(target, value)
        with body.when(found[0].ne(_FAILED)):
            with body.when(body.load(I64, record, LIVE) >= i64(_MOST), likely=False):
                body.call(shape.clear, record)
            new = body.let(body.call(shape.put, record, *keys, hint="new") & ROW, "new")
            with body.when(new.ne(0), likely=True):  # without memory nothing is remembered
                at = body.let(address(body, shape, record, new), "at")
                for word, value in enumerate(found):
                    body.store(I64, at, shape.value(word), value + (0 if word else 1))
    return [*found]
