"""What holds for all tests: Ctrl-C is not ignored, and none waits for ever. What every engine does runs on each."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import pytest

from support.engines import KINDS, choose

if TYPE_CHECKING:
    from support.object_server import Proxy

_MOST_SECONDS = 1200
"""How long a test may take: far more than the longest does on a busy machine, and not for ever."""


def pytest_configure() -> None:
    """Do not ignore SIGINT: a shell that starts the tests in the background does, and what they start inherits it.

    What is not equal in a comparison that many tests share is shown as in a test.
    """
    pytest.register_assert_rewrite("support.told_in_order")
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


@pytest.fixture(scope="session")
def object_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Run one S3 server with a proxy before it; tests that use it are of the group "objects"."""
    from support.object_server import Proxy, object_server

    with object_server(tmp_path_factory.mktemp("weed")) as endpoint:
        found = Proxy(endpoint)
        yield found
        found.close()


@pytest.fixture
def proxy(object_proxy: Proxy) -> Iterator[Proxy]:
    """Give the proxy of the S3 server, without faults and with nothing counted."""
    object_proxy.reset()
    yield object_proxy
    object_proxy.reset()
