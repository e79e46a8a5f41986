"""M3 programs as PySpark streaming queries: `maintain` keeps views up to date, exactly once.

`feed` sends the rows of a stream to a cluster, and `host` lets a cluster run in the executors of an application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulus.spark.checkpoints.stored_state import stored_parts
    from cumulus.spark.pipeline import Run, maintain
    from cumulus.spark.session import local_session
    from cumulus.spark.streams import Frame
    from cumulus.spark.tables import register

__all__ = ["Frame", "Run", "feed", "host", "local_session", "maintain", "register", "stored_parts"]

_PLACES = {
    "Frame": "cumulus.spark.streams",
    "Run": "cumulus.spark.pipeline",
    "feed": "cumulus.cluster.live.stream_feed",  # above this room: it is both Spark's and the cluster's
    "host": "cumulus.cluster.hosted.spark_hosts",
    "local_session": "cumulus.spark.session",
    "maintain": "cumulus.spark.pipeline",
    "register": "cumulus.spark.tables",
    "stored_parts": "cumulus.spark.checkpoints.stored_state",
}


def __getattr__(name: str) -> Any:
    """Import late: `cumulus doctor` looks into this room on machines without pyspark."""
    if name not in _PLACES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
