"""Runs over all kinds of sources in one kind of session, in a process of its own.

`python spark_sessions.py SESSION IN OUT SOURCE…`: SESSION is local, plain or connect.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from cumulus.compiler import compile_sql
from cumulus.m3 import parse
from cumulus.spark import Frame, local_session, maintain
from cumulus.spark.java import find_java
from support.orders_stream import PROGRAM, TABLES

NUMBERS = """
CREATE TABLE r (timestamp TIMESTAMP, value BIGINT);
CREATE VIEW v AS SELECT value % 3 AS k, COUNT(*) AS n, SUM(value) AS s FROM r GROUP BY value % 3;
"""


class Numbers(DataSource):
    """A stream of Python's own: five numbers a batch, three batches."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value bigint"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        class Reader(SimpleDataSourceStreamReader):
            def initialOffset(self) -> dict[str, int]:  # noqa: N802
                return {"at": 0}

            def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
                end = {"at": min(start["at"] + 5, 15)}
                return self.readBetweenOffsets(start, end), end

            def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:  # noqa: N802
                return iter([(number,) for number in range(start["at"], end["at"])])

        return Reader()


def session(kind: str) -> SparkSession:
    if kind == "local":
        return local_session(cores=2, memory="1g")
    os.environ["JAVA_HOME"] = find_java().home
    os.environ["SPARK_TESTING"] = "1"  # a server of its own then listens at any free port, and not at 15002
    builder = SparkSession.builder
    return (builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")).getOrCreate()


def rate(spark: SparkSession) -> Any:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2)
    return {"r": stream.option("startTimestamp", "0").load()}


def python(spark: SparkSession) -> Any:
    spark.dataSource.register(Numbers)
    frame = spark.readStream.format("numbers").load()
    return {"r": frame.selectExpr("timestamp_seconds(value) AS timestamp", "value")}


def parquet(spark: SparkSession, folder: Path) -> dict[str, Frame]:
    found = {}
    for table in TABLES:
        schema = spark.read.parquet(str(folder / table)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / table))
        found[table] = Frame(table, stream)
    return found


def static(spark: SparkSession, folder: Path) -> dict[str, Frame]:
    return {name: Frame(name, spark.read.parquet(str(folder / name))) for name in TABLES}


def main(kind: str, given: str, out: str, *sources: str) -> None:
    """Run each source; tell each epoch."""
    spark, folder = session(kind), Path(given)
    for source in sources:
        settings: dict[str, Any] = {"layout": "one-round", "buckets": 2}
        if source in ("rate", "python"):
            program = compile_sql(NUMBERS, rely=False)
            made = rate(spark) if source == "rate" else python(spark)
            settings |= {"epochs": 3, "trigger": "1s"}
        else:
            program = parse(PROGRAM)
            made = str(folder) if source == "folder" else (parquet if source == "parquet" else static)(spark, folder)
        told: list[Any] = []
        place = Path(out) / source
        run = maintain(spark, program, made, place, on_epoch=told.append, **settings)
        view = run.view("revenue" if source in ("folder", "parquet", "static") else "v")
        rows = sorted(map(str, view.toArrow().to_pylist()))
        print(json.dumps({"source": source, "epochs": [each.number for each in told], "rows": rows}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
