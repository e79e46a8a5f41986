"""What a recheck has found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from cumulus.catalog.comparison import RowMismatch


@dataclass(frozen=True, slots=True)
class Checked:
    """One view, or one map, compared with what its definition says.

    Parameters
    ----------
    rows
        How many are kept.
    different
        How many rows differ.
    witnesses
        The first of them.
    columns
        The names of the rows' values.
    by
        How it was recomputed: "SQL" (what the user wrote, in DuckDB) or "definition".
    problem
        Why it could not be compared; "" if it was.
    """

    name: str
    rows: int
    different: int = 0
    witnesses: tuple[RowMismatch, ...] = ()
    columns: tuple[str, ...] = ()
    by: str = "SQL"
    problem: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether it was compared, and nothing differs."""
        return not self.different and not self.problem

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: not compared: {self.problem}"
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
        state = "equal" if self.is_equal else f"{self.different} differ{'s' if self.different == 1 else ''}"
        return f"{self.name}: {rows}, {state}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`."""
        return {
            "name": self.name,
            "rows": self.rows,
            "equal": self.is_equal,
            "different": self.different,
            "by": self.by,
            "problem": self.problem or None,
            "columns": list(self.columns),
            "witnesses": [{field: _plain(row) for field, row in asdict(each).items()} for each in self.witnesses],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What a recheck has found: `epoch` is 0 for a warehouse, `notes` say what to know about the base rows."""

    views: tuple[Checked, ...]
    maps: tuple[Checked, ...] = ()
    epoch: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether everything was compared, and nothing differs."""
        return all(each.is_equal for each in (*self.views, *self.maps))

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _lines(self) -> Iterator[str]:
        if self.epoch:
            yield f"epoch {self.epoch}"
        for title, part in (("view", self.views), ("map", self.maps)):
            for each in part:
                yield f"{title} {each}"
                yield from (f"  {witness}" for witness in each.witnesses)
                if each.different > len(each.witnesses):
                    yield f"  … and {each.different - len(each.witnesses)} more"
        yield from (f"note: {note}" for note in self.notes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`; values as text where JSON has no such type."""
        return {
            "equal": self.is_equal,
            "epoch": self.epoch or None,
            "views": [each.as_dict() for each in self.views],
            "maps": [each.as_dict() for each in self.maps],
            "notes": list(self.notes),
        }


def _plain(row: tuple[Any, ...] | None) -> list[Any] | None:
    if row is None:
        return None
    return [item if item is None or isinstance(item, (bool, int, str)) else str(item) for item in row]
