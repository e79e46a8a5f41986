"""Attacks on a server, each by name: what a stranger, a reader or a writer may send to hold up others.

``python -m cumulus_lab.bench.serve.attacks PORT NAME`` goes on with one until it is ended.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus_lab.bench.serve.processes import ARROW

Request: TypeAlias = tuple[str, bytes | None, str]
"""An address, a body to post or None to get, and the body's type."""
_ROWS = "/v1/tables/sales/rows"
_JSON = "application/json"
_LARGE_TEXT = "SELECT repeat('x', 2000000000)"
_LONG = "(SELECT SUM(hash(x.range % 7 + y.range)) FROM range(1000000) x, range(1000000) y) > 0"


def _stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _runs() -> Request:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1_000_000], pa.int32()), pa.array([7]))
    return _ROWS, _stream(pa.record_batch({"id": runs})), ARROW


def _nulls() -> Request:
    return _ROWS, _stream(pa.record_batch({"id": pa.nulls(5_000_000)})), ARROW


def _zeros() -> Request:
    numbers = pa.Array.from_buffers(pa.int64(), 6_000_000, [None, pa.py_buffer(bytes(48_000_000))])
    return _ROWS, _stream(pa.record_batch({"id": numbers}), "zstd"), ARROW


def _one_text() -> Request:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 90_000, pa.int32()), pa.array(["x" * 100_000]))
    return _ROWS, _stream(pa.record_batch({"item": texts}), "zstd"), ARROW


def _parquet() -> Request:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.nulls(10_000_000, pa.int64())}), sink)
    return _ROWS, bytes(sink.getvalue()), "application/vnd.apache.parquet"


def _lists() -> Request:
    return _ROWS, b"[" + b"[]," * 8_000_000 + b"[]]", _JSON


def _query(sql: str) -> Callable[[], Request]:
    return lambda: ("/v1/query", json.dumps({"sql": sql}).encode(), _JSON)


REQUESTS: dict[str, Callable[[], Request]] = {
    "a run of a million rows": _runs,
    "five million NULLs": _nulls,
    "zeros by zstd": _zeros,
    "one text by a dictionary": _one_text,
    "runs in Parquet": _parquet,
    "24 MB of lists": _lists,
    "a text of 2 GB": _query(_LARGE_TEXT),
    "a list of 500 million": _query("SELECT len(range(500000000))"),
    "a long query": _query(f"SELECT COUNT(*) FROM shops WHERE {_LONG}"),
    "a long MEASURE": _query(f"SELECT shop, MEASURE(revenue) AS r FROM shops WHERE {_LONG} GROUP BY shop"),
    "readyz": lambda: ("/readyz", None, ""),
    "metrics": lambda: ("/metrics", None, ""),
}
"""Name → what is sent again and again, over a connection that is kept."""


def half_a_body(port: int) -> None:
    """Send half a body, and leave."""
    head = f"POST {_ROWS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000000\r\n\r\n".encode()
    _send(port, head + b"[" * 2_000_000)


def slow_heads(port: int) -> None:
    """Open a hundred connections with half a head each."""
    with suppress(OSError):
        opened = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(100)]
        for each in opened:
            each.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow:")
        for each in opened:
            each.close()


def two_hosts(port: int) -> None:
    """Send a head of two meanings."""
    _send(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n")


def garbage(port: int) -> None:
    """Send what is no HTTP."""
    _send(port, bytes(range(256)) * 4096)


def _send(port: int, data: bytes) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(data)


CONNECTIONS: dict[str, Callable[[int], Any]] = {
    "half a body": half_a_body,
    "slow heads": slow_heads,
    "two hosts": two_hosts,
    "garbage": garbage,
}
"""Name → what is done with connections to a port, again and again."""
_PAUSE_S = 0.02
"""Between two connections: it is not how many a machine can open that is measured."""


def go_on(port: int, name: str) -> NoReturn:
    """Attack a port again and again."""
    if name in CONNECTIONS:
        while True:
            CONNECTIONS[name](port)
            time.sleep(_PAUSE_S)
    path, body, form = REQUESTS[name]()
    while True:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            while True:
                connection.request("GET" if body is None else "POST", path, body, {"Content-Type": form})
                connection.getresponse().read()
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    go_on(int(sys.argv[1]), sys.argv[2])
