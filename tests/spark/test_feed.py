"""A streaming DataFrame as rows of a running cluster: each row once, whatever Spark does again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster.live.client import ClusterClient
from cumulus.compiler import compile_sql
from cumulus.epochs.output.query import query
from cumulus.errors import InputError, NotRunningError, UnknownNameError, UsageError
from cumulus.spark import feed, maintain
from support.orders_stream import json_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCRIPT = """
CREATE TABLE sales (k VARCHAR, a BIGINT, d DECIMAL(9,2), at DATE);
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE VIEW by_k AS SELECT k, SUM(a) AS a, SUM(d) AS d, MAX(at) AS at, COUNT(*) AS n FROM sales GROUP BY k;
CREATE VIEW towns AS SELECT town, COUNT(*) AS n FROM people GROUP BY town;
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("fed")
    (folder / "fed.sql").write_text(SCRIPT)
    options = ["--nodes", "2", "--switches", "2", "--trigger", "100ms", "--engine", "interpreter"]
    made = CliRunner().invoke(app, ["cluster", "start", f"{folder}/fed.sql", "--home", f"{folder}/home", *options])
    assert made.exit_code == 0, made.output
    yield folder / "home"
    with suppress(NotRunningError):
        CliRunner().invoke(app, ["cluster", "stop", f"{folder}/home"])


@pytest.fixture
def client(home: Path) -> Iterator[ClusterClient]:
    with cumulus.connect(home) as made:
        yield made


def stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


SALES = "k STRING, a BIGINT, d DECIMAL(9,2), at DATE"


MARKERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "by_k": ("sales", ("marker", 0, 0, None)),
    "towns": ("people", (-1, "marker")),
}
"""View → its table, and a row of it, with whose epoch all that was accepted before is committed."""


def counted(client: ClusterClient, view: str) -> list[tuple[Any, ...]]:
    """Return the rows of a view with all that was accepted so far."""
    table, row = MARKERS[view]
    receipt = client.upsert(table, [row]) if table == "people" else client.insert(table, [row])
    return sorted((tuple(row) for row in client.view(view, after=receipt).rows() if "marker" not in row), key=repr)


def test_a_batch_that_is_done_again_counts_once(
    spark: SparkSession, home: Path, client: ClusterClient, tmp_path: Path
) -> None:
    """Spark forgets that a batch was done, and has another number of tasks for it."""
    values = [{"k": "xyz"[at % 3], "a": at, "d": "0.25", "at": "2026-01-01"} for at in range(300)]
    json_lines(tmp_path / "in" / "1.json", values[:200])
    json_lines(tmp_path / "in" / "2.json", [*values[200:], {"k": "x", "a": -(2**62), "d": None, "at": "9999-12-31"}])
    checkpoint = tmp_path / "checkpoint"

    def run(tasks: int) -> None:
        fed = feed(
            stream(spark, tmp_path / "in", SALES), "SALES", str(home), checkpoint=str(checkpoint), tasks=tasks,
            availableNow=True,
        )  # fmt: skip
        fed.awaitTermination()

    run(3)
    expected = counted(client, "by_k")
    assert [(row[0], row[1], row[4]) for row in expected] == [
        (k, sum(at for at in range(300) if "xyz"[at % 3] == k) - (2**62 if k == "x" else 0), 101 if k == "x" else 100)
        for k in "xyz"
    ]
    for done in sorted((checkpoint / "commits").glob("[0-9]*"))[-1:]:
        done.unlink()
        done.with_name(f".{done.name}.crc").unlink(missing_ok=True)
    run(1)
    assert counted(client, "by_k") == expected
    json_lines(tmp_path / "in" / "3.json", [{"k": "new", "a": 1, "d": "1.00", "at": "2026-01-01"}])
    run(0)
    assert [row for row in counted(client, "by_k") if row[0] == "new"] != []


def test_a_query_with_another_checkpoint_is_another_one(
    spark: SparkSession, home: Path, client: ClusterClient, tmp_path: Path
) -> None:
    json_lines(tmp_path / "in" / "1.json", [{"k": "twice", "a": 1}])
    for at in range(2):
        frame = stream(spark, tmp_path / "in", SALES)
        feed(frame, "sales", str(home), checkpoint=str(tmp_path / f"c{at}"), availableNow=True).awaitTermination()
    assert [row[4] for row in counted(client, "by_k") if row[0] == "twice"] == [2]


def test_operations_are_those_of_files(spark: SparkSession, home: Path, client: ClusterClient, tmp_path: Path) -> None:
    schema = "p INT, town STRING, op STRING"
    json_lines(tmp_path / "in" / "1.json", [{"p": at, "town": "a"} for at in range(5)])
    json_lines(
        tmp_path / "in" / "2.json",
        [{"p": 0, "town": "b", "op": "upsert"}, {"p": 1, "town": "a", "op": "delete"}, {"p": 9, "town": "b"}],
    )
    frame = stream(spark, tmp_path / "in", schema)
    feed(frame, "people", str(home), checkpoint=str(tmp_path / "c"), availableNow=True).awaitTermination()
    assert counted(client, "towns") == [("a", 3), ("b", 2)]


def test_a_row_that_does_not_fit_ends_the_query_and_says_which(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    json_lines(tmp_path / "in" / "1.json", [{"p": None, "town": "nowhere"}])
    frame = stream(spark, tmp_path / "in", "p INT, town STRING")
    fed = feed(frame, "people", str(home), checkpoint=str(tmp_path / "c"), availableNow=True)
    with pytest.raises(StreamingQueryException, match=re.compile(r"people: .*nowhere", re.S)):
        fed.awaitTermination()


def test_what_is_asked_wrongly_is_told(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "1.json", [{"p": 1, "town": "x"}])
    frame = stream(spark, tmp_path / "in", "p INT, town STRING")
    with pytest.raises(UsageError, match="is no stream"):
        feed(spark.createDataFrame([(1,)], "p INT"), "people", str(home), checkpoint=str(tmp_path / "c"))
    with pytest.raises(UnknownNameError, match="nobody"):
        feed(frame, "nobody", str(home), checkpoint=str(tmp_path / "c"))
    with pytest.raises(InputError, match="not the home of a cluster"):
        feed(frame, "people", str(tmp_path / "elsewhere"), checkpoint=str(tmp_path / "c"))


@pytest.mark.slow
def test_the_changes_of_a_view_are_a_source_of_a_run_on_spark(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    """By its name in a mapping, and by a text as of the command."""
    program = compile_sql("CREATE TABLE by_k (k VARCHAR, n BIGINT); CREATE VIEW w AS SELECT SUM(n) AS n FROM by_k;")
    for at, sources in enumerate(({"by_k": f"view:{home}/by_k"}, f"cluster:{home}/BY_K")):
        run = maintain(spark, program, sources, tmp_path / str(at))
        run.wait()
        [row] = query(tmp_path / str(at), "SELECT n FROM w").to_pylist()
        [told] = query(home, "SELECT SUM(n) AS n FROM by_k").to_pylist()
        assert row["n"] == told["n"] > 0
