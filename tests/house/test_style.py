"""The house's own rules: sizes, docstrings, names, and nothing of anybody's machine (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cumulus"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]
FILE_LINES = 500
FUNCTION_LINES = 70

LONG_FILES: dict[str, str] = {}
"""File → why it may be longer."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`file:function` → why it may be longer."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def tracked() -> list[Path]:
    """The files that git tracks; without git (an unpacked archive), all sources and pages."""
    try:
        told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [*SOURCES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    return [ROOT / name for name in told.split("\0") if name and (ROOT / name).is_file()]


def test_files_can_be_read_in_one_sitting() -> None:
    long = {name_of(p) for p in SOURCES if len(p.read_text(encoding="utf-8").splitlines()) > FILE_LINES}
    assert long - LONG_FILES.keys() == set(), f"over {FILE_LINES} lines: split them"
    assert LONG_FILES.keys() - long == set(), "no exception is needed any more"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its name to its end, without its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def test_functions_are_short() -> None:
    long = {
        f"{name_of(path)}:{node.name}"
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and body_lines(node) > FUNCTION_LINES
    }
    assert long - LONG_FUNCTIONS.keys() == set(), f"over {FUNCTION_LINES} lines without docstring: split them"
    assert LONG_FUNCTIONS.keys() - long == set(), "no exception is needed any more"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), "begin with a docstring"


INITS = [path for path in MODULES if path.name == "__init__.py"]


@pytest.mark.parametrize("path", INITS, ids=name_of)
def test_a_package_is_a_docstring_and_reexports(path: Path) -> None:
    """Imports, `__all__`, constants, and the two functions that make imports late; nothing that does something."""
    _, *rest = parsed(path).body
    for node in rest:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.FunctionDef(name="__getattr__" | "__dir__"):
                continue
            case _:
                pytest.fail(f"line {node.lineno}: put it into a module of its own")


def test_no_room_for_leftovers() -> None:
    vague = re.compile(r"^_?(utils?|helpers?|common|core|misc|tools)$")
    found = [name_of(p) for p in SOURCES if any(vague.match(part) for part in (*p.parent.parts[-3:], p.stem))]
    assert found == []


def test_nothing_names_a_machine() -> None:
    # Put together from parts, so that this file does not name one either.
    homes = "|".join(["/" + "root/", "/" + "work/", "/" + r"home/\w+", "/" + r"Users/\w+", r"[A-Z]:\\" + "Users"])
    pattern = re.compile(rf"(?<![\w.])(?:{homes})")
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}:{n}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    assert found == []


def test_assertions_stay_on() -> None:
    """`assert` is for our own mistakes; the installed commands must not switch them off."""
    assert "-O" not in (ROOT / "Makefile").read_text(encoding="utf-8").split()
