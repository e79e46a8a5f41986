"""`cumulus` as a user calls it, but in this process: one of its own imports for a second what is here already."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from cumulus.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def cumulus(*arguments: str | Path, folder: Path | None = None) -> Ended:
    """Run a command to its end, in a folder if one is given."""
    output, problems = io.StringIO(), io.StringIO()
    code = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(folder or os.curdir),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(problems),
    ):
        patch.setattr(sys, "argv", ["cumulus", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, output.getvalue(), problems.getvalue())
