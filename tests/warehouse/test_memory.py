"""What maps may take, and what they take: refusals that undo, warnings, statistics."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

from cumulus import Warehouse
from cumulus.engine.limits import Budget, bytes_of, format_bytes, machine_memory
from cumulus.engine.session import Session
from cumulus.errors import CumulusError, MemoryLimitError, MemoryLimitWarning, UsageError
from cumulus_lab.bench.engine_runs import batches_of, columns_of
from cumulus_lab.workloads import orders
from support.engines import KINDS
from support.tiers import one_mode_each

SQL = """
CREATE TABLE r (a BIGINT NOT NULL, x BIGINT NOT NULL);
CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a;
CREATE VIEW w AS SELECT x, COUNT(*) AS n FROM r GROUP BY x;
"""
PORTION = 500


def rows(start: int) -> list[tuple[int, int]]:
    return [(number, number % 100) for number in range(start, start + PORTION)]


def by_tuples(wh: Warehouse, some: list[Any]) -> None:
    wh.insert("r", some)


def by_columns(wh: Warehouse, some: list[Any]) -> None:
    columns = (pa.array([row[place] for row in some], pa.int64()) for place in (0, 1))
    wh.insert("r", pa.table(dict(zip("ax", columns, strict=True))))


def by_events(wh: Warehouse, some: list[Any]) -> None:
    wh.apply([(1, "r", row) for row in some])


def by_trigger(wh: Warehouse, some: list[Any]) -> None:
    on = wh.trigger("r")
    for row in some:
        on(1, *row)


def fill(wh: Warehouse, way: Any, start: int) -> tuple[int, MemoryLimitError]:
    """Insert rows until they are refused; return the number of the first of the portion, and the error."""
    for number in range(start, start + 1_000_000, PORTION):
        try:
            way(wh, rows(number))
        except MemoryLimitError as problem:
            return number, problem
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("way", "engine"), one_mode_each([by_tuples, by_columns, by_events, by_trigger], KINDS[::-1], of=2)
)
def test_what_has_no_room_is_refused_whole_and_the_warehouse_goes_on(engine, way) -> None:
    wh = Warehouse(SQL, engine=engine, memory_limit="2MB" if engine == "native" else "6MB")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        before, refused = fill(wh, way, 0)
    assert 1 <= sum(each.category is MemoryLimitWarning for each in heard) <= 2
    assert "memory_limit is" in str(refused)
    assert "map v (" in str(refused)
    assert "stats().maps" in str(refused)
    assert isinstance(refused, CumulusError)
    count = wh.stats().rows["r"]
    if way in (by_tuples, by_columns):
        assert count == before, "a transaction is refused whole"
    assert sorted(wh.view("v").rows()) == [(number, number % 100) for number in range(count)]
    fill(wh, way, count)
    count = wh.stats().rows["r"]
    for start in range(0, count, 100):
        wh.delete("r", [(number, number % 100) for number in range(start, min(start + 100, count))])
    assert wh.view("w").rows() == []
    way(wh, rows(7))
    assert len(wh.view("v").rows()) == PORTION
    if engine == "native":
        maps = wh._state.session.engine.code.image.maps.values()
        assert [each.view.problems() for each in maps if each.view.problems()] == []


@pytest.mark.filterwarnings("ignore::cumulus.errors.MemoryLimitWarning")
def test_a_large_transaction_needs_room_for_its_journal() -> None:
    wh = Warehouse(SQL, memory_limit="2MB")
    some = [(1, number % 3) for number in range(100_000)]
    with pytest.raises(MemoryLimitError, match="the journal of the transaction cannot grow"):
        wh.insert("r", some)
    assert wh.view("w").rows() == []
    for start in range(0, len(some), PORTION):
        wh.insert("r", some[start : start + PORTION])
    assert wh.view("v").rows() == [(1, sum(number for _, number in some))]


def test_refusals_anywhere_leave_what_an_engine_without_them_has() -> None:
    """Every few events something is refused: rows, slots, segments, the journal; then a little more is granted."""
    stream = orders.stream(scale=0.02, seed=3)
    program = Warehouse(orders.SQL).program
    limited, free = (Session(program, {}, "native") for _ in range(2))
    limit, refused = 60_000, 0
    limited.engine.limit(Budget(limit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in batches_of(stream, 700):
            bulk = columns_of(program, part)
            while True:
                before = limited.counters.events
                try:
                    limited.commit_bulk(bulk)
                except MemoryLimitError:
                    refused += 1
                    assert limited.counters.events == before
                    assert all(not limited.engine.code.store(each.name).view.problems() for each in program.maps[:2])
                    limit += 40_000
                    limited.engine.limit(Budget(limit))
                    continue
                break
            free.commit_bulk(bulk)
    assert refused > 20
    for each in program.maps:
        assert dict(limited.engine.stored(each.name)) == dict(free.engine.stored(each.name))
        assert limited.engine.code.store(each.name).view.problems() == []


def test_texts_count() -> None:
    wh = Warehouse("CREATE TABLE r (t VARCHAR); CREATE VIEW v AS SELECT t, COUNT(*) AS n FROM r GROUP BY t")
    before = wh.stats().bytes
    wh.insert("r", [(f"{number:0200}",) for number in range(1000)])
    assert wh.stats().bytes - before > 200_000


@pytest.mark.parametrize("engine", KINDS)
def test_statistics_say_what_a_map_takes_and_change_nothing(engine) -> None:
    wh = Warehouse(
        "CREATE TABLE r (a BIGINT NOT NULL, b BIGINT NOT NULL, x BIGINT NOT NULL);"
        "CREATE TABLE s (a BIGINT NOT NULL, b BIGINT NOT NULL);"
        "CREATE VIEW v AS SELECT r.b, SUM(x) AS s FROM r JOIN s ON r.a = s.a GROUP BY r.b",
        engine=engine,
    )
    empty = wh.stats()
    assert {each.rows for each in empty.maps.values()} == {0}
    wh.insert("r", [(number % 10, number, 1) for number in range(2000)])
    wh.insert("s", [(number % 7, number) for number in range(100)])
    found = wh.stats()
    assert found == wh.stats()
    assert found.maps.keys() == found.entries.keys()
    assert {name: each.rows for name, each in found.maps.items()} == found.entries
    assert max(each.chain for each in found.maps.values()) == 200
    assert sum(each.bytes for each in found.maps.values()) <= found.bytes
    for each in found.maps.values():
        if engine == "interpreter":
            assert (each.load, each.probes, each.probes_mean) == (None, None, None)
        else:
            assert each.load is not None
            assert 0 < each.load <= 13 / 16
            assert each.probes is not None
            assert each.probes_mean is not None
            assert 1 <= each.probes_mean <= each.probes


@pytest.mark.parametrize("engine", KINDS)
def test_deletions_before_their_insertions_are_counted(engine) -> None:
    wh = Warehouse(SQL, engine=engine)
    wh.delete("r", [(1, 5), (2, 5)])
    wh.insert("r", [(3, 5)])
    assert wh.stats().negative == 3  # groups 1 and 2 of one view, group 5 of the other
    wh.insert("r", [(1, 5), (2, 5)])
    assert wh.stats().negative == 0


def test_a_limit_is_written_as_for_duckdb(tmp_path) -> None:
    assert bytes_of("4GB") == bytes_of(" 4 gb ") == bytes_of(4_000_000_000) == 4 * 10**9
    assert bytes_of("2GiB") == 2 << 30
    assert bytes_of("None") is None
    there = machine_memory()
    assert there is not None
    assert bytes_of(None) == int(there * 0.8) == bytes_of("80%")
    for wrong in ("4", "GB", "-1GB", "4 pounds", "0%", "0GB", 0, -5, True, 1.5):
        with pytest.raises(UsageError, match="memory_limit"):
            bytes_of(wrong)  # type: ignore[arg-type]
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory(tmp_path) == machine_memory(tmp_path / "nothing")
    (tmp_path / "memory.max").write_text("123456\n")
    assert machine_memory(tmp_path) == 123456
    assert Warehouse(SQL).stats().memory_limit == bytes_of(None)
    assert Warehouse(SQL, memory_limit="none").stats().memory_limit is None
    assert format_bytes(-5_000) == "-5.0 KB"


def test_a_budget_warns_once_at_each_step() -> None:
    budget = Budget(1000)
    with pytest.warns(MemoryLimitWarning, match="memory_limit"):
        assert budget.widen(850)
    assert not budget.widen(880)
    with pytest.warns(MemoryLimitWarning):
        assert budget.widen(1000)
    assert not budget.widen(1001)
    assert not Budget().widen(1 << 60)


@pytest.mark.filterwarnings("ignore::cumulus.errors.MemoryLimitWarning")
def test_a_view_made_later_has_the_limit_too() -> None:
    wh = Warehouse("CREATE TABLE r (a BIGINT NOT NULL, x BIGINT NOT NULL)", keep="all", memory_limit="1500KB")
    for start in range(0, 20_000, PORTION):
        wh.insert("r", rows(start))
    with pytest.raises(MemoryLimitError):
        wh.execute("CREATE VIEW v AS SELECT a, SUM(x) AS s, COUNT(x) AS n FROM r GROUP BY a")
    assert wh.views == ()
    wh.execute("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM r GROUP BY x")
    assert len(wh.view("v").rows()) == 100
