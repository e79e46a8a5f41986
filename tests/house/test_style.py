"""The house's own rules: sizes, docstrings, names, and nothing of anybody's machine (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from support.sources import MODULES, ROOT, SOURCES, expect_none, name_of, source

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the sources

FILE_LINES = 500
FUNCTION_LINES = 70

LONG_FILES: dict[str, str] = {}
"""File → why it may be longer."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`file:function` → why it may be longer."""


def tracked() -> list[Path]:
    """The files that git tracks; without git (an unpacked archive), all sources and pages."""
    try:
        told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [*SOURCES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    return [ROOT / name for name in told.split("\0") if name and (ROOT / name).is_file()]


def test_files_can_be_read_in_one_sitting() -> None:
    long = {name_of(path) for path in SOURCES if source(path).lines > FILE_LINES}
    assert long - LONG_FILES.keys() == set(), f"over {FILE_LINES} lines: split them"
    assert LONG_FILES.keys() - long == set(), "no exception is needed any more"


def test_functions_are_short() -> None:
    long = {
        f"{name_of(path)}:{name}"
        for path in SOURCES
        for name, lines in source(path).functions
        if lines > FUNCTION_LINES
    }
    assert long - LONG_FUNCTIONS.keys() == set(), f"over {FUNCTION_LINES} lines without docstring: split them"
    assert LONG_FUNCTIONS.keys() - long == set(), "no exception is needed any more"


def test_every_module_says_what_it_is() -> None:
    expect_none((name_of(path) for path in SOURCES if not source(path).docstring), "begin with a docstring")


UNDESCRIBED = 209
"""So many public functions with four or more parameters have no Parameters in their docstring; fewer is better."""


def test_long_lists_of_parameters_are_described() -> None:
    found = []
    for path in MODULES:
        if "src/cumulus/" not in path.as_posix():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name.startswith("_"):
                continue
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(each.arg not in ("self", "cls") for each in given)
            is_copied = any("described_by" in ast.unparse(each) for each in node.decorator_list)  # from what it calls
            if count >= 4 and not is_copied and "Parameters" not in (ast.get_docstring(node) or ""):
                found.append(f"{name_of(path)}:{node.name}")
    assert len(found) <= UNDESCRIBED, found
    assert len(found) == UNDESCRIBED, f"lower UNDESCRIBED to {len(found)}"


def test_a_package_is_a_docstring_and_reexports() -> None:
    """Imports, `__all__`, constants, and the two functions that make imports late; nothing that does something."""
    inits = [path for path in MODULES if path.name == "__init__.py"]
    found = (f"{name_of(path)}:{line}" for path in inits for line in source(path).statements)
    expect_none(found, "put it into a module of its own")


def test_no_room_for_leftovers() -> None:
    vague = re.compile(r"^_?(utils?|helpers?|common|core|misc|tools)$")
    found = [name_of(p) for p in SOURCES if any(vague.match(part) for part in (*p.parent.parts[-3:], p.stem))]
    expect_none(found, "say what it holds")


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
    expect_none(found, "a folder of somebody's machine")


def test_assertions_stay_on() -> None:
    """`assert` is for our own mistakes; the installed commands must not switch them off."""
    assert "-O" not in (ROOT / "Makefile").read_text(encoding="utf-8").split()


def test_no_simple_queue_is_waited_for_with_a_limit() -> None:
    """A signal at the end of such a wait makes it endless (Python 3.11); `queue.Queue` is as it should be."""
    timed = re.compile(r"\.get\((?:True, |timeout=|block=)")
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in MODULES}
    expect_none((name for name, text in texts.items() if "SimpleQueue" in text and timed.search(text)), "take a Queue")


def wall_clocks(text: str) -> list[str]:
    """Return the calls in a text that tell what time of the day it is."""
    clocks = {"time": {"time", "time_ns", "localtime", "gmtime", "ctime"}, "datetime": {"now", "utcnow", "today"}}
    clocks["date"] = {"today"}
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in clocks.get(ast.unparse(node.value).rpartition(".")[2], ())
    ]


def test_no_machine_of_a_cluster_reads_the_wall_clock() -> None:
    """Clocks of hosts may be a day apart."""
    assert wall_clocks("import time, datetime; time.time(); datetime.datetime.now(); datetime.date.today()") == [
        "time.time",
        "datetime.datetime.now",
        "datetime.date.today",
    ]
    assert not wall_clocks("time.monotonic(); self.time.now")
    rooms = ("src/cumulus/cluster/", "src/cumulus/transport/", "src/cumulus/machine.py")
    mine = [path for path in MODULES if any(room in path.as_posix() for room in rooms)]
    assert len(mine) > 100
    found = [f"{name_of(path)}: {clock}" for path in mine for clock in wall_clocks(path.read_text(encoding="utf-8"))]
    expect_none(found, "take the monotonic clock")


def test_text_is_printed_as_it_is() -> None:
    """Only `cumulus.cli.terminal.consoles` makes consoles of rich, so that no `:x:` of a user becomes a picture."""
    made = {name_of(path) for path in SOURCES if re.search(r"(?<!\w)Console\(", path.read_text(encoding="utf-8"))}
    assert {name for name in made if not name.startswith("tests/")} == {"src/cumulus/cli/terminal/consoles.py"}
