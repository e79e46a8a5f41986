"""`cumulus explain` as a user calls it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import CumulusError, UnknownNameError, UsageError

SQL = """
CREATE TABLE c (cid INT NOT NULL, nation VARCHAR NOT NULL);
CREATE TABLE o (cid INT NOT NULL, x INT);
CREATE VIEW revenue AS SELECT nation, SUM(x) AS s FROM c, o WHERE c.cid = o.cid GROUP BY nation;
CREATE VIEW orders AS SELECT COUNT(*) AS n FROM o;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views.sql").write_text(SQL)
    for name, text in (("c", "cid,nation\n1,Peru\n2,Peru\n3,Japan\n"), ("o", "cid,x\n1,5\n1,\n2,7\n")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.csv").write_text(text)
    return tmp_path


def told(command: str) -> str:
    found = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_all_views_or_one(folder: Path):
    every = told("explain views.sql")
    assert "view revenue: " in every
    assert "view orders: 1 map, O(1) an event" in every
    assert told("explain views.sql --view orders") == told("explain views.sql orders")
    assert "view revenue" not in told("explain views.sql orders")


def test_counts_come_from_files_and_from_the_command_line(folder: Path):
    text = told("explain views.sql revenue --from in")
    assert "≤ 2 = distinct(c.nation) entries" in text
    assert "≤ 2 = distinct(o.cid) entries" in text
    text = told("explain views.sql revenue --from in --distinct c.nation=1_000 --rows c=500")
    assert "≤ 500 = " in text  # a column has no more values than its table has rows
    assert "at most" in text.splitlines()[0]


def test_json_has_the_content_of_the_text(folder: Path):
    found = json.loads(told("explain views.sql --json --rows c=10 --rows o=100"))
    assert [view["view"] for view in found["views"]] == ["revenue", "orders"]
    revenue = found["views"][0]
    assert revenue["maps"][0]["entries"] == {
        "formula": "rows(c)",
        "at_most": 10,
        "bytes": revenue["maps"][0]["entries"]["bytes"],
    }
    assert "layout" in found


def test_a_difference_is_told_and_given_as_json(folder: Path):
    (folder / "new.sql").write_text(SQL.replace("COUNT(*) AS n", "COUNT(*) AS n, SUM(x) AS s"))
    text = told("explain --diff views.sql new.sql")
    assert "views: 0 added, 0 dropped, 1 changed, 1 kept" in text
    assert "~ orders: its definition" in text
    found = json.loads(told("explain --diff views.sql new.sql --json"))
    assert found["views"]["changed"] == [{"name": "orders", "what": "its definition"}]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("explain views.sql nothing", UnknownNameError),
        ("explain views.sql --rows c=many", UsageError),
        ("explain views.sql --rows x=1", UsageError),
        ("explain views.sql --distinct c.x=1", UsageError),
        ("explain --diff views.sql", UsageError),
        ("explain views.sql revenue --view orders", UsageError),
        ("explain views.sql --from nowhere", CumulusError),
    ],
)
def test_wrong_calls_are_told(folder: Path, command: str, error: type[CumulusError]):
    with pytest.raises(error):
        CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
