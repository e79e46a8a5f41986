"""What all tests share: a cache of machine code of their own, for as long as they run."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _object_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "CUMULUS_CACHE" not in os.environ:
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        os.environ["CUMULUS_CACHE"] = str(shared / "objects")
