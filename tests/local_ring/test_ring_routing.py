"""A query of a run's output: by its views, its published tables or a ring, each epoch says what DuckDB says."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.cli.output_queries import OutputQuery, RingChoice, answer
from cumulus.compiler.pipeline import compile_sql
from cumulus.durable.store import store_of
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import manifest_of
from cumulus.epochs.sources import sources_from
from cumulus.errors import EpochMissingError, UsageError
from support.answered_queries import EQUAL, NOT_ANSWERED, ROLLED_UP, SCRIPT
from support.oracle import same_bag
from support.ring_epochs import wait_for_epoch
from support.running_ring import running_ring

UNLIKE = ("random", "now", "age(", "current_date", "first", "LIMIT", "$1", ";", "QUALIFY", "DISTINCT ON")
"""What is another thing each time, or no single SELECT."""
BANK = [
    sql
    for sql, *_ in (*EQUAL, *ROLLED_UP, *NOT_ANSWERED)
    if sql[:6] in ("SELECT", "WITH x") and not any(word in sql for word in UNLIKE)
]
TABLES = """
CREATE TABLE o (id BIGINT, c VARCHAR, n INTEGER, big BIGINT, price DECIMAL(38,2), d DOUBLE, day DATE);
CREATE TABLE r (c VARCHAR, region VARCHAR, "a ""b" INTEGER);
"""


class Input:
    """Files of two tables, and the rows that they come to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[dict[str, Any]]] = {"o": [], "r": []}
        self._rng = random.Random(7)
        self._number = 0

    def write(self) -> None:
        """Let a file of each table come."""
        self._number += 1
        for name, rows in self.rows.items():
            told = []
            for _ in range(min(len(rows), 6)):
                told.append({"op": "d", **rows.pop(self._rng.randrange(len(rows)))})
            for _ in range(25):
                rows.append(self._row(name))
                told.append({"op": "i", **rows[-1]})
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            path = self.folder / name / f"{self._number:03}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in told))

    def _row(self, name: str) -> dict[str, Any]:
        draw = self._rng
        town = draw.choice(["a", "b", "", None, "c"])
        if name == "r":
            return {"c": town, "region": draw.choice(["west", "east", None]), 'a "b': draw.choice([None, 1, -3, 2**30])}
        return {
            "id": draw.randrange(9),
            "c": town,
            "n": draw.choice([None, 1, 2, 7, -4, -6]),
            "big": draw.choice([None, 1, -5, 2**50]),
            "price": draw.choice([None, "7.00", "1.50", "-2.25", "9" * 30 + ".99"]),
            "d": draw.choice([None, 0.0, 1.5, 2.5, 1e15]),
            "day": draw.choice([None, "2024-01-01", "9999-12-31"]),
        }

    def oracle(self) -> duckdb.DuckDBPyConnection:
        """Return DuckDB over the rows."""
        connection = duckdb.connect()
        connection.execute(TABLES)
        for name, rows in self.rows.items():
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", [list(row.values()) for row in rows])
        return connection


@pytest.mark.slow
def test_all_ways_lead_to_the_same_rows(tmp_path: Path) -> None:
    given, out = Input(tmp_path / "in"), tmp_path / "out"
    given.write()
    program = compile_sql(SCRIPT, rely=False)
    sources = sources_from([str(given.folder)], program)
    engine = partial(make_engine, "auto")
    ways: dict[str, int] = {}
    with EmbeddedRun(program, sources, out, make_engine=engine, publish=("all",)) as run:
        run.step()
        with running_ring(out, tmp_path / "home", nodes=2) as ring:
            for epoch in (1, 2, 3):
                wait_for_epoch(ring, epoch)
                with given.oracle() as connection:
                    for sql in BANK:
                        check(connection, out, str(tmp_path / "home"), epoch, sql, ways)
                given.write()
                run.step()
            refused(out, tmp_path)
    assert ways["view"] >= 3 * 40
    assert ways["tables"] >= 3 * 35
    assert ways["ring"] >= 3 * 70


def check(
    connection: duckdb.DuckDBPyConnection, out: Path, home: str, epoch: int, sql: str, ways: dict[str, int]
) -> None:
    try:
        wanted = connection.execute(sql).fetchall()
    except duckdb.Error:
        return  # it is no query over the tables
    for has_views in (True, False):
        for ring in (None, RingChoice(home, None, 0)):
            told: list[str] = []
            asked = OutputQuery(sql, None, None, has_views=has_views, ring=ring)
            found = [
                tuple(row.values())
                for row in rows_of(answer(store_of(out), manifest_of(out, epoch), asked, told.append))
            ]
            assert same_bag(found, wanted), (epoch, sql, told, found, wanted)
            way = "view" if any(" answers: " in each for each in told) else "tables"
            ways[way] = ways.get(way, 0) + (ring is None and has_views)
            ways["ring"] = ways.get("ring", 0) + any("asked of the ring" in each for each in told)


def rows_of(table: Any) -> list[dict[str, Any]]:
    names = [f"{at}" for at in range(table.num_columns)]
    rows: list[dict[str, Any]] = table.rename_columns(names).to_pylist()
    return rows


def refused(out: Path, folder: Path) -> None:
    home = str(folder / "home")
    ask = ["query", str(out), "SELECT COUNT(*) AS n FROM r", "--json", "--no-views", "--explain", "--ring", home]
    small = CliRunner().invoke(app, ask)
    assert "bytes, and --ring-above is 100,000,000" in " ".join(small.stderr.split())
    large = CliRunner().invoke(app, [*ask, "--ring-above", "1"])
    assert "asked of the ring" in large.stderr
    assert json.loads(large.stdout) == json.loads(small.stdout)
    store = store_of(out)
    measured = OutputQuery("SELECT COUNT(*) AS n FROM quarantine", None, None, ring=RingChoice(home, None, 0))
    told: list[str] = []
    answer(store, manifest_of(out, 3), measured, told.append)
    assert told == ["read in this process: it reads quarantine, which a ring does not have"]
    other = folder / "other"
    with EmbeddedRun(
        compile_sql(SCRIPT, rely=False),
        sources_from([str(folder / "in")], compile_sql(SCRIPT, rely=False)),
        other,
        make_engine=partial(make_engine, "auto"),
        publish=("all",),
    ) as run:
        [*run.steps()]
    asked = OutputQuery("SELECT COUNT(*) AS n FROM r", None, None, ring=RingChoice(home, None, 0), has_views=False)
    with pytest.raises(UsageError, match="it is over something else than this output"):
        answer(store_of(other), manifest_of(other, 3), asked, told.append)
    with running_ring(out, folder / "late", nodes=1), pytest.raises(EpochMissingError, match="the ring has no epoch 1"):
        answer(
            store,
            manifest_of(out, 1),
            OutputQuery(asked.sql, None, None, False, RingChoice(str(folder / "late"), None, 0)),
            print,
        )
    for place in (str(out), "127.0.0.1:9"):
        with pytest.raises(Exception, match=r"(?s).") as problem:
            answer(
                store, manifest_of(out, 1), OutputQuery(asked.sql, None, None, False, RingChoice(place, None, 0)), print
            )
        assert type(problem.value).__module__ == "cumulus.errors"
    for size in ("much", "50%", "-1", "none", ""):
        wrong = CliRunner().invoke(app, [*ask, "--ring-above", size])
        assert f"--ring-above {size!r} is no size" in str(wrong.exception)
