"""A standard output that cannot be written: one readable error and an exit code, whichever command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import cumulus
from support.tiers import sampled

FULL = Path("/dev/full")
COMMANDS = {
    "query": ("query", "out", "FROM v"),
    "query --json": ("query", "out", "FROM v", "--json"),
    "compile": ("compile", "v.sql"),
    "explain": ("explain", "v.sql"),
    "run": ("run", "v.sql", "--from", "in", "--out", "out", "--host", "embedded"),
    "doctor": ("doctor",),
    "help": ("--help",),
    "help of a command": ("run", "--help"),
    "version": ("--version",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("full")
    (found / "in/t").mkdir(parents=True)
    (found / "in/t/1.jsonl").write_text('{"k": 1}\n')
    (found / "v.sql").write_text("CREATE TABLE t (k INT); CREATE VIEW v AS SELECT k FROM t")
    assert cumulus(*COMMANDS["run"], folder=found).returncode == 0
    return found


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", sampled(COMMANDS, of=3))
def test_no_room_for_what_is_printed(folder: Path, command: str) -> None:
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", "from cumulus.cli.main import main; main()", *COMMANDS[command]],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 1, ended
    told = [line for line in ended.stderr.splitlines() if line.strip()]
    assert told[-2:] == [
        "error: standard output cannot be written: No space left on device",
        "Make room, or send the output elsewhere; some of it may be missing.",
    ]
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
