"""Cases that once differed from DuckDB, as `make fuzz` has printed them: one file each in `regressions`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.case import parse_case
from fuzz.compare import compare

CASES = sorted((Path(__file__).parent / "regressions").glob("*.sql"))


@pytest.mark.parametrize("mode", ["event", "call", "batch"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_once_was_wrong_is_right(path, mode):
    found = compare(parse_case(path.read_text(encoding="utf-8"), mode))
    assert (found.invalid, found.refused, found.failures, found.doubted) == ({}, {}, [], [])
    assert found.shown
