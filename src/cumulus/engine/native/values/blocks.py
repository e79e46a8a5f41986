"""Maps in a file as they lie in memory: blocks of bytes, and a header that says what they are.

For every map the header names the columns that its key and value words stand for, the words of its record, and where
its blocks are, with checksums. Who has the very code that wrote them copies the blocks; who means the same by the words
puts the rows into maps of its own; and anybody else (the interpreter, a machine with the other order of bytes) reads
the rows value by value. So one form is enough.

Nothing here needs LLVM.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import mmap
import os
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import Kind, SqlType
from cumulus.engine.frames.tagged_texts import from_text, to_text
from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.store.hash_tables import MemoryBlock
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, ValueLane
from cumulus.engine.native.store.row_layout import LAST, MEMORY, ROWS
from cumulus.engine.native.values.codec import BigIntegers
from cumulus.engine.native.values.frames import Matrix, frame
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.engine.native.values.rows import RowReader
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import column_names, restore
from cumulus.errors import MismatchError, StoreError
from cumulus.m3.program import MapDef
from cumulus.version import VERSION

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

_ALIGNED = 64
"""Blocks begin at a multiple of it: where a line of the cache does."""
_WORDS = {"little": "<i8", "big": ">i8"}
_DAMAGED = "Restore the folder from a copy, or build the warehouse again."


@cache
def layout() -> str:
    """Return what changes when the code does that says how blocks look."""
    digest = hashlib.sha256(VERSION.encode())
    room = Path(__file__).parent.parent
    for file in sorted(each for inner in ("store", "values") for each in (room / inner).glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


# --- writing --------------------------------------------------------------------------------------------------------


def write(
    file: BinaryIO, maps: Mapping[str, tuple[MapDef, StoredMap]], dictionary: Dictionary, is_named: Sequence[bool]
) -> dict[str, Any]:
    """Write maps, with the texts and boxes that their words name; return the header, as JSON values.

    `is_named` says of each number of a text whether a row names it.
    """
    header: dict[str, Any] = {"layout": layout(), "words": _WORDS[sys.byteorder], "maps": {}}
    values = (dictionary.values_of[number] if named else None for number, named in enumerate(is_named))
    header["values"] = _write_block(file, _packed(values))
    header["boxes"] = _write_block(file, _packed(dictionary.boxes.dump()))
    for name, (definition, stored) in maps.items():
        blocks = stored.view.blocks()
        pointers = {MEMORY, *(block.place for _, block in blocks)}
        record = [0 if 8 * place in pointers else word for place, word in enumerate(stored.view.record())]
        header["maps"][name] = {
            "columns": column_names(definition),
            "keys": [[*_type(lane.type), lane.nullable] for lane in stored.store.keys],
            "values": [[lane.held.name, lane.word, lane.scale, *_type(lane.type)] for lane in stored.store.values],
            "shape": stored.store.shape.name,
            "row": stored.store.shape.row_size,
            "record": record,
            "blocks": [
                [block.place, block.size, *_write_block(file, (ctypes.c_char * block.used).from_address(address))]
                for address, block in blocks
            ],
        }
    header["bytes"] = file.tell()
    return header


def _write_block(file: BinaryIO, data: Any) -> list[int]:
    """Write bytes; return where, how many, and their checksum."""
    file.write(bytes(-file.tell() % _ALIGNED))
    at = file.tell()
    view = memoryview(data).cast("B")
    file.write(view)
    return [at, len(view), zlib.crc32(view)]


def _packed(values: Iterable[Any]) -> bytes:
    """Return values as an Arrow stream of texts with a letter for the type; lone surrogates are texts, too."""
    texts = [None if value is None else (to_text(value) or "").encode("utf-8", "surrogatepass") for value in values]
    sink = io.BytesIO()
    table = pa.table({"value": pa.array(texts, pa.large_binary())})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _unpacked(data: Any) -> list[Any]:
    (column,) = pa.ipc.open_stream(pa.py_buffer(data)).read_all().columns
    return [None if each is None else from_text(each.decode("utf-8", "surrogatepass")) for each in column.to_pylist()]


def _type(sql_type: SqlType | None) -> list[Any]:
    assert sql_type is not None, "columns of the native engine have types"
    return [sql_type.kind.value, sql_type.precision, sql_type.scale]


# --- reading --------------------------------------------------------------------------------------------------------


class RawMap:
    """One map in a file: what the header says of it, the whole file, and how that writes words."""

    def __init__(self, name: str, entry: Mapping[str, Any], data: Any, words: str) -> None:
        self._entry, self._data, self._words = entry, data, words
        keys = [Lane(SqlType(Kind(kind), *digits), nullable) for kind, *digits, nullable in entry["keys"]]
        values = [
            ValueLane(ColumnStorage[held], word, scale, SqlType(Kind(kind), *digits))
            for held, word, scale, kind, *digits in entry["values"]
        ]
        self.store = MapLayout(name, 0, tuple(str(place) for place in range(len(keys))), tuple(keys), tuple(values))
        self.columns: list[str] = entry["columns"]
        self.row_size: int = entry["row"]
        self.record: list[int] = entry["record"]

    def has_words_of(self, store: MapLayout) -> bool:
        """Whether the words of its rows mean what those of a map in memory do."""
        return (self.store.keys, self.store.values) == (store.keys, store.values)

    def has_blocks_of(self, store: MapLayout) -> bool:
        """Whether its blocks look like those of a map in memory, if the same code has written them."""
        return self.has_words_of(store) and self._entry["shape"] == store.shape.name

    def blocks(self) -> list[tuple[MemoryBlock, Any]]:
        """Return its blocks with their bytes."""
        return [
            (MemoryBlock(place, size, used), self._data[at : at + used])
            for place, size, at, used, _ in self._entry["blocks"]
        ]

    def rows(self) -> Any:
        """Return the words of all rows that ever were, a row each; not a copy."""
        (data,) = (each for block, each in self.blocks() if block.place == ROWS)
        width = self.row_size // 8
        return np.frombuffer(data, dtype=self._words).reshape(-1, width)[1 : self.record[LAST // 8] + 1]

    def matrix(self) -> Matrix:
        """Return key words and value words of the rows that are there."""
        rows, keys = self.rows(), sum(lane.words for lane in self.store.keys)
        last = keys + self.store.value_words
        return np.ascontiguousarray(rows[rows[:, keys:last].any(axis=1), :last], dtype=np.int64)


class SavedValues:
    """Texts, intervals and long numbers of a file, by their numbers, for who has no machine code."""

    def __init__(self, values: list[Any], boxes: Sequence[Decimal | None]) -> None:
        self.values_of = values
        self.boxes = BigIntegers()
        self.boxes.replace(boxes)

    def array(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return texts as Arrow's large_string; see `cumulus.engine.native.values.codec.NumberedValues`."""
        texts = (None if number == NULL_WORD else self.values_of[number] for number in numbers.tolist())
        data = [None if each is None else each.encode("utf-8", "surrogatepass") for each in texts]
        return pa.array(data, pa.large_binary()).view(pa.large_string())


class RawMaps:
    """What `write` has written, mapped into memory and checked.

    Parameters
    ----------
    path, header
        The file, and the header that belongs to it.

    Raises
    ------
    StoreError
        Naming the map whose block is damaged.
    OSError, KeyError, TypeError, ValueError
        If the file cannot be read, or the header is none.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != header["bytes"]:
                raise StoreError(f"{path} is damaged: it has {size:,} bytes, not {header['bytes']:,}", hint=_DAMAGED)
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.is_ours = (header["layout"], header["words"]) == (layout(), _WORDS[sys.byteorder])
        """Whether this very code has written it, on a machine of this kind."""
        self.has_our_words = header["words"] == _WORDS[sys.byteorder]
        self.maps = {name: RawMap(name, entry, self._data, header["words"]) for name, entry in header["maps"].items()}
        self._header = header
        for what, block in [
            ("the table of texts", header["values"]),
            ("the table of long numbers", header["boxes"]),
            *((f"map {name}", block[2:]) for name, entry in header["maps"].items() for block in entry["blocks"]),
        ]:
            self._check(what, *block)

    def _check(self, what: str, at: int, size: int, checksum: int) -> None:
        if zlib.crc32(self._data[at : at + size]) != checksum:
            raise StoreError(f"{self._path} is damaged: the checksum of {what} is not the header's", hint=_DAMAGED)

    def values(self) -> SavedValues:
        """Return what the words of the file name."""
        values, boxes = (
            _unpacked(self._data[at : at + size]) for at, size, _ in (self._header["values"], self._header["boxes"])
        )
        return SavedValues(values, boxes)

    def fill(self, dictionary: Dictionary) -> None:
        """Make the texts, intervals and boxes of the file those of a dictionary."""
        values = self.values()
        dictionary.replace(values.values_of)
        dictionary.boxes.replace(values.boxes.dump())


def restore_all(engine: Engine, raw: RawMaps) -> None:
    """Replace the contents of all maps of an engine by those of a file.

    Raises
    ------
    MismatchError
        If the maps are those of another program.
    MemoryLimitError
        If the engine has no room for them.
    """
    for definition in engine.program.maps:
        found = raw.maps.get(definition.name)
        if found is None or found.columns != column_names(definition):
            raise MismatchError(
                f"map {definition.name}: the stored columns are {found and found.columns}, "
                f"not {column_names(definition)}",
                hint="The snapshot belongs to another program.",
            )
    taken = engine.take_raw(raw)
    values = raw.values() if len(taken) < len(engine.program.maps) else None
    for definition in engine.program.maps:
        if values is not None and definition.name not in taken:
            _restore(engine, raw.maps[definition.name], values)


def _restore(engine: Engine, raw: RawMap, values: SavedValues) -> None:
    """Restore one map value by value."""
    matrix = raw.matrix()
    columns = frame(raw.store, matrix, values)
    if columns:
        restore(engine, raw.store.name, pa.Table.from_arrays(columns, names=raw.columns))
        return
    engine.restore(raw.store.name, RowReader(raw.store, values).stored_rows(matrix))
