"""`cumulus query`: one SELECT, parameters, and cells that are safe to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.epochs.output.query import query
from cumulus.errors import UsageError

SQL = "CREATE TABLE t (k VARCHAR, x INT); CREATE VIEW v AS SELECT k, SUM(x) AS s FROM t GROUP BY k;"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "in").mkdir()
    rows = [{"k": "\x1b[2Jevil", "x": 1}, {"k": "a\nb", "x": 2}, {"k": "東京", "x": 3}]
    (folder / "in" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "v.sql").write_text(SQL)
    options = ["--from", f"t={folder / 'in'}", "--out", str(folder / "out"), "--host", "embedded"]
    result = CliRunner().invoke(app, ["run", str(folder / "v.sql"), *options])
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_cells_are_safe_and_json_is_exact(out: Path) -> None:
    shown = CliRunner().invoke(app, ["query", str(out), "SELECT * FROM v"]).output
    assert "\x1b" not in shown
    assert r"\x1b[2Jevil" in shown
    assert r"a\nb" in shown
    lines = CliRunner().invoke(app, ["query", str(out), "SELECT k FROM v ORDER BY s", "--json"]).output.splitlines()
    assert [json.loads(line)["k"] for line in lines] == ["\x1b[2Jevil", "a\nb", "東京"]


def test_parameters(out: Path) -> None:
    sql = "SELECT s FROM v WHERE k = $k AND s = $s"
    options = ["--param", "k=東京", "--param", "s=3", "--json"]
    assert json.loads(CliRunner().invoke(app, ["query", str(out), sql, *options]).output) == {"s": "3"}
    assert query(out, "SELECT s FROM v WHERE k = ?", parameters=["東京"]).num_rows == 1


@pytest.mark.parametrize("sql", ["COPY v TO '{}'", "SELECT 1; SELECT 2", "DROP VIEW v", "ATTACH '{}'"])
def test_nothing_but_one_select(out: Path, sql: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="query takes one SELECT"):
        query(out, sql.format(tmp_path / "file"))
    assert not (tmp_path / "file").exists()


def test_nan_is_above_all_numbers(tmp_path: Path) -> None:
    """Parquet's bounds leave it out, and readers skip rows by them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"d": 0.0}\n{"d": "NaN"}\n')
    (tmp_path / "v.sql").write_text(
        "CREATE TABLE t (d DOUBLE); CREATE VIEW v AS SELECT d, COUNT(*) n FROM t GROUP BY d"
    )
    options = ["--from", f"t={tmp_path / 'in'}", "--out", str(tmp_path / "out"), "--host", "embedded"]
    result = CliRunner().invoke(app, ["run", str(tmp_path / "v.sql"), *options])
    assert result.exit_code == 0, result.output
    found = query(tmp_path / "out", "SELECT isnan(MAX(d)) AS top, COUNT(*) FILTER (d > 2) AS n FROM v").to_pylist()
    assert found == [{"top": True, "n": 1}]
    assert query(tmp_path / "out", "SELECT n FROM v WHERE d > 2").num_rows == 1


def test_an_address_of_no_known_kind_is_no_output() -> None:
    with pytest.raises(UsageError, match=r"^hdfs://host/x: there is no store of the kind hdfs"):
        query(Path("hdfs://host/x"), "SELECT 1")


def test_views_answer_queries_over_base_tables(out: Path) -> None:
    def run(*options: str) -> Any:
        return CliRunner().invoke(app, ["query", str(out), *options])

    told = run("SELECT SUM(x) AS s FROM t", "--json", "--explain")
    assert "v answers: its groups are put together" in told.stderr
    assert json.loads(told.stdout) == {"s": "6"}
    assert run("SELECT k, SUM(x) FROM t GROUP BY k HAVING SUM(x) > 2", "--csv").stdout.splitlines()[1:] == ['"東京",3']
    refused = run("SELECT MAX(x) FROM t")
    assert refused.exit_code != 0
    assert "v has no column that gives max(t.x)" in str(refused.exception)
    forced = run("SELECT SUM(x) AS s FROM t", "--no-views")
    assert forced.exit_code != 0
    assert "No view answers" not in str(forced.exception)
    assert "Views here: v" in str(forced.exception)
