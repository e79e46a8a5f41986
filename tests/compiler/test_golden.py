"""SQL → M3, as written in golden/*.txt: the script, a line `---`, the program.

Change a golden file only if you can say what changed it. `CUMULUS_GOLDEN=write pytest tests/compiler/test_golden.py`
writes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cumulus import m3
from cumulus.compiler import compile_sql

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_program_is_as_written(file):
    script, _, expected = file.read_text(encoding="utf-8").partition("\n---\n")
    program = compile_sql(script, name=file.stem, batches="-- batches" in script)
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        file.write_text(f"{script}\n---\n{program}", encoding="utf-8")
    else:
        assert str(program) == expected
    assert m3.parse(str(program)) == program


def test_there_are_golden_files():
    assert len(FILES) >= 10
