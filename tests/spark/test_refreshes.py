"""`cumulus bench spark --queries`: a program with enforced keys and one without, in one bucket and in two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_every_epoch_of_every_program_is_what_duckdb_says(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["--queries", "q5,q7,q8,q9", "--sf", "0.01", "--epochs", "5", "--cache", str(tmp_path), "--json"]
    told = CliRunner().invoke(app, ["bench", "spark", *arguments], catch_exceptions=False)
    assert told.exit_code == 0
    *rows, last = map(json.loads, told.stdout.splitlines())
    assert [(row["keys"], row["buckets"]) for row in rows] == [("foreign", 1), ("foreign", 2), ("none", 1), ("none", 2)]
    for row in rows:
        assert row["compared"] == 4 * row["epochs"] >= 20
        assert (row["different"], row["quarantined"], row["waiting"], row["view_errors"]) == (0, 0, 0, 0)
        assert row["spread"] == {} or row["buckets"] == 2
        assert min(row["changes_per_s"], row["epoch_changes_per_s"], row["engine_s"]) > 0
    enforced = rows[1]
    assert enforced["spread"] == {"orders": ["o_orderkey"], "lineitem": ["l_orderkey"]}
    assert enforced["enforced"] == 10
    summary = last["summary"]
    assert min(summary[name] for name in ("inserted", "upserted", "deleted")) > 0
