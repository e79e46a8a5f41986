"""Folders as users have them: formats, operations, orders, and everything that can be wrong with a file or a row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake import reading
from cumulus.epochs.intake.packing import pack, unpack
from cumulus.epochs.intake.reading import parts_of, read_file
from cumulus.epochs.output.query import query
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError, LockedError, MismatchError, StoreError, UsageError
from support.engines import engine_of
from support.orders_stream import json_lines

pytestmark = pytest.mark.usefixtures("each_engine")

ITEMS = """
CREATE TABLE items (id INT PRIMARY KEY, price DECIMAL(8,2) NOT NULL, sold DATE);
CREATE VIEW days AS SELECT sold, SUM(price) AS total, COUNT(*) AS n FROM items GROUP BY sold;
"""


def run(tmp_path: Path, sql: str = ITEMS, *sources: str, **options: Any) -> None:
    program = compile_sql(sql, rely=False)
    given = sources_from(sources or [str(tmp_path / "in")], program)
    with EmbeddedRun(program, given, tmp_path / "out", make_engine=engine_of, **options) as running:
        for _ in running.steps():
            pass


def ask(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query(tmp_path / "out", sql).to_pylist()]


def quarantine(tmp_path: Path) -> list[tuple[Any, ...]]:
    return ask(tmp_path, "SELECT source, position, reason FROM quarantine ORDER BY ALL")


def write(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_csv_cells_that_do_not_fit_are_quarantined_one_by_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        "items/1.csv",
        "id,price,sold,op\n1,1.50,2024-01-01,i\n2,much,2024-01-01,i\n3,2.00,,\n4,1.555,2024-01-01,i\n5,1\n6,1,2024-13-01,i\n"
        "7,,2024-01-01,i\n8,1,2024-01-01,?\n",
    )
    run(tmp_path)
    assert ask(tmp_path, "SELECT total::DOUBLE, n FROM days ORDER BY 1") == [(1.5, 1), (2.0, 1)]
    found = quarantine(tmp_path)
    assert [position for _, position, _ in found] == [2, 4, 5, 6, 7, 8]
    reasons = [reason for _, _, reason in found]
    for reason, part in zip(
        reasons,
        ["much", "digits after the point", "columns", "sold", "price is NULL", "unknown operation"],
        strict=True,
    ):
        assert part in reason


def test_json_lines_may_be_broken(tmp_path: Path) -> None:
    json_lines(
        tmp_path / "in" / "items" / "1.jsonl",
        [{"id": 1, "price": 1.25, "sold": "2024-01-01"}, '{"id": 2,', {"id": 3, "price": "x", "sold": None}, "[1]"],
    )
    run(tmp_path)
    assert ask(tmp_path, "SELECT total::DOUBLE, n FROM days") == [(1.25, 1)]
    assert [(source, position) for source, position, _ in quarantine(tmp_path)] == [
        ("items/1.jsonl", 2),
        ("items/1.jsonl", 3),
        ("items/1.jsonl", 4),
    ]


def test_within_a_key_the_greatest_position_wins_and_repeats_are_dropped(tmp_path: Path) -> None:
    json_lines(
        tmp_path / "in" / "items" / "1.json",
        [
            {"id": 1, "price": 3, "op": "u", "seq": 3},
            {"id": 1, "price": 1, "op": "i", "seq": 1},
            {"id": 1, "price": 2, "op": "u", "seq": 2},
            {"id": 1, "price": 3, "op": "u", "seq": 3},
        ],
    )
    json_lines(tmp_path / "in" / "items" / "2.json", [{"id": 1, "price": 2, "op": "u", "seq": 2}])
    json_lines(tmp_path / "in" / "items" / "3.json", [{"id": 1, "op": "d", "seq": 4}, {"id": 1, "op": "d", "seq": 4}])
    run(tmp_path)
    totals = [query(tmp_path / "out", "SELECT total::INT AS t FROM days", epoch).to_pylist() for epoch in (1, 2, 3)]
    assert totals == [[{"t": 3}], [{"t": 3}], []]
    manifest = json.loads((tmp_path / "out" / "epochs" / "3.json").read_text())
    assert manifest["totals"]["repeated"] == 3
    assert quarantine(tmp_path) == []


def test_debezium_envelopes(tmp_path: Path) -> None:
    first, second = {"id": 1, "price": "1.00", "sold": None}, {"id": 1, "price": "2.50", "sold": None}
    json_lines(
        tmp_path / "in" / "items" / "1.json",
        [
            {"payload": {"before": None, "after": first, "op": "c", "source": {"lsn": 10}}},
            {"payload": {"before": first, "after": second, "op": "u", "source": {"lsn": 11}}},
            {"payload": {"before": first, "after": second, "op": "u", "source": {"lsn": 11}}},
            {"payload": None},
        ],
    )
    json_lines(
        tmp_path / "in" / "items" / "2.json",
        [{"payload": {"before": {"id": 1}, "after": None, "op": "d", "source": {"lsn": 12}}}],
    )
    run(tmp_path, ITEMS, f"items={tmp_path}/in/items,format=debezium,order=source.lsn")
    assert query(tmp_path / "out", "SELECT total::DOUBLE AS t FROM days", 1).to_pylist() == [{"t": 2.5}]
    assert ask(tmp_path, "FROM days") == []
    assert quarantine(tmp_path) == []


ORDERS = """
CREATE TABLE parents (id INT PRIMARY KEY);
CREATE TABLE children (id INT PRIMARY KEY, parent INT REFERENCES parents (id));
CREATE VIEW per AS SELECT parent, COUNT(*) AS n FROM children GROUP BY parent;
"""


def test_a_child_waits_for_its_parent_and_then_gives_up(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    json_lines(folder / "children" / "1.json", [{"id": 1, "parent": 7}, {"id": 2, "parent": 8}])
    json_lines(folder / "parents" / "1.json", [{"id": 6}])
    json_lines(folder / "parents" / "2.json", [{"id": 7}])
    for epoch in (3, 4):
        json_lines(folder / "parents" / f"{epoch}.json", [{"id": epoch + 100}])
    run(tmp_path, ORDERS, late_epochs=3)
    per = [query(tmp_path / "out", "FROM per", epoch).to_pylist() for epoch in (1, 2, 4)]
    assert per == [[], [{"parent": 7, "n": 1}], [{"parent": 7, "n": 1}]]
    waiting = [
        json.loads((tmp_path / "out" / "epochs" / f"{epoch}.json").read_text())["counts"]["waiting"]
        for epoch in (1, 2, 3, 4)
    ]
    assert waiting == [2, 1, 1, 0]
    [(source, position, reason)] = quarantine(tmp_path)
    assert (source, position) == ("children/1.json", 2)
    assert "after 3 epochs" in reason


def test_a_parent_goes_after_its_children(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    json_lines(folder / "parents" / "1.json", [{"id": 1}, {"id": 2}])
    json_lines(folder / "children" / "1.json", [{"id": 1, "parent": 1}, {"id": 2, "parent": 2}])
    json_lines(folder / "parents" / "2.json", [{"id": 1, "op": "d"}, {"id": 2, "op": "d"}])
    json_lines(folder / "children" / "2.json", [{"id": 1, "op": "d"}])
    json_lines(folder / "children" / "3.json", [{"id": 2, "op": "d"}])
    run(tmp_path, ORDERS)
    waiting = [
        json.loads((tmp_path / "out" / "epochs" / f"{epoch}.json").read_text())["counts"]["waiting"]
        for epoch in (1, 2, 3)
    ]
    assert waiting == [0, 1, 0]
    assert quarantine(tmp_path) == []


def table(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_files_of_the_wrong_shape_name_themselves(tmp_path: Path) -> None:
    table(tmp_path / "in" / "items" / "1.parquet", id=pa.array([1], pa.int32()), sold=pa.array([None], pa.date32()))
    with pytest.raises(InputError, match=r"items/1\.parquet: table 'items' needs a column 'price'"):
        run(tmp_path)
    table(tmp_path / "in" / "items" / "1.parquet", id=[1], price=[1.0], sold=[7])
    with pytest.raises(InputError, match=r"items/1\.parquet: column 'sold' is int64, table 'items' says DATE"):
        run(tmp_path)


def test_a_large_file_may_be_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PART_ROWS", 10)
    relation = compile_sql(ITEMS, rely=False).relation("items")
    source, path = FolderSource("items", str(tmp_path)), str(tmp_path / "1.parquet")
    ids = [None if place % 7 == 3 else place for place in range(100)]
    rows = pa.table({"id": ids, "price": [1] * 100, "sold": pa.nulls(100, pa.date32())})
    pq.write_table(rows, path, row_group_size=13)
    whole = read_file(source, relation, path, "items/1.parquet")
    assert len(whole.rejected) == 14
    for most, count in ((1, 1), (2, 2), (3, 3), (50, 8)):
        parts = parts_of(source, path, most)
        assert len(parts) == count
        read = [read_file(source, relation, path, "items/1.parquet", part) for part in parts]
        assert pa.concat_tables(each.rows for each in read) == whole.rows
        assert tuple(row for each in read for row in each.rejected) == whole.rejected
        packed = [payload for each in reversed(read) for payload in pack([each], BucketPlan())]
        payloads = [payload for payload in unpack(packed) if payload.rows.num_rows]
        assert pa.concat_tables(payload.rows for payload in payloads) == whole.rows
    assert parts_of(source, str(tmp_path / "1.csv"), 4) == [None]
    (tmp_path / "1.parquet").write_bytes(b"PAR1")
    assert parts_of(source, path, 4) == [None]


def test_a_truncated_file_stops_the_run(tmp_path: Path) -> None:
    table(tmp_path / "in" / "items" / "1.parquet", id=[1], price=[1], sold=pa.array([None], pa.date32()))
    whole = (tmp_path / "in" / "items" / "1.parquet").read_bytes()
    (tmp_path / "in" / "items" / "1.parquet").write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"items/1\.parquet: not a whole Parquet file"):
        run(tmp_path)
    (tmp_path / "in" / "items" / "1.parquet").write_bytes(whole)
    run(tmp_path)
    assert ask(tmp_path, "SELECT n FROM days") == [(1,)]


def test_missing_folders_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        run(tmp_path)
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="no folder for any of the tables"):
        run(tmp_path)
    with pytest.raises(InputError, match="the source of table 'items' is not there"):
        run(tmp_path, ITEMS, f"items={tmp_path}/nowhere")
    with pytest.raises(UsageError, match="there is no table 'itms'"):
        run(tmp_path, ITEMS, f"itms={tmp_path}")


def test_a_file_that_comes_late_under_an_early_name_is_not_lost_silently(tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "items" / "2.json", [{"id": 1, "price": 1, "sold": None}])
    run(tmp_path)
    json_lines(tmp_path / "in" / "items" / "1.json", [{"id": 2, "price": 1, "sold": None}])
    with pytest.raises(InputError, match="a file came late under an earlier name"):
        run(tmp_path)


def test_a_late_file_is_noticed_where_older_ones_were_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "items"
    for name in (1, 2, 3):
        json_lines(folder / f"{name}.json", [{"id": name, "price": 1, "sold": None}])
    run(tmp_path)
    for name in (1, 2):
        (folder / f"{name}.json").unlink()
    json_lines(folder / "4.json", [{"id": 4, "price": 1, "sold": None}])
    run(tmp_path)
    assert ask(tmp_path, "SELECT n FROM days") == [(4,)]
    json_lines(folder / "25.json", [{"id": 25, "price": 1, "sold": None}])
    with pytest.raises(InputError, match=r"3 files sort up to '4.json', but only 2 are in: a file came late"):
        run(tmp_path)


def test_an_output_is_for_one_run_and_one_program(tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "items" / "1.json", [{"id": 1, "price": 1, "sold": None}])
    program = compile_sql(ITEMS, rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of):
        with pytest.raises(LockedError, match="another run is using this checkpoint"):
            EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of)
        with pytest.raises(LockedError, match="another run is writing here"):
            EmbeddedRun(program, sources, tmp_path / "out", tmp_path / "other", make_engine=engine_of)
    with pytest.raises(MismatchError, match="view days is another"):
        run(tmp_path, ITEMS.replace("COUNT(*) AS n", "COUNT(*) AS m"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "in" / "items").mkdir(parents=True)
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        run(tmp_path)


def test_what_is_no_folder_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "in" / "items").mkdir(parents=True)
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UsageError, match=r"--out .*/out: .*/out is a file"):
        run(tmp_path)
    (tmp_path / "out").unlink()
    for path, words in (("file/below", "file is a file"), ("link", "link is a link to nowhere, which is not there")):
        with pytest.raises(UsageError, match=f"--checkpoint .*{words}"):
            run(tmp_path, checkpoint=tmp_path / path)
    assert not (tmp_path / "out").exists()


def test_an_output_is_not_among_the_files_of_a_table(tmp_path: Path) -> None:
    items = tmp_path / "in" / "items"
    json_lines(items / "1.json", [{"id": 1, "price": 1, "sold": None}])
    for path in (items, items / "state" / "below"):
        with pytest.raises(UsageError, match=r"is in .*/in/items, the folder of table 'items'"):
            run(tmp_path, checkpoint=path)
    assert [path.name for path in items.iterdir()] == ["1.json"]
    run(tmp_path, checkpoint=items / "_state")  # such names are no files of the table
    assert ask(tmp_path, "SELECT n FROM days") == [(1,)]


def test_a_static_table_is_loaded_first_and_does_not_change(tmp_path: Path) -> None:
    sql = """
    CREATE TABLE shops (shop INT, city TEXT) WITH (static = true);
    CREATE TABLE sales (shop INT, amount INT);
    CREATE VIEW cities AS SELECT city, SUM(amount) AS total FROM sales JOIN shops USING (shop) GROUP BY city;
    """
    json_lines(tmp_path / "in" / "shops" / "1.json", [{"shop": 1, "city": "Oslo"}])
    json_lines(tmp_path / "in" / "shops" / "2.json", [{"shop": 2, "city": "Rome"}])
    for epoch in (1, 2):
        json_lines(
            tmp_path / "in" / "sales" / f"{epoch}.json", [{"shop": 1, "amount": 5}, {"shop": 2, "amount": epoch}]
        )
    run(tmp_path, sql)
    assert ask(tmp_path, "SELECT city, total::INT FROM cities ORDER BY city") == [("Oslo", 10), ("Rome", 3)]
    json_lines(tmp_path / "in" / "shops" / "3.json", [{"shop": 3, "city": "Bonn"}])
    run(tmp_path, sql)
    [(source, position, reason)] = quarantine(tmp_path)
    assert (source, position) == ("shops/3.json", 1)
    assert reason.startswith("static table")


def test_a_source_may_name_the_key(tmp_path: Path) -> None:
    sql = "CREATE TABLE r (k INT, a INT); CREATE VIEW v AS SELECT k, SUM(a) AS s FROM r GROUP BY k;"
    json_lines(tmp_path / "in" / "1.json", [{"k": 1, "a": 1, "seq": 1}, {"k": 1, "a": 1, "seq": 1}])
    run(tmp_path, sql, f"r={tmp_path}/in,key=k")
    assert ask(tmp_path, "SELECT k, s::INT FROM v") == [(1, 1)]
    with pytest.raises(UsageError, match="no column 'x'"):
        run(tmp_path, sql, f"r={tmp_path}/in,key=x")


def test_of_too_many_deletions_the_last_are_refused(tmp_path: Path) -> None:
    sql = "CREATE TABLE r (a INT) WITH (keep = all); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;"
    rows = [{"a": 1, "op": op} for op in "ididd"] + [{"a": 2, "op": "d"}, {"a": 2, "op": "i"}]
    json_lines(tmp_path / "in" / "r" / "1.json", rows)
    run(tmp_path, sql)
    assert [position for _, position, _ in quarantine(tmp_path)] == [5]
    assert ask(tmp_path, "FROM v") == []
