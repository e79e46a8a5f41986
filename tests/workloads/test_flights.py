"""A year of flights: the stream must end at the published data, and be as rough as promised on the way."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cumulus.workloads import changes, checks, flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flights.write(tmp_path_factory.mktemp("flights"))


def same_rows(a: pa.Table, b: pa.Table) -> bool:
    """Compare as bags inside DuckDB: a hundred times faster than `differences` on whole tables."""
    counts = checks.recompute(
        "SELECT (SELECT COUNT(*) FROM (FROM a EXCEPT ALL FROM b)), (SELECT COUNT(*) FROM (FROM b EXCEPT ALL FROM a))",
        {"a": a, "b": b},
    )
    return a.schema.names == b.schema.names and [column[0].as_py() for column in counts.columns] == [0, 0]


def test_the_published_data_is_what_we_say_it_is() -> None:
    data = flights.published()
    assert {name: rows.num_rows for name, rows in data.items()} == {
        "airlines": 16,
        "airports": 1458,
        "planes": 3322,
        "weather": 26115,
        "flights": 336776,
    }
    known = pc.is_in(data["flights"]["tailnum"], value_set=data["planes"]["tailnum"])
    assert round(100 - 100 * pc.sum(known).as_py() / len(known), 1) == 15.6
    assert data["flights"]["tailnum"].null_count == 2512
    strangers = set(data["flights"]["dest"].to_pylist()) - set(data["airports"]["faa"].to_pylist())
    assert strangers == {"BQN", "PSE", "SJU", "STT"}


def test_promised_keys_are_unique_and_promised_parents_are_there() -> None:
    final = flights.final_tables()
    with duckdb.connect() as connection:  # DuckDB enforces PRIMARY KEY, NOT NULL and FOREIGN KEY on load
        for statement in checks.statements(flights.sql()):
            if statement.startswith("CREATE TABLE"):
                connection.execute(statement)
        for name in flights.tables():
            connection.register("rows_of_it", final[name])
            connection.execute(f"INSERT INTO {name} FROM rows_of_it")
        connection.register("rows_of_it", flights.published()["weather"])
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("DELETE FROM weather; INSERT INTO weather FROM rows_of_it")


def test_three_hours_of_weather_come_twice() -> None:
    rows = [event.row for event in flights.quarantined()]
    assert [row[:5] for row in rows] == [(origin, 2013, 11, 3, 1) for origin in ("EWR", "JFK", "LGA")]
    assert not set(rows) & set(zip(*flights.final_tables()["weather"].to_pydict().values(), strict=True))


def test_replaying_the_files_gives_the_published_tables(folder: Path) -> None:
    keys = {name: table.key for name, table in flights.tables().items()}
    epochs = changes.read(folder)
    assert len(epochs) == flights.EPOCHS
    left = changes.replay(epochs, keys)
    final = flights.final_tables()
    assert left.keys() == final.keys()
    for name, rows in final.items():
        assert same_rows(rows, left[name]), name
        assert rows.schema.types == left[name].schema.types


@pytest.mark.slow
def test_replaying_the_events_row_by_row_gives_the_published_tables() -> None:
    tables: dict[str, Counter[tuple[object, ...]]] = {name: Counter() for name in flights.tables()}
    keys = {name: [d.schema.names.index(column) for column in d.key] for name, d in flights.tables().items()}
    taken: dict[str, set[tuple[object, ...]]] = {name: set() for name in keys}
    for epoch in flights.events():
        for sign, name, row in epoch:
            key = tuple(row[position] for position in keys[name])
            assert (key in taken[name]) == (sign < 0), f"{name} {key} is inserted twice, or deleted and not there"
            (taken[name].add if sign > 0 else taken[name].remove)(key)
            tables[name][row] += sign
            if not tables[name][row]:
                del tables[name][row]
    for name, rows in flights.final_tables().items():
        expected = Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert tables[name] == expected, name


def test_every_week_inserts_corrects_and_deletes() -> None:
    for number in range(flights.EPOCHS):
        ops = Counter(flights.weeks().epoch(number)["flights"]["op"].to_pylist())
        assert ops["i"] > 500
        assert ops["u"] > 100
        assert ops["d"] > 0


def test_a_late_flight_is_an_estimate_until_three_days_later() -> None:
    stream = flights.weeks().changes["flights"]
    late = checks.recompute(
        "SELECT * FROM stream WHERE month = 6 AND day = 15 AND carrier = 'MQ' AND flight = 3535 ORDER BY seq",
        {"stream": stream},
    ).to_pylist()
    assert [(row["op"], row["dep_delay"], row["arr_delay"], row["arr_time"]) for row in late] == [
        ("i", 1137, 1135, None),
        ("u", 1137, 1127, 1607),
    ]
    assert [row["epoch"] for row in late] == [165 // 7, 168 // 7]


def test_parents_come_before_their_children() -> None:
    seen: dict[str, set[object]] = {"airlines": set(), "airports": set(), "planes": set()}
    registered = set(flights.published()["planes"]["tailnum"].to_pylist())
    names = flights.tables()["flights"].schema.names
    carrier, origin, tailnum = (names.index(name) for name in ("carrier", "origin", "tailnum"))
    for epoch in flights.events(epochs=3):
        for _, name, row in epoch:
            if name in seen:
                seen[name].add(row[0])
            elif name == "flights":
                assert row[carrier] in seen["airlines"]
                assert row[origin] in seen["airports"]
                assert row[tailnum] in seen["planes"] or row[tailnum] not in registered


def test_the_stream_is_the_same_every_time() -> None:
    before = flights.weeks()
    flights.weeks.cache_clear()
    again = flights.weeks()
    assert again is not before
    assert all(rows.equals(again.changes[name]) for name, rows in before.changes.items())


@pytest.mark.slow
def test_duplicates_are_told_on_request() -> None:
    week = 306 // 7  # 3 November
    told = list(flights.events(epochs=week + 1, duplicates=True))[week]
    keys = Counter(event.row[:5] for event in told if event.relation == "weather")
    taken = [key for key, count in keys.items() if count > 1]
    assert taken == [event.row[:5] for event in flights.quarantined()]
    assert set(flights.quarantined()) <= set(told)


@pytest.mark.parametrize("view", checks.views(flights.sql()))
def test_every_view_says_something(view: str) -> None:
    result = checks.recompute(checks.views(flights.sql())[view], flights.final_tables())
    assert result.num_rows >= 8
    for column in result.columns:  # no column is constant, none is all NULL
        assert column.null_count < len(column)
    measures = [column for column in result.columns if not pa.types.is_string(column.type)]
    assert all(len(column.unique()) > 1 for column in measures)


def test_five_views_join_three_tables() -> None:
    joins = {
        # A table in FROM is followed by its alias and then JOIN, a comma, or the end of the clause.
        name: len(re.findall(r"\bJOIN\b|, \w+ \w+(?=,|\s+WHERE)", select))
        for name, select in checks.views(flights.sql()).items()
    }
    assert {name for name, count in joins.items() if count >= 2} == {
        "weather_delays",
        "manufacturers",
        "routes",
        "late_again",
        "cancelled",
    }
