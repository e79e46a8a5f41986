"""What the catalogue of a folder is, and what is refused with one sentence."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.output.sink import Sink
from cumulus.errors import InputError, RingError, UnknownNameError
from cumulus_ring.chunks import folders
from cumulus_ring.chunks.catalogue import Catalogue, DataFile
from cumulus_ring.chunks.fitting import check_fits
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.chunks.parquet_files import read_chunk, read_footer
from support.random_files import committed, write

NUMBERS = pa.table({"n": [1, 2, 3]})


def test_files_and_folders_are_tables(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / 'Some "quoted" name.parquet', 2)
    write(NUMBERS, tmp_path / "parts" / "b.parquet", 3)
    write(NUMBERS, tmp_path / "parts" / "a.PARQUET", 3)
    write(NUMBERS, tmp_path / "_temporary" / "a.parquet", 3)
    for other in ("README.md", "parts/_SUCCESS", "parts/.a.parquet.crc"):
        (tmp_path / other).write_text("no table")
    found = read_source(tmp_path)
    assert [table.name for table in found.tables] == ['Some "quoted" name', "parts"]
    assert [file.name for file in found.table("PARTS").files] == ["parts/a.PARQUET", "parts/b.parquet"]
    assert found.table('SOME "QUOTED" NAME').rows == 3
    assert len(found.chunks) == 4
    with pytest.raises(UnknownNameError, match='Tables: Some "quoted" name, parts'):
        found.table("part")


def test_empty_tables_have_columns_and_no_chunks(tmp_path: Path) -> None:
    write(NUMBERS.slice(3), tmp_path / "t" / "a.parquet", 1)
    (table,) = read_source(tmp_path).tables
    assert (table.rows, table.schema, table.chunks()) == (0, NUMBERS.schema, [])
    write(pa.table({"n": [7]}), tmp_path / "t" / "b.parquet", 1)
    assert read_source(tmp_path).table("t").rows == 1


def test_columns_that_are_small_together_are_one_chunk(tmp_path: Path) -> None:
    small = pa.table({name: range(1000) for name in "abc"})
    write(small, tmp_path / "small.parquet", 1000)
    write(pa.table({name: range(100_000) for name in "abc"}), tmp_path / "large.parquet", 100_000)
    found = read_source(tmp_path)
    assert [chunk.columns for chunk in found.table("small").chunks()] == [("a", "b", "c")]
    assert [chunk.columns for chunk in found.table("large").chunks()] == [("a",), ("b",), ("c",)]
    assert [chunk.columns for batch in found.table("large").groups(["b"]) for chunk in batch.chunks] == [("b",)]
    assert [chunk.size for chunk in found.table("large").chunks()] == [812_500] * 3


def test_batches_that_no_node_can_hold_are_refused_with_both_sizes(tmp_path: Path) -> None:
    write(pa.table({name: range(120_000) for name in "abc"}), tmp_path / "t.parquet", 100_000)
    (table,) = read_source(tmp_path).tables
    check_fits(table.groups("abc"), 3 * 812_500)
    check_fits(table.groups("a"), 812_500)
    check_fits([], 0)
    told = r"table t has 1,625,000 bytes in the 2 columns .*rows 0 to 99999 of row group 0 of t\.parquet.* 1,624,999 "
    with pytest.raises(RingError, match=told) as caught:
        check_fits(table.groups("ac"), 1_624_999)
    assert "--storage" in caught.value.hint
    # The second row group is one chunk, with columns that nobody asks for.
    (small,) = (group for group in table.groups("a") if group.row_group.number == 1)
    with pytest.raises(RingError, match=r"487,500 bytes in the 3 columns"):
        check_fits([small], 162_500)


def test_numbers_are_those_of_another_machine(tmp_path: Path) -> None:
    for place in ("one", "other"):
        write(NUMBERS, tmp_path / place / "t.parquet", 2)
    one, other = (read_source(tmp_path / place) for place in ("one", "other"))
    assert one.chunks.keys() == other.chunks.keys()
    os.rename(tmp_path / "other" / "t.parquet", tmp_path / "other" / "u.parquet")
    assert one.chunks.keys().isdisjoint(read_source(tmp_path / "other").chunks)


def test_all_columns_of_a_row_group_are_at_one_node(tmp_path: Path) -> None:
    write(pa.table({name: range(500_000) for name in "abc"}), tmp_path / "t.parquet", 100_000)
    found = read_source(tmp_path)
    members = ("north", "east", "south")
    shares = {member: found.share(member, members) for member in members}
    assert sorted(chunk.id for share in shares.values() for chunk in share) == sorted(found.chunks)
    for group in found.table("t").groups("abc"):
        assert [{*group.chunks} <= {*share} for share in shares.values()].count(True) == 1


def test_two_chunks_with_one_number_are_refused(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / "t.parquet", 3)
    (table,) = read_source(tmp_path).tables
    (chunk,) = table.chunks()
    with pytest.raises(InputError, match=rf"{chunk.id:016x}.*{chunk.id:016x}.* have the same number"):
        Catalogue(1, (table, replace(table, name="the same file once more")))


def test_files_that_were_written_anew_are_read_again(tmp_path: Path) -> None:
    for name in ("same", "changed"):
        write(NUMBERS, tmp_path / f"{name}.parquet", 3)
    first = read_source(tmp_path)
    write(pa.table({"n": [4, 5]}), tmp_path / "changed.parquet", 3)
    write(NUMBERS, tmp_path / "added.parquet", 3)
    second = read_source(tmp_path, first)
    assert (first.version, second.version) == (1, 2)
    assert second.table("same").files[0] is first.table("same").files[0]
    assert second.table("changed").rows == 2
    assert len(second.chunks.keys() & first.chunks.keys()) == 1


def refused(folder: Path, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        read_source(folder)
    assert caught.value.hint


def test_what_is_no_folder_of_tables_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "absent", "absent is not a folder")
    refused(tmp_path, "has no Parquet files")
    (tmp_path / "t.parquet").touch()
    refused(tmp_path, r"t\.parquet is empty: it has no bytes")
    for content in (b"PAR1", b"n\n1\n2\n3\n" * 100, b"PAR1" + b"x" * 100 + b"\xff\xff\xff\x7fPAR1"):
        (tmp_path / "t.parquet").write_bytes(content)
        refused(tmp_path, r"t\.parquet cannot be read as Parquet: ")
    write(NUMBERS, tmp_path / "t.parquet", 1)
    write(NUMBERS, tmp_path / "T" / "a.parquet", 1)
    refused(tmp_path, r"two tables have the name t, in T/a\.parquet and t\.parquet")


def test_what_is_no_file_or_has_no_name_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.parquet")
    refused(tmp_path, r"t\.parquet is not a file")
    (tmp_path / "t.parquet").unlink()
    (tmp_path / "t.parquet").symlink_to("nowhere")
    refused(tmp_path, r"t\.parquet cannot be read: No such file")
    (tmp_path / "t.parquet").unlink()
    for name in (b"t\xff.parquet", b"t/\xff.parquet"):
        write(NUMBERS, tmp_path / "t" / "a.parquet", 1)
        os.rename(tmp_path / "t" / "a.parquet", os.fsencode(tmp_path) + b"/" + name)
        refused(tmp_path, r"\\udcff\.parquet in .* has a name that is no text|t\\udcff in .* no text")
        os.unlink(os.fsencode(tmp_path) + b"/" + name)


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who may not read what nobody may."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_told_of() -> None:
    with tempfile.TemporaryDirectory() as name:  # in a folder that others can enter
        folder = Path(name)
        folder.chmod(0o755)
        write(NUMBERS, folder / "t" / "a.parquet", 2)
        listed = read_source(folder).tables[0].chunks()[0]
        (folder / "t" / "a.parquet").chmod(0)
        with without_rights():
            refused(folder, r"t/a\.parquet cannot be read: Permission denied")
            with pytest.raises(InputError, match=r"t/a\.parquet cannot be read: Permission denied"):
                read_chunk(listed)
        (folder / "t").chmod(0)
        with without_rights():
            refused(folder, "t cannot be read: Permission denied")
        (folder / "t").chmod(0o755)


def test_folders_inside_a_tables_folder_are_refused(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / "t" / "year=2024" / "month=1" / "a.parquet", 1)
    refused(tmp_path, "year=2024 is a folder inside the folder of a table")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"n": ["x"]}, "n is string in one and int64 in the other|n is int64 in one and string in the other"),
        ({"m": [1]}, "where one has the column n, the other has m"),
        ({"N": [1]}, "where one has the column n, the other has N"),
        ({"n": [1], "m": [1]}, "one has 1 columns, the other 2"),
    ],
)
def test_files_of_a_table_that_disagree_are_refused(tmp_path: Path, other: dict[str, list], reason: str) -> None:
    write(NUMBERS, tmp_path / "t" / "a.parquet", 1)
    write(pa.table(other), tmp_path / "t" / "b.parquet", 1)
    refused(tmp_path, f"b.parquet and .*a.parquet are of one table, t, but disagree: ({reason})")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"a": [1], "A": [2]}), "has columns a and A"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "has two columns a"),
        (pa.table({}), "has no columns"),
        (pa.table({"": [1], "b": [2]}), "has a column without a name"),
    ],
)
def test_columns_that_sql_cannot_tell_apart_are_refused(tmp_path: Path, table: pa.Table, reason: str) -> None:
    write(table, tmp_path / "t.parquet", 1)
    refused(tmp_path, reason)


@pytest.mark.parametrize(
    "value", ["INTERVAL 1 DAY", "[INTERVAL 1 DAY]", "TIME WITH TIME ZONE '08:00:00+00'", "{'a': 1}::VARIANT"]
)
def test_types_that_arrow_does_not_keep_are_refused(tmp_path: Path, value: str) -> None:
    duckdb.sql(f"COPY (SELECT {value} AS x) TO '{tmp_path}/t.parquet'")
    refused(tmp_path, "column x.* is of type (INTERVAL|TIME WITH TIME ZONE|VARIANT)")


def test_decimals_that_sql_does_not_have_are_refused(tmp_path: Path) -> None:
    write(pa.table({"x": pa.array([1], pa.decimal256(39, 0))}), tmp_path / "t.parquet", 1)
    refused(tmp_path, r"column x is of type DECIMAL\(39\)")


def test_an_output_folder_has_the_views_of_its_last_epoch(tmp_path: Path) -> None:
    Sink(tmp_path, "one", "program").close()
    refused(tmp_path, "has no committed epoch")
    committed(tmp_path, 1, {"kept": NUMBERS, 'Some "view"': NUMBERS})
    first = read_source(tmp_path)
    committed(tmp_path, 3, {'Some "view"': NUMBERS.slice(1)})
    (tmp_path / "data" / "kept" / "4-0-0.parquet").write_bytes(b"an epoch that is not committed")
    second = read_source(tmp_path, first)
    assert (first.version, second.version) == (1, 3)
    assert second.table('some "VIEW"').rows == 2
    assert second.table("kept").files[0] is first.table("kept").files[0]
    shared = {chunk.file.name for id, chunk in second.chunks.items() if id in first.chunks}
    assert shared == {"data/kept/1-0-0.parquet"}, "a file that has not changed keeps its chunks"


def test_a_view_that_has_no_file_yet_is_no_table(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "one", "program")
    write(NUMBERS, tmp_path / "data" / "good" / "1-0-0.parquet", 2)
    sink.commit(1, [Written(0, {"good": "data/good/1-0-0.parquet"}, {}, {"bad": "division by zero"}, True)])
    sink.close()
    assert [table.name for table in read_source(tmp_path).tables] == ["good"]


def test_a_file_of_the_last_epoch_that_is_gone_is_named(tmp_path: Path) -> None:
    committed(tmp_path, 1, {"v": NUMBERS})
    (tmp_path / "data" / "v" / "1-0-0.parquet").unlink()
    refused(tmp_path, r"data/v/1-0-0\.parquet of epoch 1 cannot be read: No such file")


def test_an_epoch_that_goes_while_it_is_read_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(tmp_path, 1, {"v": NUMBERS})

    def read_slowly(*args: Any) -> DataFile:
        monkeypatch.undo()
        committed(tmp_path, 2, {"v": NUMBERS.slice(2)}, keep=1)
        return read_footer(*args)

    monkeypatch.setattr(folders, "read_footer", read_slowly)
    found = read_source(tmp_path)
    assert (found.version, found.table("v").rows) == (2, 1)
