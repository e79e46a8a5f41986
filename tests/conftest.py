"""Tests of what every engine does run on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.engines import KINDS, choose


@pytest.fixture(scope="module", params=KINDS)
def each_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run what uses this on the interpreter, then on the native engine."""
    choose(request.param)
    yield
    choose("interpreter")
