"""`cumulus run`, `query` and `doctor` as a user calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.errors import MismatchError
from support.command_line import Ended, cumulus
from support.orders_stream import json_lines

SQL = """
CREATE TABLE items (id INT PRIMARY KEY, price DECIMAL(8,2) NOT NULL);
CREATE VIEW totals AS SELECT COUNT(*) AS n, SUM(price) AS s FROM items;
"""
CUMULUS = [sys.executable, "-c", "from cumulus.cli.main import main; main()"]


def in_a_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CUMULUS, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def run_embedded(folders: Path) -> Ended:
    given = ("--from", folders / "in", "--out", folders / "out")
    return cumulus("run", folders / "views.sql", *given, "--host", "embedded")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    (tmp_path / "views.sql").write_text(SQL)
    for epoch in (1, 2):
        rows = [{"id": epoch, "price": epoch}, {"id": None, "price": 1}]
        json_lines(tmp_path / "in" / "items" / f"{epoch}.json", rows)
    return tmp_path


def test_run_and_query_embedded(folders: Path) -> None:
    told = run_embedded(folders)
    assert told.returncode == 0, told.stderr
    assert [line.split(":")[0] for line in told.stdout.splitlines()[:2]] == ["epoch 1", "epoch 2"]
    assert "1 quarantined" in told.stdout
    found = cumulus("query", folders / "out", "FROM totals", "--json")
    assert json.loads(found.stdout) == {"n": 2, "s": "3.00"}
    found = cumulus("query", folders / "out", "SELECT n FROM totals", "--epoch", "1", "--json")
    assert json.loads(found.stdout) == {"n": 1}
    wide = ", ".join(f"{10**30 + place} AS number_{place}" for place in range(9))
    found = cumulus("query", folders / "out", f"SELECT {wide} FROM totals")
    assert found.stdout.splitlines()[-1].replace("│", "").split() == [str(10**30 + place) for place in range(9)]
    assert "nothing new" in run_embedded(folders).stdout


@pytest.mark.slow
@pytest.mark.spark
def test_run_on_spark_tells_json_and_nothing_else(folders: Path) -> None:
    told = in_a_process("run", folders / "views.sql", "--from", folders / "in", "--out", folders / "out", "--json")
    assert told.returncode == 0, told.stderr
    epochs = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(each["number"], each["totals"]["events"], each["files_left"]) for each in epochs] == [(1, 2, 1), (2, 4, 0)]
    assert "using Java" in told.stderr
    found = cumulus("query", folders / "out", "FROM totals", "--json")
    assert json.loads(found.stdout) == {"n": 2, "s": "3.00"}


def test_errors_are_one_paragraph_with_a_way_out(folders: Path) -> None:
    told = cumulus("run", folders / "views.sql", "--from", folders / "nowhere", "--out", folders / "out")
    assert told.returncode == 1
    assert told.stderr.startswith("error: ")
    assert "there is no such folder" in told.stderr
    assert "Traceback" not in told.stderr
    told = cumulus("run", folders / "views.sql", "--from", folders / "in", "--out", folders / "out", "--host", "moon")
    assert told.returncode == 2


def test_buckets_are_for_a_layout_that_has_some(folders: Path) -> None:
    given = ("run", folders / "views.sql", "--from", folders / "in", "--out", folders / "out", "--host", "embedded")
    told = cumulus(*given, "--buckets", "3", "--layout", "one-bucket")
    assert told.returncode == 2
    assert "--buckets 3 with --layout one-bucket" in told.stderr
    assert not (folders / "out").exists()
    told = cumulus(*given[:-3], folders / "other", *given[-2:], "--buckets", "3")
    assert told.stdout.startswith("layout: 3 buckets, items by id; the heaviest has ")
    told = cumulus(*given, "--layout", "one-round", "--epochs", "1")  # a bucket for each core
    assert told.stdout.startswith(f"layout: {os.cpu_count()} buckets, items by id")
    told = cumulus(*given, "--layout", "one-round")
    assert told.stdout.startswith(f"layout, as the checkpoint has it: {os.cpu_count()} buckets, items by id")
    assert json.loads(cumulus("query", folders / "out", "FROM totals", "--json").stdout) == {"n": 2, "s": "3.00"}


def test_a_script_may_begin_with_a_byte_order_mark(folders: Path) -> None:
    (folders / "views.sql").write_text(SQL, encoding="utf-8-sig")
    assert run_embedded(folders).returncode == 0
    for options in ((), (folders / "views.sql",)):
        told = cumulus("recheck", folders / "out", *options)
        assert told.stdout.splitlines()[-1] == "view totals: 1 row, equal", told.stderr
    assert "items (id INTEGER" in cumulus("shell", folders / "views.sql", "-c", ".tables").stdout


def test_ctrl_c_ends_after_the_running_epoch(folders: Path) -> None:
    given = ["run", str(folders / "views.sql"), "--from", str(folders / "in"), "--out", str(folders / "out")]
    run = subprocess.Popen(
        [*CUMULUS, *given, "--host", "embedded", "--trigger", "100ms"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    deadline = time.monotonic() + 60
    while not (folders / "out" / "epochs" / "2.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    out, problems = run.communicate(timeout=30)
    assert run.returncode == 0, problems
    assert "2 epochs in" in out


def test_doctor_finds_what_is_here() -> None:
    told = cumulus("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(told.stdout)["findings"]}
    assert found["duckdb"]["good"]
    assert told.returncode == (0 if all(finding["good"] for finding in found.values()) else 1)


def test_a_run_goes_on_with_the_program_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cumulus.cli import programs
    from cumulus.cli.main import app

    (tmp_path / "views.sql").write_text("""
        CREATE TABLE shops (id INT PRIMARY KEY, town VARCHAR);
        CREATE TABLE items (id INT PRIMARY KEY, shop INT REFERENCES shops);
        CREATE VIEW towns AS SELECT town, COUNT(*) AS n FROM shops JOIN items ON shop = shops.id GROUP BY town;
    """)
    arguments = ["run", tmp_path / "views.sql", "--from", tmp_path / "in", "--out", tmp_path / "out"]

    def run_with(enforced: bool) -> None:
        compiled = partial(program_in, enforced=enforced)
        monkeypatch.setattr(programs, "program_in", compiled)
        told = CliRunner().invoke(app, [*map(str, arguments), "--host", "embedded"], catch_exceptions=False)
        assert told.exit_code == 0, told.output

    program_in = programs.program_in
    json_lines(tmp_path / "in" / "shops" / "1.json", [{"id": 1, "town": "a"}])
    json_lines(tmp_path / "in" / "items" / "1.json", [{"id": 1, "shop": 1}])
    run_with(enforced=False)
    json_lines(tmp_path / "in" / "items" / "2.json", [{"id": 2, "shop": 1}])
    run_with(enforced=True)
    found = cumulus("query", tmp_path / "out", "FROM towns", "--json")
    assert json.loads(found.stdout) == {"town": "a", "n": 2}
    with (tmp_path / "views.sql").open("a") as script:
        script.write("CREATE VIEW every AS SELECT COUNT(*) AS n FROM items;")
    with pytest.raises(MismatchError, match="the program has changed since this checkpoint was made"):
        run_with(enforced=True)


def test_another_layout_goes_on_as_the_checkpoint_began(tmp_path: Path) -> None:
    """Its program counts on references that nobody would check in the layout that is asked for now."""
    (tmp_path / "views.sql").write_text("""
        CREATE TABLE shops (id INT PRIMARY KEY, town VARCHAR);
        CREATE TABLE items (id INT PRIMARY KEY, shop INT REFERENCES shops);
        CREATE VIEW towns AS SELECT town, COUNT(*) AS n FROM shops JOIN items ON shop = shops.id GROUP BY town;
    """)
    given = ["run", tmp_path / "views.sql", "--from", tmp_path / "in", "--host", "embedded", "--out"]
    json_lines(tmp_path / "in" / "shops" / "1.json", [{"id": 1, "town": "a"}])
    json_lines(tmp_path / "in" / "items" / "1.json", [{"id": 1, "shop": 1}])
    assert cumulus(*given, tmp_path / "out").returncode == 0
    json_lines(tmp_path / "in" / "items" / "2.json", [{"id": 2, "shop": 1}])
    told = cumulus(*given, tmp_path / "out", "--layout", "one-round:items=id")
    assert told.returncode == 0, told.stderr
    found = cumulus("query", tmp_path / "out", "FROM towns", "--json")
    assert json.loads(found.stdout) == {"town": "a", "n": 2}
    assert cumulus("recheck", tmp_path / "out").returncode == 0
