"""`cumulus recheck`: the views of a run against its sources, and the witnesses of what somebody broke."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from cumulus.cli.main import app
from cumulus.epochs.output.query import manifest_of
from cumulus.errors import InputError, MismatchError, UnknownNameError, UsageError
from support.orders_stream import json_lines

SQL = """
CREATE TABLE c (cid INT PRIMARY KEY, nation VARCHAR NOT NULL);
CREATE TABLE o (oid INT PRIMARY KEY, cid INT REFERENCES c, price DECIMAL(8,2) NOT NULL, weight DOUBLE);
CREATE TABLE log (oid INT, word VARCHAR);
CREATE VIEW revenue AS SELECT nation, SUM(price) AS s, AVG(weight) AS w FROM c, o WHERE c.cid = o.cid GROUP BY nation;
CREATE VIEW words AS SELECT word, COUNT(*) AS n, SUM(10 // oid) AS d FROM log GROUP BY word;
CREATE VIEW lines AS SELECT oid, word FROM log WHERE oid > 2;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three epochs with everything that may happen to a row: updates, orphans, duplicates, late parents, bad values."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views.sql").write_text(SQL)
    customers = [
        [{"cid": 1, "nation": "Peru"}, {"cid": 2, "nation": "Japan"}],
        [{"cid": 1, "nation": "Mali", "op": "u"}, {"cid": 2, "nation": "Oman"}],  # an update, a duplicate key
        [{"cid": 3, "nation": "Peru"}],
    ]
    orders = [
        [{"oid": k, "cid": k % 3 + 1, "price": k, "weight": k / 7} for k in range(12)],  # customer 3 comes late
        [{"oid": 3, "cid": 1, "price": 9, "op": "u"}, {"oid": 4, "op": "d"}, {"oid": 40, "op": "d"}],
        [{"oid": 50, "cid": 9, "price": 1}],  # an orphan that waits
    ]
    log = [
        [{"oid": k, "word": "a"} for k in (1, 2, 2, 3, 3)],
        [{"oid": 0, "word": "b"}, {"oid": 0, "word": "b"}, {"oid": 3, "word": "a", "op": "d"}],  # divided by 0
        [{"oid": 5, "word": None}],
    ]
    for table, epochs in (("c", customers), ("o", orders), ("log", log)):
        for number, rows in enumerate(epochs, 1):
            json_lines(tmp_path / "in" / table / f"{number}.json", rows)
    return tmp_path


def call(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)


def run(options: str = "") -> None:
    told = call(f"run views.sql --from in --out out --host embedded {options}")
    assert told.exit_code == 0, told.output


def change(out: Path, view: str, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Write other rows into the published file of a view."""
    manifest = manifest_of(out)
    (path,) = manifest.files(view)
    pq.write_table(edit(pq.read_table(out / path)), out / path)


def test_a_run_is_what_its_sources_say(folder: Path):
    run()
    told = call("recheck out")
    assert told.exit_code == 0, told.output
    assert told.output.splitlines() == ["epoch 3", "view revenue: 3 rows, equal", "view words: 3 rows, equal",
                                        "view lines: 2 rows, equal"]  # fmt: skip


def test_published_tables_take_the_place_of_sources(folder: Path):
    run("--publish c,o")
    shutil.rmtree(folder / "in")
    told = call("recheck out --tables --view revenue")
    assert told.output.splitlines() == ["epoch 3", "view revenue: 3 rows, equal"]
    with pytest.raises(UsageError, match=r"out: epoch 3 has no rows of log\nRun it with --publish log; or without"):
        call("recheck out --tables")
    with pytest.raises(UsageError, match="--tables reads no sources"):
        call("recheck out --tables --from in")
    manifest = manifest_of("out")
    path = manifest.tables["c"]["buckets"]["0"]["data"][0][0]
    pq.write_table(pq.read_table(folder / "out" / path).slice(1), folder / "out" / path)
    told = call("recheck out --tables --view revenue")
    assert told.exit_code == 1
    assert "differ" in told.output


def test_the_levels_of_cubes_are_checked_by_the_parts_that_were_written(folder: Path):
    cube = "SELECT c.cid, nation, COUNT(*) AS n, AVG(weight) AS w, MAX(oid) AS top, COUNT(DISTINCT price) AS prices"
    with (folder / "views.sql").open("a") as script:
        script.write(f"CREATE CUBE sales KEEP (cid), () AS {cube} FROM c, o WHERE c.cid = o.cid GROUP BY ALL;")
    run()
    told = call("recheck out --json")
    assert told.exit_code == 0, told.output
    checked = {view["name"]: view for view in json.loads(told.output)["views"]}
    assert [checked[name]["rows"] for name in ("sales", "sales by cid", "sales by ()")] == [3, 3, 1]
    manifest = manifest_of(folder / "out")
    for path in manifest.parts["sales by cid"].values():
        pq.write_table(pq.read_table(folder / "out" / path).slice(1), folder / "out" / path)
    told = call("recheck out")
    assert told.exit_code == 1
    assert "view sales by cid: 2 rows, 1 differs" in told.output


def test_words_that_duckdb_takes_as_names_in_quotes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views.sql").write_text("""
        CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP, "left" VARCHAR);
        CREATE VIEW v AS SELECT left(left, 1) AS first, MAX(at) AS at FROM t WHERE at IS NOT NULL GROUP BY ALL;
        CREATE VIEW w AS SELECT id, 'at' AS word, at AS at FROM t /* at */ ORDER BY at;
    """)
    json_lines(tmp_path / "in" / "t" / "1.json", [{"id": k, "at": f"2024-01-0{k}", "left": "abc"} for k in (1, 2)])
    run()
    told = call("recheck out")
    assert told.exit_code == 0, told.output
    assert told.output.splitlines() == ["epoch 1", "view v: 1 row, equal", "view w: 2 rows, equal"]


@pytest.mark.parametrize(
    "options", ["--trigger once", "--files-per-epoch 2", "--keep 1", "--late-epochs 1", "--snapshot-every 2 --epochs 3",
                "--layout one-round --buckets 3"],
)  # fmt: skip
def test_however_the_epochs_were_cut(folder: Path, options: str):
    if "one-round" in options:
        (folder / "views.sql").write_text(SQL.replace("oid INT PRIMARY KEY", "oid INT NOT NULL"))
        for path in (folder / "in" / "o").iterdir():  # without a key there are no updates
            lines = [line for line in path.read_text().splitlines() if '"op"' not in line]
            path.write_text("\n".join(lines) + "\n")
    run(options)
    told = call("recheck out --json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert [view["equal"] for view in found["views"]] == [True, True, True]
    assert bool(found["notes"]) == ("keep" in options)  # earlier epochs are gone


def test_a_changed_file_is_found_with_its_rows(folder: Path):
    run()
    change(Path("out"), "revenue", lambda table: table.slice(1))
    told = call("recheck out")
    assert told.exit_code == 1
    assert "view revenue: 2 rows, 1 differs" in told.output
    assert "  missing: ('" in told.output
    change(
        Path("out"),
        "words",
        lambda table: table.set_column(1, table.schema.field(1), pa.array([7, 1, 2], table.schema.field(1).type)),
    )
    told = call("recheck out --view words --json")
    assert told.exit_code == 1
    (view,) = json.loads(told.output)["views"]
    assert (view["name"], view["by"], view["columns"]) == ("words", "definition", ["word", "n", "d"])
    witness = view["witnesses"][0]
    assert witness["key"] == witness["stored"][:1] == witness["recomputed"][:1]
    assert witness["stored"][1] != witness["recomputed"][1]


def test_the_sources_may_have_moved(folder: Path):
    run()
    (folder / "in").rename(folder / "moved")
    with pytest.raises(InputError, match="no such folder"):
        call("recheck out")
    assert call("recheck out --from moved").exit_code == 0
    (folder / "moved" / "o" / "2.json").unlink()
    with pytest.raises(InputError, match=r"2 files of o up to .2.json. are in, but 1 are there"):
        call("recheck out --from moved")


def test_the_run_may_not_have_noted_its_script(folder: Path):
    run()
    (folder / "out" / "origin.json").unlink()
    with pytest.raises(UsageError, match="does not say which script"):
        call("recheck out")
    assert call("recheck out views.sql --from in").exit_code == 0
    (folder / "other.sql").write_text(SQL.replace("oid > 2", "oid > 3"))
    with pytest.raises(MismatchError, match=r"not made by other\.sql"):
        call("recheck out other.sql --from in")
    with pytest.raises(UnknownNameError):
        call("recheck out views.sql --from in --view nothing")
    with pytest.raises(InputError, match="not an output folder"):
        call("recheck in views.sql --from in")


def test_files_that_came_after_the_last_epoch_do_not_count(folder: Path):
    run("--epochs 2")
    told = call("recheck out")
    assert told.exit_code == 0, told.output
    assert told.output.startswith("epoch 2\n")


@pytest.mark.slow
@pytest.mark.spark
def test_what_spark_wrote_is_checked_as_well(folder: Path):
    told = call("run views.sql --from in --out out")
    assert told.exit_code == 0, told.output
    told = call("recheck out")
    assert told.exit_code == 0, told.output
    assert told.output.startswith("epoch 3\n")
