"""Functions of the user's travel to Spark's workers with the module that they stand in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cumulus
from cumulus.epochs.output.query import query
from cumulus.errors import MissingFunctionError
from cumulus.spark import maintain
from support.orders_stream import json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

MODULE = """
import cumulus

FACTOR = 2

def scaled(x):
    return x * FACTOR

@cumulus.function
def twice(x: float) -> float:
    return scaled(x)
"""
SQL = (
    "CREATE TABLE items (id INT PRIMARY KEY, price DOUBLE NOT NULL);"
    "CREATE VIEW totals AS SELECT COUNT(*) AS n, SUM(twice(price)) AS s, twice(SUM(price)) AS t FROM items;"
)


@pytest.mark.slow
def test_workers_get_functions_of_a_file_that_they_cannot_import(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text(MODULE)
    spec = importlib.util.spec_from_file_location("only_here", tmp_path / "only_here.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["only_here"] = module
    try:
        spec.loader.exec_module(module)
        json_lines(tmp_path / "in" / "items" / "1.json", [{"id": id, "price": id / 4} for id in range(8)])
        program = cumulus.compile(SQL, rely=False, functions=[module.twice])
        with pytest.raises(MissingFunctionError, match="twice"):
            maintain(spark, program, tmp_path / "in", tmp_path / "none")
        assert not (tmp_path / "none").exists()
        maintain(spark, program, tmp_path / "in", tmp_path / "out", buckets=2, functions=[module.twice])
    finally:
        del sys.modules["only_here"]
    assert query(tmp_path / "out", "FROM totals").to_pylist() == [{"n": 8, "s": 14.0, "t": 14.0}]
