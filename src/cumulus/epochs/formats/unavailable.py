"""Values that a change log leaves out: what Debezium writes instead of a large value that an update has not changed.

PostgreSQL sends no large (TOAST) column that is as it was. Debezium writes a placeholder in its place, in a form that
fits the column's type: as it is, in base64 or hexadecimal for bytes, as a list of it or of its bytes for arrays, as an
object of it for HSTORE, as a UUID made of it. The row that is there has the value; see
`cumulus.epochs.bucket.net_changes`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.schema import Relation

NOTHING_TO_KEEP = "unavailable in the source, and {} has no row to take the value from"

_NOWHERE = np.array([], np.int64)


class Placeholder:
    """The forms of a placeholder; an empty one has none.

    Examples
    --------
    >>> found = Placeholder("__debezium_unavailable_value")
    >>> found.is_one("__debezium_unavailable_value"), found.is_one("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
    (True, True)
    >>> found.is_one(["__debezium_unavailable_value"]), found.is_one(["other"]), Placeholder("").is_one("")
    (True, False, False)
    """

    def __init__(self, text: str) -> None:
        self.texts: frozenset[str] = frozenset()
        self._data, self._text = text.encode("utf-8", "surrogatepass"), text
        if not text:
            return
        digest = uuid.UUID(bytes=hashlib.md5(self._data, usedforsecurity=False).digest(), version=3)
        coded = {base64.b64encode(self._data).decode(), base64.urlsafe_b64encode(self._data).decode()}
        in_json = [[text], {text: text}]
        self.texts = frozenset((
            text, *coded, *(each.rstrip("=") for each in coded),
            self._data.hex(), f"\\x{self._data.hex()}", str(digest),
            *(json.dumps(each) for each in in_json), *(json.dumps(each, separators=(",", ":")) for each in in_json),
        ))  # fmt: skip
        self._lengths = pa.array(
            sorted({len(each.encode("utf-8", "surrogatepass")) for each in self.texts}), pa.int32()
        )

    def is_one(self, value: Any) -> bool:
        """Whether a value stands for one that is unavailable."""
        if isinstance(value, str):
            return value in self.texts
        if not self._text or value is None:
            return False
        if isinstance(value, bytes):
            return value == self._data
        if isinstance(value, Mapping):
            return dict(value) == {self._text: self._text}
        if not isinstance(value, Sequence) or not value:
            return False
        # An array of numbers has the bytes, as Java's signed ones or not.
        is_bytes = all(isinstance(each, int) for each in value)
        return [each % 256 for each in value] == [*self._data] if is_bytes else all(map(self.is_one, value))

    def places_in(self, column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the indexes of the cells of an Arrow column that are one.

        Most columns have no text of such a length, which is quickly seen.
        """
        if not self.texts or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return _NOWHERE
        lengths = pc.binary_length(column).cast(pa.int32())
        if not pc.any(pc.is_in(lengths, value_set=self._lengths)).as_py():
            return _NOWHERE
        found = pc.is_in(column, value_set=pa.array(sorted(self.texts), column.type))
        return np.asarray(pc.indices_nonzero(found)).astype(np.int64)


def lacking_reason(relation: Relation, places: Sequence[int]) -> str:
    """Return why a row cannot be taken that lacks the values of some columns."""
    names = ", ".join(relation.columns[place].name for place in places)
    return f"{names}: {NOTHING_TO_KEEP.format(relation.name)}"
