"""What is imported before it is used: a first example begins in a fraction of a second, since most is not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FIRST = """
import cumulus
wh = cumulus.Warehouse("CREATE TABLE r (a INT, b TEXT, x DECIMAL(9, 2)); "
    "CREATE VIEW v AS SELECT b, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY b")
wh.insert("r", [(1, "x", 2), (2, "y", 3)])
wh.view("v").rows(), wh.view("v").get("x"), repr(wh.view("v"))
"""
BROUGHT = {"cython_runtime", "mypy_extensions"}
"""What libraries import themselves."""
LIBRARIES = {"import cumulus": set(), FIRST: {"numpy", "pyarrow", "sqlglot", "llvmlite", "rich", *BROUGHT}}
"""Program → the libraries that it may import, by their top-level names."""
ROOMS = {
    "import cumulus": {"version"},
    FIRST: {
        *("algebra", "calculus", "catalog", "compiler", "durable", "engine", "errors", "explain", "garbage_collection"),
        *("interrupts", "m3", "scalars", "sql", "version", "views", "warehouse"),
    },
}
"""Program → the rooms of cumulus that it may import."""
HEAVY = ("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.pandas_compat", "cumulus.engine.interpreter")
"""Modules of those libraries and rooms that no program here may import: each takes 10 milliseconds or more."""


def imported(program: str) -> set[str]:
    """Return the modules that a new process has after a program."""
    ending = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", program + ending], capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize("program", LIBRARIES)
def test_a_first_example_imports_what_it_uses(program: str) -> None:
    before, after = imported(""), imported(program)
    new = {name.partition(".")[0] for name in after - before}
    libraries = {
        name for name in new - sys.stdlib_module_names if not name.startswith(("_", "cumulus", "__editable__"))
    }
    assert libraries <= LIBRARIES[program]
    rooms = {name.split(".")[1] for name in after if name.startswith("cumulus.")}
    assert rooms <= ROOMS[program]
    assert not after & {*HEAVY}


def test_the_version_is_told_without_a_command_line() -> None:
    modules = imported("import sys; sys.argv = ['cumulus', '--version']; from cumulus.cli.start import main; main()")
    assert {name for name in modules if name.startswith("cumulus.")} == {
        *("cumulus.cli", "cumulus.cli.start", "cumulus.version"),
    }
    assert "typer" not in modules


def test_the_help_of_all_commands_needs_no_library_of_numbers() -> None:
    program = "import sys; sys.argv = ['cumulus', '--help']; from cumulus.cli.start import main\n"
    modules = imported(f"{program}try:\n    main()\nexcept SystemExit:\n    pass")
    assert "typer" in modules
    assert not {"numpy", "pyarrow", "duckdb", "sqlglot", "cumulus.compiler", "cumulus.engine.session"} & {*modules}
