"""The ids of requests that were acknowledged: one that comes again is not applied again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from cumulus.durable.files import write_bytes
from cumulus.errors import RepeatedIdError, StoreError
from cumulus.hosts import WriteReceipt

_Kept: TypeAlias = tuple[bytes, int, int, int]
"""Digest, `at`, rows, when the request came in milliseconds since 1970."""
_SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("digest", pa.binary(16)), ("at", pa.int64()), ("rows", pa.int64()), ("ms", pa.int64())]
)


class AnsweredIds:
    """The last requests that were acknowledged, by their ids; one thread uses it.

    Parameters
    ----------
    most
        So many are kept.
    seconds
        So long they are kept.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._kept_ms = most, int(seconds * 1000)
        self._answers: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, name: str, digest: bytes) -> WriteReceipt | None:
        """Return the answer that a request was given; None if it was not acknowledged, or that is forgotten.

        Raises
        ------
        RepeatedIdError
            If another request has had this id.
        """
        found = self._answers.get(name)
        if found is None or not name:
            return None
        if found[0] != digest:
            raise RepeatedIdError(
                f"another request had the id {name!r}, with other content",
                hint="Give each request an id of its own, and send a request again as it was.",
            )
        return WriteReceipt(found[1], found[2], is_repeated=True)

    def add(self, name: str, digest: bytes, answer: WriteReceipt, written_ms: int) -> None:
        """Keep the answer to a request, if it has an id; forget what is too old, or too much."""
        if not name:
            return
        self._answers.pop(name, None)
        self._answers[name] = (digest, answer.at, answer.rows, written_ms)
        while len(self._answers) > self._most or self._oldest_ms() < written_ms - self._kept_ms:
            del self._answers[next(iter(self._answers))]

    def _oldest_ms(self) -> int:
        return next(iter(self._answers.values()))[3]

    def save(self, path: Path) -> None:
        """Write all to a file, down to the disk."""
        rows = [(name, *kept) for name, kept in self._answers.items()]
        columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
        table = pa.Table.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            writer.write_table(table)
        write_bytes(path, sink.getvalue().to_pybytes())

    def load(self, path: Path) -> None:
        """Keep what `save` has written to a file.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            for name, digest, at, rows, written_ms in _rows(table):
                self.add(name, digest, WriteReceipt(at, rows), written_ms)
        except (OSError, pa.ArrowException, ValueError) as problem:
            raise StoreError(f"{path} cannot be read: {problem}", hint="Restore the folder from a copy.") from None


def _rows(table: pa.Table) -> Iterator[tuple[str, bytes, int, int, int]]:
    if table.schema != _SCHEMA:
        raise ValueError(f"its columns are {', '.join(table.column_names)}")
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def now_ms() -> int:
    """Return the time as records have it."""
    return time.time_ns() // 1_000_000
