"""One Spark session for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cumulus.spark import local_session

    started = local_session(cores=2, memory="1g")
    yield started
    started.stop()
