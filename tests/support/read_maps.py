"""What folds read of an engine's maps, counted where it is handed out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class ReadMaps:
    """Maps of an engine, of which it is counted what is handed out."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.read = engine, 0
        self.stored_count, self.indexes = engine.stored_count, engine.indexes

    def _counted(self, entries: Iterator[Any]) -> Iterator[Any]:
        for entry in entries:
            self.read += 1
            yield entry

    def items(self, map: str) -> Iterator[Any]:
        return self._counted(self.engine.items(map))

    def stored(self, map: str) -> Iterator[Any]:
        return self._counted(self.engine.stored(map))

    def stored_slice(self, map: str, positions: Any, values: Any) -> Iterator[Any]:
        return self._counted(self.engine.stored_slice(map, positions, values))

    def along(self, *asked: Any) -> Iterator[Any] | None:
        found = self.engine.along(*asked)
        return None if found is None else self._counted(found)

    def fold_columns(self, map: str) -> Any:
        found = self.engine.fold_columns(map)
        self.read += 0 if found is None else len(list(self.engine.stored(map)))
        return found

    def stored_at(self, map: str, key: Any) -> Any:
        found = self.engine.stored_at(map, key)
        self.read += found is not None
        return found
