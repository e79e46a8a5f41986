"""`cumulus shell` as a user calls it: from a pipe, from -c, and at a prompt on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.cli.shell.prompt import WordCompleter
from cumulus.cli.shell.targets import open_target
from cumulus.cli.terminal.tables import print_rows
from cumulus.errors import CumulusError

SQL = """
CREATE TABLE customers (cid INTEGER PRIMARY KEY, nation VARCHAR NOT NULL);
CREATE TABLE orders (oid INTEGER PRIMARY KEY, cid INTEGER NOT NULL, price DECIMAL(10,2) NOT NULL);
CREATE VIEW revenue AS SELECT nation, COUNT(*) AS n, SUM(price) AS total
  FROM customers c JOIN orders o ON c.cid = o.cid GROUP BY nation;
"""
ROWS = """
INSERT INTO customers VALUES (1, 'France'), (2, 'Kenya;');  -- a semicolon in a text
INSERT INTO orders SELECT cid * 10, cid, cid + 0.5 FROM customers;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "views.sql"
    path.write_text(SQL)
    return path


def ask(*arguments: object, given: str = "") -> str:
    told = CliRunner().invoke(app, ["shell", *map(str, arguments)], input=given, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.output


def rows_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_rows_go_in_and_out_and_views_follow(script: Path) -> None:
    told = ask(script, "--json", given=ROWS + "FROM revenue ORDER BY nation;")
    assert rows_of(told) == [
        {"nation": "France", "n": 1, "total": "1.50"},
        {"nation": "Kenya;", "n": 1, "total": "2.50"},
    ]
    change = "UPDATE orders SET price = price + 1 WHERE cid = 1; DELETE FROM customers WHERE nation LIKE 'Ken%';"
    told = ask(script, "--json", given=f"{ROWS}{change} FROM revenue; SELECT COUNT(*) AS n FROM orders")
    assert "1 rows out, 1 rows in" in told
    assert "1 rows out, 0 rows in" in told
    assert rows_of(told) == [{"nation": "France", "n": 1, "total": "2.50"}, {"n": 2}]


def test_an_insertion_in_place_of_a_row_is_one_transaction(script: Path) -> None:
    replace = "INSERT OR REPLACE INTO orders VALUES (10, 1, 7);"
    told = ask(script, "-c", ROWS, "-c", ".watch revenue", "-c", replace)
    assert "revenue − ('France', 1, Decimal('1.50'))" in told
    assert "revenue + ('France', 1, Decimal('7.00'))" in told


def test_what_a_change_returns_is_shown(script: Path) -> None:
    given = ROWS + (
        "INSERT INTO orders VALUES (90, 1, 5), (91, 1, 6) RETURNING oid, price * 2 AS twice;"
        "UPDATE orders SET price = 7 WHERE oid = 91 returning price;"
        'DELETE FROM orders WHERE oid >= 90 RETURNING oid AS "Count";'
        "DELETE FROM orders WHERE oid = 1000 RETURNING *;"
        "FROM revenue WHERE nation = 'France';"
    )
    *first, one, other, last = rows_of(ask(script, "--json", given=given))
    assert first == [{"oid": 90, "twice": "10.00"}, {"oid": 91, "twice": "12.00"}, {"price": "7.00"}]
    assert sorted((one["Count"], other["Count"])) == [90, 91]  # in the order of a map
    assert last == {"nation": "France", "n": 1, "total": "1.50"}


def test_the_word_alone_returns_nothing(script: Path) -> None:
    told = ask(script, given="INSERT INTO customers VALUES (7, 'returning');FROM customers;")
    assert "0 rows out, 1 rows in" in told
    assert told.count("returning") == 1


def test_what_is_refused_returns_nothing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CumulusError, match="uplicate"):
        ask(script, "--json", given=ROWS + "INSERT INTO orders VALUES (10, 1, 5) RETURNING oid;")
    assert "oid" not in capsys.readouterr().out


def test_parameters(script: Path) -> None:
    told = ask(script, "--json", given=f"{ROWS}.set who 'France'\nSELECT total FROM revenue WHERE nation = $who;")
    assert rows_of(told) == [{"total": "1.50"}]


def test_words_with_a_dot(script: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.sql").write_text(ROWS)
    told = ask(script, given=f".read {tmp_path / 'rows.sql'}\n.tables\n.views\n.explain Revenue\n.m3\n.stats\n.help\n")
    for words in (
        "customers (cid INTEGER NOT NULL",
        "revenue (nation VARCHAR",
        "view revenue:",
        "ON +orders",
        ".watch VIEW",
    ):
        assert words in told, words
    ask(script, given=f"{ROWS}.save {tmp_path / 'saved'}\n")
    assert rows_of(ask(tmp_path / "saved", "--json", "-c", "SELECT SUM(n)::INT AS n FROM revenue")) == [{"n": 2}]


def test_from_nothing_to_a_view() -> None:
    declared = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2);"
    told = ask("--json", given=f"{declared} CREATE VIEW v AS SELECT SUM(a) AS s FROM t; FROM v;")
    assert rows_of(told) == [{"s": "3"}]


def test_the_output_of_a_run(script: Path, tmp_path: Path) -> None:
    for table, line in (
        ("customers", '{"cid": 1, "nation": "France"}'),
        ("orders", '{"oid": 1, "cid": 1, "price": 2}'),
    ):
        (tmp_path / "in" / table).mkdir(parents=True)
        (tmp_path / "in" / table / "1.json").write_text(line)
    run = ["run", str(script), "--from", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--host", "embedded"]
    assert CliRunner().invoke(app, run, catch_exceptions=False).exit_code == 0
    told = ask(tmp_path / "out", "--json", given=".views\n.explain revenue\n.stats\nFROM revenue;")
    assert "view revenue:" in told
    assert rows_of(told) == [{"nation": "France", "n": 1, "total": "2.00"}]
    with pytest.raises(CumulusError, match="can be read, not changed"):
        ask(tmp_path / "out", "-c", "INSERT INTO orders VALUES (1, 1, 1)")


def test_a_view_with_an_odd_name_in_the_output_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "odd.sql").write_text('CREATE TABLE r (a INT); CREATE VIEW "a ""b" AS SELECT COUNT(*) AS n FROM r')
    (tmp_path / "r.csv").write_text("a\n1\n")
    run = ["run", str(tmp_path / "odd.sql"), "--from", f"r={tmp_path / 'r.csv'}", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*run, "--host", "embedded"], catch_exceptions=False).exit_code == 0
    assert 'a "b (n int64)' in ask(tmp_path / "out", given=".views\n")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("INSERT INTO nothing VALUES (1)", "there is no table nothing"),
        ("INSERT INTO orders VALUES (1)", "3 columns but 1 values"),
        ("INSERT INTO orders VALUES (1, 1, 1), (1, 2, 2)", "uplicate"),
        ("FLY TO orders", "FLY begins no statement"),
        (".fly", "there is no .fly"),
        (".explain nothing", "there is no view nothing"),
        (".set", ""),
        ("", ""),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_done(script: Path, given: str, words: str) -> None:
    told = CliRunner().invoke(app, ["shell", str(script), "-c", given])
    assert words in str(told.exception or "")
    assert isinstance(told.exception, CumulusError | None)


def test_names_complete(script: Path) -> None:
    names = WordCompleter(open_target(script))

    def completed(text: str) -> list[str]:
        return [each.text for each in names.get_completions(Document(text), CompleteEvent())]

    assert completed("SELECT nat") == ["nation"]
    assert completed("FROM rev") == ["revenue"]
    assert completed(".exp") == [".explain"]
    assert completed(".watch o") == []
    assert "SELECT" in completed("sel")


def test_a_prompt_on_a_terminal(script: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb"}
    command = [sys.executable, "-c", "from cumulus.cli.main import main; main()", "shell", str(script)]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as shell:
        os.close(follower)
        for line in ("INSERT INTO customers", "VALUES (7, 'Peru');", "SELCT 1;", "FROM customers;", ".quit"):
            os.write(leader, f"{line}\n".encode())
        told = b""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                told += os.read(leader, 4096)
            except OSError:  # how a terminal says that nobody is left
                break
        assert shell.wait(timeout=30) == 0
    text = told.decode(errors="replace")
    assert "1 rows in" in text
    assert "error: SELCT begins no statement" in text
    assert "Peru" in text
    assert ".quit" in (tmp_path / "state" / "cumulus" / "history").read_text()


def test_columns_of_one_name_and_rows_of_a_terminal_are_shown(script: Path) -> None:
    told = ask(script, "-c", "SELECT 1 AS a, 2 AS a, chr(27) || '[2J' AS escape")
    assert told.splitlines()[-1].split() == ["1", "│", "2", "│", "\\x1b[2J"]
    shown = Console(record=True, width=80)
    print_rows(shown, pa.table({"n": range(100)}), most=40)
    assert shown.export_text().splitlines()[-1] == "the first 40 of 100 rows"


@pytest.mark.parametrize("given", [b"SELECT '\xff' AS x;", b"\x00\x01\xff;", b"SELECT 1;\0"])
def test_an_input_that_is_no_text_is_told(script: Path, given: bytes) -> None:
    told = CliRunner().invoke(app, ["shell", str(script)], input=given)
    assert isinstance(told.exception, CumulusError)
    assert "the input" in str(told.exception)


def test_comments_are_no_statements(script: Path, tmp_path: Path) -> None:
    text = "\ufeff-- all\n/* a; */ SELECT 1 AS a /* b */;\r\n; /* c */;\nSELECT 2 AS a\n;-- bye\n"
    assert rows_of(ask(script, "--json", given=text)) == [{"a": 1}, {"a": 2}]
    (tmp_path / "more.sql").write_text(text)
    told = ask(script, "--json", "-c", f".read {tmp_path / 'more.sql'}", "-c", "-- nothing")
    assert rows_of(told) == [{"a": 1}, {"a": 2}]


def test_moments_of_a_statement_are_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    declared = "CREATE TABLE t (at_ TIMESTAMPTZ); INSERT INTO t VALUES ('2024-07-01 12:00'), (NULL);"
    told = ask("--json", given=f"{declared} DELETE FROM t WHERE at_ IS NULL; SELECT at_::VARCHAR AS s FROM t;")
    assert rows_of(told) == [{"s": "2024-07-01 12:00:00+00"}]
