"""A bucket's share of a view's maps as a file: an Arrow stream for each map, one behind the other.

Whoever can write to the output must not be able to run code where it is read: nothing of it is unpickled but plain
values, which shares of earlier releases are made of.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cumulus.engine.protocol import Stored
from cumulus.engine.snapshot import entries_of_table, table_of_entries
from cumulus.errors import StoreError
from cumulus.m3.program import Program, ViewDef

Entries = dict[tuple[Any, ...], Stored]
_PICKLED = b"\x80\x05"
_PLAIN = {
    ("decimal", "Decimal"),
    ("datetime", "date"),
    ("datetime", "time"),
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("uuid", "UUID"),
    ("uuid", "SafeUUID"),
    ("cumulus.catalog.types", "Interval"),
}


def write_share(program: Program, share: Mapping[str, Entries]) -> bytes:
    """Return the entries of maps as bytes; `read_share` reads them with a view that reads the same maps."""
    sink = pa.BufferOutputStream()
    for name, entries in share.items():
        table = table_of_entries(program.map(name), entries.items())
        if not table.num_columns:  # a map without keys and values has entries all the same
            table = pa.table({"": pa.nulls(len(entries))})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_share(program: Program, view: ViewDef, data: bytes) -> dict[str, Entries]:
    """Return what `write_share` was given of the maps that a view reads.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    try:
        if data.startswith(_PICKLED):
            found: dict[str, Entries] = _PlainValues(io.BytesIO(data)).load()
            return found
        source = pa.BufferReader(data)
        tables = {name: pa.ipc.open_stream(source).read_all() for name in view.reads}
    except (pa.ArrowException, pickle.UnpicklingError, EOFError, ValueError) as problem:
        raise StoreError(
            f"a share of view {view.name} cannot be read: {problem}", hint="Bring it back from a copy."
        ) from None
    return {name: dict(entries_of_table(program.map(name), table)) for name, table in tables.items()}


class _PlainValues(pickle.Unpickler):
    """Reads values of columns, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class of a value."""
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is no value")
        return super().find_class(module, name)
