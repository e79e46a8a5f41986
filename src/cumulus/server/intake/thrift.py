"""Structs in Thrift's compact protocol, as Parquet has them: numbers by the numbers of their fields."""

from __future__ import annotations

from typing import Any, TypeAlias

from cumulus.errors import InputError

Struct: TypeAlias = dict[int, Any]
"""Number of a field → its number, list or struct; of a text only how long it is."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS, _LISTS = (4, 5, 6), (9, 10)
_MOST_NESTED = 10


class ThriftReader:
    """Reads structs from bytes, from `place` on; InputError for what is none."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self.place = data, place

    def struct(self, nested: int = 0) -> Struct:
        """Return the struct that begins here."""
        if nested > _MOST_NESTED:
            raise self._damaged()
        found: Struct = {}
        field = 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else self._signed()
            kind &= 0x0F
            found[field] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, nested)
        return found

    def _value(self, kind: int, nested: int) -> Any:
        if kind in _INTEGERS:
            return self._signed()
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _STRUCT:
            return self.struct(nested + 1)
        if kind in _LISTS:
            return self._list(nested + 1)
        size = 8 if kind == _DOUBLE else self._unsigned() if kind == _BINARY else -1
        if not 0 <= size <= len(self._data) - self.place:
            raise self._damaged()
        self.place += size
        return size

    def _list(self, nested: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > len(self._data) - self.place:  # each takes a byte at least
            raise self._damaged()
        return [self._value(head & 0x0F, nested) for _ in range(count)]

    def _byte(self) -> int:
        if not 0 <= self.place < len(self._data):
            raise self._damaged()
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
        raise self._damaged()

    def _signed(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _damaged(self) -> InputError:
        return InputError(f"the Parquet file is damaged at byte {self.place:,}", hint="Write it again, and send it.")
