"""What is encoded is decoded: every type, as DuckDB reads it from the file."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.errors import ChunkDamagedError, InputError
from cumulus_ring.chunks.catalogue import SLICE_BYTES
from cumulus_ring.chunks.encoding import decode, encode, wire_column
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.chunks.parquet_files import read_chunk
from cumulus_ring.chunks.store import ChunkStore
from support.random_files import PREFIX, connected, scanned, tables, write
from support.tiers import examples


def said(rows: duckdb.DuckDBPyRelation) -> list[tuple[object, ...]]:
    """Each value as DuckDB writes it, with its type: NaN is NaN, and 1.0 is not 1."""
    columns = (
        f'typeof("{name.replace(chr(34), chr(34) * 2)}"), "{name.replace(chr(34), chr(34) * 2)}"::VARCHAR'
        for name in rows.columns
    )
    return rows.select(", ".join(columns)).fetchall()


@given(table=tables(), group_rows=st.integers(1, 30))
@pytest.mark.law
@settings(max_examples=examples(125), deadline=None)
def test_scans_give_what_duckdb_reads_from_the_files(table: pa.Table, group_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(table, Path(folder, "in", "t.parquet"), group_rows)
        catalogue = read_source(Path(folder, "in"))
        store = ChunkStore(Path(folder, "store"), "a")
        found = scanned(catalogue.table("T"), store)
        store.close()
        with connected() as connection:
            connection.register("found", found)
            assert said(connection.table("found")) == said(connection.read_parquet(f"{folder}/in/t.parquet"))


RARE = {
    "half": pa.array([1.5, None, 2]).cast(pa.float16()),
    "duration": pa.array([1, None, 2], pa.duration("ms")),
    "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    "seconds": pa.array([1, None, -1], pa.timestamp("s")),
    "paris": pa.array([1, None, -1], pa.timestamp("ms", "Europe/Paris")),
    "clock": pa.array([1, None, 2], pa.time32("ms")),
    "wide": pa.array([Decimal(1), None, Decimal(2)], pa.decimal256(30, 5)),
    "narrow": pa.array([Decimal(1), None, Decimal(2)], pa.decimal32(5, 1)),
    "view": pa.array(["a", None, "b" * 20], pa.string_view()),
    "bytes": pa.array([b"a", None, b"b"], pa.large_binary()),
    "two": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "numbers": pa.array([7, None, 8]).dictionary_encode(),
    "nothing": pa.nulls(3),
    "list": pa.array([["a", None], None, []]),
    "struct": pa.array([{"a": 1, "b": [None]}, None, {"a": None, "b": None}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "halves": pa.array([[1.5, None], None, []]).cast(pa.list_(pa.float16())),
    "durations": pa.array([{"a": [1]}, None, {"a": None}], pa.struct([("a", pa.large_list(pa.duration("ms")))])),
    "moments": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.timestamp("ms"))),
    "wides": pa.array([[[Decimal(1)]], None, []], pa.list_(pa.list_(pa.decimal256(30, 5)))),
    "narrows": pa.array([{"a": Decimal(1)}, None, {"a": None}], pa.struct([("a", pa.decimal32(5, 1))])),
    "views": pa.array([["a"], None, []], pa.list_(pa.string_view())),
}


def test_rare_types_are_what_duckdb_reads_from_the_files(tmp_path: Path) -> None:
    write(pa.table(RARE), tmp_path / "t.parquet", 2)
    found = scanned(read_source(tmp_path).tables[0], ChunkStore(tmp_path / "store", "a"))
    with connected() as connection:
        connection.register("found", found)
        assert said(connection.table("found")) == said(connection.read_parquet(f"{tmp_path}/t.parquet"))


def test_moments_of_96_bits_are_what_duckdb_reads_from_the_files(tmp_path: Path) -> None:
    """Spark writes them if nobody tells it otherwise."""
    moments = [dt.datetime(2020, 1, 1, 1, 2, 3, 456789), None, dt.datetime(9999, 1, 1), dt.datetime(1, 1, 1)]
    table = pa.table({"moment": pa.array(moments, pa.timestamp("us")), "list": [moments, [], None, moments]})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    found = scanned(read_source(tmp_path).tables[0], ChunkStore(tmp_path / "store", "a"))
    assert found.column("moment").type == pa.timestamp("us")
    with connected() as connection:
        connection.register("found", found)
        assert said(connection.table("found")) == said(connection.read_parquet(f"{tmp_path}/t.parquet"))


@pytest.mark.parametrize("nested", [False, True])
def test_bytes_that_are_no_text_are_told_of(tmp_path: Path, nested: bool) -> None:
    texts = pa.array(["good", b"\xff\xfe"], pa.binary()).view(pa.string())
    write(pa.table({"n": [1, 2], "t": texts if not nested else pa.ListArray.from_arrays([0, 1, 2], texts)}),
          tmp_path / "t.parquet", 2)  # fmt: skip
    with pytest.raises((InputError, ChunkDamagedError), match=r"t\.parquet, row group 0, column t: .*Invalid UTF8"):
        scanned(read_source(tmp_path).tables[0], ChunkStore(tmp_path / "store", "a"))


def buffers(array: pa.Array) -> list[pa.Buffer]:
    own = [*array.buffers(), *(buffers(array.dictionary) if pa.types.is_dictionary(array.type) else [])]
    return [each for each in own if each is not None and each.size]


@given(table=tables(), start=st.integers(0, 3))
@pytest.mark.law
@settings(max_examples=examples(125), deadline=None)
def test_buffers_lie_in_the_stream_at_multiples_of_64(table: pa.Table, start: int) -> None:
    nested = pa.array([[each, None] for each in range(table.num_rows)], pa.list_(pa.int64()))
    repeated = pa.array(["yes"] * table.num_rows, pa.string()).dictionary_encode()
    table = table.append_column("list", nested).append_column("same", repeated).slice(start)
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    stream = encode(batch)
    found = decode(stream)
    found.validate(full=True)
    assert repr(pa.Table.from_batches([found]).to_pylist()) == repr(table.to_pylist())  # NaN is not equal to itself
    for column in found.columns:
        for buffer in buffers(column):
            assert stream.address <= buffer.address < stream.address + stream.size, "nothing is copied"
            assert buffer.address % 64 == 0


def test_texts_of_a_megabyte_are_sliced(tmp_path: Path) -> None:
    texts = [str(number) * (1 << 20) for number in range(10)] * 2
    table = pa.table({"n": range(20), "text": texts})
    tmp_path.joinpath("in").mkdir()
    pq.write_table(table, tmp_path / "in" / "t.parquet", use_dictionary=False)
    (listed,) = read_source(tmp_path / "in").tables
    batches = listed.groups(["n", "text"])
    assert [(batch.first_row, batch.rows) for batch in batches] == [(0, 10), (10, 10)]
    assert [chunk.columns for chunk in batches[0].chunks] == [("n",), ("text",)]
    store = ChunkStore(tmp_path / "store", "a")
    assert max(store.load(chunk).size for batch in batches for chunk in batch.chunks) < SLICE_BYTES
    assert scanned(listed, store).equals(table)
    assert [len(batch.chunks) for batch in listed.groups(["text"])] == [1, 1]


@pytest.mark.parametrize("first", ["repetitive", "diverse"])
def test_a_chunk_that_is_encoded_otherwise_than_its_table_is_cast(tmp_path: Path, first: str) -> None:
    repetitive = [PREFIX, None, "b", "c"] * 16
    diverse = [f"{number}" for number in range(63)] + [None]
    texts = repetitive + diverse if first == "repetitive" else diverse + repetitive
    write(pa.table({"text": texts}), tmp_path / "in" / "t.parquet", 64)
    (table,) = read_source(tmp_path / "in").tables
    kinds = [read_chunk(chunk).schema.field("text").type for chunk in table.chunks()]
    assert pa.types.is_dictionary(kinds[0]) == (first == "repetitive")
    assert kinds[0] != kinds[1]
    assert kinds[0] == table.schema.field("text").type
    found = scanned(table, ChunkStore(tmp_path / "store", "a"))
    assert found.column("text").type == kinds[0]
    assert found.column("text").to_pylist() == texts


def test_texts_that_only_begin_with_few_values_are_no_dictionary() -> None:
    texts = pa.array(["same"] * 80 + [f"{number}" for number in range(80)])
    assert wire_column(texts) is texts
    assert len(wire_column(texts.slice(0, 80)).dictionary) == 1


def test_decimals_of_eighteen_digits_have_64_bits(tmp_path: Path) -> None:
    write(duckdb.sql("SELECT 1::DECIMAL(18,3) AS a, 1::DECIMAL(19,3) AS b").to_arrow_table(), tmp_path / "t.parquet", 1)
    (table,) = read_source(tmp_path).tables
    assert table.schema == pa.schema([("a", pa.decimal64(18, 3)), ("b", pa.decimal128(19, 3))])
