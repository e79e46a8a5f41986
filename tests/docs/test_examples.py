"""Every code block of the README and of docs/ runs; tests/support/fences.py says how a page marks its blocks."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cumulus import Warehouse, m3
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import Kind
from cumulus.compiler import compile_sql
from cumulus.errors import SqlError
from cumulus.workloads import checks
from cumulus_ring.process import ring_supervisor
from support.command_line import cumulus
from support.fences import Fence, fences, matches

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ONLY_COMPUTES = frozenset(
    [
        "query",
        "cube",
        "explain",
        "compile",
        "recheck",
        "shell",
        "stats",
        "plan",
        "status",
        "stop",
        "replay",
        "embedded",
        "experiments",
    ]
)
"""Words of commands that start no processes: they are called in this one, which saves the second that imports take."""
LANGUAGES = {"", "text", "output", "python", "console", "sql", "m3", "mermaid", "json", "javascript"}


class Page:
    """Runs the blocks of one page in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: str | None = None
        self.tables = ""

    def run(self, fence: Fence) -> None:
        expected, self.printed = self.printed, None
        if "ignore" in fence.options or "elsewhere" in fence.options:
            return
        assert fence.language in LANGUAGES, f"a block in {fence.language!r}: add the language here"
        runners: dict[str, Callable[[Fence], None]] = {
            "python": self._python,
            "console": self._console,
            "sql": self._sql,
            "m3": lambda fence: self._m3(fence.text),
            "javascript": self._javascript,
        }
        if fence.language == "output":
            assert expected is not None, "an output block stands after a python block"
            assert matches(fence.text, expected), f"printed:\n{expected}"
        elif fence.language in runners:
            runners[fence.language](fence)

    def _python(self, fence: Fence) -> None:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile(fence.text, "<block>", "exec"), self.names)
        self.printed = told.getvalue()

    def _javascript(self, fence: Fence) -> None:
        """Run it against the server of the page, whose address is in a file, where there is a Node.js."""
        if shutil.which("node") is not None:
            text = fence.text.replace("http://127.0.0.1:8321", (self.folder / "address").read_text())
            command = ["node", "--input-type=module", "--eval", text]
            subprocess.run(command, cwd=self.folder, check=True, timeout=60, capture_output=True)

    def _console(self, fence: Fence) -> None:
        command, expected = "", ""
        for line in [*fence.text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                expected += line + "\n"
                continue
            if command:
                told = _shell(command, self.folder)
                assert matches(expected, told), f"$ {command}\nprinted:\n{told}"
            command, expected = line[2:], ""

    def _sql(self, fence: Fence) -> None:
        if fence.options == ("refused",):
            for statement in fence.text.strip().split("\n;\n"):
                self._refused(statement)
            return
        assert fence.options == (), f"unknown options {fence.options}"
        if "CREATE TABLE" in fence.text:
            self.tables = ""
        script = self.tables + fence.text
        same_as_duckdb(script)
        if "CREATE TABLE" in fence.text:
            self.tables = ";\n".join(s for s in _statements(fence.text) if "CREATE TABLE" in s) + ";\n"

    def _refused(self, text: str) -> None:
        words = [line.partition("-- ")[2] for line in text.splitlines() if "-- " in line]
        assert len(words) == 1, f"one comment says what the message says: {text}"
        with pytest.raises(SqlError) as caught:
            compile_sql(self.tables + text)
        assert words[0] in str(caught.value), f"{text}\nsaid: {caught.value}"

    def _m3(self, text: str) -> None:
        program = m3.parse(text)
        assert m3.parse(str(program)) == program


def _shell(command: str, folder: Path) -> str:
    """Return what a command prints; the `cumulus` of this interpreter comes first."""
    words = _simple_command(re.sub(r"\$\(cat (\S+)\)", lambda found: (folder / found[1]).read_text().strip(), command))
    if words[:1] == ["cumulus"] and ONLY_COMPUTES.intersection(words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "120")
            patch.delenv("FORCE_COLOR", raising=False)
            ended = cumulus(*words[1:], folder=folder)
        return ended.stdout + ended.stderr
    path = os.pathsep.join([str(folder / "bin"), os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    source = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "120"}
    environment.pop("FORCE_COLOR", None)
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


def _simple_command(command: str) -> list[str]:
    """Return the words of a command, none if it is one for a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>$`*")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = list(lexer)
    return [] if any(set(word) <= set("|&;<>$`*") for word in words) else words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with the repository's examples in it; a ring that a page has left running is stopped."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = tmp_path / "bin" / "cumulus"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom cumulus.cli.main import main\nmain()\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for ring in tmp_path.glob("*/ring.json"):
        ring_supervisor.stop(ring.parent)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_blocks_of_the_page_run(page: Path, folder: Path) -> None:
    running = Page(folder)
    try:
        for fence in fences(page):
            try:
                running.run(fence)
            except Exception as problem:
                problem.add_note(f"{page.relative_to(ROOT)}:{fence.line}")
                raise
    finally:
        for started in running.names.values():
            if isinstance(started, subprocess.Popen) and started.poll() is None:
                started.kill()


def test_few_blocks_are_ignored() -> None:
    ignored = [(page.name, f.line) for page in PAGES for f in fences(page) if "ignore" in f.options]
    assert len(ignored) <= 10, ignored


def test_commands_stand_in_blocks_that_run() -> None:
    for page in PAGES:
        for fence in fences(page):
            if fence.language in ("", "text"):
                told = [line for line in fence.text.splitlines() if line.lstrip("$ ").startswith(("cumulus ", "make "))]
                assert not told, f"{page.name}:{fence.line}: use ```console"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", _prose(page)):
            if not target.startswith(("http:", "https:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def _prose(page: Path) -> str:
    """Return the text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "", text)


# --- SQL against DuckDB -----------------------------------------------------------------------------------------------


def same_as_duckdb(script: str) -> None:
    """Run the views of a script on random rows, some of which go again, and compare each with DuckDB."""
    warehouse = Warehouse(script)
    choose = random.Random(4)
    tables: dict[str, pa.Table] = {}
    columns = {relation.name: relation for relation in warehouse.program.relations}
    for name, relation in columns.items():
        rows = _random_rows(relation, choose, 30)
        warehouse.insert(name, rows)
        if not relation.static:
            is_parent = any(key.parent == name for each in columns.values() for key in each.foreign_keys)
            leaving = [] if is_parent else [row for row in rows if choose.random() < 0.3]
            warehouse.delete(name, leaving)
            for row in leaving:
                rows.remove(row)
        tables[name] = _arrow(relation.columns, rows)
    plain = re.sub(r"(CREATE VIEW \w+) \([\w, ]+\) AS", r"\1 AS", script)  # the oracle's reader knows no column lists
    plain = re.sub(
        r"CREATE CUBE (\w+)[^;]*?\sAS\s", r"CREATE VIEW \1 AS ", plain
    )  # nor levels: these are its finest rows
    selects = checks.views(plain)
    assert set(warehouse.views) == set(selects)
    for view, select in selects.items():
        expected = checks.recompute(select, tables)
        assert expected.num_rows, f"{view} has no rows: the comparison says nothing"
        actual = warehouse.view(view).arrow()
        found = checks.differences(expected.rename_columns(actual.schema.names), actual)
        assert not found, f"{view}: {found}"


def _statements(script: str) -> Iterable[str]:
    return checks.statements(script)


def _random_rows(relation: Relation, choose: random.Random, count: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    taken: set[tuple[Any, ...]] = set()
    for _ in range(count):
        row = tuple(_random_value(column, choose) for column in relation.columns)
        key = tuple(row[at] for at in relation.key_positions)
        if relation.key and key in taken:
            continue
        taken.add(key)
        rows.append(row)
    return rows


def _random_value(column: Column, choose: random.Random) -> Any:
    if not column.not_null and choose.random() < 0.2:
        return None
    number = choose.randint(1, 6)
    assert column.type is not None
    match column.type.kind:
        case Kind.VARCHAR:
            return choose.choice(("France", "Kenya", "Japan", "Peru"))
        case Kind.DECIMAL:
            return Decimal(number) + Decimal(choose.randint(0, 9)).scaleb(-column.type.scale)
        case Kind.DOUBLE | Kind.REAL:
            return number / 2
        case Kind.BOOLEAN:
            return number > 3
        case Kind.DATE:
            return date(2024, number, 28)
        case Kind.TIMESTAMP:
            return datetime(2024, 1, number, number * 3, 30)
        case _:
            return choose.randint(1, 9)


def _arrow(columns: tuple[Column, ...], rows: list[tuple[Any, ...]]) -> pa.Table:
    from cumulus.catalog.arrow import table_of

    return table_of(columns, rows)
