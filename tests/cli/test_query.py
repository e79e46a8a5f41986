"""`cumulus query` asks whatever keeps views: the folder of a run, a saved warehouse, a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.errors import CumulusError, HistoryError, InputError, UsageError
from support.http_server import running

SCRIPT = """
CREATE TABLE sales (id INT PRIMARY KEY, country VARCHAR, amount DECIMAL(9,2));
CREATE VIEW totals AS SELECT country, SUM(amount) AS total FROM sales GROUP BY country;
"""
SQL = "SELECT country, total FROM totals WHERE total > $least ORDER BY country"


def asked(*arguments: object) -> list[dict[str, object]]:
    """Return the rows that the command prints as JSON."""
    result = CliRunner().invoke(app, ["query", *map(str, arguments), "--json"])
    if isinstance(result.exception, CumulusError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_saved_warehouse_and_a_server_are_asked_alike(tmp_path: Path) -> None:
    rows = [(1, "France", 5), (2, None, 7), (3, "Spain", "0.50")]
    wanted = [{"country": "France", "total": "5.00"}, {"country": None, "total": "7.00"}]
    with cumulus.Warehouse(SCRIPT) as warehouse:
        warehouse.insert("sales", rows)
        warehouse.save(tmp_path / "saved")
    assert asked(tmp_path / "saved", SQL, "--param", "least=1") == wanted
    with pytest.raises(HistoryError, match="at=7"):
        asked(tmp_path / "saved", "SELECT 1", "--epoch", 7)
    with pytest.raises(UsageError, match="one SELECT"):
        asked(tmp_path / "saved", "DROP VIEW totals")
    for option in (["--explain"], ["--no-views"], ["--ring", "h:1"]):
        with pytest.raises(UsageError, match="--explain, --no-views and --ring are for the output folder of a run"):
            asked(tmp_path / "saved", SQL, "--param", "least=1", *option)
    with running(tmp_path, SCRIPT) as server:
        server.client().insert("sales", rows)
        assert asked(server.address, SQL, "--param", "least=1") == wanted
        with pytest.raises(UsageError, match="one SELECT"):
            asked(server.address, "DROP VIEW totals")


def test_what_is_no_host_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="not an output folder"):
            asked(place, "SELECT 1")
