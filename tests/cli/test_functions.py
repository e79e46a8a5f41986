"""`--functions`: functions of the user's on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Ended
from support.command_line import cumulus as call
from support.orders_stream import json_lines

SQL = """
CREATE TABLE items (id INT PRIMARY KEY, price DOUBLE NOT NULL);
CREATE VIEW totals AS SELECT COUNT(*) AS n, SUM(twice(price)) AS s FROM items;
"""
MODULE = "import cumulus\n\n@cumulus.function\ndef twice(x: float) -> float:\n    return x * 2\n"


def cumulus(folder: Path, *arguments: str) -> Ended:
    return call(*arguments, folder=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "views.sql").write_text(SQL)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    json_lines(tmp_path / "in" / "items" / "1.json", [{"id": 1, "price": 2.5}, {"id": 2, "price": 0.5}])
    return tmp_path


@pytest.mark.slow
def test_a_file_or_a_module_gives_the_functions(folder: Path) -> None:
    told = cumulus(folder, "compile", "views.sql", "--functions", "mine")
    assert (told.returncode, told.stderr) == (0, "")
    assert "FUNCTION twice(DOUBLE) DOUBLE;" in told.stdout
    (folder / "views.m3").write_text(told.stdout)
    told = cumulus(folder, "explain", "views.sql", "totals", "--functions", "mine.py")
    assert told.returncode == 0, told.stderr
    for source in ("views.sql", "views.m3"):
        out = f"out-{source}"
        given = ("--from", "in", "--out", out, "--host", "embedded")
        told = cumulus(folder, "run", source, *given)
        assert told.returncode in (1, 2)
        assert "twice" in told.stderr
        assert "--functions" in told.stderr
        told = cumulus(folder, "run", source, *given, "--functions", "mine.py")
        assert told.returncode == 0, told.stderr
        told = cumulus(folder, "query", out, "SELECT n, twice(s) AS s FROM totals", "--functions", "mine.py", "--json")
        assert json.loads(told.stdout) == {"n": 2, "s": 12.0}


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("absent.py", "cannot load the functions of absent.py"),
        ("no.such.module", "cannot load the functions of no.such.module"),
        ("broken.py", "ZeroDivisionError"),
        ("nothing.py", "nothing.py declares no functions"),
    ],
)
def test_what_gives_no_functions_is_an_error_with_a_way_out(folder: Path, place: str, told: str) -> None:
    found = cumulus(folder, "compile", "views.sql", "--functions", place)
    assert found.returncode == 1
    assert told in found.stderr
    assert "Traceback" not in found.stderr
