"""The keeper: what it has acknowledged is there after a restart, once; what it has refused is not."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cumulus.errors import (
    AbsentRowError,
    BindError,
    ClosedError,
    DataError,
    DuplicateKeyError,
    LockedError,
    MissingFunctionError,
    StoreError,
    UsageError,
    ValueTypeError,
)
from cumulus.hosts import RowRequest, TableRows, WriteReceipt, WriteRequest
from cumulus.scalars.function_modules import functions_in
from cumulus.server.journal import Journal
from cumulus.server.opening import open_keeper
from cumulus.server.records import LogRecord, RecordKind
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from cumulus.warehouse.shared_rows import SharedRows

SCRIPT = """
CREATE TABLE item (k INTEGER PRIMARY KEY, price DECIMAL(10, 2), day DATE, name VARCHAR, span INTERVAL);
CREATE TABLE r (a INTEGER, x DOUBLE);
CREATE VIEW v AS SELECT a, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY a;
CREATE VIEW prices AS SELECT COUNT(*) AS n, SUM(price) AS total FROM item;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(SCRIPT)
    return path


@contextmanager
def keeping(script: Path, **changes: Any) -> Iterator[SingleWriter]:
    settings = replace(ServerSettings(script.parent / "data", engine="interpreter"), **changes)
    keeper = open_keeper(script, settings)
    try:
        yield keeper
    finally:
        keeper.close()


@contextmanager
def killed(script: Path, **changes: Any) -> Iterator[SingleWriter]:
    """What is kept when the process is gone at the end of the block: no snapshot, no last word in the log."""
    settings = replace(ServerSettings(script.parent / "data", engine="interpreter"), **changes)
    keeper = open_keeper(script, settings)
    try:
        yield keeper
    finally:
        keeper._queue.put(None)
        keeper._thread.join()
        log = keeper._kept.journal._log
        if log._file is not None:
            log._file.close()
        log._lock.close()


def write(keeper: SingleWriter, op: Any, table: str, rows: Any, id: str = "") -> WriteReceipt:
    return keeper.write(WriteRequest((TableRows(op, table, rows),), id)).result(10)


def rows_of(keeper: SingleWriter, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in keeper.host.read(RowRequest(view)).table.to_pylist())


@pytest.mark.parametrize("ending", [keeping, killed])
def test_what_was_acknowledged_is_there_again(script: Path, ending: Any) -> None:
    with ending(script) as keeper:
        assert write(keeper, "insert", "r", [(1, 2.5), {"a": 1, "x": None}]) == WriteReceipt(1, 2)
        assert write(keeper, "insert", "r", pa.table({"a": list(range(2000)), "x": [0.5] * 2000})).at == 2
        assert write(keeper, "insert", "R", [[a, "1"] for a in range(1500)]).at == 3
        assert write(keeper, "delete", "r", [(0, 0.5)]).at == 4
        item = [1, "2.50", "2020-02-29", 'a "b"\n', "1 month 2 days"]
        assert write(keeper, "insert", "item", [item]).at == 5
        assert write(keeper, "upsert", "item", [{"k": 1, "price": 7}, {"k": 2}]).at == 6
        expected = {view: rows_of(keeper, view) for view in ("v", "prices")}
        assert expected["prices"] == [(2, 7)]
    with keeping(script) as keeper:
        assert keeper.at == 6
        assert {view: rows_of(keeper, view) for view in ("v", "prices")} == expected
        assert write(keeper, "delete", "item", [(2, None, None, None, None)]).at == 7


def test_all_parts_of_a_request_are_one_transaction(script: Path) -> None:
    with killed(script) as keeper:
        parts = (TableRows("insert", "item", [(1,) + (None,) * 4]), TableRows("insert", "r", [(1, 1.0)]))
        assert keeper.write(WriteRequest(parts)).result(10) == WriteReceipt(1, 2)
        with pytest.raises(DuplicateKeyError):
            keeper.write(WriteRequest(parts[::-1])).result(10)
        assert rows_of(keeper, "v") == [(1, 1, 1.0)]
    with keeping(script) as keeper:
        assert (keeper.at, rows_of(keeper, "v")) == (1, [(1, 1, 1.0)])


def test_what_was_refused_stays_refused(script: Path) -> None:
    with killed(script) as keeper:
        requests = [
            WriteRequest((TableRows("insert", "item", [(k, None, None, None, None)]),)) for k in (1, 1, 2, 1, 3)
        ]
        with keeper._warehouse.one_state():  # so they are a group, or two
            futures = [keeper.write(each) for each in requests]
        assert [type(each.exception(10)) for each in futures] == [
            *(type(None), DuplicateKeyError, type(None), DuplicateKeyError, type(None))
        ]
        assert [each.result().at for each in futures if not each.exception()] == [1, 2, 3]
        with pytest.raises(AbsentRowError):
            write(keeper, "delete", "item", [(9, None, None, None, None)])
    with keeping(script) as keeper:
        assert (keeper.at, rows_of(keeper, "prices")) == (3, [(3, None)])


@pytest.mark.filterwarnings("ignore::cumulus.errors.MemoryLimitWarning")
def test_what_there_was_no_memory_for_stays_refused_with_more(script: Path) -> None:
    rows = pa.table({"a": list(range(200_000)), "x": [1.0] * 200_000})
    with killed(script, engine="native", memory_limit="16MB") as keeper:
        assert write(keeper, "insert", "r", [(1, 1.0)], "small").at == 1
        with pytest.raises(MemoryError):
            write(keeper, "insert", "r", rows, "large")
    with killed(script, engine="native") as keeper:
        assert (keeper.at, rows_of(keeper, "v")) == (1, [(1, 1, 1.0)])
        assert write(keeper, "insert", "r", rows, "large").at == 2  # it was not acknowledged: it may come again
    with pytest.raises(MemoryError, match="record 4 of the log cannot be applied"):
        open_keeper(script, ServerSettings(script.parent / "data", memory_limit="16MB"))


def test_wrong_rows_do_not_come_to_the_log(script: Path) -> None:
    with keeping(script) as keeper:
        for rows in ([("x", 1.0)], pa.table({"a": [1], "b": [2]})):
            with pytest.raises(DataError):
                write(keeper, "insert", "r", rows)
        with pytest.raises(UsageError, match="there is no table"):
            write(keeper, "insert", "q", [])
        with pytest.raises(ValueTypeError):
            write(keeper, "insert", "r", [(1 << 40, 1.0)])
        assert keeper.status()["log"]["records"] == 0


def test_a_request_that_comes_again_gets_the_first_answer(script: Path) -> None:
    with killed(script) as keeper:
        assert write(keeper, "insert", "r", [(1, 1.0)], "one") == WriteReceipt(1, 1)
        assert write(keeper, "insert", "r", [(1, 1.0)], "two") == WriteReceipt(2, 1)
        assert write(keeper, "insert", "r", [(1, 1.0)], "one") == WriteReceipt(1, 1, is_repeated=True)
        with pytest.raises(UsageError, match="another request had the id 'one'"):
            write(keeper, "insert", "r", [(1, 2.0)], "one")
        with pytest.raises(UsageError, match="the request's id has 256 bytes"):
            write(keeper, "insert", "r", [(1, 1.0)], "x" * 256)
        with keeper._warehouse.one_state():
            twice = [keeper.write(WriteRequest((TableRows("insert", "r", [(3, 1.0)]),), "three")) for _ in range(3)]
        assert [each.result(10).is_repeated for each in twice] == [False, True, True]
    with keeping(script) as keeper:  # known from the log
        assert write(keeper, "insert", "r", [(1, 1.0)], "two") == WriteReceipt(2, 1, is_repeated=True)
    with keeping(script) as keeper:  # known from the snapshot
        assert write(keeper, "insert", "r", [(3, 1.0)], "three") == WriteReceipt(3, 1, is_repeated=True)
        assert rows_of(keeper, "v") == [(1, 2, 2.0), (3, 1, 1.0)]


def test_only_so_many_ids_are_kept(script: Path) -> None:
    with keeping(script, kept_ids=2) as keeper:
        for name in ("a", "b", "c"):
            write(keeper, "insert", "r", [(1, 1.0)], name)
        assert [write(keeper, "insert", "r", [(1, 1.0)], name).is_repeated for name in ("b", "c", "a")] == [
            *(True, True, False)
        ]


def test_views_are_created_and_dropped(script: Path) -> None:
    with killed(script) as keeper:
        write(keeper, "insert", "item", [(1, "2.5", "2020-01-01", "x", None)])
        at = keeper.execute("CREATE VIEW days AS SELECT day, COUNT(*) AS n FROM item GROUP BY day").result(10)
        assert at == 2  # what was read at 1 may show other views
        write(keeper, "insert", "r", [(1, 1.0)])
        with pytest.raises(UsageError, match="the rows that r has now"):
            keeper.execute("CREATE VIEW w AS SELECT MAX(x) AS m FROM r").result(10)
        keeper.execute("DROP VIEW prices; CREATE TABLE q (b INTEGER)").result(10)
        assert write(keeper, "insert", "q", [(1,)]).at == 5
        assert len(rows_of(keeper, "days")) == 1
    with keeping(script) as keeper:
        assert keeper.at == 5
        assert [view.name for view in keeper.program.shown_views] == ["v", "days"]
        assert len(rows_of(keeper, "days")) == 1


def test_a_changed_script_changes_the_views(script: Path) -> None:
    with killed(script) as keeper:
        write(keeper, "insert", "item", [(1, "2.5", "2020-01-01", "x", None), (2, 1, None, "x", None)])
        keeper.execute("CREATE VIEW own AS SELECT MAX(price) AS p FROM item").result(10)
    other = SCRIPT.replace("SUM(price) AS total", "SUM(price + 1) AS total") + "CREATE VIEW top AS FROM prices; -- it"
    script.write_text(other)
    for _ in range(2):
        with killed(script) as keeper:
            assert rows_of(keeper, "top") == rows_of(keeper, "prices") == [(2, 5.5)]
            assert len(rows_of(keeper, "own")) == 1
            assert keeper.at == 3
    script.write_text(other.replace("x DOUBLE", "x INTEGER"))
    with pytest.raises(UsageError, match=r"shop.sql: table r has other columns, keys or options"), keeping(script):
        pass
    script.write_text(other.replace("CREATE VIEW top AS FROM prices;", "") + "\nCREATE VIEW v AS SELECT nothing")
    with pytest.raises(BindError, match="v is there already"), keeping(script):
        pass
    script.write_text(SCRIPT)
    with keeping(script) as keeper:
        assert [view.name for view in keeper.program.shown_views] == ["v", "own", "prices"]
        assert rows_of(keeper, "prices") == [(2, 3.5)]


def test_a_changed_cube_is_made_anew(script: Path) -> None:
    query = "SELECT name, day, SUM(price) AS s FROM item GROUP BY ALL"
    cube = f"CREATE CUBE sales DIMENSION d (name, day) KEEP ({{}}) AS {query}"
    script.write_text(SCRIPT + cube.format("name"))
    with killed(script) as keeper:
        write(keeper, "insert", "item", [(1, "2.5", "2020-01-01", "x", None), (2, 1, "2020-01-02", "y", None)])
    for kept in ("day", "name", ""):
        script.write_text(SCRIPT + (cube.format(kept) if kept else ""))
        with killed(script) as keeper:
            assert [each.name for each in keeper.program.cubes] == ["sales"] * bool(kept)
            if kept:
                assert len(rows_of(keeper, "sales")) == 2


def test_readers_share_the_rows_of_a_state(script: Path) -> None:
    with keeping(script, sync="off") as keeper:
        write(keeper, "insert", "r", [(1, 1.0)])
        shared = SharedRows(keeper._warehouse)
        assert shared.read("v")[0] is shared.read("v")[0]
        keeper.execute("DROP VIEW v; CREATE VIEW v AS SELECT COUNT(*) AS n FROM item").result(10)
        assert rows_of(keeper, "v") == [(0,)]
        with ThreadPoolExecutor(8) as readers:
            for number in range(1, 100):
                at = write(keeper, "insert", "item", [(number, None, None, None, None)]).at
                for found in readers.map(lambda _: keeper.host.read(RowRequest("v")), range(4)):
                    assert found.at is not None
                    assert (found.table["n"][0].as_py() - number, found.at >= at) == (0, True)


def test_views_may_call_functions_of_ones_own(script: Path) -> None:
    (script.parent / "own.py").write_text(
        "import cumulus\n\n@cumulus.function\ndef doubled(x: float) -> float:\n    return 2 * x\n"
    )
    own: dict[str, Any] = {"keep": "all", "functions": functions_in([str(script.parent / "own.py")])}
    script.write_text(SCRIPT + "CREATE VIEW twice AS SELECT SUM(doubled(x)) AS s FROM r;")
    with killed(script, **own) as keeper:
        write(keeper, "insert", "r", [(1, 1.5)])
        assert keeper.host.query("SELECT doubled(s) AS d FROM twice").table.to_pylist() == [{"d": 6.0}]
    script.write_text(script.read_text() + "CREATE VIEW later AS SELECT MAX(doubled(x)) AS m FROM r;")
    with keeping(script, **own) as keeper:
        assert (rows_of(keeper, "twice"), rows_of(keeper, "later")) == ([(3.0,)], [(3.0,)])
    with pytest.raises(MissingFunctionError, match="doubled"), keeping(script):
        pass


def test_a_number_has_one_definition_of_a_view(script: Path) -> None:
    seen: dict[int, set[str]] = {}
    stop = threading.Event()
    with keeping(script, keep="all") as keeper:
        write(keeper, "insert", "r", [(number, 1.0) for number in range(100)])

        def read() -> None:
            while not stop.is_set():
                found = keeper.host.read(RowRequest("v"))
                assert found.at is not None
                seen.setdefault(found.at, set()).add(found.table.column_names[1])

        with ThreadPoolExecutor(3) as readers:
            done = [readers.submit(read) for _ in range(3)]
            for number in range(8):
                sql = f"DROP VIEW v; CREATE VIEW v AS SELECT a, COUNT(*) AS n{number} FROM r GROUP BY a"
                keeper.execute(sql).result(10)
                time.sleep(0.02)
            stop.set()
            for each in done:
                each.result(10)
    assert all(len(names) == 1 for names in seen.values()), seen


def test_a_folder_has_one_server(script: Path) -> None:
    with keeping(script), pytest.raises(LockedError, match="another server keeps this folder"):
        open_keeper(script, ServerSettings(script.parent / "data"))


def test_a_disk_that_is_full_refuses_and_goes_on(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed(script) as keeper:
        write(keeper, "insert", "r", [(1, 1.0)])

        def fail(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(StoreError, match="No space left on device\nNothing of the request was applied"):
                write(keeper, "insert", "r", [(2, 1.0)])
            assert rows_of(keeper, "v") == [(1, 1, 1.0)]
            assert "No space left" in keeper.status()["log"]["problem"]
        assert write(keeper, "insert", "r", [(3, 1.0)]).at == 2
        assert keeper.status()["log"]["problem"] == ""
    with keeping(script) as keeper:
        assert rows_of(keeper, "v") == [(1, 1, 1.0), (3, 1, 1.0)]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Have the system refuse bytes behind so many in the block, as a disk without room does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def size_of_log(folder: Path) -> int:
    (log,) = folder.glob("*.log")
    return log.stat().st_size


def kept_in(folder: Path) -> list[int]:
    """Return the numbers of the records that a server would apply after a kill, from a copy of its log."""
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    journal = Journal(copy, "always")
    found = [number for number, _ in journal.replay(0)]
    journal.close()
    shutil.rmtree(copy)
    return found


def test_a_refusal_without_room_takes_the_record_back(tmp_path: Path) -> None:
    record, folder = LogRecord(RecordKind.EVENTS, b"x" * 100, "id"), tmp_path / "log"
    journal = Journal(folder, "always")
    assert list(journal.replay(0)) == []
    assert journal.append([record]) == range(1, 2)
    before = size_of_log(folder)
    assert journal.append([record]) == range(2, 3)
    with no_file_larger_than(size_of_log(folder)):
        journal.refuse([2])
        assert size_of_log(folder) == before
        assert kept_in(folder) == [1]
    assert journal.append([record, record]) == range(2, 4)
    with no_file_larger_than(size_of_log(folder)):
        with pytest.raises(StoreError):  # the other one was applied
            journal.refuse([3])
        assert kept_in(folder) == [1, 2, 3], "nobody has been told otherwise"
        with pytest.raises(StoreError):
            journal.append([record])
    assert journal.append([record]) == range(5, 6), "the refusal stands before it"
    assert kept_in(folder) == [1, 2, 5]
    journal.close()


def test_a_request_that_is_refused_without_room_stays_refused(script: Path) -> None:
    log = script.parent / "data" / "log"
    with killed(script) as keeper:
        sizes = [0]
        for number in (1, 2):
            write(keeper, "insert", "item", [(number, 1, None, "x", None)], f"{number}")
            sizes.append(size_of_log(log))
        with no_file_larger_than(sizes[2] + sizes[2] - sizes[1]), pytest.raises(DuplicateKeyError):
            write(keeper, "insert", "item", [(2, 1, None, "x", None)], "3")
        assert size_of_log(log) == sizes[2]
        assert kept_in(log) == [1, 2]
        assert write(keeper, "insert", "item", [(3, 1, None, "x", None)], "3").at == 3
    with keeping(script) as keeper:
        assert keeper.at == 3


def test_a_snapshot_takes_the_place_of_the_log(script: Path) -> None:
    data = script.parent / "data"
    with killed(script, snapshot_bytes=2000, snapshot_ratio=0.0) as keeper:
        for number in range(40):
            write(keeper, "insert", "r", [(number, 1.0)] * 5, f"{number}")
        assert keeper.snapshot().result(10) == 40
        assert keeper.status()["snapshot"]["at"] == 40
        assert keeper.status()["log"]["bytes"] == 0
        assert len(list(data.glob("snapshot-*"))) == 1
        write(keeper, "insert", "r", [(100, 1.0)], "last")
    with keeping(script) as keeper:
        assert (keeper.at, len(rows_of(keeper, "v"))) == (41, 41)
        assert write(keeper, "insert", "r", [(0, 1.0)] * 5, "0").is_repeated
    (log,) = (data / "log").glob("*.log")
    log.unlink()
    with pytest.raises(StoreError, match="is missing, which came after the snapshot or is in it"):
        open_keeper(script, ServerSettings(data))


def test_a_server_that_goes_down_has_applied_what_came(script: Path) -> None:
    with keeping(script) as keeper:
        futures: list[Future[WriteReceipt]] = [
            keeper.write(WriteRequest((TableRows("insert", "r", [(1, 1.0)]),))) for _ in range(50)
        ]
    assert [each.result(0).at for each in futures] == list(range(1, 51))
    with pytest.raises(ClosedError, match="the server is going down"):
        write(keeper, "insert", "r", [(1, 1.0)])
