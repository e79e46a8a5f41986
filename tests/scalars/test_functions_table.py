"""`docs/functions.md` lists exactly the functions that exist, with their NULL rules."""

from __future__ import annotations

import re
from pathlib import Path

from cumulus.scalars.registry import FUNCTIONS

TEXT = (Path(__file__).parents[2] / "docs" / "functions.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", TEXT, re.MULTILINE)


def test_the_table_lists_every_function_once() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(FUNCTIONS)


def test_the_table_tells_the_null_rule() -> None:
    for name, rule in ROWS:
        assert rule.startswith("strict") is FUNCTIONS[name].strict, name
