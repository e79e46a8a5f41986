"""Cases that once differed from DuckDB, as `make fuzz` has printed them: one file each in `regressions`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.case import parse_case
from fuzz.compare import compare
from support.tiers import one_mode_each

CASES = sorted((Path(__file__).parent / "regressions").glob("*.sql"))


@pytest.mark.parametrize(("path", "mode"), one_mode_each(CASES, ("event", "call", "batch"), of=2))
def test_what_once_was_wrong_is_right(path, mode):
    found = compare(parse_case(path.read_text(encoding="utf-8"), mode))
    assert (found.invalid, found.refused, found.failures, found.doubted) == ({}, {}, [], [])
    assert found.shown
