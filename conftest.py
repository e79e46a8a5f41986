"""What all tests share: a cache of machine code of their own, and which cases run on which engine."""

from __future__ import annotations

import gc
import os
import zlib
from collections import defaultdict

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)  # no test depends on the machine's speed
settings.load_profile("house")


def pytest_configure() -> None:
    """Look for garbage less often: a worker keeps over a million objects, and a tenth of its time went into that."""
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _object_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "CUMULUS_CACHE" not in os.environ:
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        os.environ["CUMULUS_CACHE"] = str(shared / "objects")


@pytest.hookimpl(tryfirst=True)  # before tests that are marked slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each case that runs on every engine one engine in the fast tier: the engines come in turn."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "each_engine" in getattr(getattr(item, "callspec", None), "params", {}):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, runs in cases.items():
        first = zlib.crc32(name.encode())  # the same whatever else is run
        by_engine: dict[object, list[pytest.Item]] = defaultdict(list)
        for item in runs:
            by_engine[item.callspec.params["each_engine"]].append(item)  # type: ignore[attr-defined]
        for turn, each in enumerate(by_engine.values()):
            for place, item in enumerate(each):
                if (place + first) % len(by_engine) != turn:
                    item.add_marker(pytest.mark.slow)
