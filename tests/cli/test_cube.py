"""`cumulus cube` as a user calls it: a script with data, a saved warehouse and a run's folder say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus import Cube, Warehouse
from support.command_line import cumulus

SCRIPT = """
CREATE TABLE o (y INT, m INT, region VARCHAR, rev DECIMAL(12,2));
CREATE CUBE sales DIMENSION date (y, m) DIMENSION region KEEP (y) AS
  SELECT y, m, region, COUNT(*) AS orders, AVG(rev) AS mean FROM o GROUP BY ALL;
CREATE VIEW large AS SELECT y, COUNT(*) AS n FROM o GROUP BY y HAVING COUNT(*) > 3;
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cubes")
    (made / "shop.sql").write_text(SCRIPT)
    (made / "data" / "o").mkdir(parents=True)
    for part in range(2):
        rows = [(1994 + part, 1 + number % 3, "AB"[number % 2], number) for number in range(10)]
        names = ["y", "m", "region", "rev"]
        pq.write_table(pa.table(list(zip(*rows, strict=True)), names=names), made / "data" / "o" / f"{part}.parquet")
    assert (
        cumulus("run", "shop.sql", "--from", "data", "--out", "out", "--host", "embedded", folder=made).returncode == 0
    )
    with Warehouse(made / "shop.sql") as warehouse:
        for part in range(2):
            warehouse.insert("o", made / "data" / "o" / f"{part}.parquet")
        warehouse.save(made / "saved")
    return made


def test_every_source_says_the_same(folder: Path) -> None:
    options = ["--by", "date.y,region", "--where", "m=1,2", "--totals", "all", "--having", "orders>1", "--json"]
    told = [
        cumulus("cube", "query", *source, "sales", *options, folder=folder)
        for source in (["shop.sql", "--from", "data"], ["saved"], ["out"])
    ]
    assert [each.stderr for each in told] == ["", "", ""]
    assert told[0].stdout == told[1].stdout == told[2].stdout
    rows = [json.loads(line) for line in told[0].stdout.splitlines()]
    of_b = [number for number in range(10) for _ in range(2) if number % 2 and number % 3 < 2]
    assert rows[-2] == {"y": None, "region": "B", "orders": 8, "mean": sum(of_b) / 8, "grouping": 2}


def test_cubes_are_listed_shown_and_explained(folder: Path) -> None:
    listed = cumulus("cube", "list", "shop.sql", folder=folder)
    assert listed.stdout == "sales: date (y, m), region (region); orders, mean\n"
    shown = cumulus("cube", "show", "out", "sales", folder=folder).stdout
    assert "level (y): map large, 2 entries" in shown
    told = json.loads(cumulus("cube", "explain", "out", "sales", "--by", "y", "--json", folder=folder).stdout)
    assert (told["map"], told["entries_read"], told["rows"], told["at"]) == ("large", 2, 2, 2)
    earlier = cumulus("cube", "query", "out", "sales", "--by", "y", "--at", "1", "--json", folder=folder).stdout
    assert [json.loads(line)["y"] for line in earlier.splitlines()] == [1994]
    (folder / "log.jsonl").write_text('{"cube": "sales", "by": ["region"]}\n')
    advice = cumulus("cube", "advise", "saved", "sales", "--log", "log.jsonl", folder=folder).stdout
    assert advice.endswith("KEEP (region)\n")


def test_selections_of_one_folder_are_equal(folder: Path) -> None:
    one, other = (Cube(folder / "out", "sales").rollup("y") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


def test_the_shell_asks_cubes(folder: Path) -> None:
    told = cumulus(
        "shell", "out", "-c", ".cube", "-c", ".cube sales --by region --top 1:orders", "--json", folder=folder
    ).stdout
    assert told.splitlines()[:2] == ["sales", "large"]
    assert json.loads(told.splitlines()[2])["region"] == "A"


def test_what_cannot_be_asked_is_told_with_a_way_out(folder: Path) -> None:
    for arguments, text in [
        (["out", "sales", "--by", "w"], "Levels: date.y, date.m, region"),
        (["out", "large"], "HAVING leaves groups out"),
        (["out", "sales", "--where", "m"], "--where m"),
        (["out", "sales", "--top", "orders"], "COUNT:MEASURE"),
        (["nothing", "sales"], "there is no folder nothing"),
        (["out", "sales", "--from", "data"], "has its rows already"),
    ]:
        told = cumulus("cube", "query", *arguments, folder=folder)
        assert told.returncode in (1, 2)
        assert text in told.stderr
