"""What holds for all tests: Ctrl-C is not ignored, and none waits for ever. What every engine does runs on each."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from types import FrameType
from typing import NoReturn

import pytest

from support.engines import KINDS, choose

_MOST_SECONDS = 1200
"""How long a test may take: far more than the longest does on a busy machine, and not for ever."""


def pytest_configure() -> None:
    """Do not ignore SIGINT: a shell that starts the tests in the background does, and what they start inherits it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test fail that waits for what does not come."""

    def fail(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"{item.nodeid} has taken {_MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(_MOST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module", params=KINDS)
def each_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run what uses this on the interpreter, then on the native engine."""
    choose(request.param)
    yield
    choose("interpreter")
