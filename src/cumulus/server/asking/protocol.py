"""What a server and the processes of its queries send each other, over pipes."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any

import pyarrow as pa

READY = "ready"
"""What a process sends first: the time of a query does not count until then."""
_SIZE = struct.Struct("<Q")


def send(pipe: IO[bytes], told: Any) -> None:
    """Send a value."""
    data = pickle.dumps(told)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Return the next value; EOFError if the other side has gone."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    data = pipe.read(_SIZE.unpack(head)[0])
    return pickle.loads(data)


def send_table(pipe: IO[bytes], table: pa.Table) -> None:
    """Send a table."""
    with pa.ipc.new_stream(pa.PythonFile(pipe, mode="w"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    pipe.flush()


def receive_table(pipe: IO[bytes]) -> pa.Table:
    """Return the next table."""
    with pa.ipc.open_stream(pa.PythonFile(pipe, mode="r")) as stream:
        return stream.read_all()
