"""What a command imports before it does anything: its own modules, and no other command's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.command_line import cumulus
from support.tiers import sampled

COMMANDS = {
    "ring": ("ring", "query"),
    "query": ("query",),
    "doctor": ("doctor",),
    "run": ("run",),
    "stats": ("stats",),
    "serve": ("serve",),
    "shell": ("shell",),
    "cluster": ("cluster", "status"),
    "cube": ("cube", "query"),
    "simulate": ("simulate", "ring"),
    "recheck": ("recheck",),
    "compile": ("compile",),
    "explain": ("explain",),
    "demo": ("demo",),
    "experiments": ("experiments", "ring"),
}
HEAVY = ("duckdb", "pandas", "pyspark", "llvmlite", "uvicorn", "cumulus.compiler", "cumulus_lab.bench", "cumulus.spark")
PROGRAM = """
import json, sys
from cumulus.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments: str) -> list[str]:
    """Return the modules of a process that ran a command."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    modules: list[str] = json.loads(ended.stderr.splitlines()[-1])
    return modules


@pytest.mark.parametrize("name", sampled(COMMANDS, of=5))
def test_a_command_starts_without_the_modules_of_others(name: str) -> None:
    modules = imported(*COMMANDS[name], "--help")
    found = {each for each in HEAVY if each in modules}
    assert found <= {"compile": {"cumulus.compiler"}, "doctor": {"cumulus_lab.bench"}}.get(name, set())
    others = {f"cumulus.cli.{other}" for other in COMMANDS if other not in (name, "run")}
    assert not others & {*modules}, "the command line imported other commands"


def test_the_client_of_a_ring_imports_no_engine() -> None:
    modules = imported("ring", "query", "SELECT 1", "--home", "/nowhere")
    assert "cumulus_ring.process.client" in modules
    unwanted = {*HEAVY, "cumulus.m3", "cumulus.scalars", "cumulus.views.finishing", "cumulus_ring.machine.node"}
    assert not unwanted & {*modules}


@pytest.mark.parametrize("name", [":x:", "[bold]x[/bold]", "[/]", ":smile:.sql"])
def test_an_error_says_what_a_user_has_written(name: str) -> None:
    assert name in cumulus("compile", name).stderr
