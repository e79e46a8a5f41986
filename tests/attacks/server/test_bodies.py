"""Bodies that are small as they come and large when they are unpacked, and those that take long to take apart."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.attacked_server import ARROW, CSV, PARQUET, ROWS, AttackedServer, as_json, attacked_server
from support.attacks import resident_bytes
from support.tiers import sampled

pytestmark = pytest.mark.xdist_group("attacks on bodies")
GROWTH = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with attacked_server(tmp_path_factory.mktemp("bodies")) as found:
        yield found


def ipc(batch: pa.RecordBatch, compression: str | None = None, *, is_file: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    write = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with write(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def one_run(count: int, value: object = 7) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), pa.array([value]))


def one_text(count: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def views(count: int, text: str) -> pa.Array:
    """Return a column of views of which all look at one text."""
    (one,) = pa.array([text]).cast(pa.string_view()).buffers()[1:2]
    rest = pa.array([text]).cast(pa.string_view()).buffers()[2:]
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(bytes(one) * count), *rest])


def zeros(count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])})


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


ARROW_BOMBS: dict[str, Callable[[], bytes]] = {
    "one run of a million": lambda: ipc(pa.record_batch({"id": one_run(1_000_000)})),
    "one run of two billion": lambda: ipc(pa.record_batch({"id": one_run((1 << 31) - 1)})),
    "one run in a file": lambda: ipc(pa.record_batch({"id": one_run(1_000_000)}), is_file=True),
    "a run of a long text": lambda: ipc(pa.record_batch({"region": one_run(99_000, "x" * 100_000)})),
    "nothing, five million times": lambda: ipc(pa.record_batch({"id": pa.nulls(5_000_000)})),
    "zeros by zstd": lambda: ipc(zeros(6_000_000), "zstd"),
    "zeros by lz4": lambda: ipc(zeros(6_000_000), "lz4"),
    "one text by a dictionary": lambda: ipc(pa.record_batch({"region": one_text(90_000, "x" * 100_000)}), "zstd"),
    "one text by views": lambda: ipc(pa.record_batch({"region": views(90_000, "x" * 100_000)}), "zstd"),
    "one text of zeros": lambda: ipc(pa.record_batch({"region": pa.array(["\0" * 100_000_000])}), "zstd"),
}
PARQUET_BOMBS: dict[str, Callable[[], bytes]] = {
    "runs": lambda: parquet(pa.table({"id": pa.nulls(50_000_000, pa.int32())}), row_group_size=1 << 26),
    "one text": lambda: parquet(pa.table({"region": one_text(90_000, "x" * 100_000)})),
    "one page": lambda: parquet(pa.table({"region": ["x" * 100_000_000]}), compression="zstd", use_dictionary=False),
}


@pytest.mark.parametrize("name", sampled(ARROW_BOMBS, of=3))
def test_arrow_that_grows_is_refused_before_it_does(server: AttackedServer, name: str) -> None:
    body = ARROW_BOMBS[name]()
    assert len(body) < 300_000
    _refused(server, body, ARROW)


@pytest.mark.parametrize("name", sampled(PARQUET_BOMBS, of=3))
def test_parquet_that_grows_is_refused_before_it_does(server: AttackedServer, name: str) -> None:
    _refused(server, PARQUET_BOMBS[name](), PARQUET)


def test_arrow_in_json_is_refused_likewise(server: AttackedServer) -> None:
    arrow = base64.b64encode(ARROW_BOMBS["one run of a million"]()).decode()
    parts = [{"op": "insert", "table": "orders", "arrow": arrow}]
    with server.http() as http:
        answer = http.post("/v1/transactions", json={"parts": parts})
    assert (answer.status_code, as_json(answer)["error"]) == (413, "LimitError")


def _refused(server: AttackedServer, body: bytes, headers: dict[str, str]) -> None:
    before = resident_bytes(server.process.pid)
    with server.shop() as shop, server.http() as http:
        for _ in range(3):
            answer = http.post(ROWS, content=body, headers=headers)
            assert (answer.status_code, as_json(answer)["error"]) == (413, "LimitError"), answer.text
        shop.go_on()
        assert resident_bytes(server.process.pid) < before + GROWTH


def test_what_stands_for_itself_many_times_within_the_limits_is_taken(server: AttackedServer) -> None:
    """A run, a dictionary, views and nothing are legal, and what they stand for is what the table has."""
    count, first = 5_000, 500_000_000
    for place, region in enumerate((one_run(count, "RUN"), one_text(count, "RUN"), views(count, "RUN"))):
        ids = pa.array(range(first + place * count, first + (place + 1) * count), pa.int32())
        batch = pa.record_batch({"id": ids, "region": region, "amount": pa.nulls(count)})
        with server.http() as http:
            answer = http.post(ROWS, content=ipc(batch, "zstd"), headers=ARROW)
            assert answer.json().get("rows") == count, answer.text
            found = http.get("/v1/views/sales/rows", params={"region": "RUN", "after": answer.json()["at"]}).json()
            assert [row["n"] for row in found["rows"]] == [(place + 1) * count]
    with server.http() as http:
        body = parquet(pa.table({"id": [first], "region": ["P"]}))
        assert http.post(ROWS, content=body, headers=PARQUET, params={"op": "upsert"}).json()["rows"] == 1


JSON_BOMBS: dict[str, tuple[bytes, dict[str, str], int]] = {
    "lists": (b"[" + b"[]," * 8_000_000 + b"[]]", {}, 413),
    "one list of lists": (b"[[" + b"[]," * 8_000_000 + b"[]]]", {}, 413),
    "one long row": (b"[[" + b"1," * 100_000 + b"1]]", {}, 422),
    "objects": (b'{"rows": [' + b'{"a": {}},' * 2_000_000 + b"{}]}", {}, 413),
    "brackets": (b"[" * 20_000_000, {}, 413),
    "deep": (b"[" * 30_000 + b"]" * 30_000, {}, 400),
    "a number with a large exponent": (b'[[1e999999999, "x", 1, null]]', {}, 422),
    "an amount with a large exponent": (b'[[1, "x", 1e999999999, null]]', {}, 422),
    "an amount with many digits": (b'[[1, "x", 0.' + b"1" * 5_000_000 + b", null]]", {}, 422),
    "lines": (b"[]\n" * 8_000_000, {"Content-Type": "application/x-ndjson"}, 413),
    "empty lines": (b"\n" * 40_000_000, {"Content-Type": "application/x-ndjson"}, 413),
    "rows of CSV": (b"id\n" + b"1\n" * 8_000_000, CSV, 413),
    "columns of CSV": (b"id," * 8_000_000 + b"id\n", CSV, 422),
}


@pytest.mark.parametrize("name", sampled(JSON_BOMBS, of=4))
def test_texts_that_take_long_to_take_apart_hold_up_nobody(server: AttackedServer, name: str) -> None:
    body, headers, status = JSON_BOMBS[name]
    before = resident_bytes(server.process.pid)
    with server.shop() as shop, server.http() as http:
        answer = http.post(ROWS, content=body, headers={"Content-Type": "application/json", **headers})
        assert answer.status_code == status, answer.text
        as_json(answer)
        shop.go_on()
    assert resident_bytes(server.process.pid) < before + GROWTH


def test_an_error_shows_a_row_as_sql_writes_it_and_cut(server: AttackedServer) -> None:
    with server.http() as http:
        told = as_json(http.post(ROWS, json=[[1, None, "it's", True, "x" * 10_000]]))
        assert told["message"].startswith("orders has 4 columns, the row (1, NULL, 'it''s', TRUE, 'xxx")
        assert len(told["message"]) < 300
        told = as_json(http.post(ROWS, json=[[1, "x", "y" * 10_000, None]]))
        assert len(told["message"]) < 400


def test_what_is_packed_by_gzip_is_refused_unread(server: AttackedServer) -> None:
    with server.http() as http:
        body = gzip.compress(b"[" + b"[]," * 1_000_000 + b"[]]")
        answer = http.post(ROWS, content=body, headers={"Content-Encoding": "gzip"})
        assert (answer.status_code, as_json(answer)["error"]) == (400, "UsageError")
